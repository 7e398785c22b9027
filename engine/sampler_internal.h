/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the sampler.
 *
 * Probabilities are integers: exp(l - max) in units of 2^-40.  Sums of integers do not depend on
 * their order, so a draw is the same however its row was walked, and on every machine.  What is
 * less than 2^-40 times as likely as the best token is never drawn.
 */
#ifndef ENGINE_SAMPLER_INTERNAL_H
#define ENGINE_SAMPLER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* e[i] = exp((x[i] - max) / t) for x[i] <= max; 0 below e^-87.  The same bits everywhere.  e may be
 * x. */
void sampler_exp(const float *x, size_t n, float max, float t, float *e);

/* Of the 2^21 tokens that a vocabulary may have at most, the sum fits. */
static inline uint64_t sampler_weight(float e)
{
    return (uint64_t)(int64_t)(e * 0x1p40f);
}

/* ln(sum of exp(x[i] - max)) with sums in double; `scratch` is n floats. */
double sampler_log_sum(const float *x, size_t n, float max, float *scratch);

/* One pass: the largest value and its lowest index.  0 or ERR_NONFINITE (NaN or +infinity anywhere,
 * -infinity everywhere). */
int sampler_scan(const float *x, uint32_t n, uint32_t *ret_id, float *ret_max);

/* A token of a row.  The order of tokens: larger logits first, lower ids first among equals. */
struct cand {
    float logit;
    uint32_t id;
};

static inline bool cand_before(const struct cand *a, const struct cand *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* The first k > 0 of the row's order, as a heap with the last one at heap[0].  Returns min(k, n).
 */
uint32_t sampler_top(const float *x, uint32_t n, uint32_t k, struct cand *heap);
/* Turns that heap into a list in order. */
void sampler_sort(struct cand *heap, uint32_t n);

/*
 * The last token of the shortest opening of the order whose weights reach the share p of all: of
 * the list (any order, reordered), or of the whole row with its e = exp(x - max).
 */
struct cand sampler_nucleus_list(struct cand *list, uint32_t n, float max, float p);
struct cand sampler_nucleus_row(const float *x, const float *e, uint32_t n, float max, float p,
                                struct cand *scratch);

#endif
