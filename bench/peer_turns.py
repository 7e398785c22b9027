#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our engine and llama.cpp on the same files, in turns; `make bench-peer`.

    peer_turns.py --bench build/bench/bench_engine --python VENV/bin/python [--rounds N] [--threads N] [--csv OUT] MODEL.gguf ...

Both programs stay loaded; a round of one is followed by the same round of the other, and who begins changes each time, so that what else
happens on the machine meets both. After a round to warm up, medians and spread (worst to best) of the rounds in tokens per second, and the
ratio of the medians. `busy` is the share of the processors that our rounds got: under 0.95 somebody else was computing, and the figures of
steps with many barriers mean little.

The ratio that is asked for: decode 1.0 of every file. Prefill 2.0 of SmolLM2-135M-Instruct Q4_1, 1.0 of K formats, else 0.9. The aim is 1.2
where less is asked.
"""
import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time

WORKS = ["prefill-512", "decode-64", "decode-64-at-512", "decode-64-batch-4", "decode-64-batch-8"]
AIM = 1.2
PAUSE_S = 0.02  # the threads of the one that had its turn go on spinning for some milliseconds


class Side:
    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.line()

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            code = self.process.wait()
            hint = "; see CMAKE_ARGS in bench/run" if code == -signal.SIGILL else ""
            sys.exit(f"peer_turns.py: {self.process.args[0]} ended with {code}{hint}")
        return text.strip()

    def round(self, work):
        self.process.stdin.write(work + "\n")
        self.process.stdin.flush()
        return [float(x) for x in self.line().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def target(name, work):
    if not work.startswith("prefill"):
        return 1.0
    if name == "SmolLM2-135M-Instruct.Q4_1":
        return 2.0
    return 1.0 if re.search(r"Q[2-6]_K", name) else 0.9


def compare(sides, model, rounds, threads, works, out):
    name = os.path.splitext(os.path.basename(model))[0]
    missed = 0
    for work in works:
        speed, busy, wake = ([], []), [], []
        for i in range(rounds + 1):
            for side in ((0, 1) if i % 2 else (1, 0)):
                time.sleep(PAUSE_S)
                result = sides[side].round(work)
                if i == 0:
                    continue
                speed[side].append(result[1] / result[0])
                if side == 0:
                    busy.append(result[3] / result[0] / threads)
                    wake.append(1 - result[2] / result[0])
        ours, peer = (statistics.median(s) for s in speed)
        ratio = ours / peer
        asked = target(name, work)
        mark = "MISSED" if ratio < asked else "aim reached" if ratio >= AIM else "reached"
        missed += mark == "MISSED"
        print(f"{name:26} {work:18} {ours:9.1f} {min(speed[0]):9.1f}-{max(speed[0]):<9.1f} {peer:9.1f} {min(speed[1]):9.1f}-{max(speed[1]):<9.1f}"
              f" {ratio:6.2f} {max(speed[0]) / max(speed[1]):6.2f}  {asked:.1f} {mark:12} {statistics.mean(busy):5.2f} {statistics.mean(wake):6.3f}", flush=True)
        if out:
            out.write(f"{name},{work},{threads},{rounds},tokens/s,{ours:.2f},{min(speed[0]):.2f},{max(speed[0]):.2f},{peer:.2f},"
                      f"{min(speed[1]):.2f},{max(speed[1]):.2f},{ratio:.3f},{asked},{mark}\n")
            out.flush()
    return missed


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--bench", required=True)
    ap.add_argument("--python", required=True, help="of a virtual environment that has llama-cpp-python")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--work", action="append", choices=WORKS)
    ap.add_argument("--csv")
    o = ap.parse_args()
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
    out = open(o.csv, "w", encoding="ascii") if o.csv else None
    if out:
        out.write("file,row,threads,rounds,unit,median,worst,best,peer_median,peer_worst,peer_best,ratio,target,mark\n")
    missed = 0
    for i, model in enumerate(o.models):
        sides = [Side([o.bench, "--turns", "--threads", str(o.threads), model]), Side([o.python, worker, "--threads", str(o.threads), model])]
        if i == 0:
            print(f"ours: {sides[0].hello}; peer: {sides[1].hello}; {o.threads} threads, {o.rounds} rounds in turns; tokens/s")
            print(f"{'file':26} {'work':18} {'ours':>9} {'worst-best':^19} {'peer':>9} {'worst-best':^19} {'ratio':>6} {'best':>6}  {'target':16} {'busy':>5} {'waking':>6}")
        missed += compare(sides, model, o.rounds, o.threads, o.work or WORKS, out)
        for s in sides:
            s.close()
    if out:
        out.close()
    print(f"{missed} of the targets missed" if missed else "all targets reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
