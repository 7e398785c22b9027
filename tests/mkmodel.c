/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mkmodel.h"

#include "engine/cpu/kernels.h"
#include "engine/gguf.h"
#include "engine/quant.h"
#include "util/cleanup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q8_0_ELEMS = 32, Q8_0_BYTES = 34 };

struct maker {
    struct mkmodel o; /* defaults filled in */
    struct ggufw *w;
    uint64_t rng;
    bool hybrid, mixture, shared, grouped, qk_norm, qkv_bias;
    uint32_t n_matrices; /* so far */
};

/* splitmix64: any seed is a good one. */
static uint64_t next(struct maker *k)
{
    uint64_t z = k->rng += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [lo, hi). */
static float uniform(struct maker *k, float lo, float hi)
{
    return lo + (hi - lo) * (float)(next(k) >> 40) * 0x1p-24f;
}

static void put(struct buf *b, const void *p, size_t n)
{
    if (buf_add(b, p, n) < 0)
        abort();
}

/* The scale of a block that is otherwise filled in; `m` of formats that have one. */
static void set_scale(uint32_t type, uint8_t *block, float d, float m)
{
    const uint16_t h[2] = {float_to_half(d), float_to_half(m)};

    if (type == TENSOR_MXFP4)
        block[0] = (uint8_t)(128 + (int)rintf(log2f(d)));
    else
        memcpy(block + quant_scale_at(type), h, quant_has_min(type) ? 4 : 2);
}

/*
 * Any bytes, and such a scale that the values' mean is about 0 and their size that of x.  Nothing
 * is searched for: what the integers say is noise anyway.
 */
static void put_random_block(struct maker *k, struct buf *b, uint32_t type, const float *x)
{
    const uint32_t n = quant_stored_elems(type);
    uint8_t block[256];
    float v[256], u[256] = {0};
    float want = 0, vu = 0, uu = 0, vv = 0, m = 0, s;

    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (uint8_t)next(k);
    set_scale(type, block, 1, 0);
    quant_to_float(type, block, n, v);
    if (quant_has_min(type)) {
        set_scale(type, block, 0, 1);
        quant_to_float(type, block, n, u);
    }
    for (uint32_t i = 0; i < n; i++) {
        vu += v[i] * u[i];
        uu += u[i] * u[i];
        want += x[i] * x[i];
    }
    m = uu > 0 ? -vu / uu : 0;
    for (uint32_t i = 0; i < n; i++)
        vv += (v[i] + m * u[i]) * (v[i] + m * u[i]);
    s = vv > 0 ? sqrtf(want / vv) : 1;
    set_scale(type, block, s, s * m);
    put(b, block, quant_stored_bytes(type));
}

static void put_row(struct maker *k, struct buf *b, uint32_t type, const float *x, uint64_t n)
{
    if (quant_is(type) && type != TENSOR_Q8_0) {
        for (uint64_t at = 0; at < n; at += quant_stored_elems(type))
            put_random_block(k, b, type, x + at);
        return;
    }
    switch (type) {
    case TENSOR_F16:
    case TENSOR_BF16:
        for (uint64_t i = 0; i < n; i++) {
            uint16_t h = type == TENSOR_F16 ? float_to_half(x[i]) : float_to_bf16(x[i]);

            put(b, &h, sizeof h);
        }
        break;
    case TENSOR_Q8_0:
        for (uint64_t at = 0; at < n; at += Q8_0_ELEMS) {
            int8_t q[Q8_0_ELEMS];
            float max = 0, d;
            uint16_t h;

            for (int i = 0; i < Q8_0_ELEMS; i++)
                max = fmaxf(max, fabsf(x[at + (uint64_t)i]));
            h = float_to_half(max / 127);
            d = half_to_float(h);
            for (int i = 0; i < Q8_0_ELEMS; i++) {
                float v = d > 0 ? rintf(x[at + (uint64_t)i] / d) : 0;

                q[i] = (int8_t)fminf(127, fmaxf(-127, v));
            }
            put(b, &h, sizeof h);
            put(b, q, sizeof q);
        }
        break;
    default:
        put(b, x, n * sizeof *x);
        break;
    }
}

/* What the next matrix of rows of n is made of; `type` unless the model is a mix. */
static uint32_t matrix_type(struct maker *k, uint32_t type, uint64_t n)
{
    if (type == k->o.type && k->o.n_mix > 0)
        type = k->o.mix[k->n_matrices++ % k->o.n_mix];
    return quant_is(type) && n % quant_stored_elems(type) != 0 ? TENSOR_Q8_0 : type;
}

/* Random values in [lo, hi); dims 0 is "not there". */
static void add(struct maker *k, const char *name, uint32_t type, uint64_t d0, uint64_t d1,
                uint64_t d2, float lo, float hi)
{
    const uint64_t dims[3] = {d0, d1, d2};
    const uint64_t rows = (d1 ? d1 : 1) * (d2 ? d2 : 1);
    CLEANUP(free_p) float *row = malloc(d0 * sizeof *row);
    CLEANUP(buf_done) struct buf b = {0};

    if (!row)
        abort();
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t i = 0; i < d0; i++)
            row[i] = uniform(k, lo, hi);
        put_row(k, &b, type, row, d0);
    }
    (void)ggufw_tensor(k->w, name, type, 1 + (d1 > 0) + (d2 > 0), dims, b.data, b.len);
}

