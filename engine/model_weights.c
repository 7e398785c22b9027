/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model by their role, each checked for shape and type.
 *
 * One table says for every role how the tensor is called, where its pointer goes and what shape it
 * must have; which rows apply to a layer follows from its kind and family.  In a layer every tensor
 * has its row, or the file is another kind of model.  Outside of layers others are ignored (vision
 * towers, calibration data), apart from a short list of those that would change the result.
 */
#include "engine/model_internal.h"
#include "engine/quant.h"

#include "util/err.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Lengths that shapes are made of; ONE is a missing dimension. */
enum dim {
    DIM_ONE,
    DIM_EMBD,
    DIM_EMBD_TWICE,
    DIM_VOCAB,
    DIM_QUERY, /* rows of wq, gates included */
    DIM_HEADS, /* n_head * head_dim */
    DIM_KV,    /* n_head_kv * head_dim */
    DIM_HEAD,
    DIM_HALF_ROT,
    DIM_FF,
    DIM_EXPERTS,
    DIM_FF_EXPERT,
    DIM_FF_EXPERT_TWICE,
    DIM_FF_SHARED,
    DIM_DN_VALUE, /* Hv * dv */
    DIM_DN_HEADS, /* Hv */
    DIM_DN_HEADS_TWICE,
    DIM_DN_HEAD,
    DIM_DN_CONV,
    DIM_DN_IN, /* channels and gates */
    DIM_DN_TAPS,
    DIM_N,
};

/* Which layers a row is for. */
enum {
    PART_EACH = 1 << 0,
    PART_NORM = 1 << 1, /* the feed-forward norm's name in plain families … */
    PART_POST = 1 << 2, /* … and in hybrids */
    PART_ATTN = 1 << 3,
    PART_QK_NORM = 1 << 4,
    PART_BIAS = 1 << 5,
    PART_QKV_BIAS = 1 << 6,
    PART_DN = 1 << 7,
    PART_DN_QKV = 1 << 8,   /* q, k, v and their gates … */
    PART_DN_IN = 1 << 9,    /* … or all of them in one matrix */
    PART_DN_BETA = 1 << 10, /* beta and alpha … */
    PART_DN_BA = 1 << 11,   /* … or both in one matrix */
    PART_DENSE = 1 << 12,
    PART_MIXTURE = 1 << 13,
    PART_GATE_UP = 1 << 14, /* gate and up of the experts … */
    PART_FUSED = 1 << 15,   /* … or both in one matrix */
    PART_SHARED = 1 << 16,
    PART_FFN = PART_DENSE | PART_MIXTURE | PART_GATE_UP | PART_FUSED | PART_SHARED,
};

struct role {
    const char *name; /* after the prefix */
    size_t at;        /* offset of the pointer */
    unsigned int part;
    bool f32; /* a vector or small table that is always F32; else a matrix */
    enum dim dims[3];
};

