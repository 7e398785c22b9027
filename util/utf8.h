/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8: decoding of untrusted bytes, and a stream that never emits a broken sequence. */
#ifndef UTIL_UTF8_H
#define UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/*
 * The code point at s[0..n), n > 0: *ret_len bytes long.  An undecodable first byte (bad lead, lone
 * continuation, overlong, surrogate, beyond U+10FFFF, cut off) gives U+FFFD and length 1.
 */
uint32_t utf8_decode(const char *s, size_t n, size_t *ret_len);

/* Writes 1..4 bytes; returns their number. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* How many bytes from s on form whole, valid sequences. */
size_t utf8_valid_run(const char *s, size_t n);

bool utf8_is_valid(const char *s, size_t n);

/* Control characters: what could steer a terminal or break a line-based protocol. */
static inline bool utf8_is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

/* Valid, and without control characters. */
bool utf8_is_printable(const char *s, size_t n);

/* Up to three bytes of a sequence that is not complete yet. */
struct utf8_stream {
    char held[4];
    uint8_t n_held;
};

/*
 * Appends to `out` the longest part of held + s[0..n) that ends on a whole sequence; bytes that can
 * never become valid are emitted as U+FFFD at once, one per byte.  0, or buf's errors with both as
 * they were.
 */
int utf8_stream_put(struct utf8_stream *u, const char *s, size_t n, struct buf *out);

/* The end of the stream: what is held becomes one U+FFFD. */
int utf8_stream_end(struct utf8_stream *u, struct buf *out);

#endif
