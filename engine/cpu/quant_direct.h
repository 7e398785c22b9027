/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised products of a few activation rows: decode.  A row's blocks are used where they lie, as
 * one stream, eight at a time: their sums of integers are turned into the eight lanes of a vector,
 * so that the float steps of kernels.h are done once for eight blocks.
 */
#ifndef ENGINE_CPU_QUANT_DIRECT_H
#define ENGINE_CPU_QUANT_DIRECT_H

#include "engine/cpu/matmul_simd.h"
#include "engine/cpu/quant_unpack.h"

enum { DIRECT_X = 4 }; /* activation rows at most */

/* The even columns of two vectors of pairs plus the odd ones: [a b a b …]. */
static ALWAYS_INLINE __m256i join16(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
}

static ALWAYS_INLINE __m256i join16x2(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

static ALWAYS_INLINE __m256i join16x4(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

static ALWAYS_INLINE __m256i join32(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

static ALWAYS_INLINE __m256i join32x2(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Halves added: those of a below, those of b above.  Permutations of halves are slow on some. */
static ALWAYS_INLINE __m256i join128(__m256i a, __m256i b)
{
    return _mm256_set_m128i(
        _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1)),
        _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}

/* Sixteen sums of 16 bits to eight of 32, those of the two halves added. */
static ALWAYS_INLINE __m256i widen(__m256i v)
{
    return _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v)),
                            _mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)));
}

/* Eight vectors of sums to one: lane i is the sum of v[i]. */
static ALWAYS_INLINE __m256i sum_eight32(const __m256i *v)
{
    __m256i a = join32x2(join32(v[0], v[1]), join32(v[2], v[3]));
    __m256i b = join32x2(join32(v[4], v[5]), join32(v[6], v[7]));

    return join128(a, b);
}

/* The same of 16 bits, as long as the sums fit there. */
static ALWAYS_INLINE __m256i sum_eight16(const __m256i *v, const bool all_fit)
{
    __m256i a = join16x2(join16(v[0], v[1]), join16(v[2], v[3]));
    __m256i b = join16x2(join16(v[4], v[5]), join16(v[6], v[7]));

    return all_fit ? widen(join16x4(a, b)) : join128(widen(a), widen(b));
}

/* Sixteen sums of 16 bits: of each vector's two halves, side by side. */
static ALWAYS_INLINE __m256i sum_halves16(const __m256i *v)
{
    __m256i a = join16x2(join16(v[0], v[1]), join16(v[2], v[3]));
    __m256i b = join16x2(join16(v[4], v[5]), join16(v[6], v[7]));
    __m256i s = join16x4(a, b);
    __m128i lo = _mm256_castsi256_si128(s), hi = _mm256_extracti128_si256(s, 1);

    return _mm256_set_m128i(_mm_unpackhi_epi16(lo, hi), _mm_unpacklo_epi16(lo, hi));
}

/*
 * Q4_0 and Q4_1 keep the two halves of a block apart, in 128 bits: putting them together would cost
 * as much as their products.
 */
static ALWAYS_INLINE bool direct_is_narrow(uint32_t type)
{
    return type == TENSOR_Q4_0 || type == TENSOR_Q4_1;
}

static ALWAYS_INLINE __m128i narrow_sums(__m128i lo, __m128i hi, const int8_t *x)
{
    return _mm_add_epi16(_mm_maddubs_epi16(lo, _mm_loadu_si128((const __m128i *)x)),
                         _mm_maddubs_epi16(hi, _mm_loadu_si128((const __m128i *)(x + QUANT_HALF))));
}

static ALWAYS_INLINE __m128i narrow_join(__m128i a, __m128i b)
{
    return _mm_add_epi16(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
}

static ALWAYS_INLINE __m128i narrow_join4(const __m128i *v)
{
    __m128i a = narrow_join(v[0], v[1]), b = narrow_join(v[2], v[3]);

    a = _mm_add_epi16(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    return _mm_madd_epi16(_mm_unpacklo_epi16(a, _mm_srli_si128(a, 8)), _mm_set1_epi16(1));
}

/* As direct_sums below, of the first n blocks of the group at p. */
static ALWAYS_INLINE __m256i direct_narrow(const uint32_t type, const uint8_t *p, uint32_t n,
                                           const int8_t *x)
{
    const __m128i low = _mm_set1_epi8(15);
    const size_t bytes = quant_bytes(type);
    __m128i s[QUANT_SUPER];

    UNROLLED (i, QUANT_SUPER) {
        __m128i v;

        s[i] = _mm_setzero_si128();
        if (i >= n)
            continue;
        v = _mm_loadu_si128((const __m128i *)(p + (i + 1) * bytes - 16));
        s[i] = narrow_sums(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low),
                           x + (size_t)i * QUANT_BLOCK);
    }
    return _mm256_set_m128i(n <= 4 ? _mm_setzero_si128() : narrow_join4(s + 4), narrow_join4(s));
}

/* Two 16-bit scales, side by side, to the halves of a vector. */
static ALWAYS_INLINE __m256i spread_scale(const int16_t *scale)
{
    return _mm256_set_m128i(_mm_set1_epi16(scale[1]), _mm_set1_epi16(scale[0]));
}

/* Products of 32 bytes, two and two added: 16 sums. */
static ALWAYS_INLINE __m256i products16(const bool is_signed, __m256i u, __m256i x)
{
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(x, u))
                     : _mm256_maddubs_epi16(u, x);
}

