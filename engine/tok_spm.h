/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece vocabularies (`tokenizer.ggml.model` = "llama"): scores instead of merges.
 *
 * Of two neighbours whose joined text is a token, the one with the highest score joins first.  That
 * is byte-pair encoding whose merges are all ways to part a token in two others, ranked by score,
 * so the machinery of tok_bpe.h serves it; pieces begin as characters instead of bytes, and a
 * character without a token becomes tokens of its bytes.  U+2581, which stands for a space there,
 * is a space in everything here.
 */
#ifndef ENGINE_TOK_SPM_H
#define ENGINE_TOK_SPM_H

#include <stddef.h>
#include <stdint.h>

struct bpe;
struct buf;

/* Appends s[0..n) with a space for every U+2581.  0 or buf's errors. */
int spm_add_spaced(const char *s, size_t n, struct buf *out);

/* Longest text of a token that merging can produce; bounds what its ways of parting it cost. */
enum { SPM_MAX_BYTES = 1024 };

/*
 * Where text may be cut before merging without changing the result: between two characters that no
 * token has next to each other.  Bit c of joins[a]: some token has byte a at the end of a character
 * and c at the beginning of the next.
 */
struct spm_cuts {
    uint64_t joins[256][4];
};

/*
 * After the tokens, of which those that can be merged are valid UTF-8 of at most SPM_MAX_BYTES: the
 * merges, b->byte_sym, and the cuts.  scores[n_vocab]: of equal ones the leftmost pair joins first.
 * 0, -ENOMEM, or ERR_CAPACITY: more than BPE_MAX_MERGES merges.
 */
int spm_build(struct bpe *b, const float *scores, struct spm_cuts *ret);

/* The end of the piece of s[0..n), valid UTF-8, that begins at i < n. */
size_t spm_next(const struct spm_cuts *c, const char *s, size_t n, size_t i);

#endif
