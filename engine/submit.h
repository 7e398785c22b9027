/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules a job must keep (engine.h), and the references it holds while in flight.
 *
 * Owner thread only.  submit_check changes nothing; submit_take records what the job will do to its
 * sequences and takes the references; submit_return gives back what the job held and corrects
 * what did not happen (skipped entries).
 */
#ifndef ENGINE_SUBMIT_H
#define ENGINE_SUBMIT_H

#include "engine/engine.h"

struct submit_limits {
    const struct engine *engine;
    uint32_t n_vocab, max_rows, context, checkpoint_units;
};

int submit_check(const struct submit_limits *lim, const struct units *u, const struct job *j,
                 struct err_text *e);
void submit_take(const struct submit_limits *lim, struct units *u, struct job *j);
void submit_return(struct units *u, uint32_t checkpoint_units, struct job *j);

#endif