static const char *in_block(char out[64], uint32_t block, const char *name)
{
    (void)snprintf(out, 64, "blk.%u.%s", block, name);
    return out;
}

/* sqrt(3) times the wanted deviation is the half-width of a uniform distribution. */
static float half_width(uint32_t n_in)
{
    return 0.7f * 1.7320508f / sqrtf((float)n_in);
}

/* y = W x, [out][in] in `type`, times n for stacked experts. */
static void matrix(struct maker *k, uint32_t block, const char *name, uint32_t type, uint32_t in,
                   uint32_t out, uint32_t n)
{
    char full[64];
    float h = half_width(in);

    type = matrix_type(k, type, in);
    add(k, in_block(full, block, name), type, in, out, n, -h, h);
}

static void vector(struct maker *k, uint32_t block, const char *name, uint32_t n, float lo,
                   float hi)
{
    char full[64];

    add(k, in_block(full, block, name), TENSOR_F32, n, 0, 0, lo, hi);
}

static void norm(struct maker *k, uint32_t block, const char *name, uint32_t n)
{
    vector(k, block, name, n, 0.8f, 1.2f);
}

static void attention(struct maker *k, uint32_t i)
{
    const struct mkmodel *o = &k->o;
    uint32_t q = o->n_head * o->head_dim * (k->hybrid ? 2 : 1), kv = o->n_head_kv * o->head_dim;

    matrix(k, i, "attn_q.weight", o->type, o->n_embd, q, 0);
    matrix(k, i, "attn_k.weight", o->type, o->n_embd, kv, 0);
    matrix(k, i, "attn_v.weight", o->type, o->n_embd, kv, 0);
    matrix(k, i, "attn_output.weight", o->type, o->n_head * o->head_dim, o->n_embd, 0);
    if (o->bias || k->qkv_bias) {
        vector(k, i, "attn_q.bias", q, -0.1f, 0.1f);
        vector(k, i, "attn_k.bias", kv, -0.1f, 0.1f);
        vector(k, i, "attn_v.bias", kv, -0.1f, 0.1f);
    }
    if (o->bias)
        vector(k, i, "attn_output.bias", o->n_embd, -0.1f, 0.1f);
    if (k->qk_norm) {
        norm(k, i, "attn_q_norm.weight", o->head_dim);
        norm(k, i, "attn_k_norm.weight", o->head_dim);
    }
}

static void deltanet(struct maker *k, uint32_t i)
{
    const struct mkmodel *o = &k->o;
    uint32_t value = o->dn_v_heads * o->dn_dim, conv = 2 * o->dn_k_heads * o->dn_dim + value;

    if (o->dn_in) {
        matrix(k, i, "ssm_in.weight", o->type, o->n_embd, conv + value, 0);
    } else {
        matrix(k, i, "attn_qkv.weight", o->type, o->n_embd, conv, 0);
        matrix(k, i, "attn_gate.weight", o->type, o->n_embd, value, 0);
    }
    if (k->grouped) {
        matrix(k, i, "ssm_ba.weight", o->type, o->n_embd, 2 * o->dn_v_heads, 0);
    } else {
        matrix(k, i, "ssm_beta.weight", o->type, o->n_embd, o->dn_v_heads, 0);
        matrix(k, i, "ssm_alpha.weight", o->type, o->n_embd, o->dn_v_heads, 0);
    }
    matrix(k, i, "ssm_conv1d.weight", TENSOR_F32, o->dn_conv, conv, 0);
    vector(k, i, "ssm_dt.bias", o->dn_v_heads, -0.1f, 0.1f);
    vector(k, i, "ssm_a", o->dn_v_heads, -1.0f, -0.02f);
    norm(k, i, "ssm_norm.weight", o->dn_dim);
    matrix(k, i, "ssm_out.weight", o->type, value, o->n_embd, 0);
}

