#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dialogues of needle.jsonl from 8 concurrent clients through the daemon, in random order, some leaving on the way, with tiers
that hold a few of them: every answer is golden, and what the daemon tells of the requests adds up."""
import random
import sys
import threading
import time

from daemon_lab import SHORT, Daemon, golden

N_CLIENTS, IM_START, USER = 8, 1, 308
faults = []
counts = {"answers": 0, "turns": 0, "left": 0}
DIALOGUES = [g for g in golden() if len(g["prompt_ids"]) <= (220 if SHORT else 620)]


def talk(d, rng, g):
    """Some dialogues turn by turn, some at once; a client may leave and ask again."""
    ids, want = g["prompt_ids"], g["greedy_ids"]
    if rng.random() < 0.4:
        for i in range(1, len(ids) - 3):
            if ids[i] == IM_START and ids[i + 1] != USER and rng.random() < 0.5:
                d.complete(ids[:i + 3], 4)
                counts["turns"] += 1
    while rng.random() < 0.25:
        d.complete(ids, len(want), leave_after=rng.randrange(0, 5))
        counts["left"] += 1
    out, _ = d.complete(ids, len(want))
    counts["answers"] += 1
    if out != want:
        faults.append(f"not \"{g['text']}\" but {out}")


def client(d, seed):
    rng = random.Random(seed)
    try:
        for g in rng.sample(DIALOGUES, len(DIALOGUES))[:len(DIALOGUES) // (4 if SHORT else 2)]:
            talk(d, rng, g)
    except BaseException as e:  # SystemExit says what the daemon answered
        faults.append(f"{type(e).__name__}: {e}")


def check_told(d):
    for _ in range(3000):
        rows = d.get("/v1/requests?limit=1000")[1]["data"]
        if all(r["state"] == "done" for r in rows):
            break
        time.sleep(0.01)
    totals = d.ctl("cache", "stats")
    reuse = totals["reuse"]
    reached = [r for r in rows if r["finish_reason"] in ("stop", "length")]
    if len(reached) < counts["answers"] + counts["turns"]:
        faults.append(f"{len(reached)} requests came to their end, {counts} were made")
    for r in reached:
        if r["reused_tokens"] + r["read_tokens"] != r["prompt_tokens"] or (r["hit"] and not r["switch"]):
            faults.append(f"does not add up: {r}")
        told = d.get(f"/v1/requests/{r['request']}")[1]
        if told["found_tokens"] > told["common_tokens"] or not told["explain"]:
            faults.append(f"request {r['request']}: {told}")
    if reuse["hits"] + reuse["misses"] != reuse["switches"] or reuse["switches"] + reuse["continuations"] != reuse["requests"]:
        faults.append(f"sums: {reuse}")
    if reuse["reused_tokens"] < 1000 or totals["evictions"] == 0 or totals["loads"] == 0:
        faults.append(f"too quiet to prove anything: {totals}")
    for tier in ("vram", "ram"):
        if not 0 < totals[tier]["units_held"] <= totals[tier]["units_limit"]:
            faults.append(f"{tier}: {totals[tier]}")


def check_journal(d):
    with open(d.log) as f:
        lines = [dict(w.split("=", 1) for w in line.split() if "=" in w) for line in f if "completion done" in line]
    done = [x for x in lines if x["finish"] in ("stop", "length")]
    for x in done:
        if int(x["cached"]) + int(x["read"]) != int(x["prompt"]):
            faults.append(f"the journal says {x}")
    if len(done) < counts["answers"]:
        faults.append(f"{len(done)} lines in the journal for {counts}")


with Daemon(vram_mib=12, conversation_cache_mib=10, conversation_cache_slots=10, root_min=128, log_level="info") as daemon:
    clients = [threading.Thread(target=client, args=(daemon, i)) for i in range(N_CLIENTS)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    check_told(daemon)
    check_journal(daemon)
print("\n".join(faults + [f"{counts}, {len(faults)} faults"]))
sys.exit(1 if faults or counts["answers"] < N_CLIENTS else 0)
