/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes times bytes with AVX2: maddubs adds two products in 16 bits, where as many sums are kept as
 * fit (quant_sums16) before they are widened.
 */
#ifndef ENGINE_CPU_QUANT_AVX2_H
#define ENGINE_CPU_QUANT_AVX2_H

#include "engine/cpu/simd_avx2.h"

enum {
    QUANT_T = 4,  /* activation rows of a tile: their sums in 16 bits and in floats, 8 registers */
    QUANT_UP = 0, /* what signed integers are moved up by */
};

/* Formats, one for every kind of packed tile. */
#define QUANT_KINDS(each)                                                                          \
    each(Q4_0) each(Q4_1) each(Q5_0) each(Q5_1) each(Q8_0) each(Q2_K) each(Q3_K) each(Q6_K)        \
        each(IQ2_XS)

static ALWAYS_INLINE vf vi_to_floats(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Four bytes from memory in every lane. */
static ALWAYS_INLINE vi vi_load_set1(const void *p)
{
    int v;

    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

static ALWAYS_INLINE vi vi_madd16(vi a, vi b)
{
    return _mm256_madd_epi16(a, b);
}

#include "engine/cpu/quant_packed.h"

static ALWAYS_INLINE void quant_dots(const uint32_t n_t, const struct packed_kind k,
                                     const uint8_t *p, const int8_t *const *x, vi *s)
{
    vi mul = _mm256_set1_epi16(1);

    UNROLLED (c, QUANT_QUADS / k.sums16) {
        vi sum[QUANT_T];

        UNROLLED (q, k.sums16) {
            const uint32_t quad = c * k.sums16 + q;
            vi w = _mm256_loadu_si256((const __m256i *)(p + quad * PACKED_F)), w_abs = w;

            /* maddubs wants one side unsigned: the sign of the weight moves to the activation; -128
             * becomes 128, and two products of at most 128 * 127 do not saturate. */
            if (k.is_signed)
                w_abs = _mm256_abs_epi8(w);
            UNROLLED (t, n_t) {
                vi v = vi_load_set1(x[t] + (size_t)quad * 4);

                if (k.is_signed)
                    v = _mm256_sign_epi8(v, w);
                v = _mm256_maddubs_epi16(w_abs, v);
                sum[t] = q ? _mm256_add_epi16(sum[t], v) : v;
            }
        }
        if (k.halves && c * k.sums16 % 4 == 0) {
            vi both = _mm256_loadu_si256(
                (const __m256i *)(p + PACKED_Q + (size_t)(1 + k.min) * PACKED_F));

            /* One half's scale twice. */
            mul = c * k.sums16 < 4 ? _mm256_blend_epi16(both, _mm256_slli_epi32(both, 16), 0xaa)
                                   : _mm256_blend_epi16(_mm256_srli_epi32(both, 16), both, 0xaa);
        }
        UNROLLED (t, n_t) {
            vi v = _mm256_madd_epi16(sum[t], mul);

            s[t] = c || packed_begins(k) ? _mm256_add_epi32(s[t], v) : v;
        }
    }
}

#endif
