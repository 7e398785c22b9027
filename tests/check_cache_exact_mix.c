/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hit equals a cold run whatever happens around it: chats behind shared roots that go on, are
 * edited, go back, branch, are asked again and cancelled, several at once over all slots, with
 * tiers so small that everything moves all the time, at several thread counts.
 */
#include "daemon/sched.h"
#include "tests/mkmodel.h"
#include "tests/sched_lab.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHATS = 6, N_ROOTS = 2, ROOT = 130, MAX_CHAT = 420, AT_ONCE = 6, MAX_ANSWER = 6 };

static const struct {
    const char *name;
    struct mkmodel make; /* family NULL: the needle file */
    uint32_t rounds;
} models[] = {
    {"needle", {.family = NULL}, 12},
    {"qwen35",
     {.family = "qwen35", .type = 0, .draft = true, .dn_k_heads = 1, .dn_v_heads = 3, .seed = 7},
     60},
    {"llama", {.family = "llama", .type = TENSOR_BF16, .bias = true, .seed = 5}, 60},
    {"qwen3moe", {.family = "qwen3moe", .type = TENSOR_F16, .seed = 4}, 60},
};
enum { N_MODELS = sizeof models / sizeof models[0], N_THREADS = 3 };

/* The prompt asked last, and the one before. */
struct chat {
    int32_t ids[MAX_CHAT], before[MAX_CHAT];
    uint32_t n, n_before;
    uint32_t root, turn, query;
};

struct mix {
    struct lab l;
    unsigned int seed;
    int32_t roots[N_ROOTS][ROOT];
    struct chat chats[N_CHATS];
};

static uint32_t draw(struct mix *m, uint32_t n)
{
    return (uint32_t)rand_r(&m->seed) % n;
}

static void add(struct mix *m, struct chat *c, uint32_t n)
{
    for (uint32_t i = 0; i < n && c->n < MAX_CHAT; i++)
        c->ids[c->n++] = (int32_t)draw(m, m->l.runner.n_vocab);
}

static void keep_before(struct chat *c)
{
    memcpy(c->before, c->ids, sizeof c->before);
    c->n_before = c->n;
}

static void begin_chat(struct mix *m, struct chat *c)
{
    const uint32_t root = draw(m, N_ROOTS);

    memcpy(c->ids, m->roots[root], sizeof m->roots[root]);
    c->root = c->n = ROOT;
    add(m, c, 20 + draw(m, 60));
    c->turn = c->query = c->n - draw(m, 8) - 1;
}

/* A few tokens more, after the answer that it got. */
static void go_on(struct mix *m, struct chat *c)
{
    const uint32_t n_new = 5 + draw(m, 60);

    keep_before(c);
    add(m, c, n_new);
    c->turn = c->n - draw(m, n_new);
    if (draw(m, 2))
        c->query = c->turn;
}

static void cut(struct mix *m, struct chat *c, uint32_t at)
{
    keep_before(c);
    c->n = at;
    add(m, c, 1 + draw(m, 30));
    c->turn = c->turn < at ? c->turn : at;
    c->query = c->query < at ? c->query : at;
}

/* What a chat asks next; false: it ends here, and another one begins. */
static void next_prompt(struct mix *m, struct chat *c)
{
    const uint32_t dice = draw(m, 20);

    if (c->n == 0 || c->n + 70 > MAX_CHAT || dice == 0) {
        begin_chat(m, c);
    } else if (dice < 9) {
        go_on(m, c);
    } else if (dice < 12) {
        cut(m, c, c->root + draw(m, c->n - c->root));
    } else if (dice < 14) {
        /* The client drops the answer, and what was thought in it. */
        cut(m, c, c->turn);
    } else if (dice < 16 && c->n_before > c->root) {
        memcpy(c->ids, c->before, sizeof c->ids);
        c->n = c->n_before;
    } else if (dice < 17) {
        c->n = c->root + 1 + draw(m, c->n - c->root);
    } else {
        /* The same again. */
    }
    if (c->turn >= c->n || c->query >= c->n)
        c->turn = c->query = c->n - 1;
}

static struct request *ask(struct mix *m, struct chat *c)
{
    struct request *r;

