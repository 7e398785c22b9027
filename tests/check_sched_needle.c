/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler over the real engine and a real model: several of the goldens at once over four slots, with
 * room for all and with a pool so small that requests are parked, give exactly the ids that each gives alone.
 */
#include "daemon/sched.h"
#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/model.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

enum { MAX_CASES = 30, N_SLOTS = 4, MAX_PROMPT = 300 };

struct golden {
    struct request *r; /* refcounted */
    int32_t *ids;      /* owned, [n_ids]: what greedy decoding gives */
    size_t n_ids;
};

struct room {
    sd_event *event;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct sched *sched;
    struct golden cases[MAX_CASES];
    size_t n_cases;
    unsigned int n_done;
};

static const char *data_path(char *buf, size_t size, const char *name)
{
    const char *top = getenv("SRCDIR");

    (void)snprintf(buf, size, "%s/tests/data/%s", top ? top : ".", name);
    return buf;
}

static void on_done(struct request *r, void *arg)
{
    struct room *room = arg;

    (void)r;
    room->n_done++;
}

static void add_case(struct room *room, const json_t *line)
{
    struct golden *g = &room->cases[room->n_cases];
    const json_t *prompt = json_object_get(line, "prompt_ids"), *ids = json_object_get(line, "greedy_ids"), *v;
    size_t i;

    if (json_array_size(prompt) > MAX_PROMPT || room->n_cases == MAX_CASES)
        return;
    room->n_cases++;
    g->r = request_new();
    g->r->observer = (struct request_observer){.done = on_done, .arg = room};
    json_array_foreach(prompt, i, v)
        ck_assert_int_eq(token_list_add(&g->r->prompt, (int32_t)json_integer_value(v)), 0);
    g->n_ids = json_array_size(ids);
    g->ids = calloc(g->n_ids, sizeof *g->ids);
    json_array_foreach(ids, i, v)
        g->ids[i] = (int32_t)json_integer_value(v);
    g->r->max_tokens = (uint32_t)g->n_ids;
}

static void read_cases(struct room *room)
{
    char path[4096], *line = NULL;
    FILE *f = fopen(data_path(path, sizeof path, "needle.jsonl"), "re");
    size_t cap = 0;

    ck_assert_ptr_nonnull(f);
    while (getline(&line, &cap, f) > 0) {
        json_t *j = json_loads(line, 0, NULL);

        ck_assert_ptr_nonnull(j);
        add_case(room, j);
        json_decref(j);
    }
    free(line);
    (void)fclose(f);
    ck_assert_uint_gt(room->n_cases, N_SLOTS);
}

static void open_room(struct room *room, uint32_t n_units)
{
    struct engine_options o = {.n_threads = 2, .n_sequences = N_SLOTS, .max_rows = 128, .context = 1024};
    struct sched_options so = {.parallel = N_SLOTS, .max_gap_ms = 200, .max_queued = MAX_CASES};
    struct engine_plan plan;
    struct err_text e = {0};
    char path[4096];

    *room = (struct room){0};
    ck_assert_int_ge(sd_event_new(&room->event), 0);
    ck_assert_msg(model_open(data_path(path, sizeof path, "needle-f16.gguf"), &room->model, &e) == 0, "%s", e.s);
    ck_assert_msg(tokenizer_new(room->model->gguf, &room->tokenizer, &e) == 0, "%s", e.s);
    ck_assert_msg(engine_plan(room->model, &o, &plan, &e) == 0, "%s", e.s);
    o.pool_bytes = plan.unit_bytes * n_units;
    ck_assert_msg(engine_open(room->model, &o, &room->engine, &e) == 0, "%s", e.s);
    ck_assert_int_eq(sched_new(room->event, room->engine, room->tokenizer, &so, &room->sched), 0);
    read_cases(room);
}

static void on_idle(void *arg)
{
    *(bool *)arg = true;
}

static void close_room(struct room *room)
{
    bool idle = false;

    sched_stop(room->sched, false, on_idle, &idle);
    while (!idle)
        ck_assert_int_ge(sd_event_run(room->event, UINT64_MAX), 0);
    ck_assert_uint_eq(engine_units(room->engine)->n_free, engine_units(room->engine)->n);
    sched_free(room->sched);
    engine_close(room->engine);
    tokenizer_free(room->tokenizer);
    model_free(room->model);
    (void)sd_event_unref(room->event);
    for (size_t i = 0; i < room->n_cases; i++) {
        (void)request_unref(room->cases[i].r);
        free(room->cases[i].ids);
    }
}

/* With 9 units those that run together want more pages than there are. */
START_TEST(goldens_side_by_side_give_their_own_tokens)
{
    static const uint32_t n_units[] = {200, 9};
    struct sched_totals t;
    struct room room;

    open_room(&room, n_units[_i]);
    for (size_t i = 0; i < room.n_cases; i++)
        ck_assert_int_eq(sched_submit(room.sched, room.cases[i].r, NULL), 0);
    while (room.n_done < room.n_cases)
        ck_assert_int_ge(sd_event_run(room.event, UINT64_MAX), 0);
    sched_totals(room.sched, &t);
    ck_assert_int_eq(t.parked > 0, _i == 1);
    for (size_t i = 0; i < room.n_cases; i++) {
        const struct golden *g = &room.cases[i];

        ck_assert_msg(g->r->finish == FINISH_STOP || g->r->finish == FINISH_LENGTH, "case %zu: %s", i,
                      g->r->error_text.s);
        ck_assert_uint_eq(g->r->n_tokens, g->n_ids);
        for (size_t k = 0; k < g->n_ids; k++)
            ck_assert_msg(g->r->tokens[k].id == g->ids[k], "case %zu: token %zu is %d, expected %d", i, k,
                          g->r->tokens[k].id, g->ids[k]);
    }
    close_room(&room);
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
