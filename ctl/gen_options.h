/* SPDX-License-Identifier: Apache-2.0 */
/* What `complete` and `chat` have in common on the command line. */
#ifndef CTL_GEN_OPTIONS_H
#define CTL_GEN_OPTIONS_H

#include "ctl/ctl.h"

#include <jansson.h>
#include <stdbool.h>

/* Not an exit code: argv[*i] is no option of this command. */
enum { GEN_OTHER = -1 };

/* Takes the option argv[*i], moving *i to its last word.  CTL_OK, GEN_OTHER, or an exit code after
 * saying what is wrong. */
typedef int gen_option(const struct ctl *c, int argc, char **argv, int *i, void *arg);

/*
 * Puts the options that both have into the request, gives others to `own` (NULL: there are none),
 * and finds the one word that is no option: *ret_word, untouched without one.  CTL_OK, or an exit
 * code after saying what is wrong.
 */
int gen_arguments(const struct ctl *c, const char *command, int argc, char **argv, json_t *request,
                  gen_option *own, void *arg, const char **ret_word);

/* The value of option argv[*i], moving *i to it; NULL after saying that there is none. */
const char *gen_value(const struct ctl *c, int argc, char **argv, int *i);

/*
 * The text that `word` stands for as a new string in *ret: itself, or all of standard input when it
 * is "-" or NULL, without one newline at its end if `drop_newline`.  CTL_OK, or an exit code after
 * saying what is wrong.
 */
int gen_text(const struct ctl *c, const char *word, bool drop_newline, json_t **ret);

#endif
