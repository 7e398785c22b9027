/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of every format as vectors: 32 bytes of integers, and scales of eight blocks at a time.
 * The same for both instruction sets, since a block is 256 bits; engine/quant.c says what the bytes
 * mean.
 *
 * The integers come as unsigned bytes u = q + offset, because the byte products of x86 want one
 * unsigned side; the product with `offset` is taken off again in integers.  Formats whose q takes
 * all eight bits come signed instead, see quant_is_signed.
 */
#ifndef ENGINE_CPU_QUANT_UNPACK_H
#define ENGINE_CPU_QUANT_UNPACK_H

#include "engine/cpu/kernels_isa.h"
#include "engine/cpu/lanes_simd.h"
#include "engine/gguf.h"
#include "engine/quant.h"

/* What every function below is told about a format; constants wherever it matters for speed. */
static ALWAYS_INLINE bool quant_is_super(uint32_t type)
{
    return type != TENSOR_Q4_0 && type != TENSOR_Q4_1 && type != TENSOR_Q5_0 &&
           type != TENSOR_Q5_1 && type != TENSOR_Q8_0 && type != TENSOR_IQ4_NL &&
           type != TENSOR_MXFP4;
}

static ALWAYS_INLINE bool quant_is_signed(uint32_t type)
{
    return type == TENSOR_Q8_0 || type == TENSOR_IQ4_NL || type == TENSOR_IQ4_XS ||
           type == TENSOR_IQ3_XXS;
}

/* Block i is shifted by a number that depends on i: a constant, if it is to be fast. */
static ALWAYS_INLINE bool quant_is_shifted(uint32_t type)
{
    return type == TENSOR_Q2_K || type == TENSOR_Q3_K || type == TENSOR_Q4_K ||
           type == TENSOR_Q5_K || type == TENSOR_Q6_K;
}

/* Has integer scales for halves of a block. */
static ALWAYS_INLINE bool quant_has_halves(uint32_t type)
{
    return type == TENSOR_Q2_K || type == TENSOR_Q3_K || type == TENSOR_Q6_K ||
           type == TENSOR_IQ2_XS;
}

static ALWAYS_INLINE bool quant_is_min(uint32_t type)
{
    return type == TENSOR_Q4_1 || type == TENSOR_Q5_1 || type == TENSOR_Q2_K ||
           type == TENSOR_Q4_K || type == TENSOR_Q5_K;
}

static ALWAYS_INLINE int quant_offset(uint32_t type)
{
    return type == TENSOR_Q4_0     ? 8
           : type == TENSOR_Q5_0   ? 16
           : type == TENSOR_Q3_K   ? 4
           : type == TENSOR_Q6_K   ? 32
           : type == TENSOR_MXFP4  ? 12
           : type == TENSOR_IQ2_XS ? 43
           : type == TENSOR_IQ3_S  ? 15
                                   : 0;
}

/*
 * How many sums of two products u * x, |x| <= 127, 16 bits hold: u is below 16, 32, 64 or 128.
 */
static ALWAYS_INLINE uint32_t quant_sums16(uint32_t type)
{
    return quant_is_signed(type) || type == TENSOR_IQ2_XS ? 1
           : type == TENSOR_Q6_K                          ? 2
           : type == TENSOR_Q5_0 || type == TENSOR_Q5_1 || type == TENSOR_Q5_K ||
                   type == TENSOR_MXFP4 || type == TENSOR_IQ3_S || quant_has_halves(type)
               ? 4
               : 8;
}

static ALWAYS_INLINE uint32_t quant_bytes(uint32_t type)
{
    return type == TENSOR_Q4_0 || type == TENSOR_IQ4_NL ? sizeof(struct quant_q4_0)
           : type == TENSOR_Q4_1                        ? sizeof(struct quant_q4_1)
           : type == TENSOR_Q5_0                        ? sizeof(struct quant_q5_0)
           : type == TENSOR_Q5_1                        ? sizeof(struct quant_q5_1)
           : type == TENSOR_Q8_0                        ? sizeof(struct quant_q8_0)
           : type == TENSOR_MXFP4                       ? sizeof(struct quant_mxfp4)
           : type == TENSOR_Q2_K                        ? sizeof(struct quant_q2_k)
           : type == TENSOR_Q3_K                        ? sizeof(struct quant_q3_k)
           : type == TENSOR_Q4_K                        ? sizeof(struct quant_q4_k)
           : type == TENSOR_Q5_K                        ? sizeof(struct quant_q5_k)
           : type == TENSOR_Q6_K                        ? sizeof(struct quant_q6_k)
           : type == TENSOR_IQ4_XS                      ? sizeof(struct quant_iq4_xs)
           : type == TENSOR_IQ3_S                       ? sizeof(struct quant_iq3_s)
           : type == TENSOR_IQ3_XXS                     ? sizeof(struct quant_iq3_xxs)
                                                        : sizeof(struct quant_iq2_xs);
}

