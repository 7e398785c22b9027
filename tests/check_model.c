/* SPDX-License-Identifier: Apache-2.0 */
/* Models of every family opened, scanned, damaged at random, and without memory. */
#include "engine/model.h"

#include "tests/hostile.h"
#include "tests/mkmodel.h"
#include "tests/wrap_alloc.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t weight_types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0};

START_TEST(pure_attention_families_open_with_every_weight_type)
{
    static const char *const families[] = {"llama", "qwen3", "qwen2", "qwen3moe"};
    const bool mixture = _i >= 12;
    const struct mkmodel o = {
        .family = families[_i / 4],
        .type = weight_types[_i % 4],
        .untied = _i % 2,
        .bias = _i % 3 == 0,
        .rope_freqs = _i % 4 == 1,
        .seed = (uint32_t)_i,
    };
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(model_freep) struct model *m = NULL;

    mkmodel_build(&o, &w);
    m = hostile_accepted_model(&w, &b);
    ck_assert_str_eq(m->hp.arch, o.family);
    ck_assert_uint_eq(m->hp.n_layer, 2);
    ck_assert_uint_eq(m->n_attn, 2);
    ck_assert_uint_eq(m->n_dn, 0);
    ck_assert_uint_eq(m->hp.n_vocab, 320);
    ck_assert_uint_eq(m->hp.n_head, 4);
    ck_assert_uint_eq(m->hp.n_head_kv, 2);
    ck_assert_uint_eq(m->hp.head_dim, 16);
    ck_assert_uint_eq(m->hp.n_rot, 16);
    ck_assert_uint_eq(m->hp.n_ff, mixture ? 0 : 96);
    ck_assert_uint_eq(m->hp.n_expert, mixture ? 4 : 0);
    ck_assert_uint_eq(m->hp.n_ff_shared, 0);
    ck_assert(m->hp.attn_scale == 0.25f);
    ck_assert(m->hp.rope == (_i < 4 ? ROPE_NORM : ROPE_NEOX));
    ck_assert(m->hp.rope_freq_scale == 1 && m->hp.rope_base == 10000);
    ck_assert_int_eq(m->output == m->token_embd, !o.untied);
    ck_assert_int_eq(m->rope_freqs != NULL, o.rope_freqs);
    for (uint32_t i = 0; i < 2; i++) {
        const struct layer *l = &m->layers[i];

        ck_assert(l->kind == LAYER_ATTENTION && l->i_attn == i && !l->q_gated);
        ck_assert(l->attn_norm && l->wq && l->wk && l->wv && l->wo && l->ffn_norm);
        ck_assert_int_eq(l->ffn_gate && l->ffn_up && l->ffn_down, !mixture);
        ck_assert_int_eq(l->router && l->gate_exps && l->up_exps && l->down_exps, mixture);
        ck_assert(!l->dn_qkv && !l->shared_router && !l->gate_shared);
        ck_assert_int_eq(l->q_norm && l->k_norm, _i / 4 == 1 || mixture);
        ck_assert_int_eq(l->bq && l->bk && l->bv, o.bias || _i / 4 == 2);
        ck_assert_int_eq(l->bo != NULL, o.bias);
        ck_assert_uint_eq(l->wq->type, o.type);
    }
    ck_assert_int_eq(model_scan(m, NULL), 0);
}
END_TEST

