/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's seam: captures and mounts, commits of fewer rows, transfers, order.  The rules that
 * submit enforces are in check_engine_rules.c.
 */
#include "tests/exact.h"
#include "tests/mkmodel.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 150 };

static const struct mkmodel made[] = {
    {.family = NULL}, /* needle: hybrid with a draft block */
    {.family = "qwen3", .type = TENSOR_F16, .seed = 21},
    {.family = "qwen35",
     .type = TENSOR_Q8_0,
     .dn_dim = 32,
     .head_dim = 32,
     .seed = 22}, /* hybrid without draft block */
    {.family = "qwen3next", .draft = true, .dn_in = true, .dn_v_heads = 6, .seed = 23},
};
enum { N_MADE = sizeof made / sizeof made[0] };

/* Sanitizer builds read some tens of needle tokens a second: the same tests, fewer values. */
static bool short_run(void)
{
    return getenv("STRATA_TEST_SHORT") != NULL;
}

/* A stored prefix: the pages of the first `pos` tokens and the checkpoint there, all referenced. */
struct stored {
    uint32_t pos, n_pages;
    uint32_t pages[8];
    uint32_t *ckpt; /* owned */
};

/* Reads ids[0..N) with a capture at each of pos[0..n), in steps of `cut` rows, and keeps what each
 * needs. */
static void read_and_store(struct runner *r, const int32_t *ids, const uint32_t *pos, uint32_t n,
                           uint32_t cut, struct stored *ret)
{
    struct units *u = engine_units(r->engine);
    struct sequence *s = runner_sequence(r);
    struct step_capture caps[8];
    uint32_t i = 0;

    for (uint32_t k = 0; k < n; k++) {
        ret[k] = (struct stored){.pos = pos[k], .n_pages = (pos[k] + 63) / 64};
        ret[k].ckpt = calloc(r->plan.checkpoint_units + 1, sizeof *ret[k].ckpt);
        ck_assert_ptr_nonnull(ret[k].ckpt);
        ck_assert_int_eq(units_take(u, r->plan.checkpoint_units, ret[k].ckpt), 0);
        caps[k] = (struct step_capture){.pos = pos[k], .units = ret[k].ckpt};
    }
    for (uint32_t at = 0; at < N;) {
        struct step_entry en = {
            .seq = s, .ids = ids + at, .n_rows = N - at < cut ? N - at : cut, .captures = &caps[i]};

        at += en.n_rows;
        while (i + en.n_captures < n && pos[i + en.n_captures] <= at)
            en.n_captures++;
        i += en.n_captures;
        runner_step(r, &en, 1);
        ck_assert_int_eq(en.status, 0);
    }
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t p = 0; p < ret[k].n_pages; p++) {
            ret[k].pages[p] = sequence_pages(s)[p];
            units_ref(u, ret[k].pages[p]);
        }
    runner_release(r, s);
}

static void drop_stored(struct runner *r, struct stored *st)
{
    for (uint32_t p = 0; p < st->n_pages; p++)
        units_unref(engine_units(r->engine), st->pages[p]);
    for (uint32_t i = 0; i < r->plan.checkpoint_units; i++)
        units_unref(engine_units(r->engine), st->ckpt[i]);
    free(st->ckpt);
}

/* A new sequence at st->pos whose last page is its own copy when it is partial. */
static struct sequence *mount(struct runner *r, const int32_t *ids, struct stored *st)
{
    struct units *u = engine_units(r->engine);
    struct sequence *s = runner_sequence(r);
    uint32_t pages[8], own = UINT32_MAX;
    struct job_mount j = {.job.kind = JOB_MOUNT,
                          .seq = s,
                          .pos = st->pos,
                          .tokens = ids,
                          .pages = pages,
                          .n_pages = st->n_pages,
                          .checkpoint = r->plan.checkpoint_units ? st->ckpt : NULL};

    memcpy(pages, st->pages, sizeof pages);
    if (st->pos % 64) {
        struct transfer t = {.from = pages[st->n_pages - 1], .n_tokens = st->pos % 64};
        struct job_transfer copy = {.job.kind = JOB_COPY, .items = &t, .n_items = 1};

        ck_assert_int_eq(units_take(u, 1, &own), 0);
        t.unit = own;
        ck_assert_int_eq(runner_job(r, &copy.job), 0);
        pages[st->n_pages - 1] = own;
    }
    ck_assert_int_eq(runner_job(r, &j.job), 0);
    if (own != UINT32_MAX)
        units_unref(u, own);
    ck_assert_uint_eq(sequence_length(s), st->pos);
    return s;
}

