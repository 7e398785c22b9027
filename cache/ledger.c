/* SPDX-License-Identifier: Apache-2.0 */
/* The ledgers of both tiers, and the copies of pages and checkpoints that are charged to them. */
#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

/* --- ledgers -----------------------------------------------------------------------------------
 */

void vram_take(struct cache *c, uint32_t unit)
{
    if (c->vram_refs[unit]++ > 0)
        return;
    c->held[CACHE_VRAM]++;
    c->ops.vram_ref(c->ops.arg, unit);
}

void vram_drop(struct cache *c, uint32_t unit)
{
    assert(c->vram_refs[unit] > 0);
    if (--c->vram_refs[unit] > 0)
        return;
    c->held[CACHE_VRAM]--;
    c->ops.vram_unref(c->ops.arg, unit);
}

static void hold_count(struct cache *c, uint32_t unit, uint32_t all, uint32_t busy)
{
    struct holders *h = &c->vram_holders[unit];
    const bool was = h->all > 0 && h->busy == 0;

    h->all += all;
    h->busy += busy;
    c->idle_vram += (uint32_t)(h->all > 0 && h->busy == 0) - (uint32_t)was;
}

void vram_hold(struct cache *c, uint32_t unit, bool busy)
{
    vram_take(c, unit);
    hold_count(c, unit, 1, busy);
}

void vram_unhold(struct cache *c, uint32_t unit, bool busy)
{
    hold_count(c, unit, -1u, busy ? -1u : 0);
    vram_drop(c, unit);
}

/* vram is the first tier of a checkpoint's units. */
static void check_busy(struct cache *c, struct cache_checkpoint *k, bool busy)
{
    for (uint32_t i = 0; k->state[CACHE_VRAM] != COPY_NONE && i < c->o.checkpoint_units; i++)
        hold_count(c, k->units[i], 0, busy ? 1 : -1u);
}

void node_busy(struct cache *c, struct cache_node *n, bool busy)
{
    if (n->copy[CACHE_VRAM].state != COPY_NONE)
        hold_count(c, n->copy[CACHE_VRAM].unit, 0, busy ? 1 : -1u);
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->home == n)
            check_busy(c, n->checks[i], busy);
}

void check_rehome(struct cache *c, struct cache_checkpoint *k, struct cache_node *home)
{
    const bool was = k->home && k->home->users > 0, is = home->users > 0;

    k->home = home;
    if (was != is)
        check_busy(c, k, is);
}

int ram_take(struct cache *c, uint32_t *ret)
{
    int r;

    if (c->held[CACHE_RAM] >= c->limits.ram_units)
        return -ENOSPC;
    r = arena_take(c->o.arena, ret);
    if (r == 0) {
        c->held[CACHE_RAM]++;
    } else if (!c->ram_denied) {
        /* Once, not for every page that would like to have a copy. */
        cache_tell(c, CACHE_REFUSED, CACHE_WHY_MEMORY, CACHE_RAM, NULL, c->o.unit_bytes);
    }
    c->ram_denied = r < 0;
    return r;
}

void ram_ref(struct cache *c, uint32_t unit)
{
    arena_ref(c->o.arena, unit);
}

void ram_drop(struct cache *c, uint32_t unit)
{
    const bool last = arena_refs(c->o.arena, unit) == 1;

    arena_unref(c->o.arena, unit);
    if (last) {
        c->held[CACHE_RAM]--;
        c->ram_freed = true;
    }
}

static void unit_drop(struct cache *c, enum cache_tier t, uint32_t unit, const struct cache_node *n)
{
    if (t == CACHE_VRAM)
        vram_unhold(c, unit, n->users > 0);
    else
        ram_drop(c, unit);
}

/* --- copies ------------------------------------------------------------------------------------
 */

void node_drop_copy(struct cache *c, struct cache_node *n, enum cache_tier t)
{
    struct copy *x = &n->copy[t];

    if (x->state == COPY_NONE)
        return;
    unit_drop(c, t, x->unit, n);
    x->state = COPY_NONE;
    x->unit = CACHE_NO_UNIT;
}

void check_drop_copy(struct cache *c, struct cache_checkpoint *k, enum cache_tier t)
{
    uint32_t *u = check_units(c, k, t);

    if (k->state[t] == COPY_NONE)
        return;
    for (uint32_t i = 0; i < c->o.checkpoint_units; i++) {
        unit_drop(c, t, u[i], k->home);
        u[i] = CACHE_NO_UNIT;
    }
    k->state[t] = COPY_NONE;
    c->n_check_copies--;
}

static enum cache_tier other_tier(enum cache_tier t)
{
    return t == CACHE_VRAM ? CACHE_RAM : CACHE_VRAM;
}

void node_set_leaving(struct cache *c, struct cache_node *n, bool leaving)
{
    c->n_leaving -= n->leaving;
    n->leaving = leaving ? n->counted[CACHE_VRAM] : 0;
    c->n_leaving += n->leaving;
}

bool node_is_mirrored(const struct cache *c, const struct cache_node *n, enum cache_tier t)
{
    const enum cache_tier other = other_tier(t);

    (void)c;
    if (n->copy[t].state != COPY_NONE && n->copy[other].state != COPY_VALID)
        return false;
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->home == n && n->checks[i]->state[t] != COPY_NONE &&
            n->checks[i]->state[other] != COPY_VALID)
            return false;
    return true;
}

/* A sibling that keeps its page in `t` keeps the checkpoints that it shares there too. */
static bool check_moves_house(struct cache *c, struct cache_node *n, struct cache_checkpoint *k,
                              enum cache_tier t)
{
    struct cache_node *twin = k->n_nodes > 1 ? node_twin(n, k->pos - n->depth * CACHE_PAGE) : NULL;

    if (!twin || twin->copy[t].state == COPY_NONE)
        return false;
    check_rehome(c, k, twin);
    node_changed(c, twin);
    return true;
}

void node_leave(struct cache *c, struct cache_node *n, enum cache_tier t)
{
    node_drop_copy(c, n, t);
    for (uint32_t i = 0; i < n->n_checks; i++) {
        struct cache_checkpoint *k = n->checks[i];

        if (k->home == n && k->state[t] != COPY_NONE && k->pins == 0 &&
            !check_moves_house(c, n, k, t))
            check_drop_copy(c, k, t);
    }
    node_changed(c, n);
}

uint32_t node_ram_missing(const struct cache *c, const struct cache_node *n)
{
    uint32_t units = n->copy[CACHE_RAM].state == COPY_NONE;

    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->home == n && n->checks[i]->state[CACHE_RAM] == COPY_NONE)
            units += c->o.checkpoint_units;
    return units;
}