START_TEST(hybrid_families_open_with_and_without_draft_block)
{
    const bool grouped = _i >= 8;
    const struct mkmodel o = {
        .family = grouped  ? "qwen3next"
                  : _i < 4 ? "qwen35"
                           : "qwen35moe",
        .type = weight_types[_i % 4],
        .draft = _i % 2 == 0,
        .draft_without_ffn = _i % 4 == 0,
        .no_shared = _i == 5,
        .dn_in = _i == 9,
        .fused = _i == 7 || _i == 9,
        .n_layer = 6,
        .interval = 3,
    };
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(model_freep) struct model *m = NULL;

    mkmodel_build(&o, &w);
    m = hostile_accepted_model(&w, &b);
    ck_assert_uint_eq(m->hp.n_layer, 6);
    ck_assert_uint_eq(m->n_attn, 2);
    ck_assert_uint_eq(m->n_dn, 4);
    ck_assert_uint_eq(m->hp.n_rot, 8);
    ck_assert_uint_eq(m->hp.dn_k_heads, 2);
    ck_assert_uint_eq(m->hp.dn_v_heads, 4);
    ck_assert_uint_eq(m->hp.dn_dim, 16);
    ck_assert_uint_eq(m->hp.dn_conv, 4);
    ck_assert_uint_eq(m->hp.dn_conv_dim, 128);
    ck_assert_int_eq(m->hp.dn_grouped, grouped);
    ck_assert_uint_eq(m->hp.n_ff, _i < 4 ? 96 : 0);
    ck_assert_uint_eq(m->hp.n_expert, _i < 4 ? 0 : 4);
    ck_assert_uint_eq(m->hp.n_ff_shared, _i < 4 || o.no_shared ? 0 : 32);
    for (uint32_t i = 0; i < 6; i++) {
        const struct layer *l = &m->layers[i];

        ck_assert(l->kind == (i % 3 == 2 ? LAYER_ATTENTION : LAYER_DELTANET));
        if (l->kind == LAYER_ATTENTION)
            ck_assert(l->i_attn == i / 3 && l->q_gated && l->wq && l->q_norm && !l->dn_out);
        else
            ck_assert(l->i_dn == i - i / 3 && !l->wq && l->dn_conv && l->dn_dt && l->dn_a &&
                      l->dn_norm && l->dn_out);
        ck_assert_int_eq(l->dn_qkv && l->dn_gate, l->dn_out && !o.dn_in);
        ck_assert_int_eq(l->dn_in != NULL, l->dn_out && o.dn_in);
        ck_assert_int_eq(l->dn_beta && l->dn_alpha, l->dn_out && !grouped);
        ck_assert_int_eq(l->dn_ba != NULL, l->dn_out && grouped);
        ck_assert(l->attn_norm && l->ffn_norm);
        ck_assert_int_eq(l->ffn_gate && l->ffn_up && l->ffn_down, _i < 4);
        ck_assert_int_eq(l->router && l->down_exps, _i >= 4);
        ck_assert_int_eq(l->gate_exps && l->up_exps, _i >= 4 && !o.fused);
        ck_assert_int_eq(l->gate_up_exps != NULL, o.fused);
        ck_assert_int_eq(l->shared_router && l->gate_shared && l->up_shared && l->down_shared,
                         _i >= 4 && !o.no_shared);
    }
    ck_assert_int_eq(m->hp.has_draft, o.draft);
    if (o.draft) {
        const struct layer *l = &m->draft.layer;

        ck_assert(m->draft.embed_norm && m->draft.hidden_norm && m->draft.proj);
        ck_assert(m->draft.head_norm && l->kind == LAYER_ATTENTION && l->i_attn == 2);
        ck_assert(l->q_gated && l->attn_norm && l->wq && l->wk && l->wv && l->wo && l->q_norm);
        ck_assert_int_eq(l->ffn_norm && (l->ffn_gate || l->router), !o.draft_without_ffn);
    }
    ck_assert_int_eq(model_scan(m, NULL), 0);
}
END_TEST

