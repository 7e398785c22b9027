/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched_world.h"

#include "cache/arena.h"
#include "util/clock.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

/* Letters, so that stop strings come up, and characters in pieces. */
static const struct fake_piece pieces[WORLD_VOCAB] = {
    {"<end>", 5}, {"?", 1},  {"a", 1},   {"b", 1},        {"ab", 2},   {"ba", 2},
    {"c", 1},     {" ", 1},  {"é", 2},   {"\xe2\x82", 2}, {"\xac", 1}, {"\xf0\x9f\x98", 3},
    {"\x80", 1},  {"€€", 6}, {"abc", 3}, {"", 0},         {"d", 1},    {"e", 1},
    {"f", 1},     {"g", 1},  {"h", 1},   {"i", 1},        {"j", 1},    {"k", 1},
    {"l", 1},     {"m", 1},  {"n", 1},   {"o", 1},        {"p", 1},    {"q", 1},
    {"r", 1},     {"s", 1},  {"t", 1},   {"u", 1},        {"v", 1},    {"w", 1},
    {"x", 1},     {"y", 1},  {"z", 1},   {"\n", 1},
};

/* One for all: no two worlds exist at a time. */
static uint64_t world_clock;

enum { TURN_NS = 1000000 };

/* --- the cache's side --- */

static void on_vram_ref(void *arg, uint32_t unit)
{
    const struct world *w = arg;

    units_ref(engine_units(w->engine), unit);
}

static void on_vram_unref(void *arg, uint32_t unit)
{
    const struct world *w = arg;

    units_unref(engine_units(w->engine), unit);
}

static void on_event(void *arg, const struct cache_event *e)
{
    struct world *w = arg;

    if (w->n_events < WORLD_EVENTS)
        w->events[w->n_events++] = *e;
    decisions_event(w->decisions, e, clock_ns());
}

uint32_t world_n_events(const struct world *w, enum cache_event_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_events; i++)
        n += w->events[i].kind == kind;
    return n;
}

static void cache_open(struct world *w)
{
    const struct cache_ops ops = {on_vram_ref, on_vram_unref, on_event, w};
    struct cache_options o = {
        .unit_bytes = FAKE_UNIT_BYTES,
        .vram_units = w->o.engine.n_units,
        .checkpoint_units = w->o.engine.checkpoint_units,
        .limits = w->o.limits,
    };

    /* Segments of four units: they come and go all the time. */
    ck_assert_int_eq(
        arena_new(FAKE_UNIT_BYTES, o.limits.ram_units, 4 * (uint64_t)FAKE_UNIT_BYTES, &w->arena),
        0);
    o.arena = w->arena;
    ck_assert_int_eq(cache_new(&o, &ops, &w->cache), 0);
    ck_assert_int_eq(decisions_new(&w->decisions), 0);
    w->o.sched.cache = w->cache;
    w->o.sched.arena = w->arena;
    w->o.sched.decisions = w->decisions;
}

/* Nothing runs any more. */
static void cache_close(struct world *w)
{
    const struct units *u = engine_units(w->engine);
    struct cache_stats st;

    cache_stats(w->cache, &st);
    /* Nobody but the cache holds anything. */
    ck_assert_uint_eq(u->n - u->n_free, st.tier[CACHE_VRAM].units_held);
    ck_assert_uint_eq(st.tier[CACHE_VRAM].units_coming + st.tier[CACHE_RAM].units_coming, 0);
    ck_assert_uint_eq(st.n_active, 0);
    if (st.n_pinned == 0) {
        (void)cache_clear(w->cache);
        cache_stats(w->cache, &st);
        ck_assert_uint_eq(st.tier[CACHE_VRAM].units_held + st.tier[CACHE_RAM].units_held, 0);
        ck_assert_uint_eq(st.n_pages + st.n_checkpoints + st.n_parked + st.n_roots, 0);
        ck_assert_uint_eq(u->n_free, u->n);
    }
    cache_free(w->cache);
    ck_assert(arena_is_sane(w->arena));
    ck_assert_uint_eq(arena_n_used(w->arena), 0);
    arena_free(w->arena);
}

