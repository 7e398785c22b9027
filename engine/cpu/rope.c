/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of cosines and sines for rotary positions, with a sine and cosine of our own: libm's
 * differ between versions, and a table that differs in one bit would make parked state foreign.
 */
#include "engine/cpu/kernels.h"

#include <math.h>

/* sin and cos of |r| <= pi/4 (a little more by rounding): Taylor, truncated below 1e-16. */
static double sin_poly(double r)
{
    static const double c[] = {
        -1.0 / 6,        1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    double r2 = r * r, p = c[6];

    for (int i = 5; i >= 0; i--)
        p = p * r2 + c[i];
    return r + r * r2 * p;
}

static double cos_poly(double r)
{
    static const double c[] = {
        -1.0 / 2,       1.0 / 24,          -1.0 / 720,           1.0 / 40320,
        -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
    double r2 = r * r, p = c[7];

    for (int i = 6; i >= 0; i--)
        p = p * r2 + c[i];
    return 1.0 + r2 * p;
}

/* For any finite a below 2^32 or so; others give NaN, which the logits will show. */
static void sin_cos(double a, double *ret_sin, double *ret_cos)
{
    double n, r, s, c;

    if (!(a < 0x1p33 && a > -0x1p33)) {
        *ret_sin = *ret_cos = NAN;
        return;
    }
    /* pi/2 in two parts: the first fma is nearly exact because its result is small. */
    n = rint(a * 0x1.45f306dc9c883p-1);
    r = fma(n, -0x1.921fb54442d18p+0, a);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    s = sin_poly(r);
    c = cos_poly(r);
    switch ((int64_t)n & 3) {
    case 0:
        *ret_sin = s;
        *ret_cos = c;
        break;
    case 1:
        *ret_sin = c;
        *ret_cos = -s;
        break;
    case 2:
        *ret_sin = -s;
        *ret_cos = -c;
        break;
    default:
        *ret_sin = -c;
        *ret_cos = s;
        break;
    }
}

void rope_table(uint32_t pos, const float *inv_freq, uint32_t n_rot, float *cs)
{
    uint32_t n = n_rot / 2;

    for (uint32_t i = 0; i < n; i++) {
        float angle = (float)pos * inv_freq[i];
        double s, c;

        sin_cos((double)angle, &s, &c);
        cs[i] = (float)c;
        cs[n + i] = (float)s;
    }
}