static void feed_forward(struct maker *k, uint32_t i)
{
    const struct mkmodel *o = &k->o;

    if (!k->mixture) {
        matrix(k, i, "ffn_gate.weight", o->type, o->n_embd, o->n_ff, 0);
        matrix(k, i, "ffn_up.weight", o->type, o->n_embd, o->n_ff, 0);
        matrix(k, i, "ffn_down.weight", o->type, o->n_ff, o->n_embd, 0);
        return;
    }
    matrix(k, i, "ffn_gate_inp.weight", TENSOR_F32, o->n_embd, o->n_expert, 0);
    if (o->fused) {
        matrix(k, i, "ffn_gate_up_exps.weight", o->type, o->n_embd, 2 * o->n_ff_expert,
               o->n_expert);
    } else {
        matrix(k, i, "ffn_gate_exps.weight", o->type, o->n_embd, o->n_ff_expert, o->n_expert);
        matrix(k, i, "ffn_up_exps.weight", o->type, o->n_embd, o->n_ff_expert, o->n_expert);
    }
    matrix(k, i, "ffn_down_exps.weight", o->type, o->n_ff_expert, o->n_embd, o->n_expert);
    if (!k->shared)
        return;
    vector(k, i, "ffn_gate_inp_shexp.weight", o->n_embd, -0.1f, 0.1f);
    matrix(k, i, "ffn_gate_shexp.weight", o->type, o->n_embd, o->n_ff_shared, 0);
    matrix(k, i, "ffn_up_shexp.weight", o->type, o->n_embd, o->n_ff_shared, 0);
    matrix(k, i, "ffn_down_shexp.weight", o->type, o->n_ff_shared, o->n_embd, 0);
}

static const char *ffn_norm_name(const struct maker *k)
{
    return k->hybrid ? "post_attention_norm.weight" : "ffn_norm.weight";
}

static void tensors(struct maker *k)
{
    const struct mkmodel *o = &k->o;
    float logits = 3 * 1.7320508f / sqrtf((float)o->n_embd);

    add(k, "token_embd.weight", matrix_type(k, o->type, o->n_embd), o->n_embd, o->n_vocab, 0,
        -logits, logits);
    if (o->untied)
        add(k, "output.weight", matrix_type(k, o->type, o->n_embd), o->n_embd, o->n_vocab, 0,
            -logits, logits);
    add(k, "output_norm.weight", TENSOR_F32, o->n_embd, 0, 0, 0.8f, 1.2f);
    if (o->rope_freqs)
        add(k, "rope_freqs.weight", TENSOR_F32, o->n_rot / 2, 0, 0, 1, 4);
    for (uint32_t i = 0; i < o->n_layer; i++) {
        norm(k, i, "attn_norm.weight", o->n_embd);
        if (k->hybrid && (i + 1) % o->interval != 0)
            deltanet(k, i);
        else
            attention(k, i);
        norm(k, i, ffn_norm_name(k), o->n_embd);
        feed_forward(k, i);
    }
    if (!o->draft)
        return;
    norm(k, o->n_layer, "nextn.enorm.weight", o->n_embd);
    norm(k, o->n_layer, "nextn.hnorm.weight", o->n_embd);
    matrix(k, o->n_layer, "nextn.eh_proj.weight", o->type, 2 * o->n_embd, o->n_embd, 0);
    norm(k, o->n_layer, "nextn.shared_head_norm.weight", o->n_embd);
    norm(k, o->n_layer, "attn_norm.weight", o->n_embd);
    attention(k, o->n_layer);
    if (o->draft_without_ffn)
        return;
    norm(k, o->n_layer, ffn_norm_name(k), o->n_embd);
    feed_forward(k, o->n_layer);
}

