/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from the metadata of a GGUF file.
 *
 * The arrays are untrusted.  Refused: what contradicts itself, and what we would tokenise wrongly
 * without anybody noticing (another model, an unknown pre-tokenizer).  Survived, as in other
 * readers of the format: special ids out of range, equal tokens, equal merges, merges of texts
 * outside the byte alphabet, bytes without a token.
 */
#include "engine/gguf.h"
#include "engine/tok_internal.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VOCAB = 1 << 21 };

/* The byte that stands behind a character of the byte alphabet of GPT-2, or -1. */
static int mapped_byte(uint32_t cp)
{
    /* Bytes that print stand for themselves; the 68 others got U+0100 and on, in their order. */
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD))
        return (int)cp;
    if (cp < 0x100 || cp > 0x143)
        return -1;
    cp -= 0x100;
    return (int)(cp <= 0x20 ? cp : cp <= 0x42 ? 0x7F + cp - 0x21 : 0xAD);
}

/*
 * The bytes of text in the byte alphabet, appended to `out`.  A character outside of it stands for
 * its own UTF-8; *ret_pure says whether there was none.  0 or -ENOMEM.
 */
static int unmap(struct gguf_str text, struct buf *out, bool *ret_pure)
{
    bool pure = true;
    int r = buf_reserve(out, text.n);
    char *w;

    if (r < 0)
        return r;
    w = out->data + out->len;
    for (size_t i = 0, len; i < text.n; i += len) {
        int byte;

        if ((unsigned char)text.s[i] > ' ' && (unsigned char)text.s[i] < 0x7F) {
            *w++ = text.s[i];
            len = 1;
            continue;
        }
        byte = mapped_byte(utf8_decode(text.s + i, text.n - i, &len));
        if (byte >= 0) {
            *w++ = (char)byte;
        } else {
            memcpy(w, text.s + i, len);
            w += len;
            pure = false;
        }
    }
    *w = '\0';
    out->len = (size_t)(w - out->data);
    *ret_pure = pure;
    return 0;
}

/*
 * Text of a SentencePiece vocabulary with spaces for U+2581, appended to `out`.  *ret_pure says
 * whether merging can produce it: a space itself occurs in no text that is looked up there.
 */
static int with_spaces(struct gguf_str text, struct buf *out, bool *ret_pure)
{
    size_t begin = out->len;
    int r = spm_add_spaced(text.s, text.n, out);

    *ret_pure = text.n && !memchr(text.s, ' ', text.n) && out->len - begin <= SPM_MAX_BYTES &&
                utf8_is_valid(text.s, text.n);
    return r;
}

/* "<0x41>": what tokens of kind TOKEN_BYTE look like. */
static bool parse_byte_token(struct gguf_str text, char *ret)
{
    unsigned int v = 0;

    if (text.n != 6 || memcmp(text.s, "<0x", 3) != 0 || text.s[5] != '>')
        return false;
    for (size_t i = 3; i < 5; i++) {
        char c = text.s[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

        if (digit < 0)
            return false;
        v = v * 16 + (unsigned int)digit;
    }
    *ret = (char)v;
    return true;
}

static int check_model(const struct gguf *g, struct tokenizer *t, struct err_text *e)
{
    struct gguf_str name;
    char shown[64];
    int r = gguf_get_str(g, "tokenizer.ggml.model", &name, e);

    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.model is missing", gguf_name(g));
    if (name.n == 5 && memcmp(name.s, "llama", 5) == 0)
        return 0;
    if (name.n != 4 || memcmp(name.s, "gpt2", 4) != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tokenizer.ggml.model \"%s\" is not supported, only \"gpt2\" "
                       "(byte-level BPE) and \"llama\" (SentencePiece)",
                       gguf_name(g), err_escape(shown, sizeof(shown), name.s, name.n));

    r = gguf_get_str(g, "tokenizer.ggml.pre", &name, e);
    if (r < 0)
        return r;
    t->pre_is_missing = r == 0;
    if (r == 0)
        name = (struct gguf_str){"default", 7};
    t->rule = pretok_find(name.s, name.n);
    if (!t->rule)
        return err_set(e, ERR_UNSUPPORTED, "%s: tokenizer.ggml.pre \"%s\" is not supported",
                       gguf_name(g), err_escape(shown, sizeof(shown), name.s, name.n));
    return 0;
}

/* The lengths of the arrays, and how much text there is. */
static int measure(const struct gguf *g, struct gguf_array *ret_tokens,
                   struct gguf_array *ret_types, size_t *ret_bytes, struct err_text *e)
{
    uint64_t bytes = 0;
    int r = gguf_get_array(g, "tokenizer.ggml.tokens", ret_tokens, e);

    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.tokens is missing", gguf_name(g));
    if (!gguf_array_is_str(ret_tokens))
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.tokens is not an array of strings",
                       gguf_name(g));
    if (ret_tokens->n < 1 || ret_tokens->n > MAX_VOCAB)
        return err_set(e, ERR_DAMAGED,
                       "%s: tokenizer.ggml.tokens has %llu elements, expected 1 to %d",
                       gguf_name(g), (unsigned long long)ret_tokens->n, MAX_VOCAB);

    *ret_types = (struct gguf_array){0};
    r = gguf_get_array(g, "tokenizer.ggml.token_type", ret_types, e);
    if (r < 0)
        return r;
    if (r > 0 && ret_types->n < ret_tokens->n)
        return err_set(
            e, ERR_DAMAGED, "%s: tokenizer.ggml.token_type has %llu elements for %llu tokens",
            gguf_name(g), (unsigned long long)ret_types->n, (unsigned long long)ret_tokens->n);

    for (uint64_t i = 0; i < ret_tokens->n; i++)
        bytes += gguf_array_str(ret_tokens, i).n;
    *ret_bytes = bytes;
    return 0;
}

