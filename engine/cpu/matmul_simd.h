/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with float weights (F32, F16, BF16).
 *
 * The unit of work is a tile: the dot products of 4 weight rows with up to TILE_T activation rows,
 * their lanes kept in registers along k.  With AVX2 the lanes 0-7 and 8-15 take two walks along k,
 * so that 12 accumulators do for 4 x 3 products.
 *
 * With few activation rows (decode) the weights are read where they are and converted on their way.
 * With many, a panel of rows is converted once into scratch, packed in the order in which tiles
 * read it.
 */
#ifndef ENGINE_CPU_MATMUL_SIMD_H
#define ENGINE_CPU_MATMUL_SIMD_H

#include "engine/cpu/kernels_isa.h"
#include "engine/cpu/lanes_simd.h"
#include "engine/gguf.h"

enum {
    TILE_R = 4,
    PANEL_BYTES =
        192 << 10,   /* of packed weights: they stay in the second cache beside the activations */
    PANEL_ROWS = 64, /* more gain nothing */
    PREFETCH_BYTES = 8 << 10,
    FEW_X = 12, /* activation rows up to which converting weights for every tile is cheaper than
                   packing them */
    BLOCK_K =
        768, /* of a longer row at once: a tile's activations and weights stay in the first cache */
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

/*
 * The lanes of a tile.  Loops over activations inside loops over rows, so that TILE_T activation
 * vectors wait in registers and one weight vector passes: 16 registers in all with AVX2.
 */
struct lanes {
    vf of[HALVES][TILE_T][TILE_R];
};

static ALWAYS_INLINE void lanes_clear(const uint32_t n_t, vf (*a)[TILE_R])
{
    UNROLLED (t, n_t)
        UNROLLED (r, TILE_R)
            a[t][r] = vf_zero();
}

/* The four sums of every activation row. */
static ALWAYS_INLINE void lanes_sum(const uint32_t n_t, const struct lanes *a, __m128 *ret)
{
    UNROLLED (t, n_t) {
        __m256 s[TILE_R];

        UNROLLED (r, TILE_R) {
            vf both[HALVES];

            UNROLLED (h, HALVES)
                both[h] = a->of[h][t][r];
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

/* Bytes ahead of a single stream of weights, about what the memory takes to answer. */
#define STREAM_AHEAD 2048

/*
 * Bytes from a row to the one that is asked for while it is used: whole tiles, at least
 * PREFETCH_BYTES.  Rows are short, and the processor's own prefetching starts anew with each of the
 * four streams of a tile.
 */
static ALWAYS_INLINE size_t prefetch_ahead(size_t row_bytes)
{
    size_t tile = TILE_R * row_bytes;

    return (PREFETCH_BYTES + tile - 1) / tile * tile;
}

/* Past the end of the weights it is a hint that comes to nothing. */
static ALWAYS_INLINE void prefetch(const uint8_t *w, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)w + ahead), _MM_HINT_T0);
}

/* Weight rows times n_t activation rows, to n_t places for results. */
struct tile_rows {
    const uint8_t *w; /* as they are, w_ld bytes apart */
    size_t w_ld;
    size_t ahead;        /* asked for while this is used, see prefetch_ahead; 0: nothing */
    const float *packed; /* or packed by pack_rows */
    uint32_t n_r, k;
    uint32_t n_t;
    const float *x[TILE_T]; /* those behind the last repeat it: a tile may have room for more */
    float *y[TILE_T];       /* n_t of them */
    bool acc;
};

/* The four results v[t] of every activation row that there is, from weight row r on. */
static ALWAYS_INLINE void store_tile(const uint32_t n_t, const struct tile_rows *j, uint32_t r,
                                     const __m128 *v)
{
    uint32_t n_r = j->n_r - r < TILE_R ? j->n_r - r : TILE_R;

    UNROLLED (t, n_t)
        if (t < j->n_t)
            store_results(j->y[t] + r, v[t], n_r, j->acc);
}

/* --- weights as they are -------------------------------------------------------------------------
 */

static ALWAYS_INLINE void direct_step(const uint32_t n_t, const uint32_t type,
                                      const uint8_t *const *w, const float *const *x, uint32_t i,
                                      uint32_t n, vf (*a)[TILE_R])
{
    vf u[TILE_T];

    UNROLLED (t, n_t)
        u[t] = vf_load(x[t] + i, n);
    UNROLLED (r, TILE_R) {
        vf v = load_weights(w[r], type, i, n);

        UNROLLED (t, n_t)
            a[t][r] = vf_keep(vf_fma(v, u[t], a[t][r]), a[t][r], n);
    }
}

/*
 * One row and one activation row, which is all that decode does: rows come from memory one after
 * the other, as one stream; side by side they were 20 to 30 % slower.  A row's two chains of sums
 * are short enough that the next row's start beneath their end.
 */
static ALWAYS_INLINE void stream_row(const uint32_t type, const uint8_t *w, const float *x,
                                     uint32_t full, struct lanes *a, const uint32_t r)
{
    const size_t bytes = type == TENSOR_F32 ? 4 : 2;

    for (uint32_t i = 0; i < full; i += 16) {
        prefetch(w, STREAM_AHEAD + i * bytes);
        UNROLLED (h, HALVES)
            a->of[h][0][r] = vf_fma(load_weights(w, type, i + h * VF, VF),
                                    vf_load(x + i + h * VF, VF), a->of[h][0][r]);
    }
}

static ALWAYS_INLINE void direct_tile(const uint32_t n_t, const uint32_t type,
                                      const uint8_t *const *w, const float *const *x, uint32_t k,
                                      size_t ahead, __m128 *ret)
{
    const size_t bytes = type == TENSOR_F32 ? 4 : 2;
    struct lanes a;
    uint32_t full = k & ~15U;

    UNROLLED (h, HALVES)
        lanes_clear(n_t, a.of[h]);
    if (n_t == 1) {
        UNROLLED (r, TILE_R)
            stream_row(type, w[r], x[0], full, &a, r);
    } else {
        UNROLLED (h, HALVES)
            for (uint32_t i = 0; i < full; i += 16) {
                if (i * bytes % 64 == 0)
                    UNROLLED_BY (r, h, TILE_R, HALVES)
                        prefetch(w[r], ahead + i * bytes);
                direct_step(n_t, type, w, x, i + h * VF, VF, a.of[h]);
            }
    }
    if (full < k) {
        UNROLLED (h, HALVES) {
            uint32_t n = lanes_in(k - full, h);

            if (n > 0)
                direct_step(n_t, type, w, x, full + h * VF, n, a.of[h]);
        }
    }
    lanes_sum(n_t, &a, ret);
}

static ALWAYS_INLINE void direct_tiles(const uint32_t n_t, const uint32_t type,
                                       const struct tile_rows *j)
{
    for (uint32_t r = 0; r < j->n_r; r += TILE_R) {
        uint32_t n_r = j->n_r - r < TILE_R ? j->n_r - r : TILE_R;
        const uint8_t *w[TILE_R];
        __m128 v[TILE_T];

        /* The last rows may be fewer than 4: their tile computes one of them again and drops it. */
        UNROLLED (i, TILE_R)
            w[i] = j->w + (r + (i < n_r ? i : 0)) * j->w_ld;
        direct_tile(n_t, type, w, j->x, j->k, j->ahead, v);
        store_tile(n_t, j, r, v);
    }
}

/* --- packed weights
 * ------------------------------------------------------------------------------- */

/* Floats of one packed tile of rows. */
static ALWAYS_INLINE size_t packed_tile_floats(uint32_t k)
{
    return (size_t)((k + 15) / 16) * 16 * TILE_R;
}

/*
 * Packs rows into tiles of 4: [half][group of 16][row][lane], what a short last group lacks being
 * 0.  A last tile with fewer rows repeats its first, whose results nobody reads.
 */
static ALWAYS_INLINE void pack_rows(const uint32_t type, const uint8_t *w, size_t w_ld,
                                    uint32_t n_r, uint32_t k, float *packed)
{
    uint32_t n_groups = (k + 15) / 16, full = k / 16;

    for (uint32_t r = 0; r < n_r; r += TILE_R, packed += packed_tile_floats(k)) {
        for (uint32_t i = 0; i < TILE_R; i++) {
            const uint8_t *row = w + (r + (r + i < n_r ? i : 0)) * w_ld;

            UNROLLED (h, HALVES) {
                float *to = packed + ((size_t)h * n_groups * TILE_R + i) * VF;

                for (uint32_t g = 0; g < full; g++)
                    vf_store(to + (size_t)g * TILE_R * VF,
                             load_weights(row, type, g * 16 + h * VF, VF), VF);
                if (full < n_groups) {
                    uint32_t n = lanes_in(k - full * 16, h);
                    vf v = n > 0 ? load_weights(row, type, full * 16 + h * VF, n) : vf_zero();

                    vf_store(to + (size_t)full * TILE_R * VF, v, VF);
                }
            }
        }
    }
}

static void pack(uint32_t type, const uint8_t *w, size_t w_ld, uint32_t n_r, uint32_t k,
                 float *packed)
{
    if (type == TENSOR_F16)
        pack_rows(TENSOR_F16, w, w_ld, n_r, k, packed);
    else if (type == TENSOR_BF16)
        pack_rows(TENSOR_BF16, w, w_ld, n_r, k, packed);
    else
        pack_rows(TENSOR_F32, w, w_ld, n_r, k, packed);
}

static ALWAYS_INLINE void packed_step(const uint32_t n_t, const float *w, const float *const *x,
                                      uint32_t i, uint32_t n, vf (*a)[TILE_R])
{
    vf u[TILE_T];

    UNROLLED (t, n_t)
        u[t] = vf_load(x[t] + i, n);
    UNROLLED (r, TILE_R) {
        vf v = vf_load(w + r * VF, VF);

        UNROLLED (t, n_t)
            a[t][r] = vf_keep(vf_fma(v, u[t], a[t][r]), a[t][r], n);
    }
}

/* Continues the lanes `a` over the elements [k0, k1) of rows of k. */
static ALWAYS_INLINE void packed_walk(const uint32_t n_t, const float *w, const float *const *x,
                                      uint32_t k, uint32_t k0, uint32_t k1, struct lanes *a)
{
    size_t half = packed_tile_floats(k) / HALVES;
    uint32_t full = k1 & ~15U;

    UNROLLED (h, HALVES) {
        const float *from = w + h * half + (size_t)(k0 / 16) * TILE_R * VF;

        for (uint32_t i = k0 + h * VF; i < full; i += 16, from += TILE_R * VF)
            packed_step(n_t, from, x, i, VF, a->of[h]);
        if (full < k1 && lanes_in(k1 - full, h) > 0)
            packed_step(n_t, from, x, full + h * VF, lanes_in(k1 - full, h), a->of[h]);
    }
}

/* Long rows: a block of k after the other, the lanes of all tiles waiting in memory. */
static ALWAYS_INLINE void packed_rows(const uint32_t n_t, const struct tile_rows *j)
{
    const size_t step = packed_tile_floats(j->k);
    struct lanes kept[PANEL_ROWS / TILE_R];

    for (uint32_t k0 = 0; k0 < j->k; k0 += BLOCK_K) {
        uint32_t k1 = j->k - k0 < BLOCK_K ? j->k : k0 + BLOCK_K;
        const float *w = j->packed;
        struct lanes *keep = kept;

        for (uint32_t r = 0; r < j->n_r; r += TILE_R, w += step, keep++) {
            struct lanes a;
            __m128 v[TILE_T];

            UNROLLED (h, HALVES) {
                lanes_clear(n_t, a.of[h]);
                if (k0 > 0)
                    UNROLLED (t, n_t)
                        UNROLLED (i, TILE_R)
                            a.of[h][t][i] = keep->of[h][t][i];
            }
            packed_walk(n_t, w, j->x, j->k, k0, k1, &a);
            if (k1 < j->k) {
                UNROLLED (h, HALVES)
                    UNROLLED (t, n_t)
                        UNROLLED (i, TILE_R)
                            keep->of[h][t][i] = a.of[h][t][i];
                continue;
            }
            lanes_sum(n_t, &a, v);
            store_tile(n_t, j, r, v);
        }
    }
}

/* --- both
 * ------------------------------------------------------------------------------------------ */

/*
 * One piece of code for some numbers of activation rows, TILE_CASES and PACKED_CASES of the
 * instruction set; what lies between takes the next larger.  All of them would be the longest part
 * of compiling.
 */
static void tiles_f32(const struct tile_rows *j, uint32_t n_t)
{
#define CALL(t) direct_tiles(t, TENSOR_F32, j)
    TILE_CASES(CALL)
#undef CALL
}

static void tiles_f16(const struct tile_rows *j, uint32_t n_t)
{
#define CALL(t) direct_tiles(t, TENSOR_F16, j)
    TILE_CASES(CALL)
#undef CALL
}

static void tiles_bf16(const struct tile_rows *j, uint32_t n_t)
{
#define CALL(t) direct_tiles(t, TENSOR_BF16, j)
    TILE_CASES(CALL)
#undef CALL
}

static void tiles_packed(const struct tile_rows *j, uint32_t n_t)
{
#define CALL(t) packed_rows(t, j)
    PACKED_CASES(CALL)
#undef CALL
}

/* j->x and j->y are set as far as n_t. */
static void tiles(struct tile_rows *j, uint32_t type, uint32_t n_t)
{
    j->n_t = n_t;
    for (uint32_t t = n_t; t < TILE_T; t++)
        j->x[t] = j->x[n_t - 1];
    if (j->packed)
        tiles_packed(j, n_t);
    else if (type == TENSOR_F16)
        tiles_f16(j, n_t);
    else if (type == TENSOR_BF16)
        tiles_bf16(j, n_t);
    else
        tiles_f32(j, n_t);
}

/* Activation rows in the next tile of `left`: no tile of one or two behind a full one. */
static ALWAYS_INLINE uint32_t next_tile(uint32_t left)
{
    if (left <= TILE_T)
        return left;
    return left <= TILE_T + TILE_T / 3 ? (left + 1) / 2 : TILE_T;
}

static uint32_t panel_rows(uint32_t k)
{
    size_t n = PANEL_BYTES / (packed_tile_floats(k) * sizeof(float)) * TILE_R;

    return n < TILE_R ? TILE_R : n > PANEL_ROWS ? PANEL_ROWS : (uint32_t)n;
}

static size_t float_panel_bytes(uint32_t k)
{
    return panel_rows(k) / TILE_R * packed_tile_floats(k) * sizeof(float);
}

static void matmul_float(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    bool few = m->n_x <= FEW_X;
    /* Few activation rows: one tile of weights after the other, for all of them. */
    uint32_t n_panel = m->n_x <= TILE_T ? r1 - r0 : few ? TILE_R : panel_rows(m->k);

    for (uint32_t r = r0; r < r1; r += n_panel) {
        struct tile_rows j = {
            .w = (const uint8_t *)m->w + r * m->row_bytes,
            .w_ld = m->row_bytes,
            .n_r = r1 - r < n_panel ? r1 - r : n_panel,
            .k = m->k,
            .acc = m->acc,
        };

        if (!few) {
            pack(m->type, j.w, j.w_ld, j.n_r, m->k, scratch);
            j.packed = scratch;
        }
        for (uint32_t t = 0, n_t; t < m->n_x; t += n_t) {
            n_t = next_tile(m->n_x - t);
            j.ahead = t == 0 ? prefetch_ahead(m->row_bytes) : 0;
            for (uint32_t i = 0; i < n_t; i++) {
                j.x[i] = m->x + (m->in ? m->in[t + i] : t + i) * m->x_ld;
                j.y[i] = m->y + (m->out ? m->out[t + i] : t + i) * m->y_ld + r;
            }
            tiles(&j, m->type, n_t);
        }
    }
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

#endif
