/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of code points that pre-tokenizer patterns ask for (Unicode 17). */
#ifndef ENGINE_TOK_UNICODE_H
#define ENGINE_TOK_UNICODE_H

#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER, /* controls, format characters, unassigned */
    UNICODE_LETTER,
    UNICODE_MARK,
    UNICODE_NUMBER,
    UNICODE_PUNCTUATION,
    UNICODE_SYMBOL,
    UNICODE_SPACE, /* White_Space, which includes some controls */
    UNICODE_N,     /* not a class: their number, and "no code point here" */
};

/* Anything beyond U+10FFFF is UNICODE_OTHER. */
enum unicode_class unicode_class_of(uint32_t cp);

/* The same for U+0000 .. U+007F, to be indexed directly. */
extern const uint8_t unicode_ascii_class[128];

#endif
