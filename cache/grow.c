/* SPDX-License-Identifier: Apache-2.0 */
/* What running sequences leave: pages, checkpoints, roots, conversations. */
#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

/* --- cursors -----------------------------------------------------------------------------------
 */

void cache_cursor_init(struct cache *c, struct cache_space *s, const struct cache_pin *p,
                       struct cache_cursor *ret)
{
    struct cache_node *n = s->top;

    if (p && p->held)
        n = p->m.pos % CACHE_PAGE == 0 ? p->m.node : p->m.node->parent;
    s->refs++;
    n->superseded = false;
    *ret = (struct cache_cursor){s, n, n->parent ? n->depth + 1 : 0};
    path_hold(c, n);
}

void cache_cursor_done(struct cache *c, struct cache_cursor *u)
{
    if (!u->node)
        return;
    path_release(c, u->node);
    cache_space_unref(c, u->space);
    *u = (struct cache_cursor){0};
    evict_to_limits(c, CACHE_WHY_SPACE);
}

bool cache_cursor_is_dead(const struct cache_cursor *u)
{
    return !u->node || u->node->dead;
}

/* `unit` holds the bytes of `n`: it is the copy in vram unless there is one. */
static void adopt(struct cache *c, struct cache_node *n, uint32_t unit, uint64_t now)
{
    if (n->copy[CACHE_VRAM].state == COPY_NONE) {
        vram_hold(c, unit, n->users > 0);
        n->copy[CACHE_VRAM] = (struct copy){unit, COPY_VALID};
    }
    n->last_use = now;
    n->superseded = false;
    node_changed(c, n);
    if (node_ram_missing(c, n) > 0)
        queue_write_back(c, n);
}

int cache_extend(struct cache *c, struct cache_cursor *u, const int32_t tokens[CACHE_PAGE],
                 uint32_t unit, uint64_t now)
{
    struct cache_node *n;
    bool fresh;

    if (cache_cursor_is_dead(u))
        return -ESTALE;
    n = node_insert(c, u->node, tokens, CACHE_PAGE, &fresh);
    if (!n)
        return -ENOMEM;
    node_hold(c, n);
    adopt(c, n, unit, now);
    u->node = n;
    u->n_pages++;
    return 0;
}

int cache_extend_tail(struct cache *c, struct cache_cursor *u, const int32_t *tokens, uint32_t n,
                      uint32_t unit, uint64_t now)
{
    struct cache_node *x;
    bool fresh;

    if (cache_cursor_is_dead(u))
        return -ESTALE;
    x = node_insert(c, u->node, tokens, n, &fresh);
    if (!x)
        return -ENOMEM;
    if (fresh)
        adopt(c, x, unit, now);
    else
        x->last_use = now;
    return 0;
}

/* The page of the cursor's path that holds the token before `pos`; NULL: not published. */
static struct cache_node *page_at(const struct cache_cursor *u, const int32_t *tail, uint32_t pos)
{
    const uint32_t end = u->n_pages * CACHE_PAGE;
    struct cache_node *n = u->node;

    if (pos == 0 || cache_cursor_is_dead(u))
        return NULL;
    if (pos > end) {
        uint32_t same;

        if (pos - end >= CACHE_PAGE || !tail)
            return NULL;
        n = node_find(u->node, tail, pos - end, &same);
        return n && same == pos - end ? n : NULL;
    }
    while (n->depth > (pos - 1) / CACHE_PAGE)
        n = n->parent;
    return n;
}

bool cache_has_checkpoint(const struct cache *c, const struct cache_cursor *u, const int32_t *tail,
                          uint32_t pos)
{
    const struct cache_node *n = page_at(u, tail, pos);

    (void)c;
    return n && check_at(n, pos);
}

int cache_add_checkpoint(struct cache *c, struct cache_cursor *u, const int32_t *tail, uint32_t pos,
                         unsigned int kinds, const uint32_t *units)
{
    struct cache_node *n = page_at(u, tail, pos);
    struct cache_checkpoint *k;
    int r = 0;

    if (cache_cursor_is_dead(u))
        return -ESTALE;
    if (!n || !has_checkpoints(c))
        return -ENOENT;
    k = check_at(n, pos);
    if (k) {
        k->kinds |= kinds;
    } else {
        k = check_new(c, pos, kinds);
        if (!k)
            return -ENOMEM;
        r = check_attach(c, n, k);
        if (r < 0) {
            check_reap(c, k);
            return r;
        }
    }
    if (k->state[CACHE_VRAM] == COPY_NONE) {
        for (uint32_t i = 0; i < c->o.checkpoint_units; i++) {
            vram_hold(c, units[i], k->home->users > 0);
            k->units[i] = units[i]; /* vram is the first tier */
        }
        k->state[CACHE_VRAM] = COPY_VALID;
        c->n_check_copies++;
    }
    node_changed(c, k->home);
    queue_write_back(c, k->home);
    return 0;
}

/* --- roots -------------------------------------------------------------------------------------
 */

