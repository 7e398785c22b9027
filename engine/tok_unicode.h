/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of code points that pre-tokenizer patterns ask for (Unicode 17). */
#ifndef ENGINE_TOK_UNICODE_H
#define ENGINE_TOK_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER,   /* controls, format characters, unassigned */
    UNICODE_UPPER,   /* Lu, Lt */
    UNICODE_LOWER,   /* Ll */
    UNICODE_UNCASED, /* Lm, Lo */
    UNICODE_MARK,
    UNICODE_DIGIT,         /* Nd, which is \d */
    UNICODE_LETTER_NUMBER, /* Nl */
    UNICODE_OTHER_NUMBER,  /* No */
    UNICODE_CONNECTOR,     /* Pc: punctuation that \w includes */
    UNICODE_PUNCTUATION,   /* the rest of P */
    UNICODE_SYMBOL,
    UNICODE_SPACE, /* White_Space, which includes some controls */
    UNICODE_N,     /* not a class: their number, and "no code point here" */
};

/* Sets of classes, so that one question can be about several. */
#define UNICODE_BIT(c) (1u << (c))
enum unicode_set {
    UNICODE_LETTERS = /* \p{L} */
    UNICODE_BIT(UNICODE_UPPER) | UNICODE_BIT(UNICODE_LOWER) | UNICODE_BIT(UNICODE_UNCASED),
    UNICODE_MARKS = UNICODE_BIT(UNICODE_MARK), /* \p{M} */
    UNICODE_NUMBERS =                          /* \p{N} */
    UNICODE_BIT(UNICODE_DIGIT) | UNICODE_BIT(UNICODE_LETTER_NUMBER) |
    UNICODE_BIT(UNICODE_OTHER_NUMBER),
    UNICODE_PUNCTUATIONS = /* \p{P} */
    UNICODE_BIT(UNICODE_CONNECTOR) | UNICODE_BIT(UNICODE_PUNCTUATION),
    UNICODE_SYMBOLS = UNICODE_BIT(UNICODE_SYMBOL), /* \p{S} */
    UNICODE_SPACES = UNICODE_BIT(UNICODE_SPACE),   /* \s */
    UNICODE_ALL = UNICODE_BIT(UNICODE_N) - 1,
};

/* Two steps: of 8,704 blocks some 240 differ. */
enum { UNICODE_BLOCK = 128 };
extern const uint8_t unicode_index[0x110000 / UNICODE_BLOCK];
extern const char unicode_blocks[][UNICODE_BLOCK + 1];

/* Anything beyond U+10FFFF is UNICODE_OTHER. */
static inline enum unicode_class unicode_class_of(uint32_t cp)
{
    if (cp >= 0x110000)
        return UNICODE_OTHER;
    return (enum unicode_class)(
        unicode_blocks[unicode_index[cp / UNICODE_BLOCK]][cp % UNICODE_BLOCK] - '@');
}

static inline bool unicode_is(uint32_t cp, unsigned int set)
{
    return (UNICODE_BIT(unicode_class_of(cp)) & set) != 0;
}

#endif
