/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: where they lie among each other, and how they come, grow, shrink and go. */
#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

/* --- children ----------------------------------------------------------------------------------
 */

uint32_t tokens_common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;

    /* Most comparisons are of whole pages that are alike. */
    for (; i + 16 <= n; i += 16)
        if (memcmp(a + i, b + i, 16 * sizeof *a) != 0)
            break;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The index of the first child that is not before tokens[0..n), and what both neighbours share. */
static uint32_t search(const struct cache_node *parent, const int32_t *tokens, uint32_t n,
                       uint32_t *ret_before, uint32_t *ret_at)
{
    uint32_t lo = 0, hi = parent->n_kids;

    *ret_before = *ret_at = 0;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        const struct cache_node *kid = node_kid(parent, mid);
        const uint32_t most = n < kid->n_tokens ? n : kid->n_tokens;
        const uint32_t same = tokens_common(kid->tokens, tokens, most);
        /* Shorter before longer. */
        const bool before = same < most ? kid->tokens[same] < tokens[same] : kid->n_tokens < n;

        if (before) {
            lo = mid + 1;
            *ret_before = same;
        } else {
            hi = mid;
            *ret_at = same;
        }
    }
    return lo;
}

struct cache_node *node_find(const struct cache_node *parent, const int32_t *tokens, uint32_t n,
                             uint32_t *ret_common)
{
    uint32_t before, at, i;

    i = search(parent, tokens, n, &before, &at);
    *ret_common = at > before ? at : before;
    if (*ret_common == 0)
        return NULL;
    return node_kid(parent, at >= before ? i : i - 1);
}

static int kids_add(struct cache *c, struct cache_node *parent, uint32_t i, struct cache_node *kid)
{
    if (parent->n_kids == 0 && parent->cap_kids == 0) {
        parent->kids.one = kid;
    } else {
        if (parent->n_kids == parent->cap_kids || parent->cap_kids == 0) {
            const uint32_t cap = parent->cap_kids ? parent->cap_kids * 2 : 4;
            struct cache_node **many =
                reallocarray(parent->cap_kids ? parent->kids.many : NULL, cap, sizeof(void *));

            if (!many)
                return -ENOMEM;
            if (parent->cap_kids == 0)
                many[0] = parent->kids.one;
            c->book_bytes += (cap - parent->cap_kids) * sizeof(void *);
            parent->kids.many = many;
            parent->cap_kids = cap;
        }
        memmove(parent->kids.many + i + 1, parent->kids.many + i,
                (parent->n_kids - i) * sizeof(void *));
        parent->kids.many[i] = kid;
    }
    parent->n_kids++;
    return 0;
}

static void kids_free(struct cache *c, struct cache_node *n)
{
    if (n->cap_kids > 0)
        free(n->kids.many);
    c->book_bytes -= n->cap_kids * sizeof(void *);
    n->cap_kids = 0;
    n->kids.one = NULL;
}

static uint32_t kid_index(const struct cache_node *kid)
{
    uint32_t before, at;

    return search(kid->parent, kid->tokens, kid->n_tokens, &before, &at);
}

static void kids_remove(struct cache *c, struct cache_node *kid)
{
    struct cache_node *parent = kid->parent;
    const uint32_t i = kid_index(kid);

    assert(node_kid(parent, i) == kid);
    parent->n_kids--;
    if (parent->n_kids == 0) {
        kids_free(c, parent);
        return;
    }
    memmove(parent->kids.many + i, parent->kids.many + i + 1,
            (parent->n_kids - i) * sizeof(void *));
}

struct cache_node *node_twin(const struct cache_node *n, uint32_t k)
{
    const struct cache_node *parent = n->parent;
    const uint32_t i = kid_index(n);

    /* They lie side by side. */
    for (int side = -1; side <= 1; side += 2) {
        struct cache_node *other;

        if ((side < 0 && i == 0) || (side > 0 && i + 1 >= parent->n_kids))
            continue;
        other = node_kid(parent, side < 0 ? i - 1 : i + 1);
        if (other->n_tokens >= k && tokens_common(other->tokens, n->tokens, k) == k)
            return other;
    }
    return NULL;
}

/* --- marks -------------------------------------------------------------------------------------
 */

void mark_clear(struct mark *m)
{
    if (!m->node)
        return;
    if (m->prev)
        m->prev->next = m->next;
    else
        m->node->marks = m->next;
    if (m->next)
        m->next->prev = m->prev;
    m->node = NULL;
    m->prev = m->next = NULL;
}

