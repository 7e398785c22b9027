#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The longest pause in one client's stream while another one sends a chat of 2.6 MB.

    gap.py [--rounds N] STRATAD MODEL.gguf

All of it is parsed, rendered and made tokens before it is known that the context is too short for it.  Prints one row of bench_engine's
CSV, in milliseconds: the pause beside the longest one of the same stream without that client.
"""
import argparse
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests"))
import daemon_lab  # noqa: E402

N_TOKENS, MAX_GAP_MS = 1500, 200
WORDS = "The quick brown fox reads {\"name\": \"value\", \"n\": 12345} and then writes it down again. "


def body():
    """Half of it in one message, half in many."""
    half = WORDS * (1300000 // len(WORDS))
    messages = [{"role": "user", "content": half}]
    for i in range(0, len(half), 2000):
        messages.append({"role": ("assistant", "user")[len(messages) % 2 == 0], "content": half[i:i + 2000]})
    return json.dumps({"messages": messages, "max_tokens": 1})


def send(daemon, text, out):
    c = daemon_lab.UnixConnection(daemon.api)
    c.request("POST", "/v1/chat/completions", text)
    r = c.getresponse()
    out.append((r.status, r.read()))
    c.close()


def pauses(daemon, other):
    """Times between tokens in ms; `other` is started after the first 200."""
    c = daemon_lab.UnixConnection(daemon.api)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": N_TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}))
    r = c.getresponse()
    gaps, last, thread = [], None, None
    for line in r:
        if not line.startswith(b"data: {"):
            continue
        now = time.monotonic()
        if last:
            gaps.append((now - last) * 1e3)
        last = now
        if len(gaps) == 200 and other:
            thread = threading.Thread(target=other)
            thread.start()
    alive = thread is not None and thread.is_alive()
    if thread:
        thread.join()
    c.close()
    return gaps, alive


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("daemon")
    p.add_argument("model")
    a = p.parse_args()
    daemon_lab.BUILD = os.path.dirname(a.daemon) or "."
    text, rows, alone = body(), [], []
    with daemon_lab.Daemon(a.model, max_gap_ms=MAX_GAP_MS, log_level="warning") as daemon:
        for _ in range(a.rounds):
            answers = []
            alone.append(max(pauses(daemon, None)[0]))
            gaps, alive = pauses(daemon, lambda: send(daemon, text, answers))
            rows.append(max(gaps[200:]))
            if alive:
                sys.stderr.write("bench: the stream ended before the large body was answered\n")
            if not answers or answers[0][0] != 400 or b"context_length_exceeded" not in answers[0][1]:
                sys.exit(f"gap.py: the large body was answered {answers}")
    rows.sort()
    print(f"{os.path.basename(a.model)},gap,2,-,{a.rounds},ms,{statistics.median(rows):.4f},{rows[0]:.4f},{rows[-1]:.4f},1.00,target,{MAX_GAP_MS:.4f},"
          f"{statistics.median(rows) / MAX_GAP_MS:.3f}")
    sys.stderr.write(f"bench: longest pause {statistics.median(rows):.1f} ms beside a body of {len(text) / 1e6:.1f} MB, {statistics.median(alone):.1f} ms without\n")


main()