/* Scales of halves come last: the sum of a half fits into 16 bits, 16 * 15 * 127. */
static ALWAYS_INLINE bool direct_scales_last(uint32_t type)
{
    return type == TENSOR_Q2_K || type == TENSOR_Q3_K;
}

/*
 * The products of the first n blocks of a group, `u` their integers, with one activation row; 0 in
 * the other lanes.
 */
static ALWAYS_INLINE __m256i direct_sums(const uint32_t type, const __m256i *u, uint32_t n,
                                         const int16_t *scale, const int8_t *x)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const bool halves = quant_has_halves(type);
    const uint32_t sums16 = halves ? 1 : quant_sums16(type);
    __m256i s[QUANT_SUPER];

    UNROLLED (i, QUANT_SUPER) {
        s[i] = _mm256_setzero_si256();
        if (i >= n)
            continue;
        s[i] = products16(quant_is_signed(type), u[i], load_32(x + (size_t)i * QUANT_BLOCK));
        if (direct_scales_last(type))
            continue;
        if (halves)
            s[i] = _mm256_madd_epi16(s[i], spread_scale(scale + 2 * (size_t)i));
        else if (sums16 < 4)
            s[i] = _mm256_madd_epi16(s[i], ones);
    }
    if (direct_scales_last(type))
        return _mm256_madd_epi16(sum_halves16(s), load_32(scale));
    return sums16 >= 4 ? sum_eight16(s, sums16 >= 8) : sum_eight32(s);
}

struct direct {
    const uint8_t *w; /* the row */
    uint32_t n_blocks;
    const int8_t *x[DIRECT_X];
    const float *dx[DIRECT_X];
    const int16_t *xs[DIRECT_X];
};

/* What eight blocks need of an activation row; those behind the first n are 0. */
struct direct_blocks {
    __m256 dx;
    __m256i sums;
};

static ALWAYS_INLINE __m256i first_lanes(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static ALWAYS_INLINE struct direct_blocks direct_load(const struct direct *j, uint32_t t,
                                                      uint32_t b, const bool whole, uint32_t n)
{
    const void *xs = j->xs[t] + 2 * (size_t)b;
    struct direct_blocks r;

    r.dx = whole ? _mm256_loadu_ps(j->dx[t] + b) : _mm256_maskload_ps(j->dx[t] + b, first_lanes(n));
    r.sums = whole ? load_32(xs) : _mm256_maskload_epi32(xs, first_lanes(n));
    return r;
}

/* The float steps of the first n of eight blocks with the sums of integers s; other lanes stay. */
static ALWAYS_INLINE __m256 direct_add(const bool offset, const bool min,
                                       const struct quant_scales *sc, __m256i s,
                                       struct direct_blocks x, const bool whole, uint32_t n,
                                       __m256 a)
{
    __m256i m = _mm256_setzero_si256();
    __m256 v;

    if (offset || min)
        m = _mm256_madd_epi16(x.sums, sc->min);
    if (offset)
        s = _mm256_add_epi32(s, m);
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(sc->d, x.dx), a);
    if (min)
        v = _mm256_fmadd_ps(sc->m, _mm256_mul_ps(x.dx, _mm256_cvtepi32_ps(m)), v);
    return whole ? v : _mm256_blendv_ps(a, v, _mm256_castsi256_ps(first_lanes(n)));
}

/*
 * The first n blocks of the group at p, blocks b.. of the row.  Fewer than eight are the rest of a
 * row: the other lanes are left alone.
 */
static ALWAYS_INLINE void direct_group(const uint32_t n_t, const uint32_t type,
                                       const struct direct *j, const uint8_t *p, uint32_t b,
                                       const bool whole, uint32_t n, __m256 *a)
{
    struct quant_scales sc = {0}; /* a format sets those it has */
    int16_t scale[2 * QUANT_SUPER];
    __m256i u[QUANT_SUPER];

    quant_load_scales(type, p, n, &sc);
    if (quant_has_halves(type))
        _mm256_storeu_si256((__m256i *)scale, sc.scale);
    UNROLLED (i, QUANT_SUPER)
        u[i] = (whole || i < n) && !direct_is_narrow(type) ? quant_unpack(type, p, i)
                                                           : _mm256_setzero_si256();
    UNROLLED (t, n_t) {
        const int8_t *x = j->x[t] + (size_t)b * QUANT_BLOCK;
        __m256i s = direct_is_narrow(type) ? direct_narrow(type, p, n, x)
                                           : direct_sums(type, u, n, scale, x);

        a[t] = direct_add(quant_offset(type) != 0, quant_is_min(type), &sc, s,
                          direct_load(j, t, b, whole, n), whole, n, a[t]);
    }
}

