/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine refuses, in words and without a trace; and the books about units. */
#include "tests/golden.h"
#include "tests/runner.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void expect_refused(struct runner *r, struct job *j, const char *words)
{
    struct err_text e = {""};

    ck_assert_int_eq(engine_submit(r->engine, j, &e), -EINVAL);
    ck_assert_msg(strstr(e.s, words) != NULL, "\"%s\" does not say \"%s\"", e.s, words);
    ck_assert_uint_eq(engine_in_flight(r->engine), 0);
}

START_TEST(jobs_that_break_the_rules_are_refused_and_change_nothing)
{
    struct runner r;
    struct sampler_params sp;
    int32_t ids[600] = {0}, bad_id = -1, big_id;
    uint32_t unit, held[32];

    runner_open(&r, golden_path("needle-f16.gguf"),
                &(struct runner_options){.max_rows = 512, .context = 600});
    struct units *u = engine_units(r.engine);
    struct sequence *s = runner_sequence(&r);
    sampler_params_init(&sp);
    big_id = (int32_t)r.n_vocab;
    ck_assert_int_eq(units_take(u, 1, &unit), 0);
    ck_assert_int_eq(units_take(u, r.plan.checkpoint_units, held), 0);
    const struct step_capture late = {.pos = 9, .units = held}, zero = {.pos = 0, .units = held};
    const uint32_t free_unit = u->free[0];
    const struct step_entry one = {.seq = s, .ids = ids, .n_rows = 1, .units = &unit, .n_units = 1};
    struct {
        struct step_entry en;
        const char *words;
    } bad[] = {
        {one, "0 pages"}, /* made wrong below */
        {one, "expected 1..512"},
        {one, "expected 1..512"},
        {one, "not in 0.."},
        {one, "not in 0.."},
        {one, "sampled nothing"},
        {one, "nowhere to put"},
        {one, "nowhere to put"},
        {one, "is not in use"},
        {one, "capture at 9"},
        {one, "capture at 0"},
        {one, "at most 16 rows"},
        {one, "not a live sequence"},
        {one, "0 pages and 2 more"},
    };
    uint32_t two[2] = {unit, unit};
    bad[0].en.n_units = 0;
    bad[1].en.n_rows = 0;
    bad[2].en.n_rows = 513;
    bad[3].en.ids = &bad_id;
    bad[4].en.ids = &big_id;
    bad[5].en.ids = NULL;
    bad[6].en.n_logits = 2;
    bad[7].en.n_logits = 1;
    bad[8].en.units = &free_unit;
    bad[9].en.captures = &late;
    bad[9].en.n_captures = 1;
    bad[10].en.captures = &zero;
    bad[10].en.n_captures = 1;
    bad[11].en.tentative = true;
    bad[11].en.n_rows = 17;
    bad[12].en.seq = NULL;
    bad[13].en.units = two;
    bad[13].en.n_units = 2;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct job_step j = {.job.kind = JOB_STEP, .entries = &bad[i].en, .n_entries = 1};

        expect_refused(&r, &j.job, bad[i].words);
        ck_assert_uint_eq(sequence_length(s), 0);
    }
    struct step_entry twice[2] = {one, one};
    struct job_step j2 = {.job.kind = JOB_STEP, .entries = twice, .n_entries = 2};
    expect_refused(&r, &j2.job, "twice");
    struct job_step j0 = {.job.kind = JOB_STEP};
    expect_refused(&r, &j0.job, "without entries");

    struct job_commit c = {.job.kind = JOB_COMMIT, .seq = s};
    expect_refused(&r, &c.job, "where 0 wait");
    struct job_mount m = {
        .job.kind = JOB_MOUNT, .seq = s, .pos = 65, .tokens = ids, .pages = &unit, .n_pages = 1};
    expect_refused(&r, &m.job, "in 1 pages");
    m.pos = 64;
    expect_refused(&r, &m.job, "without tokens or checkpoint");
    m.pos = 601;
    m.n_pages = 10;
    expect_refused(&r, &m.job, "context 600");
    struct transfer t = {.unit = free_unit, .host = ids};
    struct job_transfer x = {.job.kind = JOB_EXPORT, .items = &t, .n_items = 1};
    expect_refused(&r, &x.job, "not in use");
    t.unit = unit;
    t.host = NULL;
    expect_refused(&r, &x.job, "without host memory");
    t.host = ids;
    t.n_tokens = 65;
    expect_refused(&r, &x.job, "65 tokens");

    /* Rows of a tentative entry wait: nothing else may run on that sequence. */
    struct step_entry tent = one;
    tent.tentative = true;
    struct job_step jt = {.job.kind = JOB_STEP, .entries = &tent, .n_entries = 1};
    ck_assert_int_eq(runner_job(&r, &jt.job), 0);
    struct step_entry more = {.seq = s, .ids = ids, .n_rows = 1};
    struct job_step jm = {.job.kind = JOB_STEP, .entries = &more, .n_entries = 1};
    expect_refused(&r, &jm.job, "wait for a commit");
    c.n_rows = 2;
    expect_refused(&r, &c.job, "where 1 wait");
    runner_release(&r, s);
    expect_refused(&r, &jm.job, "not a live sequence");
    units_unref(u, unit);
    for (uint32_t i = 0; i < r.plan.checkpoint_units; i++)
        units_unref(u, held[i]);
    ck_assert_uint_eq(u->n_free, u->n);
    runner_close(&r);
}
END_TEST

