/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of tests/cache_world.h: what the scheduler does with the cache. */
#include "tests/cache_world.h"

#include "util/hash.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t BEFORE_ALL = 0x5354524154410001;

static uint64_t hash_next(uint64_t h, int32_t token)
{
    return hash_mix(h ^ (uint64_t)(uint32_t)token, 0x9E3779B97F4A7C15u) + 1;
}

static uint64_t hash_at(const struct cw_seq *q, uint32_t pos)
{
    uint64_t h = BEFORE_ALL;

    for (uint32_t i = 0; i < pos; i++)
        h = hash_next(h, q->t[i]);
    return h;
}

static void fill_checkpoint(uint64_t *words, uint64_t h, uint32_t i_unit)
{
    for (uint32_t j = 0; j < CACHE_PAGE; j++)
        words[j] = hash_mix(h ^ (i_unit + 1), 2 * j + 1);
}

/* Every word that a sequence would read, of the pages and of the checkpoint. */
static void check_mounted(struct cw_world *w, const struct cw_seq *q, const struct cache_pin *p)
{
    uint32_t pages[CW_PAGES];
    const uint32_t *checkpoint = NULL;
    uint64_t h = BEFORE_ALL, words[CACHE_PAGE];

    ck_assert_uint_le(p->m.n_pages, CW_PAGES);
    cache_pin_units(w->cache, p, pages, &checkpoint);
    for (uint32_t i = 0; i < p->m.pos; i++) {
        const uint32_t unit = pages[i / CACHE_PAGE];

        h = hash_next(h, q->t[i]);
        ck_assert_uint_lt(unit, w->o.vram_units);
        ck_assert_msg(w->refs[unit] > 0 && w->vram[unit][i % CACHE_PAGE] == h,
                      "row %u of %u in unit %u is not of this prompt", i, p->m.pos, unit);
    }
    ck_assert((w->o.checkpoint_units > 0) == (checkpoint != NULL));
    for (uint32_t u = 0; u < w->o.checkpoint_units; u++) {
        fill_checkpoint(words, h, u);
        ck_assert_uint_lt(checkpoint[u], w->o.vram_units);
        ck_assert_msg(memcmp(words, w->vram[checkpoint[u]], sizeof words) == 0,
                      "unit %u of the checkpoint at %u is not of this prompt", u, p->m.pos);
    }
}

void cw_run_begin(struct cw_run *r, struct cw_world *w, struct cache_space *s,
                  const struct cw_seq *q, bool vram)
{
    const struct cw_seq own = *q; /* may be r's */
    const struct cache_match *m;

    memset(r, 0, sizeof *r);
    r->w = w;
    r->space = s;
    r->q = own;
    q = &r->q;
    r->hash = BEFORE_ALL;
    w->now += CW_SECOND;
    cache_find(w->cache, s, q->t, q->n_prompt, q->n_prompt - 1, &r->found);
    m = vram ? &r->found.vram : &r->found.best;
    ck_assert_uint_le(m->pos, q->n_prompt - 1);
    ck_assert_uint_le(r->found.best.pos, r->found.n_common);
    ck_assert_uint_le(r->found.vram.pos, r->found.best.pos);
    if (m->pos == 0)
        return;
    if (m->continues && cache_resume_conversation(w->cache, m->conversation, w->now))
        r->conversation = m->conversation;
    ck_assert_int_eq(cache_pin(w->cache, s, m, w->now, &r->pin), 0);
    ck_assert_ptr_eq(r->pin.m.space, s);
    r->n_superseded = cache_supersede(w->cache, s, q->t, q->n_prompt, r->conversation);
}

int cw_run_load(struct cw_run *r)
{
    struct cw_world *w = r->w;
    const uint32_t need = r->pin.held ? cache_units_to_load(w->cache, &r->pin) : 0;
    const uint32_t n = need < w->n_free ? need : w->n_free;
    struct cache_move *list = NULL;
    uint32_t *units, used;

    if (!r->pin.held)
        return 1;
    if (cache_is_broken(w->cache, &r->pin)) {
        cache_unpin(w->cache, &r->pin);
        cache_abandon_conversation(w->cache, r->conversation, w->now);
        return -1;
    }
    if (need == 0)
        return cache_is_loaded(w->cache, &r->pin);
    units = calloc(n + 1, sizeof *units);
    for (uint32_t i = 0; i < n; i++)
        units[i] = cw_take(w);
    used = cache_load(w->cache, &r->pin, units, n, &list);
    ck_assert_uint_le(used, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i < used)
            w->cache_refs[units[i]]++;
        else
            cw_unref(w, units[i]);
    }
    free(units);
    cw_begin_moves(w, list);
    return 0;
}

