/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/stack.h"

#include "cache/arena.h"
#include "cache/cache.h"
#include "daemon/decisions.h"
#include "daemon/sched.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <systemd/sd-event.h>

enum {
    MAX_GAP_MS = 200, /* the daemon's default */
    MAX_QUEUED = 100,
    N_ROOTS = 8,
    SEQUENCES = 5, /* full ones, and checkpoints, that a tier has room for */
    CHECKPOINTS = 50,
    QUIET_US = 20000, /* without an event, when there is nothing left to do */
};

static void on_vram_ref(void *arg, uint32_t unit)
{
    const struct stack *s = arg;

    units_ref(engine_units(s->engine), unit);
}

static void on_vram_unref(void *arg, uint32_t unit)
{
    const struct stack *s = arg;

    units_unref(engine_units(s->engine), unit);
}

static void on_event(void *arg, const struct cache_event *e)
{
    const struct stack *s = arg;

    decisions_event(s->decisions, e, clock_ns());
}

static int open_engine(struct stack *s, const char *path, uint32_t n_threads, uint32_t n_tokens,
                       uint32_t n_units, struct err_text *e)
{
    struct engine_options o = {.n_threads = n_threads, .n_sequences = STACK_SLOTS};
    struct engine_plan plan;
    int r = model_open(path, &s->model, e);

    if (r < 0)
        return r;
    o.context = n_tokens < s->model->hp.n_context ? n_tokens : s->model->hp.n_context;
    r = tokenizer_new(s->model->gguf, &s->tokenizer, e);
    if (r >= 0)
        r = engine_plan(s->model, &o, &plan, e);
    if (r < 0)
        return r;
    /* Of a short context fewer: a unit of a large model is large. */
    s->n_units = SEQUENCES * engine_pages(o.context) + CHECKPOINTS * plan.checkpoint_units;
    s->n_units = s->n_units < n_units ? s->n_units : n_units;
    o.pool_bytes = plan.unit_bytes * s->n_units;
    r = engine_open(s->model, &o, &s->engine, e);
    s->unit_bytes = plan.unit_bytes;
    s->checkpoint_units = plan.checkpoint_units;
    s->context = plan.context;
    s->n_vocab = s->model->hp.n_vocab;
    return r;
}

static int open_cache(struct stack *s)
{
    const struct engine_plan *plan = engine_limits(s->engine);
    const struct cache_ops ops = {on_vram_ref, on_vram_unref, on_event, s};
    struct cache_options o = {
        .unit_bytes = plan->unit_bytes,
        .vram_units = plan->n_units,
        .checkpoint_units = plan->checkpoint_units,
        .checkpoint_bytes = plan->checkpoint_bytes,
        .limits = {.ram_units = s->n_units, .n_roots = N_ROOTS},
    };
    int r = arena_new(plan->unit_bytes, s->n_units, ARENA_SEGMENT_BYTES, &s->arena);

    o.arena = s->arena;
    if (r >= 0)
        r = decisions_new(&s->decisions);
    return r < 0 ? r : cache_new(&o, &ops, &s->cache);
}

int stack_open(struct stack *s, const char *path, uint32_t n_threads, uint32_t n_tokens,
               uint32_t n_units, uint32_t checkpoint_every, struct err_text *e)
{
    struct sched_options so = {
        .parallel = STACK_SLOTS,
        .max_gap_ms = MAX_GAP_MS,
        .max_queued = MAX_QUEUED,
        .root_min = 512,
        .checkpoint_every = checkpoint_every,
    };
    int r;

    *s = (struct stack){0};
    r = open_engine(s, path, n_threads, n_tokens, n_units, e);
    if (r >= 0) {
        r = open_cache(s);
        so.cache = s->cache;
        so.arena = s->arena;
        so.decisions = s->decisions;
        if (r >= 0)
            r = sd_event_new(&s->event);
        if (r >= 0)
            r = sched_new(s->event, s->engine, s->tokenizer, &so, &s->sched);
        if (r < 0)
            (void)err_set(e, r, "cannot set up the cache and the scheduler");
    }
    if (r < 0)
        stack_close(s);
    return r < 0 ? r : 0;
}

