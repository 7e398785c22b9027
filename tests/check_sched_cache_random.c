/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, with a cache: growing conversations that branch, are edited, repeated and
 * cut, in pools and ram so small that everything moves all the time; cancelling and pausing, limits
 * and an operator's hand at any moment; steps and transfers in any order, some of them failing.
 * Every answer is that of a cold run, and the books are right after everything that the loop does.
 */
#include "tests/sched_world.h"

#include "util/clock.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TALKS = 6, N_REQUESTS = 300, N_REQUESTS_SHORT = 100 };

/* What a client of ours has said so far. */
struct talk {
    struct text t;
    uint32_t root;              /* its system prompt; 0: none */
    const struct client *asked; /* it waits for that answer; NULL: none */
};

struct play {
    struct world *w;
    struct talk talks[N_TALKS];
    struct talk *of[WORLD_CLIENTS];
    uint32_t n_refused;
    uint64_t n_cached, n_read, n_hits;
};

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)rand_r(&w->seed) % n;
}

static bool once_in(struct world *w, uint32_t n)
{
    return below(w, n) == 0;
}

static uint32_t pick(unsigned int *seed, uint32_t least, uint32_t most)
{
    return least + (uint32_t)rand_r(seed) % (most - least + 1);
}

static struct world_options random_options(unsigned int seed, bool hybrid)
{
    struct world_options o = world_cached(hybrid);

    o.engine.seed = seed;
    o.sched.parallel = o.engine.n_sequences = pick(&seed, 1, 4);
    o.sched.max_queued = pick(&seed, 4, 20);
    o.sched.root_min = pick(&seed, 16, 140);
    o.sched.checkpoint_every = pick(&seed, 0, 1) ? pick(&seed, 20, 150) : 0;
    o.sched.share_all = pick(&seed, 0, 5) == 0;
    o.engine.context = pick(&seed, 100, 500);
    o.engine.n_units = o.engine.context / 64 + 1 + pick(&seed, 0, hybrid ? 40 : 20);
    o.engine.max_rows = pick(&seed, 5, pick(&seed, 0, 1) ? 40 : 400);
    o.engine.end_every = pick(&seed, 0, 2) ? pick(&seed, 5, 100) : 0;
    o.engine.ns_per_row = pick(&seed, 0, 1) ? pick(&seed, 1, 2000000) : 0;
    o.ns_per_transfer = pick(&seed, 0, 1) ? pick(&seed, 1, 50000000) : 0;
    o.limits = (struct cache_limits){
        .ram_units = pick(&seed, 0, 4) ? pick(&seed, 1, 60) : 0,
        .n_conversations = pick(&seed, 0, 1) ? pick(&seed, 1, 6) : 0,
        .n_roots = pick(&seed, 0, 3),
        .half_life_ns = (uint64_t)pick(&seed, 1, 1000) * 1000000,
    };
    return o;
}

/* --- what is asked --- */

static void talk_begin(struct play *p, struct talk *k)
{
    static const uint32_t systems[] = {40, 128, 150};
    const uint32_t i = below(p->w, 3);

    k->t.n = k->root = 0;
    if (!once_in(p->w, 4)) {
        text_add(&k->t, systems[i], 1 + i);
        k->root = systems[i];
    }
    text_add(&k->t, 1 + below(p->w, 60), below(p->w, 1000));
}

/* The next thing that its client says. */
static void talk_go_on(struct play *p, struct talk *k)
{
    struct world *w = p->w;
    const uint32_t most = w->o.engine.context - 1;

    switch (below(w, 8)) {
    case 0: /* an edit, or something shorter */
        k->t.n = 1 + below(w, k->t.n);
        break;
    case 1: /* as before */
        return;
    case 2: /* a branch of another one */
        *k = (struct talk){.t = p->talks[below(w, N_TALKS)].t};
        if (k->t.n > 0)
            k->t.n = 1 + below(w, k->t.n);
        break;
    case 3:
        talk_begin(p, k);
        return;
    default:
        break;
    }
    text_add(&k->t, 1 + below(w, 70), below(w, 1000));
    if (k->t.n > most)
        talk_begin(p, k);
    if (k->t.n > most)
        k->t.n = most;
    if (k->root >= k->t.n)
        k->root = 0;
}

