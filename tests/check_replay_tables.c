/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The situations that the cache exists for, each with the table that it has to give
 * (data/replay-expected.json, worked out from the design).  _i even: a pure attention model, odd: a
 * hybrid.
 */
#include "tests/sched_world.h"

#include "util/buf.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER = 8 };

/* What happened, a line for each request. */
struct table {
    struct world *w;
    struct buf lines;
};

static void put_line(struct buf *to, const char *name, json_int_t prompt, json_int_t reused,
                     json_int_t read, const char *source, bool is_switch, bool is_hit)
{
    ck_assert_int_ge(buf_addf(to, "%-8s %5d = %5d + %5d  %-8s %s\n", name, (int)prompt, (int)reused,
                              (int)read, source,
                              is_hit ? "hit" : (is_switch ? "miss" : "continuation")),
                     0);
}

static void put_sums(struct buf *to, uint64_t evictions, uint64_t superseded, uint64_t roots)
{
    ck_assert_int_ge(buf_addf(to, "evictions %d, superseded %d, roots %d\n", (int)evictions,
                              (int)superseded, (int)roots),
                     0);
}

/* Asks with `prompt`: a system prompt of `root` tokens (0: none), and 5 that open the answer. */
static struct client *ask(struct table *t, const char *name, const struct text *prompt,
                          uint32_t root, uint32_t n_answer)
{
    struct client *c = client_of(t->w, prompt, n_answer);
    const struct decision *x;

    c->r->bounds = (struct boundaries){root, prompt->n - 5, prompt->n - 5};
    ck_assert_int_eq(client_submit(c, NULL), 0);
    while (c->n_done == 0)
        ck_assert(world_step(t->w));
    /* What is left to do in the background is done before the next one comes. */
    for (int i = 0; i < 50; i++)
        (void)world_step(t->w);
    client_check(c);
    x = c->r->decision;
    ck_assert(!x->is_hit || x->is_switch);
    put_line(&t->lines, name, x->n_prompt, x->n_reused, x->n_read, source_str(x->source),
             x->is_switch, x->is_hit);
    return c;
}

static void begin(struct text *t, uint32_t n_system, uint32_t n, unsigned int seed)
{
    t->n = 0;
    if (n_system > 0)
        text_add(t, n_system, 1);
    text_add(t, n, seed);
}

/* The next turn: the answer, and n tokens more. */
static void go_on(struct text *t, const struct client *c, uint32_t n, unsigned int seed)
{
    text_add_answer(t, c);
    text_add(t, n, seed);
}

/* --- the situations ----------------------------------------------------------------------------
 */

static void three_chats(struct table *t)
{
    static const char *const names[] = {"A 1", "B 1", "C 1", "A 2", "B 2", "C 2"};
    struct text noise = {0}, chats[3];
    struct client *busy[2], *c;

    for (unsigned int i = 0; i < 2; i++) {
        begin(&noise, 0, 30, 30 + i);
        busy[i] = client_of(t->w, &noise, UINT32_MAX);
        busy[i]->r->ignore_eos = true;
        ck_assert_int_eq(client_submit(busy[i], NULL), 0);
    }
    world_run_until_read(t->w, busy[1], 30);
    for (unsigned int i = 0; i < 6; i++) {
        if (i < 3)
            begin(&chats[i], 200, 30, 10 + i);
        c = ask(t, names[i], &chats[i % 3], 200, ANSWER);
        go_on(&chats[i % 3], c, 40, 20 + i);
        ck_assert_int_eq(busy[0]->r->state, REQUEST_GENERATING);
        ck_assert_int_eq(busy[1]->r->state, REQUEST_GENERATING);
    }
    sched_cancel(t->w->sched, busy[0]->r);
    sched_cancel(t->w->sched, busy[1]->r);
}

static void three_agents(struct table *t)
{
    static const int order[] = {0, 1, 0, 2, 1, 2, 0, 1, 2, 0};
    static const char *const names[] = {"P", "S1", "S2"};
    struct text agents[3];
    unsigned int n_asked[3] = {0};

    for (unsigned int i = 0; i < 3; i++)
        begin(&agents[i], 100, i == 0 ? 300 : 150, 10 + i);
    for (unsigned int i = 0; i < 10; i++) {
        const int who = order[i];
        char name[16];
        struct client *c;

        (void)snprintf(name, sizeof name, "%s %u", names[who], ++n_asked[who]);
        c = ask(t, name, &agents[who], 100, ANSWER);
        go_on(&agents[who], c, 40, 20 + i);
    }
}

static void dropped_thinking(struct table *t)
{
    struct text main_agent, sub;
    struct client *c;

    begin(&main_agent, 100, 300, 10);
    c = ask(t, "main 1", &main_agent, 100, ANSWER);
    go_on(&main_agent, c, 40, 11);
    begin(&sub, 100, 150, 12);
    for (unsigned int i = 1; i <= 9; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "sub %u", i);
        c = ask(t, name, &sub, 100, 20);
        /* Without what it thought. */
        ck_assert_int_ne(c->r->tokens[0].id, 2 + 13);
        text_add(&sub, 6, 13);
        text_add(&sub, 40, 14 + i);
    }
    (void)ask(t, "main 2", &main_agent, 100, ANSWER);
}

