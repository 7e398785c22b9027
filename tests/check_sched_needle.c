/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler over the real engine and a real model: several of the goldens at once over four
 * slots, with room for all and with a pool so small that requests are parked, give exactly the ids
 * that each gives alone.
 */
#include "daemon/sched.h"
#include "tests/golden.h"
#include "tests/runner.h"

#include <check.h>
#include <stdlib.h>
#include <systemd/sd-event.h>

enum { N_SLOTS = 4 };

/* Longer prompts would take too long here. */
enum { LONG_PROMPT = 300, SHORT_PROMPT = 180 };

static size_t max_prompt(void)
{
    return getenv("STRATA_TEST_SHORT") ? SHORT_PROMPT : LONG_PROMPT;
}

struct room {
    sd_event *event;
    struct runner runner;
    struct tokenizer *tokenizer;
    struct sched *sched;
    struct golden *goldens; /* owned, [n] */
    struct request **r;     /* owned, [n]; NULL for those that would take too long here */
    size_t n;
    unsigned int n_running;
};

static void on_done(struct request *r, void *arg)
{
    struct room *room = arg;

    (void)r;
    room->n_running--;
}

static void submit(struct room *room, size_t i)
{
    const struct golden *g = &room->goldens[i];
    struct request *r = request_new();

    ck_assert_ptr_nonnull(r);
    room->r[i] = r;
    r->observer = (struct request_observer){.done = on_done, .arg = room};
    r->max_tokens = (uint32_t)g->greedy.n;
    for (size_t k = 0; k < g->prompt.n; k++)
        ck_assert_int_eq(token_list_add(&r->prompt, g->prompt.ids[k]), 0);
    ck_assert_int_eq(sched_submit(room->sched, r, NULL), 0);
    room->n_running++;
}

static void open_room(struct room *room, uint32_t n_units)
{
    const struct runner_options o = {.n_threads = 2,
                                     .n_sequences = N_SLOTS,
                                     .max_rows = 128,
                                     .context = 1024,
                                     .n_units = n_units};
    const struct sched_options so = {.parallel = N_SLOTS, .max_gap_ms = 200, .max_queued = 100};
    struct err_text e = {""};

    *room = (struct room){0};
    ck_assert_int_ge(sd_event_new(&room->event), 0);
    runner_open(&room->runner, golden_path("needle-f16.gguf"), &o);
    ck_assert_msg(tokenizer_new(room->runner.model->gguf, &room->tokenizer, &e) == 0, "%s", e.s);
    ck_assert_int_eq(
        sched_new(room->event, room->runner.engine, room->tokenizer, &so, &room->sched), 0);
    room->n = golden_load("needle.jsonl", &room->goldens);
    room->r = calloc(room->n, sizeof *room->r);
}

static void on_idle(void *arg)
{
    *(bool *)arg = true;
}

static void close_room(struct room *room, uint32_t n_units)
{
    bool idle = false;

    sched_stop(room->sched, false, on_idle, &idle);
    while (!idle)
        ck_assert_int_ge(sd_event_run(room->event, UINT64_MAX), 0);
    ck_assert_uint_eq(engine_units(room->runner.engine)->n_free, n_units);
    sched_free(room->sched);
    tokenizer_free(room->tokenizer);
    runner_close(&room->runner);
    (void)sd_event_unref(room->event);
    for (size_t i = 0; i < room->n; i++)
        (void)request_unref(room->r[i]);
    free(room->r);
    golden_free(room->goldens, room->n);
}

static void check_case(const struct room *room, size_t i)
{
    const struct token_list *ids = &room->goldens[i].greedy;
    const struct request *r = room->r[i];

    ck_assert_msg(r->finish == FINISH_STOP || r->finish == FINISH_LENGTH, "case %zu: %s", i,
                  r->error_text.s);
    ck_assert_uint_eq(r->n_tokens, ids->n);
    for (size_t k = 0; k < ids->n; k++)
        ck_assert_msg(r->tokens[k].id == ids->ids[k], "case %zu: token %zu is %d, expected %d", i,
                      k, r->tokens[k].id, ids->ids[k]);
}

/* With 9 units those that run together want more pages than there are. */
START_TEST(goldens_side_by_side_give_their_own_tokens)
{
    static const uint32_t n_units[] = {200, 9};
    struct sched_totals t;
    struct room room;

    open_room(&room, n_units[_i]);
    for (size_t i = 0; i < room.n; i++)
        if (room.goldens[i].prompt.n <= max_prompt())
            submit(&room, i);
    ck_assert_uint_gt(room.n_running, N_SLOTS);
    while (room.n_running > 0)
        ck_assert_int_ge(sd_event_run(room.event, UINT64_MAX), 0);
    sched_totals(room.sched, &t);
    /* Short prompts may get by with waiting for pages; the long ones cannot. */
    if (_i == 0 || max_prompt() >= LONG_PROMPT)
        ck_assert_int_eq(t.parked > 0, _i == 1);
    for (size_t i = 0; i < room.n; i++)
        if (room.r[i])
            check_case(&room, i);
    close_room(&room, n_units[_i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched_needle");
    TCase *tc = tcase_create("sched_needle");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, goldens_side_by_side_give_their_own_tokens, 0, 2);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
