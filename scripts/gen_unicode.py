#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes engine/tok_unicode.inc from scripts/unicode_categories.txt.

Usage: scripts/gen_unicode.py scripts/unicode_categories.txt > engine/tok_unicode.inc
       scripts/gen_unicode.py --categories > scripts/unicode_categories.txt

The source lists the general categories of Unicode 17.0 as ranges; --categories makes it anew with
the Python module `regex` 2026.5.9 (facts of the Unicode Character Database).  The classes are what
the pre-tokenizer patterns tell apart, in the order of enum unicode_class.
"""
import sys

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split()
# White_Space of the Unicode Character Database, which is what \s means in the patterns.
SPACE = [(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
         (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
CLASSES = [[], ["Lu", "Lt"], ["Ll"], ["Lm", "Lo"], ["Mn", "Mc", "Me"], ["Nd"], ["Nl"], ["No"], ["Pc"],
           ["Pd", "Ps", "Pe", "Pi", "Pf", "Po"], ["Sm", "Sc", "Sk", "So"]]
CLASS_SPACE = len(CLASSES)
BLOCK = 128


def write_categories():
    import regex

    patterns = [(c, regex.compile(r"\p{%s}" % c)) for c in CATEGORIES]
    print("# code point ranges (hex, inclusive) and general category, Unicode 17 as in Python regex"
          " 2026.5.9;\n# unlisted = separator, control, format, unassigned")
    begin = last = None
    for cp in range(0x110001):
        cat = None
        if cp < 0x110000 and not 0xD800 <= cp < 0xE000:
            cat = next((c for c, p in patterns if p.match(chr(cp))), None)
        if cat != last:
            if last:
                print("%X %X %s" % (begin, cp - 1, last))
            begin, last = cp, cat


def write_table(path):
    cls = [0] * 0x110000
    with open(path, encoding="ascii") as f:
        for line in f:
            if line.startswith("#") or not line.strip():
                continue
            lo, hi, cat = line.split()
            number = next(i for i, c in enumerate(CLASSES) if cat in c)
            for cp in range(int(lo, 16), int(hi, 16) + 1):
                cls[cp] = number
    for lo, hi in SPACE:
        for cp in range(lo, hi + 1):
            assert cls[cp] == 0
            cls[cp] = CLASS_SPACE

    blocks, index = {}, []
    for at in range(0, 0x110000, BLOCK):
        row = "".join(chr(ord("@") + c) for c in cls[at:at + BLOCK])
        index.append(blocks.setdefault(row, len(blocks)))
    assert len(blocks) <= 256

    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by scripts/gen_unicode.py from scripts/unicode_categories.txt: do not edit. */")
    print("/* The classes of %d code points, '@' plus the class each. */" % BLOCK)
    print("const char unicode_blocks[][UNICODE_BLOCK + 1] = {")
    for row in blocks:
        print('"%s",' % row)
    print("};\n/* Which of them, for every %d code points. */" % BLOCK)
    print("const uint8_t unicode_index[0x110000 / UNICODE_BLOCK] = {")
    for i in range(0, len(index), 24):
        print(",".join(str(b) for b in index[i:i + 24]) + ",")
    print("};")


if sys.argv[1:] == ["--categories"]:
    write_categories()
else:
    write_table(sys.argv[1])
