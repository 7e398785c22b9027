#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_replay.py DENSE.gguf: the scenarios of replay.py against the daemon read what they have to, and no token more.

A dense model reads what no earlier prompt or answer holds (replay.py's `ideal`), within one token per request.  A hybrid reads
what lies behind the deepest checkpoint that design section 5 says there is, worked out here from the prompts and answers alone.
"""
import json
import os
import subprocess
import sys

from daemon_lab import NEEDLE, SHORT, SRC, Daemon

ROOT_MIN, EVERY, PAGE, IM_START = 128, 8192, 64, 1
SCENARIOS = ["warm", "branch", "subagents", "alternate", "roots"]
if SHORT:
    SCENARIOS = [s for s in SCENARIOS if s in ("branch", "subagents")]


def common(a, b):
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low = 0  # they differ in [low, n)
    while n - low > 1:
        middle = (low + n) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            n = middle
    return low


class Stored:
    """What a hybrid's cache has to hold, when nothing is ever evicted."""

    def __init__(self):
        self.paths = []  # (tokens, positions)

    def deepest(self, prompt):
        at = leaves_at = 0
        for tokens, positions in self.paths:
            same = common(prompt, tokens)
            leaves_at = max(leaves_at, same)
            at = max([at] + [p for p in positions if p <= min(same, len(prompt) - 1)])
        return at, leaves_at

    def add(self, prompt, answer, at, leaves_at):
        n = len(prompt)
        opens = [i for i, t in enumerate(prompt) if t == IM_START]
        turn = opens[-1]
        positions = {turn, *range(EVERY, n, EVERY)}
        if len(opens) > 1 and opens[1] >= ROOT_MIN:
            positions.add(opens[1])
        if n - 1 - turn > PAGE:
            positions.add(n - 1)
        if leaves_at >= at + PAGE:
            positions.add(leaves_at)
        tokens = prompt + answer[:-1]
        self.paths.append((tokens, [p for p in positions if at < p < n] + [len(tokens)]))


def replay(daemon, scenario, *more):
    rows = os.path.join(daemon.dir, scenario + ".json")
    scale = "0.05" if SHORT else "0.1"
    subprocess.run([sys.executable, os.path.join(SRC, "tests/replay.py"), "--unix", daemon.api, scenario, "--scale", scale, "--answer", "8",
                    "--ids", "--json", rows, *more], check=True, stdout=subprocess.DEVNULL)
    with open(rows) as f:
        return json.load(f)


def fail(model, scenario, row, want):
    return f"{model} {scenario} {row['label']}: {row['read']} of {row['prompt']} read, expected {want}"


def dense(path):
    for scenario in SCENARIOS:
        with Daemon(path, root_min=ROOT_MIN) as d:
            rows = replay(d, scenario)
        yield len(rows), [fail("dense", scenario, r, r["ideal"]) for r in rows if abs(r["read"] - r["ideal"]) > 1]


def hybrid():
    for scenario in SCENARIOS:
        with Daemon(NEEDLE, root_min=ROOT_MIN) as d:
            rows = replay(d, scenario, "--turn", str(IM_START))
        stored, faults = Stored(), []
        for r in rows:
            at, leaves_at = stored.deepest(r["prompt_ids"])
            if r["read"] != r["prompt"] - at:
                faults.append(fail("hybrid", scenario, r, r["prompt"] - at))
            stored.add(r["prompt_ids"], r["ids"], at, leaves_at)
        yield len(rows), faults


n, faults = 0, []
for rows, wrong in [*dense(sys.argv[1]), *hybrid()]:
    n += rows
    faults += wrong
print("\n".join(faults + [f"{n} requests, {len(faults)} read something else"]))
sys.exit(1 if faults or n == 0 else 0)
