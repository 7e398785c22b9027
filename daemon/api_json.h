/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies: bytes of a stranger to a jansson object, and typed fields out of it.
 *
 * Every refusal names the field, what was found and what is allowed.  Runs on front threads: no
 * state outside the arguments.
 */
#ifndef DAEMON_API_JSON_H
#define DAEMON_API_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_error;
struct buf;

enum {
    API_JSON_MAX_DEPTH = 100,      /* of nested arrays and objects; jansson recurses */
    API_JSON_MAX_VALUES = 2 << 20, /* jansson makes some 40 bytes of every one */
};

/*
 * Reads a body of n bytes, followed by a NUL.  0 with an owned object, or negative with `e`: not
 * UTF-8, not JSON, not an object, a key twice, nested or large beyond the limits above, a number
 * that does not fit 64 bits or a double (by where it stands: "tools[0].function.x").
 */
int api_json_read(const char *s, size_t n, json_t **ret, struct api_error *e);

/*
 * Frees a body that is done with.  After a large one what the parser took is given back to the
 * system, which a thread's own heap would keep for good.
 */
void api_json_body_done(struct buf *body);

/* "a string", "an array", "12", "true", … */
const char *api_json_describe(const json_t *j, char *room, size_t size);

/*
 * Fields of an object; null counts as absent.  1 with *ret set, 0 when absent (*ret untouched), or
 * negative with `e`.  Integers may be written as 20.0.
 */
int api_get(const json_t *o, const char *name, const json_t **ret);
int api_get_bool(const json_t *o, const char *name, bool *ret, struct api_error *e);
int api_get_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *ret,
                struct api_error *e);
int api_get_double(const json_t *o, const char *name, double min, double max, double *ret,
                   struct api_error *e);
/* Borrowed from the object; may hold NUL bytes. */
int api_get_string(const json_t *o, const char *name, const char **ret, size_t *ret_n,
                   struct api_error *e);

/* An integer, or a real without a fraction that fits; false for anything else. */
bool api_json_int(const json_t *j, int64_t *ret);

#endif
