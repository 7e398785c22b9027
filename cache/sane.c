/* SPDX-License-Identifier: Apache-2.0 */
/* The invariant walk: every sum is made anew from what is reachable, and compared. */
#include "cache/cache_private.h"

#include "util/err.h"

#include <errno.h>
#include <string.h>

struct walk {
    const struct cache *c;
    struct err_text *e;
    uint32_t *refs[CACHE_TIERS]; /* of each unit, counted */
    uint32_t n_units[CACHE_TIERS];
    uint32_t held[CACHE_TIERS]; /* of the space */
    uint64_t n_pages, n_checkpoints;
    struct holders *holders; /* [vram units], counted */
    int in_heap[CACHE_TIERS];
    uint32_t n_queued, n_leaving;
};

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)err_set(w->e, -EINVAL, __VA_ARGS__);                                             \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* `n`: a page that holds it; NULL: a move. */
static bool count_unit(struct walk *w, int t, uint32_t unit, const struct cache_node *n)
{
    CHECK(unit < w->n_units[t], "tier %d: unit %u of %u", t, unit, w->n_units[t]);
    w->refs[t][unit]++;
    if (n && t == CACHE_VRAM) {
        w->holders[unit].all++;
        w->holders[unit].busy += n->users > 0;
    }
    return true;
}

static bool check_marks(struct walk *w, const struct cache_node *n)
{
    const struct mark *before = NULL;

    for (const struct mark *m = n->marks; m; before = m, m = m->next) {
        CHECK(m->node == n && m->prev == before, "a mark at page %u hangs elsewhere", n->depth);
        CHECK(m->offset >= 1 && m->offset <= n->n_tokens, "a mark behind the end of page %u",
              n->depth);
        CHECK(entry_find(w->c, m->entry->id) == m->entry, "a mark of nothing");
    }
    return true;
}

static bool check_checkpoints(struct walk *w, const struct cache_node *n)
{
    const struct cache *c = w->c;

    for (uint32_t i = 0; i < n->n_checks; i++) {
        const struct cache_checkpoint *k = n->checks[i];

        CHECK(k->pos > n->depth * CACHE_PAGE && k->pos <= n->depth * CACHE_PAGE + n->n_tokens,
              "a checkpoint at %u on page %u of %u tokens", k->pos, n->depth, n->n_tokens);
        CHECK(i == 0 || n->checks[i - 1]->pos < k->pos, "checkpoints out of order");
        CHECK(k->home && check_at(k->home, k->pos) == k, "a checkpoint without a home");
        CHECK(k->home->parent == n->parent, "a checkpoint at home elsewhere");
        CHECK(k->state[CACHE_VRAM] == COPY_VALID || k->state[CACHE_RAM] == COPY_VALID,
              "a checkpoint at %u that is nowhere", k->pos);
        if (k->home != n)
            continue;
        w->n_checkpoints++;
        for (int t = 0; t < CACHE_TIERS; t++)
            for (uint32_t u = 0; k->state[t] != COPY_NONE && u < c->o.checkpoint_units; u++)
                if (!count_unit(w, t, k->units[(size_t)t * c->o.checkpoint_units + u], n))
                    return false;
    }
    return true;
}

