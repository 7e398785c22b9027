/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations and roots, and what an operator may do with them. */
#include "cache/cache_private.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* --- the table, by id --------------------------------------------------------------------------
 */

static uint32_t index_of(const struct cache *c, uint64_t id)
{
    uint32_t lo = 0, hi = c->n_entries;

    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;

        if (c->entries[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct cache_entry_object *entry_find(const struct cache *c, uint64_t id)
{
    const uint32_t i = index_of(c, id);

    return i < c->n_entries && c->entries[i]->id == id ? c->entries[i] : NULL;
}

static void roots_add(struct cache *c, struct cache_entry_object *e)
{
    e->prev_root = c->last_root;
    if (c->last_root)
        c->last_root->next_root = e;
    else
        c->first_root = e;
    c->last_root = e;
}

static void roots_remove(struct cache *c, struct cache_entry_object *e)
{
    if (e->prev_root)
        e->prev_root->next_root = e->next_root;
    else
        c->first_root = e->next_root;
    if (e->next_root)
        e->next_root->prev_root = e->prev_root;
    else
        c->last_root = e->prev_root;
}

struct cache_entry_object *entry_new(struct cache *c, struct cache_space *s, bool is_root)
{
    struct cache_entry_object *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    if (c->n_entries == c->cap_entries) {
        const uint32_t cap = c->cap_entries ? c->cap_entries * 2 : 16;
        struct cache_entry_object **v = reallocarray(c->entries, cap, sizeof(void *));

        if (!v) {
            free(e);
            return NULL;
        }
        c->book_bytes += (cap - c->cap_entries) * sizeof(void *);
        c->entries = v;
        c->cap_entries = cap;
    }
    e->id = ++c->last_id;
    e->is_root = is_root;
    e->space = s;
    s->refs++;
    for (int k = 0; k < MARK_KINDS; k++) {
        e->marks[k].kind = (enum mark_kind)k;
        e->marks[k].entry = e;
    }
    c->entries[c->n_entries++] = e;
    if (is_root)
        roots_add(c, e);
    c->book_bytes += sizeof *e;
    return e;
}

void entry_free(struct cache *c, struct cache_entry_object *e)
{
    const uint32_t i = index_of(c, e->id);

    for (int k = 0; k < MARK_KINDS; k++) {
        struct cache_node *n = e->marks[k].node;

        mark_clear(&e->marks[k]);
        if (n && !n->dead)
            node_changed(c, n);
    }
    if (e->is_root)
        roots_remove(c, e);
    memmove(c->entries + i, c->entries + i + 1, (c->n_entries - i - 1) * sizeof(void *));
    c->n_entries--;
    c->book_bytes -= sizeof *e;
    cache_space_unref(c, e->space);
    free(e);
}

uint32_t entries_parked(const struct cache *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_entries; i++)
        n += !c->entries[i]->is_root && !c->entries[i]->is_active &&
             c->entries[i]->marks[MARK_END].node;
    return n;
}

double entry_key(const struct cache *c, const struct cache_entry_object *e)
{
    return log2(1.0 + e->hits) + (double)e->last_use / (double)c->limits.half_life_ns;
}

/* --- loss --------------------------------------------------------------------------------------
 */

static void tell_gone(struct cache *c, const struct cache_entry_object *e, enum cache_why why,
                      enum cache_tier tier, uint64_t bytes)
{
    cache_tell(c, e->is_root ? CACHE_ROOT_LOST : CACHE_EVICTED, why, tier, e, bytes);
}

void entry_lost(struct cache *c, struct mark *m, enum cache_why why)
{
    struct cache_entry_object *e = m->entry;
    const struct cache_node *n = m->node;
    const enum cache_tier tier = n->copy[CACHE_RAM].state != COPY_NONE ? CACHE_RAM : CACHE_VRAM;

    mark_clear(m);
    if (m->kind == MARK_TURN)
        e->turn_pos = 0;
    if (m->kind == MARK_QUERY)
        e->query_pos = 0;
    /* An active one gets its end when its request is done. */
    if (m->kind == MARK_END && e->is_active) {
        e->end_lost = true;
        e->lost_why = why;
    }
    if (m->kind == MARK_TURN || m->kind == MARK_QUERY || (m->kind == MARK_END && e->is_active))
        return;
    tell_gone(c, e, why, tier, node_units(c, n, tier) * c->o.unit_bytes);
    entry_free(c, e);
}

void entries_lose(struct cache *c, const struct cache_checkpoint *k, enum cache_why why)
{
    for (uint32_t i = c->n_entries; i-- > 0;) {
        struct mark *end = entry_end(c->entries[i]);

        if (end->node && c->entries[i]->n_tokens == k->pos && check_at(end->node, k->pos) == k)
            entry_lost(c, end, why);
    }
}

void entry_endless(struct cache *c, struct cache_entry_object *e)
{
    if (e->end_lost)
        tell_gone(c, e, e->lost_why, c->limits.ram_units > 0 ? CACHE_RAM : CACHE_VRAM, 0);
    entry_free(c, e);
}

/* Nobody's but a superseded tail's. */
static bool is_useless(const struct cache_node *n)
{
    bool useless = n->superseded && n->users == 0;

    for (uint32_t i = 0; useless && i < n->n_kids; i++)
        useless = is_useless(node_kid(n, i));
    return useless;
}

static uint32_t useful_kids(const struct cache_node *n)
{
    uint32_t useful = 0;

    for (uint32_t i = 0; i < n->n_kids; i++)
        useful += !is_useless(node_kid(n, i));
    return useful;
}

static void drop_superseded(struct cache *c, struct cache_node *n)
{
    for (uint32_t i = n->n_kids; i-- > 0;)
        if (is_useless(node_kid(n, i)))
            subtree_forget(c, node_kid(n, i), CACHE_WHY_SUPERSEDED);
}

/* Whether anything but `e` needs this page as it is. */
static bool is_own(const struct cache_entry_object *e, const struct cache_node *n, uint32_t kids)
{
    return n->parent && useful_kids(n) == kids && node_last_mark(n, e) == 0;
}

struct cache_node *entry_own(const struct cache_entry_object *e, struct cache_node *n)
{
    if (!n) {
        n = e->marks[e->is_root ? MARK_ROOT : MARK_END].node;
        return n && is_own(e, n, 0) ? n : NULL;
    }
    return is_own(e, n->parent, 1) ? n->parent : NULL;
}

/* From `n` up, what nobody needs: kids, marks, users. */
static uint64_t prune(struct cache *c, struct cache_node *n, enum cache_why why)
{
    uint64_t units = 0;

    while (n->parent && !n->dead && useful_kids(n) == 0 && n->users == 0) {
        struct cache_node *parent = n->parent;
        const uint32_t keep = node_last_mark(n, NULL);

        drop_superseded(c, n);
        if (keep >= n->n_tokens)
            break;
        units += n->counted[CACHE_VRAM] + n->counted[CACHE_RAM];
        if (keep > 0) {
            node_trim(c, n, keep);
            break;
        }
        node_remove(c, n, why);
        n = parent;
    }
    return units;
}

void entry_forget(struct cache *c, struct cache_entry_object *e, enum cache_why why)
{
    struct cache_node *n = entry_end(e)->node;
    const struct cache_entry_object gone = *e;
    uint64_t units;

    /* Its marks go first: they must not keep what it alone needs. */
    gone.space->refs++;
    entry_free(c, e);
    units = n ? prune(c, n, why) : 0;
    tell_gone(c, &gone, why, c->limits.ram_units > 0 ? CACHE_RAM : CACHE_VRAM,
              units * c->o.unit_bytes);
    cache_space_unref(c, gone.space);
}

/* --- lists -------------------------------------------------------------------------------------
 */

/* Of a page on a path of n_tokens: its own units and its checkpoints', whoever counts them. */
static uint64_t path_units(const struct cache *c, const struct cache_node *n, uint32_t n_tokens,
                           enum cache_tier t)
{
    uint64_t units = n->copy[t].state != COPY_NONE;

    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->pos <= n_tokens && n->checks[i]->state[t] != COPY_NONE)
            units += c->o.checkpoint_units;
    return units;
}

static void describe(const struct cache *c, struct cache_entry_object *e, struct cache_entry *ret)
{
    struct cache_node *end = entry_end(e)->node;

    *ret = (struct cache_entry){
        .id = e->id,
        .is_root = e->is_root,
        .is_active = e->is_active,
        .is_pinned = e->is_pinned,
        .is_shared = e->space == c->shared,
        .uid = e->space->uid,
        .n_tokens = e->n_tokens,
        .turn_pos = e->turn_pos,
        .query_pos = e->query_pos,
        .last_use = e->last_use,
        .hits = e->hits,
        .value = entry_key(c, e),
    };
    for (const struct cache_node *n = end; n && n->parent; n = n->parent) {
        ret->n_pages++;
        ret->n_pages_vram += n->copy[CACHE_VRAM].state == COPY_VALID;
        ret->n_pages_ram += n->copy[CACHE_RAM].state == COPY_VALID;
        for (uint32_t i = 0; i < n->n_checks; i++)
            ret->n_checkpoints += n->checks[i]->pos <= e->n_tokens;
        ret->bytes_vram += path_units(c, n, e->n_tokens, CACHE_VRAM) * c->o.unit_bytes;
        ret->bytes_ram += path_units(c, n, e->n_tokens, CACHE_RAM) * c->o.unit_bytes;
    }
    for (struct cache_node *n = entry_own(e, NULL); n; n = entry_own(e, n))
        ret->n_pages_own++;
}

static int newest_first(const void *a, const void *b)
{
    const struct cache_entry_object *x = *(struct cache_entry_object *const *)a,
                                    *y = *(struct cache_entry_object *const *)b;

    if (x->last_use != y->last_use)
        return x->last_use > y->last_use ? -1 : 1;
    return x->id > y->id ? -1 : x->id < y->id;
}

int cache_entries(const struct cache *c, bool roots_only, struct cache_entry *ret, uint32_t max,
                  uint32_t *ret_total)
{
    struct cache_entry_object **v = calloc(c->n_entries + 1, sizeof(void *));
    uint32_t n = 0, i;

    if (!v)
        return -ENOMEM;
    for (i = 0; i < c->n_entries; i++)
        if (!roots_only || c->entries[i]->is_root)
            v[n++] = c->entries[i];
    qsort(v, n, sizeof(void *), newest_first);
    /* Each is a walk up its path: only of those that are asked for. */
    for (i = 0; i < n && i < max; i++)
        describe(c, v[i], &ret[i]);
    free(v);
    *ret_total = n;
    return (int)i;
}

int cache_entry(const struct cache *c, uint64_t id, struct cache_entry *ret)
{
    struct cache_entry_object *e = entry_find(c, id);

    if (!e)
        return -ENOENT;
    describe(c, e, ret);
    return 0;
}

uint32_t cache_entry_tokens(const struct cache *c, uint64_t id, int32_t *ret, uint32_t max)
{
    struct cache_entry_object *e = entry_find(c, id);
    const struct mark *end = e ? entry_end(e) : NULL;
    uint32_t n;

    if (!e || !end->node)
        return 0;
    n = end->node->depth * CACHE_PAGE + end->offset;
    if (n > max)
        n = max;
    for (const struct cache_node *x = end->node; x->parent; x = x->parent) {
        const uint32_t begin = x->depth * CACHE_PAGE;

        if (begin < n)
            memcpy(ret + begin, x->tokens,
                   (n - begin < x->n_tokens ? n - begin : x->n_tokens) * sizeof *ret);
    }
    return n;
}

/* --- verbs -------------------------------------------------------------------------------------
 */

static bool is_held(const struct cache_entry_object *e)
{
    const struct cache_node *n = e->marks[e->is_root ? MARK_ROOT : MARK_END].node;

    return e->is_active || (n && n->users > 0);
}

/* vram to ram; false when nothing of it is in vram. */
static bool evict_vram(struct cache *c, struct cache_entry_object *e)
{
    bool any = false;

    for (struct cache_node *n = entry_own(e, NULL), *above; n && n->users == 0; n = above) {
        drop_superseded(c, n);
        above = entry_own(e, n);
        if (n->counted[CACHE_VRAM] == 0)
            continue;
        any = true;
        n->superseded = false;
        if (node_is_mirrored(c, n, CACHE_VRAM))
            node_leave_vram(c, n, CACHE_WHY_OPERATOR);
        else
            (void)node_demote(c, n);
    }
    return any;
}

int cache_evict(struct cache *c, uint64_t id, bool forget)
{
    struct cache_entry_object *e = entry_find(c, id);

    if (!e)
        return -ENOENT;
    if (is_held(e) || e->is_pinned)
        return -EBUSY;
    if (!forget && c->limits.ram_units > 0 && evict_vram(c, e))
        return 0;
    entry_forget(c, e, CACHE_WHY_OPERATOR);
    return 0;
}

static void clear_below(struct cache *c, struct cache_node *n)
{
    for (uint32_t i = n->n_kids; i-- > 0;) {
        struct cache_node *kid = node_kid(n, i);

        uint32_t keep;

        clear_below(c, kid);
        keep = node_last_mark(kid, NULL);
        if (kid->n_kids > 0 || kid->users > 0 || keep == kid->n_tokens)
            continue;
        if (keep > 0)
            node_trim(c, kid, keep);
        else
            node_remove(c, kid, CACHE_WHY_OPERATOR);
    }
}

uint32_t cache_clear(struct cache *c)
{
    uint32_t n = 0;

    for (uint32_t i = c->n_entries; i-- > 0;) {
        struct cache_entry_object *e = c->entries[i];

        if (is_held(e) || e->is_pinned)
            continue;
        n += !e->is_root;
        entry_forget(c, e, CACHE_WHY_OPERATOR);
        if (i > c->n_entries)
            i = c->n_entries;
    }
    for (struct cache_space *s = c->spaces; s; s = s->next)
        clear_below(c, s->top);
    return n;
}

uint32_t cache_clear_roots(struct cache *c)
{
    uint32_t n = 0;

    for (uint32_t i = c->n_entries; i-- > 0;) {
        struct cache_entry_object *e = c->entries[i];

        if (!e->is_root || e->is_pinned)
            continue;
        n++;
        tell_gone(c, e, CACHE_WHY_OPERATOR, CACHE_RAM, 0);
        entry_free(c, e);
    }
    return n;
}

static int share_root(struct cache *c, struct cache_entry_object *e, uint64_t now)
{
    struct mark *end = entry_end(e);
    struct cache_entry_object *twin;
    struct cache_node *n = path_graft(c, c->shared, end->node, end->offset);

    if (!n)
        return -ENOMEM;
    twin = entry_new(c, c->shared, true);
    if (!twin)
        return -ENOMEM;
    twin->is_pinned = true;
    twin->n_tokens = e->n_tokens;
    twin->last_use = now;
    twin->twin = e->id;
    mark_set(entry_end(twin), n, end->offset);
    node_changed(c, n);
    e->twin = twin->id;
    return 0;
}

/* It is an ordinary root again; the shared one goes. */
static void unpin_root(struct cache *c, struct cache_entry_object *e, enum cache_why why)
{
    struct cache_entry_object *twin = entry_find(c, e->twin);

    e->is_pinned = false;
    if (!twin)
        return;
    twin->is_pinned = false;
    e->twin = twin->twin = 0;
    entry_forget(c, twin->space == c->shared ? twin : e, why);
}

int cache_pin_root(struct cache *c, uint64_t id, bool pinned, uint64_t now)
{
    struct cache_entry_object *e = entry_find(c, id);
    int r = 0;

    if (!e || !e->is_root)
        return -ENOENT;
    if (e->is_pinned == pinned)
        return 0;
    if (pinned && e->space != c->shared)
        r = share_root(c, e, now);
    if (r < 0)
        return r;
    if (pinned)
        e->is_pinned = true;
    else
        unpin_root(c, e, CACHE_WHY_OPERATOR);
    evict_to_limits(c, CACHE_WHY_LIMITS);
    return 0;
}

static bool holds_vram(const struct cache_entry_object *e)
{
    const struct cache_node *n = e->marks[MARK_ROOT].node;

    while (n && n->parent && n->counted[CACHE_VRAM] == 0)
        n = n->parent;
    return n && n->parent;
}

bool cache_yield_pin(struct cache *c)
{
    struct cache_entry_object *found = NULL;

    for (uint32_t i = 0; i < c->n_entries; i++) {
        struct cache_entry_object *e = c->entries[i];
        const struct cache_entry_object *twin = entry_find(c, e->twin);

        if (e->is_root && e->is_pinned && !is_held(e) && !(twin && is_held(twin)) &&
            holds_vram(e) && (!found || e->last_use < found->last_use))
            found = e;
    }
    if (!found)
        return false;
    unpin_root(c, found, CACHE_WHY_SPACE);
    evict_to_limits(c, CACHE_WHY_LIMITS);
    return true;
}
