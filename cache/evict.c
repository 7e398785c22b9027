/* SPDX-License-Identifier: Apache-2.0 */
/* Who leaves which tier, and when.  What is worth how much is in value.c. */
#include "cache/cache_private.h"

/* --- victims -----------------------------------------------------------------------------------
 */

/* Of a page's units, those up to `pos`: what lies behind would leave first. */
static uint32_t units_up_to(const struct cache *c, const struct cache_node *n, uint32_t pos,
                            enum cache_tier t)
{
    uint32_t units = n->copy[t].state != COPY_NONE;

    for (uint32_t i = 0; i < n->n_checks && n->checks[i]->pos <= pos; i++)
        if (n->checks[i]->home == n && n->checks[i]->state[t] != COPY_NONE)
            units += c->o.checkpoint_units;
    return units;
}

/* Units of `t` on the paths of roots, each once. */
static uint32_t roots_hold(struct cache *c, enum cache_tier t)
{
    const uint64_t stamp = ++c->last_stamp;
    uint32_t units = 0;

    for (struct cache_entry_object *e = c->first_root; e; e = e->next_root)
        for (struct cache_node *n = entry_end(e)->node; n && n->parent && n->stamp != stamp;
             n = n->parent) {
            n->stamp = stamp;
            units += n == entry_end(e)->node ? units_up_to(c, n, e->n_tokens, t) : n->counted[t];
        }
    return units;
}

static uint32_t tier_limit(const struct cache *c, enum cache_tier t)
{
    return t == CACHE_VRAM ? c->o.vram_units : c->limits.ram_units;
}

struct share {
    bool over_only;                 /* only those that hold more than their share may lose */
    const struct cache_owner *only; /* only this one may lose; NULL: anybody */
    uint32_t share;
};

/*
 * Nobody holds more than one's share while others want room: who has to give for `s` (NULL: nobody
 * in particular) to get n units.  Salts do not make shares: who uses many would push everybody out,
 * itself as well.
 */
static struct share who_gives(const struct cache *c, const struct cache_space *s, uint32_t n,
                              enum cache_tier t)
{
    struct share x = {0};
    uint32_t n_active = 0;
    bool any_over = false;

    for (const struct cache_owner *y = c->owners; y; y = y->next)
        n_active += y->held[t] > 0 || (s && y == s->owner);
    if (n_active < 2)
        return x;
    x.share = tier_limit(c, t) / n_active;
    for (const struct cache_owner *y = c->owners; y; y = y->next)
        any_over = any_over || y->held[t] > x.share;
    if (s && s->owner->held[t] + n > x.share)
        x.only = s->owner;
    else
        x.over_only = any_over;
    return x;
}

static uint32_t root_offset(const struct cache_node *n, bool *ret_pinned)
{
    uint32_t root = 0;

    *ret_pinned = false;
    for (const struct mark *m = n->marks; m; m = m->next) {
        if (m->kind != MARK_ROOT)
            continue;
        if (m->offset > root)
            root = m->offset;
        *ret_pinned = *ret_pinned || m->entry->is_pinned;
    }
    return root;
}

/* A search for victims in one tier, with what holds for all of it. */
struct hunt {
    struct cache *c;
    enum cache_tier t;
    struct share share;
    bool counted_roots;            /* roots_over is known */
    bool roots_over;               /* roots hold more than half: they are worth what others are */
    struct cache_node *aside[256]; /* cannot leave now, out of the heaps until the end */
    uint32_t n_aside;
};

static void hunt_begin(struct hunt *h, struct cache *c, const struct cache_space *s, uint32_t n,
                       enum cache_tier t)
{
    h->c = c;
    h->t = t;
    h->share = who_gives(c, s, n, t);
    h->counted_roots = false;
    h->n_aside = 0;
}

/* Counted when the first root could leave: most searches, and there is one for each copy, meet
 * none. */
static bool roots_over(struct hunt *h)
{
    if (!h->counted_roots)
        h->roots_over = roots_hold(h->c, h->t) > tier_limit(h->c, h->t) / 2;
    h->counted_roots = true;
    return h->roots_over;
}

