/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes times bytes with AVX-512 VNNI: vpdpbusd adds the four products of a quad to 32 bits.  It
 * multiplies unsigned by signed: signed weights are moved up by 128 first, and 128 times the sum of
 * the activations, taken off beforehand, moves the result back.  All of it is exact.
 */
#ifndef ENGINE_CPU_QUANT_AVX512_H
#define ENGINE_CPU_QUANT_AVX512_H

#include "engine/cpu/simd_avx512.h"

enum {
    QUANT_T = 8,
    QUANT_UP = 128,
};

/* Formats, one for every kind of packed tile; how many sums fit into 16 bits is nothing here. */
#define QUANT_KINDS(each) each(Q4_0) each(Q4_1) each(Q8_0) each(Q2_K) each(Q6_K)
#define packed_Q5_0       packed_Q4_0
#define packed_Q5_1       packed_Q4_1
#define packed_Q3_K       packed_Q6_K
#define packed_IQ2_XS     packed_Q6_K

static ALWAYS_INLINE vf vi_to_floats(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static ALWAYS_INLINE vi vi_load_set1(const void *p)
{
    int v;

    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

static ALWAYS_INLINE vi vi_madd16(vi a, vi b)
{
    return _mm512_madd_epi16(a, b);
}

#include "engine/cpu/quant_packed.h"

static ALWAYS_INLINE void quant_dots(const uint32_t n_t, const struct packed_kind k,
                                     const uint8_t *p, const int8_t *const *x, vi *s)
{
    const vi up = _mm512_set1_epi8((char)QUANT_UP), zero = _mm512_setzero_si512();
    vi first[QUANT_T];

    UNROLLED (t, n_t) {
        if (!packed_begins(k))
            s[t] = zero;
        first[t] = zero;
    }
    UNROLLED (q, QUANT_QUADS) {
        vi w = _mm512_loadu_si512(p + q * PACKED_F);

        if (k.is_signed)
            w = _mm512_xor_si512(w, up);
        if (k.halves && q == QUANT_QUADS / 2)
            UNROLLED (t, n_t) {
                first[t] = s[t];
                s[t] = zero;
            }
        UNROLLED (t, n_t)
            s[t] = _mm512_dpbusd_epi32(s[t], w, vi_load_set1(x[t] + (size_t)q * 4));
    }
    if (k.halves) {
        vi both = _mm512_loadu_si512(p + PACKED_Q + (size_t)(1 + k.min) * PACKED_F);
        vi lo = _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16),
           hi = _mm512_srai_epi32(both, 16);

        UNROLLED (t, n_t)
            s[t] = _mm512_add_epi32(_mm512_mullo_epi32(first[t], lo), _mm512_mullo_epi32(s[t], hi));
    }
}

#endif