/* The byte alphabet of GPT-2 as UTF-8. */
static void byte_token(unsigned int c, unsigned int *other, char out[8])
{
    bool same = (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
    unsigned int cp = same ? c : 0x100 + (*other)++;

    if (cp < 0x80)
        (void)snprintf(out, 8, "%c", (char)cp);
    else
        (void)snprintf(out, 8, "%c%c", (char)(0xc0 | cp >> 6), (char)(0x80 | (cp & 0x3f)));
}

static void tokenizer(struct maker *k)
{
    /* U+0120 is the space. */
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    static const char *const merges[] = {"\u0120 t", "h e", "\u0120t he", "i n",
                                         "e r",      "a n", "\u0120 a"};
    static const char *const merged[] = {"\u0120t", "he", "\u0120the", "in", "er", "an", "\u0120a"};
    struct ggufw *w = k->w;
    uint32_t n = k->o.n_vocab, at = 0;
    CLEANUP(free_p) char(*text)[24] = calloc(n, sizeof *text);
    CLEANUP(free_p) const char **tokens = calloc(n, sizeof *tokens);
    CLEANUP(free_p) int32_t *kinds = calloc(n, sizeof *kinds);
    unsigned int other = 0;

    if (!text || !tokens || !kinds)
        abort();
    for (; at < 256; at++)
        byte_token(at, &other, text[at]);
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        (void)snprintf(text[at++], sizeof *text, "%s", special[i]);
    for (size_t i = 0; i < sizeof merged / sizeof *merged; i++)
        (void)snprintf(text[at++], sizeof *text, "%s", merged[i]);
    for (; at < n; at++)
        (void)snprintf(text[at], sizeof *text, "\u0120x%x", at);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = text[i];
        kinds[i] = i >= MKMODEL_IM_START && i <= MKMODEL_ENDOFTEXT ? 3 : 1;
    }

    ggufw_str(w, "tokenizer.ggml.model", "gpt2");
    ggufw_str(w, "tokenizer.ggml.pre", k->hybrid ? "qwen35" : "qwen2");
    ggufw_strs(w, "tokenizer.ggml.tokens", tokens, n);
    ggufw_array(w, "tokenizer.ggml.token_type", GGUFW_I32, n, kinds, n * sizeof *kinds);
    ggufw_strs(w, "tokenizer.ggml.merges", merges, sizeof merges / sizeof *merges);
    ggufw_u32(w, "tokenizer.ggml.eos_token_id", MKMODEL_IM_END);
    ggufw_u32(w, "tokenizer.ggml.bos_token_id", MKMODEL_ENDOFTEXT);
    ggufw_bool(w, "tokenizer.ggml.add_bos_token", false);
    ggufw_str(w, "tokenizer.chat_template",
              "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + "
              "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|im_start|>assistant\n' }}{% endif %}");
}

static void key(struct maker *k, const char *suffix, uint32_t v)
{
    char full[96];

    (void)snprintf(full, sizeof full, "%s.%s", k->o.family, suffix);
    ggufw_u32(k->w, full, v);
}

static void key_f32(struct maker *k, const char *suffix, float v)
{
    char full[96];

    (void)snprintf(full, sizeof full, "%s.%s", k->o.family, suffix);
    ggufw_f32(k->w, full, v);
}

