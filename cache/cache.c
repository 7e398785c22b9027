/* SPDX-License-Identifier: Apache-2.0 */
/* The whole: its life, its limits, its spaces, its figures. */
#include "cache/cache.h"

#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

static const uint64_t HALF_LIFE_NS = 1800ull * 1000000000;

static void set_limits(struct cache *c, const struct cache_limits *l)
{
    c->limits = *l;
    if (c->limits.half_life_ns == 0)
        c->limits.half_life_ns = HALF_LIFE_NS;
}

int cache_new(const struct cache_options *o, const struct cache_ops *ops, struct cache **ret)
{
    struct cache *c = calloc(1, sizeof *c);

    if (!c)
        return -ENOMEM;
    c->o = *o;
    c->ops = *ops;
    set_limits(c, &o->limits);
    c->ready_tail = &c->ready;
    c->vram_refs = calloc(o->vram_units ? o->vram_units : 1, sizeof *c->vram_refs);
    c->vram_holders = calloc(o->vram_units ? o->vram_units : 1, sizeof *c->vram_holders);
    c->shared = c->vram_refs && c->vram_holders ? cache_space_get(c, "", 0, UINT32_MAX) : NULL;
    if (!c->shared) {
        free(c->vram_holders);
        free(c->vram_refs);
        free(c);
        return -ENOMEM;
    }
    c->book_bytes += o->vram_units * (sizeof *c->vram_refs + sizeof *c->vram_holders);
    *ret = c;
    return 0;
}

static struct cache_owner *owner_ref(struct cache *c, uint32_t uid)
{
    struct cache_owner *o = c->owners;

    while (o && o->uid != uid)
        o = o->next;
    if (!o) {
        o = calloc(1, sizeof *o);
        if (!o)
            return NULL;
        o->uid = uid;
        o->next = c->owners;
        c->owners = o;
        c->book_bytes += sizeof *o;
    }
    o->refs++;
    return o;
}

static void owner_unref(struct cache *c, struct cache_owner *o)
{
    struct cache_owner **at = &c->owners;

    if (--o->refs > 0)
        return;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    c->book_bytes -= sizeof *o;
    free(o);
}

static void space_free(struct cache *c, struct cache_space *s)
{
    owner_unref(c, s->owner);
    if (s->prev)
        s->prev->next = s->next;
    else
        c->spaces = s->next;
    if (s->next)
        s->next->prev = s->prev;
    for (int t = 0; t < CACHE_TIERS; t++) {
        c->book_bytes -= (size_t)s->heap[t].cap * sizeof(void *);
        free(s->heap[t].v);
    }
    c->book_bytes -= sizeof *s + s->n_name + sizeof *s->top - sizeof s->top->tokens;
    free(s->top);
    free(s);
}

void cache_free(struct cache *c)
{
    struct cache_space *s, *next;

    if (!c)
        return;
    c->ops.event = NULL;
    /* Those that nobody came for. */
    while (c->ready) {
        struct cache_move *m = c->ready;

        c->ready = m->next;
        cache_move_done(c, m, false);
    }
    assert(c->n_moves == 0);
    for (s = c->spaces; s; s = s->next)
        while (s->top->n_kids > 0)
            node_kill(c, node_kid(s->top, s->top->n_kids - 1), CACHE_WHY_OPERATOR);
    for (uint32_t i = c->n_entries; i-- > 0;)
        entry_free(c, c->entries[i]);
    for (s = c->spaces; s; s = next) {
        next = s->next;
        space_free(c, s);
    }
    free(c->entries);
    free(c->vram_refs);
    free(c->vram_holders);
    free(c);
}

void cache_set_limits(struct cache *c, const struct cache_limits *l)
{
    const uint32_t most = c->limits.ram_units > l->ram_units ? c->limits.ram_units : l->ram_units;

    /* What is held stays, over the limit, until it is let go: the arena must not refuse it. */
    if (most > arena_max_units(c->o.arena))
        arena_set_max(c->o.arena, most);
    set_limits(c, l);
    evict_to_limits(c, CACHE_WHY_LIMITS);
    c->ram_freed = true;
}

void cache_set_cause(struct cache *c, uint64_t request)
{
    c->cause = request;
}

