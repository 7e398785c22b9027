/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products of many activation rows: prefill.  A tile of VF weight rows is unpacked once
 * into scratch, side by side, and multiplied with all activation rows: a vector holds four bytes
 * (a quad) of each row, which are multiplied with the same four of one activation row.  So a block
 * costs one float step for VF rows, and no sum goes across a vector.
 *
 * A tile's blocks lie in the order in which lanes are visited, by which the tree of kernels.h needs
 * no more than three partial sums to be kept: all of lane 0, of 4, 2, 6, 1, 5, 3, 7.
 *
 * How wide a vector is and what multiplies bytes is in quant_avx2.h and quant_avx512.h.
 */
#ifndef ENGINE_CPU_QUANT_PACKED_H
#define ENGINE_CPU_QUANT_PACKED_H

#include "engine/cpu/quant_direct.h"

enum {
    QUANT_QUADS = QUANT_BLOCK / 4,
    PACKED_Q = QUANT_QUADS * VF * 4, /* bytes of the integers of a packed block */
    PACKED_F = VF * 4,               /* of one scale of all rows */
};

/*
 * What packed blocks look like and how they are multiplied; constants to the compiler.  A block:
 * integers, d, then m, and scale and min of those formats that have them by halves.
 */
struct packed_kind {
    bool is_signed, halves, min, offset;
    uint32_t sums16;
};

static ALWAYS_INLINE struct packed_kind packed_kind(const uint32_t type)
{
    return (struct packed_kind){.is_signed = quant_is_signed(type),
                                .halves = quant_has_halves(type),
                                .min = quant_is_min(type),
                                .offset = quant_offset(type) != 0,
                                .sums16 = quant_sums16(type)};
}

/* Rows of 4 bytes a block has behind the integers: d, m, scale, min. */
static ALWAYS_INLINE uint32_t packed_fields(const struct packed_kind k)
{
    return 1 + k.min + 2 * k.halves;
}

static ALWAYS_INLINE size_t packed_bytes(const struct packed_kind k)
{
    return PACKED_Q + (size_t)packed_fields(k) * PACKED_F;
}

/* Rows of 8 dwords to columns. */
static ALWAYS_INLINE void transpose8(__m256i *v)
{
    __m256i a[8], b[8];

    UNROLLED_BY (i, 0, 8, 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLLED_BY (i, 0, 8, 4)
        UNROLLED (h, 2) {
            b[i + 2 * h] = _mm256_unpacklo_epi64(a[i + h], a[i + 2 + h]);
            b[i + 2 * h + 1] = _mm256_unpackhi_epi64(a[i + h], a[i + 2 + h]);
        }
    UNROLLED (i, 4) {
        v[i] = _mm256_inserti128_si256(b[i], _mm256_castsi256_si128(b[i + 4]), 1);
        v[i + 4] = _mm256_blend_epi32(
            b[i + 4], _mm256_castsi128_si256(_mm256_extracti128_si256(b[i], 1)), 0x0f);
    }
}

/* The order of lanes: position i is lane visited[i], and the other way round. */
static const uint8_t visited[QUANT_SUPER] = {0, 4, 2, 6, 1, 5, 3, 7};

/* Blocks of lanes that are visited before lane l, of n in all. */
static uint32_t blocks_before(uint32_t l, uint32_t n)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; visited[i] != l; i++)
        sum += (n + QUANT_SUPER - 1 - visited[i]) / QUANT_SUPER;
    return sum;
}

/* Eight rows of one field of eight blocks, to the blocks of theirs that exist. */
static ALWAYS_INLINE void put_field(__m256i *v, uint8_t *const *to, uint32_t n)
{
    transpose8(v);
    UNROLLED (i, QUANT_SUPER)
        if (i < n)
            _mm256_storeu_si256((__m256i *)to[i], v[i]);
}

/* What packing asks of a format: how its blocks are unpacked and what the packed ones look like. */
struct pack_format {
    void (*unpack)(const uint8_t *p, uint32_t n, struct quant_group *g);
    uint32_t group_bytes;
    struct packed_kind kind;
};

/* Eight rows, from p on, of the n blocks of a group; to[i]: their place in packed block i. */
static void pack_group(const struct pack_format *f, const uint8_t *const *p, uint32_t n,
                       uint8_t *const *to)
{
    struct quant_group g[8];
    __m256i v[8];
    uint8_t *at[QUANT_SUPER];

    UNROLLED (i, QUANT_SUPER)
        at[i] = to[i] + PACKED_Q;
    for (uint32_t r = 0; r < 8; r++)
        f->unpack(p[r], n, &g[r]);
#define FIELD(value)                                                                               \
    do {                                                                                           \
        UNROLLED (r, 8)                                                                            \
            v[r] = value;                                                                          \
        put_field(v, at, n);                                                                       \
        UNROLLED (i, QUANT_SUPER)                                                                  \
            at[i] += PACKED_F;                                                                     \
    } while (0)
    FIELD(_mm256_castps_si256(g[r].sc.d));
    if (f->kind.min)
        FIELD(_mm256_castps_si256(g[r].sc.m));
    if (f->kind.halves) {
        FIELD(g[r].sc.scale);
        FIELD(g[r].sc.min);
    }
#undef FIELD
    for (uint32_t i = 0; i < n; i++) {
        UNROLLED (r, 8)
            v[r] = g[r].u[i];
        transpose8(v);
        UNROLLED (q, QUANT_QUADS)
            _mm256_storeu_si256((__m256i *)(to[i] + q * PACKED_F), v[q]);
    }
}