static bool hunt_put_aside(struct hunt *h, struct cache_node *n)
{
    if (h->n_aside == sizeof h->aside / sizeof h->aside[0])
        return false;
    /* Out of both heaps: a search in the other tier meanwhile must not take it away from us. */
    n->aside = true;
    for (int t = 0; t < CACHE_TIERS; t++)
        heap_remove(h->c, n, (enum cache_tier)t);
    h->aside[h->n_aside++] = n;
    return true;
}

static void hunt_end(struct hunt *h)
{
    for (uint32_t i = 0; i < h->n_aside; i++)
        if (h->aside[i]) {
            h->aside[i]->aside = false;
            node_changed(h->c, h->aside[i]);
        }
}

static bool may_give(const struct hunt *h, const struct cache_space *s)
{
    return (!h->share.only || h->share.only == s->owner) &&
           (!h->share.over_only || s->owner->held[h->t] > h->share.share);
}

/* The page of least value that may leave; NULL: none. */
static struct cache_node *hunt_next(struct hunt *h, struct value *ret_value)
{
    struct cache_node *found = NULL;

    for (struct cache_space *s = h->c->spaces; s; s = s->next) {
        struct cache_node *n = s->heap[h->t].n > 0 ? s->heap[h->t].v[0] : NULL;

        if (n && may_give(h, s) && (!found || value_less(n->value[h->t], *ret_value))) {
            found = n;
            *ret_value = n->value[h->t];
        }
    }
    for (struct cache_entry_object *e = h->c->first_root; e; e = e->next_root) {
        struct cache_node *n = entry_end(e)->node;
        struct value v;

        if (!n || n->heap_at[h->t] == NOT_IN_HEAP || n->value[h->t].cls != CLASS_ROOT ||
            !may_give(h, n->space) || !roots_over(h))
            continue;
        v = n->value[h->t];
        v.cls = node_is_mirrored(h->c, n, h->t) ? CLASS_MIRROR : CLASS_LAST;
        if (!found || value_less(v, *ret_value)) {
            found = n;
            *ret_value = v;
        }
    }
    return found;
}

/* The last copies of a page go, up to the end of a root in it. */
static void forget_page(struct cache *c, struct cache_node *n)
{
    bool pinned;
    const uint32_t root = root_offset(n, &pinned);

    if (root > 0 && root < n->n_tokens)
        node_trim(c, n, root);
    else
        node_remove(c, n, c->why);
}

static bool may_forget(const struct cache_node *n)
{
    bool pinned;
    const uint32_t root = root_offset(n, &pinned);

    return n->n_kids == 0 && (!pinned || root < n->n_tokens);
}

/* A second copy goes from ram; it comes back when there is room. */
static void mirror_leave(struct cache *c, struct cache_node *n)
{
    node_leave(c, n, CACHE_RAM);
    queue_starve(c, n);
}

void node_leave_vram(struct cache *c, struct cache_node *n, enum cache_why why)
{
    const uint64_t bytes = n->counted[CACHE_VRAM] * c->o.unit_bytes;

    for (struct mark *m = n->marks; m; m = m->next)
        if (m->kind == MARK_END)
            cache_tell(c, CACHE_DEMOTED, why, CACHE_VRAM, m->entry, bytes);
    node_leave(c, n, CACHE_VRAM);
}

/* Something that ram could not hold even alone is not begun: nothing is evicted for it. */
bool node_refuse(struct cache_node *n)
{
    const bool told = n->refused || n->parent->refused;

    /* All of the path is of what does not fit, not only what lies too deep. */
    for (; n->parent && !n->refused; n = n->parent) {
        n->refused = true;
        if (n->parent->n_kids != 1)
            break;
    }
    return told;
}

bool path_fits_ram(const struct cache *c, const struct cache_node *n)
{
    return n->depth + 1 + c->o.checkpoint_units <= c->limits.ram_units;
}

bool ram_make_room(struct cache *c, struct cache_space *s, uint32_t n, struct value v)
{
    struct hunt h;
    bool ok = true;

    if (c->held[CACHE_RAM] + n <= c->limits.ram_units)
        return true;
    hunt_begin(&h, c, s, n, CACHE_RAM);
    while (ok && c->held[CACHE_RAM] + n > c->limits.ram_units) {
        struct value worth;
        struct cache_node *x = hunt_next(&h, &worth);

        /* Those over their share have nothing to give: then by value alone. */
        if (!x && h.share.over_only) {
            h.share = (struct share){0};
            continue;
        }
        if (!x || worth.cls == CLASS_ROOT || (!h.share.over_only && !value_less(worth, v)))
            ok = false;
        else if (node_is_mirrored(c, x, CACHE_RAM))
            mirror_leave(c, x);
        else if (may_forget(x))
            forget_page(c, x);
        else
            ok = hunt_put_aside(&h, x);
    }
    hunt_end(&h);
    return ok;
}