static int kind_at(const struct gguf *g, const struct gguf_array *types, uint64_t i, uint8_t *ret,
                   struct err_text *e)
{
    int64_t v = TOKEN_NORMAL;

    if (types->n && !gguf_array_i64(types, i, &v))
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.token_type is not an array of numbers",
                       gguf_name(g));
    /* 0 is "undefined" in the field; numbers of later formats are nothing we could treat specially.
     */
    *ret = v >= TOKEN_NORMAL && v <= TOKEN_BYTE ? (uint8_t)v : TOKEN_NORMAL;
    return 0;
}

static int load_tokens(const struct gguf *g, struct tokenizer *t, struct tok_named *ret_named,
                       struct err_text *e)
{
    CLEANUP(buf_done) struct buf raw = {0};
    struct gguf_array tokens, types;
    size_t n_bytes = 0;
    int r = measure(g, &tokens, &types, &n_bytes, e);

    if (r < 0)
        return r;
    r = bpe_init(&t->bpe, (uint32_t)tokens.n, n_bytes);
    if (r < 0)
        return err_set(e, r, "%s: tokenizer.ggml.tokens: %s", gguf_name(g), err_str(r));
    t->kinds = malloc(tokens.n);
    if (!t->kinds)
        return err_set(e, -ENOMEM, "%s: tokenizer: %s", gguf_name(g), err_str(-ENOMEM));
    memset(ret_named, 0xFF, sizeof(*ret_named));

    for (uint64_t i = 0; i < tokens.n; i++) {
        struct gguf_str text = gguf_array_str(&tokens, i);
        bool mergeable = false;
        int named;
        char byte;

        r = kind_at(g, &types, i, &t->kinds[i], e);
        if (r < 0)
            return r;
        named = special_name_find(text.s, text.n);
        if (named >= 0 && ret_named->ids[named] < 0)
            ret_named->ids[named] = (int32_t)i;

        if (t->kinds[i] == TOKEN_BYTE && parse_byte_token(text, &byte)) {
            text = (struct gguf_str){&byte, 1};
            if (t->bpe.byte_id[(unsigned char)byte] < 0)
                t->bpe.byte_id[(unsigned char)byte] = (int32_t)i;
        } else if (t->kinds[i] == TOKEN_NORMAL || t->kinds[i] == TOKEN_BYTE) {
            buf_clear(&raw);
            r = t->rule ? unmap(text, &raw, &mergeable) : with_spaces(text, &raw, &mergeable);
            if (r < 0)
                return err_set(e, r, "%s: tokenizer: %s", gguf_name(g), err_str(r));
            text = (struct gguf_str){raw.data, raw.len};
        } else if (t->kinds[i] != TOKEN_UNUSED && text.n > SPECIAL_MAX_BYTES) {
            return err_set(
                e, ERR_DAMAGED,
                "%s: tokenizer.ggml.tokens: special token %llu has %zu bytes, expected at most %d",
                gguf_name(g), (unsigned long long)i, text.n, SPECIAL_MAX_BYTES);
        }
        r = bpe_add_token(&t->bpe, text.s, text.n, mergeable);
        if (r < 0)
            return err_set(e, r, "%s: tokenizer.ggml.tokens: %s", gguf_name(g), err_str(r));
    }
    return 0;
}

/*
 * The bytes of merge i, appended to `raw`.  1, or 0 when it can never apply: text holds no
 * character outside the byte alphabet.
 */
static int read_merge(const struct gguf *g, const struct gguf_array *merges, uint64_t i,
                      struct buf *raw, struct bpe_pair *ret, struct err_text *e)
{
    struct gguf_str text = gguf_array_str(merges, i), left, right;
    const char *space = text.n > 1 ? memchr(text.s + 1, ' ', text.n - 1) : NULL;
    struct bpe_pair p = {.at = raw->len, .rank = (uint32_t)i};
    bool left_pure, right_pure;
    int r;

    if (!space || space == text.s + text.n - 1)
        return err_set(
            e, ERR_DAMAGED,
            "%s: tokenizer.ggml.merges: merge %llu is not two texts with a space between",
            gguf_name(g), (unsigned long long)i);
    left = (struct gguf_str){text.s, (size_t)(space - text.s)};
    right = (struct gguf_str){space + 1, text.n - left.n - 1};

