/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a model, from the keys of its file, each checked for its range. */
#include "engine/model_internal.h"

#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any published model, and small enough that the product of any two fits 64 bits. */
enum {
    MAX_LAYERS = 1024,
    MAX_EXPERTS = 4096,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 4096,
    MAX_EMBD = 1 << 17,
    MAX_FF = 1 << 20,
    MAX_VOCAB = 1 << 21,
    MAX_CONTEXT = 1 << 24,
    MIN_CONV_TAPS = 2,
    MAX_CONV_TAPS = 8,
    SHOWN = 120,               /* bytes of an escaped string in a message */
    DEFAULT_FULL_INTERVAL = 4, /* every fourth layer of a hybrid is full attention */
};

/* Widths, layers and the draft block; allocates m->layers. */
static int read_sizes(const struct model_reader *r, const struct family *f)
{
    struct hparams *hp = &r->m->hp;
    struct gguf_array tokens;
    uint32_t blocks, draft = 0;
    char key[MODEL_KEY_BYTES];
    int rc;

    rc = model_need_u32(r, "block_count", 1, MAX_LAYERS, &blocks);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "embedding_length", 1, MAX_EMBD, &hp->n_embd);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "context_length", 1, MAX_CONTEXT, &hp->n_context);
    if (rc < 0)
        return rc;

    rc = model_opt_u32(r, "nextn_predict_layers", 0, MAX_LAYERS, &draft);
    if (rc < 0)
        return rc;
    if (draft > 1 || (draft == 1 && !f->hybrid))
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"%s\": %" PRIu32 " draft blocks are not supported in %s",
                         model_key(r, "nextn_predict_layers", key), draft, f->name);
    if (draft >= blocks)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu32 ", expected more than the draft block",
                         model_key(r, "block_count", key), blocks);
    hp->has_draft = draft == 1;
    hp->n_layer = blocks - draft;

    rc = gguf_get_array(r->g, "tokenizer.ggml.tokens", &tokens, r->e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"tokenizer.ggml.tokens\" is missing");
    if (!gguf_array_is_str(&tokens) || tokens.n < 1 || tokens.n > MAX_VOCAB)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"tokenizer.ggml.tokens\": found %" PRIu64
                         " entries, expected 1 to %d strings",
                         tokens.n, MAX_VOCAB);
    hp->n_vocab = (uint32_t)tokens.n;

    r->m->layers = calloc(hp->n_layer, sizeof *r->m->layers);
    if (!r->m->layers)
        return gguf_fail(r->g, r->e, -ENOMEM, "out of memory");
    return 0;
}

/* Which layers are attention: all, or what the flags or the interval say. */
static int read_kinds(const struct model_reader *r, const struct family *f)
{
    struct model *m = r->m;
    struct gguf_array flags;
    uint32_t interval = DEFAULT_FULL_INTERVAL;
    bool by_flags = false;
    char key[MODEL_KEY_BYTES];
    int rc;

    if (f->hybrid) {
        rc = model_opt_u32(r, "full_attention_interval", 1, MAX_LAYERS, &interval);
        if (rc < 0)
            return rc;
        rc = gguf_get_array(r->g, model_key(r, "attention.recurrent_layers", key), &flags, r->e);
        if (rc < 0)
            return rc;
        by_flags = rc > 0;
        if (by_flags && flags.n < m->hp.n_layer)
            return gguf_fail(r->g, r->e, ERR_DAMAGED,
                             "key \"%s\": %" PRIu64 " entries, expected one for each of %" PRIu32
                             " layers",
                             key, flags.n, m->hp.n_layer);
    }
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        int64_t recurrent = f->hybrid && (i + 1) % interval != 0;

        if (by_flags && (!gguf_array_i64(&flags, i, &recurrent) || recurrent < 0 || recurrent > 1))
            return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": entry %" PRIu32 " is not a flag",
                             key, i);
        if (recurrent) {
            m->layers[i].kind = LAYER_DELTANET;
            m->layers[i].i_dn = m->n_dn++;
        } else {
            m->layers[i].kind = LAYER_ATTENTION;
            m->layers[i].i_attn = m->n_attn++;
        }
    }
    if (m->n_attn == 0)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "none of %" PRIu32 " layers has full attention; that is not supported",
                         m->hp.n_layer);
    m->draft.layer.kind = LAYER_ATTENTION;
    m->draft.layer.i_attn = m->n_attn;
    return 0;
}