/* Bytes of eight blocks. */
static ALWAYS_INLINE uint32_t quant_group_bytes(uint32_t type)
{
    return quant_bytes(type) * (quant_is_super(type) ? 1 : QUANT_SUPER);
}

/* --- integers ----------------------------------------------------------------------------------
 */

static ALWAYS_INLINE __m256i load_32(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* Sixteen bytes as 32 values of four bits: the low ones, then the high ones. */
static ALWAYS_INLINE __m256i unpack_nibbles(const uint8_t *qs)
{
    __m128i v = _mm_loadu_si128((const __m128i *)qs);

    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* All ones in the bytes whose bit is set. */
static ALWAYS_INLINE __m256i unpack_bits(uint32_t bits)
{
    const __m256i place = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i one = _mm256_set1_epi64x((long long)0x8040201008040201ULL);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), place);

    return _mm256_cmpeq_epi8(_mm256_and_si256(v, one), one);
}

static ALWAYS_INLINE __m256i unpack_fives(const uint8_t *qs, const uint8_t *qh)
{
    uint32_t h;

    memcpy(&h, qh, sizeof h);
    return _mm256_or_si256(unpack_nibbles(qs),
                           _mm256_and_si256(unpack_bits(h), _mm256_set1_epi8(16)));
}

static ALWAYS_INLINE __m256i unpack_values(const uint8_t *qs, const int8_t *table, int offset)
{
    __m128i t = _mm_add_epi8(_mm_loadu_si128((const __m128i *)table), _mm_set1_epi8((char)offset));

    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), unpack_nibbles(qs));
}

/* Bytes shifted right by n bits (within 16), then masked. */
static ALWAYS_INLINE __m256i shifted(__m256i v, uint32_t n, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, (int)n), _mm256_set1_epi8((char)mask));
}

/* Bit i of each byte moved to bit n, the others 0. */
static ALWAYS_INLINE __m256i bit_to(__m256i v, uint32_t i, uint32_t n)
{
    v = i < n ? _mm256_slli_epi16(v, (int)(n - i)) : _mm256_srli_epi16(v, (int)(i - n));
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(1 << n)));
}

/* v with the sign of every bit that is set turned, plus offset. */
static ALWAYS_INLINE __m256i with_signs(__m256i v, uint32_t signs, int offset)
{
    __m256i minus = unpack_bits(signs);

    v = _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
    return _mm256_add_epi8(v, _mm256_set1_epi8((char)offset));
}

/* Four signs of seven bits become 32. */
static ALWAYS_INLINE uint32_t spread_signs(uint32_t w)
{
    return quant_even_signs(w & 127) | (uint32_t)quant_even_signs(w >> 7 & 127) << 8 |
           (uint32_t)quant_even_signs(w >> 14 & 127) << 16 |
           (uint32_t)quant_even_signs(w >> 21 & 127) << 24;
}

/* Not by way of memory: a load waits long for several stores. */
static ALWAYS_INLINE __m256i four_words(const uint64_t *v)
{
    return _mm256_set_epi64x((long long)v[3], (long long)v[2], (long long)v[1], (long long)v[0]);
}

static ALWAYS_INLINE __m256i unpack_iq3_s(const struct quant_iq3_s *p, uint32_t i)
{
    const uint8_t *qs = p->qs + 8 * (size_t)i;
    uint32_t h = p->qh[i], signs;
    uint64_t v[4];

    UNROLLED (l, 4)
        v[l] = quant_grid_iq3_s[qs[2 * l] | (h >> (2 * l) & 1) << 8] |
               (uint64_t)quant_grid_iq3_s[qs[2 * l + 1] | (h >> (2 * l + 1) & 1) << 8] << 32;
    memcpy(&signs, p->signs + 4 * (size_t)i, sizeof signs);
    return with_signs(four_words(v), signs, quant_offset(TENSOR_IQ3_S));
}

