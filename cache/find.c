/* SPDX-License-Identifier: Apache-2.0 */
/* What of a prompt is there: matches, and holding them. */
#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

/* --- walks -------------------------------------------------------------------------------------
 */

uint32_t path_stamp(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                    struct cache_node **ret_last)
{
    struct cache_node *at = s->top;
    uint32_t done = 0;

    c->last_stamp++;
    at->stamp = c->last_stamp;
    while (done < n) {
        uint32_t same;
        const uint32_t most = n - done < CACHE_PAGE ? n - done : CACHE_PAGE;
        struct cache_node *kid = node_find(at, tokens + done, most, &same);

        if (!kid)
            break;
        at = kid;
        done += same;
        if (same < CACHE_PAGE)
            break;
        at->stamp = c->last_stamp;
    }
    *ret_last = at;
    return done;
}

bool mark_is_passed(const struct cache *c, const struct mark *m, const int32_t *tokens, uint32_t n)
{
    const struct cache_node *x = m->node;
    uint32_t begin;

    if (!x)
        return false;
    if (x->stamp == c->last_stamp)
        return true;
    if (x->parent->stamp != c->last_stamp)
        return false;
    begin = x->depth * CACHE_PAGE;
    return n >= begin + m->offset &&
           tokens_common(x->tokens, tokens + begin, m->offset) == m->offset;
}

/* --- matches -----------------------------------------------------------------------------------
 */

struct walk {
    struct cache_match best, vram;
    uint32_t n_pages, n_pages_vram, n_missing, n_idle; /* so far; missing in vram */
    uint32_t n_common;
};

static bool in_vram(const struct cache_checkpoint *k)
{
    return !k || k->state[CACHE_VRAM] == COPY_VALID;
}

static void consider(const struct cache *c, struct walk *w, struct cache_node *n, uint32_t pos,
                     struct cache_checkpoint *k)
{
    struct cache_match m = {
        .pos = pos,
        .n_pages = w->n_pages,
        .n_pages_vram = w->n_pages_vram,
        .units_to_load = w->n_missing,
        .units_idle = w->n_idle,
        .space = n->space,
        .node = n,
        .checkpoint = k,
    };

    if (!in_vram(k))
        m.units_to_load += c->o.checkpoint_units;
    w->best = m;
    if (m.units_to_load == 0)
        w->vram = m;
}

/* Positions of `n` that can be resumed, of its first `same` tokens; none behind `most`. */
static void consider_page(const struct cache *c, struct walk *w, struct cache_node *n,
                          uint32_t same, uint32_t most)
{
    const uint32_t begin = n->depth * CACHE_PAGE;
    const uint32_t end = begin + same < most ? begin + same : most;

    w->n_pages++;
    w->n_idle += n->users == 0 ? n->counted[CACHE_VRAM] : 0;
    if (n->copy[CACHE_VRAM].state == COPY_VALID)
        w->n_pages_vram++;
    else
        w->n_missing++;
    if (end <= begin)
        return;
    if (!has_checkpoints(c)) {
        consider(c, w, n, end, NULL);
        return;
    }
    for (uint32_t i = 0; i < n->n_checks && n->checks[i]->pos <= end; i++)
        consider(c, w, n, n->checks[i]->pos, n->checks[i]);
}

/* Stamps the pages that are passed wholly, as path_stamp does. */
static void walk_space(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                       uint32_t most, struct walk *w)
{
    struct cache_node *at = s->top;

    c->last_stamp++;
    at->stamp = c->last_stamp;
    *w = (struct walk){0};
    while (w->n_common < n) {
        const uint32_t rest = n - w->n_common;
        uint32_t same;
        struct cache_node *kid =
            node_find(at, tokens + w->n_common, rest < CACHE_PAGE ? rest : CACHE_PAGE, &same);

        if (!kid)
            break;
        consider_page(c, w, kid, same, most);
        w->n_common += same;
        at = kid;
        if (same < CACHE_PAGE)
            break;
        at->stamp = c->last_stamp;
    }
}

/* The conversation that the stamped prompt goes on with: it passes its turn or query checkpoint or
 * its end. The one that it has most in common with, then the most recent. */
static const struct cache_entry_object *find_continued(struct cache *c, struct cache_space *s,
                                                       const int32_t *tokens, uint32_t n)
{
    const struct cache_entry_object *found = NULL;
    uint32_t found_pos = 0;

    for (uint32_t i = 0; i < c->n_entries; i++) {
        const struct cache_entry_object *e = c->entries[i];
        uint32_t pos = 0;

        if (e->is_root || e->space != s || !e->marks[MARK_END].node)
            continue;
        if (mark_is_passed(c, &e->marks[MARK_END], tokens, n))
            pos = e->n_tokens;
        else if (mark_is_passed(c, &e->marks[MARK_TURN], tokens, n))
            pos = e->turn_pos;
        else if (mark_is_passed(c, &e->marks[MARK_QUERY], tokens, n))
            pos = e->query_pos;
        if (pos > 0 &&
            (!found || pos > found_pos || (pos == found_pos && e->last_use > found->last_use))) {
            found = e;
            found_pos = pos;
        }
    }
    return found;
}

