/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine itself: a sequence goes on from bytes, and jobs do what engine.h says. */
#include "tests/fake_engine_lab.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* --- what it does; _i is the number of units of a checkpoint --- */

START_TEST(units_hold_what_the_tokens_say)
{
    uint8_t want[LAB_MAX_CKPT * FAKE_UNIT_BYTES];
    uint32_t between[LAB_MAX_CKPT];
    struct lab_stored st;
    struct lab l;

    lab_open(&l, (uint32_t)_i);
    lab_store(&l, l.ids, 130, &st);
    for (uint32_t i = 0; i < 2; i++) {
        fake_page(l.ids, 130, i, want);
        ck_assert_int_eq(memcmp(fake_engine_unit(l.e, st.pages[i]), want, FAKE_UNIT_BYTES), 0);
    }
    if (_i) {
        struct sequence *s = lab_sequence(&l);
        struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = between};

        lab_take(&l, l.o.checkpoint_units, between);
        (void)lab_read_to(&l, s, l.ids, 130, 0, NULL);
        ck_assert_int_eq(lab_run(&l, &c.job), 0);
        ck_assert_uint_eq(c.pos, 130);
        fake_checkpoint(&l.o, l.ids, 130, want);
        for (int i = 0; i < _i; i++) {
            const uint8_t *unit = want + (size_t)i * FAKE_UNIT_BYTES;

            ck_assert_int_eq(memcmp(fake_engine_unit(l.e, st.ckpt[i]), unit, FAKE_UNIT_BYTES), 0);
            ck_assert_int_eq(memcmp(fake_engine_unit(l.e, between[i]), unit, FAKE_UNIT_BYTES), 0);
        }
        lab_release(&l, s);
        lab_drop(&l, l.o.checkpoint_units, between);
    }
    lab_drop_stored(&l, &st);
    lab_close(&l);
}
END_TEST

START_TEST(a_mounted_sequence_goes_on_as_a_cold_one)
{
    struct lab l;

    lab_open(&l, (uint32_t)_i);
    for (uint32_t pos = 1; pos <= 130; pos++) {
        struct lab_stored st;
        struct sequence *s;

        lab_store(&l, l.ids, pos, &st);
        lab_copy_tail(&l, &st);
        s = lab_mount(&l, l.ids, &st);
        ck_assert_int_eq(lab_read_to(&l, s, l.ids, LAB_N, 0, NULL),
                         fake_next(&l.o, l.ids, LAB_N, false));
        lab_release(&l, s);
        lab_drop_stored(&l, &st);
    }
    ck_assert_uint_eq(fake_engine_log(l.e)->n_mounts, 130);
    ck_assert_uint_eq(fake_engine_log(l.e)->n_mounted_tokens, 130 * 131 / 2);
    lab_close(&l);
}
END_TEST

START_TEST(units_go_to_host_memory_and_back)
{
    enum { POS = 100, PAGES = 2 };
    uint8_t host[PAGES + LAB_MAX_CKPT][FAKE_UNIT_BYTES], want[FAKE_UNIT_BYTES];
    struct transfer items[PAGES + LAB_MAX_CKPT];
    struct lab_stored st, back = {.pos = POS, .n_pages = PAGES};
    struct lab l;

    lab_open(&l, (uint32_t)_i);
    const uint32_t n = PAGES + l.o.checkpoint_units;
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = items, .n_items = n};
    lab_store(&l, l.ids, POS, &st);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct transfer){.unit = i < PAGES ? st.pages[i] : st.ckpt[i - PAGES],
                                     .host = host[i],
                                     .n_tokens = i == 1 ? POS % 64 : 0};
    ck_assert_int_eq(lab_run(&l, &j.job), 0);
    lab_drop_stored(&l, &st);
    fake_page(l.ids, POS, 1, want);
    ck_assert_int_eq(memcmp(host[1], want, sizeof want), 0);

    lab_take(&l, PAGES, back.pages);
    lab_take(&l, l.o.checkpoint_units, back.ckpt);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct transfer){.unit = i < PAGES ? back.pages[i] : back.ckpt[i - PAGES],
                                     .host = host[i]};
    j.job.kind = JOB_IMPORT;
    ck_assert_int_eq(lab_run(&l, &j.job), 0);
    struct sequence *s = lab_mount(&l, l.ids, &back);
    ck_assert_int_eq(lab_read_to(&l, s, l.ids, LAB_N, 0, NULL),
                     fake_next(&l.o, l.ids, LAB_N, false));
    lab_release(&l, s);
    lab_drop_stored(&l, &back);
    lab_close(&l);
}
END_TEST