static ALWAYS_INLINE __m256i unpack_iq3_xxs(const struct quant_iq3_xxs *p, uint32_t i)
{
    const uint8_t *qs = p->qs + 8 * (size_t)i;
    uint64_t v[4];
    uint32_t w;

    UNROLLED (l, 4)
        v[l] = quant_grid_iq3_xxs[qs[2 * l]] | (uint64_t)quant_grid_iq3_xxs[qs[2 * l + 1]] << 32;
    memcpy(&w, p->w + 4 * (size_t)i, sizeof w);
    return with_signs(four_words(v), spread_signs(w), 0);
}

static ALWAYS_INLINE __m256i unpack_iq2_xs(const struct quant_iq2_xs *p, uint32_t i)
{
    uint64_t v[4];
    uint32_t signs = 0;

    UNROLLED (l, 4) {
        uint16_t q;

        memcpy(&q, p->qs + 8 * (size_t)i + 2 * l, sizeof q);
        v[l] = quant_grid_iq2_xs[q & 511];
        signs |= (uint32_t)quant_even_signs((uint8_t)(q >> 9)) << (8 * l);
    }
    return with_signs(four_words(v), signs, quant_offset(TENSOR_IQ2_XS));
}

/* Block i of the group of eight at p. */
static ALWAYS_INLINE __m256i quant_unpack(const uint32_t type, const uint8_t *p, uint32_t i)
{
    const struct quant_q2_k *q2 = (const void *)p;
    const struct quant_q3_k *q3 = (const void *)p;
    const struct quant_q4_k *q4 = (const void *)p;
    const struct quant_q5_k *q5 = (const void *)p;
    const struct quant_q6_k *q6 = (const void *)p;

    if (!quant_is_super(type))
        p += (size_t)i * quant_bytes(type);
    switch (type) {
    case TENSOR_Q4_0:
        return unpack_nibbles(p + 2);
    case TENSOR_Q4_1:
        return unpack_nibbles(p + 4);
    case TENSOR_Q5_0:
        return unpack_fives(p + 6, p + 2);
    case TENSOR_Q5_1:
        return unpack_fives(p + 8, p + 4);
    case TENSOR_Q8_0:
        return load_32(p + 2);
    case TENSOR_IQ4_NL:
        return unpack_values(p + 2, quant_iq4_values, 0);
    case TENSOR_MXFP4:
        return unpack_values(p + 1, quant_mxfp4_values, quant_offset(TENSOR_MXFP4));
    case TENSOR_Q2_K:
        return shifted(load_32(q2->qs + i / 4 * 32), i % 4 * 2, 3);
    case TENSOR_Q3_K:
        return _mm256_or_si256(shifted(load_32(q3->qs + i / 4 * 32), i % 4 * 2, 3),
                               bit_to(load_32(q3->hmask), i, 2));
    case TENSOR_Q4_K:
        return shifted(load_32(q4->qs + i / 2 * 32), i % 2 * 4, 15);
    case TENSOR_Q5_K:
        return _mm256_or_si256(shifted(load_32(q5->qs + i / 2 * 32), i % 2 * 4, 15),
                               bit_to(load_32(q5->qh), i, 4));
    case TENSOR_Q6_K:
        return _mm256_or_si256(
            shifted(load_32(q6->ql + i / 4 * 64 + i % 2 * 32), i % 4 / 2 * 4, 15),
            _mm256_slli_epi16(shifted(load_32(q6->qh + i / 4 * 32), i % 4 * 2, 3), 4));
    case TENSOR_IQ4_XS:
        return unpack_values(p + 8 + 16 * (size_t)i, quant_iq4_values, 0);
    case TENSOR_IQ3_S:
        return unpack_iq3_s((const void *)p, i);
    case TENSOR_IQ3_XXS:
        return unpack_iq3_xxs((const void *)p, i);
    default:
        return unpack_iq2_xs((const void *)p, i);
    }
}

/* --- scales ------------------------------------------------------------------------------------
 */

/*
 * Of eight blocks: d and m a float each; `scale` and `min` two of 16 bits each, side by side.  What
 * a format does not have is not set.
 */
struct quant_scales {
    __m256 d, m;
    __m256i scale, min;
};

static ALWAYS_INLINE __m256 bytes_to_floats(uint64_t bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)));
}

