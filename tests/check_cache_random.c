/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: random operations against a plain model.
 *
 * The model is arrays of tokens: every sequence that ran in a space, the conversations and roots
 * that are there as far as events told, and the roots that were ever pinned.  Nothing may be found
 * that no sequence of the space (or pinned root) began with; what is not reported lost has to be
 * found whole; what is mounted is compared word by word (cache_world).
 */
#include "tests/cache_world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SPACES = 3, N_RUNS = 4, MAX_KNOWN = 4000, MAX_LEN = 420, N_STEPS = 3000 };

struct known {
    uint32_t i_space;
    uint32_t n;
    uint64_t id; /* of a conversation or root; 0: a sequence that ran */
    int32_t *t;  /* owned */
};

struct known_list {
    struct known v[MAX_KNOWN];
    uint32_t n;
};

struct game {
    struct cw_world *w;
    unsigned int seed;
    struct cache_space *spaces[N_SPACES];
    struct known_list ran, alive, pinned;
    struct cw_run runs[N_RUNS];
    enum { IDLE, LOADING, READING } state[N_RUNS];
    uint32_t i_space[N_RUNS], stuck[N_RUNS];
    uint64_t n_mounted, n_parked, n_whole;
};

static uint32_t below(struct game *g, uint32_t n)
{
    return n ? (uint32_t)rand_r(&g->seed) % n : 0;
}

/* --- the model ------------------------------------------------------------------------------- */

static void know(struct known_list *l, uint32_t i_space, uint64_t id, const int32_t *t, uint32_t n)
{
    struct known *k = &l->v[l->n++];

    ck_assert_uint_le(l->n, MAX_KNOWN);
    *k = (struct known){.i_space = i_space, .n = n, .id = id, .t = malloc((n + 1) * sizeof *t)};
    memcpy(k->t, t, n * sizeof *t);
}

static void forget(struct known_list *l, uint64_t id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].id == id) {
            free(l->v[i].t);
            l->v[i] = l->v[--l->n];
            return;
        }
}

static uint32_t n_alike(const struct known *k, const int32_t *t, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && i < k->n && k->t[i] == t[i])
        i++;
    return i;
}

/* The most that may be found. */
static uint32_t most_known(struct game *g, uint32_t i_space, const int32_t *t, uint32_t n)
{
    uint32_t best = 0, x;

    for (uint32_t i = 0; i < g->ran.n; i++) {
        x = g->ran.v[i].i_space == i_space ? n_alike(&g->ran.v[i], t, n) : 0;
        best = x > best ? x : best;
    }
    for (uint32_t i = 0; i < g->pinned.n; i++) {
        x = n_alike(&g->pinned.v[i], t, n);
        best = x > best ? x : best;
    }
    /* Those that run now are known as far as they got. */
    for (uint32_t i = 0; i < N_RUNS; i++)
        if (g->state[i] == READING && g->i_space[i] == i_space) {
            struct known k = {.n = g->runs[i].n, .t = g->runs[i].q.t};

            x = n_alike(&k, t, n);
            best = x > best ? x : best;
        }
    return best;
}

static void on_event(void *arg, const struct cache_event *e)
{
    struct game *g = arg;

    if (e->kind == CACHE_EVICTED || e->kind == CACHE_SUPERSEDED || e->kind == CACHE_ROOT_LOST)
        forget(&g->alive, e->id);
}

/* What was not reported lost is found whole. */
static void check_alive(struct game *g, const struct known *k)
{
    struct cache_found f;
    struct cache_entry e;
    int32_t t[MAX_LEN + 1];

    ck_assert_msg(cache_entry(g->w->cache, k->id, &e) == 0, "entry %llu left without a word",
                  (unsigned long long)k->id);
    /* Its request goes another way just now; it may give up its old end. */
    if (e.is_active)
        return;
    memcpy(t, k->t, k->n * sizeof *t);
    t[k->n] = 99;
    cache_find(g->w->cache, g->spaces[k->i_space], t, k->n + 1, k->n, &f);
    ck_assert_msg(f.best.pos == k->n, "%u tokens of entry %llu are found, of %u", f.best.pos,
                  (unsigned long long)k->id, k->n);
    g->n_whole++;
}

static void check_unknown(struct game *g)
{
    struct cache_found f;
    int32_t t[MAX_LEN];
    const struct known *k = g->ran.n ? &g->ran.v[below(g, g->ran.n)] : NULL;
    uint32_t n = k ? 1 + below(g, k->n) : 1, i_space = below(g, N_SPACES), most;

    for (uint32_t i = 0; i < MAX_LEN; i++)
        t[i] = k && i < n ? k->t[i] : (int32_t)below(g, 2);
    n += below(g, MAX_LEN - n + 1);
    most = most_known(g, i_space, t, n);
    cache_find(g->w->cache, g->spaces[i_space], t, n, n - 1, &f);
    ck_assert_msg(f.best.pos <= most && f.n_common <= most,
                  "%u tokens (%u in common) are found where %u are known", f.best.pos, f.n_common,
                  most);
}

/* --- what happens ---------------------------------------------------------------------------- */

