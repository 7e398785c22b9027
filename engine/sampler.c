/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler.h"

#include "engine/sampler_internal.h"
#include "util/err.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

/* Counters of Philox besides the position; the others are for speculation and further samplers. */
enum { STREAM_DRAW = 0 };

/* Scratch by vocabulary: the heap of candidates, later the kept logits and ids; exponentials; the
 * raw row. */
struct scratch {
    struct cand *cands;
    uint32_t *counts; /* before there are candidates */
    float *kept;      /* after them */
    uint32_t *ids;
    float *e;
    float *raw;
};

static struct scratch lay_out(void *p, uint32_t n)
{
    char *at = p;

    return (struct scratch){
        .cands = p,
        .counts = p,
        .kept = p,
        .ids = (uint32_t *)(void *)(at + (size_t)n * 4),
        .e = (float *)(void *)(at + (size_t)n * 8),
        .raw = (float *)(void *)(at + (size_t)n * 12),
    };
}

size_t sampler_scratch_bytes(uint32_t n_vocab)
{
    return (size_t)n_vocab * 16;
}

void sampler_params_init(struct sampler_params *p)
{
    *p = (struct sampler_params){.top_p = 1, .repeat_penalty = 1};
}

static bool has_repeat_penalty(const struct sampler_params *p)
{
    return p->repeat_penalty != 1 && p->penalty_last_n != 0;
}

static bool has_penalties(const struct sampler_params *p)
{
    return has_repeat_penalty(p) || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

/*
 * A finite logit stays finite whatever the parameters are: only a ban takes a token out, and only
 * the model may be blamed for a row that is not finite.  A change that has no value is none.
 */
static float changed(float from, float to)
{
    if (isnan(to))
        return from;
    return to > FLT_MAX ? FLT_MAX : to < -FLT_MAX ? -FLT_MAX : to;
}

static void apply_bias(const struct sampler_params *p, float *logits, uint32_t n_vocab)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        const struct logit_bias *b = &p->bias[i];

        if (b->id < 0 || (uint32_t)b->id >= n_vocab)
            continue;
        if (b->bias == -INFINITY)
            logits[b->id] = -INFINITY;
        else if (isfinite(logits[b->id]))
            logits[b->id] = changed(logits[b->id], logits[b->id] + b->bias);
    }
}

/* Each token that occurs is changed once: first for the window, then for how often it was
 * generated. */
static void apply_penalties(const struct sampler_params *p, const int32_t *history,
                            size_t n_history, float *logits, uint32_t n_vocab, uint32_t *counts)
{
    const uint32_t in_window = 1u << 31;
    size_t window = n_history, generated = p->n_prompt < n_history ? p->n_prompt : n_history, first;

    if (has_repeat_penalty(p)) {
        window = 0;
        if (p->penalty_last_n > 0 && (size_t)p->penalty_last_n < n_history)
            window = n_history - (size_t)p->penalty_last_n;
    }
    if (p->frequency_penalty == 0 && p->presence_penalty == 0)
        generated = n_history;
    first = window < generated ? window : generated;

    memset(counts, 0, (size_t)n_vocab * sizeof(*counts));
    for (size_t i = first; i < n_history; i++) {
        int32_t id = history[i];

        if (id < 0 || (uint32_t)id >= n_vocab)
            continue;
        if (i >= generated)
            counts[id]++;
        if (i >= window)
            counts[id] |= in_window;
    }
    for (size_t i = first; i < n_history; i++) {
        int32_t id = history[i];
        uint32_t c;
        float l;

        if (id < 0 || (uint32_t)id >= n_vocab || counts[id] == 0)
            continue;
        c = counts[id];
        counts[id] = 0;
        l = logits[id];
        if (!isfinite(l))
            continue;
        if (c & in_window)
            l = changed(l, l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty);
        c &= ~in_window;
        if (c)
            l = changed(l, l - ((float)c * p->frequency_penalty + p->presence_penalty));
        logits[id] = l;
    }
}

/* What is left of the row after top-k, top-p and min-p, in the order of the ids. */
struct kept {
    const float *logits;
    const uint32_t *ids; /* NULL: logits[i] is token i */
    uint32_t n;
};

