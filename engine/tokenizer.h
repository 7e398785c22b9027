/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back: byte-level BPE with the pre-tokenizers of tok_pretok.h, and
 * SentencePiece with byte fallback (tok_spm.h).
 *
 * Built from the untrusted arrays of a GGUF file.  Immutable after tokenizer_new, so that the
 * front threads share one; encoding allocates only what its input justifies and takes
 * O(n log n) on any input (a merge heap for long pieces).
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err_text;
struct gguf;
struct tokenizer;

enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* A growable list of ids. */
struct token_list {
    int32_t *ids; /* owned */
    size_t n, cap;
};
void token_list_done(struct token_list *l);
/* 0 or -ENOMEM. */
int token_list_add(struct token_list *l, int32_t id);

/*
 * ERR_UNSUPPORTED by name for another tokenizer model (WordPiece, Unigram, …) or an unknown
 * pre-tokenizer; ERR_DAMAGED for arrays that contradict each other; ERR_CAPACITY past 4 GiB of
 * text; -ENOMEM.
 */
int tokenizer_new(const struct gguf *g, struct tokenizer **ret, struct err_text *e);
void tokenizer_free(struct tokenizer *t);

/* What a person should know about it, or NULL: the file names no pre-tokenizer, so texts are cut as
 * `default` says, which may not be how the model learnt to read. */
const char *tokenizer_doubt(const struct tokenizer *t);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
/* The most bytes of text that become one token, at least 1. */
size_t tokenizer_longest(const struct tokenizer *t);

/* Bytes [begin, end) of a text. */
struct text_span {
    size_t begin, end;
};

struct tokenize_options {
    bool add_special;   /* BOS/EOS as the file asks for */
    bool parse_special; /* control tokens in the text are found by their text; user-defined always
                           are */
    /*
     * With parse_special: parts of the text that are somebody's data, ascending and apart.  No
     * control token is found that has a byte in one of them, so that a message cannot open another.
     */
    const struct text_span *data; /* [n_data] */
    size_t n_data;
};
/*
 * Appends to `out`.  `text` may hold any bytes; an undecodable byte reads as U+FFFD, and for a
 * SentencePiece vocabulary U+2581 as a space.  0, -ENOMEM, or -E2BIG past 1 GiB; `out` is as before
 * on failure.
 */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     const struct tokenize_options *o, struct token_list *out);

/*
 * The bytes of one token, as generation emits them: control and unused tokens give nothing unless
 * `special`.  Borrowed from the tokenizer; *ret_n is their count.  An id out of range gives
 * nothing.
 */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, size_t *ret_n);

/*
 * The same of a token that follows another (-1: that begins a text): without the space that
 * SentencePiece vocabularies put before text that begins or follows a special token.  The pieces of
 * an encoded text are this text.
 */
const char *tokenizer_piece_after(const struct tokenizer *t, int32_t before, int32_t id,
                                  bool special, size_t *ret_n);

/*
 * Whole text, raw bytes; invalid UTF-8 is for the caller to repair (utf8_stream).  0, or buf's
 * errors with `out` as before.
 */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                     struct buf *out);

enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);
/* The control or user-defined token with exactly this text, or -1. */
int32_t tokenizer_find_special(const struct tokenizer *t, const char *text);

/* Ids that end a generation, ascending. */
const int32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *ret_n);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);

#endif
