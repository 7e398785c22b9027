/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_tokenizer.h"

#include "util/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tokenizer {
    const struct fake_piece *pieces;
    uint32_t n_vocab;
};

struct tokenizer *fake_tokenizer_new(const struct fake_piece *pieces, uint32_t n_vocab)
{
    struct tokenizer *t = malloc(sizeof *t);

    if (!t)
        abort();
    *t = (struct tokenizer){pieces, n_vocab};
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    free(t);
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->n_vocab;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, size_t *ret_n)
{
    if (id < 0 || (uint32_t)id >= t->n_vocab || (id == FAKE_END && !special)) {
        *ret_n = 0;
        return "";
    }
    *ret_n = t->pieces[id].n;
    return t->pieces[id].s;
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    const struct fake_piece *p;

    if (id < 0 || (uint32_t)id >= t->n_vocab)
        return TOKEN_UNUSED;
    p = &t->pieces[id];
    if (id == FAKE_END || (p->n >= 4 && memcmp(p->s, "<|", 2) == 0))
        return TOKEN_CONTROL;
    return TOKEN_NORMAL;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    (void)t;
    return -1;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    (void)t;
    return -1;
}

const int32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *ret_n)
{
    static const int32_t ids[] = {FAKE_END};

    (void)t;
    *ret_n = 1;
    return ids;
}

void token_list_done(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

int token_list_add(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16;
        int32_t *ids = reallocarray(l->ids, cap, sizeof *ids);

        if (!ids)
            return -ENOMEM;
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

/* The longest piece that opens s[0..n), or -1. */
static int32_t longest(const struct tokenizer *t, const char *s, size_t n, bool parse_special)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct fake_piece *p = &t->pieces[i];

        if (p->n == 0 || p->n > n || memcmp(p->s, s, p->n) != 0)
            continue;
        if (i == FAKE_END && !parse_special)
            continue;
        if (best < 0 || p->n > t->pieces[best].n)
            best = (int32_t)i;
    }
    return best;
}

/* Greedy; a byte that no piece opens with is skipped. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     const struct tokenize_options *o, struct token_list *out)
{
    for (size_t i = 0; i < n;) {
        int32_t id = longest(t, text + i, n - i, o->parse_special);
        int r = id < 0 ? 0 : token_list_add(out, id);

        if (r < 0)
            return r;
        i += id < 0 ? 1 : t->pieces[id].n;
    }
    return 0;
}

const char *tokenizer_piece_after(const struct tokenizer *t, int32_t before, int32_t id,
                                  bool special, size_t *ret_n)
{
    (void)before;
    return tokenizer_piece(t, id, special, ret_n);
}

const char *tokenizer_doubt(const struct tokenizer *t)
{
    (void)t;
    return NULL;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 1;

    for (uint32_t i = 0; i < t->n_vocab; i++)
        longest = t->pieces[i].n > longest ? t->pieces[i].n : longest;
    return longest;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                     struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *s = tokenizer_piece(t, ids[i], special, &len);
        int r = buf_add(out, s, len);

        if (r < 0)
            return r;
    }
    return 0;
}