START_TEST(opening_refuses_what_cannot_work_and_names_it)
{
    static const struct {
        struct engine_options o;
        const char *words;
    } bad[] = {
        {{.n_sequences = 0, .pool_bytes = 1 << 24}, "n_sequences 0"},
        {{.n_sequences = 1, .pool_bytes = 100}, "holds no page"},
        {{.n_sequences = 1, .pool_bytes = 1 << 24, .kv_type = "q4_0"}, "q4_0"},
        {{.n_sequences = 1, .pool_bytes = 1 << 24, .isa = "neon"}, "neon"},
        {{.n_sequences = 1, .pool_bytes = 1 << 24, .n_threads = 5000}, "5000 threads"},
        {{.n_sequences = 1, .pool_bytes = 1 << 24, .max_rows = 1u << 20}, "max_rows"},
        {{.n_sequences = 1, .pool_bytes = 1 << 24, .context = 1u << 25}, "context"},
    };
    struct model *m;
    struct engine *engine = NULL;
    struct err_text e;

    ck_assert_int_eq(model_open(golden_path("needle-f16.gguf"), &m, &e), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_lt(engine_open(m, &bad[i].o, &engine, &e), 0);
        ck_assert_msg(strstr(e.s, bad[i].words) != NULL, "\"%s\" does not say \"%s\"", e.s,
                      bad[i].words);
        ck_assert_ptr_null(engine);
    }
    model_free(m);
}
END_TEST

/* Against a plain array of counts; _i is the seed. */
START_TEST(units_count_like_a_plain_array)
{
    enum { UNITS = 37 };
    uint32_t refs[UNITS] = {0}, got[UNITS], n_free = UNITS;
    unsigned int seed = (unsigned int)_i;
    struct units u;

    ck_assert_int_eq(units_init(&u, UNITS), 0);
    for (int step = 0; step < 3000; step++) {
        uint32_t n = (uint32_t)rand_r(&seed) % 9, i = (uint32_t)rand_r(&seed) % UNITS;

        switch (rand_r(&seed) % 3) {
        case 0:
            ck_assert_int_eq(units_take(&u, n, got), n <= n_free ? 0 : -ENOSPC);
            for (uint32_t k = 0; n <= n_free && k < n; k++) {
                ck_assert_uint_eq(refs[got[k]], 0);
                refs[got[k]] = 1;
            }
            n_free -= n <= n_free ? n : 0;
            break;
        case 1:
            if (refs[i]) {
                units_ref(&u, i);
                refs[i]++;
            }
            break;
        default:
            if (refs[i]) {
                units_unref(&u, i);
                n_free += --refs[i] == 0;
            }
        }
        ck_assert(units_is_sane(&u));
        ck_assert_uint_eq(u.n_free, n_free);
        ck_assert_int_eq(memcmp(u.refs, refs, sizeof refs), 0);
    }
    units_done(&u);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine rules");
    TCase *t = tcase_create("rules");
    SRunner *sr;
    int failed;

    tcase_add_test(t, jobs_that_break_the_rules_are_refused_and_change_nothing);
    tcase_add_test(t, opening_refuses_what_cannot_work_and_names_it);
    tcase_add_loop_test(t, units_count_like_a_plain_array, 0, 8);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