START_TEST(a_capture_is_of_the_rows_that_ran)
{
    uint32_t ckpt[LAB_MAX_CKPT];
    struct lab_step a, b;
    struct lab l;

    lab_open(&l, (uint32_t)_i);
    struct sequence *s = lab_sequence(&l);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
    struct job_release rel = {.job.kind = JOB_RELEASE, .seq = s};
    struct lab_stored st = {.pos = 70, .n_pages = 2};
    lab_take(&l, l.o.checkpoint_units, ckpt);
    lab_step_init(&l, &a, s, l.ids, 70, 0, NULL);
    lab_step_submit(&l, &a);
    memcpy(st.pages, sequence_pages(s), sizeof(uint32_t[2]));
    units_ref(l.u, st.pages[0]);
    units_ref(l.u, st.pages[1]);
    lab_step_init(&l, &b, s, l.ids, 100, 0, NULL);
    lab_step_submit(&l, &b);
    ck_assert(fake_engine_run(l.e));
    sequence_cancel(s);
    lab_submit(&l, &c.job);
    lab_submit(&l, &rel.job);
    ck_assert_uint_eq(sequence_length(s), 100);
    while (engine_wait(l.e))
        ;
    ck_assert_int_eq(b.en.status, -ECANCELED);
    ck_assert_int_eq(c.job.status, 0);
    ck_assert_uint_eq(c.pos, 70);

    memcpy(st.ckpt, ckpt, sizeof ckpt);
    lab_copy_tail(&l, &st);
    s = lab_mount(&l, l.ids, &st);
    ck_assert_int_eq(lab_read_to(&l, s, l.ids, LAB_N, 0, NULL),
                     fake_next(&l.o, l.ids, LAB_N, false));
    lab_release(&l, s);
    lab_drop_stored(&l, &st);
    lab_close(&l);
}
END_TEST

START_TEST(a_spoilt_or_empty_sequence_gives_no_checkpoint)
{
    uint32_t ckpt[LAB_MAX_CKPT], inside[LAB_MAX_CKPT];
    uint8_t poison[FAKE_UNIT_BYTES];
    struct lab_step st;
    struct lab l;

    lab_open(&l, (uint32_t)_i);
    memset(poison, FAKE_UNIT_POISON, sizeof poison);
    struct sequence *s = lab_sequence(&l);
    struct job_capture c = {.job.kind = JOB_CAPTURE, .seq = s, .units = ckpt};
    lab_take(&l, l.o.checkpoint_units, ckpt);
    lab_take(&l, l.o.checkpoint_units, inside);
    l.ids[3] = FAKE_POISON;
    lab_step_init(&l, &st, s, l.ids, 10, 10, inside);
    lab_step_submit(&l, &st);
    ck_assert_ptr_eq(engine_wait(l.e), &st.job.job);
    ck_assert_int_eq(st.en.status, ERR_NONFINITE);
    ck_assert_int_eq(lab_run(&l, &c.job), ERR_NONFINITE);
    ck_assert_uint_eq(c.pos, 0);
    ck_assert_int_eq(memcmp(fake_engine_unit(l.e, ckpt[0]), poison, sizeof poison), 0);
    ck_assert_int_eq(memcmp(fake_engine_unit(l.e, inside[0]), poison, sizeof poison), 0);
    lab_release(&l, s);

    c.seq = s = lab_sequence(&l);
    lab_step_init(&l, &st, s, l.ids, 3, 0, NULL);
    lab_step_submit(&l, &st);
    sequence_cancel(s);
    lab_submit(&l, &c.job);
    while (engine_wait(l.e))
        ;
    ck_assert_int_eq(c.job.status, -ECANCELED);
    ck_assert_uint_eq(c.pos, 0);
    ck_assert_uint_eq(sequence_length(s), 0);
    lab_release(&l, s);
    lab_drop(&l, l.o.checkpoint_units, ckpt);
    lab_drop(&l, l.o.checkpoint_units, inside);
    lab_close(&l);
}
END_TEST

