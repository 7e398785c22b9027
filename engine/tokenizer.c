/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tokenizer.h"

#include "engine/tok_internal.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <errno.h>
#include <string.h>

/* With U+FFFD for every bad byte a text triples; positions in it are 32 bits. */
#define MAX_TEXT_BYTES ((size_t)1 << 30)

void token_list_done(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

int token_list_add(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap + l->cap / 2 : 64;
        int32_t *p = reallocarray(l->ids, cap, sizeof(*p));

        if (!p)
            return -ENOMEM;
        l->ids = p;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    special_set_done(&t->special);
    special_set_done(&t->user);
    bpe_done(&t->bpe);
    free(t->kinds);
    free(t->end_ids);
    free(t);
}

const char *tokenizer_doubt(const struct tokenizer *t)
{
    return t->pre_is_missing ? "tokenizer.ggml.pre is missing, texts are cut as \"default\" says: "
                               "answers may be poor, convert the model anew"
                             : NULL;
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->bpe.n_vocab;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 1, n;

    for (uint32_t i = 0; i < t->bpe.n_vocab; i++) {
        (void)bpe_bytes(&t->bpe, i, &n);
        longest = n > longest ? n : longest;
    }
    /* All of it may be U+2581, three bytes that read as one. */
    return t->rule ? longest : 3 * longest;
}

/* `s` with U+FFFD in the place of every byte that cannot be decoded. */
static int repair(const char *s, size_t n, struct buf *out)
{
    for (;;) {
        size_t run = utf8_valid_run(s, n);
        int r = buf_add(out, s, run);

        if (r < 0 || run == n)
            return r < 0 ? r : 0;
        r = buf_addz(out, "\xEF\xBF\xBD");
        if (r < 0)
            return r;
        s += run + 1;
        n -= run + 1;
    }
}

/* Valid UTF-8, for a SentencePiece vocabulary. */
static int encode_spm(const struct tokenizer *t, struct bpe_work *w, const char *text,
                      size_t n_text, struct token_list *out)
{
    CLEANUP(buf_done) struct buf b = {0};
    int r = buf_add(&b, " ", t->add_space_prefix);

    if (r >= 0)
        r = spm_add_spaced(text, n_text, &b);
    for (size_t i = 0, end; i < b.len && r >= 0; i = end) {
        end = spm_next(&t->cuts, b.data, b.len, i);
        r = bpe_encode(&t->bpe, w, b.data + i, end - i, false, out);
    }
    return r < 0 ? r : 0;
}

/* Text without special tokens. */
static int encode_plain(const struct tokenizer *t, struct bpe_work *w, const char *s, size_t n,
                        struct token_list *out)
{
    CLEANUP(buf_done) struct buf repaired = {0};
    struct pretok_scan scan;

    if (n == 0)
        return 0;

    if (!utf8_is_valid(s, n)) {
        int r = repair(s, n, &repaired);

        if (r < 0)
            return r;
        s = repaired.data;
        n = repaired.len;
    }
    if (!t->rule)
        return encode_spm(t, w, s, n, out);
    pretok_init(&scan, t->rule->kind, s, n);
    while (scan.pos < n) {
        size_t begin = scan.pos, end = pretok_next(&scan);
        int r = bpe_encode(&t->bpe, w, s + begin, end - begin, t->rule->ignore_merges, out);

        if (r < 0)
            return r;
    }
    return 0;
}

/* Cuts the text at special tokens. */
static int encode_text(const struct tokenizer *t, const struct tokenize_options *o,
                       struct bpe_work *w, const char *s, size_t n, struct token_list *out)
{
    const struct special_set *set = o->parse_special ? &t->special : &t->user;
    size_t plain = 0, i = 0, len = 0, at = 0;

    while (i < n) {
        int32_t id;
        int r;

        i += special_set_skip(set, s + i, n - i);
        if (i == n)
            break;
        id = special_set_match(set, s + i, n - i, &len);
        while (at < o->n_data && o->data[at].end <= i)
            at++;
        if (id >= 0 && at < o->n_data && o->data[at].begin < i + len)
            id = special_set_match(&t->user, s + i, n - i, &len);
        if (id < 0) {
            i++;
            continue;
        }
        r = encode_plain(t, w, s + plain, i - plain, out);
        if (r < 0)
            return r;
        r = token_list_add(out, id);
        if (r < 0)
            return r;
        i += len;
        plain = i;
    }
    return plain < n ? encode_plain(t, w, s + plain, n - plain, out) : 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     const struct tokenize_options *o, struct token_list *out)
{
    CLEANUP(bpe_work_done) struct bpe_work w = {0};
    size_t n0 = out->n;
    int r;

    if (n > MAX_TEXT_BYTES)
        return -E2BIG;
    r = bpe_work_init(&w, n);
    if (r >= 0 && o->add_special && t->add_bos && t->bos >= 0)
        r = token_list_add(out, t->bos);
    if (r >= 0)
        r = encode_text(t, o, &w, text, n, out);
    if (r >= 0 && o->add_special && t->add_eos && t->eos >= 0)
        r = token_list_add(out, t->eos);
    if (r < 0)
        out->n = n0;
    return r;
}

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id)
{
    if (id < 0 || (uint32_t)id >= t->bpe.n_vocab)
        return TOKEN_UNUSED;
    return (enum token_kind)t->kinds[id];
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, size_t *ret_n)
{
    *ret_n = 0;
    if (id < 0 || (uint32_t)id >= t->bpe.n_vocab)
        return "";
    switch ((enum token_kind)t->kinds[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
    case TOKEN_UNUSED:
        if (!special)
            return "";
        break;
    case TOKEN_NORMAL:
    case TOKEN_USER:
    case TOKEN_BYTE:
        break;
    }
    return bpe_bytes(&t->bpe, (uint32_t)id, ret_n);
}

/* Whether it is found by its text, and so ends the stretch of text before it. */
static bool is_special(const struct tokenizer *t, int32_t id)
{
    enum token_kind kind = tokenizer_kind(t, id);

    return kind == TOKEN_CONTROL || kind == TOKEN_USER || kind == TOKEN_UNKNOWN;
}

const char *tokenizer_piece_after(const struct tokenizer *t, int32_t before, int32_t id,
                                  bool special, size_t *ret_n)
{
    const char *s = tokenizer_piece(t, id, special, ret_n);

    if (!t->add_space_prefix || *ret_n == 0 || *s != ' ' || is_special(t, id))
        return s;
    if (before >= 0 && !is_special(t, before))
        return s;
    --*ret_n;
    return s + 1;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                     struct buf *out)
{
    size_t len0 = out->len;

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *s = tokenizer_piece_after(t, i ? ids[i - 1] : -1, ids[i], special, &len);
        int r = buf_add(out, s, len);

        if (r < 0) {
            out->len = len0;
            if (out->data)
                out->data[len0] = '\0';
            return r;
        }
    }
    return 0;
}

int32_t tokenizer_find_special(const struct tokenizer *t, const char *text)
{
    size_t n = strlen(text), len = 0;
    int32_t id = special_set_match(&t->special, text, n, &len);

    return id >= 0 && len == n && t->kinds[id] != TOKEN_UNKNOWN ? id : -1;
}

const int32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *ret_n)
{
    *ret_n = t->n_end_ids;
    return t->end_ids;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}