void mark_set(struct mark *m, struct cache_node *n, uint32_t offset)
{
    mark_clear(m);
    m->node = n;
    m->offset = offset;
    m->prev = NULL;
    m->next = n->marks;
    if (n->marks)
        n->marks->prev = m;
    n->marks = m;
}

uint32_t node_last_mark(const struct cache_node *n, const struct cache_entry_object *but)
{
    uint32_t last = 0;

    for (const struct mark *m = n->marks; m; m = m->next)
        if ((m->kind == MARK_END || m->kind == MARK_ROOT) && m->entry != but && m->offset > last)
            last = m->offset;
    return last;
}

/* Marks behind the first `k` tokens move to a sibling that has the place too, or are lost. */
static void marks_leave(struct cache *c, struct cache_node *n, uint32_t k, enum cache_why why)
{
    for (struct mark *m = n->marks, *next; m; m = next) {
        struct cache_node *twin;

        next = m->next;
        if (m->offset <= k)
            continue;
        twin = node_twin(n, m->offset);
        if (twin) {
            mark_set(m, twin, m->offset);
            node_changed(c, twin);
        } else {
            entry_lost(c, m, why);
            /* Losing one may have freed the entry with the others on this page. */
            next = n->marks;
        }
    }
}

/* --- checkpoints -------------------------------------------------------------------------------
 */

struct cache_checkpoint *check_new(struct cache *c, uint32_t pos, unsigned int kinds)
{
    const size_t n =
        sizeof(struct cache_checkpoint) + sizeof(uint32_t) * CACHE_TIERS * c->o.checkpoint_units;
    struct cache_checkpoint *k = calloc(1, n);

    if (!k)
        return NULL;
    k->pos = pos;
    k->kinds = kinds;
    for (uint32_t i = 0; i < CACHE_TIERS * c->o.checkpoint_units; i++)
        k->units[i] = CACHE_NO_UNIT;
    c->book_bytes += n;
    c->n_checkpoints++;
    return k;
}

void check_reap(struct cache *c, struct cache_checkpoint *k)
{
    if (k->n_nodes > 0 || k->pins > 0 || k->n_moves > 0)
        return;
    c->book_bytes -= sizeof *k + sizeof(uint32_t) * CACHE_TIERS * c->o.checkpoint_units;
    c->n_checkpoints--;
    free(k);
}

struct cache_checkpoint *check_at(const struct cache_node *n, uint32_t pos)
{
    for (uint32_t i = 0; i < n->n_checks; i++)
        if (n->checks[i]->pos == pos)
            return n->checks[i];
    return NULL;
}

static int check_list(struct cache *c, struct cache_node *n, struct cache_checkpoint *k)
{
    struct cache_checkpoint **v = reallocarray(n->checks, n->n_checks + 1, sizeof(void *));
    uint32_t i;

    if (!v)
        return -ENOMEM;
    n->checks = v;
    c->book_bytes += sizeof(void *);
    for (i = n->n_checks; i > 0 && v[i - 1]->pos > k->pos; i--)
        v[i] = v[i - 1];
    v[i] = k;
    n->n_checks++;
    k->n_nodes++;
    if (!k->home)
        k->home = n;
    return 0;
}

static void check_unlist(struct cache *c, struct cache_node *n, struct cache_checkpoint *k)
{
    uint32_t i = 0;

    while (n->checks[i] != k)
        i++;
    k->n_nodes--;
    if (k->home == n && k->n_nodes > 0) {
        struct cache_node *twin = node_twin(n, k->pos - n->depth * CACHE_PAGE);

        assert(twin && check_at(twin, k->pos) == k);
        check_rehome(c, k, twin);
        node_changed(c, twin);
    } else if (k->n_nodes == 0) {
        /* A pin on it is broken; a move holds its units itself. */
        for (int t = 0; t < CACHE_TIERS; t++)
            check_drop_copy(c, k, (enum cache_tier)t);
        k->home = NULL;
    }
    n->n_checks--;
    memmove(n->checks + i, n->checks + i + 1, (n->n_checks - i) * sizeof(void *));
    c->book_bytes -= sizeof(void *);
}

