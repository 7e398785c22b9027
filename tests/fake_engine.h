/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for tests of the scheduler: implements engine/engine.h on the caller's thread, under
 * the test's control.
 *
 * The model is a rolling hash over all tokens of a sequence: the next token is a function of it, so
 * a token that is lost, doubled, out of order or of another sequence changes everything after it.
 * Every row leaves its hash in the page it belongs to, and every entry compares all rows before its
 * own: a unit given away too early shows.  Every rule of engine.h that a scheduler can break is an
 * assertion, and so is that nothing in a job changes while it is in flight.
 */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "engine/engine.h"

enum { FAKE_POISON = 1 }; /* a token that makes the logits of its row not finite; never generated */

struct fake_options {
    uint32_t n_units, context, max_rows, n_sequences, n_vocab;
    uint64_t seed;
    uint32_t end_every;  /* one token in so many is the end token; 0: none */
    uint64_t ns_per_row; /* what a step's run_ns says */
};

struct engine *fake_engine_new(const struct fake_options *o);

/* The token after ids[0..n), end tokens included unless `ban_end`. */
int32_t fake_next(const struct fake_options *o, const int32_t *ids, size_t n, bool ban_end);

/* The oldest job that waits begins; false when one runs already or none waits. */
bool fake_engine_start(struct engine *e);
/* The job that runs is complete; false when none runs. */
bool fake_engine_finish(struct engine *e);
/* Both. */
bool fake_engine_run(struct engine *e);

/* The next step to be submitted is refused with `rc`. */
void fake_engine_refuse(struct engine *e, int rc);
/* The next step to run fails as a whole. */
void fake_engine_fail(struct engine *e, int rc);

struct fake_log {
    uint64_t n_steps, n_rows, n_entries_skipped;
    uint32_t last_rows, last_entries; /* of the step submitted last */
    uint32_t steps_in_flight;
};
const struct fake_log *fake_engine_log(const struct engine *e);

#endif
