/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints taken between steps (JOB_CAPTURE), as at the end of a request. */
#include "tests/exact.h"
#include "tests/mkmodel.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 150, MAX_CKPT = 64 };

static const struct mkmodel made[] = {
    {.family = NULL}, /* needle: hybrid with a draft block */
    {.family = "qwen35",
     .type = TENSOR_Q8_0,
     .dn_dim = 32,
     .head_dim = 32,
     .seed = 22}, /* hybrid without draft block */
};
enum { N_MADE = sizeof made / sizeof made[0] };

static void take_checkpoint(struct runner *r, uint32_t *units)
{
    ck_assert_uint_gt(r->plan.checkpoint_units, 0);
    ck_assert_uint_le(r->plan.checkpoint_units, MAX_CKPT);
    ck_assert_int_eq(units_take(engine_units(r->engine), r->plan.checkpoint_units, units), 0);
}

static void drop_checkpoint(struct runner *r, const uint32_t *units)
{
    for (uint32_t i = 0; i < r->plan.checkpoint_units; i++)
        units_unref(engine_units(r->engine), units[i]);
}

/* A new sequence at `pos`, in its own copies of the pages of ids[0..pos). */
static struct sequence *mount(struct runner *r, const int32_t *ids, uint32_t pos,
                              const uint32_t *pages, const uint32_t *ckpt)
{
    struct units *u = engine_units(r->engine);
    struct sequence *s = runner_sequence(r);
    struct transfer items[8];
    uint32_t own[8];
    const uint32_t n = engine_pages(pos);
    struct job_transfer copy = {.job.kind = JOB_COPY, .items = items, .n_items = n};
    struct job_mount j = {.job.kind = JOB_MOUNT,
                          .seq = s,
                          .pos = pos,
                          .tokens = ids,
                          .pages = own,
                          .n_pages = n,
                          .checkpoint = ckpt};

    ck_assert_int_eq(units_take(u, n, own), 0);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct transfer){
            .unit = own[i], .from = pages[i], .n_tokens = i + 1 == n ? pos % 64 : 0};
    ck_assert_int_eq(runner_job(r, &copy.job), 0);
    ck_assert_int_eq(runner_job(r, &j.job), 0);
    for (uint32_t i = 0; i < n; i++)
        units_unref(u, own[i]);
    return s;
}

/* Reads up to N with a step's own capture at the end, and compares everything with `want`. */
static void expect_rest(struct runner *r, struct sequence *s, const int32_t *ids,
                        const struct outcome *want, const char *what)
{
    const uint32_t from = sequence_length(s);
    uint32_t ckpt[MAX_CKPT];
    struct outcome have = {.logits = malloc(r->n_vocab * sizeof(float))};
    struct sampler_params sp;
    struct sample sample;
    struct step_capture cap = {.pos = N, .units = ckpt};
    struct step_entry en = {.seq = s,
                            .ids = ids + from,
                            .n_rows = N - from,
                            .n_logits = 1,
                            .sampling = &sp,
                            .samples = &sample,
                            .logits = have.logits,
                            .captures = &cap,
                            .n_captures = 1};

    ck_assert_ptr_nonnull(have.logits);
    take_checkpoint(r, ckpt);
    sampler_params_init(&sp);
    runner_step(r, &en, 1);
    ck_assert_int_eq(en.status, 0);
    have.next = sample.id;
    have.state = runner_state(r, s, ckpt, &have.n_state);
    outcome_expect(r, want, &have, what, N, from);
    outcome_done(&have);
    drop_checkpoint(r, ckpt);
}