bool ram_make_room_for(struct cache *c, struct cache_node *n, uint32_t need, struct value v)
{
    bool ok;

    /* Part of it may be in ram: it must not be given up for itself. */
    n->aside = true;
    heap_remove(c, n, CACHE_RAM);
    ok = ram_make_room(c, n->space, need, v);
    n->aside = false;
    node_changed(c, n);
    return ok;
}

bool node_demote(struct cache *c, struct cache_node *n)
{
    const uint32_t need = node_ram_missing(c, n);
    struct value v = node_value(c, n, CACHE_VRAM);

    if (c->limits.ram_units == 0)
        return false;
    if (n->superseded || need == 0)
        return need == 0 && !n->superseded;
    if (!path_fits_ram(c, n)) {
        if (!node_refuse(n))
            cache_tell(c, CACHE_REFUSED, CACHE_WHY_TOO_LARGE, CACHE_RAM, NULL,
                       need * c->o.unit_bytes);
        return false;
    }
    if (n->refused)
        v.cls = CLASS_USELESS; /* what is free it may have */
    else if (v.cls < CLASS_LAST)
        v.cls = CLASS_LAST;
    if (!ram_make_room_for(c, n, need, v))
        return false;
    queue_forget(c, n);
    if (!node_start_write_back(c, n))
        return false;
    node_set_leaving(c, n, true);
    return true;
}

/* The pages above one that is on its way can only leave after it; they are copied at the same time.
 */
static void demote_above(struct cache *c, struct cache_node *n, uint32_t want)
{
    for (n = n->parent; n->parent && n->n_kids == 1 && n->users == 0 && n->n_moves == 0 &&
                        !n->leaving && !n->marks && c->n_leaving < want;
         n = n->parent)
        if (!node_is_mirrored(c, n, CACHE_VRAM) && !node_demote(c, n))
            return;
}

static bool has_pinned_root(const struct cache_node *n)
{
    bool pinned;

    (void)root_offset(n, &pinned);
    for (uint32_t i = 0; !pinned && i < n->n_kids; i++)
        pinned = has_pinned_root(node_kid(n, i));
    return pinned;
}

void subtree_forget(struct cache *c, struct cache_node *n, enum cache_why why)
{
    while (n->n_kids > 0)
        subtree_forget(c, node_kid(n, n->n_kids - 1), why);
    node_remove(c, n, why);
}

/*
 * A page that cannot be copied, because ram has no room, nor be forgotten, because what hangs on it
 * needs it: first its checkpoints that nothing goes on from, else all of it, unless an operator's
 * pin is in there.  Requests come before what is kept.
 */
static void force_out(struct cache *c, struct hunt *h, uint32_t i)
{
    struct cache_node *n = h->aside[i];
    const uint32_t held = c->held[CACHE_VRAM];

    if (!n)
        return;
    for (uint32_t k = n->n_checks; k-- > 0;) {
        struct cache_checkpoint *x = n->checks[k];

        if (x->home == n && x->state[CACHE_RAM] != COPY_VALID && x->pins == 0 &&
            !check_is_marked(c, x))
            check_detach(c, x);
    }
    if (c->held[CACHE_VRAM] < held || has_pinned_root(n))
        return;
    /* Others that were put aside may lie below. */
    for (uint32_t k = 0; k < h->n_aside; k++)
        for (struct cache_node *x = h->aside[k]; x; x = x->parent)
            if (x == n) {
                h->aside[k]->aside = false;
                h->aside[k] = NULL;
                break;
            }
    subtree_forget(c, n, c->why);
}

