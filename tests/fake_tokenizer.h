/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer for tests: implements engine/tokenizer.h over a table of pieces. */
#ifndef TESTS_FAKE_TOKENIZER_H
#define TESTS_FAKE_TOKENIZER_H

#include "engine/tokenizer.h"

struct fake_piece {
    const char *s; /* borrowed */
    size_t n;
};

enum { FAKE_END = 0 }; /* the one end token; its piece is never text */

/* Other pieces that begin with "<|" are of kind TOKEN_CONTROL too, yet text like any other. */

/* `pieces` [n_vocab] is borrowed. */
struct tokenizer *fake_tokenizer_new(const struct fake_piece *pieces, uint32_t n_vocab);

#endif