START_TEST(a_capture_between_steps_is_the_one_inside_the_step)
{
    static const uint32_t pos[] = {1, 2, 64, 65, 127, 149};
    struct outcome whole;
    struct runner r;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    ids = exact_ids(&r, N, 0, 5);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N}, &whole);
    for (size_t k = 0; k < sizeof pos / sizeof pos[0]; k++) {
        struct sequence *s = runner_sequence(&r), *m;
        uint32_t inside[MAX_CKPT], between[MAX_CKPT];
        struct step_capture cap = {.pos = pos[k], .units = inside};
        struct step_entry en = {
            .seq = s, .ids = ids, .n_rows = pos[k], .captures = &cap, .n_captures = 1};
        struct job_capture j = {.job.kind = JOB_CAPTURE, .seq = s, .units = between, .pos = 9999};
        uint8_t *want, *have;
        size_t n;

        take_checkpoint(&r, inside);
        take_checkpoint(&r, between);
        runner_step(&r, &en, 1);
        ck_assert_int_eq(runner_job(&r, &j.job), 0);
        ck_assert_uint_eq(j.pos, pos[k]);
        want = runner_state(&r, s, inside, &n);
        have = runner_state(&r, s, between, &n);
        ck_assert_int_eq(memcmp(want, have, n), 0);
        free(want);
        free(have);

        m = mount(&r, ids, pos[k], sequence_pages(s), between);
        expect_rest(&r, m, ids, &whole, "mounted");
        runner_release(&r, m);
        /* Nor did it disturb the sequence. */
        expect_rest(&r, s, ids, &whole, "captured");
        runner_release(&r, s);
        drop_checkpoint(&r, inside);
        drop_checkpoint(&r, between);
    }
    ck_assert_uint_eq(engine_units(r.engine)->n_free, engine_units(r.engine)->n);
    outcome_done(&whole);
    free(ids);
    runner_close(&r);
}
END_TEST

/* Cancel, capture and release at once, while steps are in flight: whichever rows ran, the
 * checkpoint is of those. */
START_TEST(a_cancelled_sequence_is_captured_where_it_stopped)
{
    enum { STEPS = 5, CUT = 20 };
    struct outcome whole;
    struct runner r;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    struct units *u = engine_units(r.engine);
    ids = exact_ids(&r, N, 0, 6);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N}, &whole);
    /* Cancelled before anything, after one step, after four, and whenever it comes. */
    for (int k_before = 0; k_before < 4; k_before++) {
        const int n_before = (const int[]){0, 1, 4, STEPS}[k_before];
        struct sequence *s = runner_sequence(&r), *m;
        uint32_t ckpt[MAX_CKPT], units[STEPS][2], pages[2] = {0}, ran = 0;
        struct step_entry en[STEPS];
        struct job_step steps[STEPS];
        struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
        struct job_release rel = {.job.kind = JOB_RELEASE, .seq = s};

        take_checkpoint(&r, ckpt);
        for (int i = 0; i < STEPS; i++) {
            if (i == n_before) {
                while (engine_in_flight(r.engine))
                    (void)engine_wait(r.engine);
                sequence_cancel(s);
            }
            en[i] = (struct step_entry){.seq = s, .ids = ids + i * CUT, .n_rows = CUT};
            runner_pages(&r, &en[i], units[i]);
            for (uint32_t k = 0; k < en[i].n_units; k++)
                pages[sequence_n_pages(s) + k] = units[i][k];
            steps[i] = (struct job_step){.job.kind = JOB_STEP, .entries = &en[i], .n_entries = 1};
            ck_assert_int_eq(engine_submit(r.engine, &steps[i].job, NULL), 0);
        }
        sequence_cancel(s);
        ck_assert_int_eq(engine_submit(r.engine, &c.job, NULL), 0);
        ck_assert_int_eq(engine_submit(r.engine, &rel.job, NULL), 0);
        while (engine_in_flight(r.engine))
            (void)engine_wait(r.engine);
        for (int i = 0; i < STEPS; i++)
            ran += en[i].status == 0 ? CUT : 0;
        ck_assert_uint_eq(c.pos, ran);
        ck_assert_int_eq(c.job.status, ran ? 0 : -ECANCELED);
        if (n_before < STEPS)
            ck_assert_uint_eq(ran, (uint32_t)n_before * CUT);

        m = ran ? mount(&r, ids, ran, pages, ckpt) : runner_sequence(&r);
        expect_rest(&r, m, ids, &whole, "cancelled");
        runner_release(&r, m);
        for (int i = 0; i < STEPS; i++)
            for (uint32_t k = 0; k < en[i].n_units; k++)
                units_unref(u, units[i][k]);
        drop_checkpoint(&r, ckpt);
        ck_assert_uint_eq(u->n_free, u->n);
    }
    outcome_done(&whole);
    free(ids);
    runner_close(&r);
}
END_TEST

