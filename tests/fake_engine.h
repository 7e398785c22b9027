/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for tests of the scheduler and the cache: implements engine/engine.h on the caller's
 * thread, under the test's control.
 *
 * The model is a rolling hash over all tokens of a sequence: the next token is a function of it, so
 * a token that is lost, doubled, out of order or of another sequence changes everything after it.
 * State is real memory, in small units:
 *
 * - A row of a page holds the hash of all tokens up to it, and the draft row: a hash of the hidden
 *   row before and of the token (position 0 has none).
 * - A checkpoint holds the hash, the hidden row and the position, and fills the rest of its units
 *   with what follows from them.  A sequence that is mounted goes on from these bytes, or from the
 *   last row of its pages where there are no checkpoints; never from the tokens.
 *
 * A mount compares every row and byte with what the tokens say they must be, and every entry
 * compares all rows before its own, so that a wrong unit, given away too early or reused for
 * another prefix, ends the test there.  A unit that is freed, and one whose contents a job is going
 * to replace, holds FAKE_UNIT_POISON from then on; an export may not find it in a row that it
 * copies.
 *
 * Every rule of engine.h that an owner can break is an assertion, and so is that nothing in a job
 * changes while it is in flight.  JOB_COMMIT and tentative entries are not there.
 */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "engine/engine.h"

enum {
    FAKE_POISON = 1, /* a token that makes the logits of its row not finite; never generated */
    FAKE_UNIT_BYTES = ENGINE_PAGE_TOKENS * 16,
    FAKE_UNIT_POISON = 0xa5, /* every byte of a unit without contents */
};

struct fake_options {
    uint32_t n_units, context, max_rows, n_sequences, n_vocab;
    uint32_t checkpoint_units; /* 0: a pure attention model */
    uint64_t seed;
    uint32_t end_every;  /* one token in so many is the end token; 0: none */
    uint64_t ns_per_row; /* what a step's run_ns says */
};

struct engine *fake_engine_new(const struct fake_options *o);

/* The token after ids[0..n), end tokens included unless `ban_end`. */
int32_t fake_next(const struct fake_options *o, const int32_t *ids, size_t n, bool ban_end);
/* Page i_page of ids[0..n) as it must be: FAKE_UNIT_BYTES, rows from n on zero. */
void fake_page(const int32_t *ids, uint32_t n, uint32_t i_page, void *ret);
/* The checkpoint after ids[0..n): checkpoint_units * FAKE_UNIT_BYTES.  n > 0. */
void fake_checkpoint(const struct fake_options *o, const int32_t *ids, uint32_t n, void *ret);
/* What the unit holds now. */
const void *fake_engine_unit(const struct engine *e, uint32_t unit);

/*
 * There are two queues, as in engine.h.  fake_engine_start begins the oldest job that waits in the
 * queue of steps, mounts, captures and releases: false when one runs already or none waits.
 */
bool fake_engine_start(struct engine *e);
/* The job that runs is complete; false when none runs. */
bool fake_engine_finish(struct engine *e);
/* The oldest export, import or copy that waits, from its begin to its end; false when none does. */
bool fake_engine_transfer(struct engine *e);
/* Starts and finishes a step, or one of its queue; a transfer when there is none. */
bool fake_engine_run(struct engine *e);

/* The next job of this kind to be submitted is refused with `rc`. */
void fake_engine_refuse_kind(struct engine *e, enum job_kind kind, int rc);
/*
 * The next job of this kind to run fails as a whole.  What it would have written is not: units keep
 * their poison, a sequence that was to be mounted skips its entries with -ECANCELED.
 */
void fake_engine_fail_kind(struct engine *e, enum job_kind kind, int rc);
/* Of steps. */
void fake_engine_refuse(struct engine *e, int rc);
void fake_engine_fail(struct engine *e, int rc);

struct fake_log {
    uint64_t n_steps, n_rows, n_entries_skipped;
    uint32_t last_rows, last_entries; /* of the step submitted last */
    uint32_t steps_in_flight;
    uint64_t n_mounts, n_mounted_tokens;
    uint64_t n_captures;                       /* checkpoints written, in steps and between them */
    uint64_t n_exported, n_imported, n_copied; /* units */
};
const struct fake_log *fake_engine_log(const struct engine *e);

#endif
