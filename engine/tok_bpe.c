/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_bpe.h"

#include "engine/tokenizer.h"
#include "util/err.h"
#include "util/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct bpe_slot {
    uint32_t tag; /* the hash, so that growing does not read the text again */
    uint32_t sym; /* NONE: free */
};

struct bpe_merge {
    uint32_t left, right; /* left NONE: free */
    uint32_t rank, joined;
};

int bpe_init(struct bpe *b, uint32_t n_vocab, size_t n_bytes)
{
    uint64_t n_slots = 1024;

    *b = (struct bpe){.n_vocab = n_vocab, .seed = hash_seed()};
    if (n_bytes > UINT32_MAX)
        return ERR_CAPACITY;
    /* 256 more for the single bytes; other private symbols make it grow. */
    b->cap_sym = n_vocab + 256;
    b->cap_bytes = n_bytes + 256;
    while (n_slots < 2 * (uint64_t)b->cap_sym)
        n_slots *= 2;
    b->off = malloc(((size_t)b->cap_sym + 1) * sizeof(*b->off));
    b->bytes = malloc(b->cap_bytes);
    b->slots = malloc(n_slots * sizeof(*b->slots));
    if (!b->off || !b->bytes || !b->slots) {
        bpe_done(b);
        return -ENOMEM;
    }
    b->off[0] = 0;
    b->slot_mask = (uint32_t)(n_slots - 1);
    memset(b->slots, 0xFF, n_slots * sizeof(*b->slots));
    return 0;
}

void bpe_done(struct bpe *b)
{
    free(b->off);
    free(b->bytes);
    free(b->slots);
    free(b->merges);
    *b = (struct bpe){0};
}

const char *bpe_bytes(const struct bpe *b, uint32_t id, size_t *ret_n)
{
    *ret_n = b->off[id + 1] - b->off[id];
    return b->bytes + b->off[id];
}

/* Appends a symbol without making it known to the table. */
static int push_symbol(struct bpe *b, const char *s, size_t n)
{
    if (n > UINT32_MAX - b->n_bytes || b->n_sym >= NONE - 1)
        return ERR_CAPACITY;
    if (b->n_sym == b->cap_sym) {
        uint32_t cap = b->cap_sym < NONE / 4 ? b->cap_sym + b->cap_sym / 2 + 16 : NONE - 1;
        uint32_t *p = reallocarray(b->off, (size_t)cap + 1, sizeof(*p));

        if (!p)
            return -ENOMEM;
        b->off = p;
        b->cap_sym = cap;
    }
    if (n > b->cap_bytes - b->n_bytes) {
        size_t cap = b->cap_bytes + b->cap_bytes / 2 + n;
        char *p = realloc(b->bytes, cap);

        if (!p)
            return -ENOMEM;
        b->bytes = p;
        b->cap_bytes = cap;
    }
    if (n)
        memcpy(b->bytes + b->n_bytes, s, n);
    b->n_bytes += n;
    b->off[++b->n_sym] = (uint32_t)b->n_bytes;
    return 0;
}

/* The slot that holds s, or the free one where it belongs. */
static struct bpe_slot *find_slot(const struct bpe *b, const char *s, size_t n, uint32_t tag)
{
    for (uint32_t i = tag & b->slot_mask;; i = (i + 1) & b->slot_mask) {
        struct bpe_slot *slot = &b->slots[i];
        const char *have;
        size_t n_have;

        if (slot->sym == NONE)
            return slot;
        if (slot->tag != tag)
            continue;
        have = bpe_bytes(b, slot->sym, &n_have);
        if (n_have == n && memcmp(have, s, n) == 0)
            return slot;
    }
}

