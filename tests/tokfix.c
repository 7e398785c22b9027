/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokfix.h"

#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "util/cleanup.h"
#include "util/utf8.h"

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