/* Lets go of vram until n units are free or on their way, cheapest first. */
static void shed(struct hunt *h, uint32_t held, uint32_t n)
{
    struct cache *c = h->c;

    /* What is being copied to leave counts: it was asked for before. */
    while (held - c->held[CACHE_VRAM] + c->n_leaving < n) {
        struct value worth;
        struct cache_node *x = hunt_next(h, &worth);

        if (!x && h->share.over_only) {
            h->share = (struct share){0};
            continue;
        }
        if (!x)
            break;
        if (node_is_mirrored(c, x, CACHE_VRAM) && worth.cls != CLASS_USELESS) {
            node_leave_vram(c, x, CACHE_WHY_SPACE);
        } else if (worth.cls != CLASS_USELESS && node_demote(c, x)) {
            demote_above(c, x, n - (held - c->held[CACHE_VRAM]));
        } else if (may_forget(x) && (worth.cls == CLASS_USELESS || c->n_moves == 0)) {
            /* With copies under way ram may have room in a moment: nothing is lost before. */
            forget_page(c, x);
        } else if (node_is_mirrored(c, x, CACHE_VRAM)) {
            node_leave_vram(c, x, CACHE_WHY_SPACE);
        } else if (!hunt_put_aside(h, x)) {
            break;
        }
    }
}

uint32_t cache_shed(struct cache *c, uint32_t n, uint32_t *ret_coming)
{
    const uint32_t held = c->held[CACHE_VRAM];
    uint32_t freed;

    for (int pass = 0; pass < 2; pass++) {
        struct hunt h;

        hunt_begin(&h, c, NULL, n, CACHE_VRAM);
        shed(&h, held, n);
        for (uint32_t i = 0; pass > 0 && i < h.n_aside && c->n_moves == 0; i++)
            if (held - c->held[CACHE_VRAM] < n)
                force_out(c, &h, i);
        hunt_end(&h);
        if (held - c->held[CACHE_VRAM] + c->n_leaving >= n)
            break;
        roots_share_copies(c);
    }
    freed = held - c->held[CACHE_VRAM];
    *ret_coming = c->n_leaving;
    /* What is idle and being copied can leave then, or the copies make room for it. */
    if (freed == 0 && *ret_coming == 0 && c->idle_vram > 0)
        *ret_coming = c->n_coming[CACHE_RAM] + c->n_coming[CACHE_VRAM];
    return freed;
}

uint32_t cache_idle_vram(const struct cache *c)
{
    return c->idle_vram;
}

/* --- limits ------------------------------------------------------------------------------------
 */

/* The parked conversation that is worth least. */
static struct cache_entry_object *least_parked(struct cache *c)
{
    struct cache_entry_object *found = NULL;
    struct value least = {CLASS_ABOVE, 0};

    for (uint32_t i = 0; i < c->n_entries; i++) {
        struct cache_entry_object *e = c->entries[i];
        struct value v;

        if (e->is_root || e->is_active || !entry_end(e)->node || entry_end(e)->node->users > 0)
            continue;
        v = (struct value){CLASS_LAST, entry_key(c, e)};
        if (value_less(v, least)) {
            found = e;
            least = v;
        }
    }
    return found;
}

static struct cache_entry_object *oldest_root(struct cache *c, uint32_t *ret_n)
{
    struct cache_entry_object *found = NULL;

    *ret_n = 0;
    for (struct cache_entry_object *e = c->first_root; e; e = e->next_root) {
        if (e->is_pinned || e->space == c->shared)
            continue;
        ++*ret_n;
        if (!found || e->last_use < found->last_use)
            found = e;
    }
    return found;
}

void evict_to_limits(struct cache *c, enum cache_why why)
{
    struct cache_entry_object *e;
    uint32_t n;

    while (c->limits.n_conversations > 0 && entries_parked(c) > c->limits.n_conversations &&
           (e = least_parked(c)))
        entry_forget(c, e, why == CACHE_WHY_LIMITS ? why : CACHE_WHY_SLOTS);
    while ((e = oldest_root(c, &n)) && n > c->limits.n_roots) {
        /* Its pages stay, as an ordinary prefix. */
        cache_tell(c, CACHE_ROOT_LOST, why == CACHE_WHY_LIMITS ? why : CACHE_WHY_ROOTS, CACHE_RAM,
                   e, 0);
        entry_free(c, e);
    }
    c->why = why;
    (void)ram_make_room(c, NULL, 0, (struct value){CLASS_ABOVE, 0});
    c->why = CACHE_WHY_SPACE;
}
