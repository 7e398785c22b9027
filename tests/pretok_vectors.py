#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random texts and where the patterns of tests/data/pretokenizers.json cut them.

usage: pretok_vectors.py [--count N] [--seed S] [--length N] >tests/data/pretok_random.json

Needs the Python module `regex` 2026.5.9, whose Unicode is the one of engine/tok_unicode.inc.  A
case is [text, {cuts: families}]: cuts are the lengths of the pieces in bytes.  check_pretok reads
the committed file (made without arguments), or the one that STRATA_PRETOK_VECTORS names.
"""
import argparse
import json
import os
import random
import sys

import regex

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "pretokenizers.json")
WORDS = ["hello", "World", "HTTPServer", "don't", "I'LL", "we've", "x'S", "'re", "été", "Straße", "ǅungla", "naïve",
         "привет", "МОСКВА", "Ελλάδα", "中文字", "ひらがな", "カタカナ", "한국어", "हिन्दी", "ภาษาไทย", "عربي", "123", "1", "12345",
         "3.14159", "1000000", "٣٤٥٦", "½", "Ⅷ", "²", "0x1F", "foo_bar", "a/b//c", "<|im_start|>", "{\"k\": [1, 2]}",
         "e\u0301", "\u200d", "👍🏽", "🇩🇪", "…", "。", "、", "।", "——", "«»", "$1,000.00", "`code`", "~^|"]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b"]
CHARS = "'''aAbBsSlLtTdDmMrReEvV0123456789  \n\r\t.,!?()[]{}|/\\-_=+<>$^~`\"#%&*@:;é\u0301ßǅʰªº中あア가ก\u0663\u0967½²Ⅷ_‿…\u200b\u200c\u200d\x00\x1b\u00ad\ufeff\ue000\u0378😀𝒜𝟙\U000e0100\U0001f130Ⓐ"


def random_text(rnd, length):
    kind, out = rnd.randrange(5), []
    while len(out) < length:
        if kind == 0:
            out += rnd.choice(WORDS) + rnd.choice(SPACES) * rnd.choice([0, 1, 1, 1, 2])
        elif kind == 1:
            out += rnd.choice(CHARS)
        elif kind == 2:
            out += rnd.choice(CHARS) * rnd.choice([1, 1, 2, 3, 7])
        elif kind == 3:
            out += rnd.choice([rnd.choice(WORDS), rnd.choice(SPACES), str(rnd.randrange(10 ** rnd.randrange(1, 12)))])
        else:
            cp = rnd.choice([rnd.randrange(0x80), rnd.randrange(0x3000), rnd.randrange(0x20000), rnd.randrange(0x110000)])
            out += rnd.choice([" ", "'", "a", ""]) + ("" if 0xD800 <= cp < 0xE000 else chr(cp))
    # HF's case folding lets ' + U+017F match 's; nobody else's does.
    return "".join(out[:rnd.randrange(length) + 1]).replace("\u017f", "s")


def cut(patterns, text):
    """As llama.cpp does: each pattern over every segment that the ones before left."""
    segments = [text]
    for p in patterns:
        after = []
        for s in segments:
            at = 0
            for m in p.finditer(s):
                if m.start() > at:
                    after.append(s[at:m.start()])
                if m.end() > m.start():
                    after.append(m.group())
                at = m.end()
            if at < len(s):
                after.append(s[at:])
        segments = after
    assert "".join(segments) == text
    return " ".join(str(len(s.encode())) for s in segments)


def with_code_points(pattern):
    return regex.sub(r"\\U([0-9A-F]{8})", lambda m: chr(int(m.group(1), 16)), pattern)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--count", type=int, default=400)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--length", type=int, default=40)
    a = a.parse_args()
    rnd = random.Random(a.seed)
    with open(DATA, encoding="utf-8") as f:
        lists = {name: [regex.compile(with_code_points(p)) for p in patterns]
                 for name, patterns in json.load(f)["patterns"].items()}
    print('{"made_by": "tests/pretok_vectors.py, regex %s", "cases": [' % regex.__version__)
    for i in range(a.count):
        text, found = random_text(rnd, a.length), {}
        for name, patterns in lists.items():
            found.setdefault(cut(patterns, text), []).append(name)
        case = [text, {cuts: " ".join(names) for cuts, names in found.items()}]
        print(json.dumps(case, ensure_ascii=True, separators=(",", ":")) + ("," if i < a.count - 1 else ""))
    print("]}")
    return 0


sys.exit(main())