static bool check_order(struct walk *w, const struct cache_node *n)
{
    CHECK(n->n_kids == 0 || n->n_tokens == CACHE_PAGE || !n->parent,
          "something hangs on a partial page");
    for (uint32_t i = 0; i < n->n_kids; i++) {
        const struct cache_node *kid = node_kid(n, i), *next;
        uint32_t least, same;

        CHECK(kid->parent == n && kid->space == n->space, "a page has another parent");
        CHECK(kid->n_tokens >= 1 && kid->n_tokens <= CACHE_PAGE, "a page of %u tokens",
              kid->n_tokens);
        CHECK(kid->depth == (n->parent ? n->depth + 1 : 0), "a page at the wrong depth");
        if (i + 1 == n->n_kids)
            break;
        next = node_kid(n, i + 1);
        least = kid->n_tokens < next->n_tokens ? kid->n_tokens : next->n_tokens;
        same = tokens_common(kid->tokens, next->tokens, least);
        CHECK(same < least, "a page is a prefix of its sibling");
        CHECK(kid->tokens[same] < next->tokens[same], "siblings out of order");
        for (uint32_t k = 0; k < kid->n_checks; k++)
            CHECK(kid->checks[k]->pos > kid->depth * CACHE_PAGE + same ||
                      check_at(next, kid->checks[k]->pos) == kid->checks[k],
                  "a sibling lacks the checkpoint at %u", kid->checks[k]->pos);
        for (uint32_t k = 0; k < next->n_checks; k++)
            CHECK(next->checks[k]->pos > kid->depth * CACHE_PAGE + same ||
                      check_at(kid, next->checks[k]->pos) == next->checks[k],
                  "a sibling lacks the checkpoint at %u", next->checks[k]->pos);
    }
    return true;
}

static bool check_sums(struct walk *w, const struct cache_node *n)
{
    for (int i = 0; i < CACHE_TIERS; i++) {
        const enum cache_tier t = (enum cache_tier)i;
        const struct heap *h = &n->space->heap[t];
        uint32_t below = node_units(w->c, n, t) > 0;
        bool moves = n->n_moves > 0;

        CHECK(n->counted[t] == node_units(w->c, n, t),
              "page %u: %u units counted in tier %d, has %u", n->depth, n->counted[t], i,
              node_units(w->c, n, t));
        w->held[t] += n->counted[t];
        for (uint32_t k = 0; k < n->n_kids; k++)
            below += node_kid(n, k)->subtree[t] > 0;
        CHECK(n->subtree[t] == below, "page %u: subtree %u in tier %d, counted %u", n->depth,
              n->subtree[t], i, below);
        for (uint32_t k = 0; k < n->n_checks; k++)
            moves = moves || (n->checks[k]->home == n &&
                              (n->checks[k]->n_moves > 0 || n->checks[k]->pins > 0));
        if (n->heap_at[t] != NOT_IN_HEAP) {
            CHECK(n->heap_at[t] < h->n && h->v[n->heap_at[t]] == n, "page %u is lost in its heap",
                  n->depth);
            CHECK(n->users == 0 && n->counted[t] > 0 && n->subtree[t] == 1 && n->n_moves == 0,
                  "page %u may not leave", n->depth);
            w->in_heap[t]++;
        } else {
            CHECK(n->users > 0 || n->counted[t] == 0 || n->subtree[t] > 1 || moves,
                  "page %u could leave tier %d and is not in the heap", n->depth, i);
        }
    }
    return true;
}

static bool check_page(struct walk *w, const struct cache_node *n)
{
    uint32_t users = 0;

    CHECK(!n->dead && !n->aside, "a dead page is in the tree");
    w->n_pages++;
    w->n_queued += n->queued || n->starved;
    w->n_leaving += n->leaving;
    CHECK(n->leaving == 0 || node_is_moving(n), "page %u leaves, and nothing of it is copied",
          n->depth);
    CHECK(n->copy[CACHE_VRAM].state == COPY_VALID || n->copy[CACHE_RAM].state == COPY_VALID,
          "page %u is nowhere", n->depth);
    for (int t = 0; t < CACHE_TIERS; t++)
        if (n->copy[t].state != COPY_NONE && !count_unit(w, t, n->copy[t].unit, n))
            return false;
    for (uint32_t i = 0; i < n->n_kids; i++)
        users += node_kid(n, i)->users;
    CHECK(n->users >= users, "page %u has %u users, its children %u", n->depth, n->users, users);
    return check_marks(w, n) && check_checkpoints(w, n) && check_sums(w, n);
}

