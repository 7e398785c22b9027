/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as the graph needs it: numbers from the metadata and the weights of every layer, all
 * shapes checked against each other.
 *
 * One description covers the families: a layer is attention or gated DeltaNet, its feed-forward
 * part is dense or a mixture of experts, and optional tensors are NULL.  Families that are not
 * listed in model_family.c are refused by the name of `general.architecture`; weight types that no
 * kernel reads are refused by tensor name and type.
 *
 * Immutable after model_open; any thread may read.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "engine/gguf.h"

#include <stdbool.h>
#include <stdint.h>

struct err_text;

enum rope_style {
    ROPE_NORM, /* pairs (2p, 2p+1): llama */
    ROPE_NEOX, /* pairs (p, p + n_rot/2): all others; IMRoPE is the same for text */
};

struct hparams {
    char arch[32];
    uint32_t n_layer; /* of the trunk, without draft blocks */
    uint32_t n_embd;
    uint32_t n_vocab;
    uint32_t n_context; /* the file's */
    uint32_t n_head, n_head_kv, head_dim;
    float attn_scale; /* 1/sqrt(head_dim) unless the file says otherwise */
    float rms_eps;

    enum rope_style rope;
    uint32_t n_rot; /* first elements of a head that rotate; even */
    float rope_base;
    float rope_freq_scale; /* 1/factor for linear scaling, 1 for none */
    /* YaRN is refused by name until it is tested. */

    uint32_t n_ff; /* dense feed-forward width; 0 when every layer is a mixture */
    uint32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared; /* 0 for dense families */
    float expert_scale;                                         /* 1 when absent */

    /* Gated DeltaNet (reference: Yang et al. 2024); all 0 for pure attention families. */
    uint32_t dn_k_heads, dn_v_heads; /* Hk, Hv */
    bool dn_grouped;                 /* value head h uses key head h / (Hv/Hk), else h mod Hk */
    uint32_t dn_dim;                 /* dk == dv */
    uint32_t dn_conv;                /* taps of the causal convolution */
    uint32_t dn_conv_dim;            /* channels: 2*Hk*dk + Hv*dv */

    bool has_draft;
};

enum layer_kind { LAYER_ATTENTION, LAYER_DELTANET };

/*
 * All matrices are [out][in] row-major as y = W x (dims = {in, out}); norms and biases are F32.
 * Shapes in brackets.  NULL: the family or file does not have it.
 */
struct layer {
    enum layer_kind kind;
    uint32_t i_attn; /* index among attention layers (K/V planes of a page), or */
    uint32_t i_dn;   /* index among DeltaNet layers (parts of the recurrent state) */

    const struct tensor *attn_norm; /* [n_embd] before attention or DeltaNet */

    /* LAYER_ATTENTION */
    bool q_gated;                 /* wq rows of a head: [query head_dim | gate head_dim] */
    const struct tensor *wq;      /* [n_head*head_dim*(1+q_gated)][n_embd] */
    const struct tensor *wk, *wv; /* [n_head_kv*head_dim][n_embd] */
    const struct tensor *wo;      /* [n_embd][n_head*head_dim] */
    const struct tensor *bq, *bk, *bv, *bo; /* optional biases, F32 */
    const struct tensor *q_norm, *k_norm;   /* [head_dim], optional */

    /* LAYER_DELTANET */
    const struct tensor *dn_qkv;             /* [conv_dim][n_embd], rows q, k, v */
    const struct tensor *dn_gate;            /* [Hv*dv][n_embd] (z) */
    const struct tensor *dn_beta, *dn_alpha; /* [Hv][n_embd] */
    /* In place of qkv and gate, and of beta and alpha: rows key head by key head. */
    const struct tensor *dn_in;   /* [conv_dim + Hv*dv][n_embd]: q, k, its values, their gates */
    const struct tensor *dn_ba;   /* [2*Hv][n_embd]: beta of its value heads, then alpha */
    const struct tensor *dn_conv; /* [conv_dim][taps] F32 */
    const struct tensor *dn_dt;   /* [Hv] F32 bias */
    const struct tensor *dn_a;    /* [Hv] F32, negative: -exp(A_log) */
    const struct tensor *dn_norm; /* [dv] F32 */
    const struct tensor *dn_out;  /* [n_embd][Hv*dv] */

    const struct tensor *ffn_norm; /* [n_embd] before the feed-forward part */

    /* dense: gate, up [n_ff][n_embd], down [n_embd][n_ff]; NULL in a mixture layer */
    const struct tensor *ffn_gate, *ffn_up, *ffn_down;

    /* mixture: router [n_expert][n_embd]; experts stacked on dims[2] */
    const struct tensor *router;
    const struct tensor *gate_exps, *up_exps, *down_exps;
    const struct tensor *gate_up_exps;  /* in place of two: rows of an expert's gate, then up */
    const struct tensor *shared_router; /* [n_embd] F32, optional with the three below */
    const struct tensor *gate_shared, *up_shared, *down_shared;
};

/* The draft block (multi-token prediction head).  Its K/V rows are computed from the first day. */
struct draft {
    const struct tensor *embed_norm;  /* nextn.enorm [n_embd] */
    const struct tensor *hidden_norm; /* nextn.hnorm [n_embd] */
    const struct tensor *proj;        /* nextn.eh_proj [n_embd][2*n_embd], embedding half first */
    const struct tensor *head_norm;   /* nextn.shared_head_norm, NULL: output_norm */
    struct layer layer;               /* full attention; its feed-forward part may be absent */
};

struct model {
    struct gguf *gguf; /* owned */
    struct hparams hp;
    uint32_t n_attn;      /* attention layers of the trunk; the draft layer is plane n_attn */
    uint32_t n_dn;        /* DeltaNet layers */
    struct layer *layers; /* owned, [n_layer] */
    struct draft draft;   /* when hp.has_draft */
    const struct tensor *token_embd;  /* [n_vocab][n_embd] */
    const struct tensor *output_norm; /* [n_embd] */
    const struct tensor *output;      /* [n_vocab][n_embd]; == token_embd when tied */
    const struct tensor *rope_freqs;  /* [n_rot/2] F32 divisors, NULL: all 1 */
};

/* Opens and checks `path`.  0, or negative with `e` filled and *ret untouched. */
int model_open(const char *path, struct model **ret, struct err_text *e);

/* Takes `g` over on success only. */
int model_from_gguf(struct gguf *g, struct model **ret, struct err_text *e);

/* NULL is fine. */
void model_free(struct model *m);

/* For CLEANUP. */
static inline void model_freep(struct model **m)
{
    model_free(*m);
}

/* `--check`: every float payload (F16, BF16, F32, and the scales of blocks) is finite.  Reads the
 * whole file. */
int model_scan(const struct model *m, struct err_text *e);

#endif
