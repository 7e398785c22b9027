/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched_lab.h"

#include "cache/arena.h"
#include "cache/cache_private.h"
#include "daemon/sched.h"
#include "tests/mkmodel.h"
#include "util/clock.h"
#include "util/err.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

enum { LAB_UID = 1000, MAX_PATH = 4096, MAX_STOPS = 128, COLD_ROWS = 1024 };

static void on_vram_ref(void *arg, uint32_t unit)
{
    const struct lab *l = arg;

    units_ref(engine_units(l->runner.engine), unit);
}

static void on_vram_unref(void *arg, uint32_t unit)
{
    const struct lab *l = arg;

    units_unref(engine_units(l->runner.engine), unit);
}

static void on_event(void *arg, const struct cache_event *e)
{
    const struct lab *l = arg;

    decisions_event(l->decisions, e, clock_ns());
}

static uint32_t or_else(uint32_t v, uint32_t otherwise)
{
    return v ? v : otherwise;
}

void lab_open(struct lab *l, const struct mkmodel *make, const struct lab_options *o)
{
    const struct runner_options ro = {
        .n_threads = or_else(o->n_threads, 1),
        .n_sequences = or_else(o->parallel, 4),
        .max_rows = or_else(o->max_rows, 128),
        .context = o->context ? o->context : 2048,
        .n_units = or_else(o->n_units, 256),
    };
    const struct runner_options cold = {
        .max_rows = COLD_ROWS, .context = MAX_PATH, .n_units = 1024};
    const struct cache_ops ops = {on_vram_ref, on_vram_unref, on_event, l};
    struct cache_options co = {0};
    struct sched_options so = {0};
    struct err_text e = {""};

    *l = (struct lab){0};
    ck_assert_int_ge(sd_event_new(&l->event), 0);
    runner_open_made(&l->runner, make, &ro);
    runner_open_made(&l->cold, make, &cold);
    ck_assert_msg(tokenizer_new(l->runner.model->gguf, &l->tokenizer, &e) == 0, "%s", e.s);
    ck_assert_int_eq(decisions_new(&l->decisions), 0);
    ck_assert_int_eq(arena_new(l->runner.plan.unit_bytes, o->ram_units,
                               l->runner.plan.unit_bytes * 8, &l->arena),
                     0);
    co = (struct cache_options){
        .unit_bytes = l->runner.plan.unit_bytes,
        .vram_units = l->runner.plan.n_units,
        .checkpoint_units = l->runner.plan.checkpoint_units,
        .arena = l->arena,
        .limits = {.ram_units = o->ram_units,
                   .n_conversations = o->n_conversations,
                   .n_roots = or_else(o->n_roots, 8)},
    };
    ck_assert_int_eq(cache_new(&co, &ops, &l->cache), 0);
    so = (struct sched_options){
        .parallel = ro.n_sequences,
        .max_gap_ms = 200,
        .max_queued = 1000,
        .cache = l->cache,
        .arena = l->arena,
        .decisions = l->decisions,
        .root_min = 128,
        .checkpoint_every = or_else(o->checkpoint_every, 8192),
    };
    ck_assert_int_eq(sched_new(l->event, l->runner.engine, l->tokenizer, &so, &l->sched), 0);
}

static void on_idle(void *arg)
{
    *(bool *)arg = true;
}

void lab_close(struct lab *l)
{
    struct err_text e = {""};
    bool idle = false;

    sched_stop(l->sched, false, on_idle, &idle);
    while (!idle)
        ck_assert_int_ge(sd_event_run(l->event, UINT64_MAX), 0);
    sched_free(l->sched);
    ck_assert_msg(cache_is_sane(l->cache, &e), "%s", e.s);
    cache_free(l->cache);
    ck_assert_uint_eq(engine_units(l->runner.engine)->n_free, l->runner.plan.n_units);
    ck_assert_uint_eq(arena_n_used(l->arena), 0);
    arena_free(l->arena);
    decisions_free(l->decisions);
    tokenizer_free(l->tokenizer);
    runner_close(&l->runner);
    runner_close(&l->cold);
    (void)sd_event_unref(l->event);
}

/* --- requests ----------------------------------------------------------------------------------
 */

static void on_done(struct request *r, void *arg)
{
    struct lab *l = arg;

    (void)r;
    l->n_running--;
}

struct request *lab_request(struct lab *l, const int32_t *ids, uint32_t n, uint32_t n_answer)
{
    struct request *r = request_new();

