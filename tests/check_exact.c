/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exactness gate (docs/architecture.md, law 1): what a sequence is after n tokens depends on
 * the tokens alone.
 *
 * Each test varies one thing and compares pages, checkpoint and logits with memcmp: the length and
 * the cuts on the fastest kernels, the other kernels against them on a dozen lengths.  The models:
 * needle (hybrid, mixture, draft block) in F16 and quantised in memory by tests/mkmodel's twin
 * shapes, and small random models of the other families.
 */
#include "tests/exact.h"
#include "tests/mkmodel.h"

#include "engine/cpu/kernels.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 140, SPLIT_N = 1100 };

static const struct {
    const char *name;
    struct mkmodel make; /* family NULL: the needle file */
} models[] = {
    {"needle F16", {.family = NULL}},
    {"qwen3 F16",
     {.family = "qwen3",
      .type = TENSOR_F16,
      .n_layer = 3,
      .n_embd = 96,
      .n_head = 6,
      .n_head_kv = 2,
      .head_dim = 32,
      .seed = 3}},
    {"qwen3moe Q8_0",
     {.family = "qwen3moe",
      .type = TENSOR_Q8_0,
      .n_layer = 2,
      .n_embd = 96,
      .n_head = 6,
      .n_head_kv = 2,
      .head_dim = 32,
      .seed = 4}},
    {"llama BF16, odd widths",
     {.family = "llama",
      .type = TENSOR_BF16,
      .n_embd = 72,
      .n_head = 3,
      .n_head_kv = 1,
      .head_dim = 24,
      .n_ff = 100,
      .bias = true,
      .rope_freqs = true,
      .seed = 5}},
    {"qwen35moe Q8_0",
     {.family = "qwen35moe",
      .type = TENSOR_Q8_0,
      .draft = true,
      .dn_dim = 32,
      .head_dim = 32,
      .n_expert = 6,
      .n_expert_used = 3,
      .seed = 6}},
    {"qwen35 F32",
     {.family = "qwen35",
      .type = 0,
      .draft = true,
      .draft_without_ffn = true,
      .dn_k_heads = 1,
      .dn_v_heads = 3,
      .seed = 7}},
    {"qwen3next F16, matrices joined",
     {.family = "qwen3next",
      .type = TENSOR_F16,
      .dn_in = true,
      .fused = true,
      .dn_k_heads = 2,
      .dn_v_heads = 6,
      .draft = true,
      .seed = 11}},
    {"qwen2, four and five bits",
     {.family = "qwen2",
      .mix = {TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q4_0, TENSOR_Q5_1},
      .n_mix = 4,
      .n_embd = 96,
      .n_head = 3,
      .n_head_kv = 1,
      .head_dim = 32,
      .seed = 8}},
    {"qwen3, K formats",
     {.family = "qwen3",
      .mix = {TENSOR_Q6_K, TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q3_K, TENSOR_Q2_K},
      .n_mix = 5,
      .n_layer = 1,
      .n_embd = 256,
      .head_dim = 64,
      .n_ff = 256,
      .seed = 9}},
    {"qwen3, code books",
     {.family = "qwen3",
      .mix = {TENSOR_IQ4_NL, TENSOR_IQ4_XS, TENSOR_IQ3_S, TENSOR_IQ3_XXS, TENSOR_IQ2_XS,
              TENSOR_MXFP4},
      .n_mix = 6,
      .n_layer = 1,
      .n_embd = 256,
      .head_dim = 64,
      .n_ff = 256,
      .seed = 10}},
};
enum {
    N_MODELS = sizeof models / sizeof models[0],
    N_MIXES = 3, /* at the end: files of several block formats */
};

static bool short_run; /* sanitizer builds: the same cases, fewer of them */

static void open_model(struct runner *r, int i, const struct runner_options *o)
{
    runner_open_made(r, &models[i].make, o);
}

/* 130 and more consecutive lengths: whole, against cut at a place that moves with the length,
 * against byte-wise generation. */
