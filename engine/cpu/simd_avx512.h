/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector of the AVX-512 kernels: 16 floats, all lanes of kernels.h in one register.  The same
 * names as in simd_avx2.h, where they are explained.
 */
#ifndef ENGINE_CPU_SIMD_AVX512_H
#define ENGINE_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "engine/cpu/unroll.h"

enum {
    VF = 16,
    HALVES = 1,
    TILE_T = 6, /* 24 of the 32 registers accumulate */
};

#define TILE_CASES(call)                                                                           \
    if (n_t == 1)                                                                                  \
        call(1);                                                                                   \
    else if (n_t == 2)                                                                             \
        call(2);                                                                                   \
    else if (n_t <= 4)                                                                             \
        call(4);                                                                                   \
    else                                                                                           \
        call(6);
#define PACKED_CASES(call)                                                                         \
    if (n_t <= 4)                                                                                  \
        call(4);                                                                                   \
    else                                                                                           \
        call(6);

typedef __m512 vf;
typedef __m512i vi;

static ALWAYS_INLINE __mmask16 vf_mask(uint32_t n)
{
    return (__mmask16)((1U << n) - 1);
}

static ALWAYS_INLINE vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static ALWAYS_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static ALWAYS_INLINE vf vf_load(const float *p, uint32_t n)
{
    return n >= VF ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vf_mask(n), p);
}

static ALWAYS_INLINE void vf_store(float *p, vf v, uint32_t n)
{
    if (n >= VF)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, vf_mask(n), v);
}

static ALWAYS_INLINE vf vf_keep(vf v, vf old, uint32_t n)
{
    return n >= VF ? v : _mm512_mask_mov_ps(old, vf_mask(n), v);
}

static ALWAYS_INLINE __m256i load_u16s(const void *p, uint32_t n)
{
    return n >= VF ? _mm256_loadu_si256(p) : _mm256_maskz_loadu_epi16(vf_mask(n), p);
}

static ALWAYS_INLINE vf vf_load_f16(const void *p, uint32_t n)
{
    return _mm512_cvtph_ps(load_u16s(p, n));
}

static ALWAYS_INLINE vf vf_load_bf16(const void *p, uint32_t n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_u16s(p, n)), 16));
}

static ALWAYS_INLINE void store_u16s(void *p, __m256i v, uint32_t n)
{
    if (n >= VF)
        _mm256_storeu_si256(p, v);
    else
        _mm256_mask_storeu_epi16(p, vf_mask(n), v);
}

static ALWAYS_INLINE void vf_store_f16(void *p, vf v, uint32_t n)
{
    store_u16s(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

static ALWAYS_INLINE void vf_store_bf16(void *p, vf v, uint32_t n)
{
    __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16), round;
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

    round =
        _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    round = _mm512_srli_epi32(_mm512_add_epi32(u, round), 16);
    round = _mm512_mask_or_epi32(round, nan, high, _mm512_set1_epi32(0x40));
    store_u16s(p, _mm512_cvtepi32_epi16(round), n);
}

static ALWAYS_INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

static ALWAYS_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static ALWAYS_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static ALWAYS_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static ALWAYS_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static ALWAYS_INLINE vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

static ALWAYS_INLINE vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}

static ALWAYS_INLINE vf vi_floats(vi a)
{
    return _mm512_castsi512_ps(a);
}

static ALWAYS_INLINE vi vi_set1(int x)
{
    return _mm512_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

static ALWAYS_INLINE vi vi_halve(vi a)
{
    return _mm512_srai_epi32(a, 1);
}

static ALWAYS_INLINE vi vi_shl23(vi a)
{
    return _mm512_slli_epi32(a, 23);
}

static ALWAYS_INLINE void vf_store_i8(int8_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

static ALWAYS_INLINE __m256 fold16(const vf a[HALVES])
{
    return _mm256_add_ps(_mm512_castps512_ps256(a[0]), _mm512_extractf32x8_ps(a[0], 1));
}

#endif