static bool check_tree(struct walk *w, const struct cache_node *top)
{
    const struct cache_node *n = top;

    /* Without recursion: a path may be very long. */
    if (!check_order(w, top))
        return false;
    while (n->n_kids > 0)
        n = node_kid(n, 0);
    while (n != top) {
        const struct cache_node *parent = n->parent;
        uint32_t i = 0;

        if (!check_page(w, n) || !check_order(w, n))
            return false;
        while (node_kid(parent, i) != n)
            i++;
        if (i + 1 == parent->n_kids) {
            n = parent;
            continue;
        }
        n = node_kid(parent, i + 1);
        while (n->n_kids > 0)
            n = node_kid(n, 0);
    }
    return true;
}

static bool check_heap(struct walk *w, const struct heap *h, int t)
{
    CHECK(h->n == w->in_heap[t], "a heap of %d pages, %d are in it", h->n, w->in_heap[t]);
    for (int i = 1; i < h->n; i++)
        CHECK(!value_less(h->v[i]->value[t], h->v[(i - 1) / 2]->value[t]), "a heap out of order");
    return true;
}

static bool check_moves(struct walk *w)
{
    uint32_t n = 0, coming[CACHE_TIERS] = {0};

    for (const struct cache_move *m = w->c->moves; m; m = m->all_next) {
        n++;
        coming[m->load ? CACHE_VRAM : CACHE_RAM] += m->n_units;
        for (uint32_t i = 0; i < m->n_units; i++)
            if (!count_unit(w, CACHE_VRAM, m->vram[i], NULL) ||
                !count_unit(w, CACHE_RAM, m->ram[i], NULL))
                return false;
    }
    CHECK(n == w->c->n_moves, "%u moves, %u counted", w->c->n_moves, n);
    for (int t = 0; t < CACHE_TIERS; t++)
        CHECK(coming[t] == w->c->n_coming[t], "%u units come to tier %d, %u counted",
              w->c->n_coming[t], t, coming[t]);
    return true;
}

static bool check_ledgers(struct walk *w)
{
    const struct cache *c = w->c;
    uint32_t idle = 0;

    for (int t = 0; t < CACHE_TIERS; t++) {
        uint32_t held = 0;

        for (uint32_t u = 0; u < w->n_units[t]; u++) {
            const uint32_t refs = t == CACHE_VRAM ? c->vram_refs[u] : arena_refs(c->o.arena, u);

            CHECK(refs == w->refs[t][u], "tier %d: unit %u has %u references, %u are reachable", t,
                  u, refs, w->refs[t][u]);
            held += w->refs[t][u] > 0;
        }
        CHECK(held == c->held[t], "tier %d: the ledger has %u units, %u are reachable", t,
              c->held[t], held);
    }
    for (uint32_t u = 0; u < w->n_units[CACHE_VRAM]; u++) {
        const struct holders *is = &c->vram_holders[u], *found = &w->holders[u];

        CHECK(is->all == found->all && is->busy == found->busy,
              "unit %u has %u holders, %u busy; %u and %u are reachable", u, is->all, is->busy,
              found->all, found->busy);
        idle += is->all > 0 && is->busy == 0;
    }
    CHECK(idle == c->idle_vram, "%u idle units, %u counted", c->idle_vram, idle);
    CHECK(c->held[CACHE_RAM] == arena_n_used(c->o.arena), "the arena has %u units, the ledger %u",
          arena_n_used(c->o.arena), c->held[CACHE_RAM]);
    return true;
}

