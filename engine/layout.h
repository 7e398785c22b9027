/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where every byte of a model's state lies: inside a unit and inside a checkpoint.
 *
 * The same bytes are used by every backend and in every tier, so this is the one place that knows.
 */
#ifndef ENGINE_LAYOUT_H
#define ENGINE_LAYOUT_H

#include "engine/cpu/kernels.h"

#include <stddef.h>
#include <stdint.h>

struct err_text;
struct model;

struct layout {
    enum kv_type kv_type;
    uint32_t elem_bytes;
    uint32_t n_planes; /* attention layers, the draft layer last */
    uint32_t n_head_kv;
    uint32_t head_dim;
    size_t head_bytes; /* [64][head_dim] of one K or V head */
    size_t unit_bytes; /* [plane][K|V][kv head][token][dim] */

    uint32_t n_dn;          /* DeltaNet layers */
    uint32_t conv_floats;   /* [taps-1][channels] */
    uint32_t state_floats;  /* [value head][dk][dv] */
    uint32_t hidden_floats; /* n_embd with a draft layer, else 0 */
    uint64_t checkpoint_bytes;
    uint32_t checkpoint_units;
};

/* Overflow-checked; ERR_UNSUPPORTED by name for an unknown kv_type ("f16" when NULL). */
int layout_init(struct layout *l, const struct model *m, const char *kv_type, struct err_text *e);

/* Byte offsets in a unit. */
static inline size_t layout_k(const struct layout *l, uint32_t plane, uint32_t head)
{
    return ((size_t)plane * 2 * l->n_head_kv + head) * l->head_bytes;
}
static inline size_t layout_v(const struct layout *l, uint32_t plane, uint32_t head)
{
    return (((size_t)plane * 2 + 1) * l->n_head_kv + head) * l->head_bytes;
}

/* Float offsets in a checkpoint, and in the live state of a sequence, which has the same shape. */
static inline size_t layout_conv(const struct layout *l, uint32_t i_dn)
{
    return (size_t)i_dn * ((size_t)l->conv_floats + l->state_floats);
}
static inline size_t layout_state(const struct layout *l, uint32_t i_dn)
{
    return layout_conv(l, i_dn) + l->conv_floats;
}
static inline size_t layout_hidden(const struct layout *l)
{
    return layout_conv(l, l->n_dn);
}

/* Zeroes the rows of positions n_tokens.. of the page in `unit` (1 <= n_tokens <= 64). */
void layout_zero_tail(const struct layout *l, uint8_t *unit, uint32_t n_tokens);

#endif
