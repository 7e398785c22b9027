/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer from arbitrary arrays, then text through it.
 *
 * The first byte chooses the pre-tokenizer, or a SentencePiece vocabulary with or without
 * add_space_prefix.  Lines follow: "m" and a merge, or a digit (the kind) and a token (with
 * SentencePiece the second counts more than the first, and so on); from the first other line on
 * everything is text.  The 256 bytes are always tokens, so valid text must come back as it was, and
 * any other text as if its bad bytes had been U+FFFD; SentencePiece cannot tell U+2581 from a
 * space.
 */
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "tests/tokfix.h"
#include "util/buf.h"
#include "util/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void set_spaces(struct buf *b)
{
    char *w = b->data;

    for (size_t i = 0, len; i < b->len; i += len) {
        bool mark = b->len - i >= 3 && memcmp(b->data + i, "\xE2\x96\x81", 3) == 0;

        len = mark ? 3 : 1;
        *w++ = mark ? ' ' : b->data[i];
    }
    b->len = (size_t)(w - b->data);
}

static void check_text(const struct tokenizer *t, const char *s, size_t n, bool parse_special,
                       bool spm)
{
    struct tokenize_options o = {.parse_special = parse_special};
    struct token_list l = {0};
    struct buf want = {0}, got = {0};

    for (size_t i = 0, len; i < n; i += len) {
        char c[4];

        if (buf_add(&want, c, utf8_encode(utf8_decode(s + i, n - i, &len), c)) < 0)
            abort();
    }
    if (tokenizer_encode(t, s, n, &o, &l) < 0 || tokenizer_decode(t, l.ids, l.n, true, &got) < 0)
        abort();
    for (size_t i = 0; i < l.n; i++)
        if (l.ids[i] < 0 || (uint32_t)l.ids[i] >= tokenizer_n_vocab(t))
            abort();
    if (spm && want.len) {
        set_spaces(&want);
        set_spaces(&got);
    }
    if (got.len != want.len || (n && memcmp(got.data, want.data, want.len) != 0))
        abort();
    buf_done(&want);
    buf_done(&got);
    token_list_done(&l);
}

enum { MAX_LINES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pre[] = {
        "default",  "gpt-2",  "smollm",     "llama-bpe",      "qwen2",        "qwen35",
        "falcon",   "tekken", "gpt-4o",     "deepseek-coder", "deepseek-llm", "deepseek-v3",
        "tiny_aya", "viking", "seed-coder", "superbpe",       "poro-chat"};
    enum { N_PRE = sizeof(pre) / sizeof(pre[0]) };
    struct tokfix_token tokens[MAX_LINES];
    struct tokfix_piece pieces[MAX_LINES];
    size_t choice = size ? data[0] % (N_PRE + 2) : 0;
    const char *merges[MAX_LINES];
    char *copy = malloc(size + 1), *line = copy;
    size_t n_tokens = 0, n_merges = 0;
    struct tokfix f = {0};

    if (!copy)
        return 0;
    /* Texts of the arrays end at a NUL here; hostile lengths are fuzz_gguf's affair. */
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (size)
        line++;
    while (n_tokens < MAX_LINES && n_merges < MAX_LINES &&
           (*line == 'm' || (*line >= '0' && *line <= '9'))) {
        char *end = strchr(line, '\n');

        if (!end)
            break;
        *end = '\0';
        if (*line == 'm')
            merges[n_merges++] = line + 1;
        else
            tokens[n_tokens++] = (struct tokfix_token){line + 1, *line - '0'};
        line = end + 1;
    }
    if (choice < N_PRE) {
        tokfix_bytes(&f, tokens, n_tokens, merges, n_merges);
        ggufw_str(&f.w, "tokenizer.ggml.pre", pre[choice]);
    } else {
        for (size_t i = 0; i < n_tokens; i++)
            pieces[i] = (struct tokfix_piece){tokens[i].text, tokens[i].kind, (float)(i / 2)};
        tokfix_spm(&f, pieces, n_tokens);
        ggufw_bool(&f.w, "tokenizer.ggml.add_space_prefix", choice > N_PRE);
    }
    if (tokfix_open(&f, NULL) == 0) {
        check_text(f.tok, line, size - (size_t)(line - copy), false, choice >= N_PRE);
        check_text(f.tok, line, size - (size_t)(line - copy), true, choice >= N_PRE);
    }
    tokfix_done(&f);
    free(copy);
    return 0;
}