START_TEST(every_length_reads_the_same_in_two_pieces)
{
    struct runner r;
    int32_t *ids;

    open_model(&r, _i, NULL);
    ids = exact_ids(&r, MAX_N, 0, 11);
    for (uint32_t n = 2; n <= MAX_N; n += short_run ? 7 : 1) {
        struct outcome whole, cut;
        const uint32_t at = 1 + n * 7919u % (n - 1);

        outcome_of(&r, &(struct feed){.ids = ids, .n = n}, &whole);
        outcome_of(&r, &(struct feed){.ids = ids, .n = n, .cuts = &at, .n_cuts = 1}, &cut);
        outcome_expect(&r, &whole, &cut, models[_i].name, n, at);
        outcome_done(&whole);
        outcome_done(&cut);
    }
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(every_cut_of_some_lengths_reads_the_same)
{
    static const uint32_t lengths[] = {66, 130};
    struct runner r;
    int32_t *ids;

    open_model(&r, _i, NULL);
    ids = exact_ids(&r, MAX_N, 0, 12);
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        const uint32_t n = lengths[k];
        struct outcome whole, cut;

        outcome_of(&r, &(struct feed){.ids = ids, .n = n}, &whole);
        for (uint32_t at = 1; at < n; at += short_run ? 13 : 1) {
            outcome_of(&r, &(struct feed){.ids = ids, .n = n, .cuts = &at, .n_cuts = 1}, &cut);
            outcome_expect(&r, &whole, &cut, models[_i].name, n, at);
            outcome_done(&cut);
        }
        outcome_done(&whole);
    }
    free(ids);
    runner_close(&r);
}
END_TEST

/* Lengths around the splits of 512 keys, many cuts at once, decode over several splits. */
START_TEST(many_cuts_of_long_prompts_read_the_same)
{
    static const uint32_t lengths[] = {511, 512, 513, 700, 1024, SPLIT_N};
    struct runner r;
    int32_t *ids;

    open_model(&r, _i, NULL);
    ids = exact_ids(&r, SPLIT_N, 3, 13);
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k += short_run ? 5 : 1) {
        const uint32_t n = lengths[k];
        struct outcome whole, cut;
        unsigned int seed = n;

        outcome_of(&r, &(struct feed){.ids = ids, .n = n}, &whole);
        for (uint32_t variant = 0; variant < (short_run ? 1 : 4); variant++) {
            uint32_t cuts[SPLIT_N], n_cuts = 0, at = 0;

            while ((at += 1 + (uint32_t)rand_r(&seed) % (variant == 0 ? 3 : 97)) < n)
                cuts[n_cuts++] = at;
            outcome_of(&r,
                       &(struct feed){.ids = ids,
                                      .n = n,
                                      .cuts = cuts,
                                      .n_cuts = n_cuts,
                                      .n_generated = n == SPLIT_N ? 3 : 0},
                       &cut);
            outcome_expect(&r, &whole, &cut, models[_i].name, n, variant);
            outcome_done(&cut);
        }
        outcome_done(&whole);
    }
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(generated_tokens_leave_what_read_ones_leave)
{
    struct runner r;

    open_model(&r, _i, NULL);
    for (uint32_t n = 20; n <= MAX_N; n += short_run ? 60 : 10) {
        const uint32_t n_generated = n / 2;
        int32_t *ids = exact_ids(&r, n, n_generated, n);
        struct outcome read, generated;

        outcome_of(&r, &(struct feed){.ids = ids, .n = n}, &read);
        outcome_of(&r, &(struct feed){.ids = ids, .n = n, .n_generated = n_generated}, &generated);
        outcome_expect(&r, &read, &generated, models[_i].name, n, n_generated);
        outcome_done(&read);
        outcome_done(&generated);
        free(ids);
    }
    runner_close(&r);
}
END_TEST

START_TEST(batch_mates_change_nothing)
{
    struct runner r;
    int32_t *ids;

    open_model(&r, _i, &(struct runner_options){.n_units = 1024});
    ids = exact_ids(&r, MAX_N, 20, 14);
    for (uint32_t n = 30; n <= MAX_N; n += short_run ? 110 : 11) {
        const uint32_t cuts[] = {1, 2, n / 3, n / 2};
        const uint32_t n_generated = n == MAX_N ? 20 : 0;
        struct outcome alone, mated;

        outcome_of(&r, &(struct feed){.ids = ids, .n = n}, &alone);
        outcome_of(&r,
                   &(struct feed){.ids = ids,
                                  .n = n,
                                  .cuts = cuts,
                                  .n_cuts = 4,
                                  .n_generated = n_generated,
                                  .n_mates = 7,
                                  .seed = n},
                   &mated);
        outcome_expect(&r, &alone, &mated, models[_i].name, n, 8);
        outcome_done(&alone);
        outcome_done(&mated);
    }
    free(ids);
    runner_close(&r);
}
END_TEST

