/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_bpe.h"

#include "util/err.h"
#include "util/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE BPE_NONE

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
    memset(b->byte_id, 0xFF, sizeof(b->byte_id));
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
    free(b->filter);
    free(b->byte_pairs);
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

static uint32_t tag_of(const struct bpe *b, const char *s, size_t n)
{
    return (uint32_t)hash_bytes(s, n, b->seed);
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

uint32_t bpe_find(const struct bpe *b, const char *s, size_t n)
{
    return find_slot(b, s, n, tag_of(b, s, n))->sym;
}

uint32_t bpe_find_now(const struct bpe *b, const char *s, size_t n, uint32_t tag)
{
    return find_slot(b, s, n, tag)->sym;
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

/* The symbol of these bytes with this tag; a private one is made when there is none. */
static int intern(struct bpe *b, const char *s, size_t n, uint32_t tag, uint32_t *ret)
{
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

int bpe_intern(struct bpe *b, const char *s, size_t n, uint32_t *ret)
{
    return intern(b, s, n, tag_of(b, s, n), ret);
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
    tag = tag_of(b, s, n);
    slot = find_slot(b, s, n, tag);
    if (slot->sym == NONE) {
        *slot = (struct bpe_slot){tag, b->n_sym - 1};
        b->n_slots_used++;
    }
    return 0;
}

int bpe_start_merges(struct bpe *b, uint64_t n_merges)
{
    assert(b->n_sym == b->n_vocab);
    for (unsigned int i = 0; i < 256; i++) {
        char c = (char)i;
        int r = bpe_intern(b, &c, 1, &b->byte_sym[i]);

        if (r < 0)
            return r;
        b->byte_id[i] = b->byte_sym[i] < b->n_vocab ? (int32_t)b->byte_sym[i] : -1;
    }
    b->byte_pairs = malloc((size_t)256 * 256 * sizeof(*b->byte_pairs));
    if (!b->byte_pairs)
        return -ENOMEM;
    memset(b->byte_pairs, 0xFF, (size_t)256 * 256 * sizeof(*b->byte_pairs));
    return bpe_make_merges(b, n_merges);
}

int bpe_make_merges(struct bpe *b, uint64_t n_merges)
{
    uint64_t n = 256, n_words = 64;

    assert(n_merges <= BPE_MAX_MERGES);
    /* At most two thirds full: a miss, the common answer, then looks at few entries. */
    while (n < n_merges + n_merges / 2)
        n *= 2;
    b->merges = malloc(n * sizeof(*b->merges));
    if (!b->merges)
        return -ENOMEM;
    memset(b->merges, 0xFF, n * sizeof(*b->merges));
    b->merge_mask = (uint32_t)(n - 1);

    while (n_words < n_merges / 4)
        n_words *= 2;
    b->filter = calloc(n_words, sizeof(*b->filter));
    if (!b->filter)
        return -ENOMEM;
    b->filter_mask = (uint32_t)(n_words - 1);
    return 0;
}

void bpe_put_merge(struct bpe *b, const struct bpe_merge *merge)
{
    uint64_t hash = bpe_pair_hash(b, merge->left, merge->right);
    struct bpe_merge *m = bpe_find_merge(b, hash, merge->left, merge->right);
    const char *left, *right;
    size_t n_left, n_right;

    if (m->left != NONE)
        return;
    *m = *merge;
    b->filter[hash >> 38 & b->filter_mask] |= (uint64_t)1 << (hash >> 32 & 63);
    left = bpe_bytes(b, m->left, &n_left);
    right = bpe_bytes(b, m->right, &n_right);
    if (b->byte_pairs && n_left == 1 && n_right == 1)
        b->byte_pairs[(unsigned char)*left << 8 | (unsigned char)*right] =
            (struct bpe_join){m->rank, m->joined};
}

int bpe_add_merges(struct bpe *b, const char *text, const struct bpe_pair *pairs, size_t n)
{
    uint32_t tags[BPE_BATCH][3], left[BPE_BATCH], right[BPE_BATCH], joined;
    int r;

    assert(n <= BPE_BATCH);
    for (size_t i = 0; i < n; i++) {
        const struct bpe_pair *p = &pairs[i];
        const char *s = text + p->at;

        tags[i][0] = bpe_find_soon(b, s, p->n_left);
        tags[i][1] = bpe_find_soon(b, s + p->n_left, p->n - p->n_left);
        tags[i][2] = bpe_find_soon(b, s, p->n);
    }
    for (size_t i = 0; i < n; i++) {
        const struct bpe_pair *p = &pairs[i];
        const char *s = text + p->at;

        r = intern(b, s, p->n_left, tags[i][0], &left[i]);
        if (r >= 0)
            r = intern(b, s + p->n_left, p->n - p->n_left, tags[i][1], &right[i]);
        if (r < 0)
            return r;
        __builtin_prefetch(&b->merges[bpe_pair_hash(b, left[i], right[i]) & b->merge_mask]);
    }
    for (size_t i = 0; i < n; i++) {
        r = intern(b, text + pairs[i].at, pairs[i].n, tags[i][2], &joined);
        if (r < 0)
            return r;
        bpe_put_merge(b, &(struct bpe_merge){left[i], right[i], pairs[i].rank, joined});
    }
    return 0;
}
