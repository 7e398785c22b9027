/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cache_world.h"

#include "cache/arena.h"
#include "util/err.h"
#include "util/hash.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { GARBAGE = 0xDB, SEGMENT_UNITS = 7 };

struct cw_seq cw_seq(const char *spec)
{
    struct cw_seq q = {0};
    bool has_prompt = false;

    while (*spec) {
        const char c = *spec++;

        if (c == '/') {
            q.root = q.n;
        } else if (c == '?') {
            q.query = q.n;
        } else if (c == '|') {
            q.turn = q.n;
        } else if (c == '!') {
            q.n_prompt = q.n;
            has_prompt = true;
        } else if (c != ' ') {
            const int32_t n = (int32_t)strtol(spec, (char **)&spec, 10);

            ck_assert(n > 0 && q.n + (uint32_t)n <= CW_TOKENS);
            for (int32_t i = 0; i < n; i++)
                q.t[q.n++] = c * 10000 + i;
        }
    }
    if (!has_prompt)
        q.n_prompt = q.n;
    return q;
}

/* --- the pool -------------------------------------------------------------------------------- */

static void on_ref(void *arg, uint32_t unit)
{
    struct cw_world *w = arg;

    ck_assert_uint_lt(unit, w->o.vram_units);
    ck_assert_msg(w->refs[unit] > 0, "a reference on the free unit %u", unit);
    w->refs[unit]++;
    w->cache_refs[unit]++;
}

void cw_unref(struct cw_world *w, uint32_t unit)
{
    ck_assert_uint_lt(unit, w->o.vram_units);
    ck_assert_uint_gt(w->refs[unit], 0);
    if (--w->refs[unit] > 0)
        return;
    ck_assert_msg(w->n_flying[unit] == 0, "unit %u was given back while it is copied", unit);
    ck_assert_uint_eq(w->cache_refs[unit], 0);
    memset(w->vram[unit], GARBAGE, sizeof w->vram[unit]);
    w->n_free++;
}

static void on_unref(void *arg, uint32_t unit)
{
    struct cw_world *w = arg;

    ck_assert_uint_lt(unit, w->o.vram_units);
    ck_assert_msg(w->cache_refs[unit] > 0, "unit %u is not the cache's", unit);
    w->cache_refs[unit]--;
    cw_unref(w, unit);
}

static void on_event(void *arg, const struct cache_event *e)
{
    struct cw_world *w = arg;

    w->events[w->n_events++ % CW_EVENTS] = *e;
    if (w->on_event)
        w->on_event(w->on_event_arg, e);
}

uint32_t cw_take(struct cw_world *w)
{
    if (w->n_free == 0)
        return CACHE_NO_UNIT;
    while (w->refs[w->next_unit])
        w->next_unit = (w->next_unit + 1) % w->o.vram_units;
    w->refs[w->next_unit] = 1;
    w->n_free--;
    return w->next_unit;
}

uint32_t cw_shed(struct cw_world *w, uint32_t n, uint32_t *ret_coming)
{
    uint32_t coming = 0, got = cache_shed(w->cache, n, &coming);

    if (ret_coming)
        *ret_coming = coming;
    return got;
}

bool cw_make_room(struct cw_world *w, uint32_t n)
{
    uint32_t coming;

    for (int tries = 0; w->n_free < n && tries < 1000; tries++) {
        if (cw_shed(w, n - w->n_free, &coming) == 0 && coming == 0)
            return false;
        if (w->n_free >= n)
            break;
        while (coming > 0 && cw_begin_write_back(w)) {
            const uint32_t units = w->moves[w->n_moves - 1]->n_units;

            coming -= units < coming ? units : coming;
        }
        cw_end_moves(w, true);
    }
    return w->n_free >= n;
}

/* --- moves ----------------------------------------------------------------------------------- */

static void begin_move(struct cw_world *w, struct cache_move *m)
{
    ck_assert_uint_lt(w->n_moves, CW_MOVES);
    ck_assert_uint_gt(m->n_units, 0);
    for (uint32_t i = 0; i < m->n_units; i++) {
        ck_assert_uint_lt(m->vram[i], w->o.vram_units);
        ck_assert_uint_gt(w->cache_refs[m->vram[i]], 0);
        ck_assert_uint_gt(arena_refs(w->arena, m->ram[i]), 0);
        w->n_flying[m->vram[i]]++;
        if (m->load)
            memset(w->vram[m->vram[i]], GARBAGE, CW_UNIT_BYTES);
        else
            memset(arena_ptr(w->arena, m->ram[i]), GARBAGE, CW_UNIT_BYTES);
    }
    w->moves[w->n_moves++] = m;
}

void cw_begin_moves(struct cw_world *w, struct cache_move *list)
{
    while (list) {
        struct cache_move *next = list->next;

        begin_move(w, list);
        list = next;
    }
}

bool cw_begin_write_back(struct cw_world *w)
{
    struct cache_move *m = cache_next_write_back(w->cache);

    if (!m)
        return false;
    ck_assert(!m->load);
    ck_assert(m->n_tokens == 0 || (m->n_units == 1 && m->n_tokens < CACHE_PAGE));
    begin_move(w, m);
    return true;
}