#define IN_LAYER(member) offsetof(struct layer, member)
static const struct role layer_roles[] = {
    {"attn_norm.weight", IN_LAYER(attn_norm), PART_EACH, true, {DIM_EMBD}},
    {"attn_q.weight", IN_LAYER(wq), PART_ATTN, false, {DIM_EMBD, DIM_QUERY}},
    {"attn_k.weight", IN_LAYER(wk), PART_ATTN, false, {DIM_EMBD, DIM_KV}},
    {"attn_v.weight", IN_LAYER(wv), PART_ATTN, false, {DIM_EMBD, DIM_KV}},
    {"attn_output.weight", IN_LAYER(wo), PART_ATTN, false, {DIM_HEADS, DIM_EMBD}},
    {"attn_q.bias", IN_LAYER(bq), PART_QKV_BIAS, true, {DIM_QUERY}},
    {"attn_k.bias", IN_LAYER(bk), PART_QKV_BIAS, true, {DIM_KV}},
    {"attn_v.bias", IN_LAYER(bv), PART_QKV_BIAS, true, {DIM_KV}},
    {"attn_output.bias", IN_LAYER(bo), PART_BIAS, true, {DIM_EMBD}},
    {"attn_q_norm.weight", IN_LAYER(q_norm), PART_QK_NORM, true, {DIM_HEAD}},
    {"attn_k_norm.weight", IN_LAYER(k_norm), PART_QK_NORM, true, {DIM_HEAD}},
    {"attn_qkv.weight", IN_LAYER(dn_qkv), PART_DN_QKV, false, {DIM_EMBD, DIM_DN_CONV}},
    {"attn_gate.weight", IN_LAYER(dn_gate), PART_DN_QKV, false, {DIM_EMBD, DIM_DN_VALUE}},
    {"ssm_in.weight", IN_LAYER(dn_in), PART_DN_IN, false, {DIM_EMBD, DIM_DN_IN}},
    {"ssm_beta.weight", IN_LAYER(dn_beta), PART_DN_BETA, false, {DIM_EMBD, DIM_DN_HEADS}},
    {"ssm_alpha.weight", IN_LAYER(dn_alpha), PART_DN_BETA, false, {DIM_EMBD, DIM_DN_HEADS}},
    {"ssm_ba.weight", IN_LAYER(dn_ba), PART_DN_BA, false, {DIM_EMBD, DIM_DN_HEADS_TWICE}},
    {"ssm_conv1d.weight", IN_LAYER(dn_conv), PART_DN, true, {DIM_DN_TAPS, DIM_DN_CONV}},
    {"ssm_dt.bias", IN_LAYER(dn_dt), PART_DN, true, {DIM_DN_HEADS}},
    {"ssm_a", IN_LAYER(dn_a), PART_DN, true, {DIM_DN_HEADS}},
    {"ssm_norm.weight", IN_LAYER(dn_norm), PART_DN, true, {DIM_DN_HEAD}},
    {"ssm_out.weight", IN_LAYER(dn_out), PART_DN, false, {DIM_DN_VALUE, DIM_EMBD}},
    {"ffn_norm.weight", IN_LAYER(ffn_norm), PART_NORM, true, {DIM_EMBD}},
    {"post_attention_norm.weight", IN_LAYER(ffn_norm), PART_POST, true, {DIM_EMBD}},
    {"ffn_gate.weight", IN_LAYER(ffn_gate), PART_DENSE, false, {DIM_EMBD, DIM_FF}},
    {"ffn_up.weight", IN_LAYER(ffn_up), PART_DENSE, false, {DIM_EMBD, DIM_FF}},
    {"ffn_down.weight", IN_LAYER(ffn_down), PART_DENSE, false, {DIM_FF, DIM_EMBD}},
    {"ffn_gate_inp.weight", IN_LAYER(router), PART_MIXTURE, false, {DIM_EMBD, DIM_EXPERTS}},
    {"ffn_gate_exps.weight",
     IN_LAYER(gate_exps),
     PART_GATE_UP,
     false,
     {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}},
    {"ffn_up_exps.weight",
     IN_LAYER(up_exps),
     PART_GATE_UP,
     false,
     {DIM_EMBD, DIM_FF_EXPERT, DIM_EXPERTS}},
    {"ffn_gate_up_exps.weight",
     IN_LAYER(gate_up_exps),
     PART_FUSED,
     false,
     {DIM_EMBD, DIM_FF_EXPERT_TWICE, DIM_EXPERTS}},
    {"ffn_down_exps.weight",
     IN_LAYER(down_exps),
     PART_MIXTURE,
     false,
     {DIM_FF_EXPERT, DIM_EMBD, DIM_EXPERTS}},
    {"ffn_gate_inp_shexp.weight", IN_LAYER(shared_router), PART_SHARED, true, {DIM_EMBD}},
    {"ffn_gate_shexp.weight", IN_LAYER(gate_shared), PART_SHARED, false, {DIM_EMBD, DIM_FF_SHARED}},
    {"ffn_up_shexp.weight", IN_LAYER(up_shared), PART_SHARED, false, {DIM_EMBD, DIM_FF_SHARED}},
    {"ffn_down_shexp.weight", IN_LAYER(down_shared), PART_SHARED, false, {DIM_FF_SHARED, DIM_EMBD}},
};

/* PART_EACH is required, PART_BIAS optional. */
static const struct role draft_roles[] = {
    {"nextn.enorm.weight", offsetof(struct draft, embed_norm), PART_EACH, true, {DIM_EMBD}},
    {"nextn.hnorm.weight", offsetof(struct draft, hidden_norm), PART_EACH, true, {DIM_EMBD}},
    {"nextn.eh_proj.weight",
     offsetof(struct draft, proj),
     PART_EACH,
     false,
     {DIM_EMBD_TWICE, DIM_EMBD}},
    {"nextn.shared_head_norm.weight",
     offsetof(struct draft, head_norm),
     PART_BIAS,
     true,
     {DIM_EMBD}},
};