static struct cache_entry_object *root_at(struct cache_node *n, uint32_t offset)
{
    for (struct mark *m = n->marks; m; m = m->next)
        if (m->kind == MARK_ROOT && m->offset == offset)
            return m->entry;
    return NULL;
}

uint64_t cache_make_root(struct cache *c, struct cache_cursor *u, const int32_t *tail, uint32_t pos,
                         uint64_t now)
{
    struct cache_node *n = page_at(u, tail, pos);
    struct cache_entry_object *e;
    uint32_t offset;
    uint64_t id;

    if (!n || c->limits.n_roots == 0)
        return 0;
    if (has_checkpoints(c) && !check_at(n, pos))
        return 0;
    offset = pos - n->depth * CACHE_PAGE;
    e = root_at(n, offset);
    /* A sibling may carry the mark. */
    for (struct cache_entry_object *x = c->first_root; !e && x; x = x->next_root)
        if (x->space == u->space && x->n_tokens == pos && entry_end(x)->node->parent == n->parent &&
            tokens_common(entry_end(x)->node->tokens, n->tokens, offset) == offset)
            e = x;
    if (!e) {
        e = entry_new(c, u->space, true);
        if (!e)
            return 0;
        e->n_tokens = pos;
        mark_set(entry_end(e), n, offset);
        cache_tell(c, CACHE_ROOT_MADE, CACHE_WHY_ROOTS, CACHE_VRAM, e, 0);
    } else {
        e->hits++;
    }
    e->last_use = now;
    id = e->id;
    if (has_checkpoints(c))
        check_at(n, pos)->kinds |= CACHE_AT_ROOT;
    node_changed(c, entry_end(e)->node);
    evict_to_limits(c, CACHE_WHY_SPACE);
    return entry_find(c, id) ? id : 0;
}

/* --- superseded --------------------------------------------------------------------------------
 */

/* After path_stamp, which ended in `last` with all n tokens: whether e's path goes on from there.
 */
static bool ends_on_path(const struct cache_entry_object *e, const struct cache_node *last,
                         const int32_t *tokens, uint32_t n)
{
    const struct cache_node *x = e->marks[MARK_END].node;
    const uint32_t begin = last->depth * CACHE_PAGE;

    while (x->parent && x->depth > last->depth)
        x = x->parent;
    return x == last || (x->parent == last->parent && x->depth == last->depth &&
                         tokens_common(x->tokens, tokens + begin, n - begin) == n - begin);
}

/* The tail behind where the stamped path left it: leaves first. */
static void flag_tail(struct cache *c, struct cache_entry_object *e)
{
    for (struct cache_node *n = entry_own(e, NULL), *above; n; n = above) {
        above = entry_own(e, n);
        if (n->stamp == c->last_stamp)
            return;
        n->superseded = true;
        queue_forget(c, n);
        node_changed(c, n);
    }
}

uint32_t cache_supersede(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                         uint64_t own)
{
    struct cache_node *last;
    const uint32_t common = path_stamp(c, s, tokens, n, &last);
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->n_entries; i++) {
        struct cache_entry_object *e = c->entries[i];
        struct mark *end = &e->marks[MARK_END];

        if (e->is_root || e->space != s || !end->node || (e->is_active && e->id != own))
            continue;
        if (mark_is_passed(c, end, tokens, n))
            continue;
        if (!mark_is_passed(c, &e->marks[MARK_TURN], tokens, n) &&
            !mark_is_passed(c, &e->marks[MARK_QUERY], tokens, n))
            continue;
        /* So far it is alike; it may still turn out to be the same. */
        if (common == n && n > 0 && ends_on_path(e, last, tokens, n))
            continue;
        count++;
        cache_tell(c, CACHE_SUPERSEDED, CACHE_WHY_SUPERSEDED, CACHE_VRAM, e, 0);
        flag_tail(c, e);
        if (e->id == own) {
            struct cache_node *was = end->node;

            mark_clear(end);
            node_changed(c, was);
        } else {
            entry_free(c, e);
            i--;
        }
    }
    return count;
}

/* --- the end of a request ----------------------------------------------------------------------
 */

bool cache_resume_conversation(struct cache *c, uint64_t id, uint64_t now)
{
    struct cache_entry_object *e = entry_find(c, id);

    if (!e || e->is_root || e->is_active)
        return false;
    e->is_active = true;
    entry_use(e, now);
    return true;
}

void cache_abandon_conversation(struct cache *c, uint64_t id, uint64_t now)
{
    struct cache_entry_object *e = entry_find(c, id);

    if (!e || e->is_root)
        return;
    e->is_active = false;
    e->last_use = now;
    if (!e->marks[MARK_END].node)
        entry_endless(c, e);
    else
        evict_to_limits(c, CACHE_WHY_SPACE);
}

bool check_is_marked(const struct cache *c, const struct cache_checkpoint *k)
{
    for (uint32_t i = 0; i < c->n_entries; i++)
        for (int kind = 0; kind < MARK_KINDS; kind++) {
            const struct mark *m = &c->entries[i]->marks[kind];

            if (m->node && m->node->depth * CACHE_PAGE + m->offset == k->pos &&
                check_at(m->node, k->pos) == k)
                return true;
        }
    return false;
}