static void begin(struct game *g, uint32_t i)
{
    struct cw_run *r = &g->runs[i];
    uint32_t common;

    cw_run_begin(r, g->w, g->spaces[g->i_space[i]], &r->q, below(g, 4) == 0);
    common = r->found.n_common;
    ck_assert_uint_le(common, most_known(g, g->i_space[i], r->q.t, r->q.n_prompt));
    g->state[i] = LOADING;
    g->stuck[i] = 0;
}

static void new_run(struct game *g, uint32_t i)
{
    struct cw_seq *q = &g->runs[i].q;
    const struct known *k = g->ran.n ? &g->ran.v[below(g, g->ran.n)] : NULL;
    uint32_t keep = 0;

    if (g->alive.n && below(g, 2))
        k = &g->alive.v[below(g, g->alive.n)];
    memset(q, 0, sizeof *q);
    g->i_space[i] = k && below(g, 8) ? k->i_space : below(g, N_SPACES);
    if (k && below(g, 10))
        keep = below(g, 2) ? k->n : below(g, k->n + 1);
    if (keep > MAX_LEN - 70)
        keep = MAX_LEN - 70;
    for (uint32_t j = 0; j < keep; j++)
        q->t[j] = k->t[j];
    q->n = keep + 1 + below(g, below(g, 2) ? 8 : 120);
    if (q->n > MAX_LEN - 60)
        q->n = MAX_LEN - 60;
    for (uint32_t j = keep; j < q->n; j++)
        q->t[j] = (int32_t)below(g, 2);
    q->n_prompt = q->n;
    q->n += 1 + below(g, 60);
    for (uint32_t j = q->n_prompt; j < q->n; j++)
        q->t[j] = (int32_t)below(g, 2);
    if (below(g, 3) == 0)
        q->root = 1 + below(g, q->n_prompt);
    q->turn = below(g, 4) ? q->n_prompt - below(g, 3) % q->n_prompt : 0;
    if (below(g, 2))
        q->query = 1 + below(g, q->n_prompt);
    begin(g, i);
}

static void end_run(struct game *g, uint32_t i, bool park)
{
    struct cw_run *r = &g->runs[i];
    const uint32_t i_space = g->i_space[i];
    uint64_t id;

    g->state[i] = IDLE;
    if (r->n)
        know(&g->ran, i_space, 0, r->q.t, r->n);
    if (!park) {
        cw_run_abandon(r);
        return;
    }
    id = cw_run_park(r);
    if (r->root) {
        forget(&g->alive, r->root);
        if (cache_entry(g->w->cache, r->root, &(struct cache_entry){0}) == 0)
            know(&g->alive, i_space, r->root, r->q.t, r->q.root);
    }
    if (id) {
        forget(&g->alive, id);
        know(&g->alive, i_space, id, r->q.t, r->parked_at);
        g->n_parked++;
    }
}

/* Units are missing: others leave, some time; else this one ends where it is. */
static void want_room(struct game *g, uint32_t i, uint32_t n)
{
    (void)cw_shed(g->w, n, NULL);
    if (++g->stuck[i] > 30)
        end_run(g, i, g->state[i] == READING);
}

static void start_run(struct game *g, uint32_t i)
{
    struct cw_run *r = &g->runs[i];

    if (!cw_run_start(r)) {
        want_room(g, i, 1);
        return;
    }
    g->n_mounted += r->reused > 0;
    g->state[i] = READING;
    cw_run_capture(r, r->q.root, CACHE_AT_ROOT);
    cw_run_capture(r, r->q.turn, CACHE_AT_TURN);
    cw_run_capture(r, r->q.query, CACHE_AT_QUERY);
    if (below(g, 2))
        cw_run_capture(r, r->found.n_common, CACHE_AT_BRANCH);
    if (below(g, 2))
        cw_run_capture(r, 1 + below(g, r->q.n), CACHE_AT_INTERVAL);
    cw_run_capture(r, r->q.n, CACHE_AT_END);
}

static void go_on(struct game *g, uint32_t i)
{
    struct cw_run *r = &g->runs[i];
    int code;

    if (g->state[i] == IDLE) {
        new_run(g, i);
    } else if (g->state[i] == LOADING) {
        code = cw_run_load(r);
        if (code < 0)
            begin(g, i);
        else if (code > 0)
            start_run(g, i);
        else if (cache_units_to_load(g->w->cache, &r->pin) > 0)
            want_room(g, i, cache_units_to_load(g->w->cache, &r->pin));
    } else if (r->n == r->q.n) {
        end_run(g, i, below(g, 12));
    } else if (!cw_run_read(r, 1 + below(g, 100))) {
        want_room(g, i, 1 + g->w->o.checkpoint_units);
    }
}

static void drop_one(struct game *g, uint32_t i)
{
    struct cw_run *r = &g->runs[i];
    struct cache_found f;

    if (g->state[i] != READING || cache_cursor_is_dead(&r->cursor) || r->cursor.n_pages == 0)
        return;
    cache_drop_path(g->w->cache, &r->cursor);
    ck_assert(cache_cursor_is_dead(&r->cursor));
    cache_find(g->w->cache, r->space, r->q.t, r->n, r->n, &f);
    ck_assert_uint_lt(f.best.pos, CACHE_PAGE);
    ck_assert_uint_lt(f.n_common, CACHE_PAGE);
    end_run(g, i, below(g, 2));
}

