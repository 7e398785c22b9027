/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers made for tests: keys are written with ggufw, then the file is opened from memory. */
#ifndef TESTS_TOKFIX_H
#define TESTS_TOKFIX_H

#include "tests/ggufw.h"

#include <stddef.h>
#include <stdint.h>

struct err_text;
struct gguf;
struct tokenizer;

struct tokfix {
    struct ggufw w; /* the test's to change until it opens, and between openings */
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tok;
};

/* A token beyond the 256 bytes. */
struct tokfix_token {
    const char *text;
    int32_t kind; /* enum token_kind */
};

/*
 * Model "gpt2" whose ids 0..255 are the bytes in their order, in the byte alphabet, followed by
 * `more`, and `merges` (NULL: none).
 */
void tokfix_bytes(struct tokfix *f, const struct tokfix_token *more, size_t n_more,
                  const char *const *merges, size_t n_merges);

/* A token of a SentencePiece vocabulary beyond the first 259. */
struct tokfix_piece {
    const char *text;
    int32_t kind; /* enum token_kind */
    float score;
};

enum { TOKFIX_BYTE = 3 }; /* the id of byte 0 */

/*
 * Model "llama" whose ids are <unk>, <s> and </s> (of their kinds), the 256 byte tokens, then
 * `pieces`.
 */
void tokfix_spm(struct tokfix *f, const struct tokfix_piece *pieces, size_t n);

/* Opens what was written so far: what gguf_open_bytes or tokenizer_new returns; f->tok is set on
 * success. */
int tokfix_open(struct tokfix *f, struct err_text *e);
void tokfix_done(struct tokfix *f);

#endif