/* Calls fn for every sibling that has the first `k` tokens of `n`, itself included. */
static int for_twins(struct cache *c, struct cache_node *n, uint32_t k,
                     struct cache_checkpoint *check,
                     int (*fn)(struct cache *, struct cache_node *, struct cache_checkpoint *))
{
    struct cache_node *parent = n->parent;
    const uint32_t at = kid_index(n);
    int r = 0;

    for (uint32_t i = at; r == 0 && i < parent->n_kids; i++) {
        struct cache_node *kid = node_kid(parent, i);

        if (kid->n_tokens < k || tokens_common(kid->tokens, n->tokens, k) < k)
            break;
        r = fn(c, kid, check);
    }
    for (uint32_t i = at; r == 0 && i > 0; i--) {
        struct cache_node *kid = node_kid(parent, i - 1);

        if (kid->n_tokens < k || tokens_common(kid->tokens, n->tokens, k) < k)
            break;
        r = fn(c, kid, check);
    }
    return r;
}

static int unlist_if_listed(struct cache *c, struct cache_node *n, struct cache_checkpoint *k)
{
    if (check_at(n, k->pos) == k) {
        check_unlist(c, n, k);
        node_changed(c, n);
    }
    return 0;
}

static int unlist_guest(struct cache *c, struct cache_node *n, struct cache_checkpoint *k)
{
    return n == k->home ? 0 : unlist_if_listed(c, n, k);
}

static void unlist_all(struct cache *c, struct cache_checkpoint *k)
{
    struct cache_node *home = k->home;

    /* The home goes last, so that it is not handed from one to the next. */
    if (home) {
        (void)for_twins(c, home, k->pos - home->depth * CACHE_PAGE, k, unlist_guest);
        (void)unlist_if_listed(c, home, k);
    }
}

void check_detach(struct cache *c, struct cache_checkpoint *k)
{
    unlist_all(c, k);
    check_reap(c, k);
}

int check_attach(struct cache *c, struct cache_node *n, struct cache_checkpoint *k)
{
    const uint32_t offset = k->pos - n->depth * CACHE_PAGE;
    int r = for_twins(c, n, offset, k, check_list);

    if (r < 0)
        unlist_all(c, k);
    else
        node_changed(c, k->home);
    return r;
}

/* A new page among siblings lists what they share with it. */
static int checks_inherit(struct cache *c, struct cache_node *n)
{
    const struct cache_node *parent = n->parent;
    const uint32_t i = kid_index(n);

    for (int side = -1; side <= 1; side += 2) {
        const struct cache_node *other;
        uint32_t same;

        if ((side < 0 && i == 0) || (side > 0 && i + 1 >= parent->n_kids))
            continue;
        other = node_kid(parent, side < 0 ? i - 1 : i + 1);
        same = tokens_common(other->tokens, n->tokens,
                             n->n_tokens < other->n_tokens ? n->n_tokens : other->n_tokens);
        for (uint32_t k = 0; k < other->n_checks; k++) {
            struct cache_checkpoint *check = other->checks[k];

            if (check->pos - n->depth * CACHE_PAGE > same || check_at(n, check->pos))
                continue;
            if (check_list(c, n, check) < 0)
                return -ENOMEM;
        }
    }
    return 0;
}

/* --- pages -------------------------------------------------------------------------------------
 */

struct cache_node *node_new(struct cache *c, struct cache_space *s, struct cache_node *parent,
                            const int32_t *tokens, uint32_t n)
{
    struct cache_node *x = calloc(1, sizeof *x);

    if (!x)
        return NULL;
    x->parent = parent;
    x->space = s;
    x->depth = parent && parent->parent ? parent->depth + 1 : 0;
    x->n_tokens = n;
    if (n > 0)
        memcpy(x->tokens, tokens, n * sizeof *tokens);
    for (int t = 0; t < CACHE_TIERS; t++) {
        x->copy[t].unit = CACHE_NO_UNIT;
        x->heap_at[t] = NOT_IN_HEAP;
    }
    c->book_bytes += sizeof *x - sizeof x->tokens;
    c->n_pages += parent != NULL;
    return x;
}

static void node_free(struct cache *c, struct cache_node *n)
{
    kids_free(c, n);
    free(n->checks);
    c->book_bytes -= sizeof *n - sizeof n->tokens;
    free(n);
}

void node_reap(struct cache *c, struct cache_node *n)
{
    if (n->dead && n->users == 0 && n->n_moves == 0)
        node_free(c, n);
}

