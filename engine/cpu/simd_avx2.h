/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector of the AVX2 kernels: 8 floats, so two of them make the 16 lanes of kernels.h.
 *
 * simd_avx512.h has the same names for 16 floats; the *_simd.h files are written in these names and
 * compiled once for each.  `n` always counts the lanes in use: VF of them is the constant that the
 * compiler sees in a main loop, fewer happen in a tail.
 */
#ifndef ENGINE_CPU_SIMD_AVX2_H
#define ENGINE_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "engine/cpu/unroll.h"

enum {
    VF = 8,     /* floats per vector */
    HALVES = 2, /* vectors per 16 lanes */
    TILE_T = 3, /* activation rows per tile of 4 weight rows: 12 of the 16 registers accumulate */
};

/* How many of them one piece of code is made for, see matmul_simd.h. */
#define TILE_CASES(call)                                                                           \
    if (n_t == 1)                                                                                  \
        call(1);                                                                                   \
    else if (n_t == 2)                                                                             \
        call(2);                                                                                   \
    else                                                                                           \
        call(3);
#define PACKED_CASES(call)                                                                         \
    if (n_t <= 2)                                                                                  \
        call(2);                                                                                   \
    else                                                                                           \
        call(3);

typedef __m256 vf;
typedef __m256i vi;

/* All ones in the first n of 8 lanes. */
static ALWAYS_INLINE __m256i vf_mask(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static ALWAYS_INLINE vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static ALWAYS_INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

/* The first n lanes from memory, the others 0. */
static ALWAYS_INLINE vf vf_load(const float *p, uint32_t n)
{
    return n >= VF ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}

static ALWAYS_INLINE void vf_store(float *p, vf v, uint32_t n)
{
    if (n >= VF)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, vf_mask(n), v);
}

/* The first n lanes of v, the others of old. */
static ALWAYS_INLINE vf vf_keep(vf v, vf old, uint32_t n)
{
    return n >= VF ? v : _mm256_blendv_ps(old, v, _mm256_castsi256_ps(vf_mask(n)));
}

/* n 16-bit values, the others 0. */
static ALWAYS_INLINE __m128i load_u16s(const void *p, uint32_t n)
{
    uint16_t part[VF] = {0};

    if (n >= VF)
        return _mm_loadu_si128(p);
    memcpy(part, p, n * sizeof(part[0]));
    return _mm_loadu_si128((const __m128i *)part);
}

static ALWAYS_INLINE vf vf_load_f16(const void *p, uint32_t n)
{
    return _mm256_cvtph_ps(load_u16s(p, n));
}

static ALWAYS_INLINE vf vf_load_bf16(const void *p, uint32_t n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_u16s(p, n)), 16));
}

static ALWAYS_INLINE void store_u16s(void *p, __m128i v, uint32_t n)
{
    uint16_t part[VF];

    if (n >= VF) {
        _mm_storeu_si128(p, v);
        return;
    }
    _mm_storeu_si128((__m128i *)part, v);
    memcpy(p, part, n * sizeof(part[0]));
}

static ALWAYS_INLINE void vf_store_f16(void *p, vf v, uint32_t n)
{
    store_u16s(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

static ALWAYS_INLINE void vf_store_bf16(void *p, vf v, uint32_t n)
{
    __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16), round, nan;

    round =
        _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    round = _mm256_srli_epi32(_mm256_add_epi32(u, round), 16);
    nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    high = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    round = _mm256_blendv_epi8(round, high, nan);
    store_u16s(
        p, _mm_packus_epi32(_mm256_castsi256_si128(round), _mm256_extracti128_si256(round, 1)), n);
}

/* n int8 values as floats. */
static ALWAYS_INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static ALWAYS_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static ALWAYS_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static ALWAYS_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static ALWAYS_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* a > b ? a : b, so b when either is NaN; and the other way round. */
static ALWAYS_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static ALWAYS_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static ALWAYS_INLINE vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

static ALWAYS_INLINE vi vf_bits(vf a)
{
    return _mm256_castps_si256(a);
}

static ALWAYS_INLINE vf vi_floats(vi a)
{
    return _mm256_castsi256_ps(a);
}

static ALWAYS_INLINE vi vi_set1(int x)
{
    return _mm256_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

static ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

/* Of values that are not negative. */
static ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

static ALWAYS_INLINE vi vi_halve(vi a)
{
    return _mm256_srai_epi32(a, 1);
}

static ALWAYS_INLINE vi vi_shl23(vi a)
{
    return _mm256_slli_epi32(a, 23);
}

/* Round to nearest even, values within int8. */
static ALWAYS_INLINE void vf_store_i8(int8_t *p, vf v)
{
    __m256i i = _mm256_cvtps_epi32(v);
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));

    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(h, h));
}

/* The first step of the tree: lanes 0-7 plus lanes 8-15. */
static ALWAYS_INLINE __m256 fold16(const vf a[HALVES])
{
    return _mm256_add_ps(a[0], a[1]);
}

#endif