static void set_bounds(struct world *w, struct request *r, uint32_t root)
{
    const uint32_t n = (uint32_t)r->prompt.n;

    r->bounds.root = root;
    if (once_in(w, 3))
        return;
    r->bounds.turn = root + below(w, n - root);
    r->bounds.query = once_in(w, 2) ? r->bounds.turn : root + below(w, r->bounds.turn - root + 1);
    if (once_in(w, 20)) {
        r->bounds.root = 1 + below(w, n);
        r->root_asked = true;
        if (r->bounds.root == n)
            r->bounds.root = 0;
    }
}

static void ask(struct play *p)
{
    struct world *w = p->w;
    struct talk *k = &p->talks[below(w, N_TALKS)];
    struct client *c;

    if (k->asked && !once_in(w, 3))
        return;
    if (k->t.n == 0)
        talk_begin(p, k);
    else
        talk_go_on(p, k);
    if (k->t.n >= w->o.engine.context)
        k->t.n = w->o.engine.context - 1;
    if (k->root >= k->t.n)
        k->root = 0;
    c = client_of(w, &k->t, once_in(w, 6) ? UINT32_MAX : below(w, 60));
    p->of[c - w->clients] = k;
    set_bounds(w, c->r, k->root);
    c->r->ignore_eos = once_in(w, 4);
    c->r->no_cache = once_in(w, 15);
    c->r->uid = 1000 + once_in(w, 8);
    if (once_in(w, 12))
        c->r->cache_salt = strdup(once_in(w, 2) ? "a" : "b");
    if (once_in(w, 25))
        c->r->prompt.ids[below(w, k->t.n)] = FAKE_POISON;
    k->asked = c;
    if (client_submit(c, NULL) < 0) {
        k->asked = NULL;
        p->n_refused++;
        client_free(c);
    }
}

/* --- what comes of it --- */

static bool is_poisoned(const struct request *r)
{
    for (size_t i = 0; i < r->prompt.n; i++)
        if (r->prompt.ids[i] == FAKE_POISON)
            return true;
    return false;
}

static void check_done(struct play *p, struct client *c)
{
    const struct request *r = c->r;
    const struct decision *x = r->decision;

    ck_assert_uint_eq(r->refs, 1);
    if (is_poisoned(r))
        ck_assert(r->finish == FINISH_CANCELLED || (r->max_tokens == 0 && r->n_tokens == 0) ||
                  (r->finish == FINISH_ERROR && r->error == ERR_NONFINITE && r->n_tokens == 0));
    else
        client_check(c);
    ck_assert(x->done);
    ck_assert_uint_eq(x->n_reused, r->n_cached);
    ck_assert_uint_le(x->n_reused, x->n_prompt);
    ck_assert_uint_eq(x->n_reused + x->n_read, r->n_read);
    if (r->no_cache)
        ck_assert_uint_eq(x->n_reused, 0);
    if (x->is_hit)
        ck_assert(x->is_switch && x->source != SOURCE_NONE && x->source != SOURCE_ROOT);
    p->n_cached += x->n_reused;
    p->n_read += x->n_read;
    p->n_hits += x->is_hit;
}

static void harvest(struct play *p)
{
    struct world *w = p->w;

    for (uint32_t i = 0; i < w->n_clients; i++) {
        struct client *c = &w->clients[i];
        struct talk *k = p->of[i];

        if (!c->r || c->n_done == 0 || c->r->run)
            continue;
        check_done(p, c);
        if (k->asked == c) {
            k->asked = NULL;
            /* The answer comes back with the next question, without it, or in part. */
            if (c->r->prompt.n == k->t.n && once_in(w, 2)) {
                text_add_answer(&k->t, c);
                if (once_in(w, 4))
                    k->t.n -= below(w, (uint32_t)c->r->n_tokens + 1);
            }
        }
        client_free(c);
    }
}

static void act_on_some(struct play *p)
{
    struct world *w = p->w;
    struct client *c = w->n_clients ? &w->clients[below(w, w->n_clients)] : NULL;

    if (!c || !c->r)
        return;
    if (once_in(w, 3))
        sched_cancel(w->sched, c->r);
    else if (once_in(w, 3))
        sched_pause(w->sched, c->r);
    else
        sched_resume(w->sched, c->r);
}

static void resume_all(struct world *w)
{
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].r)
            sched_resume(w->sched, w->clients[i].r);
}

static void fail_some(struct world *w)
{
    static const enum job_kind kinds[] = {JOB_IMPORT, JOB_EXPORT, JOB_COPY, JOB_MOUNT, JOB_CAPTURE};
    const enum job_kind kind = kinds[below(w, sizeof kinds / sizeof *kinds)];

    if (once_in(w, 2))
        fake_engine_fail_kind(w->engine, kind, -EIO);
    else
        fake_engine_refuse_kind(w->engine, kind, -ENOMEM);
}

