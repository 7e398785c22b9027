#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes engine/tok_unicode.inc from scripts/unicode_categories.txt.

Usage: scripts/gen_unicode.py scripts/unicode_categories.txt > engine/tok_unicode.inc

The source lists the general categories of Unicode 17.0 as ranges (taken from the Python module
`regex` 2026.5.9; facts of the Unicode Character Database).  The pre-tokenizer patterns ask for L,
M, N, P, S and white space only, so neighbouring ranges of one class are joined.
"""
import sys

# White_Space of the Unicode Character Database, which is what \s means in the patterns.
SPACE = [(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
         (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
NAMES = {"L": "LETTER", "M": "MARK", "N": "NUMBER", "P": "PUNCTUATION", "S": "SYMBOL"}


def main():
    cls = ["OTHER"] * 0x110000
    with open(sys.argv[1], encoding="ascii") as f:
        for line in f:
            if line.startswith("#") or not line.strip():
                continue
            lo, hi, cat = line.split()
            for cp in range(int(lo, 16), int(hi, 16) + 1):
                cls[cp] = NAMES[cat[0]]
    for lo, hi in SPACE:
        for cp in range(lo, hi + 1):
            assert cls[cp] == "OTHER"
            cls[cp] = "SPACE"

    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by scripts/gen_unicode.py from scripts/unicode_categories.txt: do not edit. */")
    print("/* First code point and class of every run of equal classes, ascending. */")
    last = None
    for cp, name in enumerate(cls):
        if name != last:
            print("{0x%X, UNICODE_%s}," % (cp, name))
            last = name


main()