/* Every sum is what can be reached, and no budget is exceeded. */
static void check_books(const struct world *w)
{
    const struct units *u = engine_units(w->engine);
    struct err_text e = {0};
    struct cache_stats st;

    ck_assert(units_is_sane(u));
    if (!w->cache)
        return;
    ck_assert_msg(cache_is_sane(w->cache, &e), "%s", e.s);
    ck_assert(arena_is_sane(w->arena));
    cache_stats(w->cache, &st);
    ck_assert_uint_eq(arena_n_used(w->arena), st.tier[CACHE_RAM].units_held);
    ck_assert_uint_le(st.tier[CACHE_VRAM].units_held, u->n - u->n_free);
    if (!w->lowered)
        ck_assert_uint_le(st.tier[CACHE_RAM].units_held, w->o.limits.ram_units);
    if (w->o.limits.n_conversations > 0 && !w->lowered)
        ck_assert_uint_le(st.n_parked, w->o.limits.n_conversations);
    ck_assert_uint_le(st.n_roots, w->o.limits.n_roots + st.n_pinned);
}

void world_set_limits(struct world *w, const struct cache_limits *l)
{
    /* What is held may stay above. */
    w->lowered = w->lowered || l->ram_units < w->o.limits.ram_units ||
                 l->n_conversations < w->o.limits.n_conversations;
    w->o.limits = *l;
    cache_set_limits(w->cache, l);
    sched_cache_changed(w->sched);
    check_books(w);
}

/* --- the world --- */

struct world *world_new(const struct world_options *o)
{
    struct world *w = calloc(1, sizeof *w);

    ck_assert_ptr_nonnull(w);
    w->o = *o;
    w->seed = (unsigned int)o->engine.seed;
    ck_assert_int_ge(sd_event_new(&w->event), 0);
    w->engine = fake_engine_new(&o->engine);
    w->tokenizer = fake_tokenizer_new(pieces, WORLD_VOCAB);
    if (o->cache) {
        world_clock = TURN_NS;
        clock_set_fake(&world_clock);
        cache_open(w);
    }
    ck_assert_int_eq(sched_new(w->event, w->engine, w->tokenizer, &w->o.sched, &w->sched), 0);
    return w;
}

static void nothing(void *arg)
{
    (void)arg;
}

void world_free(struct world *w)
{
    w->on_call = NULL;
    sched_stop(w->sched, true, nothing, NULL);
    world_run(w);
    sched_free(w->sched);
    ck_assert_uint_eq(w->n_done, w->n_submitted);
    check_books(w);
    if (w->cache)
        cache_close(w);
    ck_assert(units_is_sane(engine_units(w->engine)));
    ck_assert_uint_eq(engine_units(w->engine)->n_free, w->o.engine.n_units);
    for (uint32_t i = 0; i < w->n_clients; i++)
        client_free(&w->clients[i]);
    decisions_free(w->decisions);
    engine_close(w->engine);
    tokenizer_free(w->tokenizer);
    (void)sd_event_unref(w->event);
    if (w->o.cache)
        clock_set_fake(NULL);
    free(w);
}

void world_turn(struct world *w)
{
    int rc;

    world_clock += TURN_NS;
    while ((rc = sd_event_run(w->event, 0)) > 0)
        if (!w->o.dear)
            check_books(w);
    ck_assert_int_eq(rc, 0);
    check_books(w);
    ck_assert_uint_le(fake_engine_log(w->engine)->steps_in_flight, 2);
}

bool world_step(struct world *w)
{
    bool any;

    world_turn(w);
    any = fake_engine_run(w->engine);
    if (!w->cache)
        return any;
    world_clock += w->o.ns_per_transfer;
    return fake_engine_transfer(w->engine) || any;
}

