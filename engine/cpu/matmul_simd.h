/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with float weights (F32, F16, BF16).
 *
 * The unit of work is a tile: the dot products of 4 weight rows with up to TILE_T activation rows,
 * their lanes kept in registers along k.  With few activation rows (decode) the weights are
 * converted in registers on their way; with many, a panel of rows is converted once into scratch
 * and used by all tiles.
 */
#ifndef ENGINE_CPU_MATMUL_SIMD_H
#define ENGINE_CPU_MATMUL_SIMD_H

#include "engine/cpu/kernels_isa.h"
#include "engine/cpu/lanes_simd.h"
#include "engine/gguf.h"

enum {
    TILE_R = 4,
    PANEL_BYTES = 96 << 10, /* of converted weights: they stay in the second cache beside the activations */
    PANEL_ROWS = 64,        /* more gain nothing */
};

/* Elements i.. of a row of weights. */
static ALWAYS_INLINE vf load_weights(const uint8_t *w, uint32_t type, uint32_t i, uint32_t n)
{
    if (type == TENSOR_F16)
        return vf_load_f16(w + (size_t)i * 2, n);
    if (type == TENSOR_BF16)
        return vf_load_bf16(w + (size_t)i * 2, n);
    return vf_load((const float *)(const void *)(w + (size_t)i * 4), n);
}

/* Adds the products of the n elements from i on that belong to vector h of their group of 16. */
static ALWAYS_INLINE void tile_step(const uint32_t n_t, const uint32_t type, const uint8_t *const *w,
                                    const float *const *x, uint32_t i, uint32_t n, vf (*a)[TILE_R])
{
    vf v[TILE_R];

    UNROLL for (uint32_t r = 0; r < TILE_R; r++)
        v[r] = load_weights(w[r], type, i, n);
    UNROLL for (uint32_t t = 0; t < n_t; t++) {
        vf u = vf_load(x[t] + i, n);

        UNROLL for (uint32_t r = 0; r < TILE_R; r++)
            a[t][r] = vf_keep(vf_fma(v[r], u, a[t][r]), a[t][r], n);
    }
}

/*
 * Dot products of 4 weight rows and n_t activation rows: ret[t] holds those of row t.  With AVX2 the
 * lanes 0-7 and 8-15 take two walks along k, so that 12 accumulators do for 4 x 3 products; a
 * single activation row has registers enough for one walk.
 */
static ALWAYS_INLINE void dot_tile(const uint32_t n_t, const uint32_t type, const uint8_t *const *w,
                                   const float *const *x, uint32_t k, __m128 *ret)
{
    vf a[HALVES][TILE_T][TILE_R];
    uint32_t full = k & ~15U;

    UNROLL for (uint32_t h = 0; h < HALVES; h++)
        UNROLL for (uint32_t t = 0; t < n_t; t++)
            UNROLL for (uint32_t r = 0; r < TILE_R; r++)
                a[h][t][r] = vf_zero();

    if (n_t == 1) {
        for (uint32_t i = 0; i < full; i += 16)
            UNROLL for (uint32_t h = 0; h < HALVES; h++)
                tile_step(n_t, type, w, x, i + h * VF, VF, a[h]);
    } else {
        UNROLL for (uint32_t h = 0; h < HALVES; h++)
            for (uint32_t i = h * VF; i < full; i += 16)
                tile_step(n_t, type, w, x, i, VF, a[h]);
    }
    if (full < k) {
        UNROLL for (uint32_t h = 0; h < HALVES; h++) {
            uint32_t n = lanes_in(k - full, h);

            if (n > 0)
                tile_step(n_t, type, w, x, full + h * VF, n, a[h]);
        }
    }
    UNROLL for (uint32_t t = 0; t < n_t; t++) {
        __m256 s[TILE_R];

        UNROLL for (uint32_t r = 0; r < TILE_R; r++) {
            vf both[HALVES];

            UNROLL for (uint32_t h = 0; h < HALVES; h++)
                both[h] = a[h][t][r];
            s[r] = fold16(both);
        }
        ret[t] = tree8x4(s[0], s[1], s[2], s[3]);
    }
}

/* Writes the first n_r of 4 results to y. */
static ALWAYS_INLINE void store_results(float *y, __m128 v, uint32_t n_r, bool acc)
{
    if (n_r == TILE_R) {
        if (acc)
            v = _mm_add_ps(_mm_loadu_ps(y), v);
        _mm_storeu_ps(y, v);
    } else {
        float part[TILE_R];

        _mm_storeu_ps(part, v);
        for (uint32_t r = 0; r < n_r; r++)
            y[r] = acc ? y[r] + part[r] : part[r];
    }
}

/* Weight rows, w_ld bytes apart, times n_t activation rows, to n_t places for results. */
struct tile_rows {
    const uint8_t *w;
    size_t w_ld;
    uint32_t n_r, k;
    const float *x[TILE_T];
    float *y[TILE_T];
    bool acc;
};

static ALWAYS_INLINE void tile_rows_of(const uint32_t n_t, const uint32_t type, const struct tile_rows *j)
{
    for (uint32_t r = 0; r < j->n_r; r += TILE_R) {
        uint32_t n_r = j->n_r - r < TILE_R ? j->n_r - r : TILE_R;
        const uint8_t *w[TILE_R];
        __m128 v[TILE_T];

        /* The last rows may be fewer than 4: their tile computes one of them again and drops it. */
        UNROLL for (uint32_t i = 0; i < TILE_R; i++)
            w[i] = j->w + (r + (i < n_r ? i : 0)) * j->w_ld;
        dot_tile(n_t, type, w, j->x, j->k, v);
        UNROLL for (uint32_t t = 0; t < n_t; t++)
            store_results(j->y[t] + r, v[t], n_r, j->acc);
    }
}