START_TEST(per_layer_arrays_may_differ_where_nobody_looks)
{
    const struct mkmodel o = {.family = "qwen35", .draft = true};
    /* Attention is layer 3 alone, and the draft block, which is the fifth. */
    uint32_t kv[5] = {0, 0, 0, 2, 2};
    const uint8_t recurrent[5] = {1, 1, 1, 0, 0};
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0}, b2 = {0}, b3 = {0}, b4 = {0};
    CLEANUP(model_freep) struct model *m = NULL, *m2 = NULL, *m3 = NULL;
    struct err_text e;

    mkmodel_build(&o, &w);
    ggufw_array(&w, "qwen35.attention.head_count_kv", GGUFW_U32, 5, kv, sizeof kv);
    ggufw_array(&w, "qwen35.attention.recurrent_layers", GGUFW_BOOL, 5, recurrent, 5);
    m = hostile_accepted_model(&w, &b);
    ck_assert_uint_eq(m->hp.n_head_kv, 2);
    ck_assert_uint_eq(m->n_attn, 1);
    ggufw_array(&w, "qwen35.attention.head_count_kv", GGUFW_U32, 4, kv, 4 * sizeof *kv);
    m2 = hostile_accepted_model(&w, &b2);
    kv[4] = 4;
    ggufw_array(&w, "qwen35.attention.head_count_kv", GGUFW_U32, 5, kv, sizeof kv);
    ck_assert_int_eq(hostile_open_model(&w, &b3, &m3, &e), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(e.s, "entry 4 is 4 where others are 2; layers of different widths"));
    kv[3] = 0;
    ggufw_array(&w, "qwen35.attention.head_count_kv", GGUFW_U32, 5, kv, sizeof kv);
    ck_assert_int_eq(hostile_open_model(&w, &b4, &m3, &e), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(e.s, "entry 3 is 0, expected 1 to 1024"));
}
END_TEST

START_TEST(numbers_that_files_may_leave_out_or_scale_are_right)
{
    const struct mkmodel o = {.family = "qwen35moe"};
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(model_freep) struct model *m = NULL;

    mkmodel_build(&o, &w);
    ggufw_f32(&w, "qwen35moe.rope.scale_linear", 4);
    ggufw_f32(&w, "qwen35moe.expert_weights_scale", 2.5f);
    ggufw_f32(&w, "qwen35moe.attention.scale", 0.5f);
    ggufw_drop(&w, "qwen35moe.rope.freq_base");
    ggufw_drop(&w, "qwen35moe.attention.key_length");
    ggufw_drop(&w, "qwen35moe.expert_feed_forward_length");
    ggufw_u32(&w, "qwen35moe.feed_forward_length", 64); /* of two experts */
    m = hostile_accepted_model(&w, &b);
    ck_assert(m->hp.rope_freq_scale == 0.25f);
    ck_assert(m->hp.expert_scale == 2.5f);
    ck_assert(m->hp.attn_scale == 0.5f);
    ck_assert(m->hp.rope_base == 10000);
    ck_assert_uint_eq(m->hp.head_dim, 16);
    ck_assert_uint_eq(m->hp.n_ff_expert, 32);
}
END_TEST

START_TEST(a_draft_block_that_is_not_whole_is_refused)
{
    static const struct {
        const char *drop, *add, *words;
        int code;
    } cases[] = {
        {"blk.4.nextn.eh_proj.weight", NULL, "\"blk.4.nextn.eh_proj.weight\" is missing",
         ERR_DAMAGED},
        {"blk.4.nextn.enorm.weight", NULL, "\"blk.4.nextn.enorm.weight\" is missing", ERR_DAMAGED},
        {"blk.4.attn_k.weight", NULL, "\"blk.4.attn_k.weight\" is missing", ERR_DAMAGED},
        {"blk.4.ffn_up.weight", NULL, "\"blk.4.ffn_up.weight\" is missing", ERR_DAMAGED},
        {"blk.4.post_attention_norm.weight", NULL, "is missing", ERR_DAMAGED},
        {"blk.4.nextn.shared_head_norm.weight", NULL, NULL, 0},
        {"", "blk.4.nextn.embed_tokens.weight",
         "\"blk.4.nextn.embed_tokens.weight\" is not supported", ERR_UNSUPPORTED},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mkmodel o = {.family = "qwen35", .draft = true};
        const uint64_t one = 1;
        CLEANUP(ggufw_done) struct ggufw w = {0};
        CLEANUP(buf_done) struct buf b = {0};
        CLEANUP(model_freep) struct model *m = NULL;
        struct err_text e = {{0}};
        int r;

        mkmodel_build(&o, &w);
        ggufw_drop_tensor(&w, cases[i].drop);
        if (cases[i].add)
            (void)ggufw_tensor(&w, cases[i].add, TENSOR_F32, 1, &one, NULL, 4);
        r = hostile_open_model(&w, &b, &m, &e);
        ck_assert_int_eq(r, cases[i].code);
        ck_assert_msg(r == 0 || strstr(e.s, cases[i].words), "%s: %s", cases[i].words, e.s);
        ck_assert(r < 0 || !m->draft.head_norm);
    }
}
END_TEST

