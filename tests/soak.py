#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py REQUESTS: mixed needle requests from 8 concurrent clients against the real daemon with small tiers.

Agents behind shared roots, chats that grow, edits, goings back, side requests, clients that leave, two salts; and the dialogues of
needle.jsonl, which have to get their golden answers.  No error; every 50th answer is compared with one that was read cold; at the
end the books add up, and memory is what it was after a quarter.
"""
import random
import sys
import threading
import time

from daemon_lab import Daemon, golden

N = int(sys.argv[1])
N_CLIENTS, N_AGENTS, MAX_PROMPT, IM_START = 8, 3, 700, 1
rng = random.Random(7)
faults, lock = [], threading.Lock()
done = {"all": 0, "left": 0, "compared": 0, "golden": 0}
quarter = {}


def words(r, n):
    return [IM_START] + [r.randrange(300, 1500) for _ in range(n - 1)]


ROOTS = [words(rng, n) for n in (150, 200, 140)]
GOLDEN = [g for g in golden() if len(g["prompt_ids"]) <= 360]


def fault(text):
    with lock:
        faults.append(text)


class Client(threading.Thread):
    def __init__(self, daemon, i):
        super().__init__()
        self.d, self.rng, self.chats = daemon, random.Random(100 + i), []
        self.salt = {"cache_salt": "b"} if i % 4 == 3 else {}

    def next_prompt(self):
        """A prompt and the chat that it belongs to; None: nobody's."""
        r, dice = self.rng, self.rng.random()
        if dice < 0.1 or (dice < 0.25 and not self.chats):
            return words(r, r.randrange(5, 60)), None  # a side request
        if len(self.chats) < N_AGENTS or dice < 0.15:
            self.chats = self.chats[-N_AGENTS + 1:] + [{"ids": list(r.choice(ROOTS)), "turn": 0, "before": None}]
            chat = self.chats[-1]
        else:
            chat = r.choice(self.chats)
        ids = list(chat["ids"])
        if dice < 0.7:
            new = words(r, r.randrange(5, 80))
        elif dice < 0.8 and len(ids) > 160:  # an edit
            ids = ids[:r.randrange(130, len(ids))]
            new = words(r, 20)
        elif dice < 0.9 and chat["before"]:  # back to what was before
            ids, new = list(chat["before"]), []
        else:  # the answer is dropped
            ids = ids[:chat["turn"]] or ids
            new = words(r, 15)
        chat["before"], chat["turn"] = chat["ids"], len(ids)
        ids += new
        if len(ids) > MAX_PROMPT:
            chat["ids"], chat["before"], chat["turn"] = list(r.choice(ROOTS)), None, 0
            ids = chat["ids"] + words(r, 10)
        return ids, chat

    def one(self, k):
        r, compare = self.rng, k % 50 == 0
        if r.random() < 0.1 and not compare:
            g = r.choice(GOLDEN)
            out, _ = self.d.complete(g["prompt_ids"], len(g["greedy_ids"]), **self.salt)
            if out != g["greedy_ids"]:
                fault(f"request {k}: not a golden answer")
            done["golden"] += 1
            return
        ids, chat = self.next_prompt()
        n = r.randrange(1, 12)
        leave = r.randrange(0, 4) if r.random() < 0.1 and not compare else None
        out, usage = self.d.complete(ids, n, leave_after=leave, **self.salt)
        if usage is None:
            done["left"] += 1
        elif compare:
            cold, u = self.d.complete(ids, n, cache_prompt=False)
            if u["prompt_tokens_details"]["cached_tokens"] != 0:
                fault(f"request {k}: a cold one reused something")
            if cold != out:
                fault(f"request {k}: {out} from the cache, {cold} cold")
            done["compared"] += 1
        if chat is not None:
            chat["ids"] = ids + out

    def run(self):
        try:
            while True:
                with lock:
                    done["all"] += 1
                    k = done["all"]
                if k > N or len(faults) > 20:
                    return
                if k == N // 4:
                    quarter["rss"] = self.d.rss_kib()
                self.one(k)
        except BaseException as e:  # SystemExit says what the daemon answered
            fault(f"{type(e).__name__}: {e}")


def settled(d):
    """The newest requests, once none of them runs any more: a client that left is noticed a moment later."""
    for _ in range(3000):
        status, kept = d.get("/v1/requests?limit=1000")
        if status == 200 and all(r["state"] == "done" for r in kept["data"]):
            return kept["data"]
        time.sleep(0.01)
    raise SystemExit("requests of clients that are gone do not end")


def check_books(d):
    requests, stats, listed = settled(d), d.ctl("cache", "stats"), d.ctl("cache", "list")
    print(stats)
    for kind, key in (("conversation", "parked"), ("root", "roots")):
        n = sum(e["kind"] == kind for e in listed["entries"])
        if n != stats[key]:
            fault(f"{n} of kind {kind} are listed, {stats[key]} counted")
    for tier in ("vram", "ram"):
        t, own = stats[tier], [e[tier + "_bytes"] for e in listed["entries"]]
        if t["units_held"] > t["units_limit"] or not max(own) <= t["bytes"]:
            fault(f"{tier}: {t}, entries of {own}")
    for r in requests:
        if r["finish_reason"] == "error":
            fault(f"request {r['request']} failed")
        elif r["finish_reason"] in ("stop", "length") and r["reused_tokens"] + r["read_tokens"] != r["prompt_tokens"]:
            fault(f"request {r['request']}: {r['reused_tokens']} reused and {r['read_tokens']} read of {r['prompt_tokens']}")
    u = stats["reuse"]
    if u["switches"] + u["continuations"] != u["requests"] or u["hits"] + u["misses"] != u["switches"]:
        fault(f"sums: {u}")
    # What nothing can be reached through any more is not held either.
    d.ctl("cache", "clear", "--yes")
    empty = d.ctl("cache", "stats")
    if [empty["vram"]["units_held"], empty["ram"]["units_held"], empty["pages"], empty["checkpoints"], empty["parked"]] != [0] * 5:
        fault(f"after a clear: {empty}")


with Daemon(vram_mib=16, conversation_cache_mib=12, conversation_cache_slots=24, root_min=128, prompt_cache_roots=4, checkpoint_every=256,
            log_level="warning") as daemon:
    clients = [Client(daemon, i) for i in range(N_CLIENTS)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    rss = daemon.rss_kib()
    check_books(daemon)
    if rss > quarter["rss"] * 1.2 + 8192:
        fault(f"{quarter['rss']} KiB after a quarter, {rss} at the end")
print(done, quarter, rss)
print("\n".join(faults + [f"{N} requests, {len(faults)} faults"]))
sys.exit(1 if faults or done["compared"] < N // 50 else 0)