static int read_attention(const struct model_reader *r)
{
    struct hparams *hp = &r->m->hp;
    uint32_t value_dim;
    char key[MODEL_KEY_BYTES];
    float scale = 0;
    int rc;

    rc = model_need_uniform(r, "attention.head_count", 1, MAX_HEADS, true, &hp->n_head);
    if (rc < 0)
        return rc;
    hp->n_head_kv = hp->n_head;
    rc = model_opt_uniform(r, "attention.head_count_kv", 1, MAX_HEADS, true, &hp->n_head_kv);
    if (rc < 0)
        return rc;
    if (hp->n_head % hp->n_head_kv != 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": %" PRIu32 " does not divide the %" PRIu32 " heads",
                         model_key(r, "attention.head_count_kv", key), hp->n_head_kv, hp->n_head);

    rc = model_opt_u32(r, "attention.key_length", 1, MAX_HEAD_DIM, &hp->head_dim);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        if (hp->n_embd % hp->n_head != 0 || hp->n_embd / hp->n_head > MAX_HEAD_DIM)
            return gguf_fail(r->g, r->e, ERR_DAMAGED,
                             "key \"%s\" is missing, and %" PRIu32
                             " heads do not divide the width %" PRIu32 " into at most %d each",
                             model_key(r, "attention.key_length", key), hp->n_head, hp->n_embd,
                             MAX_HEAD_DIM);
        hp->head_dim = hp->n_embd / hp->n_head;
    }
    value_dim = hp->head_dim;
    rc = model_opt_u32(r, "attention.value_length", 1, MAX_HEAD_DIM, &value_dim);
    if (rc < 0)
        return rc;
    if (value_dim != hp->head_dim)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"%s\": value heads of %" PRIu32 " beside key heads of %" PRIu32
                         " are not supported",
                         model_key(r, "attention.value_length", key), value_dim, hp->head_dim);

    rc = model_opt_f32(r, "attention.layer_norm_rms_epsilon", &hp->rms_eps);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return model_key_missing(r, "attention.layer_norm_rms_epsilon");
    if (!(hp->rms_eps > 0 && hp->rms_eps < 1))
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": found %g, expected between 0 and 1",
                         model_key(r, "attention.layer_norm_rms_epsilon", key),
                         (double)hp->rms_eps);

    rc = model_opt_f32(r, "attention.scale", &scale);
    if (rc < 0)
        return rc;
    if (scale < 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": found %g, expected more than 0",
                         model_key(r, "attention.scale", key), (double)scale);
    hp->attn_scale = scale > 0 ? scale : 1.0f / sqrtf((float)hp->head_dim);
    return 0;
}

/* Linear or no scaling; leaves 1 when the file says nothing. */
static int read_rope_scaling(const struct model_reader *r)
{
    char key[MODEL_KEY_BYTES], shown[SHOWN];
    struct gguf_str type = {"linear", 6};
    float factor = 0;
    int rc;

    rc = gguf_get_str(r->g, model_key(r, "rope.scaling.type", key), &type, r->e);
    if (rc < 0)
        return rc;
    r->m->hp.rope_freq_scale = 1;
    if (type.n == 4 && memcmp(type.s, "none", 4) == 0)
        return 0;
    if (type.n != 6 || memcmp(type.s, "linear", 6) != 0)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"%s\": \"%s\" is not supported; none and linear are", key,
                         err_escape(shown, sizeof shown, type.s, type.n));

    rc = model_opt_f32(r, "rope.scaling.factor", &factor);
    if (rc == 0)
        rc = model_opt_f32(r, "rope.scale_linear", &factor);
    if (rc < 0)
        return rc;
    if (factor == 0)
        return 0;
    r->m->hp.rope_freq_scale = 1.0f / factor;
    if (!(factor > 0) || !isfinite(r->m->hp.rope_freq_scale) || r->m->hp.rope_freq_scale == 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": found %g, expected more than 0",
                         model_key(r, "rope.scaling.factor", key), (double)factor);
    return 0;
}

