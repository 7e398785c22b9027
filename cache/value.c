/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is worth how much, and the sums and heaps that follow.
 *
 * What can leave a tier is a page below which nothing is in that tier and that is on nobody's path;
 * they lie in one heap per space and tier.  A page's key is
 *
 *     log2(tokens that would have to be read again / units freed) + log2(1 + hits)
 *         + time of last use / half-life
 *
 * that is the logarithm of (seconds to read again x chance of use per byte), up to terms that are
 * the same for all at any time: the chance halves every half-life for all alike, so the order never
 * changes by itself and a plain heap holds it.  The run that is valued reaches from the page back
 * to the next position that can be resumed.
 */
#include "cache/cache_private.h"

#include <math.h>
#include <string.h>

/* --- value -------------------------------------------------------------------------------------
 */

bool value_less(struct value a, struct value b)
{
    return a.cls != b.cls ? a.cls < b.cls : a.key < b.key;
}

/* Tokens and units of the run that ends with `n`; no tokens when nothing can be resumed in it. */
static void run_of(const struct cache *c, const struct cache_node *n, uint32_t *ret_tokens,
                   uint32_t *ret_units)
{
    const struct cache_node *x = n;
    uint32_t units = 1, end;

    if (!has_checkpoints(c)) {
        *ret_tokens = n->n_tokens;
        *ret_units = 1;
        return;
    }
    /* What lies below, in another tier, cannot be resumed without this page. */
    *ret_tokens = n->n_kids > 0 ? n->n_tokens : 0;
    *ret_units = 1;
    if (n->n_checks == 0)
        return;
    end = n->checks[n->n_checks - 1]->pos;
    units += n->n_checks * c->o.checkpoint_units;
    while (x->parent && x->parent->parent && x->parent->n_kids == 1 && x->parent->n_checks == 0 &&
           !x->parent->marks) {
        x = x->parent;
        units++;
    }
    /* Up to the next checkpoint above, shared pages included: they would be read again for it. */
    do
        x = x->parent;
    while (x->parent && x->n_checks == 0);
    *ret_tokens = end - (x->parent ? x->checks[x->n_checks - 1]->pos : 0);
    *ret_units = units;
}

/* The page is needed up to its end by a root. */
static bool ends_with_root(const struct cache_node *n)
{
    for (const struct mark *m = n->marks; m; m = m->next)
        if (m->kind == MARK_ROOT && m->offset == n->n_tokens)
            return true;
    return false;
}

struct value node_value(const struct cache *c, const struct cache_node *n, enum cache_tier t)
{
    uint32_t tokens, units;
    struct value v;

    run_of(c, n, &tokens, &units);
    v.key = log2((double)(tokens ? tokens : 1) / units) + log2(1.0 + n->hits) +
            (double)n->last_use / (double)c->limits.half_life_ns;
    if (ends_with_root(n))
        v.cls = CLASS_ROOT;
    else if (n->superseded || tokens == 0)
        v.cls = CLASS_USELESS;
    else
        v.cls = node_is_mirrored(c, n, t) ? CLASS_MIRROR : CLASS_LAST;
    return v;
}

/* --- heaps: the least value on top --------------------------------------------------------------
 */

static void heap_put(struct heap *h, int i, struct cache_node *n, enum cache_tier t)
{
    h->v[i] = n;
    n->heap_at[t] = i;
}

static int heap_up(struct heap *h, int i, enum cache_tier t)
{
    struct cache_node *n = h->v[i];

    while (i > 0 && value_less(n->value[t], h->v[(i - 1) / 2]->value[t])) {
        heap_put(h, i, h->v[(i - 1) / 2], t);
        i = (i - 1) / 2;
    }
    heap_put(h, i, n, t);
    return i;
}

