/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a row of logits to a token.
 *
 * Stateless: the result is a function of the logits, the parameters and the tokens before, so a
 * request that is parked, moved or replayed continues with the same text.  Randomness is
 * Philox4x32-10 (Salmon et al. 2011) with the seed as key and (position, stream) as counter.
 *
 * Order: logit bias, penalties, top-k, top-p, min-p, temperature, draw (that of llama.cpp: the
 * truncations see the distribution before temperature).  The position is n_history, and the draw
 * walks the tokens that are left by ascending id.  Temperature <= 0 is greedy: the largest
 * logit, the lowest id among equals, after bias and penalties, without randomness.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLER_MAX_TOP = 20 };

struct logit_bias {
    int32_t id;
    float bias; /* -INFINITY bans */
};

/* Immutable while a step that refers to it is in flight. */
struct sampler_params {
    float temperature;      /* <= 0: greedy */
    int32_t top_k;          /* <= 0: off */
    float top_p;            /* >= 1: off */
    float min_p;            /* <= 0: off */
    int32_t penalty_last_n; /* window of the repeat penalty, prompt included; 0 off, -1 all */
    float repeat_penalty;   /* 1: off */
    float frequency_penalty, presence_penalty; /* count generated tokens only; 0: off */
    uint64_t seed;
    const struct logit_bias *bias; /* borrowed */
    size_t n_bias;
    uint32_t n_prompt;      /* tokens before the first generated one */
    uint32_t n_top;         /* how many of the most likely tokens to report, <= SAMPLER_MAX_TOP */
    bool logprob;           /* report the log-probability of the chosen token (raw distribution) */
    const int32_t *end_ids; /* borrowed; a sampled one ends the sequence */
    size_t n_end_ids;
};

struct token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, of the raw row: before bias, penalties, temperature */
};

struct sample {
    int32_t id;
    bool end;      /* id is one of end_ids */
    float logprob; /* when asked for */
    uint32_t n_top;
    struct token_logprob top[SAMPLER_MAX_TOP]; /* descending; lower id first among equals */
};

/* Greedy, nothing reported. */
void sampler_params_init(struct sampler_params *p);

/* Bytes of scratch that sampler_pick needs for a vocabulary (may be shared between calls of one
 * thread). */
size_t sampler_scratch_bytes(uint32_t n_vocab);

/*
 * `history` are the n_history tokens before this one (prompt, then generated).  `logits` [n_vocab]
 * is overwritten.  0 with *ret set, ERR_NONFINITE (NaN or +infinity anywhere; -infinity
 * everywhere), or -EINVAL when the bias bans every token.  Thread-safe with own scratch.
 */
int sampler_pick(const struct sampler_params *p, const int32_t *history, size_t n_history,
                 float *logits, uint32_t n_vocab, void *scratch, struct sample *ret);

/* Four 32-bit words of Philox4x32-10. */
void philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

#endif