bool cw_run_start(struct cw_run *r)
{
    struct cw_world *w = r->w;
    const uint32_t pos = r->pin.held ? r->pin.m.pos : 0, n_full = pos / CACHE_PAGE;
    const uint32_t n_tail = pos % CACHE_PAGE;
    const uint32_t *checkpoint;

    if (r->pin.held) {
        check_mounted(w, &r->q, &r->pin);
        cache_pin_units(w->cache, &r->pin, r->units, &checkpoint);
    }
    if (n_tail) {
        const uint32_t own = cw_take(w);

        if (own == CACHE_NO_UNIT)
            return false;
        memcpy(w->vram[own], w->vram[r->units[n_full]], n_tail * sizeof(uint64_t));
        r->units[n_full] = own;
    }
    for (uint32_t i = 0; i < n_full; i++)
        w->refs[r->units[i]]++;
    r->n_units = n_full + (n_tail > 0);
    r->n = r->reused = r->last_checkpoint = pos;
    r->hash = hash_at(&r->q, pos);
    cache_cursor_init(w->cache, r->space, r->pin.held ? &r->pin : NULL, &r->cursor);
    r->has_cursor = true;
    ck_assert_uint_eq(r->cursor.n_pages, n_full);
    cache_unpin(w->cache, &r->pin);
    return true;
}

void cw_run_capture(struct cw_run *r, uint32_t pos, unsigned int kinds)
{
    if (r->w->o.checkpoint_units == 0 || pos <= r->reused || pos > r->q.n)
        return;
    for (uint32_t i = 0; i < r->n_captures; i++)
        if (r->captures[i].pos == pos) {
            r->captures[i].kinds |= kinds;
            return;
        }
    ck_assert_uint_lt(r->n_captures, CW_CAPTURES);
    r->captures[r->n_captures++] = (struct cw_capture){.pos = pos, .kinds = kinds};
}

static struct cw_capture *capture_at(struct cw_run *r, uint32_t pos)
{
    for (uint32_t i = 0; i < r->n_captures; i++)
        if (r->captures[i].pos == pos && r->captures[i].kinds)
            return &r->captures[i];
    return NULL;
}