    ck_assert_ptr_nonnull(r);
    r->id = ++l->last_id;
    r->uid = LAB_UID;
    r->observer = (struct request_observer){.done = on_done, .arg = l};
    r->max_tokens = n_answer;
    r->sampling.logprob = true;
    r->sampling.n_top = SAMPLER_MAX_TOP;
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(token_list_add(&r->prompt, ids[i]), 0);
    return r;
}

void lab_submit(struct lab *l, struct request *r)
{
    struct err_text e = {""};

    ck_assert_msg(sched_submit(l->sched, r, &e) == 0, "%s", e.s);
    l->n_running++;
}

void lab_turn(struct lab *l)
{
    if (sd_event_run(l->event, 0) == 0 && engine_in_flight(l->runner.engine) > 0)
        ck_assert_int_ge(sd_event_run(l->event, UINT64_MAX), 0);
}

void lab_run(struct lab *l)
{
    struct err_text e = {""};

    for (;;) {
        if (sd_event_run(l->event, 0) > 0)
            continue;
        if (engine_in_flight(l->runner.engine) == 0)
            break;
        ck_assert_int_ge(sd_event_run(l->event, UINT64_MAX), 0);
    }
    ck_assert_msg(l->n_running == 0, "%u requests wait for something that never comes",
                  l->n_running);
    ck_assert_msg(cache_is_sane(l->cache, &e), "%s", e.s);
}

/* --- what is stored ----------------------------------------------------------------------------
 */

/* A stored path: its pages, its tokens (all of the last page's), its checkpoints. */
struct path {
    struct cache_node *nodes[MAX_PATH / CACHE_PAGE];
    uint32_t n_nodes, n;
    int32_t ids[MAX_PATH];
    struct cache_checkpoint *checks[MAX_STOPS];
    uint32_t n_checks;
};

static void path_add(struct path *p, struct cache_node *n)
{
    p->nodes[p->n_nodes++] = n;
    ck_assert_uint_eq(p->n % CACHE_PAGE, 0);
    memcpy(p->ids + p->n, n->tokens, n->n_tokens * sizeof p->ids[0]);
    p->n += n->n_tokens;
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (p->n_checks < MAX_STOPS)
            p->checks[p->n_checks++] = n->checks[i];
}

static const struct cache_space *space_of(const struct lab *l, uint32_t uid)
{
    for (const struct cache_space *s = l->cache->spaces; s; s = s->next)
        if (s->uid == uid && s != l->cache->shared)
            return s;
    return NULL;
}

/* The pages that tokens[0..n) go through; how many of the tokens those have. */
static uint32_t path_find(const struct lab *l, uint32_t uid, const int32_t *ids, uint32_t n,
                          struct path *ret)
{
    const struct cache_space *s = space_of(l, uid);
    uint32_t at = 0, common = CACHE_PAGE;

    ret->n_nodes = ret->n = ret->n_checks = 0;
    if (!s)
        return 0;
    for (struct cache_node *node = s->top; at < n && common == CACHE_PAGE; at += common) {
        node = node_find(node, ids + at, n - at < CACHE_PAGE ? n - at : CACHE_PAGE, &common);
        if (!node)
            break;
        path_add(ret, node);
    }
    return at;
}

static void transfer(struct runner *r, enum job_kind kind, uint32_t unit, uint32_t n_tokens,
                     void *host)
{
    struct transfer item = {.unit = unit, .host = host, .n_tokens = n_tokens % CACHE_PAGE};
    struct job_transfer j = {.job.kind = kind, .items = &item, .n_items = 1};

    ck_assert_int_eq(runner_job(r, &j.job), 0);
}

static void zero_tail(struct runner *r, uint32_t n_tokens, uint8_t *page)
{
    uint32_t unit;

    ck_assert_int_eq(units_take(engine_units(r->engine), 1, &unit), 0);
    transfer(r, JOB_IMPORT, unit, 0, page);
    transfer(r, JOB_EXPORT, unit, n_tokens, page);
    units_unref(engine_units(r->engine), unit);
}

/* --- what it would be --------------------------------------------------------------------------
 */

struct cold {
    uint8_t *pages;  /* owned */
    uint8_t *checks; /* owned, of path.checks */
    struct sample *samples;
};

static void cold_done(struct cold *c)
{
    free(c->pages);
    free(c->checks);
    free(c->samples);
}

/* Reads ids[0..n) from nothing, capturing where `p` has checkpoints; the rows from `first` on are
 * sampled. */
