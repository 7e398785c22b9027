/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of model loading share: model.c (life time), model_family.c (which models),
 * model_keys.c and model_hparams.c (numbers), model_weights.c (tensors), model_scan.c (contents).
 * Nobody else includes this.
 */
#ifndef ENGINE_MODEL_INTERNAL_H
#define ENGINE_MODEL_INTERNAL_H

#include "engine/model.h"

#include <stdbool.h>
#include <stdint.h>

/* What sets one architecture apart from another, as far as we run them. */
struct family {
    const char *name; /* general.architecture */
    enum rope_style rope;
    bool
        hybrid; /* gated DeltaNet layers, gated queries, post_attention_norm, maybe a draft block */
    bool grouped;  /* hybrids: value heads of one key head stand together, see dn_grouped */
    bool mixture;  /* experts in place of the dense feed-forward part */
    bool shared;   /* mixtures: beside the routed experts one that every row goes through */
    bool qk_norm;  /* q and k are normalised per head */
    bool qkv_bias; /* q, k and v must have biases; elsewhere they may */
};

/* Where to read from and where to complain, so that reading a number is one line. */
struct model_reader {
    const struct gguf *g;
    struct model *m;
    struct err_text *e;
};

enum { MODEL_KEY_BYTES = 96 };

/* "arch.suffix" in `out`, which it returns. */
const char *model_key(const struct model_reader *r, const char *suffix, char out[MODEL_KEY_BYTES]);
/* The error for a required key. */
int model_key_missing(const struct model_reader *r, const char *suffix);

/* 1, 0 when absent (*ret untouched), or negative; `need`: absent is an error. */
int model_opt_u32(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                  uint32_t *ret);
int model_need_u32(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                   uint32_t *ret);
int model_opt_f32(const struct model_reader *r, const char *suffix, float *ret);

/*
 * A number that may be given once or as an array with an entry per layer, but has to be the same in
 * all layers that use it (`attention_only`: the others' entries are not looked at; some writers put
 * 0 there).  Needs the layers' kinds.  Results as above.
 */
int model_opt_uniform(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                      bool attention_only, uint32_t *ret);
int model_need_uniform(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                       bool attention_only, uint32_t *ret);

/* The family by general.architecture; fills hp.arch. */
int model_read_family(const struct model_reader *r, const struct family **ret);
/* Keys that ask for another graph; after hp.n_context is known. */
int model_refuse_other_graphs(const struct model_reader *r);

/* Fills m->hp and the kinds and indices of m->layers (allocated here), from m->gguf's keys. */
int model_read_hparams(struct model *m, const struct family **ret_family, struct err_text *e);

/* Finds and checks every tensor. */
int model_read_weights(struct model *m, const struct family *f, struct err_text *e);

/*
 * Calls fn for every tensor the model uses, layer by layer; one that serves twice (tied output)
 * comes once.  Stops at the first negative result and returns it.
 */
typedef int (*model_tensor_fn)(const struct tensor *t, void *arg);
int model_each_tensor(const struct model *m, model_tensor_fn fn, void *arg);

#endif