/* The first n of eight halves, `step` bytes apart; the others 0. */
static ALWAYS_INLINE __m256 load_halves(const uint8_t *p, size_t step, uint32_t n)
{
    __m128i v = _mm_setzero_si128();
    uint16_t h;

#define HALF(i)                                                                                    \
    if (i < n) {                                                                                   \
        memcpy(&h, p + (i)*step, sizeof h);                                                        \
        v = _mm_insert_epi16(v, (short)h, i);                                                      \
    }
    HALF(0)
    HALF(1)
    HALF(2)
    HALF(3)
    HALF(4)
    HALF(5)
    HALF(6)
    HALF(7)
#undef HALF
    return _mm256_cvtph_ps(v);
}

/* The same of pairs of halves: scale and minimum. */
static ALWAYS_INLINE void load_pairs(const uint8_t *p, size_t step, uint32_t n, __m256 *ret_d,
                                     __m256 *ret_m)
{
    const __m128i split = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m128i v[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    int h;

#define PAIR(i)                                                                                    \
    if (i < n) {                                                                                   \
        memcpy(&h, p + (i)*step, sizeof h);                                                        \
        v[(i) / 4] = _mm_insert_epi32(v[(i) / 4], h, (i) % 4);                                     \
    }
    PAIR(0)
    PAIR(1)
    PAIR(2)
    PAIR(3)
    PAIR(4)
    PAIR(5)
    PAIR(6)
    PAIR(7)
#undef PAIR
    v[0] = _mm_shuffle_epi8(v[0], split);
    v[1] = _mm_shuffle_epi8(v[1], split);
    *ret_d = _mm256_cvtph_ps(_mm_unpacklo_epi64(v[0], v[1]));
    *ret_m = _mm256_cvtph_ps(_mm_unpackhi_epi64(v[0], v[1]));
}

/* As quant_mxfp4_scale. */
static ALWAYS_INLINE __m256 load_mxfp4_scales(const uint8_t *p, uint32_t n)
{
    uint64_t bytes = 0;
    __m256i e, d, small;

    UNROLLED (i, QUANT_SUPER)
        if (i < n)
            bytes |= (uint64_t)p[i * sizeof(struct quant_mxfp4)] << (8 * i);
    e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    d = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    d = _mm256_blendv_epi8(d, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    d = _mm256_or_si256(d, _mm256_and_si256(_mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)),
                                            _mm256_set1_epi32(0x7fc00000)));
    return _mm256_castsi256_ps(d);
}

static ALWAYS_INLINE void scales_of_k(const uint8_t *p, struct quant_scales *r)
{
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303, six = 0x3f3f3f3f;
    uint32_t s[3];
    uint64_t sc, mn;

    memcpy(s, p + 4, sizeof s);
    sc = (s[0] & six) | (uint64_t)((s[2] & low) | (s[0] >> 6 & two) << 4) << 32;
    mn = (s[1] & six) | (uint64_t)((s[2] >> 4 & low) | (s[1] >> 6 & two) << 4) << 32;
    r->d = _mm256_mul_ps(_mm256_set1_ps(load_half(p)), bytes_to_floats(sc));
    r->m = _mm256_mul_ps(_mm256_set1_ps(-load_half(p + 2)), bytes_to_floats(mn));
}

static ALWAYS_INLINE void scales_of_q3_k(const struct quant_q3_k *p, struct quant_scales *r)
{
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303;
    uint32_t s[3];
    __m128i v;

    memcpy(s, p->scales, sizeof s);
    v = _mm_setr_epi32((int)((s[0] & low) | (s[2] & two) << 4),
                       (int)((s[1] & low) | (s[2] >> 2 & two) << 4),
                       (int)((s[0] >> 4 & low) | (s[2] >> 4 & two) << 4),
                       (int)((s[1] >> 4 & low) | (s[2] >> 6 & two) << 4));
    r->d = _mm256_set1_ps(load_half(p->d));
    r->scale = _mm256_sub_epi16(_mm256_cvtepu8_epi16(v), _mm256_set1_epi16(32));
}

static ALWAYS_INLINE __m256 scales_of_iq4_xs(const struct quant_iq4_xs *p)
{
    uint32_t low, high;
    uint64_t s = 0;

    memcpy(&low, p->scales_l, sizeof low);
    high = p->scales_h[0] | (uint32_t)p->scales_h[1] << 8;
    UNROLLED (i, QUANT_SUPER)
        s |= (uint64_t)((low >> (4 * i) & 15) | (high >> (2 * i) & 3) << 4) << (8 * i);
    return _mm256_mul_ps(_mm256_set1_ps(load_half(p->d)),
                         _mm256_sub_ps(bytes_to_floats(s), _mm256_set1_ps(32)));
}

