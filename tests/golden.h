/* SPDX-License-Identifier: Apache-2.0 */
/* The golden files of tests/data. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include "engine/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

struct json_t;

struct golden {
    char *prompt_text, *text; /* rendered prompt; what the model says */
    struct token_list prompt, greedy;
};

/* tests/data/NAME, in a static buffer that the next call reuses. */
const char *golden_path(const char *name);
/* Loads a .jsonl of needle's form; a fault ends the program.  Returns the number of cases. */
size_t golden_load(const char *name, struct golden **ret);
void golden_free(struct golden *g, size_t n);
/* A little-endian float32 .npy of rows of n_cols (leading dimensions of 1 aside); malloc'ed. */
float *golden_npy(const char *name, size_t *ret_rows, size_t n_cols);
/* The largest difference from [[id, natural logarithm of its probability], ...]. */
double golden_top_difference(const float *logits, uint32_t n_vocab, const struct json_t *top);

#endif
