/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exactness gate compares: everything a sequence is after n tokens, as bytes.
 */
#ifndef TESTS_EXACT_H
#define TESTS_EXACT_H

#include "tests/runner.h"

#include <stdbool.h>

/* Pages, checkpoint and logits after the last token. */
struct outcome {
    uint8_t *state; /* owned */
    size_t n_state;
    float *logits; /* owned, [n_vocab] */
    int32_t next;  /* the greedy token */
};

/* How the tokens reach the engine. */
struct feed {
    const int32_t *ids;
    uint32_t n;
    const uint32_t
        *cuts; /* ascending positions where a step ends, besides n; NULL: at most max_rows */
    uint32_t n_cuts;
    uint32_t n_generated; /* the last so many are not given but sampled (greedily; they must come
                             out as ids says) */
    uint32_t n_mates; /* other sequences that run in the same steps, with tokens and pieces of their
                         own */
    uint32_t seed;    /* of the mates */
};

void outcome_of(struct runner *r, const struct feed *f, struct outcome *ret);
void outcome_done(struct outcome *o);
/* Fails the test, naming what differs first (page bytes, checkpoint bytes or logits). */
void outcome_expect(const struct runner *r, const struct outcome *want, const struct outcome *have,
                    const char *what, uint32_t n, uint32_t k);

/*
 * Random tokens, the last n_generated of which are the model's own greedy continuation.
 */
int32_t *exact_ids(struct runner *r, uint32_t n, uint32_t n_generated, uint32_t seed);

#endif
