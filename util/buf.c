/* SPDX-License-Identifier: Apache-2.0 */
#include "util/buf.h"

#include "util/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t n)
{
    size_t need, cap;
    char *p;

    if (__builtin_add_overflow(b->len, n, &need) || need == SIZE_MAX)
        return -ENOMEM;
    if (b->limit && need > b->limit)
        return ERR_CAPACITY;
    if (need < b->cap)
        return 0;

    /* Grow by half so that appends stay linear; the NUL is the + 1. */
    cap = b->cap + b->cap / 2;
    if (cap < need + 1)
        cap = need + 1;
    if (cap < 64)
        cap = 64;
    p = realloc(b->data, cap);
    if (!p)
        return -ENOMEM;
    b->data = p;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
    int r = buf_reserve(b, n);
    if (r < 0)
        return r;

    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_addz(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n, r;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -EINVAL;
    r = buf_reserve(b, (size_t)n);
    if (r < 0)
        return r;

    va_start(ap, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}