static void expect_rest(struct runner *r, struct sequence *s, const int32_t *ids,
                        const struct outcome *want, const char *what)
{
    struct units *u = engine_units(r->engine);
    uint32_t *ckpt = calloc(r->plan.checkpoint_units + 1, sizeof *ckpt), from = sequence_length(s);
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
                            .n_captures = r->plan.checkpoint_units > 0};

    ck_assert(ckpt && have.logits);
    ck_assert_int_eq(units_take(u, r->plan.checkpoint_units, ckpt), 0);
    sampler_params_init(&sp);
    runner_step(r, &en, 1);
    ck_assert_int_eq(en.status, 0);
    have.next = sample.id;
    have.state = runner_state(r, s, r->plan.checkpoint_units ? ckpt : NULL, &have.n_state);
    outcome_expect(r, want, &have, what, N, from);
    outcome_done(&have);
    for (uint32_t i = 0; i < r->plan.checkpoint_units; i++)
        units_unref(u, ckpt[i]);
    free(ckpt);
}

START_TEST(a_mounted_checkpoint_goes_on_as_if_never_stopped)
{
    static const uint32_t pos[] = {1, 2, 63, 64, 65, 127, 128, 149};
    const uint32_t cuts[] = {150, 64, 7};
    struct outcome whole;
    struct runner r;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    ids = exact_ids(&r, N, 0, 5);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N}, &whole);
    for (size_t c = short_run() ? 2 : 0; c < 3; c++) {
        struct stored st[8];
        uint8_t *before, *after;
        size_t n_before, n_after;

        read_and_store(&r, ids, pos, 8, cuts[c], st);
        struct sequence *donor = mount(&r, ids, &st[7]);
        before = runner_state(&r, donor, NULL, &n_before);
        for (uint32_t k = 0; k < 8; k += short_run() ? 4 : 1) {
            struct sequence *s = mount(&r, ids, &st[k]);

            expect_rest(&r, s, ids, &whole, "mounted");
            runner_release(&r, s);
        }
        /* Eight borrowers later the donor's pages are what they were. */
        after = runner_state(&r, donor, NULL, &n_after);
        ck_assert_uint_eq(n_before, n_after);
        ck_assert_int_eq(memcmp(before, after, n_before), 0);
        free(before);
        free(after);
        runner_release(&r, donor);
        for (uint32_t k = 0; k < 8; k++)
            drop_stored(&r, &st[k]);
    }
    ck_assert_uint_eq(engine_units(r.engine)->n_free, engine_units(r.engine)->n);
    outcome_done(&whole);
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(units_that_went_to_host_memory_and_back_are_the_same)
{
    static const uint32_t pos[] = {100};
    struct outcome whole;
    struct runner r;
    struct stored st, back;
    struct transfer items[64];
    uint8_t *host;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    const uint32_t n_ckpt = r.plan.checkpoint_units, n = 2 + n_ckpt;
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = items, .n_items = n};
    struct units *u = engine_units(r.engine);

    ck_assert_uint_le(n, 64);
    ids = exact_ids(&r, N, 0, 6);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N}, &whole);
    read_and_store(&r, ids, pos, 1, 512, &st);
    host = malloc(n * r.plan.unit_bytes);
    ck_assert_ptr_nonnull(host);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct transfer){.unit = i < 2 ? st.pages[i] : st.ckpt[i - 2],
                                     .host = host + i * r.plan.unit_bytes,
                                     .n_tokens = i == 1 ? 36 : 0};
    ck_assert_int_eq(runner_job(&r, &j.job), 0);
    drop_stored(&r, &st);

    /* Into other units, after the old ones were overwritten by somebody else. */
    struct sequence *other = runner_sequence(&r);
    (void)runner_read(&r, other, ids, N, 512, NULL);
    back = (struct stored){.pos = 100, .n_pages = 2, .ckpt = calloc(n_ckpt + 1, sizeof *back.ckpt)};
    ck_assert_ptr_nonnull(back.ckpt);
    ck_assert_int_eq(units_take(u, 2, back.pages), 0);
    ck_assert_int_eq(units_take(u, n_ckpt, back.ckpt), 0);
    for (uint32_t i = 0; i < n; i++) {
        items[i].unit = i < 2 ? back.pages[i] : back.ckpt[i - 2];
        items[i].n_tokens = 0;
    }
    j.job.kind = JOB_IMPORT;
    ck_assert_int_eq(runner_job(&r, &j.job), 0);
    struct sequence *s = mount(&r, ids, &back);
    expect_rest(&r, s, ids, &whole, "imported");
    runner_release(&r, s);
    runner_release(&r, other);
    drop_stored(&r, &back);
    outcome_done(&whole);
    free(host);
    free(ids);
    runner_close(&r);
}
END_TEST