static void pin_one(struct game *g)
{
    const struct known *k = g->alive.n ? &g->alive.v[below(g, g->alive.n)] : NULL;
    struct cache_entry e;
    const bool pinned = below(g, 2);

    if (!k || cache_entry(g->w->cache, k->id, &e) < 0 || !e.is_root)
        return;
    ck_assert_uint_eq(e.n_tokens, k->n);
    if (pinned)
        know(&g->pinned, k->i_space, 0, k->t, k->n);
    ck_assert_int_eq(cache_pin_root(g->w->cache, k->id, pinned, g->w->now), 0);
}

static void change_limits(struct game *g)
{
    struct cw_world *w = g->w;

    if (below(g, 2))
        w->limits.n_conversations = below(g, 12);
    if (below(g, 2))
        w->limits.n_roots = 1 + below(g, 4);
    if (below(g, 3) == 0)
        w->limits.ram_units = below(g, w->o.ram_units + 1);
    w->lowered = w->lowered || w->limits.ram_units < w->o.ram_units;
    cache_set_limits(w->cache, &w->limits);
}

static void step(struct game *g)
{
    struct cw_world *w = g->w;
    const uint32_t what = below(g, 1000);

    w->now += below(g, 4) ? CW_SECOND : 300 * CW_SECOND;
    if (what < 600)
        go_on(g, below(g, N_RUNS));
    else if (what < 720)
        (void)cw_begin_write_back(w);
    else if (what < 880 && w->n_moves)
        cw_end_move(w, below(g, w->n_moves), below(g, 12));
    else if (what < 920)
        (void)cw_shed(w, 1 + below(g, w->o.vram_units / 2), NULL);
    else if (what < 960)
        check_unknown(g);
    else if (what < 970)
        drop_one(g, below(g, N_RUNS));
    else if (what < 980)
        pin_one(g);
    else if (what < 985 && g->alive.n)
        (void)cache_evict(w->cache, g->alive.v[below(g, g->alive.n)].id, below(g, 2));
    else if (what < 987)
        (void)cache_clear(w->cache);
    else if (what < 989)
        (void)cache_clear_roots(w->cache);
    else if (what < 993)
        change_limits(g);
    else
        cw_end_moves(w, below(g, 8));
}

/* --- the test -------------------------------------------------------------------------------- */

static void forget_all(struct known_list *l)
{
    while (l->n)
        free(l->v[--l->n].t);
}

static struct game *game_new(unsigned int seed, bool checkpoints)
{
    struct game *g = calloc(1, sizeof *g);
    struct cw_options o = {.checkpoint_units = checkpoints ? 3 : 0};

    g->seed = seed;
    o.vram_units = (checkpoints ? 60 : 24) + below(g, below(g, 2) ? 10 : 100);
    o.ram_units = below(g, 8) ? 4 + below(g, below(g, 2) ? 20 : 120) : 0;
    o.n_conversations = below(g, 2) ? 0 : 2 + below(g, 10);
    o.n_roots = below(g, 5);
    g->w = cw_new(&o);
    g->w->shares = true;
    g->w->on_event = on_event;
    g->w->on_event_arg = g;
    for (uint32_t i = 0; i < N_SPACES; i++)
        g->spaces[i] = cache_space_get(g->w->cache, &i, sizeof i, 1000 + i);
    return g;
}

static void play(unsigned int seed, bool checkpoints)
{
    struct game *g = game_new(seed, checkpoints);

    for (uint32_t i = 0; i < N_STEPS; i++) {
        step(g);
        cw_check(g->w);
        if (g->alive.n)
            check_alive(g, &g->alive.v[below(g, g->alive.n)]);
        for (uint32_t k = 0; i % 100 == 99 && k < g->alive.n; k++)
            check_alive(g, &g->alive.v[k]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++)
        if (g->state[i] != IDLE)
            end_run(g, i, g->state[i] == READING);
    /* It did something. */
    ck_assert_uint_gt(g->n_mounted, 20);
    ck_assert_uint_gt(g->n_parked, 20);
    ck_assert_uint_gt(g->n_whole, 100);
    for (uint32_t i = 0; i < N_SPACES; i++)
        cache_space_unref(g->w->cache, g->spaces[i]);
    cw_free(g->w);
    forget_all(&g->ran);
    forget_all(&g->alive);
    forget_all(&g->pinned);
    free(g);
}

START_TEST(whatever_happens_what_is_found_is_true_and_what_is_kept_is_found)
{
    for (unsigned int k = 0; k < 4; k++)
        play((unsigned int)_i * 4 + k, k % 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_random");
    TCase *t = tcase_create("cache_random");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, whatever_happens_what_is_found_is_true_and_what_is_kept_is_found, 0,
                        getenv("STRATA_TEST_SHORT") ? 3 : 20);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
