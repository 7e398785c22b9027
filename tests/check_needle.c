/* SPDX-License-Identifier: Apache-2.0 */
/* The needle model's golden dialogues: greedy ids and logits, read in one piece and in cuts. */
#include "tests/runner.h"
#include "tests/golden.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct golden *cases;
static size_t n_cases;

START_TEST(greedy_ids_are_the_golden_ones)
{
    struct runner r;

    runner_open(&r, golden_path("needle-f16.gguf"), &(struct runner_options){.n_threads = 2});
    for (size_t i = 0; i < n_cases; i++) {
        const struct golden *g = &cases[i];

        /* Sanitizer builds read some tens of tokens a second. */
        if (getenv("STRATA_TEST_SHORT") && g->prompt.n > 200) {
            printf("STRATA_TEST_SHORT: case %zu of %zu tokens left out\n", i, g->prompt.n);
            continue;
        }
        struct sequence *s = runner_sequence(&r);
        int32_t id = runner_read(&r, s, g->prompt.ids, (uint32_t)g->prompt.n, 512, NULL);

        for (size_t k = 0; k < g->greedy.n; k++) {
            ck_assert_msg(id == g->greedy.ids[k], "case %zu, token %zu: %d, expected %d", i, k, id,
                          g->greedy.ids[k]);
            if (k + 1 < g->greedy.n)
                id = runner_next(&r, s, NULL);
        }
        runner_release(&r, s);
    }
    runner_close(&r);
}
END_TEST

/* The reference computed in fp32 with f32 keys and values; _i chooses the K/V type and its limit.
 */
START_TEST(logits_of_every_position_are_near_the_reference)
{
    static const struct {
        const char *kv_type;
        float limit;
    } types[] = {{"f32", 5e-4f}, {"f16", 1e-2f}};
    const struct golden *g = &cases[0];
    struct runner r;
    float *want, *have, worst = 0;
    struct sampler_params sp;
    struct sample *samples;
    struct sequence *s;
    size_t rows = 0;

    runner_open(&r, golden_path("needle-f16.gguf"),
                &(struct runner_options){.kv_type = types[_i].kv_type});
    want = golden_npy("needle_logits_0.npy", &rows, r.n_vocab);
    ck_assert_uint_ge(rows, g->prompt.n);
    have = malloc(g->prompt.n * r.n_vocab * sizeof *have);
    samples = calloc(g->prompt.n, sizeof *samples);
    sampler_params_init(&sp);
    s = runner_sequence(&r);
    struct step_entry en = {.seq = s,
                            .ids = g->prompt.ids,
                            .n_rows = (uint32_t)g->prompt.n,
                            .n_logits = (uint32_t)g->prompt.n,
                            .sampling = &sp,
                            .samples = samples,
                            .logits = have};
    runner_step(&r, &en, 1);
    ck_assert_int_eq(en.status, 0);
    for (size_t i = 0; i < g->prompt.n * r.n_vocab; i++) {
        ck_assert(isfinite(have[i]));
        if (fabsf(have[i] - want[i]) > worst)
            worst = fabsf(have[i] - want[i]);
    }
    printf("kv_type %s: largest difference %g (limit %g) over %zu rows\n", types[_i].kv_type, worst,
           types[_i].limit, g->prompt.n);
    ck_assert_float_le(worst, types[_i].limit);
    runner_release(&r, s);
    runner_close(&r);
    free(want);
    free(have);
    free(samples);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("needle");
    TCase *t = tcase_create("golden");
    SRunner *sr;
    int failed;

    n_cases = golden_load("needle.jsonl", &cases);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, greedy_ids_are_the_golden_ones);
    tcase_add_loop_test(t, logits_of_every_position_are_near_the_reference, 0, 2);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    golden_free(cases, n_cases);
    return failed != 0;
}
