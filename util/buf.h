/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable run of bytes with a hard limit.
 *
 * The bytes are always followed by a NUL that is not counted, so `data` can be used as a C
 * string when the content has none inside.  An append that fails leaves the content as it was.
 */
#ifndef UTIL_BUF_H
#define UTIL_BUF_H

#include <stddef.h>

struct buf {
    char *data; /* owned; NULL until the first append */
    size_t len;
    size_t cap;
    size_t limit; /* most bytes it may hold; 0 means no limit */
};

/* Frees the bytes and returns to the empty state, keeping `limit`. */
void buf_done(struct buf *b);

/* Forgets the content, keeps the memory. */
void buf_clear(struct buf *b);

/* Room for `n` more bytes at data + len.  0, -ENOMEM, or ERR_CAPACITY past the limit. */
int buf_reserve(struct buf *b, size_t n);

/* The same errors for all of these. */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_addz(struct buf *b, const char *s);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drops the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);

#endif
