#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two CSV files of `make bench` (or of `make bench-peer`) side by side.

    compare.py old.csv new.csv [--limit PERCENT]

A change counts when the medians differ by more than the limit (default 5) and the rounds of the two do not overlap; it is marked better or WORSE.
Ends with 1 when a row is worse, so that a script can ask. Both files must come from the same machine: the ceilings tell (column
`ceiling`, the new one relative to the old).
"""
import argparse
import csv
import sys


def read(path):
    with open(path, encoding="ascii", newline="") as f:
        rows = list(csv.DictReader(f))
    for r in rows:
        missing = {"file", "row", "threads", "unit", "median", "worst", "best"} - {k for k, v in r.items() if v}
        if missing:
            sys.exit(f"compare.py: {path}: a row lacks {', '.join(sorted(missing))}: {r}")
    return {(r["file"], r["row"], r["threads"]): r for r in rows}


def judge(old, new, limit):
    """The factor by which new is faster, and a word."""
    a, b = float(old["median"]), float(new["median"])
    less_is_better = new["unit"] in ("s", "ms", "us", "%")
    factor = a / b if less_is_better else b / a
    spans = [sorted((float(r["worst"]), float(r["best"]))) for r in (old, new)]
    overlap = spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]
    if overlap or abs(factor - 1) * 100 <= limit:
        return factor, ""
    return factor, "better" if factor > 1 else "WORSE"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("old")
    ap.add_argument("new")
    ap.add_argument("--limit", type=float, default=5.0, help="per cent")
    o = ap.parse_args()
    old, new = read(o.old), read(o.new)
    worse = 0
    print(f"{'file':20} {'row':20} {'threads':>7} {'old':>10} {'new':>10} {'factor':>7} {'ceiling':>7}  unit")
    for key, row in new.items():
        if key not in old:
            print(f"{key[0]:20} {key[1]:20} {key[2]:>7} {'':>10} {float(row['median']):10.2f} {'':>7} {'':>7}  {row['unit']}  new row")
            continue
        factor, word = judge(old[key], row, o.limit)
        worse += word == "WORSE"
        ceilings = old[key].get("ceiling"), row.get("ceiling")
        ceiling = f"{float(ceilings[1]) / float(ceilings[0]):.2f}" if all(ceilings) else ""
        print(f"{key[0]:20} {key[1]:20} {key[2]:>7} {float(old[key]['median']):10.2f} {float(row['median']):10.2f} {factor:7.2f} {ceiling:>7}  {row['unit']}  {word}")
    for key in old.keys() - new.keys():
        print(f"{' '.join(key)}: only in {o.old}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