/*
 * Position streams of interleaved multi-axis rotation (deltanet models).  For text all streams are
 * the token's position except the last, which is zero: only files where no pair uses it are plain
 * rotation.
 */
static int check_rope_sections(const struct model_reader *r)
{
    char key[MODEL_KEY_BYTES];
    struct gguf_array a;
    int64_t s[4] = {0}, sum = 0;
    int rc;

    rc = gguf_get_array(r->g, model_key(r, "rope.dimension_sections", key), &a, r->e);
    if (rc <= 0)
        return rc;
    for (uint64_t i = 0; i < a.n && i < 4; i++) {
        if (!gguf_array_i64(&a, i, &s[i]) || s[i] < 0 || s[i] > MAX_HEAD_DIM)
            return gguf_fail(r->g, r->e, ERR_DAMAGED,
                             "key \"%s\": entry %" PRIu64 " is not a count of pairs", key, i);
        sum += s[i];
    }
    if (a.n < 3 || a.n > 4 || sum == 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu64 " entries, expected 3 or 4, not all zero",
                         key, a.n);
    for (uint32_t p = 0; p < r->m->hp.n_rot / 2; p++) {
        int64_t sec = p % sum;
        /* Streams t, h, w are entries 0, 1, 2 and take every third pair up to 3 * entry. */
        if (sec >= 3 * s[sec % 3])
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                             "key \"%s\": pair %" PRIu32
                             " rotates by the fourth stream; that is not supported",
                             key, p);
    }
    return 0;
}

static int read_rope(const struct model_reader *r, const struct family *f)
{
    struct hparams *hp = &r->m->hp;
    char key[MODEL_KEY_BYTES];
    int rc;

    hp->rope = f->rope;
    hp->n_rot = hp->head_dim;
    rc = model_opt_u32(r, "rope.dimension_count", 0, UINT32_MAX, &hp->n_rot);
    if (rc < 0)
        return rc;
    /* The adjacent pairs of llama come from permuted rows, which is defined for whole heads only.
     */
    if (hp->n_rot < 2 || hp->n_rot % 2 != 0 || hp->n_rot > hp->head_dim ||
        (f->rope == ROPE_NORM && hp->n_rot != hp->head_dim))
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu32 ", expected an even number %s %" PRIu32,
                         model_key(r, "rope.dimension_count", key), hp->n_rot,
                         f->rope == ROPE_NORM ? "equal to the head's" : "up to the head's",
                         hp->head_dim);

    hp->rope_base = 10000;
    rc = model_opt_f32(r, "rope.freq_base", &hp->rope_base);
    if (rc < 0)
        return rc;
    if (!(hp->rope_base > 0))
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": found %g, expected more than 0",
                         model_key(r, "rope.freq_base", key), (double)hp->rope_base);
    rc = read_rope_scaling(r);
    if (rc < 0)
        return rc;
    return f->hybrid ? check_rope_sections(r) : 0;
}

