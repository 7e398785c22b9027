/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers: the cuts that byte-level BPE never merges across.
 *
 * What the regular expressions of a model's training cut is done by scanners (tok_scan.h), in time
 * linear in the text; a pre-tokenizer is a list of them, each of which sees only what the ones
 * before left.  Families that differ only in name share one.
 */
#ifndef ENGINE_TOK_PRETOK_H
#define ENGINE_TOK_PRETOK_H

#include "engine/tok_scan.h"

#include <stdbool.h>
#include <stddef.h>

enum pretok_kind {
    PRETOK_GPT2,
    PRETOK_DEFAULT, /* for files that name none: punctuation apart, digits in threes */
    PRETOK_SMOLLM,  /* every digit apart, then gpt-2 */
    PRETOK_LLAMA3,  /* digits in threes */
    PRETOK_QWEN2,   /* as llama3, every digit apart */
    PRETOK_QWEN35,  /* as qwen2, marks count as letters */
    PRETOK_SEED_CODER,
    PRETOK_FALCON,
    PRETOK_DEEPSEEK_CODER,
    PRETOK_DEEPSEEK_LLM,
    PRETOK_DEEPSEEK_V3,
    PRETOK_TEKKEN, /* words begin with upper case */
    PRETOK_GPT4O,  /* the same, contractions stay with their word */
    PRETOK_TINY_AYA,
    PRETOK_PORO,
    PRETOK_VIKING,
    PRETOK_SUPERBPE, /* nothing but numbers is cut */
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

enum { PRETOK_MAX_SCANS = 6 };

struct pretok_scan {
    scan_fn *const *scans; /* static, NULL behind the last one */
    struct scan_text text;
    size_t pos;                    /* where the next piece begins; done when pos == text.n */
    size_t ends[PRETOK_MAX_SCANS]; /* of the segment that each scanner is in */
};

void pretok_init(struct pretok_scan *p, enum pretok_kind kind, const char *s, size_t n);

/* The end of the piece that begins at p->pos < p->text.n; p->pos moves there. */
size_t pretok_next(struct pretok_scan *p);

#endif