    next_prompt(m, c);
    r = lab_request(&m->l, c->ids, c->n, 1 + draw(m, MAX_ANSWER));
    if (draw(m, 4)) {
        r->bounds.root = c->root;
        r->bounds.turn = c->turn;
        r->bounds.query = c->query;
    }
    lab_submit(&m->l, r);
    return r;
}

static void take_answer(struct chat *c, const struct request *r)
{
    for (size_t i = 0; i < r->n_tokens && c->n < MAX_CHAT; i++)
        c->ids[c->n++] = r->tokens[i].id;
}

static void run_round(struct mix *m, const char *what, uint32_t round)
{
    const uint32_t n = 1 + draw(m, AT_ONCE), first = draw(m, N_CHATS);
    struct request *r[AT_ONCE];

    for (uint32_t i = 0; i < n; i++) {
        r[i] = ask(m, &m->chats[(first + i) % N_CHATS]);
        for (uint32_t k = draw(m, 4) ? 0 : draw(m, 12); k > 0; k--)
            lab_turn(&m->l);
        if (draw(m, 8) == 0)
            sched_cancel(m->l.sched, r[draw(m, i + 1)]);
    }
    lab_run(&m->l);
    for (uint32_t i = 0; i < n; i++) {
        lab_expect_cold(&m->l, r[i], what, round);
        take_answer(&m->chats[(first + i) % N_CHATS], r[i]);
        (void)request_unref(r[i]);
    }
}

static void open_mix(struct mix *m, int i)
{
    const struct mkmodel *make = &models[i % N_MODELS].make;
    struct lab_options o = {.n_threads = 1 + (uint32_t)(i / N_MODELS), .n_units = 64};
    uint32_t check;

    *m = (struct mix){.seed = 100 + (unsigned int)i};
    lab_open(&m->l, make, &o);
    check = m->l.runner.plan.checkpoint_units;
    lab_close(&m->l);
    /* Room for two that run, and for as much in ram. */
    o.n_units = 16 + 4 * check;
    o.ram_units = 14 + 6 * check;
    o.n_roots = 2;
    o.checkpoint_every = 128;
    lab_open(&m->l, make, &o);
    for (uint32_t k = 0; k < N_ROOTS; k++)
        for (uint32_t j = 0; j < ROOT; j++)
            m->roots[k][j] = (int32_t)draw(m, m->l.runner.n_vocab);
}

/* The loop's index is a model and a thread count. */
START_TEST(chats_that_move_all_the_time)
{
    const char *name = models[_i % N_MODELS].name;
    const bool short_run = getenv("STRATA_TEST_SHORT") != NULL;
    const uint32_t rounds = models[_i % N_MODELS].rounds / (short_run ? 6 : 1);
    struct decision_totals t;
    struct cache_stats st;
    struct mix *m = calloc(1, sizeof *m);

    ck_assert_ptr_nonnull(m);
    open_mix(m, _i);
    for (uint32_t round = 0; round < rounds; round++) {
        run_round(m, name, round);
        if (round % 6 == 5)
            lab_expect_all_cold(&m->l, name, round);
    }
    /* It was no quiet time. */
    decisions_totals(m->l.decisions, &t);
    cache_stats(m->l.cache, &st);
    ck_assert_uint_gt(t.reused_tokens, t.prompt_tokens / 10);
    ck_assert_uint_gt(st.write_backs, 0);
    if (rounds > 30) {
        ck_assert_uint_gt(t.hits, 0);
        ck_assert_uint_gt(t.misses, 0);
        ck_assert_uint_gt(t.continuations, 0);
        ck_assert_uint_gt(st.loads, 0);
        ck_assert_uint_gt(st.evictions, 0);
        ck_assert_uint_gt(st.superseded, 0);
        ck_assert_uint_gt(m->l.checks_compared + m->l.unit_pages_compared, 1000);
    }
    lab_close(&m->l);
    free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_exact_mix");
    TCase *t = tcase_create("cache_exact_mix");
    SRunner *sr;
    int failed;

#if defined(__SANITIZE_THREAD__)
    /* A race shows with one model as well, and each takes minutes here. */
    tcase_add_loop_test(t, chats_that_move_all_the_time, N_MODELS + 1, N_MODELS + 2);
#else
    tcase_add_loop_test(t, chats_that_move_all_the_time, 0, N_MODELS * N_THREADS);
#endif
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