static void on_idle(void *arg)
{
    *(bool *)arg = true;
}

void stack_close(struct stack *s)
{
    bool idle = false;

    if (s->sched) {
        sched_stop(s->sched, true, on_idle, &idle);
        while (!idle && sd_event_run(s->event, UINT64_MAX) >= 0)
            ;
        sched_free(s->sched);
    }
    (void)sd_event_unref(s->event);
    cache_free(s->cache);
    arena_free(s->arena);
    decisions_free(s->decisions);
    if (s->engine)
        engine_close(s->engine);
    tokenizer_free(s->tokenizer);
    model_free(s->model);
    *s = (struct stack){0};
}

static void on_done(struct request *r, void *arg)
{
    struct stack *s = arg;

    (void)r;
    s->n_running--;
}

static uint64_t n_settled(const struct stack *s)
{
    struct decision_totals t;

    decisions_totals(s->decisions, &t);
    return t.requests;
}

int stack_run(struct stack *s, struct request **r, uint32_t n, double *ret_mounted_ms,
              struct err_text *e)
{
    const uint64_t before = n_settled(s), begin = clock_ns();
    double mounted_ms = -1;
    int rc = 0;

    for (uint32_t i = 0; i < n && rc == 0; i++) {
        r[i]->observer = (struct request_observer){.done = on_done, .arg = s};
        rc = sched_submit(s->sched, r[i], e);
        s->n_running += rc == 0;
    }
    /* To the end also when one could not be submitted. */
    while (s->n_running > 0) {
        const int turned = sd_event_run(s->event, UINT64_MAX);

        if (turned < 0)
            return err_set(e, turned, "the event loop failed");
        if (mounted_ms < 0 && n_settled(s) > before)
            mounted_ms = clock_ms_since(begin);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (r[i]->finish == FINISH_ERROR)
            rc = err_set(e, r[i]->error, "a request failed: %s", r[i]->error_text.s);
    if (ret_mounted_ms)
        *ret_mounted_ms = mounted_ms;
    return rc;
}

static bool is_quiet(const struct stack *s)
{
    struct cache_stats st;
    struct sched_totals t;

    cache_stats(s->cache, &st);
    sched_totals(s->sched, &t);
    return st.tier[CACHE_VRAM].units_coming + st.tier[CACHE_RAM].units_coming == 0 &&
           t.running + t.queued == 0 && engine_in_flight(s->engine) == 0;
}

int stack_settle(struct stack *s, struct err_text *e)
{
    int r;

    sched_cache_changed(s->sched);
    do {
        r = sd_event_run(s->event, QUIET_US);
        if (r < 0)
            return err_set(e, r, "the event loop failed");
    } while (r > 0 || !is_quiet(s));
    return 0;
}

static int expect_empty(const struct stack *s, struct err_text *e)
{
    struct cache_stats st;

    cache_stats(s->cache, &st);
    return st.tier[CACHE_VRAM].units_held == 0
               ? 0
               : err_set(e, -EBUSY, "%u units are still in vram", st.tier[CACHE_VRAM].units_held);
}

/* As if a request needed the whole pool; twice, since what is in ram by then goes the second time.
 */
int stack_demote(struct stack *s, struct err_text *e)
{
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        uint32_t coming;

        (void)cache_shed(s->cache, engine_units(s->engine)->n, &coming);
        r = stack_settle(s, e);
    }
    return r < 0 ? r : expect_empty(s, e);
}

int stack_forget(struct stack *s, struct err_text *e)
{
    int r = stack_settle(s, e);

    if (r < 0)
        return r;
    (void)cache_clear(s->cache);
    return expect_empty(s, e);
}
