/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler over the fake engine, one situation at a time; check_sched_random.c mixes them all.
 */
#include "tests/sched_world.h"

#include "util/clock.h"

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

START_TEST(a_request_gives_the_tokens_of_a_cold_run)
{
    struct world *w = world_new(&usual);
    struct client *c = client_new(w, 100, 30);

    ck_assert_int_eq(client_submit(c, NULL), 0);
    ck_assert_int_eq(c->r->state, REQUEST_QUEUED);
    world_run(w);
    client_check(c);
    ck_assert_int_eq(c->r->finish, FINISH_LENGTH);
    ck_assert_uint_eq(c->r->n_generated, 30);
    ck_assert_uint_eq(c->r->n_read, 100);
    /* The last token is sampled and not read: no row too many. */
    ck_assert_uint_eq(fake_engine_log(w->engine)->n_rows, 100 + 29);
    ck_assert_uint_gt(c->n_progress, 0);
    ck_assert_uint_gt(c->n_output, 0);
    ck_assert_uint_eq(c->n_done, 1);
    world_free(w);
}
END_TEST

START_TEST(the_engine_never_waits_for_the_planner)
{
    struct world *w = world_new(&usual);
    struct client *c = client_new(w, 10, 30);

    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_turn(w);
    /* The prompt, and the row of a token that nobody knows yet. */
    ck_assert_uint_eq(fake_engine_log(w->engine)->steps_in_flight, 2);
    (void)fake_engine_run(w->engine);
    world_turn(w);
    ck_assert_uint_eq(fake_engine_log(w->engine)->steps_in_flight, 2);
    world_run(w);
    client_check(c);
    world_free(w);
}
END_TEST

START_TEST(an_end_token_ends_the_request_and_its_surplus_row_is_skipped)
{
    struct world_options o = usual;
    struct world *w;
    struct client *c;

    o.engine.end_every = 6;
    w = world_new(&o);
    c = client_new(w, 20, 500);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    client_check(c);
    ck_assert_int_eq(c->r->finish, FINISH_STOP);
    ck_assert_int_eq(c->r->stop_token, FAKE_END);
    ck_assert_int_eq(c->r->tokens[c->r->n_tokens - 1].id, FAKE_END);
    world_free(w);
}
END_TEST

START_TEST(ignore_eos_makes_end_tokens_impossible)
{
    struct world_options o = usual;
    struct world *w;
    struct client *c;

    o.engine.end_every = 3;
    w = world_new(&o);
    c = client_new(w, 20, 50);
    c->r->ignore_eos = true;
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    client_check(c);
    ck_assert_int_eq(c->r->finish, FINISH_LENGTH);
    ck_assert_uint_eq(c->r->n_generated, 50);
    world_free(w);
}
END_TEST

START_TEST(a_request_for_no_tokens_reads_its_prompt_and_ends)
{
    struct world *w = world_new(&usual);
    struct client *c = client_new(w, 130, 0);

    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    ck_assert_int_eq(c->r->finish, FINISH_LENGTH);
    ck_assert_uint_eq(c->r->n_read, 130);
    ck_assert_uint_eq(c->r->n_tokens, 0);
    world_free(w);
}
END_TEST

START_TEST(without_max_tokens_a_request_fills_the_context)
{
    struct world_options o = usual;
    struct world *w;
    struct client *c;

    o.engine.context = 150;
    w = world_new(&o);
    c = client_new(w, 100, UINT32_MAX);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    client_check(c);
    ck_assert_int_eq(c->r->finish, FINISH_LENGTH);
    ck_assert_uint_eq(c->r->n_generated, 50);
    world_free(w);
}
END_TEST

START_TEST(a_prompt_is_read_in_chunks_of_64_while_another_decodes)
{
    struct world_options o = usual;
    struct world *w;
    struct client *a, *b;

    o.engine.ns_per_row = 1000;
    w = world_new(&o);
    a = client_new(w, 10, 200);
    b = client_new(w, 600, 5);
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_turn(w);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_turn(w);
    for (uint32_t at = b->r->n_read; at < 600; at = b->r->n_read) {
        (void)fake_engine_run(w->engine);
        world_turn(w);
        ck_assert_uint_le(b->r->n_read - at, 64);
        ck_assert_uint_le(fake_engine_log(w->engine)->last_rows, 64 + 2);
    }
    /* It was read in ten steps, and the other one got a token in each. */
    ck_assert_uint_ge(a->r->n_generated, 10);
    world_run(w);
    client_check(a);
    client_check(b);
    world_free(w);
}
END_TEST

