/* SPDX-License-Identifier: Apache-2.0 */
/* Reading valid UTF-8 by classes; for tok_scan*.c only. */
#ifndef ENGINE_TOK_SCAN_TEXT_H
#define ENGINE_TOK_SCAN_TEXT_H

#include "engine/tok_unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The code point at s, which is valid. */
static inline uint32_t code_at(const char *s, size_t *ret_len)
{
    const unsigned char *p = (const unsigned char *)s;

    if (p[0] < 0x80) {
        *ret_len = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *ret_len = 2;
        return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    }
    if (p[0] < 0xF0) {
        *ret_len = 3;
        return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    *ret_len = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

/* The class of the code point at i and its length; UNICODE_N and 0 at the end. */
static inline enum unicode_class class_at(const char *s, size_t end, size_t i, size_t *ret_len)
{
    if (i >= end) {
        *ret_len = 0;
        return UNICODE_N;
    }
    return unicode_class_of(code_at(s + i, ret_len));
}

static inline bool is_in(enum unicode_class c, unsigned int set)
{
    return (UNICODE_BIT(c) & set) != 0;
}

/* The end of the run of code points of `set` that begins at i. */
static inline size_t run_end(const char *s, size_t end, size_t i, unsigned int set)
{
    size_t len;

    while (is_in(class_at(s, end, i, &len), set))
        i += len;
    return i;
}

static inline bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* The end of the run of bytes of `tail` that begins at i. */
static inline size_t tail_end(const char *s, size_t end, size_t i, const char *tail)
{
    while (i < end && s[i] && strchr(tail, s[i]))
        i++;
    return i;
}

#endif