static int grow_slots(struct bpe *b)
{
    uint64_t n = 2 * ((uint64_t)b->slot_mask + 1);
    struct bpe_slot *slots;
    uint32_t mask = (uint32_t)(n - 1);

    if (n > UINT32_MAX)
        return ERR_CAPACITY;
    slots = malloc(n * sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    memset(slots, 0xFF, n * sizeof(*slots));
    for (uint32_t i = 0; i <= b->slot_mask; i++) {
        uint32_t j = b->slots[i].tag & mask;

        if (b->slots[i].sym == NONE)
            continue;
        while (slots[j].sym != NONE)
            j = (j + 1) & mask;
        slots[j] = b->slots[i];
    }
    free(b->slots);
    b->slots = slots;
    b->slot_mask = mask;
    return 0;
}

/* The symbol of these bytes; a private one is made when there is none. */
static int intern(struct bpe *b, const char *s, size_t n, uint32_t *ret)
{
    uint32_t tag = (uint32_t)hash_bytes(s, n, b->seed);
    struct bpe_slot *slot = find_slot(b, s, n, tag);
    int r;

    if (slot->sym == NONE) {
        if (b->n_slots_used > b->slot_mask / 4 * 3) {
            r = grow_slots(b);
            if (r < 0)
                return r;
            slot = find_slot(b, s, n, tag);
        }
        r = push_symbol(b, s, n);
        if (r < 0)
            return r;
        *slot = (struct bpe_slot){tag, b->n_sym - 1};
        b->n_slots_used++;
    }
    *ret = slot->sym;
    return 0;
}

int bpe_add_token(struct bpe *b, const char *s, size_t n, bool mergeable)
{
    struct bpe_slot *slot;
    uint32_t tag;
    int r;

    assert(b->n_sym < b->n_vocab);
    r = push_symbol(b, s, n);
    if (r < 0 || !mergeable || n == 0)
        return r;
    tag = (uint32_t)hash_bytes(s, n, b->seed);
    slot = find_slot(b, s, n, tag);
    if (slot->sym == NONE) {
        *slot = (struct bpe_slot){tag, b->n_sym - 1};
        b->n_slots_used++;
    }
    return 0;
}

int bpe_start_merges(struct bpe *b, uint64_t n_merges)
{
    uint64_t n = 256;

    assert(b->n_sym == b->n_vocab);
    for (unsigned int i = 0; i < 256; i++) {
        char c = (char)i;
        int r = intern(b, &c, 1, &b->byte_sym[i]);

        if (r < 0)
            return r;
    }

    /* At most two thirds full: a miss, the common answer, then looks at few entries. */
    if (n_merges > UINT32_MAX / 2)
        return ERR_CAPACITY;
    while (n < n_merges + n_merges / 2)
        n *= 2;
    b->merges = malloc(n * sizeof(*b->merges));
    if (!b->merges)
        return -ENOMEM;
    memset(b->merges, 0xFF, n * sizeof(*b->merges));
    b->merge_mask = (uint32_t)(n - 1);
    return 0;
}

/* The entry of the pair, or the free one where it belongs. */
static inline struct bpe_merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint32_t i = (uint32_t)hash_u64((uint64_t)left << 32 | right, b->seed) & b->merge_mask;

    while (b->merges[i].left != NONE && (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & b->merge_mask;
    return &b->merges[i];
}

int bpe_add_merge(struct bpe *b, const char *left, size_t n_left, const char *right, size_t n_right,
                  uint32_t rank)
{
    char fixed[256], *joined_bytes = fixed;
    uint32_t l, r_sym, joined;
    struct bpe_merge *m;
    int r;

    r = intern(b, left, n_left, &l);
    if (r < 0)
        return r;
    r = intern(b, right, n_right, &r_sym);
    if (r < 0)
        return r;
    m = find_merge(b, l, r_sym);
    if (m->left != NONE)
        return 0;

    if (n_left + n_right > sizeof(fixed)) {
        joined_bytes = malloc(n_left + n_right);
        if (!joined_bytes)
            return -ENOMEM;
    }
    memcpy(joined_bytes, left, n_left);
    memcpy(joined_bytes + n_left, right, n_right);
    r = intern(b, joined_bytes, n_left + n_right, &joined);
    if (joined_bytes != fixed)
        free(joined_bytes);
    if (r < 0)
        return r;
    *m = (struct bpe_merge){l, r_sym, rank, joined};
    return 0;
}

/* --- encoding -----------------------------------------------------------------------------------
 */

enum {
    CACHE_KEY = 22,
    CACHE_IDS = 10,
    SHORT_PIECE = 32, /* up to here the best pair is found by looking at all of them */
};

/* One cache line. */
struct bpe_cached {
    uint8_t n_key; /* 0: free */
    uint8_t n_ids;
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
};
_Static_assert(sizeof(struct bpe_cached) == 64, "a cache entry fills its line");

int bpe_work_init(struct bpe_work *w, size_t n_text)
{
    size_t n = 64;

    /* 8192 entries (512 KiB) hold the words of most texts; a short text does not pay for them. */
    while (n < 8192 && n < n_text / 16)
        n *= 2;
    *w = (struct bpe_work){.cache_mask = (uint32_t)(n - 1)};
    w->cache = calloc(n, sizeof(*w->cache));
    return w->cache ? 0 : -ENOMEM;
}

void bpe_work_done(struct bpe_work *w)
{
    free(w->cache);
    free(w->sym);
    free(w->heap);
    *w = (struct bpe_work){0};
}

static int work_reserve(struct bpe_work *w, size_t n)
{
    size_t cap = n < 256 ? 256 : n;
    uint64_t *heap;
    uint32_t *p;

    if (n <= w->cap)
        return 0;
    /* At most n - 1 pairs at first, and every merge takes one away and adds two. */
    heap = reallocarray(w->heap, cap, 2 * sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    w->heap = heap;
    p = reallocarray(w->sym, cap, 5 * sizeof(*p));
    if (!p)
        return -ENOMEM;
    w->sym = p;
    w->next = p + cap;
    w->prev = p + 2 * cap;
    w->rank = p + 3 * cap;
    w->joined = p + 4 * cap;
    w->cap = cap;
    return 0;
}

/* Looks up the pair that begins at position i; rank[i] is NONE when it cannot merge. */
static inline void set_pair(const struct bpe *b, struct bpe_work *w, size_t i, uint32_t right_sym)
{
    const struct bpe_merge *m = find_merge(b, w->sym[i], right_sym);

    w->n_steps++;
    w->rank[i] = m->rank; /* NONE in a free entry */
    w->joined[i] = m->joined;
}

/* Merges sym[0..n) by scanning; returns how many symbols are left, at the front. */
static size_t merge_short(const struct bpe *b, struct bpe_work *w, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        set_pair(b, w, i, w->sym[i + 1]);
    while (n > 1) {
        uint32_t best = NONE;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            if (w->rank[i] < best) {
                best = w->rank[i];
                at = i;
            }
        }
        if (best == NONE)
            break;
        w->sym[at] = w->joined[at];
        n--;
        for (size_t i = at + 1; i < n; i++) {
            w->sym[i] = w->sym[i + 1];
            w->rank[i] = w->rank[i + 1];
            w->joined[i] = w->joined[i + 1];
        }
        if (at + 1 < n)
            set_pair(b, w, at, w->sym[at + 1]);
        if (at > 0)
            set_pair(b, w, at - 1, w->sym[at]);
    }
    return n;
}

static void sift_down(struct bpe_work *w, size_t n, size_t i)
{
    uint64_t v = w->heap[i];

    for (;;) {
        size_t c = 2 * i + 1;

        w->n_steps++;
        if (c >= n)
            break;
        if (c + 1 < n && w->heap[c + 1] < w->heap[c])
            c++;
        if (w->heap[c] >= v)
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    w->heap[i] = v;
}

static void sift_up(struct bpe_work *w, size_t i)
{
    uint64_t v = w->heap[i];

    while (i && w->heap[(i - 1) / 2] > v) {
        w->n_steps++;
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = v;
}

/*
 * The same result in n log n: a heap of (rank, position), positions in a linked list.  An entry is
 * stale when the pair at its position now has another rank; equal ranks mean equal pairs, since a
 * pair has one rank and a rank one pair.
 */
static size_t merge_long(const struct bpe *b, struct bpe_work *w, size_t n)
{
    size_t n_heap = 0, out = 0;

    for (size_t i = 0; i < n; i++) {
        w->next[i] = i + 1 < n ? (uint32_t)(i + 1) : NONE;
        w->prev[i] = i ? (uint32_t)(i - 1) : NONE;
        w->rank[i] = NONE;
        if (i + 1 < n)
            set_pair(b, w, i, w->sym[i + 1]);
        if (w->rank[i] != NONE)
            w->heap[n_heap++] = (uint64_t)w->rank[i] << 32 | i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(w, n_heap, i);

    while (n_heap) {
        uint64_t top = w->heap[0];
        uint32_t at = (uint32_t)top, right, after, before;

        w->heap[0] = w->heap[--n_heap];
        if (n_heap)
            sift_down(w, n_heap, 0);
        if (w->rank[at] != (uint32_t)(top >> 32))
            continue;

        right = w->next[at];
        after = w->next[right];
        before = w->prev[at];
        w->sym[at] = w->joined[at];
        w->rank[at] = w->rank[right] = NONE;
        w->next[at] = after;
        if (after != NONE) {
            w->prev[after] = at;
            set_pair(b, w, at, w->sym[after]);
            if (w->rank[at] != NONE) {
                w->heap[n_heap] = (uint64_t)w->rank[at] << 32 | at;
                sift_up(w, n_heap++);
            }
        }
        if (before != NONE) {
            set_pair(b, w, before, w->sym[at]);
            if (w->rank[before] != NONE) {
                w->heap[n_heap] = (uint64_t)w->rank[before] << 32 | before;
                sift_up(w, n_heap++);
            }
        }
    }
    /* Position 0 is always the head of the list: merging keeps the left position. */
    for (uint32_t i = 0; i != NONE; i = w->next[i])
        w->sym[out++] = w->sym[i];
    return out;
}

static int emit(const struct bpe *b, uint32_t sym, struct token_list *out)
{
    const char *s;
    size_t n;

    if (sym < b->n_vocab)
        return token_list_add(out, (int32_t)sym);
    s = bpe_bytes(b, sym, &n);
    for (size_t i = 0; i < n; i++) {
        uint32_t byte = b->byte_sym[(unsigned char)s[i]];
        int r = byte < b->n_vocab ? token_list_add(out, (int32_t)byte) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

static int encode_uncached(const struct bpe *b, struct bpe_work *w, const char *s, size_t n,
                           bool whole_first, struct token_list *out)
{
    int r;

    if (whole_first) {
        const struct bpe_slot *slot = find_slot(b, s, n, (uint32_t)hash_bytes(s, n, b->seed));

        if (slot->sym < b->n_vocab)
            return token_list_add(out, (int32_t)slot->sym);
    }
    r = work_reserve(w, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        w->sym[i] = b->byte_sym[(unsigned char)s[i]];
    n = n <= SHORT_PIECE ? merge_short(b, w, n) : merge_long(b, w, n);
    for (size_t i = 0; i < n; i++) {
        r = emit(b, w->sym[i], out);
        if (r < 0)
            return r;
    }
    return 0;
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *s, size_t n, bool whole_first,
               struct token_list *out)
{
    struct bpe_cached *c = NULL;
    size_t n0 = out->n;
    int r;

    if (n == 1 && b->byte_sym[(unsigned char)*s] < b->n_vocab)
        return token_list_add(out, (int32_t)b->byte_sym[(unsigned char)*s]);

    if (n <= CACHE_KEY) {
        c = &w->cache[hash_bytes(s, n, b->seed) & w->cache_mask];
        if (c->n_key == n && memcmp(c->key, s, n) == 0) {
            for (size_t i = 0; i < c->n_ids; i++) {
                r = token_list_add(out, c->ids[i]);
                if (r < 0)
                    return r;
            }
            return 0;
        }
    }
    r = encode_uncached(b, w, s, n, whole_first, out);
    if (r < 0 || !c || out->n - n0 > CACHE_IDS)
        return r;
    c->n_key = (uint8_t)n;
    c->n_ids = (uint8_t)(out->n - n0);
    memcpy(c->key, s, n);
    if (out->n > n0)
        memcpy(c->ids, out->ids + n0, (out->n - n0) * sizeof(*c->ids));
    return 0;
}
