/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_spm.h"

#include "engine/tok_bpe.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int spm_add_spaced(const char *s, size_t n, struct buf *out)
{
    static const char mark[] = "\xE2\x96\x81";
    int r = 0;

    while (r >= 0 && n > 0) {
        const char *at = memmem(s, n, mark, 3);
        size_t run = at ? (size_t)(at - s) : n;

        r = buf_add(out, s, run);
        if (r >= 0 && at)
            r = buf_add(out, " ", 1);
        s += at ? run + 3 : run;
        n -= at ? run + 3 : run;
    }
    return r < 0 ? r : 0;
}

static inline bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* The end of the character of valid UTF-8 that begins at i. */
static inline size_t char_end(const char *s, size_t n, size_t i)
{
    for (i++; i < n && continues(s[i]);)
        i++;
    return i;
}

static bool joins(const struct spm_cuts *cuts, char a, char c)
{
    const unsigned int i = (unsigned char)a, j = (unsigned char)c;

    return cuts->joins[i][j / 64] >> (j % 64) & 1;
}

static void set_joins(struct spm_cuts *cuts, char a, char c)
{
    const unsigned int i = (unsigned char)a, j = (unsigned char)c;

    cuts->joins[i][j / 64] |= (uint64_t)1 << (j % 64);
}

size_t spm_next(const struct spm_cuts *c, const char *s, size_t n, size_t i)
{
    for (i++; i < n && (continues(s[i]) || joins(c, s[i - 1], s[i]));)
        i++;
    return i;
}

/* Descending; a NaN is the lowest. */
static int compare_scores(const void *pa, const void *pb, void *arg)
{
    const float *scores = arg, a = scores[*(const uint32_t *)pa], b = scores[*(const uint32_t *)pb];

    if (a == b || (a != a && b != b))
        return 0;
    return a > b || b != b ? -1 : 1;
}

/* ret[id]: how many different scores are higher.  0 or -ENOMEM. */
static int rank_tokens(const struct bpe *b, const float *scores, uint32_t *ret)
{
    CLEANUP(free_p) uint32_t *ids = calloc(b->n_vocab, sizeof(*ids));
    uint32_t rank = 0;

    if (!ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < b->n_vocab; i++)
        ids[i] = i;
    qsort_r(ids, b->n_vocab, sizeof(*ids), compare_scores, (void *)scores);
    for (uint32_t i = 0; i < b->n_vocab; i++) {
        rank += i && compare_scores(&ids[i - 1], &ids[i], (void *)scores);
        ret[ids[i]] = rank;
    }
    return 0;
}

/*
 * Symbols for all characters that tokens are made of, and which of them are neighbours.  ret[id]:
 * merging can produce the token.
 */
static int add_characters(struct bpe *b, struct spm_cuts *cuts, uint8_t *ret)
{
    CLEANUP(free_p) uint64_t *seen = calloc(0x110000 / 64, sizeof(*seen));

    if (!seen)
        return -ENOMEM;
    for (uint32_t id = 0; id < b->n_vocab; id++) {
        size_t n, len;
        const char *s = bpe_bytes(b, id, &n);

        ret[id] = n && bpe_find(b, s, n) == id;
        for (size_t i = 0; i < n && ret[id]; i += len) {
            uint32_t cp = utf8_decode(s + i, n - i, &len), sym;
            char c[4];
            int r;

            if (i)
                set_joins(cuts, s[i - 1], s[i]);
            if (seen[cp / 64] >> (cp % 64) & 1)
                continue;
            seen[cp / 64] |= (uint64_t)1 << (cp % 64);
            memcpy(c, s + i, len);
            r = bpe_intern(b, c, len, &sym);
            if (r < 0)
                return r;
            s = bpe_bytes(b, id, &n); /* texts move when one is added */
        }
    }
    return 0;
}

struct parting {
    uint32_t left, right, joined;
};

struct partings {
    struct parting *v; /* owned */
    size_t n, cap;
};

static int add_parting(struct partings *p, struct parting x)
{
    if (p->n == BPE_MAX_MERGES)
        return ERR_CAPACITY;
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 4096;
        struct parting *v = reallocarray(p->v, cap, sizeof(*v));

        if (!v)
            return -ENOMEM;
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = x;
    return 0;
}

/* All ways to make the token of two symbols. */
static int part(const struct bpe *b, uint32_t id, struct partings *p)
{
    uint32_t tags[SPM_MAX_BYTES][2];
    size_t n;
    const char *s = bpe_bytes(b, id, &n);
    int r = 0;

    for (size_t i = char_end(s, n, 0); i < n; i = char_end(s, n, i)) {
        tags[i][0] = bpe_find_soon(b, s, i);
        tags[i][1] = bpe_find_soon(b, s + i, n - i);
    }
    for (size_t i = char_end(s, n, 0); i < n && r >= 0; i = char_end(s, n, i)) {
        uint32_t left = bpe_find_now(b, s, i, tags[i][0]), right = BPE_NONE;

        if (left != BPE_NONE)
            right = bpe_find_now(b, s + i, n - i, tags[i][1]);
        if (right != BPE_NONE)
            r = add_parting(p, (struct parting){left, right, id});
    }
    return r;
}

static void partings_done(struct partings *p)
{
    free(p->v);
}

int spm_build(struct bpe *b, const float *scores, struct spm_cuts *ret)
{
    CLEANUP(free_p) uint32_t *ranks = calloc(b->n_vocab, sizeof(*ranks));
    CLEANUP(partings_done) struct partings p = {0};
    CLEANUP(free_p) uint8_t *mergeable = calloc(b->n_vocab, 1);
    int r = ranks && mergeable ? rank_tokens(b, scores, ranks) : -ENOMEM;

    *ret = (struct spm_cuts){0};
    if (r >= 0)
        r = add_characters(b, ret, mergeable);
    for (uint32_t id = 0; id < b->n_vocab && r >= 0; id++)
        r = mergeable[id] ? part(b, id, &p) : 0;
    if (r >= 0)
        r = bpe_make_merges(b, p.n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p.n; i++) {
        const struct parting *x = &p.v[i];

        bpe_put_merge(b, &(struct bpe_merge){x->left, x->right, ranks[x->joined], x->joined});
    }
    for (unsigned int i = 0; i < 256; i++) {
        char c = (char)i;

        b->byte_sym[i] = bpe_find(b, &c, 1);
    }
    b->by_char = true;
    return 0;
}
