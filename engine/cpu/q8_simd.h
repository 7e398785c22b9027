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
        UNROLLED_BY (i, 0, Q8_BLOCK, VF)
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
        UNROLLED_BY (i, 0, Q8_BLOCK, VF)
            vf_store_i8(q + i, vf_mul(vf_load(x + i, VF), vf_set1(inv)));
    }
}

/*
 * A tile: 4 rows of weights in blocks, and n_t quantised activation rows.  `scales` holds those of
 * the weights as floats, by q8_pack_scales; NULL when they are to be converted on the way, which is
 * what few rows want.
 */
struct q8_tile {
    const uint8_t *w[TILE_R];
    const float *scales;
    const int8_t *x[TILE_T];
    const float *dx[TILE_T];
    uint32_t n_blocks;
    size_t ahead; /* asked for while this is used, see prefetch_ahead; 0: nothing */
};

/* Fills in `scales` for the 4 rows; by the instruction set, like the tile. */
static void q8_pack_scales(const uint8_t *const *w, uint32_t n_blocks, float *scales);
/* ret[t]: the products of the 4 weight rows with activation row t; by the instruction set. */
static ALWAYS_INLINE void q8_tile_of(const uint32_t n_t, const bool convert,
                                     const struct q8_tile *q, __m128 *ret);

/* Blocks, rounded up to pairs: what the scales of a row take. */
static uint32_t q8_even(uint32_t n_blocks)
{
    return (n_blocks + 1) & ~1U;
}

static size_t q8_scratch(uint32_t k)
{
    return (size_t)PANEL_ROWS * q8_even(k / Q8_BLOCK) * sizeof(float);
}

static void q8_tile(const struct q8_tile *q, uint32_t n_t, __m128 *ret)
{
    if (q->scales) {
#define CALL(t) q8_tile_of(t, false, q, ret)
        TILE_CASES(CALL)
    } else {
#undef CALL
#define CALL(t) q8_tile_of(t, true, q, ret)
        TILE_CASES(CALL)
    }
#undef CALL
}

static void matmul_q8(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    /* Scales that one tile uses are converted there; few activation rows want one tile of weights
     * after the other. */
    bool once = m->n_x <= TILE_T, few = m->n_x <= FEW_X;
    uint32_t n_panel = few && !once ? TILE_R : PANEL_ROWS;
    struct q8_tile q = {.n_blocks = m->k / Q8_BLOCK};

    for (uint32_t p = r0; p < r1; p += n_panel) {
        uint32_t end = r1 - p < n_panel ? r1 : p + n_panel;

        for (uint32_t t = 0, n_t; t < m->n_x; t += n_t) {
            n_t = next_tile(m->n_x - t);
            q.ahead = few && t == 0 ? prefetch_ahead(m->row_bytes) : 0;
            for (uint32_t i = 0; i < n_t; i++) {
                size_t x = m->in ? m->in[t + i] : t + i;

                q.x[i] = m->xq + x * m->xq_ld;
                q.dx[i] = m->xd + x * m->xd_ld;
            }
            for (uint32_t r = p; r < end; r += TILE_R) {
                uint32_t n_r = end - r < TILE_R ? end - r : TILE_R;
                float *scales = (float *)scratch + (size_t)(r - p) * q8_even(q.n_blocks);
                __m128 v[TILE_T];

                /* The last rows may be fewer than 4: their tile computes one of them again and
                 * drops it. */
                for (uint32_t i = 0; i < TILE_R; i++)
                    q.w[i] = (const uint8_t *)m->w + (r + (i < n_r ? i : 0)) * m->row_bytes;
                if (!once && t == 0)
                    q8_pack_scales(q.w, q.n_blocks, scales);
                q.scales = once ? NULL : scales;
                q8_tile(&q, n_t, v);
                for (uint32_t i = 0; i < n_t; i++)
                    store_results(m->y + (m->out ? m->out[t + i] : t + i) * m->y_ld + r, v[i], n_r,
                                  m->acc);
            }
        }
    }
}

#endif