static struct kept truncate_row(const struct sampler_params *p, const float *logits,
                                uint32_t n_vocab, float max, struct scratch *s)
{
    struct cand cut = {-INFINITY, UINT32_MAX};
    uint32_t n_list = 0, n = 0, m = 0;
    float min_p = p->min_p < 1 ? p->min_p : 1;
    bool top_k = p->top_k > 0 && (uint32_t)p->top_k < n_vocab, top_p = p->top_p < 1;

    if (!top_k && !top_p && !(p->min_p > 0))
        return (struct kept){logits, NULL, n_vocab};

    if (top_k) {
        n_list = sampler_top(logits, n_vocab, (uint32_t)p->top_k, s->cands);
        cut = s->cands[0];
    }
    if (top_p && top_k) {
        cut = sampler_nucleus_list(s->cands, n_list, max, p->top_p);
    } else if (top_p) {
        sampler_exp(logits, n_vocab, max, 1, s->e);
        cut = sampler_nucleus_row(logits, s->e, n_vocab, max, p->top_p, s->cands);
    }

    /* The candidates have done their work: their memory takes what is kept. */
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (logits[i] < cut.logit || (logits[i] == cut.logit && i > cut.id))
            continue;
        s->kept[n] = logits[i];
        s->ids[n++] = i;
    }
    if (p->min_p > 0) {
        sampler_exp(s->kept, n, max, 1, s->e);
        for (uint32_t i = 0; i < n; i++) {
            if (s->e[i] < min_p)
                continue;
            s->kept[m] = s->kept[i];
            s->ids[m++] = s->ids[i];
        }
        n = m;
    }
    return (struct kept){s->kept, s->ids, n};
}

static uint32_t draw(const struct sampler_params *p, const struct kept *k, float max,
                     uint64_t position, float *e)
{
    uint64_t total = 0, target, sum = 0;
    uint32_t random[4], i = 0;

    sampler_exp(k->logits, k->n, max, p->temperature, e);
    for (uint32_t j = 0; j < k->n; j++)
        total += sampler_weight(e[j]);
    philox4x32(p->seed, position, STREAM_DRAW, random);
    target = ((uint64_t)random[1] << 32) | random[0];
    target = (uint64_t)((u128)target * total >> 64);
    /* target < total, so this ends on a token with a weight. */
    while ((sum += sampler_weight(e[i])) <= target)
        i++;
    return k->ids ? k->ids[i] : i;
}

/* The most likely tokens of the raw row, and the logarithm of its sum. */
static double report_top(const struct sampler_params *p, const float *logits, uint32_t n_vocab,
                         float max, struct scratch *s, struct sample *ret)
{
    double log_sum = sampler_log_sum(logits, n_vocab, max, s->e);

    assert(p->n_top <= SAMPLER_MAX_TOP);
    if (p->n_top) {
        ret->n_top = sampler_top(logits, n_vocab, p->n_top, s->cands);
        sampler_sort(s->cands, ret->n_top);
    }
    for (uint32_t i = 0; i < ret->n_top; i++) {
        ret->top[i].id = (int32_t)s->cands[i].id;
        ret->top[i].logprob = (float)((double)s->cands[i].logit - (double)max - log_sum);
    }
    return log_sum;
}

int sampler_pick(const struct sampler_params *p, const int32_t *history, size_t n_history,
                 float *logits, uint32_t n_vocab, void *scratch, struct sample *ret)
{
    struct scratch s = lay_out(scratch, n_vocab);
    struct sample out = {0};
    const float *raw = logits;
    double log_sum = 0;
    float max, raw_max;
    uint32_t id;
    int r = sampler_scan(logits, n_vocab, &id, &max);

    if (r < 0)
        return r;
    raw_max = max;
    if (p->logprob || p->n_top)
        log_sum = report_top(p, logits, n_vocab, max, &s, &out);

    if (p->n_bias || has_penalties(p)) {
        if (p->logprob) {
            memcpy(s.raw, logits, (size_t)n_vocab * sizeof(*logits));
            raw = s.raw;
        }
        apply_bias(p, logits, n_vocab);
        if (has_penalties(p))
            apply_penalties(p, history, n_history, logits, n_vocab, s.counts);
        /* The row was sound before, so this can only say that everything is banned. */
        if (sampler_scan(logits, n_vocab, &id, &max) < 0)
            return -EINVAL;
    }
    if (p->temperature > 0) {
        struct kept k = truncate_row(p, logits, n_vocab, max, &s);

        id = draw(p, &k, max, n_history, s.e);
    }

    out.id = (int32_t)id;
    for (size_t i = 0; i < p->n_end_ids; i++)
        out.end |= p->end_ids[i] == out.id;
    if (p->logprob)
        out.logprob = (float)((double)raw[id] - (double)raw_max - log_sum);
    *ret = out;
    return 0;
}
