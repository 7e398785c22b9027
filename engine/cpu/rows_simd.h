/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What works on one row: norms, activations, rotation, conversions.  In each loop the body stands
 * once and runs with n = VF, then once more for the tail.
 */
#ifndef ENGINE_CPU_ROWS_SIMD_H
#define ENGINE_CPU_ROWS_SIMD_H

#include <assert.h>

#include "engine/cpu/kernels_isa.h"
#include "engine/cpu/lanes_simd.h"
#include "engine/cpu/matmul_simd.h"
#include "engine/quant.h"

/* The statement, given last, for i = 0, VF, ... with n = VF, and for what is left with n = total -
 * i. */
#define EACH_VECTOR(total, ...)                                                                    \
    do {                                                                                           \
        uint32_t i = 0;                                                                            \
        for (; i + VF <= (total); i += VF) {                                                       \
            const uint32_t n = VF;                                                                 \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        if (i < (total)) {                                                                         \
            const uint32_t n = (total)-i;                                                          \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

static void simd_to_float(const void *row, uint32_t type, uint32_t k, float *y)
{
    if (quant_is(type))
        quant_to_float(type, row, k, y); /* embeddings: a row per token */
    else
        floats_of(row, type, k, y);
}

/* The sums of the halves of 32 bytes. */
static ALWAYS_INLINE void sum_halves(const int8_t *q, int16_t *s)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)q);

    v = _mm256_maddubs_epi16(_mm256_set1_epi8(1), v);
    v = _mm256_madd_epi16(v, _mm256_set1_epi16(1));
    v = _mm256_hadd_epi32(v, v);
    v = _mm256_hadd_epi32(v, v);
    s[0] = (int16_t)_mm256_extract_epi32(v, 0);
    s[1] = (int16_t)_mm256_extract_epi32(v, 4);
}

static void simd_quantize_q8(const float *x, uint32_t k, int8_t *q, float *d, int16_t *s)
{
    for (uint32_t b = 0; b < k / QUANT_BLOCK; b++, x += QUANT_BLOCK, q += QUANT_BLOCK, s += 2) {
        vi max = vi_set1(0);
        uint32_t lane[VF], m = 0;
        float scale, inv;

        /* As integers, so that NaN is the largest and no order of comparing changes the result. */
        UNROLLED_BY (i, 0, QUANT_BLOCK, VF)
            max = vi_max(vi_and(vf_bits(vf_load(x + i, VF)), vi_set1(0x7fffffff)), max);
        memcpy(lane, &max, sizeof(lane));
        for (uint32_t i = 0; i < VF; i++)
            m = lane[i] > m ? lane[i] : m;
        scale = vm_float(m) / 127.0f;
        if (scale < 0x1p-126f) /* see kernels_c.c */
            scale = 0;
        d[b] = scale;
        if (scale == 0 || !isfinite(scale)) {
            memset(q, 0, QUANT_BLOCK);
            s[0] = s[1] = 0;
            continue;
        }
        inv = 1.0f / scale;
        UNROLLED_BY (i, 0, QUANT_BLOCK, VF)
            vf_store_i8(q + i, vf_mul(vf_load(x + i, VF), vf_set1(inv)));
        sum_halves(q, s);
    }
}

static void simd_rmsnorm(const float *x, const float *w, float eps, uint32_t n_all, float *y)
{
    vf inv = vf_set1(1.0f / sqrtf(dot_f32(x, x, n_all) / (float)n_all + eps));

    EACH_VECTOR(n_all,
                vf_store(y + i, vf_mul(vf_mul(vf_load(x + i, n), inv), vf_load(w + i, n)), n));
}

static void simd_add(float *y, const float *x, uint32_t n_all)
{
    EACH_VECTOR(n_all, vf_store(y + i, vf_add(vf_load(y + i, n), vf_load(x + i, n)), n));
}

static void simd_axpy(float *y, float a, const float *x, uint32_t n_all)
{
    EACH_VECTOR(n_all,
                vf_store(y + i, vf_fma(vf_set1(a), vf_load(x + i, n), vf_load(y + i, n)), n));
}

static void simd_scale(float *y, float a, uint32_t n_all)
{
    EACH_VECTOR(n_all, vf_store(y + i, vf_mul(vf_load(y + i, n), vf_set1(a)), n));
}

static ALWAYS_INLINE vf vf_silu(vf x)
{
    return vf_div(x, vf_one_plus_exp_neg(x));
}

static void simd_silu_mul(const float *g, const float *u, uint32_t n_all, float *y)
{
    EACH_VECTOR(n_all, vf_store(y + i, vf_mul(vf_silu(vf_load(g + i, n)), vf_load(u + i, n)), n));
}

static void simd_sigmoid_mul(float *y, const float *g, uint32_t n_all)
{
    EACH_VECTOR(n_all, {
        vf s = vf_div(vf_set1(1.0f), vf_one_plus_exp_neg(vf_load(g + i, n)));

        vf_store(y + i, vf_mul(vf_load(y + i, n), s), n);
    });
}