static void cold_read(struct lab *l, const struct path *p, const int32_t *ids, uint32_t n,
                      uint32_t first, const struct sampler_params *sp, struct cold *ret)
{
    struct runner *r = &l->cold;
    const uint32_t n_check = r->plan.checkpoint_units, n_units = p->n_checks * n_check;
    struct sequence *s = runner_sequence(r);
    uint32_t *units = calloc(n_units + 1, sizeof *units);
    struct step_capture *captures = calloc(p->n_checks + 1, sizeof *captures);
    size_t n_state;
    uint32_t i = 0;

    *ret = (struct cold){0};
    ret->checks = malloc(n_units * r->plan.unit_bytes + 1);
    ret->samples = calloc(n - first + 1, sizeof *ret->samples);
    ck_assert(units && captures && ret->checks && ret->samples);
    ck_assert_int_eq(units_take(engine_units(r->engine), n_units, units), 0);
    for (uint32_t k = 0; k < p->n_checks; k++)
        captures[k] = (struct step_capture){.pos = p->checks[k]->pos, .units = units + k * n_check};
    for (uint32_t at = 0, end; at < n; at = end) {
        struct step_entry en = {.seq = s, .ids = ids + at, .captures = captures + i};

        end = n - at < COLD_ROWS ? n : at + COLD_ROWS;
        en.n_rows = end - at;
        for (; i < p->n_checks && captures[i].pos <= end; i++)
            en.n_captures++;
        if (end > first) {
            const uint32_t begin = at > first ? at : first;

            en.n_logits = end - begin;
            en.samples = ret->samples + (begin - first);
            en.sampling = sp;
        }
        runner_step(r, &en, 1);
        ck_assert_int_eq(en.status, 0);
    }
    for (uint32_t k = 0; k < n_units; k++) {
        transfer(r, JOB_EXPORT, units[k], 0, ret->checks + k * r->plan.unit_bytes);
        units_unref(engine_units(r->engine), units[k]);
    }
    ret->pages = runner_state(r, s, NULL, &n_state);
    free(units);
    free(captures);
    runner_release(r, s);
}

/* Where they differ; n: nowhere. */
static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t i = 0;

    if (memcmp(a, b, n) == 0)
        return n;
    while (a[i] == b[i])
        i++;
    return i;
}

static void compare_unit(struct lab *l, enum cache_tier t, uint32_t unit, uint32_t n_tokens,
                         const uint8_t *want, const char *of, uint32_t pos, const char *what,
                         uint32_t k)
{
    const size_t n = l->runner.plan.unit_bytes;
    uint8_t *bytes = malloc(n);
    size_t at;

    ck_assert_ptr_nonnull(bytes);
    if (t == CACHE_VRAM) {
        transfer(&l->runner, JOB_EXPORT, unit, n_tokens, bytes);
    } else {
        memcpy(bytes, arena_ptr(l->arena, unit), n);
        /* A page that was cut back may have rows behind its end: nobody reads them. */
        if (n_tokens % CACHE_PAGE > 0)
            zero_tail(&l->cold, n_tokens, bytes);
    }
    at = first_difference(bytes, want, n);
    ck_assert_msg(
        at == n, "%s %u: the %s at %u (%u tokens) in %s differs from a cold one at byte %zu of %zu",
        what, k, of, pos, n_tokens, t == CACHE_VRAM ? "vram" : "ram", at, n);
    free(bytes);
}

static void compare_path(struct lab *l, const struct path *p, const struct cold *c,
                         const char *what, uint32_t k)
{
    const uint32_t n_check = l->runner.plan.checkpoint_units;
    const size_t unit = l->runner.plan.unit_bytes;

    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct cache_node *n = p->nodes[i];

        for (enum cache_tier t = 0; t < CACHE_TIERS; t++)
            if (n->copy[t].state == COPY_VALID) {
                compare_unit(l, t, n->copy[t].unit, n->n_tokens, c->pages + i * unit, "page",
                             i * CACHE_PAGE, what, k);
                l->unit_pages_compared++;
            }
    }
    for (uint32_t i = 0; i < p->n_checks; i++)
        for (enum cache_tier t = 0; t < CACHE_TIERS; t++) {
            const struct cache_checkpoint *x = p->checks[i];

            if (x->state[t] != COPY_VALID)
                continue;
            for (uint32_t u = 0; u < n_check; u++)
                compare_unit(l, t, x->units[t * n_check + u], 0,
                             c->checks + (i * n_check + u) * unit, "checkpoint", x->pos, what, k);
            l->checks_compared++;
        }
}

