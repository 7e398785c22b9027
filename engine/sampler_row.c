/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes over whole rows of logits, four at a time.
 *
 * Written with the compiler's vectors, which exist on every machine: each element sees the same
 * IEEE operations in the same order whatever they are compiled to.
 */
#include "engine/sampler_internal.h"

#include "util/err.h"

#include <math.h>
#include <string.h>

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4f load(const float *p)
{
    v4f v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its series up to r^7 / 7!, which leaves 6e-9. */
static inline v4f exp_v4(v4f x)
{
    /* Adding and taking away 1.5 * 2^23 rounds to an integer; ln 2 is split so that n * hi is
     * exact. */
    const float magic = 12582912.0f, log2e = 1.44269504f, ln2_hi = 0.693359375f,
                ln2_lo = -2.12194440e-4f;
    v4i in_range = x >= -87.0f; /* false for NaN: -infinity divided by an infinite temperature */
    v4f n, r, p;
    v4i bits;

    x = (v4f)((v4i)x & in_range);
    n = (x * log2e + magic) - magic;
    r = (x - n * ln2_hi) - n * ln2_lo;
    p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    bits = (v4i)p + __builtin_convertvector(n, v4i) * (1 << 23);
    return (v4f)(bits & in_range);
}

void sampler_exp(const float *x, size_t n, float max, float t, float *e)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        v4f v = exp_v4((load(x + i) - max) / t);

        memcpy(e + i, &v, sizeof(v));
    }
    if (i < n) {
        v4f v = {max, max, max, max};

        memcpy(&v, x + i, (n - i) * sizeof(float));
        v = exp_v4((v - max) / t);
        memcpy(e + i, &v, (n - i) * sizeof(float));
    }
}

double sampler_log_sum(const float *x, size_t n, float max, float *scratch)
{
    double sum[4] = {0};

    sampler_exp(x, n, max, 1.0f, scratch);
    for (size_t i = 0; i < n; i++)
        sum[i % 4] += (double)scratch[i];
    return log((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Integers that order like floats: -NaN < -infinity < ... < +infinity < NaN. */
#define KEY_INFINITY     0x7F800000
#define KEY_NEG_INFINITY (-KEY_INFINITY - 1)

static inline v4i keys_of(v4f x)
{
    /* Adding zero makes -0 equal to 0. */
    v4i b = (v4i)(x + 0.0f);

    return b ^ ((b < 0) & 0x7FFFFFFF);
}

static inline int32_t key_of(float x)
{
    v4f v = {x, 0, 0, 0};

    return keys_of(v)[0];
}

static inline v4i select_v4(v4i mask, v4i a, v4i b)
{
    return (a & mask) | (b & ~mask);
}

int sampler_scan(const float *x, uint32_t n, uint32_t *ret_id, float *ret_max)
{
    enum { BLOCK = 256 };
    v4i least = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    int32_t best = INT32_MIN;
    uint32_t at = 0, i;

    /* Only the block of the first maximum is looked at twice. */
    for (i = 0; i + BLOCK <= n; i += BLOCK) {
        v4i most = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};

        for (uint32_t j = 0; j < BLOCK; j += 4) {
            v4i k = keys_of(load(x + i + j));

            most = select_v4(k > most, k, most);
            least = select_v4(k < least, k, least);
        }
        for (int l = 0; l < 4; l++) {
            if (most[l] > best) {
                best = most[l];
                at = i;
            }
        }
    }
    for (; i < n; i++) {
        int32_t k = key_of(x[i]);

        if (k > best) {
            best = k;
            at = i;
        }
        if (k < least[0])
            least[0] = k;
    }
    for (int l = 0; l < 4; l++)
        if (n && least[l] < KEY_NEG_INFINITY)
            return ERR_NONFINITE;
    if (best >= KEY_INFINITY || best <= KEY_NEG_INFINITY)
        return ERR_NONFINITE;

    while (key_of(x[at]) != best)
        at++;
    *ret_id = at;
    *ret_max = x[at];
    return 0;
}
