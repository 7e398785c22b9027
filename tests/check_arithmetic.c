/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits that every family and weight format gives today, as digests of the state and the logits
 * after some tokens.  They are the same on every processor (law 1), so one table serves all.
 *
 * A digest that differs means that state made before is foreign to state made after.  If that is
 * meant, raise ENGINE_ARITHMETIC_REVISION and put what the failures print into the table; if not, a
 * kernel's order of operations has changed by accident.  A change of tests/mkmodel, or of the
 * state's layout alone, changes digests too; then the revision stays.
 */
#include "tests/exact.h"
#include "tests/mkmodel.h"

#include "engine/cpu/kernels.h"
#include "util/sha256.h"

#include <assert.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(ENGINE_ARITHMETIC_REVISION == 1, "the table is of this revision");

enum { N_TOKENS = 70, N_GENERATED = 2, DIGITS = 16 };

#define FORMAT(name, type_, digits)                                                                \
    {                                                                                              \
        name, {.family = "llama", .type = (type_), WIDE}, digits                                   \
    }
/* Rows that fill the blocks of every format. */
#define WIDE .n_layer = 1, .n_embd = 256, .n_ff = 256, .n_vocab = 266, .seed = 1

static const struct {
    const char *name;
    struct mkmodel make;
    const char *digits; /* the first of the SHA-256 */
} cases[] = {
    {"qwen2", {.family = "qwen2", .type = TENSOR_F16, .seed = 2}, "e104c7cef702fc97"},
    {"qwen3", {.family = "qwen3", .type = TENSOR_F16, .seed = 3}, "5d1e2b9c78df1dc0"},
    {"qwen3moe", {.family = "qwen3moe", .type = TENSOR_F16, .seed = 4}, "0b6167e0ef8ec1e5"},
    {"qwen3next", {.family = "qwen3next", .type = TENSOR_F16, .seed = 5}, "7ec77c6c35170d6a"},
    {"qwen35",
     {.family = "qwen35", .type = TENSOR_F16, .draft = true, .seed = 6},
     "97495c78b8c38377"},
    {"qwen35moe",
     {.family = "qwen35moe", .type = TENSOR_F16, .draft = true, .seed = 7},
     "f82c8a4269822a56"},
    FORMAT("F32", TENSOR_F32, "e7f2d33987ac8173"),
    FORMAT("F16", TENSOR_F16, "4c8bc5092cc39f90"),
    FORMAT("BF16", TENSOR_BF16, "ffb945eed929f561"),
    FORMAT("Q8_0", TENSOR_Q8_0, "ea46246b27a44694"),
    FORMAT("Q4_0", TENSOR_Q4_0, "c4a7cd506fef5e02"),
    FORMAT("Q4_1", TENSOR_Q4_1, "ccbdc65a0c45f1d7"),
    FORMAT("Q5_0", TENSOR_Q5_0, "34b632f636938a73"),
    FORMAT("Q5_1", TENSOR_Q5_1, "6e1052e5bbf69945"),
    FORMAT("Q2_K", TENSOR_Q2_K, "d2694b149fa05b51"),
    FORMAT("Q3_K", TENSOR_Q3_K, "9ee8c996d9a0d688"),
    FORMAT("Q4_K", TENSOR_Q4_K, "de12bc7c22e7a0da"),
    FORMAT("Q5_K", TENSOR_Q5_K, "3c90ec8393c17b4d"),
    FORMAT("Q6_K", TENSOR_Q6_K, "c6b0006cf90706f4"),
    FORMAT("IQ2_XS", TENSOR_IQ2_XS, "1606483952a5d845"),
    FORMAT("IQ3_XXS", TENSOR_IQ3_XXS, "7bdd49aae226e40a"),
    FORMAT("IQ3_S", TENSOR_IQ3_S, "012e5a85796678fc"),
    FORMAT("IQ4_NL", TENSOR_IQ4_NL, "78c6d67cbd5a7747"),
    FORMAT("IQ4_XS", TENSOR_IQ4_XS, "6b1f064f9f0a91dc"),
    FORMAT("MXFP4", TENSOR_MXFP4, "bd5b7518c5e7182a"),
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void expect_bits(int i, const char *isa)
{
    struct runner r;
    struct outcome o;
    char sha[65];
    uint8_t *all;
    int32_t *ids;
    size_t n_logits;

    runner_open_made(&r, &cases[i].make, &(struct runner_options){.isa = isa});
    n_logits = r.n_vocab * sizeof *o.logits;
    ids = exact_ids(&r, N_TOKENS, N_GENERATED, 1);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N_TOKENS, .n_generated = N_GENERATED}, &o);
    all = malloc(o.n_state + n_logits);
    ck_assert_ptr_nonnull(all);
    memcpy(all, o.state, o.n_state);
    memcpy(all + o.n_state, o.logits, n_logits);
    ck_assert_int_eq(sha256_hex(all, o.n_state + n_logits, sha), 0);
    sha[DIGITS] = '\0';
    ck_assert_msg(strcmp(sha, cases[i].digits) == 0,
                  "%s, %s: found %s, expected %s: see the head of %s", cases[i].name, isa, sha,
                  cases[i].digits, __FILE__);
    free(all);
    free(ids);
    outcome_done(&o);
    runner_close(&r);
}

START_TEST(bits_are_those_of_this_revision)
{
    static const char *const isas[] = {"c", "avx2", "avx512"};

    for (size_t k = 0; k < sizeof isas / sizeof isas[0]; k++)
        if (kernels_get(isas[k]))
            expect_bits(_i, isas[k]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arithmetic");
    TCase *t = tcase_create("bits");
    SRunner *sr;
    int failed;

    tcase_add_loop_test(t, bits_are_those_of_this_revision, 0, N_CASES);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