    r = unmap(left, raw, &left_pure);
    p.n_left = raw->len - p.at;
    if (r >= 0)
        r = unmap(right, raw, &right_pure);
    p.n = raw->len - p.at;
    if (r < 0)
        return err_set(e, r, "%s: tokenizer.ggml.merges: %s", gguf_name(g), err_str(r));
    *ret = p;
    return left_pure && right_pure;
}

static int load_merges(const struct gguf *g, struct tokenizer *t, struct err_text *e)
{
    CLEANUP(buf_done) struct buf raw = {0};
    struct bpe_pair batch[BPE_BATCH];
    struct gguf_array merges = {0};
    size_t n = 0;
    int r = gguf_get_array(g, "tokenizer.ggml.merges", &merges, e);

    if (r < 0)
        return r;
    if (r > 0 && merges.n && !gguf_array_is_str(&merges))
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.merges is not an array of strings",
                       gguf_name(g));
    if (merges.n > BPE_MAX_MERGES)
        return err_set(e, ERR_DAMAGED,
                       "%s: tokenizer.ggml.merges has %llu elements, expected at most %d",
                       gguf_name(g), (unsigned long long)merges.n, BPE_MAX_MERGES);

    r = bpe_start_merges(&t->bpe, merges.n);
    for (uint64_t i = 0; r >= 0 && i < merges.n; i++) {
        r = read_merge(g, &merges, i, &raw, &batch[n], e);
        if (r < 0)
            return r;
        n += r > 0;
        if (n == BPE_BATCH || i == merges.n - 1) {
            r = bpe_add_merges(&t->bpe, raw.data, batch, n);
            buf_clear(&raw);
            n = 0;
        }
    }
    if (r < 0)
        return err_set(e, r, "%s: tokenizer.ggml.merges: %s", gguf_name(g), err_str(r));
    return 0;
}

/* What stands for merges in a SentencePiece vocabulary. */
static int load_scores(const struct gguf *g, struct tokenizer *t, struct err_text *e)
{
    CLEANUP(free_p) float *scores = calloc(t->bpe.n_vocab, sizeof(*scores));
    struct gguf_array a = {0};
    int r = gguf_get_array(g, "tokenizer.ggml.scores", &a, e);

    if (!scores)
        return err_set(e, -ENOMEM, "%s: tokenizer: %s", gguf_name(g), err_str(-ENOMEM));
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.scores is missing", gguf_name(g));
    if (a.n < t->bpe.n_vocab)
        return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.scores has %llu elements for %u tokens",
                       gguf_name(g), (unsigned long long)a.n, t->bpe.n_vocab);
    for (uint32_t i = 0; i < t->bpe.n_vocab; i++) {
        double v;

        if (!gguf_array_f64(&a, i, &v))
            return err_set(e, ERR_DAMAGED, "%s: tokenizer.ggml.scores is not an array of numbers",
                           gguf_name(g));
        scores[i] = (float)v;
    }
    r = spm_build(&t->bpe, scores, &t->cuts);
    if (r == ERR_CAPACITY)
        return err_set(e, r,
                       "%s: tokenizer.ggml.tokens: more than %d ways to make a token of two others",
                       gguf_name(g), BPE_MAX_MERGES);
    if (r < 0)
        return err_set(e, r, "%s: tokenizer.ggml.tokens: %s", gguf_name(g), err_str(r));
    return 0;
}

static void tokenizer_freep(struct tokenizer **t)
{
    tokenizer_free(*t);
}

int tokenizer_new(const struct gguf *g, struct tokenizer **ret, struct err_text *e)
{
    CLEANUP(tokenizer_freep) struct tokenizer *t = calloc(1, sizeof(*t));
    struct tok_named named;
    int r;

    if (!t)
        return err_set(e, -ENOMEM, "%s: tokenizer: %s", gguf_name(g), err_str(-ENOMEM));
    r = check_model(g, t, e);
    if (r < 0)
        return r;
    r = load_tokens(g, t, &named, e);
    if (r < 0)
        return r;
    r = t->rule ? load_merges(g, t, e) : load_scores(g, t, e);
    if (r < 0)
        return r;
    r = tok_load_bos_eos(g, t, e);
    if (r < 0)
        return r;
    r = tok_load_ends(g, t, &named, e);
    if (r < 0)
        return r;
    r = special_set_init(&t->special, &t->bpe, t->kinds,
                         1u << TOKEN_CONTROL | 1u << TOKEN_UNKNOWN | 1u << TOKEN_USER);
    if (r >= 0)
        r = special_set_init(&t->user, &t->bpe, t->kinds, 1u << TOKEN_USER);
    if (r < 0)
        return err_set(e, r, "%s: tokenizer: %s", gguf_name(g), err_str(r));
    *ret = TAKE(t);
    return 0;
}
