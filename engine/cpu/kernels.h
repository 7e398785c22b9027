/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the CPU backend, in three versions that give equal bits.
 *
 * "c" is the oracle: plain scalar C.  "avx2" (AVX2, FMA, F16C) and "avx512" (AVX-512 F, BW, DQ, VL,
 * VNNI) must give the same bytes for every input, NaN payloads excepted.  What they have to agree
 * on is fixed here and nowhere else:
 *
 *   dot product     16 virtual lanes.  Lane l starts at +0 and takes the elements k = l, l+16,
 *                   l+32, … in this order, acc[l] = fma(w[k], x[k], acc[l]).  A short last group
 *                   leaves the lanes it does not reach alone.
 *   tree            16 lanes to one: a[l] += a[l+8] for l < 8, then a[l] += a[l+4] for l < 4, then
 *                   a[l] += a[l+2] for l < 2, then a[0] + a[1].
 *   activations     for quantised weights in blocks of 32: scale dx = max|x|/127 (f32), xq = x *
 *                   (1/dx) rounded to the nearest integer, ties to even, 0 when dx is 0.
 *   quantised       weights of every block format in blocks of 32 as engine/quant.h shows them: d,
 *   product         m, and integers q, scale and min (two each of the latter, one per half).  For
 *                   block b with lane l = b % 8, from +0, blocks in order:
 *                     s = sum over halves of scale * (sum of q * xq)           exact, 32 bits
 *                     a[l] = fma((float)s, d * dx, a[l])
 *                   and for formats with a minimum then
 *                     t = sum over halves of min * (sum of xq)                 exact
 *                     a[l] = fma(m, dx * (float)t, a[l])
 *                   Then the tree from 8 lanes on.  One float step per block, so that it costs
 *                   little beside the integers; lanes by block, so that the blocks of one row fill
 *                   a vector, and so do the rows of one block.
 *   exp             our own polynomial (vmath.h), also inside silu, sigmoid and softmax
 *   attention       splits of 512 keys counted from key 0; in a split: scores = dot (lanes as
 *                   above) * scale, m = max, p = exp(s - m), l = sum of p in 16 lanes by (key index
 *                   in the split) % 16 and the tree, acc[d] = fma(p, v[d], acc[d]) in key order.
 *                   Splits are folded from the left: M = max(m, m'), e = exp(m - M),
 *                   e' = exp(m' - M), l = fma(l', e', l * e), acc = fma(acc', e', acc * e); at the
 *                   end acc / l.
 *   recurrences     element by element in token order, as written at each function
 *
 * So a result depends on its own inputs alone: not on how many rows are multiplied at once, which
 * thread does it, or which version runs.  Compiled with -ffp-contract=off: an fma is where we wrote
 * one.
 *
 * Functions here neither allocate nor fail nor log.  Any thread may call them; concurrent calls
 * must write disjoint outputs.  Pointers need no alignment beyond their element's, but 64-byte
 * aligned activations are faster.
 */
#ifndef ENGINE_CPU_KERNELS_H
#define ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kv_type { KV_F16, KV_BF16, KV_F32, KV_N };

enum {
    ATTN_SPLIT_KEYS = 512, /* fixed for ever: it is part of the arithmetic */
    PAGE_TOKENS = 64,
};

/*
 * y[t][r] = dot(w row r, x row t) for r in [r0, r1) and every activation row t < n_x.
 *
 * w       weights, rows of k elements of `type` (F32, F16, BF16, or quant_is), row_bytes apart
 * x       activation rows of k floats, x_ld floats apart; used by the float types
 * xq, xd, xs  the same rows quantised by quantize_q8, used by the others: k int8 per row, xq_ld
 *         bytes apart; k/32 floats per row, xd_ld apart; 2*k/32 sums per row, 2*xd_ld apart
 * in      row t reads activation row in[t] (NULL: t)
 * out     row t goes to y + out[t] * y_ld (NULL: t)
 * acc     add to y instead of overwriting: y = y + dot (one rounding after the dot is complete)
 */
struct matmul {
    const void *w;
    uint32_t type;
    uint32_t k;
    uint64_t row_bytes;
    const float *x;
    size_t x_ld;
    const int8_t *xq;
    size_t xq_ld;
    const float *xd;
    size_t xd_ld;
    const int16_t *xs;
    const uint32_t *in, *out;
    uint32_t n_x;
    float *y;
    size_t y_ld;
    bool acc;
};

/*
 * Attention of query rows of one sequence on one K/V head.  Query row i (0 <= i < n_rows) stands at
 * position pos0 + i and sees the keys [first_key, pos0 + i] (first_key is 1 for the draft layer,
 * whose row 0 is masked; a row that sees no key gives zeros).
 *
 * pages[p]  base of the unit that holds keys 64p .. 64p+63; K of this layer and head at k_off, V at
 *           v_off, each [64][head_dim] of kv_type
 * q         [n_rows] rows q_ld floats apart; the group's n_group query heads follow each other,
 *           head_dim floats each (rotated, not scaled)
 * out       the same shape, out_ld apart
 */
struct attention {
    const uint8_t *const *pages;
    size_t k_off, v_off;
    enum kv_type kv_type;
    uint32_t head_dim;
    uint32_t n_group;
    uint32_t pos0, n_rows, first_key;
    float scale;
    const float *q;
    size_t q_ld;
    float *out;
    size_t out_ld;
};

/* Floats of one partial result: m, l, acc[head_dim]. */
#define ATTN_PARTIAL_FLOATS(head_dim) (2 + (size_t)(head_dim))