static void heal(struct world *w)
{
    for (int k = JOB_STEP; k <= JOB_COPY; k++) {
        fake_engine_fail_kind(w->engine, (enum job_kind)k, 0);
        fake_engine_refuse_kind(w->engine, (enum job_kind)k, 0);
    }
}

/* An operator, and a configuration that is read again. */
static void meddle(struct world *w)
{
    struct cache_entry e[8];
    struct cache_limits l = w->o.limits;
    uint32_t total, i;
    const int n = cache_entries(w->cache, false, e, 8, &total);

    ck_assert_int_ge(n, 0);
    i = n ? below(w, (uint32_t)n) : 0;
    switch (below(w, 6)) {
    case 0:
        l.ram_units = below(w, 60);
        l.n_conversations = below(w, 6);
        world_set_limits(w, &l);
        break;
    case 1:
        (void)cache_clear(w->cache);
        break;
    case 2:
        /* A pin must leave room for the longest request. */
        if (n && (e[i].is_pinned || (world_stats(w).n_pinned == 0 &&
                                     w->o.engine.n_units > w->o.engine.context / 64 + 12)))
            (void)cache_pin_root(w->cache, e[i].id, !e[i].is_pinned, clock_ns());
        break;
    default:
        if (n)
            (void)cache_evict(w->cache, e[i].id, once_in(w, 3));
        break;
    }
    sched_cache_changed(w->sched);
}

static void unpin_all(struct world *w)
{
    struct cache_entry e[64];
    uint32_t total;
    const int n = cache_entries(w->cache, true, e, 64, &total);

    for (int i = 0; i < n; i++)
        if (e[i].is_pinned)
            (void)cache_pin_root(w->cache, e[i].id, false, clock_ns());
}

static void run_some(struct world *w)
{
    for (uint32_t k = below(w, 5); k > 0; k--) {
        switch (below(w, 4)) {
        case 0:
            (void)fake_engine_start(w->engine);
            break;
        case 1:
            (void)fake_engine_transfer(w->engine);
            break;
        case 2:
            (void)fake_engine_finish(w->engine);
            break;
        default:
            (void)fake_engine_run(w->engine);
            break;
        }
    }
}

static void play(unsigned int seed, bool hybrid)
{
    const struct world_options o = random_options(seed, hybrid);
    struct play *p = calloc(1, sizeof *p);
    struct world *w = p->w = world_new(&o);
    const uint32_t often = 3 + below(w, 30), faults = 20 + below(w, 200);
    const uint32_t n = getenv("STRATA_TEST_SHORT") ? N_REQUESTS_SHORT : N_REQUESTS;
    const uint32_t hands = 30 + below(w, 300), calm = 10 + below(w, 100);

    for (uint32_t i = 0; w->n_submitted + p->n_refused < n; i++) {
        ck_assert_uint_lt(i, 200000);
        if (once_in(w, often) && w->n_submitted - w->n_done < 12)
            ask(p);
        if (once_in(w, calm))
            act_on_some(p);
        if (once_in(w, faults))
            fail_some(w);
        if (once_in(w, hands))
            meddle(w);
        if (once_in(w, 200))
            resume_all(w);
        w->o.ns_per_transfer = below(w, 2) ? o.ns_per_transfer : 0;
        run_some(w);
        if (!once_in(w, 4))
            world_turn(w);
        harvest(p);
    }
    resume_all(w);
    heal(w);
    world_run(w);
    harvest(p);
    ck_assert_uint_eq(w->n_done, w->n_submitted);
    unpin_all(w);
    if (getenv("STRATA_TEST_TELL"))
        (void)fprintf(stderr, "seed %u: %u requests, %llu reused, %llu read, %llu hits\n", seed,
                      w->n_submitted, (unsigned long long)p->n_cached,
                      (unsigned long long)p->n_read, (unsigned long long)p->n_hits);
    world_free(w);
    free(p);
}

START_TEST(whatever_happens_each_answer_is_that_of_a_cold_run)
{
    const char *only = getenv("STRATA_TEST_SEED");

    if (!only || atoi(only) == _i)
        play((unsigned int)_i, _i % 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched_cache_random");
    TCase *tc = tcase_create("sched_cache_random");
    SRunner *sr;
    int n_failed;

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, whatever_happens_each_answer_is_that_of_a_cold_run, 0, 40);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