static void keys(struct maker *k)
{
    const struct mkmodel *o = &k->o;
    char full[96];

    ggufw_str(k->w, "general.architecture", o->family);
    ggufw_str(k->w, "general.name", "made for a test");
    ggufw_str(k->w, "general.type", "model");
    ggufw_u32(k->w, "general.quantization_version", 2);
    key(k, "block_count", o->n_layer + o->draft);
    key(k, "context_length", o->n_context);
    key(k, "embedding_length", o->n_embd);
    key(k, "attention.head_count", o->n_head);
    key(k, "attention.head_count_kv", o->n_head_kv);
    key(k, "attention.key_length", o->head_dim);
    key(k, "attention.value_length", o->head_dim);
    key_f32(k, "attention.layer_norm_rms_epsilon", 1e-6f);
    key_f32(k, "rope.freq_base", o->rope_base);
    key(k, "rope.dimension_count", o->n_rot);
    if (k->mixture) {
        key(k, "expert_count", o->n_expert);
        key(k, "expert_used_count", o->n_expert_used);
        key(k, "expert_feed_forward_length", o->n_ff_expert);
        if (k->hybrid)
            key(k, "expert_shared_feed_forward_length", k->shared ? o->n_ff_shared : 0);
    } else {
        key(k, "feed_forward_length", o->n_ff);
    }
    if (!k->hybrid)
        return;
    if (!k->grouped) {
        /* Pairs in turn to the three text streams, none to the fourth. */
        uint32_t pairs = o->n_rot / 2;
        const int32_t sections[4] = {(int32_t)(pairs + 2) / 3, (int32_t)(pairs + 1) / 3,
                                     (int32_t)pairs / 3, 0};

        (void)snprintf(full, sizeof full, "%s.rope.dimension_sections", o->family);
        ggufw_array(k->w, full, GGUFW_I32, 4, sections, sizeof sections);
    }
    key(k, "full_attention_interval", o->interval);
    key(k, "ssm.conv_kernel", o->dn_conv);
    key(k, "ssm.state_size", o->dn_dim);
    key(k, "ssm.group_count", o->dn_k_heads);
    key(k, "ssm.time_step_rank", o->dn_v_heads);
    key(k, "ssm.inner_size", o->dn_v_heads * o->dn_dim);
    if (o->draft)
        key(k, "nextn_predict_layers", 1);
}

static uint32_t or_default(uint32_t v, uint32_t dflt)
{
    return v ? v : dflt;
}

static bool is(const struct maker *k, const char *family)
{
    return strcmp(k->o.family, family) == 0;
}

void mkmodel_build(const struct mkmodel *options, struct ggufw *w)
{
    struct maker k = {.o = *options, .w = w, .rng = options->seed};
    struct mkmodel *o = &k.o;

    if (!o->family)
        o->family = "llama";
    if (o->n_mix > 0)
        o->type = o->mix[0]; /* so that what is always F32 is told apart */
    k.grouped = is(&k, "qwen3next");
    k.hybrid = k.grouped || is(&k, "qwen35") || is(&k, "qwen35moe");
    k.mixture = k.grouped || is(&k, "qwen3moe") || is(&k, "qwen35moe");
    k.shared = k.mixture && k.hybrid && !o->no_shared;
    k.qkv_bias = is(&k, "qwen2");
    k.qk_norm = !k.qkv_bias && !is(&k, "llama");
    o->n_layer = or_default(o->n_layer, k.hybrid ? 4 : 2);
    o->n_embd = or_default(o->n_embd, 64);
    o->n_head = or_default(o->n_head, 4);
    o->n_head_kv = or_default(o->n_head_kv, 2);
    o->head_dim = or_default(o->head_dim, 16);
    o->n_rot = or_default(o->n_rot, k.hybrid ? o->head_dim / 2 : o->head_dim);
    o->n_ff = or_default(o->n_ff, 96);
    o->n_vocab = or_default(o->n_vocab, 320);
    o->n_context = or_default(o->n_context, 2048);
    o->rope_base = o->rope_base > 0 ? o->rope_base : 10000;
    o->interval = or_default(o->interval, 4);
    o->dn_k_heads = or_default(o->dn_k_heads, 2);
    o->dn_v_heads = or_default(o->dn_v_heads, 4);
    o->dn_dim = or_default(o->dn_dim, 16);
    o->dn_conv = or_default(o->dn_conv, 4);
    o->n_expert = or_default(o->n_expert, 4);
    o->n_expert_used = or_default(o->n_expert_used, 2);
    o->n_ff_expert = or_default(o->n_ff_expert, 32);
    o->n_ff_shared = or_default(o->n_ff_shared, 32);
    if (o->n_vocab < MKMODEL_MIN_VOCAB)
        abort();
    keys(&k);
    tokenizer(&k);
    tensors(&k);
}

void mkmodel_bytes(const struct mkmodel *o, struct buf *out)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};

    mkmodel_build(o, &w);
    ggufw_bytes(&w, out);
}

int mkmodel_write(const struct mkmodel *o, const char *path)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};

    mkmodel_build(o, &w);
    return ggufw_write(&w, path);
}