static uint32_t path_checkpoints(const struct cache_node *end, uint32_t end_pos)
{
    uint32_t n = 0;

    for (const struct cache_node *x = end; x; x = x->parent)
        for (uint32_t i = 0; i < x->n_checks; i++)
            n += x->checks[i]->pos <= end_pos && !(x->checks[i]->kinds & CACHE_AT_ROOT);
    return n;
}

/* The one whose loss leaves the smallest gap; NULL: none may go. */
static struct cache_checkpoint *least_missed(const struct cache *c, struct cache_node *end,
                                             uint32_t end_pos)
{
    struct cache_checkpoint *worst = NULL, *at = NULL, *behind = NULL;
    uint32_t least = UINT32_MAX;

    /* From the end up: `behind` is deeper than `at`, the one looked at now is above it. */
    for (struct cache_node *x = end; x; x = x->parent)
        for (uint32_t i = x->n_checks + !x->parent; i-- > 0;) {
            struct cache_checkpoint *k = x->parent ? x->checks[i] : NULL;
            const uint32_t pos = k ? k->pos : 0;

            if (pos > end_pos)
                continue;
            if (at && behind && behind->pos - pos < least && !(at->kinds & CACHE_AT_ROOT) &&
                at->pins == 0 && !check_is_marked(c, at)) {
                least = behind->pos - pos;
                worst = at;
            }
            behind = at;
            at = k;
        }
    return worst;
}

/*
 * Too many checkpoints on a path: those whose loss leaves the smallest gap go.  Never a root's, nor
 * one that a conversation goes on from.
 */
static void thin_out(struct cache *c, struct cache_node *end, uint32_t end_pos)
{
    struct cache_checkpoint *k;

    while (path_checkpoints(end, end_pos) > CACHE_PATH_CHECKPOINTS &&
           (k = least_missed(c, end, end_pos)))
        check_detach(c, k);
}

static void set_mark(struct mark *m, const struct cache_cursor *u, const int32_t *tail,
                     uint32_t pos)
{
    struct cache_node *n = page_at(u, tail, pos);

    mark_clear(m);
    if (n)
        mark_set(m, n, pos - n->depth * CACHE_PAGE);
}

uint64_t cache_park(struct cache *c, struct cache_cursor *u, const struct cache_ending *e,
                    uint64_t now)
{
    struct cache_node *end = page_at(u, e->tail, e->n_tokens), *was;
    struct cache_entry_object *x = e->conversation ? entry_find(c, e->conversation) : NULL;
    uint64_t id;

    if (!end) {
        if (x)
            cache_abandon_conversation(c, x->id, now);
        return 0;
    }
    if (!x)
        x = entry_new(c, u->space, false);
    if (!x)
        return 0;
    was = x->marks[MARK_END].node;
    x->n_tokens = e->n_tokens;
    x->turn_pos = e->turn_pos;
    x->query_pos = e->query_pos;
    x->last_use = now;
    x->is_active = false;
    x->end_lost = false;
    set_mark(&x->marks[MARK_END], u, e->tail, e->n_tokens);
    set_mark(&x->marks[MARK_TURN], u, e->tail, e->turn_pos);
    set_mark(&x->marks[MARK_QUERY], u, e->tail, e->query_pos);
    if (was && was != end)
        node_changed(c, was);
    id = x->id;
    for (struct cache_node *n = end; n->parent; n = n->parent)
        n->owner = id;
    node_changed(c, end);
    c->st.parks++;
    if (has_checkpoints(c))
        thin_out(c, end, e->n_tokens);
    evict_to_limits(c, CACHE_WHY_SPACE);
    return entry_find(c, id) ? id : 0;
}

/* The first page of another space that is of the same bytes as `n`, or, `alike`, of the same
 * tokens. */
static struct cache_node *same_page(const struct cache_space *s, const struct cache_node *n,
                                    bool alike)
{
    uint32_t common;
    struct cache_node *x = node_find(s->top, n->tokens, n->n_tokens, &common);

    if (!x)
        return NULL;
    for (int t = 0; t < CACHE_TIERS; t++)
        alike = alike || (n->copy[t].state != COPY_NONE && n->copy[t].unit == x->copy[t].unit);
    return alike && (common == n->n_tokens || common == x->n_tokens) ? x : NULL;
}

void cache_drop_path(struct cache *c, struct cache_cursor *u)
{
    struct cache_node *n = u->node, *twin;

    if (cache_cursor_is_dead(u) || !n->parent)
        return;
    while (n->parent->parent)
        n = n->parent;
    for (struct cache_space *s = c->spaces; s; s = s->next)
        while (s != u->space && (twin = same_page(s, n, s == c->shared)))
            node_kill(c, twin, CACHE_WHY_NONFINITE);
    node_kill(c, n, CACHE_WHY_NONFINITE);
}