static bool check_entries(struct walk *w)
{
    const struct cache *c = w->c;
    uint32_t n_roots = 0;

    for (uint32_t i = 0; i < c->n_entries; i++) {
        const struct cache_entry_object *e = c->entries[i];
        const struct mark *end = &e->marks[e->is_root ? MARK_ROOT : MARK_END];

        CHECK(i == 0 || c->entries[i - 1]->id < e->id, "entries out of order");
        n_roots += e->is_root;
        CHECK(end->node || e->is_active, "entry %llu ends nowhere", (unsigned long long)e->id);
        CHECK(!end->node || end->node->depth * CACHE_PAGE + end->offset == e->n_tokens ||
                  e->is_active,
              "entry %llu of %u tokens ends at %u", (unsigned long long)e->id, e->n_tokens,
              end->node->depth * CACHE_PAGE + end->offset);
        CHECK(!end->node || end->node->space == e->space, "an entry in another space");
    }
    for (const struct cache_entry_object *e = c->first_root; e; e = e->next_root, n_roots--)
        CHECK(e->is_root && entry_find(c, e->id) == e &&
                  (e->next_root ? e->next_root->prev_root : c->last_root) == e,
              "the list of roots is broken at %llu", (unsigned long long)e->id);
    CHECK(n_roots == 0, "a root is not in the list of roots");
    return true;
}

static bool check_queues(struct walk *w)
{
    uint32_t n = 0;

    for (const struct cache_node *x = w->c->dirty.first; x; x = x->q_next, n++)
        CHECK(x->queued && !x->starved, "a page in the wrong queue");
    for (const struct cache_node *x = w->c->starved.first; x; x = x->q_next, n++)
        CHECK(x->starved && !x->queued, "a page in the wrong queue");
    CHECK(n == w->n_queued, "%u pages are queued, %u say so", n, w->n_queued);
    return true;
}

static bool check_owners(struct walk *w)
{
    const struct cache *c = w->c;

    for (const struct cache_owner *o = c->owners; o; o = o->next) {
        uint32_t held[CACHE_TIERS] = {0}, n = 0;

        for (const struct cache_space *s = c->spaces; s; s = s->next) {
            if (s->owner != o)
                continue;
            n++;
            for (int t = 0; t < CACHE_TIERS; t++)
                held[t] += s->held[t];
        }
        CHECK(n == o->refs && n > 0, "an owner has %u spaces, counted %u", o->refs, n);
        for (int t = 0; t < CACHE_TIERS; t++)
            CHECK(held[t] == o->held[t], "an owner has %u units of tier %d, counted %u", o->held[t],
                  t, held[t]);
    }
    return true;
}

static bool walk_all(struct walk *w)
{
    const struct cache *c = w->c;

    for (const struct cache_space *s = c->spaces; s; s = s->next) {
        memset(w->held, 0, sizeof w->held);
        memset(w->in_heap, 0, sizeof w->in_heap);
        if (!check_tree(w, s->top))
            return false;
        for (int t = 0; t < CACHE_TIERS; t++) {
            CHECK(w->held[t] == s->held[t], "a space has %u units of tier %d, counted %u",
                  s->held[t], t, w->held[t]);
            if (!check_heap(w, &s->heap[t], t))
                return false;
        }
    }
    if (!check_owners(w))
        return false;
    CHECK(w->n_pages == c->n_pages, "%llu pages, %llu counted", (unsigned long long)c->n_pages,
          (unsigned long long)w->n_pages);
    CHECK(w->n_leaving == c->n_leaving, "%u units leave, %u counted", c->n_leaving, w->n_leaving);
    return check_moves(w) && check_ledgers(w) && check_entries(w) && check_queues(w);
}

bool cache_is_sane(const struct cache *c, struct err_text *e)
{
    struct walk w = {.c = c, .e = e};
    bool ok = true;

    w.n_units[CACHE_VRAM] = c->o.vram_units;
    w.n_units[CACHE_RAM] = arena_max_units(c->o.arena);
    for (int t = 0; t < CACHE_TIERS; t++) {
        w.refs[t] = calloc(w.n_units[t] ? w.n_units[t] : 1, sizeof(uint32_t));
        ok = ok && w.refs[t];
    }
    w.holders = calloc(w.n_units[CACHE_VRAM] + 1, sizeof *w.holders);
    ok = ok && w.holders;
    if (ok)
        ok = walk_all(&w);
    else
        (void)err_set(e, -ENOMEM, "no memory for the walk");
    for (int t = 0; t < CACHE_TIERS; t++)
        free(w.refs[t]);
    free(w.holders);
    return ok;
}