/*
 * The gated delta rule of one value head over n rows:
 *   q, k are l2-normalised here: u / sqrt(sum u^2 + 1e-6), the sum in lanes and tree
 *   beta = sigmoid(b), alpha = exp(a_coef * softplus(a + dt))
 *   S[i][j] = alpha * S[i][j]
 *   p[j] = sum_i fma(k[i], S[i][j]) in order of i from +0
 *   d[j] = beta * (v[j] - p[j])
 *   S[i][j] = fma(k[i], d[j], S[i][j])
 *   o[j] = (sum_i fma(q[i], S[i][j]) in order of i) / sqrt(dim)
 * then the gated norm of step 8: o = rmsnorm(o, eps, norm) * silu(z).
 *
 * state [dim][dim], key index i slow, value index j fast; updated in place
 * q,k,v,z,o rows are ld_* floats apart; a, b are one float per row, ld_ab apart
 */
struct delta {
    uint32_t dim, n_rows;
    float *state;
    const float *q, *k, *v, *z;
    size_t ld_qkv, ld_z;
    const float *a, *b;
    size_t ld_ab;
    float a_coef, dt;
    const float *norm;
    float eps;
    float *o;
    size_t ld_o;
};

struct kernels {
    const char *name; /* "c", "avx2", "avx512" */

    /*
     * Bytes of scratch that matmul wants per thread for rows of k elements; 64-byte aligned by the
     * caller.
     */
    size_t (*matmul_scratch)(uint32_t k);
    /* Rows [r0, r1) of the product.  Efficient when r1 - r0 >= 16. */
    void (*matmul)(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch);

    /*
     * x[k] to q[k], d[k/32] and the sums of every 16 of q, s[2*k/32]; k a multiple of 32.
     * Non-finite input gives a non-finite scale, so that it shows in the product.
     */
    void (*quantize_q8)(const float *x, uint32_t k, int8_t *q, float *d, int16_t *s);

    /* One row of any supported weight type to floats. */
    void (*to_float)(const void *row, uint32_t type, uint32_t k, float *y);

    /* y = x * (1 / sqrt(mean(x^2) + eps)) * w; the sum of squares is dot(x, x).  y may be x. */
    void (*rmsnorm)(const float *x, const float *w, float eps, uint32_t n, float *y);

    void (*add)(float *y, const float *x, uint32_t n);           /* y += x */
    void (*axpy)(float *y, float a, const float *x, uint32_t n); /* y = fma(a, x, y) */
    void (*scale)(float *y, float a, uint32_t n);                /* y *= a */
    /* y = silu(g) * u, silu(z) = z / (1 + exp(-z)) */
    void (*silu_mul)(const float *g, const float *u, uint32_t n, float *y);
    void (*sigmoid_mul)(float *y, const float *g, uint32_t n); /* y *= 1 / (1 + exp(-g)) */
    void (*softmax)(float *x, uint32_t n); /* sum in lanes and tree; then x / sum */

    /*
     * Rotates the first n_rot floats of a head in place; cs holds n_rot/2 cosines, then n_rot/2
     * sines.  neox: pairs (p, p + n_rot/2), else (2p, 2p+1).
     * a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos).
     */
    void (*rope)(float *head, uint32_t n_rot, bool neox, const float *cs);

    /* n floats to kv_type (round to nearest even). */
    void (*kv_store)(const float *x, uint32_t n, enum kv_type t, void *y);

    /* Scratch per thread, bytes, for up to n_rows query rows in one attention call. */
    size_t (*attention_scratch)(uint32_t head_dim, uint32_t n_group, uint32_t n_rows);
    /* Query rows [r0, r1): all splits, folded, written to out.  Efficient when r1 - r0 >= 8. */
    void (*attention)(const struct attention *a, uint32_t r0, uint32_t r1, void *scratch);
    /*
     * One split of one row: n_group partials of ATTN_PARTIAL_FLOATS each.  With attention_fold the
     * same bits as attention().
     */
    void (*attention_split)(const struct attention *a, uint32_t row, uint32_t i_split,
                            float *partials, void *scratch);
    /* Folds n_splits partials of one query head, `stride` floats apart, into out[head_dim]. */
    void (*attention_fold)(const float *partials, size_t stride, uint32_t n_splits,
                           uint32_t head_dim, float *out);

    /*
     * Causal depthwise convolution and SiLU over channels [c0, c1) of n_rows rows:
     * y[t][c] = silu(w[c][0]*h[t-taps+1][c] + … + w[c][taps-1]*m[t][c]), each product an fma in tap
     * order, from fl(w0*h0).  `hist` [taps-1][n_ch] holds the raw rows before row 0, oldest first,
     * and is updated to those before row n_rows.
     */
    void (*conv_silu)(const float *m, size_t m_ld, uint32_t n_rows, const float *w, uint32_t taps,
                      float *hist, uint32_t n_ch, uint32_t c0, uint32_t c1, float *y, size_t y_ld);

    void (*delta_rows)(const struct delta *d);

    /* True when all n values are finite. */
    bool (*all_finite)(const float *x, size_t n);
};

/*
 * The version named "c", "avx2" or "avx512"; NULL when this build or this processor lacks it.  NULL
 * name: the fastest.
 */
const struct kernels *kernels_get(const char *name);

/*
 * cos and sin of pos * inv_freq for every pair: the product in f32, then our own reduction and
 * polynomials in double, rounded once.  cs: n_rot/2 cosines, then n_rot/2 sines.  The same bits
 * everywhere.
 */
void rope_table(uint32_t pos, const float *inv_freq, uint32_t n_rot, float *cs);

/* Half precision by the rules of IEEE, subnormals included; slow paths for tests and single values.
 */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);

#endif
