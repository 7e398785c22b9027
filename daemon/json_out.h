/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON text, written piece by piece into a buf.
 *
 * For the answers of the API, where every token makes an object: no tree is built.  The caller
 * writes the punctuation.  All return 0 or buf's errors.  Any thread, with a buf of its own.
 */
#ifndef DAEMON_JSON_OUT_H
#define DAEMON_JSON_OUT_H

#include <stddef.h>

struct buf;

/* A quoted string.  Bytes that are not UTF-8 become U+FFFD, so that the output is always JSON. */
int json_out_string(struct buf *out, const char *s, size_t n);

/* A number that reads back as the same float; JSON has no infinity and no NaN: those are null. */
int json_out_float(struct buf *out, float v);

/* Three decimals, for milliseconds and rates. */
int json_out_fixed(struct buf *out, double v);

#endif
