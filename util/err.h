/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error channel of Strata.
 *
 * Functions that can fail return int: 0 or positive is success, negative is failure.  Down to
 * -4095 it is a negated errno; below that one of the codes here.  Success outputs are named
 * `ret` or `ret_x` and untouched on failure.  Text for a human (which key, which tensor, which
 * line) goes into a `struct err_text` that the caller may pass; NULL is fine everywhere.
 */
#ifndef UTIL_ERR_H
#define UTIL_ERR_H

#include <stddef.h>

enum err_code {
    ERR_DAMAGED = -5000, /* bytes that contradict themselves: a bad GGUF, a torn record */
    ERR_UNSUPPORTED,     /* well formed, but something we refuse by name */
    ERR_CAPACITY,        /* a budget or a fixed limit is exhausted */
    ERR_NONFINITE,       /* the model produced NaN or infinity */
    ERR_ENDED,           /* the sequence had already sampled an end token */
    ERR_DEVICE,          /* the compute device failed */
    ERR_IDENTITY,        /* state of another model, layout or arithmetic */
    ERR_LAST = ERR_IDENTITY,
};

/* A human-readable reason, filled by the function that failed; always NUL-terminated. */
struct err_text {
    char s[512];
};

/* The words for any value of this channel; never NULL, static storage, thread-safe. */
const char *err_str(int code);

/* Fills `e` (if not NULL) and returns `code`, so that a failing function is one line. */
int err_set(struct err_text *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Copies at most `n` bytes of untrusted text into `out` (size `size`) with control characters,
 * quotes, backslashes and non-ASCII bytes escaped as \xNN, so that it can stand in a message.  What
 * does not fit is left out, never cut inside an escape.  Returns `out`.
 */
char *err_escape(char *out, size_t size, const char *s, size_t n);

#endif
