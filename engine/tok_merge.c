/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding with a finished table of merges: pieces of text to ids. */
#include "engine/tok_bpe.h"

#include "engine/tokenizer.h"
#include "util/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE BPE_NONE

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
    struct bpe_join j = bpe_join(b, w->sym[i], right_sym);

    w->n_steps++;
    w->rank[i] = j.rank;
    w->joined[i] = j.joined;
}

/* Merges sym[0..n) by scanning; returns how many symbols are left, at the front. */
static size_t merge_short(const struct bpe *b, struct bpe_work *w, size_t n)
{
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
 * stale when the pair at its position now has another rank.  One that another pair of that rank
 * has come under (scores may be equal) does what that pair's own entry would do.
 */
static size_t merge_long(const struct bpe *b, struct bpe_work *w, size_t n)
{
    size_t n_heap = 0, out = 0;

    for (size_t i = 0; i < n; i++) {
        w->next[i] = i + 1 < n ? (uint32_t)(i + 1) : NONE;
        w->prev[i] = i ? (uint32_t)(i - 1) : NONE;
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
    if (sym == NONE)
        return 0;
    s = bpe_bytes(b, sym, &n);
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[(unsigned char)s[i]];
        int r = id >= 0 ? token_list_add(out, id) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

/* What merging begins with: symbols and their pairs. */
static void start_bytes(const struct bpe *b, struct bpe_work *w, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;

    for (size_t i = 0; i < n; i++) {
        struct bpe_join j = {NONE, NONE};

        if (i + 1 < n)
            j = b->byte_pairs[p[i] << 8 | p[i + 1]];
        w->sym[i] = b->byte_sym[p[i]];
        w->rank[i] = j.rank;
        w->joined[i] = j.joined;
    }
    w->n_steps += n;
}

/* The same by characters; returns how many symbols there are. */
static size_t start_chars(const struct bpe *b, struct bpe_work *w, const char *s, size_t n)
{
    size_t n_sym = 0;

    for (size_t i = 0, end; i < n; i = end) {
        uint32_t sym = b->byte_sym[(unsigned char)s[i]];

        end = i + 1;
        while (end < n && ((unsigned char)s[end] & 0xC0) == 0x80)
            end++;
        if (end - i > 1)
            sym = bpe_find(b, s + i, end - i);
        if (sym != NONE)
            w->sym[n_sym++] = sym;
        else
            while (i < end)
                w->sym[n_sym++] = (uint32_t)b->byte_id[(unsigned char)s[i++]];
    }
    for (size_t i = 0; i + 1 < n_sym; i++)
        set_pair(b, w, i, w->sym[i + 1]);
    w->rank[n_sym - 1] = NONE;
    return n_sym;
}

static int encode_uncached(const struct bpe *b, struct bpe_work *w, const char *s, size_t n,
                           bool whole_first, struct token_list *out)
{
    int r;

    if (whole_first) {
        uint32_t sym = bpe_find(b, s, n);

        if (sym < b->n_vocab)
            return token_list_add(out, (int32_t)sym);
    }
    r = work_reserve(w, n);
    if (r < 0)
        return r;
    if (b->by_char)
        n = start_chars(b, w, s, n);
    else
        start_bytes(b, w, s, n);
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