void world_run(struct world *w)
{
    /* Far more than any test needs: a scheduler that turns in circles is found out. */
    for (int i = 0; i < 100000; i++)
        if (!world_step(w))
            return;
    ck_abort_msg("the scheduler never comes to rest");
}

void world_run_until_read(struct world *w, const struct client *c, uint32_t n)
{
    world_turn(w);
    while (c->r->n_read < n && c->n_done == 0) {
        ck_assert(world_step(w));
        world_turn(w);
    }
}

/* --- the cold run --- */

static uint32_t limit_of(const struct client *c)
{
    const struct fake_options *o = &c->w->o.engine;
    uint32_t pool = o->n_units * ENGINE_PAGE_TOKENS + 1;
    uint32_t most = (o->context < pool ? o->context : pool) - (uint32_t)c->r->prompt.n;

    return c->r->max_tokens < most ? c->r->max_tokens : most;
}

struct cold {
    int32_t ids[4096];
    size_t n;
    enum finish_reason finish;
    const char *stop_word;
    struct buf text; /* repaired; cut at the stop string */
};

/* A stop string that `text` ends with at any byte from `from` on; the text is cut. */
static const char *find_stop(const struct request *r, struct buf *text, size_t from)
{
    for (size_t end = from + 1; end <= text->len; end++) {
        const char *best = NULL;

        for (size_t i = 0; i < r->n_stop; i++) {
            size_t n = strlen(r->stop[i]);

            if (n <= end && memcmp(text->data + end - n, r->stop[i], n) == 0 &&
                (!best || n > strlen(best)))
                best = r->stop[i];
        }
        if (best) {
            text->len = end - strlen(best);
            return best;
        }
    }
    return NULL;
}

/* Whether a hold at this many tokens inserts: any rule that needs nothing else. */
static bool inserts_at(uint32_t n_generated)
{
    return n_generated % 3 == 0;
}

static void run_cold(const struct client *c, struct cold *ret)
{
    const struct request *r = c->r;
    struct utf8_stream u = {{0}, 0};
    int32_t *ids = calloc(r->prompt.n + 4096, sizeof *ids);
    size_t n = r->prompt.n;

    uint32_t hold = c->hold_every ? c->hold_every : UINT32_MAX;
    size_t i_insert = r->insert.n; /* of the insertion under way */

    *ret = (struct cold){.finish = FINISH_LENGTH};
    memcpy(ids, r->prompt.ids, n * sizeof *ids);
    while (ret->n < limit_of(c)) {
        const bool inserted = i_insert < r->insert.n;
        int32_t id = inserted ? r->insert.ids[i_insert++]
                              : fake_next(&c->w->o.engine, ids, n, r->ignore_eos);
        size_t from = ret->text.len;

        ck_assert_uint_lt(ret->n, 4096);
        ids[n++] = ret->ids[ret->n++] = id;
        if (!inserted && id == FAKE_END) {
            ret->finish = FINISH_STOP;
            break;
        }
        ck_assert_int_eq(utf8_stream_put(&u, pieces[id].s, pieces[id].n, &ret->text), 0);
        ret->stop_word = find_stop(r, &ret->text, from);
        if (ret->stop_word) {
            ret->finish = FINISH_STOP;
            break;
        }
        if (!inserted && ret->n >= hold) {
            hold = ret->n + c->hold_every;
            if (inserts_at(ret->n) && ret->n + r->insert.n < limit_of(c))
                i_insert = 0;
        }
    }
    if (!ret->stop_word) {
        size_t from = ret->text.len;

        ck_assert_int_eq(utf8_stream_end(&u, &ret->text), 0);
        ret->stop_word = find_stop(r, &ret->text, from);
    }
    free(ids);
}