/* What both runs of the two tests below read: short and long, cut and generated. */
static const uint32_t dozen[] = {1, 2, 15, 16, 17, 33, 63, 64, 65, 100, 129, 531};
enum { N_DOZEN = sizeof dozen / sizeof dozen[0] };

static void compare_runners(struct runner *a, struct runner *b, const char *what)
{
    const uint32_t last = dozen[N_DOZEN - 1];
    int32_t *ids = exact_ids(a, last, 4, 15);

    for (size_t k = 0; k < N_DOZEN; k += short_run ? 4 : 1) {
        const uint32_t n = dozen[k], at = n > 1 ? n / 2 : 1;
        struct outcome oa, ob;
        /* The long one decodes its end, over two splits. */
        const struct feed f = {
            .ids = ids, .n = n, .cuts = &at, .n_cuts = n > 1, .n_generated = n == last ? 4 : 0};

        outcome_of(a, &f, &oa);
        outcome_of(b, &f, &ob);
        outcome_expect(a, &oa, &ob, what, n, (uint32_t)k);
        outcome_done(&oa);
        outcome_done(&ob);
    }
    free(ids);
}

START_TEST(thread_counts_change_nothing)
{
    static const uint32_t threads[] = {2, 3};
    struct runner one, many;

    open_model(&one, _i, NULL);
    for (size_t k = 0; k < sizeof threads / sizeof threads[0]; k++) {
        open_model(&many, _i, &(struct runner_options){.n_threads = threads[k]});
        compare_runners(&one, &many, models[_i].name);
        runner_close(&many);
    }
    runner_close(&one);
}
END_TEST

START_TEST(instruction_sets_change_nothing)
{
    static const char *const isas[] = {"avx2", "avx512"};
    struct runner plain, fast;

    open_model(&plain, _i, &(struct runner_options){.isa = "c", .n_threads = 2});
    for (size_t k = 0; k < 2; k++) {
        if (!kernels_get(isas[k])) {
            printf("SKIP: this processor has no %s: %s not compared\n", isas[k], models[_i].name);
            continue;
        }
        open_model(&fast, _i, &(struct runner_options){.isa = isas[k], .n_threads = 2});
        compare_runners(&plain, &fast, models[_i].name);
        runner_close(&fast);
    }
    runner_close(&plain);
}
END_TEST

START_TEST(every_kv_type_is_exact)
{
    static const char *const types[] = {"bf16", "f32"};
    struct runner r;

    for (size_t k = 0; k < 2; k++) {
        const uint32_t cuts[] = {5, 64, 65, 90};
        struct outcome whole, cut;
        int32_t *ids;

        open_model(&r, _i, &(struct runner_options){.kv_type = types[k]});
        ids = exact_ids(&r, 131, 10, 16);
        outcome_of(&r, &(struct feed){.ids = ids, .n = 131}, &whole);
        outcome_of(
            &r, &(struct feed){.ids = ids, .n = 131, .cuts = cuts, .n_cuts = 4, .n_generated = 10},
            &cut);
        outcome_expect(&r, &whole, &cut, types[k], 131, (uint32_t)k);
        outcome_done(&whole);
        outcome_done(&cut);
        free(ids);
        runner_close(&r);
    }
}
END_TEST

int main(void)
{
    int first, n;
    Suite *s = suite_create("exact");
    TCase *t = tcase_create("gate");
    SRunner *sr;
    int failed;

    short_run = getenv("STRATA_TEST_SHORT") != NULL;
    if (short_run)
        printf("STRATA_TEST_SHORT: a smaller choice of lengths and cuts, without needle; mixed\n"
               "formats by instruction set only\n");
    first = short_run ? 1 : 0;
    n = short_run ? N_MODELS - N_MIXES : N_MODELS;
    tcase_set_timeout(t, 1200);
    tcase_add_loop_test(t, every_length_reads_the_same_in_two_pieces, first, n);
    tcase_add_loop_test(t, every_cut_of_some_lengths_reads_the_same, first, n);
    tcase_add_loop_test(t, many_cuts_of_long_prompts_read_the_same, first, n);
    tcase_add_loop_test(t, generated_tokens_leave_what_read_ones_leave, first, n);
    tcase_add_loop_test(t, batch_mates_change_nothing, first, n);
    tcase_add_loop_test(t, thread_counts_change_nothing, first, n);
    tcase_add_loop_test(t, instruction_sets_change_nothing, first, N_MODELS);
    tcase_add_loop_test(t, every_kv_type_is_exact, first, n);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