static bool take_units(struct cw_world *w, uint32_t *units, uint32_t n)
{
    if (w->n_free < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        units[i] = cw_take(w);
    return true;
}

static void drop_capture(struct cw_run *r, struct cw_capture *c)
{
    for (uint32_t u = 0; u < r->w->o.checkpoint_units; u++)
        cw_unref(r->w, c->units[u]);
    c->done = false;
    c->kinds = 0;
}

static void set_dead(struct cw_run *r, int code)
{
    if (code == 0)
        return;
    ck_assert_int_eq(code, -ESTALE);
    ck_assert(cache_cursor_is_dead(&r->cursor));
    r->dead = true;
}

/* Captured checkpoints up to `pos`, which is published. */
static void publish_captures(struct cw_run *r, uint32_t pos)
{
    struct cw_world *w = r->w;
    const int32_t *tail = r->q.t + (size_t)r->cursor.n_pages * CACHE_PAGE;

    for (uint32_t i = 0; i < r->n_captures; i++) {
        struct cw_capture *c = &r->captures[i];

        if (!c->done || c->pos > pos)
            continue;
        if (!r->dead)
            set_dead(r,
                     cache_add_checkpoint(w->cache, &r->cursor, tail, c->pos, c->kinds, c->units));
        ck_assert(r->dead || cache_has_checkpoint(w->cache, &r->cursor, tail, c->pos));
        if (!r->dead && c->pos > r->last_checkpoint)
            r->last_checkpoint = c->pos;
        drop_capture(r, c);
    }
}

bool cw_run_read(struct cw_run *r, uint32_t n)
{
    struct cw_world *w = r->w;

    for (; n > 0 && r->n < r->q.n; n--) {
        struct cw_capture *c = capture_at(r, r->n + 1);
        uint32_t need = (r->n % CACHE_PAGE == 0) + (c ? w->o.checkpoint_units : 0);

        if (w->n_free < need)
            return false;
        if (r->n % CACHE_PAGE == 0)
            r->units[r->n_units++] = cw_take(w);
        r->hash = hash_next(r->hash, r->q.t[r->n]);
        w->vram[r->units[r->n_units - 1]][r->n % CACHE_PAGE] = r->hash;
        r->n++;
        if (c) {
            ck_assert(take_units(w, c->units, w->o.checkpoint_units));
            for (uint32_t u = 0; u < w->o.checkpoint_units; u++)
                fill_checkpoint(w->vram[c->units[u]], r->hash, u);
            c->done = true;
        }
        if (r->n % CACHE_PAGE)
            continue;
        if (!r->dead)
            set_dead(r, cache_extend(w->cache, &r->cursor, r->q.t + r->n - CACHE_PAGE,
                                     r->units[r->n_units - 1], w->now));
        publish_captures(r, r->n);
    }
    return true;
}

static void let_go(struct cw_run *r)
{
    struct cw_world *w = r->w;

    for (uint32_t i = 0; i < r->n_captures; i++)
        if (r->captures[i].done)
            drop_capture(r, &r->captures[i]);
    for (uint32_t i = 0; i < r->n_units; i++)
        cw_unref(w, r->units[i]);
    r->n_units = 0;
    cache_unpin(w->cache, &r->pin);
    if (r->has_cursor)
        cache_cursor_done(w->cache, &r->cursor);
    r->has_cursor = false;
}

uint64_t cw_run_park(struct cw_run *r)
{
    struct cw_world *w = r->w;
    const uint32_t n_tail = r->n % CACHE_PAGE;
    const int32_t *tail = r->q.t + r->n - n_tail;
    struct cache_ending e = {.conversation = r->conversation, .tail = tail};
    uint64_t id;

    if (n_tail && !r->dead)
        set_dead(r, cache_extend_tail(w->cache, &r->cursor, tail, n_tail, r->units[r->n_units - 1],
                                      w->now));
    publish_captures(r, r->n);
    if (!r->dead && r->q.root && r->q.root <= r->n)
        r->root = cache_make_root(w->cache, &r->cursor, tail, r->q.root, w->now);
    r->n_superseded += cache_supersede(w->cache, r->space, r->q.t, r->n, r->conversation);
    e.n_tokens = w->o.checkpoint_units ? r->last_checkpoint : r->n;
    /* The one that was resumed at may have left since. */
    if (w->o.checkpoint_units && !cache_has_checkpoint(w->cache, &r->cursor, tail, e.n_tokens))
        e.n_tokens = 0;
    e.turn_pos = r->q.turn <= e.n_tokens ? r->q.turn : 0;
    e.query_pos = r->q.query <= e.n_tokens ? r->q.query : 0;
    id = cache_park(w->cache, &r->cursor, &e, w->now);
    r->parked_at = id ? e.n_tokens : 0;
    let_go(r);
    return id;
}

void cw_run_abandon(struct cw_run *r)
{
    cache_abandon_conversation(r->w->cache, r->conversation, r->w->now);
    let_go(r);
}

static void load_all(struct cw_run *r)
{
    struct cw_world *w = r->w;

    while (r->pin.held && !cache_is_loaded(w->cache, &r->pin)) {
        const uint32_t need = cache_units_to_load(w->cache, &r->pin);

        if (need)
            ck_assert_msg(cw_make_room(w, need), "no room for %u units to load", need);
        ck_assert_int_ge(cw_run_load(r), 0);
        cw_end_moves(w, true);
    }
}

struct cw_result cw_request(struct cw_world *w, struct cache_space *s, const char *spec)
{
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_result res;
    struct cw_seq q = cw_seq(spec);

    cw_run_begin(r, w, s, &q, false);
    load_all(r);
    ck_assert(cw_make_room(w, 1));
    ck_assert(cw_run_start(r));
    cw_run_capture(r, q.root, CACHE_AT_ROOT);
    cw_run_capture(r, q.turn, CACHE_AT_TURN);
    cw_run_capture(r, q.query, CACHE_AT_QUERY);
    if (r->found.n_common < q.n_prompt)
        cw_run_capture(r, r->found.n_common, CACHE_AT_BRANCH);
    cw_run_capture(r, q.n, CACHE_AT_END);
    while (r->n < q.n)
        if (!cw_run_read(r, q.n))
            ck_assert_msg(cw_make_room(w, 1 + w->o.checkpoint_units), "no room to read on");
    res = (struct cw_result){
        .reused = r->reused, .n_common = r->found.n_common, .resumed = r->conversation != 0};
    res.id = cw_run_park(r);
    res.root = r->root;
    res.n_superseded = r->n_superseded;
    free(r);
    cw_check(w);
    return res;
}

struct cache_found cw_find(struct cw_world *w, struct cache_space *s, const char *spec)
{
    const struct cw_seq q = cw_seq(spec);
    struct cache_found f;

    cache_find(w->cache, s, q.t, q.n, q.n - 1, &f);
    return f;
}

uint32_t cw_pos(struct cw_world *w, struct cache_space *s, const char *spec)
{
    return cw_find(w, s, spec).best.pos;
}

uint32_t cw_use(struct cw_world *w, struct cache_space *s, const char *spec)
{
    const struct cache_found f = cw_find(w, s, spec);
    struct cache_pin p = {0};

    w->now += CW_SECOND;
    if (f.best.pos)
        ck_assert_int_eq(cache_pin(w->cache, s, &f.best, w->now, &p), 0);
    cache_unpin(w->cache, &p);
    return f.best.pos;
}

uint32_t cw_mount(struct cw_world *w, struct cache_space *s, const char *spec)
{
    struct cw_run *r = calloc(1, sizeof *r);
    const uint32_t pos = cw_pos(w, s, spec);

    r->w = w;
    r->q = cw_seq(spec);
    r->space = s;
    w->now += CW_SECOND;
    if (pos) {
        const struct cache_found f = cw_find(w, s, spec);

        ck_assert_int_eq(cache_pin(w->cache, s, &f.best, w->now, &r->pin), 0);
        load_all(r);
        check_mounted(w, &r->q, &r->pin);
        cache_unpin(w->cache, &r->pin);
    }
    free(r);
    return pos;
}