/* Every number of accepted rows, right and wrong drafts, with and without a capture inside the
 * accepted rows. */
START_TEST(a_commit_of_fewer_rows_leaves_no_trace_of_the_others)
{
    enum { AT = 60, ROWS = 9 };
    struct outcome whole;
    struct runner r;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    struct units *u = engine_units(r.engine);
    ids = exact_ids(&r, N, 0, 7);
    outcome_of(&r, &(struct feed){.ids = ids, .n = N}, &whole);
    for (uint32_t k = 0; k <= ROWS; k += short_run() ? 4 : 1) {
        struct sequence *s = runner_sequence(&r);
        struct sampler_params sp;
        struct sample samples[ROWS];
        int32_t draft[ROWS];
        uint32_t *ckpt = calloc(r.plan.checkpoint_units + 1, sizeof *ckpt);
        struct step_capture cap = {.pos = AT + (k + 1) / 2, .units = ckpt};
        struct step_entry en = {.seq = s,
                                .ids = draft,
                                .n_rows = ROWS,
                                .n_logits = ROWS,
                                .tentative = true,
                                .sampling = &sp,
                                .samples = samples};
        struct job_commit c = {.job.kind = JOB_COMMIT,
                               .seq = s,
                               .n_rows = k,
                               .captures = &cap,
                               .n_captures = k > 0 && r.plan.checkpoint_units > 0};

        ck_assert_ptr_nonnull(ckpt);
        ck_assert_int_eq(units_take(u, r.plan.checkpoint_units, ckpt), 0);
        sampler_params_init(&sp);
        (void)runner_read(&r, s, ids, AT, 512, NULL);
        for (uint32_t i = 0; i < ROWS; i++)
            draft[i] = i < k ? ids[AT + i] : (ids[AT + i] + 1) % (int32_t)r.n_vocab;
        runner_step(&r, &en, 1);
        ck_assert_int_eq(en.status, 0);
        ck_assert_int_eq(runner_job(&r, &c.job), 0);
        ck_assert_uint_eq(sequence_length(s), AT + k);

        if (c.n_captures) {
            /* The checkpoint inside the accepted rows is the one that a plain read leaves there. */
            struct stored st = {.pos = cap.pos, .n_pages = (cap.pos + 63) / 64, .ckpt = ckpt};
            struct sequence *m;

            memcpy(st.pages, sequence_pages(s), st.n_pages * sizeof *st.pages);
            m = mount(&r, ids, &st);
            expect_rest(&r, m, ids, &whole, "checkpoint of a commit");
            runner_release(&r, m);
        }
        expect_rest(&r, s, ids, &whole, "committed");
        runner_release(&r, s);
        for (uint32_t i = 0; i < r.plan.checkpoint_units; i++)
            units_unref(u, ckpt[i]);
        free(ckpt);
    }
    outcome_done(&whole);
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(after_a_commit_the_token_just_sampled_is_that_of_the_last_accepted_row)
{
    struct runner r;
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    /* The model's own continuation, so that every draft row samples the next one. */
    ids = exact_ids(&r, 40, 20, 8);
    for (uint32_t k = 1; k <= 5; k += short_run() ? 3 : 1) {
        struct sequence *s = runner_sequence(&r);
        struct sampler_params sp;
        struct sample samples[5], one;
        struct step_entry en = {.seq = s,
                                .ids = ids + 22,
                                .n_rows = 5,
                                .n_logits = 5,
                                .tentative = true,
                                .sampling = &sp,
                                .samples = samples};
        struct job_commit c = {.job.kind = JOB_COMMIT, .seq = s, .n_rows = k};
        struct step_entry next = {
            .seq = s, .n_rows = 1, .n_logits = 1, .sampling = &sp, .samples = &one};

        sampler_params_init(&sp);
        (void)runner_read(&r, s, ids, 22, 512, NULL);
        runner_step(&r, &en, 1);
        for (uint32_t i = 0; i < 5; i++)
            ck_assert_int_eq(samples[i].id, ids[23 + i]);
        ck_assert_int_eq(runner_job(&r, &c.job), 0);
        runner_step(&r, &next, 1);
        ck_assert_int_eq(next.status, 0);
        ck_assert_int_eq(one.id, ids[22 + k + 1]);
        runner_release(&r, s);
    }
    free(ids);
    runner_close(&r);
}
END_TEST

/* Ten steps are handed over before the first is waited for. */
START_TEST(steps_may_be_submitted_before_the_token_is_known)
{
    enum { AHEAD = 10 };
    struct runner r;
    struct sampler_params sp;
    struct sample samples[AHEAD];
    struct step_entry en[AHEAD];
    struct job_step jobs[AHEAD];
    uint32_t units[AHEAD][4];
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    sampler_params_init(&sp);
    ids = exact_ids(&r, 70, 15, 9);
    struct sequence *s = runner_sequence(&r);
    for (int i = 0; i < AHEAD; i++) {
        en[i] = (struct step_entry){.seq = s,
                                    .ids = i ? NULL : ids,
                                    .n_rows = i ? 1 : 55,
                                    .n_logits = 1,
                                    .sampling = &sp,
                                    .samples = &samples[i]};
        runner_pages(&r, &en[i], units[i]);
        jobs[i] = (struct job_step){.job.kind = JOB_STEP, .entries = &en[i], .n_entries = 1};
        ck_assert_int_eq(engine_submit(r.engine, &jobs[i].job, NULL), 0);
    }
    ck_assert_uint_eq(engine_in_flight(r.engine), AHEAD);
    for (int i = 0; i < AHEAD; i++) {
        ck_assert_ptr_eq(engine_wait(r.engine), &jobs[i].job);
        ck_assert_int_eq(en[i].status, 0);
        ck_assert_int_eq(samples[i].id, ids[55 + i]);
        for (uint32_t k = 0; k < en[i].n_units; k++)
            units_unref(engine_units(r.engine), units[i][k]);
    }
    ck_assert_uint_gt(engine_ticks(r.engine), 0);
    runner_release(&r, s);
    ck_assert_uint_eq(engine_units(r.engine)->n_free, engine_units(r.engine)->n);
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(nothing_runs_after_an_end_token)
{
    struct runner r;
    struct sampler_params sp;
    struct sample sample;
    int32_t *ids, end;

    runner_open_made(&r, &made[_i], NULL);
    ids = exact_ids(&r, 12, 2, 10);
    end = ids[11];
    sampler_params_init(&sp);
    sp.end_ids = &end;
    sp.n_end_ids = 1;
    struct sequence *s = runner_sequence(&r);
    struct step_entry en = {
        .seq = s, .ids = ids, .n_rows = 11, .n_logits = 1, .sampling = &sp, .samples = &sample};
    runner_step(&r, &en, 1);
    ck_assert_int_eq(sample.id, end);
    ck_assert(sample.end);
    struct step_entry more = {
        .seq = s, .n_rows = 1, .n_logits = 1, .sampling = &sp, .samples = &sample};
    runner_step(&r, &more, 1);
    ck_assert_int_eq(more.status, ERR_ENDED);
    ck_assert_uint_eq(sequence_length(s), 11);
    runner_release(&r, s);
    free(ids);
    runner_close(&r);
}
END_TEST

START_TEST(cancelled_rows_are_skipped_and_mates_go_on)
{
    struct runner r;
    struct sampler_params sp;
    struct sample samples[2];
    int32_t *ids;

    runner_open_made(&r, &made[_i], NULL);
    sampler_params_init(&sp);
    ids = exact_ids(&r, 80, 0, 11);
    struct sequence *a = runner_sequence(&r), *b = runner_sequence(&r);
    int32_t want;
    {
        struct sequence *c = runner_sequence(&r);
        want = runner_read(&r, c, ids, 80, 512, NULL);
        runner_release(&r, c);
    }
    sequence_cancel(a);
    struct step_entry en[2] = {
        {.seq = a,
         .ids = ids,
         .n_rows = 70,
         .n_logits = 1,
         .sampling = &sp,
         .samples = &samples[0]},
        {.seq = b,
         .ids = ids,
         .n_rows = 80,
         .n_logits = 1,
         .sampling = &sp,
         .samples = &samples[1]},
    };
    runner_step(&r, en, 2);
    ck_assert_int_eq(en[0].status, -ECANCELED);
    ck_assert_uint_eq(sequence_length(a), 0);
    ck_assert_int_eq(en[1].status, 0);
    ck_assert_int_eq(samples[1].id, want);
    runner_release(&r, a);
    runner_release(&r, b);
    ck_assert_uint_eq(engine_units(r.engine)->n_free, engine_units(r.engine)->n);
    free(ids);
    runner_close(&r);
}
END_TEST

/* A weight that is not a number: the sequence is spoilt and says so, before and after. */
START_TEST(values_that_are_not_finite_are_an_error_of_their_sequence)
{
    struct ggufw w = {0};
    struct buf bytes = {0};
    struct runner r;
    struct gguf *g;
    struct err_text e;
    struct sampler_params sp;
    struct sample sample;
    int32_t ids[] = {40, 41, 42, 43};
    const float nan_value = NAN;

    mkmodel_build(&(struct mkmodel){.family = "qwen35", .seed = 31}, &w);
    struct ggufw_tensor *t = ggufw_find(&w, "token_embd.weight");
    ck_assert_ptr_nonnull(t);
    /* Token 42 alone is bad, so a sequence without it must not suffer. */
    memcpy(t->data.data + 42 * t->dims[0] * sizeof(float), &nan_value, sizeof nan_value);
    /* Tied: the output row of 42 would spoil every row of logits. */
    ggufw_tensor(&w, "output.weight", 0, 2, (uint64_t[]){t->dims[0], t->dims[1]}, NULL,
                 t->data.len);
    ggufw_bytes(&w, &bytes);
    ggufw_done(&w);
    memset(&r, 0, sizeof r);
    ck_assert_int_eq(gguf_open_bytes(bytes.data, bytes.len, "nan", &g, &e), 0);
    ck_assert_int_eq(model_from_gguf(g, &r.model, &e), 0);
    r.n_vocab = r.model->hp.n_vocab;
    struct engine_options o = {.n_threads = 1, .n_sequences = 2, .pool_bytes = 8 << 20};
    ck_assert_int_eq(engine_open(r.model, &o, &r.engine, &e), 0);

    sampler_params_init(&sp);
    struct sequence *bad = runner_sequence(&r), *good = runner_sequence(&r);
    struct sample other;
    struct step_entry en[2] = {
        {.seq = bad, .ids = ids, .n_rows = 4, .n_logits = 1, .sampling = &sp, .samples = &sample},
        {.seq = good, .ids = ids, .n_rows = 2, .n_logits = 1, .sampling = &sp, .samples = &other},
    };
    runner_step(&r, en, 2);
    ck_assert_int_eq(en[0].status, ERR_NONFINITE);
    ck_assert_int_eq(en[1].status, 0);
    struct step_entry more = {
        .seq = bad, .ids = ids, .n_rows = 1, .n_logits = 1, .sampling = &sp, .samples = &sample};
    runner_step(&r, &more, 1);
    ck_assert_int_eq(more.status, ERR_NONFINITE);
    runner_release(&r, bad);
    runner_release(&r, good);
    runner_close(&r);
    buf_done(&bytes);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("seam");
    SRunner *sr;
    int failed;

    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, a_mounted_checkpoint_goes_on_as_if_never_stopped, 0, N_MADE);
    tcase_add_loop_test(t, units_that_went_to_host_memory_and_back_are_the_same, 0, N_MADE);
    tcase_add_loop_test(t, a_commit_of_fewer_rows_leaves_no_trace_of_the_others, 0, N_MADE);
    tcase_add_loop_test(t, after_a_commit_the_token_just_sampled_is_that_of_the_last_accepted_row,
                        0, N_MADE);
    tcase_add_loop_test(t, steps_may_be_submitted_before_the_token_is_known, 0, N_MADE);
    tcase_add_loop_test(t, nothing_runs_after_an_end_token, 0, N_MADE);
    tcase_add_loop_test(t, cancelled_rows_are_skipped_and_mates_go_on, 0, N_MADE);
    tcase_add_test(t, values_that_are_not_finite_are_an_error_of_their_sequence);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
