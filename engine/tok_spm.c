/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_spm.h"

#include "engine/tok_bpe.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

size_t spm_next(const struct spm_cuts *c, const char *s, size_t n, size_t i)
{
    for (i++; i < n && (continues(s[i]) || spm_joins(c, s[i - 1], s[i]));)
        i++;
    return i;
}

/* The token's bytes; n = 0 for one that merging cannot produce. */
static const char *mergeable(const struct bpe *b, uint32_t id, size_t *ret_n)
{
    const char *s = bpe_bytes(b, id, ret_n);

    if (*ret_n && bpe_find(b, s, *ret_n) != id)
        *ret_n = 0;
    return s;
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

/* Symbols for all characters that tokens are made of, and which of them are neighbours. */
static int add_characters(struct bpe *b, struct spm_cuts *cuts)
{
    for (uint32_t id = 0; id < b->n_vocab; id++) {
        size_t n;

        (void)mergeable(b, id, &n);
        for (size_t i = 0, end; i < n; i = end) {
            char c[4];
            const char *s = bpe_bytes(b, id, &n); /* moves when a symbol is added */
            uint32_t sym;
            int r;

            end = char_end(s, n, i);
            if (i)
                cuts->joins[(unsigned char)s[i - 1]][(unsigned char)s[i] / 64] |=
                    (uint64_t)1 << ((unsigned char)s[i] % 64);
            memcpy(c, s + i, end - i);
            r = bpe_intern(b, c, end - i, &sym);
            if (r < 0)
                return r;
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

/* All ways to make the token of two symbols. */
static int part(const struct bpe *b, uint32_t id, struct partings *p)
{
    size_t n;
    const char *s = mergeable(b, id, &n);

    for (size_t i = n ? char_end(s, n, 0) : 0; i < n; i = char_end(s, n, i)) {
        uint32_t left = bpe_find(b, s, i), right;

        if (left == BPE_NONE)
            continue;
        right = bpe_find(b, s + i, n - i);
        if (right == BPE_NONE)
            continue;
        if (p->n == p->cap) {
            size_t cap = p->cap ? 2 * p->cap : 4096;
            struct parting *v = reallocarray(p->v, cap, sizeof(*v));

            if (!v)
                return -ENOMEM;
            p->v = v;
            p->cap = cap;
        }
        p->v[p->n++] = (struct parting){left, right, id};
    }
    return 0;
}

static void partings_done(struct partings *p)
{
    free(p->v);
}

int spm_build(struct bpe *b, const float *scores, struct spm_cuts *ret)
{
    CLEANUP(free_p) uint32_t *ranks = calloc(b->n_vocab, sizeof(*ranks));
    CLEANUP(partings_done) struct partings p = {0};
    int r = ranks ? rank_tokens(b, scores, ranks) : -ENOMEM;

    *ret = (struct spm_cuts){0};
    if (r >= 0)
        r = add_characters(b, ret);
    for (uint32_t id = 0; id < b->n_vocab && r >= 0; id++)
        r = part(b, id, &p);
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
