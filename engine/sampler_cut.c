/* SPDX-License-Identifier: Apache-2.0 */
/* The best tokens of a row without sorting it. */
#include "engine/sampler_internal.h"

/* Restores the heap below i.  At the root stands the last of the order, or the first with `first`.
 */
static void sift(struct cand *h, uint32_t n, uint32_t i, bool first)
{
    struct cand v = h[i];

    for (;;) {
        uint32_t c = 2 * i + 1;

        if (c >= n)
            break;
        if (c + 1 < n && cand_before(&h[c + 1], &h[c]) == first)
            c++;
        if (cand_before(&h[c], &v) != first)
            break;
        h[i] = h[c];
        i = c;
    }
    h[i] = v;
}

static void heapify(struct cand *h, uint32_t n, bool first)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(h, n, i, first);
}

uint32_t sampler_top(const float *x, uint32_t n, uint32_t k, struct cand *heap)
{
    uint32_t i;

    if (k > n)
        k = n;
    for (i = 0; i < k; i++)
        heap[i] = (struct cand){x[i], i};
    heapify(heap, k, false);
    /* Ids ascend, so a token that equals the last one kept comes behind it. */
    for (; i < n; i++) {
        if (x[i] > heap[0].logit) {
            heap[0] = (struct cand){x[i], i};
            sift(heap, k, 0, false);
        }
    }
    return k;
}

void sampler_sort(struct cand *heap, uint32_t n)
{
    while (n > 1) {
        struct cand last = heap[0];

        heap[0] = heap[--n];
        heap[n] = last;
        sift(heap, n, 0, false);
    }
}

static uint64_t weight_of(const struct cand *c, float max)
{
    float e;

    sampler_exp(&c->logit, 1, max, 1.0f, &e);
    return sampler_weight(e);
}

/* Takes tokens off the front of the order until `sum` reaches `target`; the last one taken. */
static struct cand take_until(struct cand *list, uint32_t n, float max, uint64_t sum, double target)
{
    struct cand c;

    heapify(list, n, true);
    do {
        c = list[0];
        sum += weight_of(&c, max);
        list[0] = list[--n];
        sift(list, n, 0, true);
    } while (n && (double)sum < target);
    return c;
}

struct cand sampler_nucleus_list(struct cand *list, uint32_t n, float max, float p)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += weight_of(&list[i], max);
    return take_until(list, n, max, 0, (double)p * (double)total);
}

/* A histogram of weight by distance from the best logit: 1024 bins, 32 to the nat. */
enum { N_BINS = 1024 };

static inline uint32_t bin_of(float x, float max)
{
    float d = (max - x) * 32.0f;

    return d < N_BINS - 1 ? (uint32_t)d : N_BINS - 1;
}

struct cand sampler_nucleus_row(const float *x, const float *e, uint32_t n, float max, float p,
                                struct cand *scratch)
{
    uint64_t bins[N_BINS] = {0}, total = 0, sum = 0;
    uint32_t b = 0, m = 0;
    double target;

    for (uint32_t i = 0; i < n; i++)
        bins[bin_of(x[i], max)] += sampler_weight(e[i]);
    for (uint32_t i = 0; i < N_BINS; i++)
        total += bins[i];
    target = (double)p * (double)total;
    while (b < N_BINS - 1 && (double)(sum + bins[b]) < target)
        sum += bins[b++];
    /* Empty bins at the front would leave nothing to take; the best token is in bin 0. */
    for (uint32_t i = 0; i < n; i++)
        if (bin_of(x[i], max) == b)
            scratch[m++] = (struct cand){x[i], i};
    return take_until(scratch, m, max, sum, target);
}
