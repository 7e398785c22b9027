/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block formats of quantised weights: what a block's bytes mean, in plain C.
 *
 * Every format is seen as blocks of 32 elements (a block of 256 is eight of them) of one shape:
 *
 *   value[e] = (d * scale[e / 16]) * q[e] + m * min[e / 16]
 *
 * q, scale and min are integers, d and m floats; both products are exact in f32, so a value is
 * rounded at most once.  The kernels multiply in the same shape (engine/cpu/kernels.h), so this
 * file is what all of them are held against.
 *
 * Functions here neither allocate nor fail; any thread may call them.
 */
#ifndef ENGINE_QUANT_H
#define ENGINE_QUANT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QUANT_BLOCK = 32, /* elements of one struct quant_block */
    QUANT_SUPER = 8,  /* of them in a block of 256 elements */
    QUANT_HALF = 16,  /* elements that share scale and min */
};

/* The layouts.  Only bytes, so that they may lie anywhere; halves are little-endian. */
struct quant_q4_0 { /* IQ4_NL too */
    uint8_t d[2], qs[16];
};
struct quant_q4_1 {
    uint8_t d[2], m[2], qs[16];
};
struct quant_q5_0 {
    uint8_t d[2], qh[4], qs[16];
};
struct quant_q5_1 {
    uint8_t d[2], m[2], qh[4], qs[16];
};
struct quant_q8_0 {
    uint8_t d[2];
    int8_t qs[32];
};
struct quant_mxfp4 {
    uint8_t e, qs[16];
};
struct quant_q2_k {
    uint8_t scales[16], qs[64], d[2], dmin[2];
};
struct quant_q3_k {
    uint8_t hmask[32], qs[64], scales[12], d[2];
};
struct quant_q4_k {
    uint8_t d[2], dmin[2], scales[12], qs[128];
};
struct quant_q5_k {
    uint8_t d[2], dmin[2], scales[12], qh[32], qs[128];
};
struct quant_q6_k {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint8_t d[2];
};
struct quant_iq4_xs {
    uint8_t d[2], scales_h[2], scales_l[4], qs[128];
};
struct quant_iq3_s {
    uint8_t d[2], qs[64], qh[8], signs[32], scales[4];
};
struct quant_iq3_xxs {
    uint8_t d[2], qs[64], w[32];
};
struct quant_iq2_xs {
    uint8_t d[2], qs[64], scales[8];
};
_Static_assert(sizeof(struct quant_q4_0) == 18, "Q4_0");
_Static_assert(sizeof(struct quant_q4_1) == 20, "Q4_1");
_Static_assert(sizeof(struct quant_q5_0) == 22, "Q5_0");
_Static_assert(sizeof(struct quant_q5_1) == 24, "Q5_1");
_Static_assert(sizeof(struct quant_q8_0) == 34, "Q8_0");
_Static_assert(sizeof(struct quant_mxfp4) == 17, "MXFP4");
_Static_assert(sizeof(struct quant_q2_k) == 84, "Q2_K");
_Static_assert(sizeof(struct quant_q3_k) == 110, "Q3_K");
_Static_assert(sizeof(struct quant_q4_k) == 144, "Q4_K");
_Static_assert(sizeof(struct quant_q5_k) == 176, "Q5_K");
_Static_assert(sizeof(struct quant_q6_k) == 210, "Q6_K");
_Static_assert(sizeof(struct quant_iq4_xs) == 136, "IQ4_XS");
_Static_assert(sizeof(struct quant_iq3_s) == 110, "IQ3_S");
_Static_assert(sizeof(struct quant_iq3_xxs) == 98, "IQ3_XXS");
_Static_assert(sizeof(struct quant_iq2_xs) == 74, "IQ2_XS");

/* The code books: an element a byte, the first in the lowest. */
extern const uint64_t quant_grid_iq2_xs[512];
extern const uint32_t quant_grid_iq3_xxs[256];
extern const uint32_t quant_grid_iq3_s[512];
/* The four bits of IQ4_NL and IQ4_XS; those of MXFP4, twice the value of E2M1. */
extern const int8_t quant_iq4_values[16];
extern const int8_t quant_mxfp4_values[16];

struct quant_block {
    float d, m;
    int16_t scale[2], min[2];
    int8_t q[QUANT_BLOCK];
};

/* A format that this file reads (enum tensor_type): weights as integers. */
bool quant_is(uint32_t type);
/* Its values have the second term; without, m and min are 0 and the term is not added. */
bool quant_has_min(uint32_t type);
/* Elements and bytes of a block as it is stored; quant_is(type). */
uint32_t quant_stored_elems(uint32_t type);
uint32_t quant_stored_bytes(uint32_t type);

/* Block b, of 32 elements, of a row. */
void quant_read(uint32_t type, const void *row, uint32_t b, struct quant_block *ret);
/* k elements of a row, k a multiple of the stored block's. */
void quant_to_float(uint32_t type, const void *row, uint32_t k, float *y);

/*
 * Where a stored block has its scale: a half, or the exponent of MXFP4.  The minimum, of formats
 * that have one, is the half that follows.
 */
uint32_t quant_scale_at(uint32_t type);
/* Whether scale and minimum of one stored block are finite. */
bool quant_is_finite(uint32_t type, const void *block);

/* 2^(e-128), NaN for 255: the scale of MXFP4 beside the doubled table. */
float quant_mxfp4_scale(uint8_t e);

/* t with the bit on top that makes the number of ones even: the signs of IQ2_XS and IQ3_XXS. */
static inline uint8_t quant_even_signs(uint8_t t)
{
    return (uint8_t)(t | (__builtin_parity(t) << 7));
}

#endif