void cw_end_move(struct cw_world *w, uint32_t at, bool ok)
{
    struct cache_move *m = w->moves[at];

    w->moves[at] = w->moves[--w->n_moves];
    for (uint32_t i = 0; i < m->n_units; i++) {
        uint64_t *ram = arena_ptr(w->arena, m->ram[i]), *vram = w->vram[m->vram[i]];

        ck_assert_uint_gt(arena_refs(w->arena, m->ram[i]), 0);
        w->n_flying[m->vram[i]]--;
        if (ok)
            memcpy(m->load ? vram : ram, m->load ? ram : vram, CW_UNIT_BYTES);
        if (ok && !m->load && m->n_tokens)
            memset(ram + m->n_tokens, 0, (CACHE_PAGE - m->n_tokens) * sizeof *ram);
    }
    cache_move_done(w->cache, m, ok);
}

void cw_end_moves(struct cw_world *w, bool ok)
{
    while (w->n_moves)
        cw_end_move(w, 0, ok);
}

void cw_settle(struct cw_world *w)
{
    for (int i = 0; i < CW_MOVES; i++) {
        while (cw_begin_write_back(w))
            ;
        if (w->n_moves == 0)
            return;
        cw_end_moves(w, true);
    }
    ck_abort_msg("copies to ram never end");
}

void cw_demote_all(struct cw_world *w)
{
    cw_settle(w);
    (void)cw_make_room(w, w->o.vram_units);
}

/* --- events ---------------------------------------------------------------------------------- */

uint32_t cw_n_events(const struct cw_world *w, enum cache_event_kind kind, int why, uint64_t id)
{
    uint32_t n = 0;

    ck_assert_uint_le(w->n_events, CW_EVENTS);
    for (uint32_t i = 0; i < w->n_events; i++) {
        const struct cache_event *e = &w->events[i];

        n += e->kind == kind && (why == CW_ANY || e->why == (enum cache_why)why) &&
             (id == 0 || e->id == id);
    }
    return n;
}

void cw_forget_events(struct cw_world *w)
{
    w->n_events = 0;
}

/* --- the world ------------------------------------------------------------------------------- */

struct cw_world *cw_new(const struct cw_options *o)
{
    struct cw_world *w = calloc(1, sizeof *w);
    const struct cache_ops ops = {on_ref, on_unref, on_event, w};
    struct cache_options co = {.unit_bytes = CW_UNIT_BYTES,
                               .vram_units = o->vram_units,
                               .checkpoint_units = o->checkpoint_units};

    ck_assert_uint_le(o->checkpoint_units, CW_CHECKPOINT_UNITS);
    w->o = *o;
    w->now = 1000 * CW_SECOND;
    w->n_free = o->vram_units;
    w->refs = calloc(o->vram_units, sizeof *w->refs);
    w->cache_refs = calloc(o->vram_units, sizeof *w->cache_refs);
    w->n_flying = calloc(o->vram_units, sizeof *w->n_flying);
    w->vram = calloc(o->vram_units, sizeof *w->vram);
    ck_assert_int_eq(
        arena_new(CW_UNIT_BYTES, o->ram_units, (uint64_t)SEGMENT_UNITS * CW_UNIT_BYTES, &w->arena),
        0);
    w->limits = (struct cache_limits){
        .ram_units = o->ram_units, .n_conversations = o->n_conversations, .n_roots = o->n_roots};
    co.arena = w->arena;
    co.limits = w->limits;
    ck_assert_int_eq(cache_new(&co, &ops, &w->cache), 0);
    w->space = cache_space_get(w->cache, "one", 3, 1000);
    ck_assert_ptr_nonnull(w->space);
    return w;
}

void cw_free(struct cw_world *w)
{
    cw_end_moves(w, true);
    cw_check(w);
    cache_space_unref(w->cache, w->space);
    w->on_event = NULL;
    cache_free(w->cache);
    ck_assert_uint_eq(w->n_free, w->o.vram_units);
    ck_assert_uint_eq(arena_n_used(w->arena), 0);
    arena_free(w->arena);
    free(w->refs);
    free(w->cache_refs);
    free(w->n_flying);
    free(w->vram);
    free(w);
}

struct cache_stats cw_stats(const struct cw_world *w)
{
    struct cache_stats st;

    cache_stats(w->cache, &st);
    return st;
}

void cw_check(const struct cw_world *w)
{
    const struct cache_stats st = cw_stats(w);
    struct err_text e = {""};
    uint32_t n_vram = 0;

    ck_assert_msg(cache_is_sane(w->cache, &e), "%s", e.s);
    ck_assert(arena_is_sane(w->arena));
    for (uint32_t i = 0; i < w->o.vram_units; i++)
        n_vram += w->cache_refs[i] > 0;
    ck_assert_uint_eq(st.tier[CACHE_VRAM].units_held, n_vram);
    ck_assert_uint_eq(st.tier[CACHE_VRAM].bytes, (uint64_t)n_vram * CW_UNIT_BYTES);
    ck_assert_uint_eq(st.tier[CACHE_RAM].units_held, arena_n_used(w->arena));
    ck_assert_uint_eq(st.tier[CACHE_RAM].bytes, (uint64_t)arena_n_used(w->arena) * CW_UNIT_BYTES);
    ck_assert_uint_eq(st.tier[CACHE_RAM].units_limit, w->limits.ram_units);
    ck_assert(w->lowered || st.tier[CACHE_RAM].units_held <= w->limits.ram_units);
    ck_assert(w->shares || cache_idle_vram(w->cache) <= n_vram);
}