static void count_event(struct cache *c, enum cache_event_kind kind, enum cache_why why)
{
    switch (kind) {
    case CACHE_EVICTED:
        c->st.evictions++;
        break;
    case CACHE_SUPERSEDED:
        c->st.superseded++;
        break;
    case CACHE_REFUSED:
        /* Those are counted as failed moves. */
        c->st.refused += why != CACHE_WHY_FAILED;
        break;
    case CACHE_DEMOTED:
        c->st.demotions++;
        break;
    case CACHE_ROOT_MADE:
        c->st.roots_made++;
        break;
    case CACHE_ROOT_LOST:
        c->st.roots_lost++;
        break;
    }
}

void cache_tell(struct cache *c, enum cache_event_kind kind, enum cache_why why,
                enum cache_tier tier, const struct cache_entry_object *e, uint64_t bytes)
{
    const struct cache_event event = {
        .kind = kind,
        .why = why,
        .tier = tier,
        .id = e ? e->id : 0,
        .cause = c->cause,
        .uid = e ? e->space->uid : UINT32_MAX,
        .n_tokens = e ? e->n_tokens : 0,
        .bytes = bytes,
    };

    count_event(c, kind, why);
    if (c->ops.event)
        c->ops.event(c->ops.arg, &event);
}

/* --- spaces ------------------------------------------------------------------------------------
 */

/* Spaces that nobody refers to and in which nothing is left. */
static void reap_spaces(struct cache *c)
{
    for (struct cache_space *s = c->spaces, *next; s; s = next) {
        next = s->next;
        if (s->refs == 0 && s->top->n_kids == 0 && s->top->users == 0)
            space_free(c, s);
    }
}

struct cache_space *cache_space_get(struct cache *c, const void *key, size_t n, uint32_t uid)
{
    struct cache_space *s;

    /* Nobody's key names the shared one. */
    for (s = c->spaces; s; s = s->next)
        if (s != c->shared && s->n_name == n && memcmp(s->name, key, n) == 0) {
            s->refs++;
            return s;
        }
    reap_spaces(c);
    s = calloc(1, sizeof *s + n);
    if (!s)
        return NULL;
    s->cache = c;
    s->owner = owner_ref(c, uid);
    s->top = s->owner ? node_new(c, s, NULL, NULL, 0) : NULL;
    if (!s->top) {
        if (s->owner)
            owner_unref(c, s->owner);
        free(s);
        return NULL;
    }
    s->refs = 1;
    s->uid = uid;
    s->n_name = n;
    memcpy(s->name, key, n);
    s->next = c->spaces;
    if (c->spaces)
        c->spaces->prev = s;
    c->spaces = s;
    c->book_bytes += sizeof *s + n;
    return s;
}

void cache_space_unref(struct cache *c, struct cache_space *s)
{
    (void)c;
    if (!s)
        return;
    assert(s->refs > 0);
    /* It goes when the next new one comes, if nothing is left in it by then. */
    s->refs--;
}

/* --- figures -----------------------------------------------------------------------------------
 */

void cache_stats(const struct cache *c, struct cache_stats *ret)
{
    *ret = c->st;
    for (int t = 0; t < CACHE_TIERS; t++) {
        ret->tier[t].units_held = c->held[t];
        ret->tier[t].units_coming = c->n_coming[t];
        ret->tier[t].bytes = c->held[t] * c->o.unit_bytes;
    }
    ret->tier[CACHE_VRAM].units_limit = c->o.vram_units;
    ret->tier[CACHE_RAM].units_limit = c->limits.ram_units;
    ret->n_pages = (uint32_t)c->n_pages;
    ret->n_checkpoints = (uint32_t)c->n_checkpoints;
    for (const struct cache_space *s = c->spaces; s; s = s->next)
        ret->n_spaces += s != c->shared && s->top->n_kids > 0;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        const struct cache_entry_object *e = c->entries[i];

        if (e->is_root && e->space != c->shared) {
            ret->n_roots++;
            ret->n_pinned += e->is_pinned;
        } else if (!e->is_root) {
            ret->n_active += e->is_active;
            ret->n_parked += !e->is_active && e->marks[MARK_END].node;
        }
    }
    ret->n_conversations_limit = c->limits.n_conversations;
    ret->book_bytes = c->book_bytes;
    if (c->o.checkpoint_bytes > 0)
        ret->rounding_bytes =
            c->n_check_copies * (c->o.checkpoint_units * c->o.unit_bytes - c->o.checkpoint_bytes);
    ret->token_bytes = c->n_pages * sizeof(int32_t) * CACHE_PAGE;
}