/* Rows [0, n_r) from w on; a tile with fewer rows repeats its first, whose results nobody reads. */
static void pack_tile(const struct pack_format *f, const uint8_t *w, size_t w_ld, uint32_t n_r,
                      uint32_t n_blocks, uint8_t *tile)
{
    const size_t bytes = packed_bytes(f->kind);
    uint32_t before[QUANT_SUPER];

    for (uint32_t l = 0; l < QUANT_SUPER; l++)
        before[l] = blocks_before(l, n_blocks);
    for (uint32_t r = 0; r < VF; r += 8) {
        const uint8_t *p[8];

        for (uint32_t i = 0; i < 8; i++)
            p[i] = w + (r + i < n_r ? r + i : 0) * w_ld;
        for (uint32_t b = 0; b < n_blocks; b += QUANT_SUPER) {
            uint32_t n = n_blocks - b < QUANT_SUPER ? n_blocks - b : QUANT_SUPER;
            uint8_t *to[QUANT_SUPER];

            for (uint32_t i = 0; i < QUANT_SUPER; i++)
                to[i] = tile + (before[i] + b / QUANT_SUPER) * bytes + r * 4;
            pack_group(f, p, n, to);
            for (uint32_t i = 0; i < 8; i++)
                p[i] += f->group_bytes;
        }
    }
}

/*
 * Eight blocks of the activation rows of a tile: scales, and of the sums of a block what is the
 * same for all rows of weights, see packed_prepare.
 */
struct packed_x {
    float dx[QUANT_T][QUANT_SUPER];
    int32_t fix[QUANT_T][QUANT_SUPER];
};

/* Activation rows of a tile, and where its results go. */
struct packed_rows {
    const uint8_t *tile;
    struct packed_x *prepared;
    uint32_t n_blocks, n_r;
    uint32_t n_t;
    const int8_t *x[QUANT_T]; /* those behind the last repeat it */
    const float *dx[QUANT_T];
    const int16_t *xs[QUANT_T];
    float *y[QUANT_T]; /* n_t of them */
    bool acc;
};

static ALWAYS_INLINE vf packed_field(const uint8_t *p, uint32_t i)
{
    return vf_load((const float *)(const void *)(p + PACKED_Q + (size_t)i * PACKED_F), VF);
}

/*
 * By the instruction set.  s[t]: the products of the integers packed at p with those of activation
 * row t, scales of halves applied, a lane per weight row; without halves added to what is there.
 */
static ALWAYS_INLINE void quant_dots(const uint32_t n_t, const struct packed_kind k,
                                     const uint8_t *p, const int8_t *const *x, vi *s);

/* Whether products begin with a number that takes an offset of the integers off again. */
static ALWAYS_INLINE bool packed_begins(const struct packed_kind k)
{
    return !k.halves && (k.offset || (k.is_signed && QUANT_UP != 0));
}

/*
 * fix[t]: the two sums of a block, where halves multiply them; what its integers' offset amounts
 * to; or dx * sum, for a minimum.
 */
static ALWAYS_INLINE void packed_prepare(const struct packed_kind k, int offset,
                                         const struct packed_rows *j)
{
    const __m256i mul = _mm256_set1_epi16((short)(k.min ? 1 : k.is_signed ? -QUANT_UP : -offset));
    struct packed_x *to = j->prepared;

    for (uint32_t b = 0; b < j->n_blocks; b += QUANT_SUPER, to++) {
        const __m256i mask = first_lanes(j->n_blocks - b);

        for (uint32_t t = 0; t < QUANT_T; t++) {
            const void *xs = j->xs[t] + 2 * (size_t)b;
            __m256 dx = _mm256_maskload_ps(j->dx[t] + b, mask);
            __m256i fix = _mm256_maskload_epi32(xs, mask);

            if (!k.halves)
                fix = _mm256_madd_epi16(fix, mul);
            if (!k.halves && k.min)
                fix = _mm256_castps_si256(_mm256_mul_ps(dx, _mm256_cvtepi32_ps(fix)));
            _mm256_storeu_ps(to->dx[t], dx);
            _mm256_storeu_si256((__m256i *)to->fix[t], fix);
        }
    }
}

