/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding over raw bytes.
 *
 * A symbol is a string of bytes that merging can produce.  The first n_vocab symbols are the
 * tokens, by id; behind them stand private ones: single bytes and steps of merging that are no
 * token.  A merge is a table entry (left symbol, right symbol) -> (rank, joined symbol), so that
 * encoding compares numbers and never text.
 *
 * Built by one thread; read-only afterwards.  Each encoding thread brings its own bpe_work.
 */
#ifndef ENGINE_TOK_BPE_H
#define ENGINE_TOK_BPE_H

#include "util/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_list;

#define BPE_NONE UINT32_MAX

/* Thirty times what the largest published vocabularies have. */
enum { BPE_MAX_MERGES = 1 << 24 };

struct bpe_slot {
    uint32_t tag; /* the hash, so that growing does not read the text again */
    uint32_t sym; /* BPE_NONE: free */
};

struct bpe_merge {
    uint32_t left, right;  /* left BPE_NONE: free, and so are the others */
    uint32_t rank, joined; /* a pair has one rank */
};

/* What a pair becomes; rank BPE_NONE: it does not merge. */
struct bpe_join {
    uint32_t rank, joined;
};

struct bpe {
    uint32_t n_vocab;
    uint32_t n_sym, cap_sym;
    uint32_t *off; /* owned, [cap_sym + 1]; symbol i is bytes[off[i] .. off[i + 1]) */
    char *bytes;   /* owned */
    size_t n_bytes, cap_bytes;
    uint64_t seed; /* of both tables: the keys come from an untrusted file */

    struct bpe_slot *slots; /* owned; bytes -> symbol, for those that merging can produce */
    uint32_t slot_mask, n_slots_used;
    struct bpe_merge *merges; /* owned */
    uint32_t merge_mask;
    /*
     * The merges are more than fit in a core's cache, and most pairs that are looked up have none:
     * one bit of 16 for each merge says so from half a megabyte.  Pairs of bytes, which every piece
     * begins with, have a table of their own.
     */
    uint64_t *filter; /* owned, [filter_mask + 1] */
    uint32_t filter_mask;
    struct bpe_join *byte_pairs; /* owned, [256 * 256], first byte first; NULL with by_char */
    uint32_t byte_sym[256];      /* what a byte begins as; BPE_NONE: as byte_id says */
    int32_t byte_id[256]; /* the token for a byte that no other token covers; -1: it is dropped */
    bool by_char;         /* pieces begin as characters (tok_spm.h), not as bytes */
};

/* Room is made for n_vocab tokens of n_bytes bytes in all.  0 or -ENOMEM. */
int bpe_init(struct bpe *b, uint32_t n_vocab, size_t n_bytes);
void bpe_done(struct bpe *b);

/*
 * The next token, n_vocab times.  `mergeable`: text can become this token by merging; of equal
 * texts the first one counts.  0, -ENOMEM or ERR_CAPACITY (4 GiB of text).
 */
int bpe_add_token(struct bpe *b, const char *s, size_t n, bool mergeable);

/* The symbol of these bytes; a private one is made when there is none.  The same errors. */
int bpe_intern(struct bpe *b, const char *s, size_t n, uint32_t *ret);

/* Room for n_merges merges, at most BPE_MAX_MERGES, once.  0 or -ENOMEM. */
int bpe_make_merges(struct bpe *b, uint64_t n_merges);

/* After the tokens: the symbols of the 256 bytes, and bpe_make_merges. */
int bpe_start_merges(struct bpe *b, uint64_t n_merges);

/* A merge as text: the left symbol's bytes, then the right one's, at `at` of some buffer. */
struct bpe_pair {
    size_t at;
    size_t n_left, n; /* 0 < n_left < n */
    uint32_t rank;
};

enum { BPE_BATCH = 32 };

/*
 * left + right -> joined, up to BPE_BATCH of them in the order of their ranks; a pair that was
 * there before keeps its rank.  The same errors.  In batches because most of the time goes into
 * waiting for memory, which 32 look-ups can do together.
 */
int bpe_add_merges(struct bpe *b, const char *text, const struct bpe_pair *pairs, size_t n);

/* The symbol of these bytes, if merging can produce it; else BPE_NONE. */
uint32_t bpe_find(const struct bpe *b, const char *s, size_t n);

/* The same in two steps, so that several can wait for memory together. */
static inline uint32_t bpe_find_soon(const struct bpe *b, const char *s, size_t n)
{
    uint32_t tag = (uint32_t)hash_bytes(s, n, b->seed);

    __builtin_prefetch(&b->slots[tag & b->slot_mask]);
    return tag;
}
uint32_t bpe_find_now(const struct bpe *b, const char *s, size_t n, uint32_t tag);

static inline uint64_t bpe_pair_hash(const struct bpe *b, uint32_t left, uint32_t right)
{
    return hash_u64((uint64_t)left << 32 | right, b->seed);
}

/* The entry of the pair, or the free one where it belongs. */
static inline struct bpe_merge *bpe_find_merge(const struct bpe *b, uint64_t hash, uint32_t left,
                                               uint32_t right)
{
    uint32_t i = (uint32_t)hash & b->merge_mask;

    while (b->merges[i].left != BPE_NONE &&
           (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & b->merge_mask;
    return &b->merges[i];
}

static inline struct bpe_join bpe_join(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t hash = bpe_pair_hash(b, left, right), bits = b->filter[hash >> 38 & b->filter_mask];
    const struct bpe_merge *m;

    if (!(bits >> (hash >> 32 & 63) & 1))
        return (struct bpe_join){BPE_NONE, BPE_NONE};
    m = bpe_find_merge(b, hash, left, right);
    return (struct bpe_join){m->rank, m->joined}; /* NONE in a free entry */
}

/* left + right -> joined, unless the pair was there before. */
void bpe_put_merge(struct bpe *b, const struct bpe_merge *merge);

/* The bytes of a token, borrowed. */
const char *bpe_bytes(const struct bpe *b, uint32_t id, size_t *ret_n);

/* Memory of one encode call: a cache of pieces already seen, and arrays for merging. */
struct bpe_work {
    struct bpe_cached *cache; /* owned; direct-mapped, so hostile text can only make it miss */
    uint32_t cache_mask;
    uint32_t *sym, *next, *prev, *rank, *joined; /* owned as one block at `sym`; by position */
    uint64_t *heap;                              /* owned */
    size_t cap;                                  /* positions there is room for */
    uint64_t n_steps; /* what merging has cost so far: pairs looked at and heap levels; for tests */
};

/* For a text of n_text bytes.  0 or -ENOMEM. */
int bpe_work_init(struct bpe_work *w, size_t n_text);
void bpe_work_done(struct bpe_work *w);

/*
 * Appends the ids of one piece of 1 .. 2^32 - 2 bytes, with by_char of valid UTF-8.  With
 * `whole_first` a piece that is a token is taken as it is.  Bytes that no token covers become
 * byte_id.  0 or -ENOMEM.
 */
int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *s, size_t n, bool whole_first,
               struct token_list *out);

#endif
