/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How answers are shown.  A command describes what people see as a list of fields; the writer for
 * text lays that out, the writer for JSON prints the whole answer as the daemon gave it.
 */
#ifndef CTL_OUT_H
#define CTL_OUT_H

#include "ctl/ctl.h"

#include <jansson.h>

enum out_kind {
    OUT_PLAIN, /* text, number or boolean as it is; a list with commas */
    OUT_BYTES, /* "12.5 MiB" */
    OUT_MS,    /* milliseconds as "3 h 12 min" */
    OUT_PER_S, /* "12.3 /s" */
    OUT_PERCENT,
};

struct out_field {
    const char *path; /* "model.name"; "uid|key": the first that is there; NULL ends a list */
    const char *label;
    enum out_kind kind;
    bool optional; /* left out when absent; otherwise absent shows as a dash */
};

/* One object as lines of "label value". */
void out_object(const struct ctl *c, const json_t *answer, const struct out_field *fields);
/* The list `key` of the answer as a table, one line per member. */
void out_table(const struct ctl *c, const json_t *answer, const char *key,
               const struct out_field *fields);

/* Untrusted text with control characters replaced, so that it cannot steer a terminal. */
void out_text(FILE *f, const char *s, size_t n);

#endif
