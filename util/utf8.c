/* SPDX-License-Identifier: Apache-2.0 */
#include "util/utf8.h"

#include "util/buf.h"

#include <string.h>

#define REPLACEMENT 0xFFFDu
static const char replacement_bytes[3] = {'\xEF', '\xBF', '\xBD'};

/*
 * The length of the sequence that opens s[0..n), n > 0; 0 when the bytes are the beginning of one
 * that could still become valid; -1 when the first byte can never start a valid one.
 */
static int sequence(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo = 0x80, hi = 0xBF;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return -1;
    len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;

    /* The second byte is what tells overlong forms, surrogates and numbers past U+10FFFF. */
    if (p[0] == 0xE0)
        lo = 0xA0;
    else if (p[0] == 0xED)
        hi = 0x9F;
    else if (p[0] == 0xF0)
        lo = 0x90;
    else if (p[0] == 0xF4)
        hi = 0x8F;

    for (size_t i = 1; i < len; i++) {
        if (i == n)
            return 0;
        if (p[i] < lo || p[i] > hi)
            return -1;
        lo = 0x80;
        hi = 0xBF;
    }
    return (int)len;
}

uint32_t utf8_decode(const char *s, size_t n, size_t *ret_len)
{
    /* By length: the bits of the lead byte that carry the number. */
    static const unsigned char mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    int len = sequence(s, n);
    uint32_t cp;

    if (len <= 0) {
        *ret_len = 1;
        return REPLACEMENT;
    }
    cp = (unsigned char)s[0] & mask[len];
    for (int i = 1; i < len; i++)
        cp = cp << 6 | ((unsigned char)s[i] & 0x3F);
    *ret_len = (size_t)len;
    return cp;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        cp = REPLACEMENT;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Bytes from s on that are ASCII, eight at a time. */
static size_t ascii_run(const char *s, size_t n)
{
    size_t i = 0;

    while (n - i >= 8) {
        uint64_t w;

        memcpy(&w, s + i, 8);
        if (w & 0x8080808080808080u)
            break;
        i += 8;
    }
    while (i < n && (unsigned char)s[i] < 0x80)
        i++;
    return i;
}

size_t utf8_valid_run(const char *s, size_t n)
{
    size_t i = ascii_run(s, n);

    while (i < n) {
        int len = sequence(s + i, n - i);

        if (len <= 0)
            break;
        i += (size_t)len;
        if (len == 1)
            i += ascii_run(s + i, n - i);
    }
    return i;
}

bool utf8_is_valid(const char *s, size_t n)
{
    return utf8_valid_run(s, n) == n;
}

bool utf8_is_printable(const char *s, size_t n)
{
    for (size_t len; n > 0; s += len, n -= len) {
        uint32_t cp = utf8_decode(s, n, &len);

        if (utf8_is_control(cp) || (cp == REPLACEMENT && len == 1))
            return false;
    }
    return true;
}

/* Appends the repaired text of s[0..n) up to an unfinished tail; *ret_left is the tail's length. */
static int put_repaired(const char *s, size_t n, struct buf *out, size_t *ret_left)
{
    size_t i = 0;

    for (;;) {
        size_t run = utf8_valid_run(s + i, n - i);
        int r = buf_add(out, s + i, run);

        if (r < 0)
            return r;
        i += run;
        if (i == n || sequence(s + i, n - i) == 0)
            break;
        r = buf_add(out, replacement_bytes, sizeof(replacement_bytes));
        if (r < 0)
            return r;
        i++;
    }
    *ret_left = n - i;
    return 0;
}

int utf8_stream_put(struct utf8_stream *u, const char *s, size_t n, struct buf *out)
{
    struct utf8_stream next = *u;
    size_t len0 = out->len, left = 0;
    int r = 0;

    /* What is held takes new bytes one by one until it ends on a whole sequence: three at most. */
    while (next.n_held && n && r >= 0) {
        next.held[next.n_held++] = *s++;
        n--;
        r = put_repaired(next.held, next.n_held, out, &left);
        if (r >= 0) {
            memmove(next.held, next.held + next.n_held - left, left);
            next.n_held = (uint8_t)left;
        }
    }
    if (r >= 0 && n) {
        r = put_repaired(s, n, out, &left);
        if (r >= 0) {
            memcpy(next.held, s + n - left, left);
            next.n_held = (uint8_t)left;
        }
    }
    if (r < 0) {
        out->len = len0;
        if (out->data)
            out->data[len0] = '\0';
        return r;
    }
    *u = next;
    return 0;
}

int utf8_stream_end(struct utf8_stream *u, struct buf *out)
{
    int r = u->n_held ? buf_add(out, replacement_bytes, sizeof(replacement_bytes)) : 0;

    if (r < 0)
        return r;
    u->n_held = 0;
    return 0;
}
