/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products: which way they take, for every format.  Few activation rows use blocks where
 * they lie (quant_direct.h), many a tile that is unpacked for them (quant_packed.h).
 */
#ifndef ENGINE_CPU_QUANT_SIMD_H
#define ENGINE_CPU_QUANT_SIMD_H

#include "engine/cpu/quant_packed.h"

#include <assert.h>

/* Formats whose decode has code of its own, and those that share some: one is longer to compile. */
#define QUANT_OWN(each)                                                                            \
    each(Q4_0) each(Q4_1) each(Q8_0) each(Q2_K) each(Q3_K) each(Q4_K) each(Q5_K) each(Q6_K)
#define QUANT_SHARED(each)                                                                         \
    each(Q5_0) each(Q5_1) each(IQ2_XS) each(IQ3_XXS) each(IQ3_S) each(IQ4_NL) each(IQ4_XS)         \
        each(MXFP4)

/* Functions for a format or a kind of packed tile: that is where the constants come from. */
#define UNPACK(name)                                                                               \
    static void unpack_##name(const uint8_t *p, uint32_t n, struct quant_group *g)                 \
    {                                                                                              \
        quant_unpack_group(TENSOR_##name, p, n, g);                                                \
    }
QUANT_OWN(UNPACK)
QUANT_SHARED(UNPACK)
#undef UNPACK

#define DIRECT(name)                                                                               \
    static void direct_##name(const struct direct_format *f, const struct matmul *m, uint32_t r0,  \
                              uint32_t r1)                                                         \
    {                                                                                              \
        (void)f;                                                                                   \
        direct_rows(TENSOR_##name, NULL, m, r0, r1);                                               \
    }
QUANT_OWN(DIRECT)
#undef DIRECT

static void direct_shared(const struct direct_format *f, const struct matmul *m, uint32_t r0,
                          uint32_t r1)
{
    direct_rows(0, f, m, r0, r1);
}

/* `name` stands for all formats whose packed kind is the same, see QUANT_KINDS. */
#define PACKED(name)                                                                               \
    static void packed_##name(int offset, const struct matmul *m, uint8_t *scratch, uint32_t r,    \
                              uint32_t n_r)                                                        \
    {                                                                                              \
        packed_all(packed_kind(TENSOR_##name), offset, m, scratch, r, n_r);                        \
    }
QUANT_KINDS(PACKED)
#undef PACKED
#define packed_Q4_K    packed_Q4_1
#define packed_Q5_K    packed_Q5_1
#define packed_IQ3_S   packed_Q5_0
#define packed_MXFP4   packed_Q5_0
#define packed_IQ3_XXS packed_Q8_0
#define packed_IQ4_NL  packed_Q8_0
#define packed_IQ4_XS  packed_Q8_0

struct quant_ways {
    void (*unpack)(const uint8_t *p, uint32_t n, struct quant_group *g);
    void (*direct)(const struct direct_format *f, const struct matmul *m, uint32_t r0, uint32_t r1);
    void (*packed)(int offset, const struct matmul *m, uint8_t *scratch, uint32_t r, uint32_t n_r);
};

static const struct quant_ways quant_ways[] = {
#define OWN(name)    [TENSOR_##name] = {unpack_##name, direct_##name, packed_##name},
#define SHARED(name) [TENSOR_##name] = {unpack_##name, direct_shared, packed_##name},
    QUANT_OWN(OWN) QUANT_SHARED(SHARED)
#undef OWN
#undef SHARED
};

static void matmul_quant(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    const struct quant_ways *way = &quant_ways[m->type];

    assert(quant_is(m->type));
    if (m->n_x <= DIRECT_X) {
        const struct direct_format f = {.unpack = way->unpack,
                                        .group_bytes = quant_group_bytes(m->type),
                                        .halves = quant_has_halves(m->type),
                                        .offset = quant_offset(m->type) != 0,
                                        .min = quant_is_min(m->type)};

        way->direct(&f, m, r0, r1);
        return;
    }
    const struct pack_format f = {.unpack = way->unpack,
                                  .group_bytes = quant_group_bytes(m->type),
                                  .kind = packed_kind(m->type)};
    for (uint32_t r = r0; r < r1; r += VF) {
        uint32_t n_r = r1 - r < VF ? r1 - r : VF;

        pack_tile(&f, (const uint8_t *)m->w + r * m->row_bytes, m->row_bytes, n_r,
                  m->k / QUANT_BLOCK, scratch);
        way->packed(quant_offset(m->type), m, scratch, r, n_r);
    }
}

#endif