static const struct role model_roles[] = {
    {"token_embd.weight",
     offsetof(struct model, token_embd),
     PART_EACH,
     false,
     {DIM_EMBD, DIM_VOCAB}},
    {"output_norm.weight", offsetof(struct model, output_norm), PART_EACH, true, {DIM_EMBD}},
    {"output.weight", offsetof(struct model, output), PART_BIAS, false, {DIM_EMBD, DIM_VOCAB}},
    {"rope_freqs.weight", offsetof(struct model, rope_freqs), PART_BIAS, true, {DIM_HALF_ROT}},
};

#define N_ROLES(table) (sizeof(table) / sizeof *(table))

/* Tensors outside of layers that would change the result and have no place in the graph. */
static const char *const refused_in_model[] = {
    "output.bias",
    "output_norm.bias",
    "token_embd_norm.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
};

struct loader {
    const struct model *m;
    uint64_t lengths[DIM_N];
    struct err_text *e;
};

enum { NAME_BYTES = 96, SHAPE_BYTES = 96 };

static char *show_shape(char out[SHAPE_BYTES], const uint64_t *dims, unsigned int n)
{
    int at = 0;

    for (unsigned int d = 0; d < n; d++)
        at += snprintf(out + at, SHAPE_BYTES - (size_t)at, "%s%" PRIu64, d ? ", " : "", dims[d]);
    return out;
}

static int check_tensor(const struct loader *l, const struct role *role, const struct tensor *t,
                        const char *name)
{
    uint64_t want[4] = {1, 1, 1, 1};
    char found[SHAPE_BYTES], expected[SHAPE_BYTES];
    unsigned int n = 0;

    while (n < 3 && role->dims[n] != DIM_ONE) {
        want[n] = l->lengths[role->dims[n]];
        n++;
    }
    if (memcmp(t->dims, want, sizeof want) != 0)
        return gguf_fail(l->m->gguf, l->e, ERR_DAMAGED, "tensor \"%s\": shape [%s], expected [%s]",
                         name, show_shape(found, t->dims, t->n_dims),
                         show_shape(expected, want, n));
    if (role->f32 && t->type != TENSOR_F32)
        return gguf_fail(l->m->gguf, l->e, ERR_UNSUPPORTED, "tensor \"%s\": type %s, expected F32",
                         name, tensor_type_name(t->type));
    if (t->type != TENSOR_F32 && t->type != TENSOR_F16 && t->type != TENSOR_BF16 &&
        !quant_is(t->type))
        return gguf_fail(l->m->gguf, l->e, ERR_UNSUPPORTED,
                         "tensor \"%s\": weights of type %s are not supported", name,
                         tensor_type_name(t->type));
    return 0;
}

/* Sets the pointers in `base` of every row whose part is required or optional (both: required). */
static int load(const struct loader *l, const char *prefix, void *base, const struct role *roles,
                size_t n, unsigned int required, unsigned int optional)
{
    char name[NAME_BYTES];

    for (size_t i = 0; i < n; i++) {
        const struct role *role = &roles[i];
        const struct tensor *t;
        int r;

        if (!(role->part & (required | optional)))
            continue;
        (void)snprintf(name, sizeof name, "%s%s", prefix, role->name);
        t = gguf_find(l->m->gguf, name);
        if (!t && (role->part & required))
            return gguf_fail(l->m->gguf, l->e, ERR_DAMAGED, "tensor \"%s\" is missing", name);
        if (!t)
            continue;
        r = check_tensor(l, role, t, name);
        if (r < 0)
            return r;
        memcpy((char *)base + role->at, &t, sizeof t);
    }
    return 0;
}

static int not_supported(const struct loader *l, const char *name, size_t n)
{
    char shown[NAME_BYTES];

    return gguf_fail(l->m->gguf, l->e, ERR_UNSUPPORTED, "tensor \"%s\" is not supported",
                     err_escape(shown, sizeof shown, name, n));
}

static int refuse_in_model(const struct loader *l)
{
    for (size_t i = 0; i < N_ROLES(refused_in_model); i++)
        if (gguf_find(l->m->gguf, refused_in_model[i]))
            return not_supported(l, refused_in_model[i], strlen(refused_in_model[i]));
    return 0;
}

static bool has_place(const void *base, const struct role *roles, size_t n, const struct tensor *t)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp((const char *)base + roles[i].at, &t, sizeof t) == 0)
            return true;
    return false;
}