/* Of all that have these tokens, the conversation of the most recent request; 0: none. */
static uint64_t last_owner(const struct cache *c, const struct cache_node *n, uint32_t k)
{
    const struct cache_node *parent = n->parent;
    uint64_t found = 0, last_use = 0;

    if (k == CACHE_PAGE || parent->n_kids == 1)
        return entry_find(c, n->owner) ? n->owner : 0;
    for (uint32_t i = 0; i < parent->n_kids; i++) {
        const struct cache_node *kid = node_kid(parent, i);

        if (kid->last_use >= last_use && kid->n_tokens >= k && entry_find(c, kid->owner) &&
            tokens_common(kid->tokens, n->tokens, k) == k) {
            found = kid->owner;
            last_use = kid->last_use;
        }
    }
    return found;
}

/* While the tokens' path is stamped in the space of the match. */
static void name_root(const struct cache *c, struct cache_match *m, const int32_t *tokens,
                      uint32_t n)
{
    if (m->pos == 0)
        return;
    for (const struct cache_entry_object *e = c->first_root; e; e = e->next_root) {
        if (e->space != m->space || e->n_tokens > m->pos || e->n_tokens <= m->root_pos ||
            !mark_is_passed(c, &e->marks[MARK_ROOT], tokens, n))
            continue;
        m->root = e->id;
        m->root_pos = e->n_tokens;
    }
}

static void name_conversation(const struct cache *c, struct cache_match *m,
                              const struct cache_entry_object *goes_on)
{
    if (m->pos == 0)
        return;
    m->continues = goes_on != NULL;
    if (goes_on)
        m->conversation = goes_on->id;
    else
        m->conversation = last_owner(c, m->node, m->pos - m->node->depth * CACHE_PAGE);
}

void cache_find(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                uint32_t most, struct cache_found *ret)
{
    const struct cache_entry_object *goes_on;
    struct walk own, shared = {0};

    if (s != c->shared) {
        walk_space(c, c->shared, tokens, n, most, &shared);
        name_root(c, &shared.best, tokens, n);
        name_root(c, &shared.vram, tokens, n);
    }
    walk_space(c, s, tokens, n, most, &own);
    name_root(c, &own.best, tokens, n);
    name_root(c, &own.vram, tokens, n);
    ret->n_common = own.n_common > shared.n_common ? own.n_common : shared.n_common;
    ret->best = own.best;
    ret->vram = own.vram;
    goes_on = find_continued(c, s, tokens, n);
    if (shared.best.pos > own.best.pos)
        ret->best = shared.best;
    if (shared.vram.pos > own.vram.pos)
        ret->vram = shared.vram;
    name_conversation(c, &ret->best, goes_on);
    name_conversation(c, &ret->vram, goes_on);
}

/* --- pins --------------------------------------------------------------------------------------
 */

static void graft_copies(struct cache *c, struct cache_node *to, struct cache_node *from)
{
    for (int i = 0; i < CACHE_TIERS; i++) {
        const enum cache_tier t = (enum cache_tier)i;

        if (to->copy[t].state != COPY_NONE || from->copy[t].state != COPY_VALID)
            continue;
        to->copy[t] = from->copy[t];
        if (t == CACHE_VRAM)
            vram_hold(c, to->copy[t].unit, to->users > 0);
        else
            ram_ref(c, to->copy[t].unit);
    }
}

static void check_graft_copies(struct cache *c, struct cache_checkpoint *to,
                               const struct cache_checkpoint *from)
{
    for (int i = 0; i < CACHE_TIERS; i++) {
        const enum cache_tier t = (enum cache_tier)i;
        const size_t first = (size_t)t * c->o.checkpoint_units;

        if (to->state[t] != COPY_NONE || from->state[t] != COPY_VALID)
            continue;
        to->state[t] = COPY_VALID;
        c->n_check_copies++;
        for (size_t u = first; u < first + c->o.checkpoint_units; u++) {
            to->units[u] = from->units[u];
            if (t == CACHE_VRAM)
                vram_hold(c, to->units[u], to->home->users > 0);
            else
                ram_ref(c, to->units[u]);
        }
    }
    node_changed(c, to->home);
}

/* The checkpoint of another space's page, as one of ours on the same units. */
static int graft_check(struct cache *c, struct cache_node *to, const struct cache_checkpoint *from)
{
    struct cache_checkpoint *k;
    int r;

    if (check_at(to, from->pos))
        return 0;
    k = check_new(c, from->pos, from->kinds);
    if (!k)
        return -ENOMEM;
    r = check_attach(c, to, k);
    if (r < 0) {
        check_reap(c, k);
        return r;
    }
    check_graft_copies(c, k, from);
    return 0;
}