static void heap_down(struct heap *h, int i, enum cache_tier t)
{
    struct cache_node *n = h->v[i];

    for (;;) {
        int k = 2 * i + 1;

        if (k + 1 < h->n && value_less(h->v[k + 1]->value[t], h->v[k]->value[t]))
            k++;
        if (k >= h->n || !value_less(h->v[k]->value[t], n->value[t]))
            break;
        heap_put(h, i, h->v[k], t);
        i = k;
    }
    heap_put(h, i, n, t);
}

void heap_remove(struct cache *c, struct cache_node *n, enum cache_tier t)
{
    struct heap *h = &n->space->heap[t];
    const int i = n->heap_at[t];

    (void)c;
    if (i == NOT_IN_HEAP)
        return;
    n->heap_at[t] = NOT_IN_HEAP;
    h->n--;
    if (i == h->n)
        return;
    heap_put(h, i, h->v[h->n], t);
    heap_down(h, heap_up(h, i, t), t);
}

/* Without memory for the heap the page just cannot be evicted yet: the next change tries again. */
static void heap_set(struct cache *c, struct cache_node *n, enum cache_tier t)
{
    struct heap *h = &n->space->heap[t];

    if (n->heap_at[t] == NOT_IN_HEAP) {
        if (h->n == h->cap) {
            const int cap = h->cap ? h->cap * 2 : 64;
            struct cache_node **v = reallocarray(h->v, (size_t)cap, sizeof(void *));

            if (!v)
                return;
            c->book_bytes += (size_t)(cap - h->cap) * sizeof(void *);
            h->v = v;
            h->cap = cap;
        }
        h->n++;
        n->value[t] = node_value(c, n, t);
        heap_put(h, h->n - 1, n, t);
        (void)heap_up(h, h->n - 1, t);
        return;
    }
    n->value[t] = node_value(c, n, t);
    heap_down(h, heap_up(h, n->heap_at[t], t), t);
}

/* --- sums --------------------------------------------------------------------------------------
 */

uint32_t node_units(const struct cache *c, const struct cache_node *n, enum cache_tier t)
{
    uint32_t units = n->copy[t].state != COPY_NONE;

    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->home == n && n->checks[i]->state[t] != COPY_NONE)
            units += c->o.checkpoint_units;
    return units;
}

/* Something is in `t`, here or below, or not any more: those above hear of it. */
static void subtree_count(struct cache *c, struct cache_node *n, enum cache_tier t, bool add)
{
    for (; n; n = n->parent) {
        n->subtree[t] += add ? 1 : -1u;
        if (n->subtree[t] != (add ? 1u : 0u)) {
            /* It may have become a leaf of this tier, or stopped to be one. */
            if (n->parent && n->subtree[t] <= 2)
                node_changed(c, n);
            return;
        }
    }
}

bool node_is_moving(const struct cache_node *n)
{
    if (n->n_moves > 0)
        return true;
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->home == n && (n->checks[i]->n_moves > 0 || n->checks[i]->pins > 0))
            return true;
    return false;
}

static bool may_leave(const struct cache_node *n, enum cache_tier t)
{
    return !n->dead && !n->aside && n->users == 0 && !node_is_moving(n) && n->counted[t] > 0 &&
           n->subtree[t] == 1;
}

void node_changed(struct cache *c, struct cache_node *n)
{
    if (!n->parent)
        return;
    for (int i = 0; i < CACHE_TIERS; i++) {
        const enum cache_tier t = (enum cache_tier)i;
        const uint32_t was = n->counted[t], is = n->dead ? 0 : node_units(c, n, t);

        n->counted[t] = is;
        n->space->held[t] += is - was;
        n->space->owner->held[t] += is - was;
        if ((was > 0) != (is > 0))
            subtree_count(c, n, t, is > 0);
    }
    if (n->leaving && !node_is_moving(n))
        node_set_leaving(c, n, false);
    for (int i = 0; i < CACHE_TIERS; i++) {
        const enum cache_tier t = (enum cache_tier)i;

        if (may_leave(n, t))
            heap_set(c, n, t);
        else
            heap_remove(c, n, t);
    }
}