static void node_grow(struct cache *c, struct cache_node *n, const int32_t *tokens, uint32_t len)
{
    queue_forget(c, n);
    /* A copy under way is of the shorter page: it will find that this is another generation. */
    for (int t = 0; t < CACHE_TIERS; t++)
        node_drop_copy(c, n, (enum cache_tier)t);
    n->generation++;
    n->superseded = false;
    node_set_leaving(c, n, false);
    memcpy(n->tokens + n->n_tokens, tokens + n->n_tokens, (len - n->n_tokens) * sizeof *tokens);
    n->n_tokens = len;
}

struct cache_node *node_insert(struct cache *c, struct cache_node *parent, const int32_t *tokens,
                               uint32_t n, bool *ret_fresh)
{
    uint32_t before, at, i = search(parent, tokens, n, &before, &at);
    struct cache_node *x;

    *ret_fresh = false;
    if (at == n)
        return node_kid(parent, i);
    *ret_fresh = true;
    if (i > 0 && before == node_kid(parent, i - 1)->n_tokens) {
        x = node_kid(parent, i - 1);
        node_grow(c, x, tokens, n);
        return x;
    }
    x = node_new(c, parent->space, parent, tokens, n);
    if (!x)
        return NULL;
    if (kids_add(c, parent, i, x) < 0) {
        c->n_pages--;
        node_free(c, x);
        return NULL;
    }
    if (checks_inherit(c, x) < 0) {
        node_remove(c, x, CACHE_WHY_MEMORY);
        return NULL;
    }
    /* The parent is no leaf any more. */
    node_changed(c, parent);
    return x;
}

static void checks_leave(struct cache *c, struct cache_node *n, uint32_t k)
{
    while (n->n_checks > 0) {
        struct cache_checkpoint *last = n->checks[n->n_checks - 1];

        if (last->pos <= n->depth * CACHE_PAGE + k)
            break;
        check_unlist(c, n, last);
        check_reap(c, last);
    }
}

/* Out of the tree, with everything that hangs on it; freed when nobody uses it any more. */
static void node_unlink(struct cache *c, struct cache_node *n)
{
    struct cache_node *parent = n->parent;

    queue_forget(c, n);
    node_set_leaving(c, n, false);
    for (int t = 0; t < CACHE_TIERS; t++)
        node_drop_copy(c, n, (enum cache_tier)t);
    node_changed(c, n); /* out of the sums and heaps while it can still reach its parent */
    n->dead = true;
    node_changed(c, n);
    kids_remove(c, n);
    c->n_pages--;
    if (!parent->dead)
        node_changed(c, parent);
    node_reap(c, n);
}

void node_remove(struct cache *c, struct cache_node *n, enum cache_why why)
{
    assert(n->n_kids == 0);
    marks_leave(c, n, 0, why);
    checks_leave(c, n, 0);
    node_unlink(c, n);
}

void node_trim(struct cache *c, struct cache_node *n, uint32_t k)
{
    assert(n->n_kids == 0 && k > 0 && k < n->n_tokens);
    if (node_twin(n, k)) {
        node_remove(c, n, CACHE_WHY_SPACE);
        return;
    }
    marks_leave(c, n, k, CACHE_WHY_SPACE);
    checks_leave(c, n, k);
    n->n_tokens = k;
    n->generation++;
    n->superseded = false;
    node_set_leaving(c, n, false);
    /*
     * Rows behind k must be zero in ram.  While there is the copy in vram it is made anew, else the
     * rest stays until the page grows or leaves: nobody reads it.
     */
    if (n->copy[CACHE_VRAM].state == COPY_VALID)
        node_drop_copy(c, n, CACHE_RAM);
    node_changed(c, n);
    queue_write_back(c, n);
}

void node_kill(struct cache *c, struct cache_node *n, enum cache_why why)
{
    while (n->n_kids > 0)
        node_kill(c, node_kid(n, n->n_kids - 1), why);
    while (n->marks)
        entry_lost(c, n->marks, why);
    checks_leave(c, n, 0);
    node_unlink(c, n);
}

/* --- who is on a path --------------------------------------------------------------------------
 */

void node_hold(struct cache *c, struct cache_node *n)
{
    if (n->users++ > 0)
        return;
    node_busy(c, n, true);
    node_changed(c, n);
}

void path_hold(struct cache *c, struct cache_node *n)
{
    for (; n; n = n->parent)
        node_hold(c, n);
}

void path_release(struct cache *c, struct cache_node *n)
{
    while (n) {
        struct cache_node *parent = n->parent;

        assert(n->users > 0);
        if (--n->users == 0 && !n->dead) {
            node_busy(c, n, false);
            node_changed(c, n);
        }
        node_reap(c, n);
        n = parent;
    }
}
