/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The patterns of pre-tokenizers as scanners written by hand, each in time linear in the text.
 *
 * A scanner gets a segment that ends at `end` and says where the piece ends that begins at i: a
 * match of its pattern, or the gap up to the next match.  It is called with i at a piece's
 * beginning only, from left to right, and i < end.
 */
#ifndef ENGINE_TOK_SCAN_H
#define ENGINE_TOK_SCAN_H

#include <stddef.h>

struct scan_text {
    const char *s; /* borrowed, valid UTF-8 */
    size_t n;
    /* Of superbpe and tiny_aya: up to here every third digit is a cut, so that a run of digits is
       counted once. */
    size_t digits_end;
};

typedef size_t scan_fn(struct scan_text *t, size_t end, size_t i);

/* Families that cut everything; what they match is written at their definitions. */
scan_fn scan_gpt2, scan_llama3, scan_qwen2, scan_qwen35, scan_seed_coder, scan_tekken, scan_gpt4o;
scan_fn scan_deepseek_v3; /* has gaps: numbers, controls */

/* Parts that lists of patterns are made of. */
scan_fn scan_numbers;          /* \p{N}+ */
scan_fn scan_each_number;      /* \p{N} */
scan_fn scan_numbers_by_three; /* \p{N}{1,3} */
scan_fn scan_three_digits;     /* [0-9][0-9][0-9] */
scan_fn scan_each_newline;     /* [\r\n] */
scan_fn scan_default_marks;    /* [\p{P}\$\+<=>\^~\|]+ */
scan_fn scan_falcon_marks;     /* the same with ` */
scan_fn scan_spaced_letters;   /* \s?\p{L}+ */
scan_fn scan_spaced_marks;     /* \s?\p{P}+ */
scan_fn scan_spaced_cased;     /* deepseek-llm: \s?[letters with case]+ */
scan_fn scan_spaced_ascii;     /* deepseek-llm: \s?[!-/:-~ and their wide forms]+ */
scan_fn scan_last_spaces;      /* \s+$ */
scan_fn scan_asian;            /* [U+0800-U+9FA5 U+AC00-U+D7FF]+ */
scan_fn scan_han_kana;         /* [U+4E00-U+9FA5 U+3040-U+30FF]+ */
scan_fn scan_poro;             /* " ?[^(\s|.,!?...]+" */
scan_fn scan_superbpe;         /* (?=(\d{3})+(?!\d)): cuts, takes nothing */
scan_fn scan_tiny_aya;         /* \d{1,3}(?=(?:\d{3})*\b) */

#endif