struct cache_node *path_graft(struct cache *c, struct cache_space *s, struct cache_node *n,
                              uint32_t n_tokens)
{
    struct cache_node *above, *x;
    bool fresh;

    if (!n->parent)
        return s->top;
    above = path_graft(c, s, n->parent, CACHE_PAGE);
    if (!above)
        return NULL;
    x = node_insert(c, above, n->tokens, n_tokens, &fresh);
    if (!x)
        return NULL;
    if (fresh)
        graft_copies(c, x, n);
    x->last_use = n->last_use > x->last_use ? n->last_use : x->last_use;
    node_changed(c, x);
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->pos <= n->depth * CACHE_PAGE + n_tokens &&
            graft_check(c, x, n->checks[i]) < 0)
            return NULL;
    return x;
}

/* A copy that `from` has and `to`, which has the same tokens or fewer, lacks: by reference. */
static void share_copies(struct cache *c, struct cache_node *to, struct cache_node *from)
{
    if (from->n_tokens < to->n_tokens ||
        tokens_common(from->tokens, to->tokens, to->n_tokens) < to->n_tokens)
        return;
    graft_copies(c, to, from);
    for (uint32_t i = 0; i < to->n_checks; i++) {
        struct cache_checkpoint *k = check_at(from, to->checks[i]->pos);

        if (k)
            check_graft_copies(c, to->checks[i], k);
    }
    node_changed(c, to);
}

void roots_share_copies(struct cache *c)
{
    for (struct cache_entry_object *e = c->first_root; e; e = e->next_root) {
        struct cache_entry_object *twin = e->is_pinned ? entry_find(c, e->twin) : NULL;
        struct cache_node *a = twin ? entry_end(e)->node : NULL,
                          *b = twin ? entry_end(twin)->node : NULL;

        for (; a && b && a->parent && b->parent; a = a->parent, b = b->parent)
            share_copies(c, a, b);
    }
}

int cache_pin(struct cache *c, struct cache_space *s, const struct cache_match *m, uint64_t now,
              struct cache_pin *ret)
{
    *ret = (struct cache_pin){.m = *m};
    if (m->pos == 0)
        return 0;
    if (m->space != s) {
        struct cache_node *n = path_graft(c, s, m->node, m->node->n_tokens);

        if (!n)
            return -ENOMEM;
        ret->m.node = n;
        ret->m.space = s;
        if (m->checkpoint)
            ret->m.checkpoint = check_at(n, m->pos);
    }
    for (struct cache_node *n = ret->m.node; n->parent; n = n->parent) {
        n->last_use = now;
        n->hits++;
        n->refused = false;
        node_set_leaving(c, n, false);
        if (n != ret->m.node)
            n->superseded = false;
        /* What ends on the way is of use too. */
        for (struct mark *k = n->marks; k; k = k->next)
            if (k->kind == MARK_END && n->depth * CACHE_PAGE + k->offset <= m->pos)
                entry_use(k->entry, now);
    }
    if (m->root)
        entry_use(entry_find(c, m->root), now);

    path_hold(c, ret->m.node);
    if (ret->m.checkpoint) {
        struct cache_node *was = ret->m.checkpoint->home;

        /* At home where it is held, so that it does not count as idle. */
        ret->m.checkpoint->pins++;
        check_rehome(c, ret->m.checkpoint, ret->m.node);
        node_changed(c, was);
        node_changed(c, ret->m.node);
    }
    ret->held = true;
    return 0;
}

void cache_unpin(struct cache *c, struct cache_pin *p)
{
    struct cache_checkpoint *k = p->m.checkpoint;

    if (!p->held)
        return;
    p->held = false;
    if (k) {
        k->pins--;
        if (k->home)
            node_changed(c, k->home);
        check_reap(c, k);
    }
    path_release(c, p->m.node);
    /* It may have kept one conversation too many. */
    evict_to_limits(c, CACHE_WHY_SPACE);
}

bool cache_is_loaded(const struct cache *c, const struct cache_pin *p)
{
    (void)c;
    if (!p->held)
        return true;
    if (!in_vram(p->m.checkpoint))
        return false;
    for (const struct cache_node *n = p->m.node; n->parent; n = n->parent)
        if (n->copy[CACHE_VRAM].state != COPY_VALID)
            return false;
    return true;
}

bool cache_is_broken(const struct cache *c, const struct cache_pin *p)
{
    const struct cache_checkpoint *k = p->m.checkpoint;

    (void)c;
    return p->held && (p->m.node->dead || (k && !k->home));
}

void cache_pin_units(const struct cache *c, const struct cache_pin *p, uint32_t *ret_pages,
                     const uint32_t **ret_checkpoint)
{
    (void)c;
    for (const struct cache_node *n = p->m.node; p->held && n->parent; n = n->parent)
        ret_pages[n->depth] = n->copy[CACHE_VRAM].unit;
    /* vram is the first tier. */
    *ret_checkpoint = p->m.checkpoint ? p->m.checkpoint->units : NULL;
}