START_TEST(transfers_run_before_or_behind_steps_as_the_test_wants)
{
    uint8_t host[FAKE_UNIT_BYTES], want[FAKE_UNIT_BYTES];
    struct lab_stored st;
    struct lab_step step;
    struct lab l;

    lab_open(&l, 0);
    lab_store(&l, l.ids, 64, &st);
    fake_page(l.ids, 64, 0, want);
    for (int transfer_first = 0; transfer_first < 2; transfer_first++) {
        struct sequence *s = lab_sequence(&l);
        struct transfer t = {.unit = st.pages[0], .host = host};
        struct job_transfer x = {.job.kind = JOB_EXPORT, .items = &t, .n_items = 1};
        struct job *first = transfer_first ? &x.job : &step.job.job;

        lab_step_init(&l, &step, s, l.ids, 10, 0, NULL);
        lab_step_submit(&l, &step);
        lab_submit(&l, &x.job);
        ck_assert_int_ne(memcmp(host, want, sizeof host), 0);
        if (transfer_first) {
            /* In the middle of a step. */
            ck_assert(fake_engine_start(l.e));
            ck_assert(fake_engine_transfer(l.e));
            ck_assert(!fake_engine_transfer(l.e));
            ck_assert(fake_engine_finish(l.e));
        } else {
            ck_assert(fake_engine_start(l.e));
            ck_assert(!fake_engine_start(l.e));
            ck_assert(fake_engine_finish(l.e));
            ck_assert(!fake_engine_finish(l.e));
            ck_assert_ptr_eq(engine_reap(l.e), first);
            ck_assert_ptr_null(engine_reap(l.e));
            /* What is left is a transfer. */
            ck_assert(fake_engine_run(l.e));
            first = &x.job;
        }
        ck_assert_ptr_eq(engine_reap(l.e), first);
        ck_assert_int_eq(memcmp(host, want, sizeof host), 0);
        while (engine_reap(l.e))
            ;
        ck_assert_uint_eq(engine_in_flight(l.e), 0);
        lab_release(&l, s);
    }
    ck_assert(!fake_engine_run(l.e));
    lab_drop_stored(&l, &st);
    lab_close(&l);
}
END_TEST

START_TEST(jobs_are_refused_and_fail_as_the_test_wants)
{
    uint8_t host[FAKE_UNIT_BYTES], poison[FAKE_UNIT_BYTES];
    struct lab_stored st;
    struct lab_step step;
    struct lab l;
    uint32_t unit;

    lab_open(&l, 1);
    memset(poison, FAKE_UNIT_POISON, sizeof poison);
    memset(host, 1, sizeof host);
    lab_take(&l, 1, &unit);
    struct transfer t = {.unit = unit, .host = host};
    struct job_transfer x = {.job.kind = JOB_IMPORT, .items = &t, .n_items = 1};
    fake_engine_refuse_kind(l.e, JOB_IMPORT, -EINVAL);
    ck_assert_int_eq(engine_submit(l.e, &x.job, NULL), -EINVAL);
    ck_assert_uint_eq(l.u->refs[unit], 1);
    fake_engine_fail_kind(l.e, JOB_IMPORT, ERR_DEVICE);
    ck_assert_int_eq(lab_run(&l, &x.job), ERR_DEVICE);
    ck_assert_int_eq(memcmp(fake_engine_unit(l.e, unit), poison, sizeof poison), 0);
    ck_assert_int_eq(lab_run(&l, &x.job), 0);
    ck_assert_int_eq(memcmp(fake_engine_unit(l.e, unit), host, sizeof host), 0);
    lab_drop(&l, 1, &unit);

    lab_store(&l, l.ids, 64, &st);
    struct sequence *s = lab_sequence(&l);
    struct job_mount m = lab_mount_job(s, l.ids, &st);
    fake_engine_fail_kind(l.e, JOB_MOUNT, ERR_DEVICE);
    lab_submit(&l, &m.job);
    lab_step_init(&l, &step, s, l.ids, 80, 0, NULL);
    lab_step_submit(&l, &step);
    while (engine_wait(l.e))
        ;
    ck_assert_int_eq(m.job.status, ERR_DEVICE);
    ck_assert_int_eq(step.en.status, -ECANCELED);
    lab_release(&l, s);
    lab_drop_stored(&l, &st);
    lab_close(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fake_engine");
    TCase *t = tcase_create("fake");
    SRunner *sr;
    int failed;

    tcase_add_loop_test(t, units_hold_what_the_tokens_say, 0, LAB_MAX_CKPT);
    tcase_add_loop_test(t, a_mounted_sequence_goes_on_as_a_cold_one, 0, LAB_MAX_CKPT);
    tcase_add_loop_test(t, units_go_to_host_memory_and_back, 0, LAB_MAX_CKPT);
    tcase_add_loop_test(t, a_capture_is_of_the_rows_that_ran, 1, LAB_MAX_CKPT);
    tcase_add_loop_test(t, a_spoilt_or_empty_sequence_gives_no_checkpoint, 1, LAB_MAX_CKPT);
    tcase_add_test(t, transfers_run_before_or_behind_steps_as_the_test_wants);
    tcase_add_test(t, jobs_are_refused_and_fail_as_the_test_wants);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