/* Each row takes 1 ms: 192 rows stay under 200 ms, and with 20 ms one chunk is the least. */
START_TEST(alone_a_prompt_is_read_in_steps_as_long_as_max_gap_allows)
{
    static const struct {
        uint32_t max_gap_ms;
        uint64_t ns_per_row;
        uint32_t rows;
    } cases[] = {{200, 1000000, 192}, {20, 1000000, 64}, {200, 1000, 512}, {129, 1000000, 128}};
    struct world_options o = usual;
    struct world *w;
    struct client *c;
    uint32_t most = 0;

    o.sched.max_gap_ms = cases[_i].max_gap_ms;
    o.engine.ns_per_row = cases[_i].ns_per_row;
    o.engine.context = 4000;
    w = world_new(&o);
    c = client_new(w, 3000, 2);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_turn(w);
    while (fake_engine_run(w->engine)) {
        most = fake_engine_log(w->engine)->last_rows > most ? fake_engine_log(w->engine)->last_rows
                                                            : most;
        world_turn(w);
    }
    ck_assert_uint_eq(most, cases[_i].rows);
    world_run(w);
    client_check(c);
    world_free(w);
}
END_TEST

START_TEST(several_prompts_share_the_rows_fairly)
{
    struct world *w = world_new(&usual);
    struct client *c[3];

    for (int i = 0; i < 3; i++) {
        c[i] = client_new(w, 640, 3);
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_turn(w);
    while (c[2]->r->state == REQUEST_QUEUED || c[2]->r->state == REQUEST_READING) {
        uint32_t most = 0, least = UINT32_MAX;

        for (int i = 0; i < 3; i++) {
            most = c[i]->r->n_read > most ? c[i]->r->n_read : most;
            least = c[i]->r->n_read < least ? c[i]->r->n_read : least;
        }
        ck_assert_uint_le(most - least, 64);
        ck_assert(fake_engine_run(w->engine));
        world_turn(w);
    }
    world_run(w);
    for (int i = 0; i < 3; i++)
        client_check(c[i]);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_request_ends_within_one_step_and_alone)
{
    struct world_options o = usual;
    struct world *w;
    struct client *a, *b, *queued;
    uint64_t rows;

    o.sched.parallel = 2;
    w = world_new(&o);
    a = client_new(w, 900, 100);
    b = client_new(w, 10, 100);
    queued = client_new(w, 10, 100);
    ck_assert_int_eq(client_submit(a, NULL), 0);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    ck_assert_int_eq(client_submit(queued, NULL), 0);
    world_turn(w);
    (void)fake_engine_start(w->engine);
    rows = fake_engine_log(w->engine)->n_rows;

    sched_cancel(w->sched, a->r);
    sched_cancel(w->sched, queued->r);
    sched_cancel(w->sched, queued->r);
    ck_assert_uint_eq(a->n_done, 0);
    ck_assert_uint_eq(queued->n_done, 0);
    world_turn(w);
    ck_assert_uint_eq(a->n_done, 1);
    ck_assert_uint_eq(queued->n_done, 1);
    ck_assert_int_eq(queued->r->finish, FINISH_CANCELLED);
    /* The step that was running ends; then not one more row of it. */
    (void)fake_engine_finish(w->engine);
    world_turn(w);
    (void)fake_engine_run(w->engine);
    ck_assert_uint_le(fake_engine_log(w->engine)->n_rows - rows, 11);
    world_run(w);
    client_check(a);
    client_check(b);
    ck_assert_int_eq(b->r->finish, FINISH_LENGTH);
    ck_assert_uint_eq(a->n_done, 1);
    world_free(w);
}
END_TEST

START_TEST(a_paused_request_gets_no_rows_and_goes_on_when_resumed)
{
    struct world *w = world_new(&usual);
    struct client *a = client_new(w, 10, 60), *b = client_new(w, 10, 60);
    uint32_t at;

    ck_assert_int_eq(client_submit(a, NULL), 0);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_turn(w);
    for (int i = 0; i < 5; i++) {
        (void)fake_engine_run(w->engine);
        world_turn(w);
    }
    sched_pause(w->sched, a->r);
    at = a->r->n_generated;
    world_run(w);
    ck_assert_uint_le(a->r->n_generated, at + 2);
    ck_assert_uint_eq(a->n_done, 0);
    client_check(b);
    ck_assert_int_eq(b->r->finish, FINISH_LENGTH);
    sched_resume(w->sched, a->r);
    world_run(w);
    client_check(a);
    ck_assert_int_eq(a->r->finish, FINISH_LENGTH);
    world_free(w);
}
END_TEST

START_TEST(logits_that_are_not_finite_end_their_own_request_only)
{
    struct world *w = world_new(&usual);
    struct client *a = client_new(w, 100, 20), *b = client_new(w, 100, 20);

    a->r->prompt.ids[70] = FAKE_POISON;
    ck_assert_int_eq(client_submit(a, NULL), 0);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_run(w);
    ck_assert_int_eq(a->r->finish, FINISH_ERROR);
    ck_assert_int_eq(a->r->error, ERR_NONFINITE);
    ck_assert_ptr_nonnull(strstr(a->r->error_text.s, "not finite"));
    client_check(b);
    ck_assert_int_eq(b->r->finish, FINISH_LENGTH);
    world_free(w);
}
END_TEST

START_TEST(a_step_that_is_refused_or_fails_ends_its_requests_and_no_more)
{
    struct world *w = world_new(&usual);
    struct client *a = client_new(w, 100, 20), *b;

    if (_i == 0)
        fake_engine_refuse(w->engine, -EINVAL);
    else
        fake_engine_fail(w->engine, ERR_DEVICE);
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_run(w);
    ck_assert_int_eq(a->r->finish, FINISH_ERROR);
    ck_assert_int_eq(a->r->error, _i == 0 ? -EINVAL : ERR_DEVICE);
    ck_assert_uint_gt(strlen(a->r->error_text.s), 0);
    ck_assert_uint_eq(engine_units(w->engine)->n_free, 64);

    b = client_new(w, 100, 20);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_run(w);
    client_check(b);
    ck_assert_int_eq(b->r->finish, FINISH_LENGTH);
    world_free(w);
}
END_TEST

static void count(void *arg)
{
    ++*(unsigned int *)arg;
}

START_TEST(a_stop_ends_or_drains_what_runs_and_then_says_so_once)
{
    struct world *w = world_new(&usual);
    struct client *c[6];
    unsigned int n_idle = 0;

    for (int i = 0; i < 6; i++) {
        c[i] = client_new(w, 100, 20);
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_turn(w);
    sched_stop(w->sched, _i == 0, count, &n_idle);
    ck_assert_uint_eq(n_idle, 0);
    ck_assert_int_eq(client_submit(client_new(w, 10, 1), NULL), -ESHUTDOWN);
    world_run(w);
    ck_assert_uint_eq(n_idle, 1);
    for (int i = 0; i < 6; i++) {
        client_check(c[i]);
        ck_assert_int_eq(c[i]->r->finish, _i == 0 ? FINISH_CANCELLED : FINISH_LENGTH);
    }
    world_free(w);
}
END_TEST

START_TEST(an_idle_scheduler_that_is_stopped_says_so_from_the_loop)
{
    struct world *w = world_new(&usual);
    unsigned int n_idle = 0;

    sched_stop(w->sched, true, count, &n_idle);
    ck_assert_uint_eq(n_idle, 0);
    world_turn(w);
    ck_assert_uint_eq(n_idle, 1);
    world_free(w);
}
END_TEST

START_TEST(the_watchdog_is_content_while_idle_or_moving_and_not_when_stuck)
{
    struct world *w = world_new(&usual);
    struct client *c = client_new(w, 10, 60);

    ck_assert(sched_is_alive(w->sched));
    ck_assert(sched_is_alive(w->sched));
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_turn(w);
    /* It was idle until a moment ago. */
    ck_assert(sched_is_alive(w->sched));
    ck_assert(!sched_is_alive(w->sched));
    (void)fake_engine_start(w->engine);
    ck_assert(sched_is_alive(w->sched));
    ck_assert(!sched_is_alive(w->sched));
    world_run(w);
    ck_assert(sched_is_alive(w->sched));
    ck_assert(sched_is_alive(w->sched));
    world_free(w);
}
END_TEST

START_TEST(slots_and_totals_say_what_happened)
{
    struct world *w = world_new(&usual);
    struct client *c = client_new(w, 70, 10);
    struct sched_totals t;
    struct slot_info info;

    c->r->uid = 1234;
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_turn(w);
    ck_assert_uint_eq(sched_n_slots(w->sched), 4);
    sched_slot(w->sched, 0, &info);
    ck_assert_int_eq(info.state, REQUEST_READING);
    ck_assert_uint_eq(info.request_id, c->r->id);
    ck_assert_uint_eq(info.uid, 1234);
    ck_assert_uint_eq(info.n_prompt, 70);
    ck_assert_uint_eq(info.n_pages, 2);
    sched_slot(w->sched, 1, &info);
    ck_assert_int_eq(info.state, REQUEST_NEW);
    sched_totals(w->sched, &t);
    ck_assert_uint_eq(t.running, 1);
    ck_assert_uint_eq(t.units_used, 2);
    world_run(w);
    sched_totals(w->sched, &t);
    ck_assert_uint_eq(t.requests, 1);
    ck_assert_uint_eq(t.finished, 1);
    ck_assert_uint_eq(t.prompt_tokens, 70);
    ck_assert_uint_eq(t.generated_tokens, 10);
    ck_assert_uint_eq(t.running, 0);
    ck_assert_uint_eq(t.units_used, 0);
    world_free(w);
}
END_TEST

START_TEST(times_are_in_the_order_of_a_request_s_life)
{
    uint64_t now = 1;
    struct world *w;
    struct client *c;

    clock_set_fake(&now);
    w = world_new(&usual);
    c = client_new(w, 100, 3);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    now++;
    world_turn(w);
    do {
        now++;
        world_turn(w);
    } while (fake_engine_run(w->engine));
    ck_assert_uint_eq(c->r->t_submit, 1);
    ck_assert_uint_eq(c->r->t_start, 2);
    ck_assert_uint_gt(c->r->t_prompt_done, c->r->t_start);
    ck_assert_uint_eq(c->r->t_first, c->r->t_prompt_done);
    ck_assert_uint_gt(c->r->t_last, c->r->t_first);
    world_free(w);
    clock_set_fake(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched");
    TCase *tc = tcase_create("sched");
    SRunner *sr;
    int n_failed;

    tcase_add_test(tc, a_request_gives_the_tokens_of_a_cold_run);
    tcase_add_test(tc, the_engine_never_waits_for_the_planner);
    tcase_add_test(tc, an_end_token_ends_the_request_and_its_surplus_row_is_skipped);
    tcase_add_test(tc, ignore_eos_makes_end_tokens_impossible);
    tcase_add_test(tc, a_request_for_no_tokens_reads_its_prompt_and_ends);
    tcase_add_test(tc, without_max_tokens_a_request_fills_the_context);
    tcase_add_test(tc, a_prompt_is_read_in_chunks_of_64_while_another_decodes);
    tcase_add_loop_test(tc, alone_a_prompt_is_read_in_steps_as_long_as_max_gap_allows, 0, 4);
    tcase_add_test(tc, several_prompts_share_the_rows_fairly);
    tcase_add_test(tc, a_cancelled_request_ends_within_one_step_and_alone);
    tcase_add_test(tc, a_paused_request_gets_no_rows_and_goes_on_when_resumed);
    tcase_add_test(tc, logits_that_are_not_finite_end_their_own_request_only);
    tcase_add_loop_test(tc, a_step_that_is_refused_or_fails_ends_its_requests_and_no_more, 0, 2);
    tcase_add_loop_test(tc, a_stop_ends_or_drains_what_runs_and_then_says_so_once, 0, 2);
    tcase_add_test(tc, an_idle_scheduler_that_is_stopped_says_so_from_the_loop);
    tcase_add_test(tc, the_watchdog_is_content_while_idle_or_moving_and_not_when_stuck);
    tcase_add_test(tc, slots_and_totals_say_what_happened);
    tcase_add_test(tc, times_are_in_the_order_of_a_request_s_life);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