static ALWAYS_INLINE __m256 scales_of_iq3_s(const struct quant_iq3_s *p)
{
    uint64_t s = 0;

    UNROLLED (i, 4)
        s |= (uint64_t)(1 + 2 * (p->scales[i] & 15) + (1 + 2 * (p->scales[i] >> 4)) * 256)
             << (16 * i);
    return _mm256_mul_ps(_mm256_set1_ps(load_half(p->d)), bytes_to_floats(s));
}

static ALWAYS_INLINE __m256 scales_of_iq3_xxs(const struct quant_iq3_xxs *p)
{
    __m256 s = _mm256_cvtepi32_ps(_mm256_srli_epi32(load_32(p->w), 28));

    s = _mm256_add_ps(s, _mm256_set1_ps(0.5f));
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(load_half(p->d)), s), _mm256_set1_ps(0.5f));
}

/* The first n blocks (8 of a block of 256) of the group at p. */
static ALWAYS_INLINE void quant_load_scales(const uint32_t type, const uint8_t *p, uint32_t n,
                                            struct quant_scales *r)
{
    const struct quant_q2_k *q2 = (const void *)p;
    const struct quant_q6_k *q6 = (const void *)p;
    const struct quant_iq2_xs *q = (const void *)p;
    __m128i v, low = _mm_set1_epi8(15);

    switch (type) {
    case TENSOR_Q2_K:
        r->d = _mm256_set1_ps(load_half(q2->d));
        r->m = _mm256_set1_ps(-load_half(q2->dmin));
        v = _mm_loadu_si128((const __m128i *)q2->scales);
        r->scale = _mm256_cvtepu8_epi16(_mm_and_si128(v, low));
        r->min = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(v, 4), low));
        break;
    case TENSOR_Q3_K:
        scales_of_q3_k((const void *)p, r);
        break;
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        scales_of_k(p, r);
        break;
    case TENSOR_Q6_K:
        r->d = _mm256_set1_ps(load_half(q6->d));
        r->scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)q6->scales));
        break;
    case TENSOR_IQ2_XS:
        r->d = _mm256_set1_ps(load_half(q->d) * 0.125f);
        v = _mm_loadl_epi64((const __m128i *)q->scales);
        v = _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
        v = _mm_add_epi8(_mm_add_epi8(v, v), _mm_set1_epi8(1));
        r->scale = _mm256_cvtepu8_epi16(v);
        break;
    case TENSOR_IQ4_XS:
        r->d = scales_of_iq4_xs((const void *)p);
        break;
    case TENSOR_IQ3_S:
        r->d = scales_of_iq3_s((const void *)p);
        break;
    case TENSOR_IQ3_XXS:
        r->d = scales_of_iq3_xxs((const void *)p);
        break;
    case TENSOR_MXFP4:
        r->d = load_mxfp4_scales(p, n);
        break;
    default:
        if (quant_is_min(type))
            load_pairs(p, quant_bytes(type), n, &r->d, &r->m);
        else
            r->d = load_halves(p, quant_bytes(type), n);
        break;
    }
    /* What multiplies the sums of activations: the offset of the integers, or the minimum. */
    if (quant_offset(type) && quant_has_halves(type))
        r->min = _mm256_mullo_epi16(r->scale, _mm256_set1_epi16((short)-quant_offset(type)));
    else if (quant_offset(type))
        r->min = _mm256_set1_epi16((short)-quant_offset(type));
    else if (type != TENSOR_Q2_K)
        r->min = _mm256_set1_epi16(1);
}

/* --- groups ------------------------------------------------------------------------------------
 */

/* A group of eight blocks, unpacked, for what is not made for one format. */
struct quant_group {
    struct quant_scales sc;
    __m256i u[QUANT_SUPER];
};

/* The first n blocks (8 of a block of 256) of the group at p. */
static ALWAYS_INLINE void quant_unpack_group(const uint32_t type, const uint8_t *p, uint32_t n,
                                             struct quant_group *g)
{
    g->sc.scale = _mm256_setzero_si256();
    quant_load_scales(type, p, n, &g->sc);
    if (quant_is_shifted(type)) {
        UNROLLED (i, QUANT_SUPER)
            g->u[i] = quant_unpack(type, p, i);
    } else {
        for (uint32_t i = 0; i < n; i++)
            g->u[i] = quant_unpack(type, p, i);
    }
}

#endif