/* The layer that its name puts it in, and what follows "blk.N." there; false: none. */
static bool in_layer(const struct tensor *t, uint32_t *ret_layer, struct gguf_str *ret_rest)
{
    static const char blk[] = "blk.";
    size_t at = sizeof blk - 1;
    uint32_t n = 0;

    if (t->name.n < at || memcmp(t->name.s, blk, at) != 0)
        return false;
    for (; at < t->name.n && t->name.s[at] >= '0' && t->name.s[at] <= '9' && n < 100000; at++)
        n = 10 * n + (uint32_t)(t->name.s[at] - '0');
    if (at == sizeof blk - 1 || at == t->name.n || t->name.s[at] != '.')
        return false;
    *ret_layer = n;
    *ret_rest = (struct gguf_str){t->name.s + at + 1, t->name.n - at - 1};
    return true;
}

/* A tensor of a layer that was not read. */
static int refuse_in_layers(const struct loader *l)
{
    static const char rot[] = "attn_rot_embd.weight"; /* of early files: angles, as computed */
    const struct model *m = l->m;

    for (uint64_t k = 0; k < gguf_n_tensors(m->gguf); k++) {
        const struct tensor *t = gguf_tensor_at(m->gguf, k);
        struct gguf_str rest;
        uint32_t i;

        if (!in_layer(t, &i, &rest) || i >= m->hp.n_layer + m->hp.has_draft ||
            (rest.n == sizeof rot - 1 && memcmp(rest.s, rot, rest.n) == 0))
            continue;
        if (has_place(i < m->hp.n_layer ? &m->layers[i] : &m->draft.layer, layer_roles,
                      N_ROLES(layer_roles), t) ||
            (i == m->hp.n_layer && has_place(&m->draft, draft_roles, N_ROLES(draft_roles), t)))
            continue;
        return not_supported(l, t->name.s, t->name.n);
    }
    return 0;
}

static void set_lengths(struct loader *l)
{
    const struct hparams *hp = &l->m->hp;
    const bool gated = l->m->layers[0].q_gated;

    l->lengths[DIM_EMBD] = hp->n_embd;
    l->lengths[DIM_EMBD_TWICE] = 2 * (uint64_t)hp->n_embd;
    l->lengths[DIM_VOCAB] = hp->n_vocab;
    l->lengths[DIM_HEADS] = (uint64_t)hp->n_head * hp->head_dim;
    l->lengths[DIM_QUERY] = l->lengths[DIM_HEADS] * (gated ? 2 : 1);
    l->lengths[DIM_KV] = (uint64_t)hp->n_head_kv * hp->head_dim;
    l->lengths[DIM_HEAD] = hp->head_dim;
    l->lengths[DIM_HALF_ROT] = hp->n_rot / 2;
    l->lengths[DIM_FF] = hp->n_ff;
    l->lengths[DIM_EXPERTS] = hp->n_expert;
    l->lengths[DIM_FF_EXPERT] = hp->n_ff_expert;
    l->lengths[DIM_FF_EXPERT_TWICE] = 2 * (uint64_t)hp->n_ff_expert;
    l->lengths[DIM_FF_SHARED] = hp->n_ff_shared;
    l->lengths[DIM_DN_VALUE] = (uint64_t)hp->dn_v_heads * hp->dn_dim;
    l->lengths[DIM_DN_HEADS] = hp->dn_v_heads;
    l->lengths[DIM_DN_HEADS_TWICE] = 2 * (uint64_t)hp->dn_v_heads;
    l->lengths[DIM_DN_HEAD] = hp->dn_dim;
    l->lengths[DIM_DN_CONV] = hp->dn_conv_dim;
    l->lengths[DIM_DN_IN] = hp->dn_conv_dim + l->lengths[DIM_DN_VALUE];
    l->lengths[DIM_DN_TAPS] = hp->dn_conv;
}

/* Is there any tensor of the parts? */
static bool has_any(const struct loader *l, const char *prefix, unsigned int parts)
{
    char name[NAME_BYTES];

    for (size_t i = 0; i < N_ROLES(layer_roles); i++) {
        (void)snprintf(name, sizeof name, "%s%s", prefix, layer_roles[i].name);
        if ((layer_roles[i].part & parts) && gguf_find(l->m->gguf, name))
            return true;
    }
    return false;
}

static unsigned int ffn_parts(const struct loader *l, const char *prefix)
{
    if (l->m->hp.n_expert == 0)
        return PART_DENSE;
    return PART_MIXTURE | (has_any(l, prefix, PART_FUSED) ? PART_FUSED : PART_GATE_UP) |
           (l->m->hp.n_ff_shared ? PART_SHARED : 0u);
}

