/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokfix.h"

#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct buf *b, const void *p, size_t n)
{
    if (buf_add(b, p, n) < 0)
        abort();
}

static void add_text(struct buf *b, const char *s, size_t n)
{
    uint64_t n64 = n;

    add(b, &n64, sizeof(n64));
    add(b, s, n);
}

void tokfix_bytes(struct tokfix *f, const struct tokfix_token *more, size_t n_more,
                  const char *const *merges, size_t n_merges)
{
    CLEANUP(buf_done) struct buf texts = {0}, kinds = {0};
    uint32_t other = 0x100;

    for (uint32_t b = 0; b < 256; b++) {
        bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        int32_t kind = TOKEN_NORMAL;
        char s[4];

        add_text(&texts, s, utf8_encode(prints ? b : other++, s));
        add(&kinds, &kind, sizeof(kind));
    }
    for (size_t i = 0; i < n_more; i++) {
        add_text(&texts, more[i].text, strlen(more[i].text));
        add(&kinds, &more[i].kind, sizeof(more[i].kind));
    }
    ggufw_str(&f->w, "tokenizer.ggml.model", "gpt2");
    ggufw_array(&f->w, "tokenizer.ggml.tokens", GGUFW_STR, 256 + n_more, texts.data, texts.len);
    ggufw_array(&f->w, "tokenizer.ggml.token_type", GGUFW_I32, 256 + n_more, kinds.data, kinds.len);
    if (merges)
        ggufw_strs(&f->w, "tokenizer.ggml.merges", merges, n_merges);
}

void tokfix_spm(struct tokfix *f, const struct tokfix_piece *pieces, size_t n)
{
    static const struct tokfix_token first[] = {
        {"<unk>", TOKEN_UNKNOWN}, {"<s>", TOKEN_CONTROL}, {"</s>", TOKEN_CONTROL}};
    CLEANUP(buf_done) struct buf texts = {0}, kinds = {0}, scores = {0};
    const size_t n_all = TOKFIX_BYTE + 256 + n;

    for (size_t i = 0; i < n_all; i++) {
        struct tokfix_piece p;
        char byte[8];

        if (i < TOKFIX_BYTE) {
            p = (struct tokfix_piece){first[i].text, first[i].kind, 0};
        } else if (i < TOKFIX_BYTE + 256) {
            (void)snprintf(byte, sizeof(byte), "<0x%02X>", (unsigned int)(i - TOKFIX_BYTE));
            p = (struct tokfix_piece){byte, TOKEN_BYTE, 0};
        } else {
            p = pieces[i - TOKFIX_BYTE - 256];
        }
        add_text(&texts, p.text, strlen(p.text));
        add(&kinds, &p.kind, sizeof(p.kind));
        add(&scores, &p.score, sizeof(p.score));
    }
    ggufw_str(&f->w, "tokenizer.ggml.model", "llama");
    ggufw_array(&f->w, "tokenizer.ggml.tokens", GGUFW_STR, n_all, texts.data, texts.len);
    ggufw_array(&f->w, "tokenizer.ggml.token_type", GGUFW_I32, n_all, kinds.data, kinds.len);
    ggufw_array(&f->w, "tokenizer.ggml.scores", GGUFW_F32, n_all, scores.data, scores.len);
}

int tokfix_open(struct tokfix *f, struct err_text *e)
{
    int r;

    tokenizer_free(f->tok);
    f->tok = NULL;
    gguf_free(f->gguf);
    f->gguf = NULL;
    buf_clear(&f->file);
    ggufw_bytes(&f->w, &f->file);
    r = gguf_open_bytes(f->file.data, f->file.len, "fixture", &f->gguf, e);
    return r < 0 ? r : tokenizer_new(f->gguf, &f->tok, e);
}

void tokfix_done(struct tokfix *f)
{
    tokenizer_free(f->tok);
    gguf_free(f->gguf);
    ggufw_done(&f->w);
    buf_done(&f->file);
    memset(f, 0, sizeof(*f));
}
