/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler does when there is not room for everybody: in the pool, the context, the
 * queue. */
#include "tests/sched_world.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct world_options usual = {
    .engine = {.n_units = 64,
               .context = 1024,
               .max_rows = 512,
               .n_sequences = 4,
               .n_vocab = WORLD_VOCAB,
               .seed = 1},
    .sched = {.parallel = 4, .max_gap_ms = 200, .max_queued = 16},
};

START_TEST(what_can_never_fit_is_refused_with_both_numbers)
{
    struct world_options o = usual;
    struct err_text e;
    struct world *w;
    struct client *c;

    o.engine.n_units = 4;
    w = world_new(&o);

    c = client_new(w, 1024, 5);
    ck_assert_int_eq(client_submit(c, &e), -E2BIG);
    ck_assert_str_eq(e.s, "the prompt has 1024 tokens, the context holds 1024");
    c = client_new(w, 300, 5);
    ck_assert_int_eq(client_submit(c, &e), ERR_CAPACITY);
    ck_assert_str_eq(e.s, "the prompt of 300 tokens needs 5 pages, the pool has 4");
    c = client_new(w, 3, 5);
    c->r->prompt.ids[1] = WORLD_VOCAB;
    ck_assert_int_eq(client_submit(c, &e), -EINVAL);
    ck_assert_ptr_null(strstr(e.s, "prompt is empty"));
    c->r->prompt.n = 0;
    ck_assert_int_eq(client_submit(c, &e), -EINVAL);
    ck_assert_str_eq(e.s, "the prompt is empty");

    /* The whole pool, to its last row; the last token takes none. */
    c = client_new(w, 190, UINT32_MAX);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    client_check(c);
    ck_assert_uint_eq(c->r->n_generated, 4 * 64 - 190 + 1);
    ck_assert_uint_eq(w->n_submitted, 1);
    world_free(w);
}
END_TEST

START_TEST(more_than_max_queued_are_refused)
{
    struct world_options o = usual;
    struct err_text e;
    struct world *w;

    o.sched.max_queued = 3;
    w = world_new(&o);
    for (uint32_t i = 0; i < o.sched.parallel + 3; i++)
        ck_assert_int_eq(client_submit(client_new(w, 10, 5), NULL), 0);
    ck_assert_int_eq(client_submit(client_new(w, 10, 5), &e), -EAGAIN);
    world_turn(w);
    ck_assert_int_eq(client_submit(client_new(w, 10, 5), &e), -EAGAIN);
    world_run(w);
    ck_assert_int_eq(client_submit(client_new(w, 10, 5), &e), 0);
    world_run(w);
    world_free(w);
}
END_TEST

START_TEST(when_the_pool_is_out_the_youngest_is_parked_and_nobody_fails)
{
    struct world_options o = usual;
    struct sched_totals t;
    struct world *w;
    struct client *c[3];

    /* Three of 100 + 200 tokens want 15 pages; there are 8. */
    o.engine.n_units = 8;
    w = world_new(&o);
    for (int i = 0; i < 3; i++) {
        c[i] = client_new(w, 100, 200);
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_run(w);
    for (int i = 0; i < 3; i++) {
        client_check(c[i]);
        ck_assert_int_eq(c[i]->r->finish, FINISH_LENGTH);
        ck_assert_uint_eq(c[i]->r->n_generated, 200);
    }
    sched_totals(w->sched, &t);
    ck_assert_uint_gt(t.parked, 0);
    /* The oldest was first, and rows were read again. */
    ck_assert_uint_lt(c[0]->done_at, c[1]->done_at);
    ck_assert_uint_lt(c[1]->done_at, c[2]->done_at);
    ck_assert_uint_gt(fake_engine_log(w->engine)->n_rows, 3 * 299);
    world_free(w);
}
END_TEST

START_TEST(a_paused_request_makes_way_when_pages_are_short)
{
    struct world_options o = usual;
    struct world *w;
    struct client *old, *young;

    o.engine.n_units = 6;
    w = world_new(&o);
    old = client_new(w, 200, 100);
    young = client_new(w, 60, 200);
    ck_assert_int_eq(client_submit(old, NULL), 0);
    ck_assert_int_eq(client_submit(young, NULL), 0);
    world_turn(w);
    for (int i = 0; i < 8; i++) {
        (void)fake_engine_run(w->engine);
        world_turn(w);
    }
    sched_pause(w->sched, old->r);
    world_run(w);
    ck_assert_int_eq(young->r->finish, FINISH_LENGTH);
    ck_assert_int_eq(old->r->state, REQUEST_QUEUED);
    sched_resume(w->sched, old->r);
    world_run(w);
    client_check(young);
    client_check(old);
    ck_assert_int_eq(old->r->finish, FINISH_LENGTH);
    world_free(w);
}
END_TEST

START_TEST(a_parked_request_goes_on_before_those_who_have_not_begun)
{
    struct world_options o = usual;
    struct world *w;
    struct client *c[4];

    /* Two slots; the second request has to leave while two more wait. */
    o.engine.n_units = 6;
    o.sched.parallel = 2;
    w = world_new(&o);
    for (int i = 0; i < 4; i++) {
        c[i] = client_new(w, 100, 200);
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_turn(w);
    while (c[1]->r->state != REQUEST_QUEUED) {
        ck_assert(fake_engine_run(w->engine));
        world_turn(w);
    }
    ck_assert_uint_gt(c[1]->r->n_generated, 0);
    while (c[1]->r->state == REQUEST_QUEUED) {
        ck_assert_int_eq(c[2]->r->state, REQUEST_QUEUED);
        ck_assert(fake_engine_run(w->engine));
        world_turn(w);
    }
    world_run(w);
    for (int i = 0; i < 4; i++) {
        client_check(c[i]);
        ck_assert_uint_eq(c[i]->done_at, i + 1);
    }
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched_pages");
    TCase *tc = tcase_create("sched_pages");
    SRunner *sr;
    int n_failed;

    tcase_add_test(tc, what_can_never_fit_is_refused_with_both_numbers);
    tcase_add_test(tc, more_than_max_queued_are_refused);
    tcase_add_test(tc, when_the_pool_is_out_the_youngest_is_parked_and_nobody_fails);
    tcase_add_test(tc, a_paused_request_makes_way_when_pages_are_short);
    tcase_add_test(tc, a_parked_request_goes_on_before_those_who_have_not_begun);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