static int load_layer(const struct loader *l, const struct family *f, uint32_t i,
                      struct layer *layer)
{
    unsigned int required, optional = 0;
    char prefix[32];

    (void)snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".", i);
    required = PART_EACH | (f->hybrid ? PART_POST : PART_NORM) | ffn_parts(l, prefix);
    if (layer->kind == LAYER_ATTENTION) {
        required |=
            PART_ATTN | (f->qk_norm ? PART_QK_NORM : 0u) | (f->qkv_bias ? PART_QKV_BIAS : 0u);
        optional = PART_QKV_BIAS | PART_BIAS;
    } else {
        required |= PART_DN | (f->grouped ? PART_DN_BA : PART_DN_BETA);
        /* The first files of such models had one matrix. */
        required |= f->grouped && has_any(l, prefix, PART_DN_IN) ? PART_DN_IN : PART_DN_QKV;
    }
    return load(l, prefix, layer, layer_roles, N_ROLES(layer_roles), required, optional);
}

/* Files exist whose draft block has no feed-forward part; then it needs no norm before it either.
 */
static int load_draft(const struct loader *l, struct draft *draft)
{
    unsigned int required = PART_EACH | PART_ATTN | PART_QK_NORM,
                 optional = PART_QKV_BIAS | PART_BIAS;
    char prefix[32];
    int r;

    (void)snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".", l->m->hp.n_layer);
    if (has_any(l, prefix, PART_FFN))
        required |= ffn_parts(l, prefix) | PART_POST;
    else
        optional |= PART_POST;
    r = load(l, prefix, draft, draft_roles, N_ROLES(draft_roles), PART_EACH, PART_BIAS);
    if (r < 0)
        return r;
    return load(l, prefix, &draft->layer, layer_roles, N_ROLES(layer_roles), required, optional);
}

/* Divisors of angles: a zero would make them infinite.  A few hundred bytes, so looked at when
 * opening. */
static int check_rope_freqs(const struct loader *l)
{
    const struct tensor *t = l->m->rope_freqs;
    float v;

    for (uint64_t i = 0; t && i < t->dims[0]; i++) {
        memcpy(&v, (const char *)t->data + i * sizeof v, sizeof v);
        if (!isfinite(v) || !(v > 0))
            return gguf_fail(l->m->gguf, l->e, ERR_DAMAGED,
                             "tensor \"rope_freqs.weight\": element %" PRIu64
                             " is %g, expected a finite number above 0",
                             i, (double)v);
    }
    return 0;
}

int model_read_weights(struct model *m, const struct family *f, struct err_text *e)
{
    struct loader l = {.m = m, .e = e};
    int r;

    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        m->layers[i].q_gated = f->hybrid;
    m->draft.layer.q_gated = f->hybrid;
    set_lengths(&l);

    r = refuse_in_model(&l);
    if (r < 0)
        return r;
    r = load(&l, "", m, model_roles, N_ROLES(model_roles), PART_EACH, PART_BIAS);
    if (r < 0)
        return r;
    if (!m->output)
        m->output = m->token_embd;
    r = check_rope_freqs(&l);
    for (uint32_t i = 0; r >= 0 && i < m->hp.n_layer; i++)
        r = load_layer(&l, f, i, &m->layers[i]);
    if (r >= 0 && m->hp.has_draft)
        r = load_draft(&l, &m->draft);
    return r < 0 ? r : refuse_in_layers(&l);
}

static int each(const void *base, const struct role *roles, size_t n, model_tensor_fn fn, void *arg)
{
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t;
        int r;

        /* Two rows can share a pointer (the two names of ffn_norm): the first one counts. */
        if (i > 0 && roles[i].at == roles[i - 1].at)
            continue;
        memcpy(&t, (const char *)base + roles[i].at, sizeof t);
        r = t ? fn(t, arg) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int model_each_tensor(const struct model *m, model_tensor_fn fn, void *arg)
{
    struct model top = *m;
    int r;

    if (top.output == top.token_embd)
        top.output = NULL;
    r = each(&top, model_roles, N_ROLES(model_roles), fn, arg);
    for (uint32_t i = 0; r >= 0 && i < m->hp.n_layer; i++)
        r = each(&m->layers[i], layer_roles, N_ROLES(layer_roles), fn, arg);
    if (r < 0 || !m->hp.has_draft)
        return r;
    r = each(&m->draft, draft_roles, N_ROLES(draft_roles), fn, arg);
    return r < 0 ? r : each(&m->draft.layer, layer_roles, N_ROLES(layer_roles), fn, arg);
}
