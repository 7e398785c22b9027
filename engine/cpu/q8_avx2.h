/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Q8_0 tile with AVX2.  A block is one vector of 32 bytes and its 8 quad sums one vector of
 * lanes: 0-7 for the even blocks, 8-15 for the odd ones.
 */
#ifndef ENGINE_CPU_Q8_AVX2_H
#define ENGINE_CPU_Q8_AVX2_H

#include "engine/cpu/q8_simd.h"

/* The scales of block b of the 4 rows. */
static ALWAYS_INLINE __m128 q8_scales(const uint8_t *const *w, uint32_t b)
{
    uint16_t h[TILE_R];

    UNROLLED (r, TILE_R)
        memcpy(&h[r], w[r] + (size_t)b * Q8_BLOCK_BYTES, sizeof(h[r]));
    return _mm_cvtph_ps(
        _mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], 0, 0, 0, 0));
}

static void q8_pack_scales(const uint8_t *const *w, uint32_t n_blocks, float *scales)
{
    for (uint32_t b = 0; b < n_blocks; b++)
        _mm_storeu_ps(scales + (size_t)b * TILE_R, q8_scales(w, b));
}

/*
 * Block b of all rows.  maddubs wants one side unsigned, so the sign of the weight moves to the
 * activation; -128 becomes 128 unsigned, and two products of at most 128 * 127 do not saturate.
 */
static ALWAYS_INLINE void q8_block(const uint32_t n_t, const bool convert, const struct q8_tile *q,
                                   uint32_t b, vf (*a)[TILE_R])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m128 dw = convert ? q8_scales(q->w, b) : _mm_loadu_ps(q->scales + (size_t)b * TILE_R);
    float d[TILE_T][TILE_R]; /* by way of memory: a broadcast from there costs no shuffle */

    UNROLLED (t, n_t)
        _mm_storeu_ps(d[t], _mm_mul_ps(dw, _mm_broadcast_ss(q->dx[t] + b)));
    UNROLLED (r, TILE_R) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(q->w[r] + (size_t)b * Q8_BLOCK_BYTES + 2));
        __m256i w_abs = _mm256_abs_epi8(w);

        UNROLLED (t, n_t) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(q->x[t] + (size_t)b * Q8_BLOCK));
            __m256i s = _mm256_maddubs_epi16(w_abs, _mm256_sign_epi8(x, w));
            vf f = _mm256_cvtepi32_ps(_mm256_madd_epi16(s, ones));

            a[t][r] = vf_fma(f, _mm256_broadcast_ss(&d[t][r]), a[t][r]);
        }
    }
}

static ALWAYS_INLINE void q8_stream_block(const struct q8_tile *q, uint32_t b, const uint32_t r,
                                          vf *a)
{
    const uint8_t *p = q->w[r] + (size_t)b * Q8_BLOCK_BYTES;
    __m256i w = _mm256_loadu_si256((const __m256i *)(p + 2));
    __m256i x = _mm256_loadu_si256((const __m256i *)(q->x[0] + (size_t)b * Q8_BLOCK));
    __m256i s = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    uint16_t half;
    __m128 d;

    memcpy(&half, p, sizeof half);
    d = _mm_mul_ss(_mm_cvtph_ps(_mm_cvtsi32_si128(half)), _mm_load_ss(q->dx[0] + b));
    *a = vf_fma(_mm256_cvtepi32_ps(_mm256_madd_epi16(s, _mm256_set1_epi16(1))),
                _mm256_broadcastss_ps(d), *a);
}

/* One row after the other, see stream_row. */
static ALWAYS_INLINE void q8_stream_row(const struct q8_tile *q, struct lanes *a, const uint32_t r)
{
    uint32_t b = 0;

    for (; b + 2 <= q->n_blocks; b += 2) {
        prefetch(q->w[r], STREAM_AHEAD + (size_t)b * Q8_BLOCK_BYTES);
        q8_stream_block(q, b, r, &a->of[0][0][r]);
        q8_stream_block(q, b + 1, r, &a->of[1][0][r]);
    }
    if (b < q->n_blocks)
        q8_stream_block(q, b, r, &a->of[0][0][r]);
}

static ALWAYS_INLINE void q8_tile_of(const uint32_t n_t, const bool convert,
                                     const struct q8_tile *q, __m128 *ret)
{
    struct lanes a;

    UNROLLED (h, HALVES)
        lanes_clear(n_t, a.of[h]);
    if (n_t == 1 && convert) {
        UNROLLED (r, TILE_R)
            q8_stream_row(q, &a, r);
    } else {
        UNROLLED (h, HALVES)
            for (uint32_t b = h; b < q->n_blocks; b += 2) {
                UNROLLED_BY (r, h, TILE_R, HALVES)
                    prefetch(q->w[r], q->ahead + (size_t)(b - h) * 32);
                q8_block(n_t, convert, q, b, a.of[h]);
            }
    }
    /* A line of 64 bytes was asked for per pair of blocks, which are 68: the rest follows here. */
    if (q->ahead > 0 && !(n_t == 1 && convert))
        for (size_t o = (size_t)q->n_blocks / 2 * 64; o < (size_t)q->n_blocks * Q8_BLOCK_BYTES;
             o += 64)
            UNROLLED (r, TILE_R)
                prefetch(q->w[r], q->ahead + o);
    lanes_sum(n_t, &a, ret);
}

#endif
