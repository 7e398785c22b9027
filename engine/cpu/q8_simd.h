/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Q8_0 products of integers and the quantisation of activations.  Integer sums are exact, so only
 * the float steps have an order to keep: one fma per quad of elements, blocks in order.
 */
#ifndef ENGINE_CPU_Q8_SIMD_H
#define ENGINE_CPU_Q8_SIMD_H

#include "engine/cpu/matmul_simd.h"

static void simd_quantize_q8(const float *x, uint32_t k, int8_t *q, float *d)
{
    for (uint32_t b = 0; b < k / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        vi max = vi_set1(0);
        uint32_t lane[VF], m = 0;
        float scale, inv;

        /* As integers, so that NaN is the largest and no order of comparing changes the result. */
        UNROLL for (uint32_t i = 0; i < Q8_BLOCK; i += VF)
            max = vi_max(vi_and(vf_bits(vf_load(x + i, VF)), vi_set1(0x7fffffff)), max);
        memcpy(lane, &max, sizeof(lane));
        for (uint32_t i = 0; i < VF; i++)
            m = lane[i] > m ? lane[i] : m;
        scale = vm_float(m) / 127.0f;
        if (scale < 0x1p-126f) /* see kernels_c.c */
            scale = 0;
        d[b] = scale;
        if (scale == 0 || !isfinite(scale)) {
            memset(q, 0, Q8_BLOCK);
            continue;
        }
        inv = 1.0f / scale;
        UNROLL for (uint32_t i = 0; i < Q8_BLOCK; i += VF)
            vf_store_i8(q + i, vf_mul(vf_load(x + i, VF), vf_set1(inv)));
    }
}

/* Floats per row of scales: whole vectors, so that loops over blocks need no tail. */
static uint32_t scale_ld(uint32_t k)
{
    return (k / Q8_BLOCK + 15) & ~15U;
}

/* The scales of one row of weights, as floats; those behind the last block are 0. */
static void scales_of(const uint8_t *w, uint32_t n_blocks, float *d)
{
    uint32_t b = 0;

    for (; b + 8 <= n_blocks; b += 8, w += 8 * Q8_BLOCK_BYTES) {
        uint16_t h[8];

        UNROLL for (uint32_t i = 0; i < 8; i++)
            memcpy(&h[i], w + i * Q8_BLOCK_BYTES, sizeof(h[i]));
        _mm256_storeu_ps(d + b, _mm256_cvtph_ps(_mm_setr_epi16((short)h[0], (short)h[1], (short)h[2],
                                                               (short)h[3], (short)h[4], (short)h[5],
                                                               (short)h[6], (short)h[7])));
    }
    for (; b < n_blocks; b++, w += Q8_BLOCK_BYTES)
        d[b] = load_half(w);
    for (; b % 16 != 0; b++)
        d[b] = 0;
}

/* 4 rows of weights in blocks, their scales, and n_t quantised activation rows. */
struct q8_tile {
    const uint8_t *w[TILE_R];
    const float *dw[TILE_R];
    const int8_t *x[TILE_T];
    const float *dx[TILE_T];
    uint32_t n_blocks;
    float *d; /* scratch: [TILE_T][TILE_R][scale_ld] products of scales */
    size_t d_ld;
};

/* The products of the scales of all blocks, a vector of blocks at a time. */
static ALWAYS_INLINE void q8_scale_products(const uint32_t n_t, const struct q8_tile *q)
{
    for (uint32_t b = 0; b < q->n_blocks; b += VF) {
        uint32_t n = q->n_blocks - b;

        UNROLL for (uint32_t t = 0; t < n_t; t++) {
            vf dx = vf_load(q->dx[t] + b, n);

            UNROLL for (uint32_t r = 0; r < TILE_R; r++)
                vf_store(q->d + (t * TILE_R + r) * q->d_ld + b, vf_mul(vf_load(q->dw[r] + b, VF), dx), VF);
        }
    }
}

/* ret[t]: the products of the 4 weight rows with activation row t. */
static void q8_tile_1(const struct q8_tile *q, __m128 *ret);
static void q8_tile_2(const struct q8_tile *q, __m128 *ret);
static void q8_tile_3(const struct q8_tile *q, __m128 *ret);

static size_t q8_scratch(uint32_t k)
{
    return (PANEL_ROWS + TILE_T * TILE_R) * (size_t)scale_ld(k) * sizeof(float);
}

static void matmul_q8(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    size_t ld = scale_ld(m->k);
    float *dw = (float *)scratch + TILE_T * TILE_R * ld;
    /* Few activation rows: the weights come from memory and are used at once. */
    uint32_t n_panel = m->n_x <= TILE_T ? TILE_R : PANEL_ROWS;
    struct q8_tile q = {.n_blocks = m->k / Q8_BLOCK, .d = scratch, .d_ld = ld};

    for (uint32_t p = r0; p < r1; p += n_panel) {
        uint32_t end = r1 - p < n_panel ? r1 : p + n_panel;

        for (uint32_t r = p; r < end; r++)
            scales_of((const uint8_t *)m->w + r * m->row_bytes, q.n_blocks, dw + (r - p) * ld);
        for (uint32_t t = 0, n_t; t < m->n_x; t += n_t) {
            n_t = next_tile(m->n_x - t);
            for (uint32_t i = 0; i < n_t; i++) {
                size_t x = m->in ? m->in[t + i] : t + i;

                q.x[i] = m->xq + x * m->xq_ld;
                q.dx[i] = m->xd + x * m->xd_ld;
            }
            for (uint32_t r = p; r < end; r += TILE_R) {
                uint32_t n_r = end - r < TILE_R ? end - r : TILE_R;
                __m128 v[TILE_T];

                for (uint32_t i = 0; i < TILE_R; i++) {
                    uint32_t row = r + (i < n_r ? i : 0);

                    q.w[i] = (const uint8_t *)m->w + row * m->row_bytes;
                    q.dw[i] = dw + (row - p) * ld;
                }
                if (n_t == 1)
                    q8_tile_1(&q, v);
                else if (n_t == 2)
                    q8_tile_2(&q, v);
                else
                    q8_tile_3(&q, v);
                for (uint32_t i = 0; i < n_t; i++)
                    store_results(m->y + (m->out ? m->out[t + i] : t + i) * m->y_ld + r, v[i], n_r, m->acc);
            }
        }
    }
}

#endif