/* Block b of the row, the l-th of its eight, packed at p. */
static ALWAYS_INLINE void packed_block(const uint32_t n_t, const struct packed_kind k,
                                       const struct packed_rows *j, const uint8_t *p, uint32_t b,
                                       uint32_t l, vf *a)
{
    const struct packed_x *of = &j->prepared[b / QUANT_SUPER];
    const vf d = packed_field(p, 0);
    const int8_t *x[QUANT_T];
    vi s[QUANT_T];

    UNROLLED (t, n_t) {
        x[t] = j->x[t] + (size_t)b * QUANT_BLOCK;
        if (packed_begins(k))
            s[t] = vi_load_set1(&of->fix[t][l]);
    }
    quant_dots(n_t, k, p, x, s);
    UNROLLED (t, n_t) {
        const vf dx = vf_set1(of->dx[t][l]);
        vi fix = vi_load_set1(&of->fix[t][l]);

        if (k.halves)
            fix = vi_madd16(fix, vf_bits(packed_field(p, 2 + k.min)));
        if (k.halves && k.offset)
            s[t] = vi_add(s[t], fix);
        a[t] = vf_fma(vi_to_floats(s[t]), vf_mul(d, dx), a[t]);
        if (k.min)
            a[t] = vf_fma(packed_field(p, 1),
                          k.halves ? vf_mul(dx, vi_to_floats(fix)) : vi_floats(fix), a[t]);
    }
}

static ALWAYS_INLINE void packed_products(const uint32_t n_t, const struct packed_kind k,
                                          const struct packed_rows *j)
{
    const uint8_t *p = j->tile;
    vf kept[3][QUANT_T], a[QUANT_T];

    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        uint32_t level = 0;

        UNROLLED (t, n_t)
            a[t] = vf_zero();
        for (uint32_t b = visited[i]; b < j->n_blocks; b += QUANT_SUPER, p += packed_bytes(k))
            packed_block(n_t, k, j, p, b, visited[i], a);
        /* The tree, as far as its lanes are there: like the carries of a counter. */
        for (; i >> level & 1; level++)
            UNROLLED (t, n_t)
                a[t] = vf_add(kept[level][t], a[t]);
        if (level < 3)
            UNROLLED (t, n_t)
                kept[level][t] = a[t];
    }
    UNROLLED (t, n_t)
        if (t < j->n_t) {
            float *y = j->y[t];

            if (j->acc)
                a[t] = vf_add(vf_load(y, j->n_r), a[t]);
            vf_store(y, a[t], j->n_r);
        }
}

static size_t packed_tile_bytes(uint32_t k)
{
    return (size_t)(k / QUANT_BLOCK) * (PACKED_Q + 4 * PACKED_F);
}

/* A tile, and behind it what is prepared of activation rows. */
static size_t packed_scratch(uint32_t k)
{
    const uint32_t n_blocks = k / QUANT_BLOCK;

    return packed_tile_bytes(k) +
           (n_blocks + QUANT_SUPER - 1) / QUANT_SUPER * sizeof(struct packed_x);
}

/* All activation rows on the tile packed in scratch; rows [r, r + n_r) of the matrix. */
static ALWAYS_INLINE void packed_all(const struct packed_kind k, int offset, const struct matmul *m,
                                     uint8_t *scratch, uint32_t r, uint32_t n_r)
{
    struct packed_rows j = {
        .tile = scratch,
        .prepared = (void *)(scratch + packed_tile_bytes(m->k)),
        .n_blocks = m->k / QUANT_BLOCK,
        .n_r = n_r,
        .acc = m->acc,
    };

    for (uint32_t t0 = 0; t0 < m->n_x; t0 += j.n_t) {
        j.n_t = m->n_x - t0 < QUANT_T ? m->n_x - t0 : QUANT_T;
        if (j.n_t > QUANT_T / 2 && j.n_t < QUANT_T - QUANT_T / 4)
            j.n_t = QUANT_T / 2;
        for (uint32_t i = 0; i < QUANT_T; i++) {
            uint32_t t = t0 + (i < j.n_t ? i : j.n_t - 1);
            size_t x = m->in ? m->in[t] : t;

            j.x[i] = m->xq + x * m->xq_ld;
            j.dx[i] = m->xd + x * m->xd_ld;
            j.xs[i] = m->xs + x * 2 * m->xd_ld;
            j.y[i] = m->y + (m->out ? m->out[t] : t) * m->y_ld + r;
        }
        packed_prepare(k, offset, &j);
        /* Two pieces of code, as in matmul_simd.h. */
        if (j.n_t <= QUANT_T / 2)
            packed_products(QUANT_T / 2, k, &j);
        else
            packed_products(QUANT_T, k, &j);
    }
}

#endif
