/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen lanes in vectors, their tree, the vector exp.  Included after simd_avx2.h or
 * simd_avx512.h.
 */
#ifndef ENGINE_CPU_LANES_SIMD_H
#define ENGINE_CPU_LANES_SIMD_H

#include "engine/cpu/vmath.h"

/* How many of the n values left belong to vector h of their group of 16: at most VF, at least 0. */
static ALWAYS_INLINE uint32_t lanes_in(uint32_t n, uint32_t h)
{
    return n <= h * VF ? 0 : n - h * VF < VF ? n - h * VF : VF;
}

/* The rest of the tree for one sum of 8 lanes. */
static ALWAYS_INLINE float tree8(__m256 a)
{
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

/* The same for four sums at once. */
static ALWAYS_INLINE __m128 tree8x4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    /* Halves of 128 bits: a and c side by side, b and d; l += l+4. */
    __m256 ac =
        _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
    __m256 bd =
        _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
    /* Pairs: a0 a1 b0 b1 | c0 c1 d0 d1; l += l+2. */
    __m256 p = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x44), _mm256_shuffle_ps(ac, bd, 0xee));
    __m128 lo = _mm256_castps256_ps128(p), hi = _mm256_extractf128_ps(p, 1);

    return _mm_add_ps(_mm_shuffle_ps(lo, hi, 0x88), _mm_shuffle_ps(lo, hi, 0xdd));
}

static ALWAYS_INLINE float tree16(const vf a[HALVES])
{
    return tree8(fold16(a));
}

static ALWAYS_INLINE float load_half(const void *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof(h));
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

/* One dot product of floats. */
static inline float dot_f32(const float *w, const float *x, uint32_t k)
{
    vf a[HALVES] = {vf_zero()};
    uint32_t i = 0;

    for (uint32_t h = 1; h < HALVES; h++)
        a[h] = vf_zero();
    for (; i + 16 <= k; i += 16)
        for (uint32_t h = 0; h < HALVES; h++)
            a[h] = vf_fma(vf_load(w + i + h * VF, VF), vf_load(x + i + h * VF, VF), a[h]);
    for (uint32_t h = 0; h < HALVES; h++) {
        uint32_t n = lanes_in(k - i, h);

        if (n > 0)
            a[h] = vf_keep(vf_fma(vf_load(w + i + h * VF, n), vf_load(x + i + h * VF, n), a[h]),
                           a[h], n);
    }
    return tree16(a);
}

/* vm_exp, lane by lane. */
static ALWAYS_INLINE vf vf_exp(vf x)
{
    vf t, n, r, p;
    vi i, i_half;

    x = vf_min(vf_set1(VM_EXP_MAX), x);
    x = vf_max(vf_set1(VM_EXP_MIN), x);
    t = vf_fma(x, vf_set1(VM_LOG2E), vf_set1(VM_ROUND));
    n = vf_sub(t, vf_set1(VM_ROUND));
    r = vf_fma(n, vf_set1(-VM_LN2_HI), x);
    r = vf_fma(n, vf_set1(-VM_LN2_LO), r);
    p = vf_set1(VM_EXP_C6);
    p = vf_fma(p, r, vf_set1(VM_EXP_C5));
    p = vf_fma(p, r, vf_set1(VM_EXP_C4));
    p = vf_fma(p, r, vf_set1(VM_EXP_C3));
    p = vf_fma(p, r, vf_set1(VM_EXP_C2));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    i = vi_sub(vf_bits(t), vf_bits(vf_set1(VM_ROUND)));
    i_half = vi_halve(i);
    p = vf_mul(p, vi_floats(vi_shl23(vi_add(i_half, vi_set1(127)))));
    return vf_mul(p, vi_floats(vi_shl23(vi_add(vi_sub(i, i_half), vi_set1(127)))));
}

/* 1 + exp(-x), the denominator of sigmoid and silu. */
static ALWAYS_INLINE vf vf_one_plus_exp_neg(vf x)
{
    return vf_add(vf_set1(1.0f), vf_exp(vf_neg(x)));
}

/* The running maximum of n values, NaN left out: x wins only where it is greater. */
static ALWAYS_INLINE float max_f32(const float *x, uint32_t n)
{
    vf m = vf_set1(-INFINITY);
    float lane[VF], r = -INFINITY;
    uint32_t i = 0;

    for (; i + VF <= n; i += VF)
        m = vf_max(vf_load(x + i, VF), m);
    if (i < n)
        m = vf_keep(vf_max(vf_load(x + i, n - i), m), m, n - i);
    vf_store(lane, m, VF);
    for (i = 0; i < VF; i++)
        r = lane[i] > r ? lane[i] : r;
    return r + 0.0f;
}

#endif
