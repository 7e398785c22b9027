/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers: the cuts that byte-level BPE never merges across.
 *
 * Each is a scanner written by hand that does what the regular expressions of the model's
 * training did, in time linear in the text.  Families that differ only in name share one.
 */
#ifndef ENGINE_TOK_PRETOK_H
#define ENGINE_TOK_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

enum pretok_kind {
    PRETOK_GPT2,
    PRETOK_DEFAULT, /* for files that name none: punctuation apart, digits in threes */
    PRETOK_SMOLLM,  /* every digit apart, then gpt-2 */
    PRETOK_LLAMA3,  /* digits in threes */
    PRETOK_QWEN2,   /* as llama3, every digit apart */
    PRETOK_QWEN35,  /* as qwen2, marks count as letters */
    PRETOK_N,
};

/* What a value of `tokenizer.ggml.pre` stands for. */
struct pretok_rule {
    const char *name;
    enum pretok_kind kind;
    bool ignore_merges; /* a piece that is a token as a whole is taken without merging */
    bool add_bos;       /* unless the file says otherwise */
};

/* NULL for a name that is not known here. */
const struct pretok_rule *pretok_find(const char *name, size_t n);

struct pretok_scan {
    enum pretok_kind kind;
    const char *s; /* borrowed, valid UTF-8 */
    size_t n;
    size_t pos; /* where the next piece begins; done when pos == n */

    /* Patterns applied one after the other see only what the ones before left: where that ends. */
    size_t segment_end, number_end;
    bool punctuation;
};

void pretok_init(struct pretok_scan *p, enum pretok_kind kind, const char *s, size_t n);

/* The end of the piece that begins at p->pos < p->n; p->pos moves there. */
size_t pretok_next(struct pretok_scan *p);

#endif
