/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's inside, shared by what builds it (tok_load.c, tok_ends.c) and what uses it
 * (tokenizer.c). */
#ifndef ENGINE_TOK_INTERNAL_H
#define ENGINE_TOK_INTERNAL_H

#include "engine/tok_bpe.h"
#include "engine/tok_pretok.h"
#include "engine/tok_special.h"
#include "engine/tok_spm.h"
#include "engine/tokenizer.h"

struct tokenizer {
    struct bpe bpe;                 /* texts and merges; a special token's text is literal */
    uint8_t *kinds;                 /* owned, [n_vocab] enum token_kind */
    const struct pretok_rule *rule; /* static; NULL: SentencePiece, which `cuts` serves */
    bool pre_is_missing;            /* and `rule` is the default */
    struct spm_cuts cuts;
    bool add_space_prefix;      /* text that begins, or follows a special token, gets a space */
    struct special_set special; /* control, unknown and user-defined tokens */
    struct special_set user;    /* the user-defined ones, found in any text */
    int32_t *end_ids;           /* owned, ascending */
    size_t n_end_ids;
    int32_t bos, eos; /* -1: none */
    bool add_bos, add_eos;
};

/* Ids of tokens with a known spelling, -1 where the vocabulary has none. */
struct tok_named {
    int32_t ids[SPECIAL_N_NAMES];
};

struct err_text;
struct gguf;

/* Parts of tokenizer_new, after tokens and merges: negative with `e` for keys of a wrong type. */
int tok_load_bos_eos(const struct gguf *g, struct tokenizer *t, struct err_text *e);
int tok_load_ends(const struct gguf *g, struct tokenizer *t, const struct tok_named *named,
                  struct err_text *e);

#endif
