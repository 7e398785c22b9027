#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes engine/iq_grids.inc from scripts/iq_grids.txt.

Usage: scripts/gen_iq_grids.py scripts/iq_grids.txt > engine/iq_grids.inc

The source lists the code books of the IQ formats (facts of the format, which no formula gives), two
or three bits an element.  The tables hold an element a byte, the first in the lowest, for the
formats that are read.
"""
import sys

WANTED = {"iq2_xs": ("uint64_t", 8), "iq3_xxs": ("uint32_t", 4), "iq3_s": ("uint32_t", 4)}


def main():
    books, name = {}, None
    with open(sys.argv[1], encoding="ascii") as f:
        for line in f:
            if line.startswith("## "):
                name = line.split()[1]
                bits = int(line.split("BITS=")[1].split()[0])
                levels = [int(x) for x in line.split("LEVELS=[")[1].split("]")[0].split(",")]
                books[name] = (bits, levels, [])
            elif name and line.strip() and not line.startswith("#"):
                books[name][2].extend(int(x, 16) for x in line.split())

    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by scripts/gen_iq_grids.py from scripts/iq_grids.txt: do not edit. */")
    for name, (ctype, n) in WANTED.items():
        bits, levels, codes = books[name]
        digits = 2 * n
        row = 4 if n == 8 else 8
        print("const %s quant_grid_%s[%d] = {" % (ctype, name, len(codes)))
        for at in range(0, len(codes), row):
            words = []
            for code in codes[at:at + row]:
                b = bytes(levels[code >> bits * i & (1 << bits) - 1] for i in range(n))
                words.append("0x%0*x" % (digits, int.from_bytes(b, "little")))
            print(", ".join(words) + ",")
        print("};")


if __name__ == "__main__":
    main()