static void tile_rows_f32(const struct tile_rows *j, uint32_t n_t)
{
    switch (n_t) {
    case 1: tile_rows_of(1, TENSOR_F32, j); break;
    case 2: tile_rows_of(2, TENSOR_F32, j); break;
    case 3: tile_rows_of(3, TENSOR_F32, j); break;
#if defined(SIMD_TILE_T_6)
    case 4: tile_rows_of(4, TENSOR_F32, j); break;
    case 5: tile_rows_of(5, TENSOR_F32, j); break;
    case 6: tile_rows_of(6, TENSOR_F32, j); break;
#endif
    }
}

static void tile_rows_f16(const struct tile_rows *j, uint32_t n_t)
{
    switch (n_t) {
    case 1: tile_rows_of(1, TENSOR_F16, j); break;
    case 2: tile_rows_of(2, TENSOR_F16, j); break;
    case 3: tile_rows_of(3, TENSOR_F16, j); break;
#if defined(SIMD_TILE_T_6)
    case 4: tile_rows_of(4, TENSOR_F16, j); break;
    case 5: tile_rows_of(5, TENSOR_F16, j); break;
    case 6: tile_rows_of(6, TENSOR_F16, j); break;
#endif
    }
}

static void tile_rows_bf16(const struct tile_rows *j, uint32_t n_t)
{
    switch (n_t) {
    case 1: tile_rows_of(1, TENSOR_BF16, j); break;
    case 2: tile_rows_of(2, TENSOR_BF16, j); break;
    case 3: tile_rows_of(3, TENSOR_BF16, j); break;
#if defined(SIMD_TILE_T_6)
    case 4: tile_rows_of(4, TENSOR_BF16, j); break;
    case 5: tile_rows_of(5, TENSOR_BF16, j); break;
    case 6: tile_rows_of(6, TENSOR_BF16, j); break;
#endif
    }
}

static void tile_rows(const struct tile_rows *j, uint32_t type, uint32_t n_t)
{
    if (type == TENSOR_F32)
        tile_rows_f32(j, n_t);
    else if (type == TENSOR_F16)
        tile_rows_f16(j, n_t);
    else
        tile_rows_bf16(j, n_t);
}

/* Activation rows in the next tile of `left`: no tile of one behind a full one. */
static ALWAYS_INLINE uint32_t next_tile(uint32_t left)
{
    if (left <= TILE_T)
        return left;
    return left < 2 * TILE_T ? (left + 1) / 2 : TILE_T;
}

static uint32_t panel_rows(size_t row_bytes)
{
    size_t n = PANEL_BYTES / (row_bytes ? row_bytes : 1) & ~(size_t)(TILE_R - 1);

    return n < TILE_R ? TILE_R : n > PANEL_ROWS ? PANEL_ROWS : (uint32_t)n;
}

/* Weights of a panel, converted. */
static size_t float_panel_bytes(uint32_t k)
{
    return (size_t)panel_rows((size_t)k * sizeof(float)) * k * sizeof(float);
}

/* One row of float weights, converted. */
static void floats_of(const uint8_t *w, uint32_t type, uint32_t k, float *y)
{
    uint32_t i = 0;

    if (type == TENSOR_F16) {
        for (; i + VF <= k; i += VF)
            vf_store(y + i, vf_load_f16(w + (size_t)i * 2, VF), VF);
        if (i < k)
            vf_store(y + i, vf_load_f16(w + (size_t)i * 2, k - i), k - i);
    } else if (type == TENSOR_BF16) {
        for (; i + VF <= k; i += VF)
            vf_store(y + i, vf_load_bf16(w + (size_t)i * 2, VF), VF);
        if (i < k)
            vf_store(y + i, vf_load_bf16(w + (size_t)i * 2, k - i), k - i);
    } else {
        memcpy(y, w, (size_t)k * sizeof(float));
    }
}

static void matmul_float(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    bool convert = m->type != TENSOR_F32 && m->n_x > TILE_T;
    uint32_t n_panel = panel_rows((size_t)m->k * sizeof(float));

    for (uint32_t r = r0; r < r1; r += n_panel) {
        struct tile_rows j = {
            .w = (const uint8_t *)m->w + r * m->row_bytes,
            .w_ld = m->row_bytes,
            .n_r = r1 - r < n_panel ? r1 - r : n_panel,
            .k = m->k,
            .acc = m->acc,
        };

        if (convert) {
            for (uint32_t i = 0; i < j.n_r; i++)
                floats_of(j.w + i * j.w_ld, m->type, m->k, (float *)scratch + (size_t)i * m->k);
            j.w = scratch;
            j.w_ld = (size_t)m->k * sizeof(float);
        }
        for (uint32_t t = 0, n_t; t < m->n_x; t += n_t) {
            n_t = next_tile(m->n_x - t);
            for (uint32_t i = 0; i < n_t; i++) {
                j.x[i] = m->x + (m->in ? m->in[t + i] : t + i) * m->x_ld;
                j.y[i] = m->y + (m->out ? m->out[t + i] : t + i) * m->y_ld + r;
            }
            tile_rows(&j, convert ? TENSOR_F32 : m->type, n_t);
        }
    }
}

#endif
