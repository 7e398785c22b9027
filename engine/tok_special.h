/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Special tokens inside text, and the ones that a vocabulary marks only by how they are spelt.
 */
#ifndef ENGINE_TOK_SPECIAL_H
#define ENGINE_TOK_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe;

/* Longest text of a special token; bounds what looking for one costs at each byte. */
enum { SPECIAL_MAX_BYTES = 1024 };

/* Tokens that are found by their text, sorted by it.  Read-only once made. */
struct special_set {
    const struct bpe *bpe; /* borrowed: has the texts */
    uint32_t *ids;         /* owned */
    uint32_t n;
    uint32_t first[257]; /* those that begin with byte c: [first[c], first[c + 1]) */
};

/*
 * Takes the ids whose entry in kinds[n_vocab] is in `kind_mask` (bit 1 << kind) and whose text is
 * UTF-8 and not empty; of equal texts the lowest id.  0 or -ENOMEM.
 */
int special_set_init(struct special_set *s, const struct bpe *b, const uint8_t *kinds,
                     unsigned int kind_mask);
void special_set_done(struct special_set *s);

/* The longest token that text[0..n) begins with: its id and *ret_len, or -1. */
int32_t special_set_match(const struct special_set *s, const char *text, size_t n, size_t *ret_len);

/* Distance to the next byte that begins one of the tokens; n when none does. */
size_t special_set_skip(const struct special_set *s, const char *text, size_t n);

/*
 * Roles that vocabularies give by spelling where the file has no key for them.
 * A token with a role is a control token whatever the file calls it, except in ROLE_SHOWN.
 */
enum special_role {
    ROLE_END, /* ends a generation */
    ROLE_FIM_PREFIX,
    ROLE_FIM_SUFFIX,
    ROLE_FIM_MIDDLE,
    ROLE_FIM_PAD, /* this and the next two end a generation too */
    ROLE_FIM_REPO,
    ROLE_FIM_SEPARATOR,
    ROLE_SHOWN, /* parts of a message that gpt-oss wants printed */
    ROLE_N,
};

/* Spellings known here, in the order of preference within a role. */
enum { SPECIAL_N_NAMES = 61 };
/* NULL behind the last one. */
const char *special_name(size_t i, enum special_role *ret_role);
/* The index of a spelling, or -1. */
int special_name_find(const char *s, size_t n);

#endif
