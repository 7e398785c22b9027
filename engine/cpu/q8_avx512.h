/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Q8_0 tile with AVX-512 VNNI.  Two blocks fill a register.  Their quads are interleaved there,
 * so that the two scales, 8 bytes from memory, can be broadcast without a shuffle: register lane 2j
 * is lane j of kernels.h (even block), 2j + 1 is lane 8 + j (odd block).
 */
#ifndef ENGINE_CPU_Q8_AVX512_H
#define ENGINE_CPU_Q8_AVX512_H

#include "engine/cpu/q8_simd.h"

/* Blocks b and b + 1 of 4 rows; the odd block is absent behind an odd number of them, and scales 0.
 */
static ALWAYS_INLINE __m256 q8_pair_scales(const uint8_t *const *w, uint32_t b, const bool both)
{
    uint16_t h[TILE_R][2] = {{0}};
    __m128i v;

    UNROLLED (r, TILE_R) {
        memcpy(&h[r][0], w[r] + (size_t)b * Q8_BLOCK_BYTES, sizeof(h[r][0]));
        if (both)
            memcpy(&h[r][1], w[r] + (size_t)(b + 1) * Q8_BLOCK_BYTES, sizeof(h[r][1]));
    }
    v = _mm_setr_epi16((short)h[0][0], (short)h[0][1], (short)h[1][0], (short)h[1][1],
                       (short)h[2][0], (short)h[2][1], (short)h[3][0], (short)h[3][1]);
    return _mm256_cvtph_ps(v);
}

static void q8_pack_scales(const uint8_t *const *w, uint32_t n_blocks, float *scales)
{
    for (uint32_t b = 0; b < n_blocks; b += 2)
        _mm256_storeu_ps(scales + (size_t)b * TILE_R, q8_pair_scales(w, b, b + 1 < n_blocks));
}

/* Even block in the even dwords, odd block in the odd ones. */
static ALWAYS_INLINE __m512i interleave(__m512i v)
{
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);

    return _mm512_permutexvar_epi32(order, v);
}

/*
 * vpdpbusd multiplies unsigned by signed: the weights are moved up by 128, and 128 times the sum of
 * each quad of activations, taken off beforehand, moves the result back.  All of it is exact.
 */
static ALWAYS_INLINE void q8_pair(const uint32_t n_t, const bool convert, const bool both,
                                  const struct q8_tile *q, uint32_t b, vf (*a)[TILE_R])
{
    const __m512i offset = _mm512_set1_epi8((char)0x80), zero = _mm512_setzero_si512();
    __m256 dw =
        convert ? q8_pair_scales(q->w, b, both) : _mm256_loadu_ps(q->scales + (size_t)b * TILE_R);
    double d[TILE_T][TILE_R]; /* pairs of scales */
    __m512i w[TILE_R];

    UNROLLED (t, n_t) {
        const float *dx = q->dx[t] + b;
        float pair[2] = {dx[0], both ? dx[1] : 0};
        double pd;

        memcpy(&pd, pair, sizeof(pd));
        _mm256_storeu_ps((float *)d[t], _mm256_mul_ps(dw, _mm256_castpd_ps(_mm256_set1_pd(pd))));
    }
    UNROLLED (r, TILE_R) {
        const uint8_t *p = q->w[r] + (size_t)b * Q8_BLOCK_BYTES + 2;
        __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));

        v = _mm512_inserti64x4(v,
                               both ? _mm256_loadu_si256((const __m256i *)(p + Q8_BLOCK_BYTES))
                                    : _mm256_setzero_si256(),
                               1);
        w[r] = _mm512_xor_si512(interleave(v), offset);
    }
    UNROLLED (t, n_t) {
        const int8_t *p = q->x[t] + (size_t)b * Q8_BLOCK;
        __m512i x = both ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(0xffffffffU, p);
        __m512i back;

        x = interleave(x);
        back = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, offset, x));
        UNROLLED (r, TILE_R) {
            vf f = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(back, w[r], x));
            vf scale = _mm512_castpd_ps(_mm512_set1_pd(d[t][r]));

            a[t][r] =
                both ? vf_fma(f, scale, a[t][r]) : _mm512_mask3_fmadd_ps(f, scale, a[t][r], 0x5555);
        }
    }
}

static ALWAYS_INLINE void q8_tile_of(const uint32_t n_t, const bool convert,
                                     const struct q8_tile *q, __m128 *ret)
{
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    struct lanes a;
    uint32_t b = 0;

    lanes_clear(n_t, a.of[0]);
    /* A line of 64 bytes per pair of blocks, which are 68: the rest follows behind the loop. */
    for (; b + 2 <= q->n_blocks; b += 2) {
        UNROLLED (r, TILE_R)
            prefetch(q->w[r], q->ahead + (size_t)b * 32);
        q8_pair(n_t, convert, true, q, b, a.of[0]);
    }
    if (q->ahead > 0)
        for (size_t o = (size_t)b * 32; o < (size_t)q->n_blocks * Q8_BLOCK_BYTES; o += 64)
            UNROLLED (r, TILE_R)
                prefetch(q->w[r], q->ahead + o);
    if (b < q->n_blocks)
        q8_pair(n_t, convert, false, q, b, a.of[0]);
    UNROLLED (t, n_t)
        UNROLLED (r, TILE_R)
            a.of[0][t][r] = _mm512_permutexvar_ps(order, a.of[0][t][r]);
    lanes_sum(n_t, &a, ret);
}

#endif