void client_check(const struct client *c)
{
    const struct request *r = c->r;
    struct cold *cold = malloc(sizeof *cold);

    run_cold(c, cold);
    ck_assert_uint_eq(c->n_done, 1);
    ck_assert_int_eq(r->state, REQUEST_DONE);
    ck_assert_msg(r->finish != FINISH_ERROR, "%s", r->error_text.s);
    ck_assert_uint_eq(r->n_tokens, r->n_generated);
    ck_assert_uint_eq(r->n_tokens_released, r->n_tokens);
    ck_assert_uint_le(r->n_tokens, cold->n);
    for (size_t i = 0; i < r->n_tokens; i++)
        ck_assert_int_eq(r->tokens[i].id, cold->ids[i]);
    if (r->finish != FINISH_CANCELLED) {
        ck_assert_int_eq(r->finish, cold->finish);
        ck_assert_uint_eq(r->n_tokens, cold->n);
        ck_assert_uint_eq(r->n_read, r->prompt.n);
        ck_assert_ptr_eq(r->stop_word, cold->stop_word);
        ck_assert_uint_eq(r->text.len, cold->text.len);
        if (r->text.len)
            ck_assert_mem_eq(r->text.data, cold->text.data, r->text.len);
    }
    buf_done(&cold->text);
    free(cold);
}

/* --- clients --- */

static void on_any(struct client *c, bool done)
{
    ck_assert(!c->w->inside);
    ck_assert_uint_eq(c->n_done, done);
    ck_assert_uint_ge(c->r->n_read, c->seen_read);
    ck_assert_uint_ge(c->r->n_tokens, c->seen_tokens);
    ck_assert_uint_ge(c->r->text.len, c->seen_text);
    c->seen_read = c->r->n_read;
    c->seen_tokens = c->r->n_tokens;
    c->seen_text = c->r->text.len;
    if (c->w->on_call)
        c->w->on_call(c, done);
}

static void on_progress(struct request *r, void *arg)
{
    struct client *c = arg;

    ck_assert_uint_gt(r->n_read, c->seen_read);
    c->n_progress++;
    on_any(c, false);
}

static void on_output(struct request *r, void *arg)
{
    struct client *c = arg;

    (void)r;
    c->n_output++;
    on_any(c, false);
}

static void on_done(struct request *r, void *arg)
{
    struct client *c = arg;

    ck_assert_int_eq(r->state, REQUEST_DONE);
    ck_assert_int_ne(r->finish, FINISH_NONE);
    c->n_done++;
    c->done_at = ++c->w->n_done;
    on_any(c, true);
}

struct client *client_new(struct world *w, uint32_t n_prompt, uint32_t max_tokens)
{
    uint32_t at = 0;
    struct client *c;

    while (at < w->n_clients && w->clients[at].r)
        at++;
    ck_assert_uint_lt(at, WORLD_CLIENTS);
    w->n_clients += at == w->n_clients;
    c = &w->clients[at];
    *c = (struct client){.w = w, .r = request_new()};
    ck_assert_ptr_nonnull(c->r);
    for (uint32_t i = 0; i < n_prompt; i++)
        ck_assert_int_eq(token_list_add(&c->r->prompt, 2 + rand_r(&w->seed) % (WORLD_VOCAB - 2)),
                         0);
    c->r->max_tokens = max_tokens;
    c->r->observer = (struct request_observer){
        .progress = on_progress, .output = on_output, .done = on_done, .arg = c};
    return c;
}

static bool on_held(struct request *r, void *arg)
{
    const struct client *c = arg;

    ck_assert_uint_ge(r->n_generated, r->n_hold);
    r->n_hold = r->n_generated + c->hold_every;
    return inserts_at(r->n_generated);
}

void client_hold(struct client *c, uint32_t every, uint32_t n)
{
    c->hold_every = c->r->n_hold = every;
    c->r->observer.held = on_held;
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(token_list_add(&c->r->insert, 2 + rand_r(&c->w->seed) % (WORLD_VOCAB - 2)),
                         0);
}

