/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once: random requests, pools, contexts and slots; cancelling, pausing and
 * submitting at random moments, also from within observers; an engine that is late and then
 * completes several jobs at once.
 */
#include "tests/sched_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)rand_r(&w->seed) % n;
}

static struct world_options random_options(unsigned int seed)
{
    struct world_options o = {0};

    o.sched.parallel = 1 + (uint32_t)rand_r(&seed) % 8;
    o.sched.max_gap_ms = 1 + (uint32_t)rand_r(&seed) % 300;
    o.sched.max_queued = (uint32_t)rand_r(&seed) % 40;
    o.engine.n_sequences = o.sched.parallel;
    o.engine.n_units = 1 + (uint32_t)rand_r(&seed) % (rand_r(&seed) % 2 ? 6 : 60);
    o.engine.context = 20 + (uint32_t)rand_r(&seed) % 400;
    o.engine.max_rows =
        o.sched.parallel + 1 + (uint32_t)rand_r(&seed) % (rand_r(&seed) % 2 ? 40 : 500);
    o.engine.n_vocab = WORLD_VOCAB;
    o.engine.seed = seed;
    o.engine.end_every = rand_r(&seed) % 3 ? 5 + (uint32_t)rand_r(&seed) % 100 : 0;
    o.engine.ns_per_row = (uint64_t)rand_r(&seed) % 2000000;
    return o;
}

static void add_stops(struct client *c)
{
    static const char *const stops[] = {"ab", "abc", "bab", " a", "é", "€", "c d", "zzz", "aab"};
    struct request *r = c->r;

    r->stop = calloc(3, sizeof *r->stop);
    for (r->n_stop = 0; r->n_stop < below(c->w, 3); r->n_stop++)
        r->stop[r->n_stop] = strdup(stops[below(c->w, sizeof stops / sizeof *stops)]);
}

static struct client *submit_one(struct world *w)
{
    struct client *c;
    uint32_t n;

    if (w->n_clients == WORLD_CLIENTS)
        return NULL;
    n = 1 + below(w, below(w, 4) ? 100 : w->o.engine.context);
    c = client_new(w, n, below(w, 5) ? below(w, 150) : UINT32_MAX);
    c->r->ignore_eos = below(w, 4) == 0;
    add_stops(c);
    if (below(w, 3) == 0) {
        const uint32_t n_insert = below(w, 70);

        client_hold(c, n_insert + 1 + below(w, 20), n_insert);
    }
    if (below(w, 12) == 0)
        c->r->prompt.ids[below(w, n)] = FAKE_POISON;
    (void)client_submit(c, NULL);
    return c;
}

static void act_on(struct client *c)
{
    struct world *w = c->w;
    bool was_inside = w->inside;

    if (!c->submitted)
        return;
    w->inside = true;
    switch (below(w, 4)) {
    case 0:
        sched_cancel(w->sched, c->r);
        break;
    case 1:
        sched_pause(w->sched, c->r);
        break;
    default:
        sched_resume(w->sched, c->r);
        break;
    }
    w->inside = was_inside;
}

static struct client *some_client(struct world *w)
{
    return w->n_clients ? &w->clients[below(w, w->n_clients)] : NULL;
}

/* From within an observer. */
static void on_call(struct client *c, bool done)
{
    struct world *w = c->w;

    if (below(w, 40) == 0)
        act_on(c);
    if (below(w, 60) == 0)
        act_on(some_client(w));
    if (done && below(w, 2))
        (void)submit_one(w);
}

static bool is_poisoned(const struct client *c)
{
    for (size_t i = 0; i < c->r->prompt.n; i++)
        if (c->r->prompt.ids[i] == FAKE_POISON)
            return true;
    return false;
}

static void check_all(struct world *w)
{
    uint64_t n_finished = 0, n_cancelled = 0, n_failed = 0, n_generated = 0;
    struct sched_totals t;

    for (uint32_t i = 0; i < w->n_clients; i++) {
        const struct client *c = &w->clients[i];

        if (!c->submitted) {
            ck_assert_uint_eq(c->n_done, 0);
            ck_assert_uint_eq(c->r->refs, 1);
            continue;
        }
        ck_assert_uint_eq(c->n_done, 1);
        ck_assert_uint_eq(c->r->refs, 1);
        ck_assert_ptr_null(c->r->run);
        n_generated += c->r->n_generated;
        n_finished += c->r->finish == FINISH_STOP || c->r->finish == FINISH_LENGTH;
        n_cancelled += c->r->finish == FINISH_CANCELLED;
        n_failed += c->r->finish == FINISH_ERROR;
        if (is_poisoned(c))
            ck_assert(c->r->finish == FINISH_CANCELLED ||
                      (c->r->finish == FINISH_ERROR && c->r->error == ERR_NONFINITE &&
                       c->r->n_tokens == 0));
        else
            client_check(c);
    }
    sched_totals(w->sched, &t);
    ck_assert_uint_eq(t.requests, w->n_submitted);
    ck_assert_uint_eq(t.finished, n_finished);
    ck_assert_uint_eq(t.cancelled, n_cancelled);
    ck_assert_uint_eq(t.failed, n_failed);
    ck_assert_uint_eq(t.generated_tokens, n_generated);
    ck_assert_uint_eq(t.queued + t.running + t.units_used, 0);
}

static void check_world(unsigned int seed)
{
    struct world_options o = random_options(seed);
    struct world *w = world_new(&o);
    const uint32_t calm = below(w, 3) ? 15 : 200;

    w->on_call = on_call;
    for (int i = 0; i < 3000; i++) {
        if (below(w, 12) == 0 && w->n_submitted - w->n_done < 30)
            (void)submit_one(w);
        if (below(w, calm) == 0 && w->n_clients)
            act_on(some_client(w));
        for (uint32_t k = below(w, 4); k > 0; k--) {
            if (below(w, 2))
                (void)fake_engine_start(w->engine);
            else
                (void)fake_engine_run(w->engine);
        }
        if (below(w, 4))
            world_turn(w);
    }

    /* Nobody is held back any more: everybody must come to an end. */
    w->on_call = NULL;
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].submitted)
            sched_resume(w->sched, w->clients[i].r);
    world_run(w);
    check_all(w);
    world_free(w);
}

START_TEST(whatever_happens_each_request_gets_the_text_of_a_cold_run)
{
    for (unsigned int k = 0; k < 10; k++)
        check_world((unsigned int)_i * 10 + k);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched_random");
    TCase *tc = tcase_create("sched_random");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, whatever_happens_each_request_gets_the_text_of_a_cold_run, 0, 20);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