static void compare_samples(const struct request *r, const struct cold *c, const char *what,
                            uint32_t k)
{
    for (size_t i = 0; i < r->n_tokens; i++) {
        const struct out_token *have = &r->tokens[i];
        const struct sample *want = &c->samples[i];
        bool same = have->id == want->id && have->n_top == want->n_top &&
                    memcmp(&have->logprob, &want->logprob, sizeof want->logprob) == 0;

        for (uint32_t j = 0; same && j < want->n_top; j++)
            same = have->top[j].id == want->top[j].id &&
                   memcmp(&have->top[j].logprob, &want->top[j].logprob, sizeof(float)) == 0;
        ck_assert_msg(same, "%s %u: token %zu behind %zu, of which %u were reused: %d, cold %d",
                      what, k, i, r->prompt.n, r->n_cached, have->id, want->id);
    }
}

void lab_expect_cold(struct lab *l, const struct request *r, const char *what, uint32_t k)
{
    const uint32_t n_prompt = (uint32_t)r->prompt.n;
    struct path *p = calloc(1, sizeof *p);
    int32_t *ids = calloc(n_prompt + r->n_tokens + CACHE_PAGE, sizeof *ids);
    uint32_t n = n_prompt, common;
    struct sampler_params sp = r->sampling;
    struct cold c;

    ck_assert(p && ids);
    ck_assert_msg(r->finish != FINISH_ERROR, "%s %u: %s", what, k, r->error_text.s);
    memcpy(ids, r->prompt.ids, n_prompt * sizeof *ids);
    for (size_t i = 0; i + 1 < r->n_tokens; i++)
        ids[n++] = r->tokens[i].id;
    common = path_find(l, r->uid, ids, n, p);
    /* The page may have more than it: then that is compared as well. */
    if (common == n && p->n > n) {
        memcpy(ids + n, p->ids + n, (p->n - n) * sizeof *ids);
        n = p->n;
    } else if (common < p->n || (p->n < n && p->n % CACHE_PAGE > 0)) {
        /* The last page is another's from somewhere in it on, or holds less than was read. */
        const struct cache_node *last = p->nodes[--p->n_nodes];

        p->n -= last->n_tokens;
        while (p->n_checks > 0 && p->checks[p->n_checks - 1]->pos > p->n)
            p->n_checks--;
    }
    cold_read(l, p, ids, n, n_prompt - 1, &sp, &c);
    compare_samples(r, &c, what, k);
    compare_path(l, p, &c, what, k);
    cold_done(&c);
    free(ids);
    free(p);
}

static void compare_below(struct lab *l, const struct cache_node *n, struct path *p,
                          const char *what, uint32_t k)
{
    const uint32_t n_nodes = p->n_nodes, n_tokens = p->n, n_checks = p->n_checks;
    struct sampler_params sp;
    struct cold c;

    sampler_params_init(&sp);
    for (uint32_t i = 0; i < n->n_kids; i++) {
        path_add(p, node_kid(n, i));
        compare_below(l, node_kid(n, i), p, what, k);
        p->n_nodes = n_nodes;
        p->n = n_tokens;
        p->n_checks = n_checks;
    }
    if (n->n_kids > 0 || p->n == 0)
        return;
    cold_read(l, p, p->ids, p->n, p->n, &sp, &c);
    compare_path(l, p, &c, what, k);
    cold_done(&c);
}

void lab_expect_all_cold(struct lab *l, const char *what, uint32_t k)
{
    struct path *p = calloc(1, sizeof *p);

    ck_assert_ptr_nonnull(p);
    for (const struct cache_space *s = l->cache->spaces; s; s = s->next) {
        p->n_nodes = p->n = p->n_checks = 0;
        compare_below(l, s->top, p, what, k);
    }
    free(p);
}

uint8_t *lab_path_bytes(struct lab *l, uint32_t uid, const int32_t *ids, uint32_t n,
                        bool as_they_are, size_t *ret_n)
{
    const size_t unit = l->runner.plan.unit_bytes;
    struct path *p = calloc(1, sizeof *p);
    uint8_t *bytes;

    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq(path_find(l, uid, ids, n, p), n);
    bytes = malloc(p->n_nodes * unit + 1);
    ck_assert_ptr_nonnull(bytes);
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        ck_assert_int_eq(p->nodes[i]->copy[CACHE_VRAM].state, COPY_VALID);
        transfer(&l->runner, JOB_EXPORT, p->nodes[i]->copy[CACHE_VRAM].unit,
                 as_they_are ? 0 : p->nodes[i]->n_tokens, bytes + i * unit);
    }
    *ret_n = p->n_nodes * unit;
    free(p);
    return bytes;
}