static void two_through_one(struct table *t)
{
    static const char *const names[] = {"A 1", "B 1", "A 2", "B 2", "A 3"};
    struct text chats[2];

    begin(&chats[0], 0, 970, 10);
    begin(&chats[1], 0, 970, 11);
    for (unsigned int i = 0; i < 5; i++) {
        struct client *c = ask(t, names[i], &chats[i % 2], 0, ANSWER);

        go_on(&chats[i % 2], c, 12, 20 + i);
    }
}

static struct world_options options_of(int which, bool hybrid)
{
    struct world_options o = world_cached(hybrid);

    o.engine.n_units = 400;
    o.limits.ram_units = 400;
    if (which >= 2)
        o.sched.parallel = o.engine.n_sequences = 1;
    switch (which) {
    case 1:
        o.limits.ram_units = 0;
        break;
    case 3:
        o.limits.n_conversations = 2;
        break;
    case 4:
        o.limits.n_roots = 0;
        break;
    case 5:
        /* Both, and not one of the eight tails. */
        o.engine.n_units = hybrid ? 128 : 19;
        o.limits.ram_units = hybrid ? 256 : 0;
        break;
    case 6:
        o.engine.n_units = hybrid ? 36 : 17;
        o.limits.ram_units = hybrid ? 28 : 16; /* pages, and what two turns keep */
        break;
    default:
        break;
    }
    return o;
}

static const struct situation {
    const char *name;
    void (*run)(struct table *t);
} situations[] = {
    {"a", three_chats},   {"b", three_chats},      {"c", three_agents},    {"c2", three_agents},
    {"c3", three_agents}, {"d", dropped_thinking}, {"e", two_through_one},
};
enum { N_SITUATIONS = sizeof situations / sizeof *situations };

/* --- what is expected --------------------------------------------------------------------------
 */

static void expected(const char *name, bool hybrid, struct buf *ret)
{
    const char *srcdir = getenv("SRCDIR");
    char path[4096];
    json_error_t e;
    json_t *root, *s, *row;
    const json_t *found = NULL;
    size_t i;

    (void)snprintf(path, sizeof path, "%s/tests/data/replay-expected.json", srcdir ? srcdir : ".");
    root = json_load_file(path, 0, &e);
    ck_assert_msg(root, "%s:%d: %s", path, e.line, e.text);
    json_array_foreach(json_object_get(root, "situations"), i, s)
    {
        if (strcmp(json_string_value(json_object_get(s, "name")), name) == 0)
            found = json_object_get(s, hybrid ? "hybrid" : "dense");
    }
    ck_assert_ptr_nonnull(found);
    json_array_foreach(json_object_get(found, "requests"), i, row)
    {
        put_line(
            ret, json_string_value(json_array_get(row, 0)),
            json_integer_value(json_array_get(row, 1)), json_integer_value(json_array_get(row, 2)),
            json_integer_value(json_array_get(row, 3)), json_string_value(json_array_get(row, 4)),
            json_is_true(json_array_get(row, 5)), json_is_true(json_array_get(row, 6)));
    }
    ck_assert_uint_gt(ret->len, 0);
    put_sums(ret, (uint64_t)json_integer_value(json_object_get(found, "evictions")),
             (uint64_t)json_integer_value(json_object_get(found, "superseded")),
             (uint64_t)json_integer_value(json_object_get(found, "roots")));
    ck_assert_int_ge(buf_add(ret, "", 1), 0);
    json_decref(root);
}

START_TEST(the_table_is_the_expected_one)
{
    const struct situation *x = &situations[_i / 2];
    const bool hybrid = _i % 2;
    const struct world_options o = options_of(_i / 2, hybrid);
    struct table t = {.w = world_new(&o)};
    struct buf want = {0};
    struct cache_stats st;

    x->run(&t);
    world_run(t.w);
    st = world_stats(t.w);
    put_sums(&t.lines, st.evictions, st.superseded, st.n_roots);
    ck_assert_int_ge(buf_add(&t.lines, "", 1), 0);
    expected(x->name, hybrid, &want);
    ck_assert_msg(strcmp((const char *)t.lines.data, (const char *)want.data) == 0,
                  "%s, %s\nis:\n%swant:\n%s", x->name, hybrid ? "hybrid" : "dense",
                  (const char *)t.lines.data, (const char *)want.data);
    buf_done(&t.lines);
    buf_done(&want);
    world_free(t.w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("replay_tables");
    TCase *tc = tcase_create("replay_tables");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, the_table_is_the_expected_one, 0, 2 * N_SITUATIONS);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
