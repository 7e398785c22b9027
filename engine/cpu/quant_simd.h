/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products: which way they take, for every format.  Few activation rows use blocks where
 * they lie (quant_direct.h), many a tile that is unpacked for them (quant_packed.h).
 */
#ifndef ENGINE_CPU_QUANT_SIMD_H
#define ENGINE_CPU_QUANT_SIMD_H

#include "engine/cpu/quant_packed.h"

#include <assert.h>

#define QUANT_TYPES(each)                                                                          \
    each(Q4_0) each(Q4_1) each(Q5_0) each(Q5_1) each(Q8_0) each(Q2_K) each(Q3_K) each(Q4_K)        \
        each(Q5_K) each(Q6_K) each(IQ2_XS) each(IQ3_XXS) each(IQ3_S) each(IQ4_NL) each(IQ4_XS)     \
            each(MXFP4)

/* One function per format and one per kind of packed tile: that is where the constants come from.
 */
#define DIRECT(name)                                                                               \
    static void direct_##name(const struct matmul *m, uint32_t r0, uint32_t r1)                    \
    {                                                                                              \
        direct_rows(TENSOR_##name, m, r0, r1);                                                     \
    }
QUANT_TYPES(DIRECT)
#undef DIRECT

#define PACK(name)                                                                                 \
    static void pack_##name(const uint8_t *w, size_t w_ld, uint32_t n_r, uint32_t n_blocks,        \
                            uint8_t *tile)                                                         \
    {                                                                                              \
        pack_tile(TENSOR_##name, w, w_ld, n_r, n_blocks, tile);                                    \
    }
QUANT_TYPES(PACK)
#undef PACK

/* `name` stands for all formats whose packed kind is the same. */
#define PACKED(name)                                                                               \
    static void packed_##name(int offset, const struct matmul *m, const uint8_t *tile, uint32_t r, \
                              uint32_t n_r)                                                        \
    {                                                                                              \
        packed_all(packed_kind(TENSOR_##name), offset, m, tile, r, n_r);                           \
    }
PACKED(Q4_0)
PACKED(Q4_1)
PACKED(Q5_0)
PACKED(Q5_1)
PACKED(Q8_0)
PACKED(Q2_K)
PACKED(Q3_K)
PACKED(Q6_K)
PACKED(IQ2_XS)
PACKED(IQ3_XXS)
#undef PACKED
#define packed_Q4_K   packed_Q4_1
#define packed_Q5_K   packed_Q5_1
#define packed_IQ3_S  packed_Q5_0
#define packed_MXFP4  packed_Q5_0
#define packed_IQ4_NL packed_Q8_0
#define packed_IQ4_XS packed_Q8_0

struct quant_ways {
    void (*direct)(const struct matmul *m, uint32_t r0, uint32_t r1);
    void (*pack)(const uint8_t *w, size_t w_ld, uint32_t n_r, uint32_t n_blocks, uint8_t *tile);
    void (*packed)(int offset, const struct matmul *m, const uint8_t *tile, uint32_t r,
                   uint32_t n_r);
};

static const struct quant_ways quant_ways[] = {
#define WAYS(name) [TENSOR_##name] = {direct_##name, pack_##name, packed_##name},
    QUANT_TYPES(WAYS)
#undef WAYS
};

static void matmul_quant(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    const struct quant_ways *way = &quant_ways[m->type];

    assert(quant_is(m->type));
    if (m->n_x <= DIRECT_X) {
        way->direct(m, r0, r1);
        return;
    }
    for (uint32_t r = r0; r < r1; r += VF) {
        uint32_t n_r = r1 - r < VF ? r1 - r : VF;

        way->pack((const uint8_t *)m->w + r * m->row_bytes, m->row_bytes, n_r, m->k / QUANT_BLOCK,
                  scratch);
        way->packed(quant_offset(m->type), m, scratch, r, n_r);
    }
}

#endif