int client_submit(struct client *c, struct err_text *e)
{
    int rc;

    c->w->inside = true;
    rc = sched_submit(c->w->sched, c->r, e);
    c->w->inside = false;
    c->submitted = rc == 0;
    c->w->n_submitted += c->submitted;
    return rc;
}

void client_free(struct client *c)
{
    c->r = request_unref(c->r);
}

/* --- prompts by hand --- */

void text_add(struct text *t, uint32_t n, unsigned int seed)
{
    unsigned int state = seed + 1;

    ck_assert_uint_le(t->n + n, WORLD_TEXT);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned int x = i == 0 ? seed : (unsigned int)rand_r(&state);

        t->ids[t->n++] = 2 + (int32_t)(x % (WORLD_VOCAB - 2));
    }
}

void text_add_ids(struct text *t, const int32_t *ids, uint32_t n)
{
    ck_assert_uint_le(t->n + n, WORLD_TEXT);
    for (uint32_t i = 0; i < n; i++)
        t->ids[t->n++] = ids[i];
}

void text_add_answer(struct text *t, const struct client *c)
{
    for (size_t i = 0; i < c->r->n_tokens; i++)
        text_add_ids(t, &c->r->tokens[i].id, 1);
}

uint32_t text_common(const struct text *a, const struct text *b)
{
    const uint32_t most = a->n < b->n ? a->n : b->n;
    uint32_t n = 0;

    while (n < most && a->ids[n] == b->ids[n])
        n++;
    return n;
}

struct client *client_of(struct world *w, const struct text *prompt, uint32_t max_tokens)
{
    struct client *c = client_new(w, 0, max_tokens);

    for (uint32_t i = 0; i < prompt->n; i++)
        ck_assert_int_eq(token_list_add(&c->r->prompt, prompt->ids[i]), 0);
    c->r->uid = 1000;
    return c;
}

void client_run(struct client *c)
{
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(c->w);
    client_check(c);
}

struct client *world_ask(struct world *w, const struct text *prompt, uint32_t max_tokens)
{
    struct client *c = client_of(w, prompt, max_tokens);

    client_run(c);
    return c;
}

/* In words, so that all of a difference is seen at once. */
static void put_told(char s[160], const struct told *x)
{
    (void)snprintf(s, 160, "from %s%s%s, reused %u, read %u: %s", source_str(x->source),
                   x->is_switch ? ", a switch" : "", x->is_hit ? ", a hit" : "", x->n_reused,
                   x->n_read, decision_why_str(x->why));
}

void client_told(const struct client *c, struct told want)
{
    const struct decision *x = c->r->decision;
    const struct told is = {x->source, x->is_switch, x->is_hit, x->n_reused, x->n_read, x->why};
    char a[160], b[160];

    put_told(a, &is);
    put_told(b, &want);
    ck_assert_str_eq(a, b);
    ck_assert(x->done);
    ck_assert_uint_eq(x->n_reused, c->r->n_cached);
    ck_assert_uint_eq(x->n_prompt, c->r->prompt.n);
}

struct told told_cold(uint32_t n)
{
    return (struct told){SOURCE_NONE, true, false, 0, n, WHY_NOTHING_STORED};
}

struct world_options world_cached(bool hybrid)
{
    return (struct world_options){
        .engine = {.n_units = 128,
                   .context = 2048,
                   .max_rows = 512,
                   .n_sequences = 4,
                   .n_vocab = WORLD_VOCAB,
                   .checkpoint_units = hybrid ? 3 : 0,
                   .seed = 1},
        .sched = {.parallel = 4, .max_gap_ms = 200, .max_queued = 16, .root_min = 64},
        .cache = true,
        .limits = {.ram_units = 256, .n_roots = 8},
    };
}

struct cache_stats world_stats(const struct world *w)
{
    struct cache_stats st;

    cache_stats(w->cache, &st);
    return st;
}

uint64_t world_rows(const struct world *w)
{
    return fake_engine_log(w->engine)->n_rows;
}