/* The step after an end token is skipped: the end of a request as the scheduler sees it. */
START_TEST(after_an_end_token_the_capture_is_of_the_rows_that_ran)
{
    struct runner r;
    struct sampler_params sp;
    struct sample sample, no_sample;
    uint32_t ckpt[MAX_CKPT];
    int32_t *ids, end;

    runner_open_made(&r, &made[_i], NULL);
    ids = exact_ids(&r, 12, 1, 10);
    end = ids[11];
    sampler_params_init(&sp);
    sp.end_ids = &end;
    sp.n_end_ids = 1;
    struct sequence *s = runner_sequence(&r);
    struct step_entry en = {
        .seq = s, .ids = ids, .n_rows = 11, .n_logits = 1, .sampling = &sp, .samples = &sample};
    struct step_entry more = {
        .seq = s, .n_rows = 1, .n_logits = 1, .sampling = &sp, .samples = &no_sample};
    struct job_step step = {.job.kind = JOB_STEP, .entries = &more, .n_entries = 1};
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
    take_checkpoint(&r, ckpt);
    runner_step(&r, &en, 1);
    ck_assert(sample.end);
    ck_assert_int_eq(engine_submit(r.engine, &step.job, NULL), 0);
    ck_assert_int_eq(engine_submit(r.engine, &c.job, NULL), 0);
    ck_assert_uint_eq(sequence_length(s), 12);
    while (engine_in_flight(r.engine))
        (void)engine_wait(r.engine);
    ck_assert_int_eq(more.status, ERR_ENDED);
    ck_assert_int_eq(c.job.status, 0);
    ck_assert_uint_eq(c.pos, 11);
    ck_assert_uint_eq(sequence_length(s), 11);
    runner_release(&r, s);
    drop_checkpoint(&r, ckpt);
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(the_units_of_a_capture_are_held_until_it_is_reaped)
{
    struct runner r;
    uint32_t ckpt[MAX_CKPT];
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    struct units *u = engine_units(r.engine);
    ids = exact_ids(&r, 10, 0, 7);
    struct sequence *s = runner_sequence(&r);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
    (void)runner_read(&r, s, ids, 10, 512, NULL);
    const uint32_t n_free = u->n_free;
    take_checkpoint(&r, ckpt);
    ck_assert_int_eq(engine_submit(r.engine, &c.job, NULL), 0);
    drop_checkpoint(&r, ckpt);
    ck_assert_uint_eq(u->n_free, n_free - r.plan.checkpoint_units);
    ck_assert_ptr_eq(engine_wait(r.engine), &c.job);
    ck_assert_uint_eq(u->n_free, n_free);
    runner_release(&r, s);
    free(ids);
    runner_close(&r);
}
END_TEST

static void expect_refused(struct runner *r, struct job *j, const char *words)
{
    struct err_text e = {""};

    ck_assert_int_eq(engine_submit(r->engine, j, &e), -EINVAL);
    ck_assert_msg(strstr(e.s, words) != NULL, "\"%s\" does not say \"%s\"", e.s, words);
    ck_assert_uint_eq(engine_in_flight(r->engine), 0);
}

START_TEST(captures_that_break_the_rules_are_refused_and_change_nothing)
{
    struct runner r;
    uint32_t ckpt[MAX_CKPT], unit;
    int32_t ids[1] = {1};

    runner_open_made(&r, &made[_i], NULL);
    struct units *u = engine_units(r.engine);
    struct sequence *s = runner_sequence(&r);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
    take_checkpoint(&r, ckpt);
    expect_refused(&r, &c.job, "without tokens");
    struct step_entry en = {.seq = s, .ids = ids, .n_rows = 1, .tentative = true};
    runner_step(&r, &en, 1);
    expect_refused(&r, &c.job, "wait for a commit");
    ck_assert_int_eq(
        runner_job(&r, &(struct job_commit){.job.kind = JOB_COMMIT, .seq = s, .n_rows = 1}.job), 0);
    c.units = NULL;
    expect_refused(&r, &c.job, "without units");
    unit = ckpt[r.plan.checkpoint_units - 1];
    ckpt[r.plan.checkpoint_units - 1] = u->free[0];
    c.units = ckpt;
    expect_refused(&r, &c.job, "is not in use");
    ckpt[r.plan.checkpoint_units - 1] = unit;
    ck_assert_int_eq(runner_job(&r, &c.job), 0);
    runner_release(&r, s);
    expect_refused(&r, &c.job, "not a live sequence");
    drop_checkpoint(&r, ckpt);
    ck_assert_uint_eq(u->n_free, u->n);
    runner_close(&r);
}
END_TEST

START_TEST(a_model_without_checkpoints_has_nothing_to_capture)
{
    const struct mkmodel dense = {.family = "qwen3", .type = TENSOR_F16, .seed = 21};
    struct runner r;
    uint32_t unit;
    int32_t ids[1] = {1};

    runner_open_made(&r, &dense, NULL);
    struct sequence *s = runner_sequence(&r);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = &unit};
    ck_assert_int_eq(units_take(engine_units(r.engine), 1, &unit), 0);
    (void)runner_read(&r, s, ids, 1, 512, NULL);
    expect_refused(&r, &c.job, "no checkpoints");
    runner_release(&r, s);
    units_unref(engine_units(r.engine), unit);
    runner_close(&r);
}
END_TEST

