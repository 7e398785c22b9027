/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, sigmoid and softplus of the CPU backend: ours, because libm's differ between versions and
 * processors.  Every version of the kernels goes through the same operations in the same order.
 *
 * vm_exp: below 1 ulp over the whole range (tests/check_kernels.c measures it), exact at 0; rounds
 * to 0 below about -103.97 and to infinity above about 88.72; NaN stays NaN.
 */
#ifndef ENGINE_CPU_VMATH_H
#define ENGINE_CPU_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln2/2 (a little more by rounding).
 * exp(r) = 1 + r + r^2 q(r); q is a minimax fit of degree 4, relative error 4.6e-9 after its
 * coefficients were rounded to float.
 */
#define VM_EXP_MAX 89.0f   /* exp of it overflows for certain */
#define VM_EXP_MIN -104.5f /* exp of it rounds to 0 for certain */
#define VM_LOG2E   0x1.715476p+0f
#define VM_LN2_HI  0x1.62e430p-1f
#define VM_LN2_LO  -0x1.05c610p-29f
#define VM_ROUND   0x1.8p23f /* adding it leaves a small integer in the low bits of the mantissa */
#define VM_EXP_C2  0x1.fffffcp-2f
#define VM_EXP_C3  0x1.55548ep-3f
#define VM_EXP_C4  0x1.5559p-5f
#define VM_EXP_C5  0x1.123c32p-7f
#define VM_EXP_C6  0x1.6a205ep-10f

static inline uint32_t vm_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float vm_float(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float vm_exp(float x)
{
    float t, n, r, p;
    uint32_t i, i_half;

    /* The comparisons are those of the vector min and max: false for NaN, which so passes. */
    x = VM_EXP_MAX < x ? VM_EXP_MAX : x;
    x = VM_EXP_MIN > x ? VM_EXP_MIN : x;
    t = fmaf(x, VM_LOG2E, VM_ROUND);
    n = t - VM_ROUND;
    r = fmaf(n, -VM_LN2_HI, x);
    r = fmaf(n, -VM_LN2_LO, r);
    p = VM_EXP_C6;
    p = fmaf(p, r, VM_EXP_C5);
    p = fmaf(p, r, VM_EXP_C4);
    p = fmaf(p, r, VM_EXP_C3);
    p = fmaf(p, r, VM_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* 2^n in two factors: n reaches -151 and 128, and only the last product may leave the normal
     * range. */
    i = vm_bits(t) - vm_bits(VM_ROUND);
    i_half = (uint32_t)((int32_t)i >> 1);
    p = p * vm_float((i_half + 127) << 23);
    return p * vm_float((i - i_half + 127) << 23);
}

static inline float vm_sigmoid(float x)
{
    return 1.0f / (1.0f + vm_exp(-x));
}

static inline float vm_silu(float x)
{
    return x / (1.0f + vm_exp(-x));
}

/* log(y) for finite y >= 1, relative error below 1e-10. */
static inline double vm_log(double y)
{
    uint64_t u;
    double m, s, s2, p;
    int e;

    memcpy(&u, &y, sizeof(u));
    e = (int)(u >> 52) - 1023;
    u = (u & 0xfffffffffffffULL) | (1023ULL << 52);
    memcpy(&m, &u, sizeof(m));
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        e++;
    }
    /* log m = 2 atanh(s), |s| <= 0.1716 */
    s = (m - 1.0) / (m + 1.0);
    s2 = s * s;
    p = 1.0 / 15.0;
    p = p * s2 + 1.0 / 13.0;
    p = p * s2 + 1.0 / 11.0;
    p = p * s2 + 1.0 / 9.0;
    p = p * s2 + 1.0 / 7.0;
    p = p * s2 + 1.0 / 5.0;
    p = p * s2 + 1.0 / 3.0;
    p = p * s2 + 1.0;
    return (double)e * 0.6931471805599453 + 2.0 * s * p;
}

/* log(1 + exp(x)); x itself above 20.  NaN stays NaN. */
static inline float vm_softplus(float x)
{
    double e;

    if (!(x <= 20.0f))
        return x;
    e = (double)vm_exp(x);
    /* Below 2^-20 the sum 1 + e would lose too much of e; two terms of the series have it to 2^-40.
     */
    if (e < 0x1p-20)
        return (float)(e - 0.5 * e * e);
    return (float)vm_log(1.0 + e);
}

#endif