static int read_ffn(const struct model_reader *r, const struct family *f)
{
    struct hparams *hp = &r->m->hp;
    uint32_t experts = 0, ff = 0;
    char key[MODEL_KEY_BYTES];
    int rc;

    hp->expert_scale = 1;
    if (!f->mixture) {
        rc = model_opt_u32(r, "expert_count", 0, MAX_EXPERTS, &experts);
        if (rc < 0)
            return rc;
        if (experts > 0)
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                             "key \"%s\": a mixture of %" PRIu32 " experts is not supported in %s",
                             model_key(r, "expert_count", key), experts, f->name);
        rc = model_need_uniform(r, "feed_forward_length", 1, MAX_FF, false, &hp->n_ff);
        return rc < 0 ? rc : 0;
    }

    rc = model_need_u32(r, "expert_count", 1, MAX_EXPERTS, &hp->n_expert);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "expert_used_count", 1, hp->n_expert, &hp->n_expert_used);
    if (rc < 0)
        return rc;
    rc = model_opt_u32(r, "expert_feed_forward_length", 1, MAX_FF, &hp->n_ff_expert);
    if (rc == 0) {
        /* Some writers give only the width of all active experts together. */
        rc = model_opt_uniform(r, "feed_forward_length", 1, MAX_FF, false, &ff);
        hp->n_ff_expert = ff / hp->n_expert_used;
        if (rc >= 0 && hp->n_ff_expert == 0)
            return model_key_missing(r, "expert_feed_forward_length");
    }
    if (rc < 0)
        return rc;
    hp->n_ff_shared = f->shared ? hp->n_ff_expert : 0;
    rc = model_opt_u32(r, "expert_shared_feed_forward_length", 0, f->shared ? MAX_FF : 0,
                       &hp->n_ff_shared);
    if (rc < 0)
        return rc;
    rc = model_opt_f32(r, "expert_weights_scale", &hp->expert_scale);
    if (rc < 0)
        return rc;
    if (hp->expert_scale == 0)
        hp->expert_scale = 1;
    return 0;
}

static int read_deltanet(const struct model_reader *r, const struct family *f)
{
    struct hparams *hp = &r->m->hp;
    uint32_t inner, key_heads, value_heads, dim, taps;
    char key[MODEL_KEY_BYTES];
    int rc;

    rc = model_need_u32(r, "ssm.conv_kernel", MIN_CONV_TAPS, MAX_CONV_TAPS, &taps);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "ssm.group_count", 1, MAX_HEADS, &key_heads);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "ssm.time_step_rank", 1, MAX_HEADS, &value_heads);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "ssm.state_size", 1, MAX_HEAD_DIM, &dim);
    if (rc < 0)
        return rc;
    rc = model_need_u32(r, "ssm.inner_size", 1, MAX_HEADS * MAX_HEAD_DIM, &inner);
    if (rc < 0)
        return rc;
    if (value_heads % key_heads != 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu32 ", expected a multiple of the %" PRIu32
                         " key heads",
                         model_key(r, "ssm.time_step_rank", key), value_heads, key_heads);
    if (inner % value_heads != 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu32 ", expected a multiple of the %" PRIu32
                         " value heads",
                         model_key(r, "ssm.inner_size", key), inner, value_heads);
    if (inner / value_heads != dim)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"%s\": value heads of %" PRIu32 " beside key heads of %" PRIu32
                         " are not supported",
                         model_key(r, "ssm.inner_size", key), inner / value_heads, dim);
    /* With attention in every layer there is no recurrent state, and nobody should reserve any. */
    if (r->m->n_dn == 0)
        return 0;
    hp->dn_k_heads = key_heads;
    hp->dn_v_heads = value_heads;
    hp->dn_grouped = f->grouped;
    hp->dn_dim = dim;
    hp->dn_conv = taps;
    hp->dn_conv_dim = 2 * key_heads * dim + inner;
    return 0;
}

int model_read_hparams(struct model *m, const struct family **ret_family, struct err_text *e)
{
    const struct model_reader r = {.g = m->gguf, .m = m, .e = e};
    const struct family *f = NULL;
    int rc;

    rc = model_read_family(&r, &f);
    if (rc < 0)
        return rc;
    rc = read_sizes(&r, f);
    if (rc < 0)
        return rc;
    rc = model_refuse_other_graphs(&r);
    if (rc < 0)
        return rc;
    rc = read_kinds(&r, f);
    if (rc < 0)
        return rc;
    rc = read_attention(&r);
    if (rc < 0)
        return rc;
    rc = read_rope(&r, f);
    if (rc < 0)
        return rc;
    rc = read_ffn(&r, f);
    if (rc < 0)
        return rc;
    if (f->hybrid) {
        rc = read_deltanet(&r, f);
        if (rc < 0)
            return rc;
    }
    *ret_family = f;
    return 0;
}