/* x = exp(x - max) and the sum of that, in lanes by the index in x. */
static ALWAYS_INLINE float exp_sum(float *x, uint32_t n_all, float max)
{
    vf a[HALVES], m = vf_set1(max);
    uint32_t i = 0;

    UNROLLED (h, HALVES)
        a[h] = vf_zero();
    for (; i + 16 <= n_all; i += 16) {
        UNROLLED (h, HALVES) {
            vf e = vf_exp(vf_sub(vf_load(x + i + h * VF, VF), m));

            vf_store(x + i + h * VF, e, VF);
            a[h] = vf_add(a[h], e);
        }
    }
    for (uint32_t h = 0; h < HALVES; h++) {
        uint32_t n = lanes_in(n_all - i, h);

        if (n > 0) {
            vf e = vf_exp(vf_sub(vf_load(x + i + h * VF, n), m));

            vf_store(x + i + h * VF, e, n);
            a[h] = vf_keep(vf_add(a[h], e), a[h], n);
        }
    }
    return tree16(a);
}

static void simd_softmax(float *x, uint32_t n_all)
{
    vf sum = vf_set1(exp_sum(x, n_all, max_f32(x, n_all)));

    EACH_VECTOR(n_all, vf_store(x + i, vf_div(vf_load(x + i, n), sum), n));
}

static void simd_rope(float *head, uint32_t n_rot, bool neox, const float *cs)
{
    uint32_t n_pairs = n_rot / 2;

    if (!neox) {
        /* Neighbours: no model we serve is hot here. */
        for (uint32_t p = 0; p < n_pairs; p++) {
            float a = head[2 * p], b = head[2 * p + 1], c = cs[p], s = cs[n_pairs + p];

            head[2 * p] = fmaf(a, c, -(b * s));
            head[2 * p + 1] = fmaf(a, s, b * c);
        }
        return;
    }
    EACH_VECTOR(n_pairs, {
        vf a = vf_load(head + i, n), b = vf_load(head + n_pairs + i, n);
        vf c = vf_load(cs + i, n), s = vf_load(cs + n_pairs + i, n);

        vf_store(head + i, vf_fma(a, c, vf_neg(vf_mul(b, s))), n);
        vf_store(head + n_pairs + i, vf_fma(a, s, vf_mul(b, c)), n);
    });
}

static void simd_kv_store(const float *x, uint32_t n_all, enum kv_type t, void *y)
{
    uint8_t *p = y;

    if (t == KV_F16)
        EACH_VECTOR(n_all, vf_store_f16(p + (size_t)i * 2, vf_load(x + i, n), n));
    else if (t == KV_BF16)
        EACH_VECTOR(n_all, vf_store_bf16(p + (size_t)i * 2, vf_load(x + i, n), n));
    else
        memcpy(p, x, (size_t)n_all * sizeof(float));
}

/* Any exponent of all ones, found by the carry out of the exponent field: no branch per vector. */
static bool simd_all_finite(const float *x, size_t n_all)
{
    vi bad = vi_set1(0);
    uint32_t lane[VF], any = 0;
    size_t i = 0;

    for (; i + VF <= n_all; i += VF) {
        vi u = vi_and(vf_bits(vf_load(x + i, VF)), vi_set1(0x7f800000));

        bad = vi_max(bad, u);
    }
    memcpy(lane, &bad, sizeof(lane));
    for (uint32_t l = 0; l < VF; l++)
        any |= lane[l] == 0x7f800000;
    for (; i < n_all; i++)
        any |= (vm_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return !any;
}

/*
 * The convolution, a vector of channels at a time: the weights of one channel stand together, so
 * they are turned round first.
 */
enum { CONV_TAPS = 8 }; /* no published model has more than 4 */

static void conv_vector(const float *m, size_t m_ld, uint32_t n_rows, const float *w, uint32_t taps,
                        float *hist, uint32_t n_ch, float *y, size_t y_ld, uint32_t n)
{
    float turned[CONV_TAPS][VF] = {{0}};
    vf raw[CONV_TAPS], wt[CONV_TAPS];
    uint32_t n_hist = taps - 1;

    for (uint32_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < taps; i++)
            turned[i][c] = w[(size_t)c * taps + i];
    for (uint32_t i = 0; i < taps; i++)
        wt[i] = vf_load(turned[i], VF);
    for (uint32_t i = 0; i < n_hist; i++)
        raw[i] = vf_load(hist + (size_t)i * n_ch, n);
    for (uint32_t t = 0; t < n_rows; t++) {
        vf v;

        raw[n_hist] = vf_load(m + t * m_ld, n);
        v = vf_mul(wt[0], raw[0]);
        for (uint32_t i = 1; i < taps; i++)
            v = vf_fma(wt[i], raw[i], v);
        vf_store(y + t * y_ld, vf_silu(v), n);
        for (uint32_t i = 0; i < n_hist; i++)
            raw[i] = raw[i + 1];
    }
    for (uint32_t i = 0; i < n_hist; i++)
        vf_store(hist + (size_t)i * n_ch, raw[i], n);
}

static void simd_conv_silu(const float *m, size_t m_ld, uint32_t n_rows, const float *w,
                           uint32_t taps, float *hist, uint32_t n_ch, uint32_t c0, uint32_t c1,
                           float *y, size_t y_ld)
{
    if (taps > CONV_TAPS) {
        kernels_c.conv_silu(m, m_ld, n_rows, w, taps, hist, n_ch, c0, c1, y, y_ld);
        return;
    }
    EACH_VECTOR(c1 - c0, {
        uint32_t c = c0 + i;

        conv_vector(m + c, m_ld, n_rows, w + (size_t)c * taps, taps, hist + c, n_ch, y + c, y_ld,
                    n);
    });
}

#endif