/* The bias bans every token: the sequence is spoilt, as by a value that is not finite. */
START_TEST(a_spoilt_sequence_is_not_captured)
{
    struct runner r;
    struct sampler_params sp;
    struct sample sample;
    uint32_t ckpt[MAX_CKPT];
    int32_t ids[3] = {1, 2, 3};
    uint8_t *before, *after;
    size_t n;

    runner_open_made(&r, &made[_i], NULL);
    struct logit_bias *bias = calloc(r.n_vocab, sizeof *bias);
    ck_assert_ptr_nonnull(bias);
    for (uint32_t i = 0; i < r.n_vocab; i++)
        bias[i] = (struct logit_bias){.id = (int32_t)i, .bias = -INFINITY};
    sampler_params_init(&sp);
    sp.bias = bias;
    sp.n_bias = r.n_vocab;
    struct sequence *s = runner_sequence(&r);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt, .pos = 9999};
    struct step_entry en = {
        .seq = s, .ids = ids, .n_rows = 3, .n_logits = 1, .sampling = &sp, .samples = &sample};
    take_checkpoint(&r, ckpt);
    runner_step(&r, &en, 1);
    ck_assert_int_eq(en.status, -EINVAL);
    before = runner_state(&r, s, ckpt, &n);
    ck_assert_int_eq(runner_job(&r, &c.job), ERR_NONFINITE);
    ck_assert_uint_eq(c.pos, 0);
    after = runner_state(&r, s, ckpt, &n);
    ck_assert_int_eq(memcmp(before, after, n), 0);
    free(before);
    free(after);
    runner_release(&r, s);
    drop_checkpoint(&r, ckpt);
    free(bias);
    runner_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine capture");
    TCase *t = tcase_create("capture");
    SRunner *sr;
    int failed;

    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, a_capture_between_steps_is_the_one_inside_the_step, 0, N_MADE);
    tcase_add_loop_test(t, a_cancelled_sequence_is_captured_where_it_stopped, 0, N_MADE);
    tcase_add_loop_test(t, after_an_end_token_the_capture_is_of_the_rows_that_ran, 0, N_MADE);
    tcase_add_loop_test(t, the_units_of_a_capture_are_held_until_it_is_reaped, 0, N_MADE);
    tcase_add_loop_test(t, captures_that_break_the_rules_are_refused_and_change_nothing, 0, N_MADE);
    tcase_add_test(t, a_model_without_checkpoints_has_nothing_to_capture);
    tcase_add_loop_test(t, a_spoilt_sequence_is_not_captured, 0, N_MADE);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