START_TEST(rotation_divisors_must_be_finite_and_above_zero)
{
    static const float bad[] = {0, -1, NAN, INFINITY};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct mkmodel o = {.rope_freqs = true};
        CLEANUP(ggufw_done) struct ggufw w = {0};
        CLEANUP(buf_done) struct buf b = {0};
        struct model *m = NULL;
        struct err_text e;

        mkmodel_build(&o, &w);
        memcpy(ggufw_find(&w, "rope_freqs.weight")->data.data + 12, &bad[i], 4);
        ck_assert_int_eq(hostile_open_model(&w, &b, &m, &e), ERR_DAMAGED);
        ck_assert_ptr_nonnull(strstr(e.s, "\"rope_freqs.weight\": element 3 is "));
    }
}
END_TEST

START_TEST(a_scan_names_the_tensor_and_the_element_that_is_not_finite)
{
    static const struct {
        uint32_t type;
        uint32_t bits;
        size_t at, n;
        uint64_t element;
    } cases[] = {
        {TENSOR_F32, 0x7fc00000, 4 * 70, 4, 70},  {TENSOR_F32, 0xff800000, 0, 4, 0},
        {TENSOR_F16, 0x7c00, 2 * 4095, 2, 4095},  {TENSOR_F16, 0xfe01, 2 * 9, 2, 9},
        {TENSOR_BF16, 0x7f80, 2 * 64, 2, 64},     {TENSOR_BF16, 0xffc1, 2 * 1000, 2, 1000},
        {TENSOR_Q8_0, 0x7e00, 34 * 127, 2, 4064}, {TENSOR_Q8_0, 0xfc00, 0, 2, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mkmodel o = {.family = "llama", .type = cases[i].type};
        CLEANUP(ggufw_done) struct ggufw w = {0};
        CLEANUP(buf_done) struct buf b = {0};
        CLEANUP(model_freep) struct model *m = NULL;
        struct err_text e = {{0}};
        char words[64];

        mkmodel_build(&o, &w);
        memcpy(ggufw_find(&w, "blk.1.attn_q.weight")->data.data + cases[i].at, &cases[i].bits,
               cases[i].n);
        m = hostile_accepted_model(&w, &b);
        ck_assert_int_eq(model_scan(m, &e), ERR_DAMAGED);
        (void)snprintf(words, sizeof words, "\"blk.1.attn_q.weight\": element %u ",
                       (unsigned int)cases[i].element);
        ck_assert_msg(strstr(e.s, words) && strstr(e.s, "not finite"), "%s: %s", words, e.s);
    }
}
END_TEST

START_TEST(a_scan_refuses_a_decay_that_grows)
{
    const struct mkmodel o = {.family = "qwen35"};
    const float positive = 0.5f;
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(model_freep) struct model *m = NULL;
    struct err_text e;

    mkmodel_build(&o, &w);
    memcpy(ggufw_find(&w, "blk.2.ssm_a")->data.data + 8, &positive, 4);
    m = hostile_accepted_model(&w, &b);
    ck_assert_int_eq(model_scan(m, &e), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(e.s, "tensor \"blk.2.ssm_a\": element 2 is positive"));
}
END_TEST

START_TEST(running_out_of_memory_is_an_ordinary_error)
{
    const struct mkmodel o = {.family = "qwen35moe", .draft = true};
    CLEANUP(buf_done) struct buf b = {0};
    struct model *m = NULL;
    int r = -1, n = 0;

    mkmodel_bytes(&o, &b);
    for (; r < 0; n++) {
        struct gguf *g = NULL;
        struct err_text e = {{0}};

        wrap_alloc_fail_after(n);
        r = gguf_open_bytes(b.data, b.len, "file", &g, &e);
        if (r == 0)
            r = model_from_gguf(g, &m, &e);
        wrap_alloc_fail_after(-1);
        if (r < 0) {
            ck_assert_int_eq(r, -ENOMEM);
            ck_assert_ptr_nonnull(strstr(e.s, "out of memory"));
            ck_assert_ptr_null(m);
            gguf_free(g);
        }
        ck_assert_int_lt(n, 100);
    }
    ck_assert_int_gt(n, 6);
    model_free(m);
}
END_TEST

/* Everything the model points to is inside the file: touch it all. */
static void use(const struct model *m)
{
    uint64_t n = m->hp.n_layer;

    (void)model_scan(m, NULL);
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_eq(m->n_attn + m->n_dn, n);
}

START_TEST(changed_bytes_are_refused_with_a_reason_or_give_a_sound_model)
{
    static const char *const families[] = {"llama",  "qwen2",     "qwen3",    "qwen3moe",
                                           "qwen35", "qwen35moe", "qwen3next"};
    const struct mkmodel o = {
        .family = families[_i % 7], .n_embd = 32, .n_vocab = 270, .draft = _i % 8 > 4, .seed = 1};
    CLEANUP(buf_done) struct buf b = {0};
    unsigned int seed = (unsigned int)_i;
    size_t descriptions;

    mkmodel_bytes(&o, &b);
    descriptions = (size_t)((const char *)memmem(b.data, b.len, "output_norm.weight", 18) - b.data);
    for (int round = 0; round < 300; round++) {
        struct gguf *g = NULL;
        struct model *m = NULL;
        struct err_text e = {{0}};
        char old[6];
        size_t at[6], n = 1 + (size_t)rand_r(&seed) % 6, before;
        int r;

        for (size_t k = 0; k < n; k++) {
            /* Half of the changes among the tensors, which the tokens would dwarf. */
            at[k] = (size_t)rand_r(&seed) % 1500 + (rand_r(&seed) % 2 ? 24 : descriptions);
            old[k] = b.data[at[k]];
            b.data[at[k]] = rand_r(&seed) % 2 ? (char)rand_r(&seed) : (char)(old[k] ^ 1);
        }
        before = wrap_alloc_total();
        r = gguf_open_bytes(b.data, b.len, "file", &g, &e);
        if (r == 0)
            r = model_from_gguf(g, &m, &e);
        /* A file may claim 1024 layers of some 300 bytes before a tensor is missed. */
        ck_assert_uint_le(wrap_alloc_total() - before, 2 * b.len + (512 << 10));
        if (r < 0) {
            ck_assert_msg(strlen(e.s) > 10, "no reason: %s", e.s);
            gguf_free(g);
        } else {
            use(m);
            model_free(m);
        }
        while (n-- > 0)
            b.data[at[n]] = old[n];
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model");
    TCase *t = tcase_create("model");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, pure_attention_families_open_with_every_weight_type, 0, 16);
    tcase_add_loop_test(t, hybrid_families_open_with_and_without_draft_block, 0, 12);
    tcase_add_test(t, per_layer_arrays_may_differ_where_nobody_looks);
    tcase_add_test(t, numbers_that_files_may_leave_out_or_scale_are_right);
    tcase_add_test(t, a_draft_block_that_is_not_whole_is_refused);
    tcase_add_test(t, rotation_divisors_must_be_finite_and_above_zero);
    tcase_add_test(t, a_scan_names_the_tensor_and_the_element_that_is_not_finite);
    tcase_add_test(t, a_scan_refuses_a_decay_that_grows);
    tcase_add_test(t, running_out_of_memory_is_an_ordinary_error);
    tcase_add_loop_test(t, changed_bytes_are_refused_with_a_reason_or_give_a_sound_model, 0, 16);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