static ALWAYS_INLINE void direct_row(const uint32_t n_t, const uint32_t type,
                                     const struct direct *j, float *ret)
{
    const uint32_t bytes = quant_group_bytes(type);
    const uint8_t *p = j->w;
    __m256 a[DIRECT_X];
    uint32_t b = 0;

    UNROLLED (t, n_t)
        a[t] = _mm256_setzero_ps();
    for (; b + QUANT_SUPER <= j->n_blocks; b += QUANT_SUPER, p += bytes) {
        UNROLLED_BY (o, 0, bytes, 64)
            prefetch(p, STREAM_AHEAD + o);
        direct_group(n_t, type, j, p, b, true, QUANT_SUPER, a);
    }
    if (!quant_is_super(type) && b < j->n_blocks)
        direct_group(n_t, type, j, p, b, false, j->n_blocks - b, a);
    UNROLLED (t, n_t)
        ret[t] = tree8(a[t]);
}

/*
 * The formats that few files have share one piece of code, since their own are long to compile:
 * blocks are unpacked into memory first.
 */
struct direct_format {
    void (*unpack)(const uint8_t *p, uint32_t n, struct quant_group *g);
    uint32_t group_bytes;
    bool halves, offset, min;
};

/* Products as of signed integers, which is right for unsigned ones below 128 too. */
static ALWAYS_INLINE __m256i shared_sums(const bool halves, const struct quant_group *g, uint32_t n,
                                         const int16_t *scale, const int8_t *x)
{
    __m256i s[QUANT_SUPER];

    UNROLLED (i, QUANT_SUPER) {
        s[i] = _mm256_setzero_si256();
        if (i >= n)
            continue;
        s[i] =
            _mm256_madd_epi16(products16(true, g->u[i], load_32(x + (size_t)i * QUANT_BLOCK)),
                              halves ? spread_scale(scale + 2 * (size_t)i) : _mm256_set1_epi16(1));
    }
    return sum_eight32(s);
}

static void direct_row_shared(uint32_t n_t, const struct direct_format *f, const struct direct *j,
                              float *ret)
{
    const uint8_t *p = j->w;
    __m256 a[DIRECT_X];

    for (uint32_t t = 0; t < n_t; t++)
        a[t] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < j->n_blocks; b += QUANT_SUPER, p += f->group_bytes) {
        const uint32_t n = j->n_blocks - b < QUANT_SUPER ? j->n_blocks - b : QUANT_SUPER;
        int16_t scale[2 * QUANT_SUPER];
        struct quant_group g;

        for (uint32_t o = 0; o < f->group_bytes; o += 64)
            prefetch(p, STREAM_AHEAD + o);
        f->unpack(p, n, &g);
        _mm256_storeu_si256((__m256i *)scale, g.sc.scale);
        for (uint32_t t = 0; t < n_t; t++) {
            const int8_t *x = j->x[t] + (size_t)b * QUANT_BLOCK;
            __m256i s =
                f->halves ? shared_sums(true, &g, n, scale, x) : shared_sums(false, &g, n, NULL, x);

            a[t] = direct_add(f->offset, f->min, &g.sc, s, direct_load(j, t, b, false, n), false, n,
                              a[t]);
        }
    }
    for (uint32_t t = 0; t < n_t; t++)
        ret[t] = tree8(a[t]);
}

/* f: those that share code; NULL for one with its own. */
static ALWAYS_INLINE void direct_rows(const uint32_t type, const struct direct_format *f,
                                      const struct matmul *m, uint32_t r0, uint32_t r1)
{
    struct direct j = {.n_blocks = m->k / QUANT_BLOCK};

    /* Three are done as four, the last twice. */
    for (uint32_t t = 0; t < DIRECT_X; t++) {
        uint32_t row = t < m->n_x ? t : m->n_x - 1;
        size_t x = m->in ? m->in[row] : row;

        j.x[t] = m->xq + x * m->xq_ld;
        j.dx[t] = m->xd + x * m->xd_ld;
        j.xs[t] = m->xs + x * 2 * m->xd_ld;
    }
    for (uint32_t r = r0; r < r1; r++) {
        float v[DIRECT_X];

        j.w = (const uint8_t *)m->w + r * m->row_bytes;
        if (f)
            direct_row_shared(m->n_x, f, &j, v);
        else if (m->n_x == 1)
            direct_row(1, type, &j, v);
        else if (m->n_x == 2)
            direct_row(2, type, &j, v);
        else
            direct_row(4, type, &j, v);
        for (uint32_t t = 0; t < m->n_x; t++) {
            float *y = m->y + (m->out ? m->out[t] : t) * m->y_ld + r;

            *y = m->acc ? *y + v[t] : v[t];
        }
    }
}

#endif
