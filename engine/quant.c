/* SPDX-License-Identifier: Apache-2.0 */
/* One function per layout, all writing the same shape.  The formulas are the format's. */
#include "engine/quant.h"

#include "engine/gguf.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine/iq_grids.inc"

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
const int8_t quant_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* As half_to_float of engine/cpu, which this folder's files do not need otherwise. */
static float half_at(const uint8_t *p)
{
    uint32_t h = u16_at(p), sign = (h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    float f;

    if (exp == 31)
        return float_of(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
    if (exp != 0)
        return float_of(sign | (exp + 112) << 23 | man << 13);
    f = (float)man * 0x1p-24f;
    return sign ? -f : f;
}

float quant_mxfp4_scale(uint8_t e)
{
    if (e == 255)
        return NAN;
    return float_of(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

static void set_scale(struct quant_block *r, int s0, int s1)
{
    r->scale[0] = (int16_t)s0;
    r->scale[1] = (int16_t)s1;
}

static void set_min(struct quant_block *r, int m0, int m1)
{
    r->min[0] = (int16_t)m0;
    r->min[1] = (int16_t)m1;
}

/* Four bits each: elements 0-15 in the low halves, 16-31 in the high ones. */
static int nibble(const uint8_t *qs, int e)
{
    return (qs[e % 16] >> (e / 16 * 4)) & 15;
}

static void nibbles(struct quant_block *r, const uint8_t *qs, int offset)
{
    for (int e = 0; e < QUANT_BLOCK; e++)
        r->q[e] = (int8_t)(nibble(qs, e) - offset);
}

static void values(struct quant_block *r, const uint8_t *qs, const int8_t *table)
{
    for (int e = 0; e < QUANT_BLOCK; e++)
        r->q[e] = table[nibble(qs, e)];
}

/* A fifth bit from qh. */
static void fives(struct quant_block *r, const uint8_t *qs, const uint8_t *qh, int offset)
{
    uint32_t h = u32_at(qh);

    for (int e = 0; e < QUANT_BLOCK; e++)
        r->q[e] = (int8_t)(nibble(qs, e) + 16 * (int)((h >> e) & 1) - offset);
}

static void read_q8_0(const struct quant_q8_0 *p, struct quant_block *r)
{
    r->d = half_at(p->d);
    memcpy(r->q, p->qs, sizeof r->q);
}

/* Block i of 8 in each of these. */
static void read_q2_k(const struct quant_q2_k *p, uint32_t i, struct quant_block *r)
{
    const uint8_t *s = p->scales + 2 * (size_t)i;

    r->d = half_at(p->d);
    r->m = -half_at(p->dmin);
    set_scale(r, s[0] & 15, s[1] & 15);
    set_min(r, s[0] >> 4, s[1] >> 4);
    for (uint32_t e = 0; e < QUANT_BLOCK; e++)
        r->q[e] = (p->qs[i / 4 * 32 + e] >> (i % 4 * 2)) & 3;
}

static int scale_q3_k(const uint8_t *s, uint32_t i)
{
    int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = (s[8 + i % 4] >> (i / 4 * 2)) & 3;

    return (low | high << 4) - 32;
}

static void read_q3_k(const struct quant_q3_k *p, uint32_t i, struct quant_block *r)
{
    r->d = half_at(p->d);
    set_scale(r, scale_q3_k(p->scales, 2 * i), scale_q3_k(p->scales, 2 * i + 1));
    for (uint32_t e = 0; e < QUANT_BLOCK; e++) {
        int q = (p->qs[i / 4 * 32 + e] >> (i % 4 * 2)) & 3, h = (p->hmask[e] >> i) & 1;

        r->q[e] = (int8_t)(q - (h ? 0 : 4));
    }
}

/* The six-bit scale and min of Q4_K and Q5_K, times the block's. */
static void scales_q4_k(const uint8_t *d, const uint8_t *dmin, const uint8_t *s, uint32_t i,
                        struct quant_block *r)
{
    int sc, mn;

    if (i < 4) {
        sc = s[i] & 63;
        mn = s[i + 4] & 63;
    } else {
        sc = (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
        mn = s[i + 4] >> 4 | (s[i] >> 6) << 4;
    }
    r->d = half_at(d) * (float)sc;
    r->m = -(half_at(dmin) * (float)mn);
}

static void read_q4_k(const struct quant_q4_k *p, uint32_t i, struct quant_block *r)
{
    scales_q4_k(p->d, p->dmin, p->scales, i, r);
    for (uint32_t e = 0; e < QUANT_BLOCK; e++)
        r->q[e] = (p->qs[i / 2 * 32 + e] >> (i % 2 * 4)) & 15;
}

static void read_q5_k(const struct quant_q5_k *p, uint32_t i, struct quant_block *r)
{
    scales_q4_k(p->d, p->dmin, p->scales, i, r);
    for (uint32_t e = 0; e < QUANT_BLOCK; e++)
        r->q[e] =
            (int8_t)(((p->qs[i / 2 * 32 + e] >> (i % 2 * 4)) & 15) + 16 * ((p->qh[e] >> i) & 1));
}

static void read_q6_k(const struct quant_q6_k *p, uint32_t i, struct quant_block *r)
{
    uint32_t n = i / 4, k = i % 4;

    r->d = half_at(p->d);
    set_scale(r, p->scales[2 * i], p->scales[2 * i + 1]);
    for (uint32_t e = 0; e < QUANT_BLOCK; e++) {
        int lo = (p->ql[64 * n + 32 * (k & 1) + e] >> (k / 2 * 4)) & 15;
        int hi = (p->qh[32 * n + e] >> (2 * k)) & 3;

        r->q[e] = (int8_t)((lo | hi << 4) - 32);
    }
}

static void read_iq4_xs(const struct quant_iq4_xs *p, uint32_t i, struct quant_block *r)
{
    int low = (p->scales_l[i / 2] >> (i % 2 * 4)) & 15, high = (u16_at(p->scales_h) >> (2 * i)) & 3;

    r->d = half_at(p->d) * (float)((low | high << 4) - 32);
    values(r, p->qs + 16 * (size_t)i, quant_iq4_values);
}

/* 8 elements from the code book. */
static void put_signed(int8_t *q, uint64_t grid, uint8_t signs)
{
    for (int m = 0; m < 8; m++) {
        int v = (int)(grid >> (8 * m) & 0xff);

        q[m] = (int8_t)(signs >> m & 1 ? -v : v);
    }
}

static void read_iq3_s(const struct quant_iq3_s *p, uint32_t i, struct quant_block *r)
{
    int s = (p->scales[i / 2] >> (i % 2 * 4)) & 15;

    r->d = half_at(p->d) * (float)(1 + 2 * s);
    for (uint32_t l = 0; l < 4; l++) {
        const uint8_t *qs = p->qs + 8 * i + 2 * l;
        uint32_t h = p->qh[i] >> (2 * l);
        uint64_t lo = quant_grid_iq3_s[qs[0] | (h & 1) << 8],
                 hi = quant_grid_iq3_s[qs[1] | (h >> 1 & 1) << 8];

        put_signed(r->q + 8 * l, lo | hi << 32, p->signs[4 * i + l]);
    }
}

static void read_iq3_xxs(const struct quant_iq3_xxs *p, uint32_t i, struct quant_block *r)
{
    uint32_t w = u32_at(p->w + 4 * (size_t)i);

    r->d = half_at(p->d) * (0.5f + (float)(w >> 28)) * 0.5f;
    for (uint32_t l = 0; l < 4; l++) {
        const uint8_t *qs = p->qs + 8 * i + 2 * l;
        uint64_t lo = quant_grid_iq3_xxs[qs[0]], hi = quant_grid_iq3_xxs[qs[1]];

        put_signed(r->q + 8 * l, lo | hi << 32, quant_even_signs(w >> (7 * l) & 127));
    }
}

static void read_iq2_xs(const struct quant_iq2_xs *p, uint32_t i, struct quant_block *r)
{
    /* d * (0.5 + s) * 0.25 = (d / 8) * (1 + 2s), whose first factor is exact. */
    r->d = half_at(p->d) * 0.125f;
    set_scale(r, 1 + 2 * (p->scales[i] & 15), 1 + 2 * (p->scales[i] >> 4));
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t q = u16_at(p->qs + 8 * i + 2 * l);

        put_signed(r->q + 8 * l, quant_grid_iq2_xs[q & 511], quant_even_signs((uint8_t)(q >> 9)));
    }
}

/* What sets a format apart, beside its layout. */
static const struct format {
    uint16_t elems, bytes;
    bool min;
} formats[] = {
    [TENSOR_Q4_0] = {32, sizeof(struct quant_q4_0), false},
    [TENSOR_Q4_1] = {32, sizeof(struct quant_q4_1), true},
    [TENSOR_Q5_0] = {32, sizeof(struct quant_q5_0), false},
    [TENSOR_Q5_1] = {32, sizeof(struct quant_q5_1), true},
    [TENSOR_Q8_0] = {32, sizeof(struct quant_q8_0), false},
    [TENSOR_Q2_K] = {256, sizeof(struct quant_q2_k), true},
    [TENSOR_Q3_K] = {256, sizeof(struct quant_q3_k), false},
    [TENSOR_Q4_K] = {256, sizeof(struct quant_q4_k), true},
    [TENSOR_Q5_K] = {256, sizeof(struct quant_q5_k), true},
    [TENSOR_Q6_K] = {256, sizeof(struct quant_q6_k), false},
    [TENSOR_IQ2_XS] = {256, sizeof(struct quant_iq2_xs), false},
    [TENSOR_IQ3_XXS] = {256, sizeof(struct quant_iq3_xxs), false},
    [TENSOR_IQ3_S] = {256, sizeof(struct quant_iq3_s), false},
    [TENSOR_IQ4_NL] = {32, sizeof(struct quant_q4_0), false},
    [TENSOR_IQ4_XS] = {256, sizeof(struct quant_iq4_xs), false},
    [TENSOR_MXFP4] = {32, sizeof(struct quant_mxfp4), false},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

bool quant_is(uint32_t type)
{
    return type < N_FORMATS && formats[type].elems > 0;
}

bool quant_has_min(uint32_t type)
{
    return type < N_FORMATS && formats[type].min;
}

uint32_t quant_stored_elems(uint32_t type)
{
    assert(quant_is(type));
    return formats[type].elems;
}

uint32_t quant_stored_bytes(uint32_t type)
{
    assert(quant_is(type));
    return formats[type].bytes;
}

/* The formats whose stored block is one of ours. */
static void read_small(uint32_t type, const void *p, struct quant_block *r)
{
    if (type == TENSOR_MXFP4) {
        const struct quant_mxfp4 *b = p;

        r->d = quant_mxfp4_scale(b->e);
        values(r, b->qs, quant_mxfp4_values);
        return;
    }
    r->d = half_at(p);
    if (type == TENSOR_Q4_1 || type == TENSOR_Q5_1)
        r->m = half_at((const uint8_t *)p + 2);
    switch (type) {
    case TENSOR_Q4_0:
        nibbles(r, ((const struct quant_q4_0 *)p)->qs, 8);
        break;
    case TENSOR_Q4_1:
        nibbles(r, ((const struct quant_q4_1 *)p)->qs, 0);
        break;
    case TENSOR_Q5_0:
        fives(r, ((const struct quant_q5_0 *)p)->qs, ((const struct quant_q5_0 *)p)->qh, 16);
        break;
    case TENSOR_Q5_1:
        fives(r, ((const struct quant_q5_1 *)p)->qs, ((const struct quant_q5_1 *)p)->qh, 0);
        break;
    case TENSOR_IQ4_NL:
        values(r, ((const struct quant_q4_0 *)p)->qs, quant_iq4_values);
        break;
    default:
        read_q8_0(p, r);
        break;
    }
}

static void read_of_super(uint32_t type, const void *p, uint32_t i, struct quant_block *r)
{
    switch (type) {
    case TENSOR_Q2_K:
        read_q2_k(p, i, r);
        break;
    case TENSOR_Q3_K:
        read_q3_k(p, i, r);
        break;
    case TENSOR_Q4_K:
        read_q4_k(p, i, r);
        break;
    case TENSOR_Q5_K:
        read_q5_k(p, i, r);
        break;
    case TENSOR_Q6_K:
        read_q6_k(p, i, r);
        break;
    case TENSOR_IQ4_XS:
        read_iq4_xs(p, i, r);
        break;
    case TENSOR_IQ3_S:
        read_iq3_s(p, i, r);
        break;
    case TENSOR_IQ3_XXS:
        read_iq3_xxs(p, i, r);
        break;
    default:
        read_iq2_xs(p, i, r);
        break;
    }
}

void quant_read(uint32_t type, const void *row, uint32_t b, struct quant_block *ret)
{
    const uint8_t *p = row;

    assert(quant_is(type));
    ret->m = 0;
    set_scale(ret, 1, 1);
    set_min(ret, formats[type].min, formats[type].min);
    if (formats[type].elems == QUANT_BLOCK)
        read_small(type, p + (size_t)b * formats[type].bytes, ret);
    else
        read_of_super(type, p + (size_t)(b / QUANT_SUPER) * formats[type].bytes, b % QUANT_SUPER,
                      ret);
}

void quant_to_float(uint32_t type, const void *row, uint32_t k, float *y)
{
    const bool min = quant_has_min(type);

    for (uint32_t b = 0; b < k / QUANT_BLOCK; b++, y += QUANT_BLOCK) {
        struct quant_block r;

        quant_read(type, row, b, &r);
        for (int e = 0; e < QUANT_BLOCK; e++) {
            float v = r.d * (float)r.scale[e / QUANT_HALF] * (float)r.q[e];

            y[e] = min ? v + r.m * (float)r.min[e / QUANT_HALF] : v;
        }
    }
}

uint32_t quant_scale_at(uint32_t type)
{
    return type == TENSOR_Q2_K   ? offsetof(struct quant_q2_k, d)
           : type == TENSOR_Q3_K ? offsetof(struct quant_q3_k, d)
           : type == TENSOR_Q6_K ? offsetof(struct quant_q6_k, d)
                                 : 0;
}

bool quant_is_finite(uint32_t type, const void *block)
{
    const uint8_t *p = (const uint8_t *)block + quant_scale_at(type);

    if (type == TENSOR_MXFP4)
        return *p != 255;
    return isfinite(half_at(p)) && (!quant_has_min(type) || isfinite(half_at(p + 2)));
}
