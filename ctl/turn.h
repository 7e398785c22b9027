/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One answer of a chat while it arrives: shown, kept, and counted.
 *
 * On a terminal what the model says cannot steer it, and its thinking is shown, dimmed; elsewhere
 * only the answer is printed, as it is.
 */
#ifndef CTL_TURN_H
#define CTL_TURN_H

#include "util/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct turn {
    FILE *out;
    bool is_terminal, can_dim;

    struct buf text, reasoning; /* so far */
    int error;                  /* of keeping them: 0 or -ENOMEM */
    bool is_thinking, in_line;  /* what was printed last: thinking; no newline */
    bool is_reading;            /* a line says how far the prompt is read, for a while */

    json_int_t n_prompt, n_reused, n_generated; /* -1: the daemon did not say */
    double per_second;                          /* 0: it did not say */
    bool is_cut;                                /* at the limit of tokens */
};

void turn_init(struct turn *t, FILE *out);
void turn_done(struct turn *t);

/* Takes an event of the stream; NULL: there are no more. */
void turn_take(struct turn *t, const json_t *event);
/* "[12 read, 845 reused, 96 generated, 41.2 tokens/s]" as a line, or nothing when the daemon did
 * not say. */
void turn_print_figures(const struct turn *t, FILE *f);

/* Whether `f` is a terminal that knows how to dim and may. */
bool turn_can_dim(FILE *f);

#endif
