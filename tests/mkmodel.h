/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small models with random weights, for tests: every family, any shape, the same bytes for the
 * same options.
 *
 * The weights are scaled so that activations stay of order one and logits differ by several units;
 * what such a model writes is noise.  The vocabulary is byte-level BPE: 256 byte tokens, the three
 * control tokens below, the results of a few merges, then fillers.
 */
#ifndef TESTS_MKMODEL_H
#define TESTS_MKMODEL_H

#include "tests/ggufw.h"

#include <stdbool.h>
#include <stdint.h>

/* Token ids that every made model has. */
enum {
    MKMODEL_IM_START = 256,  /* <|im_start|> */
    MKMODEL_IM_END = 257,    /* <|im_end|>, the end token */
    MKMODEL_ENDOFTEXT = 258, /* <|endoftext|> */
    MKMODEL_MIN_VOCAB = 266,
};

/* Zero means the default in brackets. */
struct mkmodel {
    const char *family; /* one of model_family.c's ["llama"] */
    uint32_t seed;
    uint32_t type;    /* enum tensor_type of the matrices, any that kernels read: 0 is F32 */
    uint32_t mix[8];  /* n_mix types that the matrices take in turn instead, token_embd first; */
    uint32_t n_mix;   /* Q8_0 where rows do not fill the blocks */
    uint32_t n_layer; /* of the trunk [2; hybrids 4] */
    uint32_t n_embd;  /* a multiple of 32 for Q8_0, as all widths below [64] */
    uint32_t n_head, n_head_kv, head_dim; /* [4, 2, 16] */
    uint32_t n_rot;                       /* [head_dim; hybrids half of it] */
    uint32_t n_ff;                        /* [96] */
    uint32_t n_vocab;                     /* at least MKMODEL_MIN_VOCAB [320] */
    uint32_t n_context;                   /* [2048] */
    float rope_base;                      /* [10000] */
    bool untied;                          /* an output.weight of its own */
    bool bias;       /* biases of q, k, v and output; qwen2 has the first three */
    bool rope_freqs; /* a rope_freqs.weight with divisors from 1 to 4 */

    /* Hybrids. */
    bool draft;             /* a draft block */
    bool draft_without_ffn; /* whose feed-forward part is absent */
    uint32_t interval;      /* every so many layers is full attention [4] */
    uint32_t dn_k_heads, dn_v_heads, dn_dim, dn_conv; /* [2, 4, 16, 4] */
    bool dn_in; /* qwen3next: ssm_in in place of attn_qkv and attn_gate */

    /* Mixtures. */
    uint32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared; /* [4, 2, 32, 32] */
    bool no_shared;                                             /* no shared expert */
    bool fused;                                                 /* ffn_gate_up_exps */
};

/* Puts the whole model into an empty `w`, where a test may change it before it is written. */
void mkmodel_build(const struct mkmodel *o, struct ggufw *w);

/* Appends the file to `out`. */
void mkmodel_bytes(const struct mkmodel *o, struct buf *out);
/* 0 or a negative errno. */
int mkmodel_write(const struct mkmodel *o, const char *path);

#endif
