/* SPDX-License-Identifier: Apache-2.0 */
/* What `complete` and `chat` have in common on the command line. */
#ifndef CTL_GEN_OPTIONS_H
#define CTL_GEN_OPTIONS_H

#include "ctl/ctl.h"

#include <jansson.h>

/* Not an exit code: the word is no option of these. */
enum { GEN_OTHER = -1 };

/*
 * Adds the option argv[*i] with its value to the request, moving *i to its last word.  CTL_OK,
 * GEN_OTHER, or an exit code after saying what is wrong.
 */
int gen_option(const struct ctl *c, int argc, char **argv, int *i, json_t *request);

/* The value of option argv[*i], moving *i to it; NULL after saying that there is none. */
const char *gen_value(const struct ctl *c, int argc, char **argv, int *i);

/* The text that `word` stands for as a new string in *ret: itself, or all of standard input when
 * it is "-" or NULL.  CTL_OK or an exit code. */
int gen_text(const struct ctl *c, const char *word, json_t **ret);

#endif
