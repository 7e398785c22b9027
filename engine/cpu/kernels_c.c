/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain C version of the kernels: the arithmetic of kernels.h written down once more, one value
 * at a time.  It is the oracle that the vector versions are compared with, so it stays simple; it
 * runs everywhere, slowly.
 */
#include "engine/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/kernels_isa.h"
#include "engine/cpu/vmath.h"
#include "engine/gguf.h"
#include "engine/quant.h"

enum { LANES = 16, QUANT_LANES = 8 };

static float tree(float *a, int n_lanes)
{
    for (int n = n_lanes / 2; n > 0; n /= 2)
        for (int l = 0; l < n; l++)
            a[l] += a[l + n];
    return a[0];
}

static float dot(const float *w, const float *x, uint32_t k)
{
    float a[LANES] = {0};

    for (uint32_t i = 0; i < k; i++)
        a[i % LANES] = fmaf(w[i], x[i], a[i % LANES]);
    return tree(a, LANES);
}

static uint16_t load_u16(const void *p)
{
    uint16_t u;

    memcpy(&u, p, sizeof(u));
    return u;
}

static void c_to_float(const void *row, uint32_t type, uint32_t k, float *y)
{
    const uint8_t *p = row;

    switch (type) {
    case TENSOR_F32:
        memcpy(y, p, k * sizeof(float));
        break;
    case TENSOR_F16:
        for (uint32_t i = 0; i < k; i++)
            y[i] = half_to_float(load_u16(p + 2 * i));
        break;
    case TENSOR_BF16:
        for (uint32_t i = 0; i < k; i++)
            y[i] = bf16_to_float(load_u16(p + 2 * i));
        break;
    default:
        quant_to_float(type, row, k, y);
        break;
    }
}

/* One row of blocks times one quantised activation row; see kernels.h. */
static float dot_quant(const struct quant_block *w, bool min, const int8_t *xq, const float *xd,
                       const int16_t *xs, uint32_t k)
{
    float a[LANES] = {0};

    for (uint32_t b = 0; b < k / QUANT_BLOCK; b++, w++, xq += QUANT_BLOCK, xs += 2) {
        float *lane = &a[b % QUANT_LANES];
        int s = 0, t = 0;

        for (int h = 0; h < 2; h++) {
            int sum = 0;

            for (int e = h * QUANT_HALF; e < (h + 1) * QUANT_HALF; e++)
                sum += w->q[e] * xq[e];
            s += w->scale[h] * sum;
            t += w->min[h] * xs[h];
        }
        *lane = fmaf((float)s, w->d * xd[b], *lane);
        if (min)
            *lane = fmaf(w->m, xd[b] * (float)t, *lane);
    }
    return tree(a, QUANT_LANES);
}

/* One row of weights, as floats or as blocks, which take less. */
static size_t c_matmul_scratch(uint32_t k)
{
    return ((size_t)k * sizeof(float) + sizeof(struct quant_block) + 63) & ~(size_t)63;
}

static void c_matmul(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    const bool quant = quant_is(m->type), min = quant_has_min(m->type);
    struct quant_block *blocks = scratch;

    for (uint32_t r = r0; r < r1; r++) {
        const uint8_t *w = (const uint8_t *)m->w + r * m->row_bytes;

        for (uint32_t b = 0; quant && b < m->k / QUANT_BLOCK; b++)
            quant_read(m->type, w, b, &blocks[b]);
        if (!quant)
            c_to_float(w, m->type, m->k, scratch);
        for (uint32_t t = 0; t < m->n_x; t++) {
            size_t i = m->in ? m->in[t] : t, o = m->out ? m->out[t] : t;
            float *y = m->y + o * m->y_ld + r;
            float v;

            if (quant)
                v = dot_quant(blocks, min, m->xq + i * m->xq_ld, m->xd + i * m->xd_ld,
                              m->xs + i * 2 * m->xd_ld, m->k);
            else
                v = dot(scratch, m->x + i * m->x_ld, m->k);
            *y = m->acc ? *y + v : v;
        }
    }
}

/*
 * A scale below the smallest normal number counts as 0: its reciprocal could overflow, and products
 * with it vanish anyway.  A scale that is not finite makes every product NaN (0 * inf), so the
 * integers can be 0.
 */
static void c_quantize_q8(const float *x, uint32_t k, int8_t *q, float *d, int16_t *s)
{
    for (uint32_t b = 0; b < k / QUANT_BLOCK; b++, x += QUANT_BLOCK, q += QUANT_BLOCK, s += 2) {
        uint32_t max = 0;
        float scale, inv;

        /* As integers, so that NaN is the largest and no order of comparing changes the result. */
        for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
            uint32_t u = vm_bits(x[i]) & 0x7fffffff;

            max = u > max ? u : max;
        }
        scale = vm_float(max) / 127.0f;
        if (scale < 0x1p-126f)
            scale = 0;
        d[b] = scale;
        inv = 1.0f / scale;
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            q[i] = scale != 0 && isfinite(scale) ? (int8_t)rintf(x[i] * inv) : 0;
        s[0] = s[1] = 0;
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            s[i / QUANT_HALF] = (int16_t)(s[i / QUANT_HALF] + q[i]);
    }
}

static void c_rmsnorm(const float *x, const float *w, float eps, uint32_t n, float *y)
{
    float inv = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);

    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * inv * w[i];
}

static void c_add(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static void c_axpy(float *y, float a, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

static void c_scale(float *y, float a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] * a;
}

static void c_silu_mul(const float *g, const float *u, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = vm_silu(g[i]) * u[i];
}

static void c_sigmoid_mul(float *y, const float *g, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] * vm_sigmoid(g[i]);
}

/* The largest value, NaN left out (it shows in the exponentials); never -0, whatever the order. */
static float max_of(const float *x, uint32_t n)
{
    float m = -INFINITY;

    for (uint32_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m + 0.0f;
}

static void c_softmax(float *x, uint32_t n)
{
    float a[LANES] = {0}, m = max_of(x, n), sum;

    for (uint32_t i = 0; i < n; i++) {
        x[i] = vm_exp(x[i] - m);
        a[i % LANES] += x[i];
    }
    sum = tree(a, LANES);
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] / sum;
}

static void c_rope(float *head, uint32_t n_rot, bool neox, const float *cs)
{
    uint32_t n = n_rot / 2;

    for (uint32_t p = 0; p < n; p++) {
        float *pa = neox ? head + p : head + 2 * p, *pb = neox ? head + n + p : pa + 1;
        float a = *pa, b = *pb, c = cs[p], s = cs[n + p];

        *pa = fmaf(a, c, -(b * s));
        *pb = fmaf(a, s, b * c);
    }
}

static void c_kv_store(const float *x, uint32_t n, enum kv_type t, void *y)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;

        if (t == KV_F32) {
            memcpy((uint8_t *)y + 4 * i, &x[i], 4);
            continue;
        }
        h = t == KV_F16 ? float_to_half(x[i]) : float_to_bf16(x[i]);
        memcpy((uint8_t *)y + 2 * i, &h, 2);
    }
}

static float kv_load(const uint8_t *p, enum kv_type t, uint32_t i)
{
    float f;

    if (t == KV_F16)
        return half_to_float(load_u16(p + 2 * i));
    if (t == KV_BF16)
        return bf16_to_float(load_u16(p + 2 * i));
    memcpy(&f, p + 4 * i, sizeof(f));
    return f;
}

/* The partials of one row's group over the keys [first_key, pos] of one split; none: l = 0. */
static void c_attention_split(const struct attention *a, uint32_t row, uint32_t i_split,
                              float *partials, void *scratch)
{
    uint32_t dim = a->head_dim, base = i_split * ATTN_SPLIT_KEYS, end = a->pos0 + row + 1;
    size_t row_bytes = (size_t)dim * (a->kv_type == KV_F32 ? 4 : 2);
    float *s = scratch;

    if (end > base + ATTN_SPLIT_KEYS)
        end = base + ATTN_SPLIT_KEYS;
    for (uint32_t g = 0; g < a->n_group; g++) {
        const float *q = a->q + row * a->q_ld + (size_t)g * dim;
        float *part = partials + g * ATTN_PARTIAL_FLOATS(dim), *acc = part + 2;
        uint32_t begin = a->first_key > base ? a->first_key : base;
        float l[LANES] = {0};

        memset(part, 0, ATTN_PARTIAL_FLOATS(dim) * sizeof(float));
        if (begin >= end)
            continue;
        for (uint32_t j = begin; j < end; j++) {
            const uint8_t *k = a->pages[j / PAGE_TOKENS] + a->k_off + j % PAGE_TOKENS * row_bytes;
            float lanes[LANES] = {0};

            for (uint32_t d = 0; d < dim; d++)
                lanes[d % LANES] = fmaf(kv_load(k, a->kv_type, d), q[d], lanes[d % LANES]);
            s[j - base] = tree(lanes, LANES) * a->scale;
        }
        part[0] = max_of(s + (begin - base), end - begin);
        for (uint32_t j = begin; j < end; j++) {
            const uint8_t *v = a->pages[j / PAGE_TOKENS] + a->v_off + j % PAGE_TOKENS * row_bytes;
            float p = vm_exp(s[j - base] - part[0]);

            l[(j - base) % LANES] += p;
            for (uint32_t d = 0; d < dim; d++)
                acc[d] = fmaf(p, kv_load(v, a->kv_type, d), acc[d]);
        }
        part[1] = tree(l, LANES);
    }
}

/* The running fold of one head: acc[dim], its maximum and its sum, which is 0 before the first key.
 */
struct folded {
    float m, l;
    float *acc;
};

/* Folds in the partial `b`; one without keys (l = 0) drops out. */
static void fold(struct folded *f, const float *b, uint32_t dim)
{
    float m, e, e2;

    if (b[1] == 0)
        return;
    if (f->l == 0) {
        f->m = b[0];
        f->l = b[1];
        memcpy(f->acc, b + 2, dim * sizeof(float));
        return;
    }
    m = (b[0] > f->m ? b[0] : f->m) + 0.0f;
    e = vm_exp(f->m - m);
    e2 = vm_exp(b[0] - m);
    f->m = m;
    f->l = fmaf(b[1], e2, f->l * e);
    for (uint32_t d = 0; d < dim; d++)
        f->acc[d] = fmaf(b[2 + d], e2, f->acc[d] * e);
}

static void fold_end(const struct folded *f, uint32_t dim)
{
    for (uint32_t d = 0; d < dim; d++)
        f->acc[d] = f->l == 0 ? 0 : f->acc[d] / f->l;
}

static void c_attention_fold(const float *partials, size_t stride, uint32_t n_splits,
                             uint32_t head_dim, float *out)
{
    struct folded f = {.acc = out};

    for (uint32_t i = 0; i < n_splits; i++)
        fold(&f, partials + i * stride, head_dim);
    fold_end(&f, head_dim);
}

/* The scores and the partial of one head in one split. */
static size_t c_attention_scratch(uint32_t head_dim, uint32_t n_group, uint32_t n_rows)
{
    size_t n = ATTN_SPLIT_KEYS + ATTN_PARTIAL_FLOATS(head_dim);

    (void)n_group;
    (void)n_rows;
    return (n * sizeof(float) + 63) & ~(size_t)63;
}

static void c_attention(const struct attention *a, uint32_t r0, uint32_t r1, void *scratch)
{
    float *partials = (float *)scratch + ATTN_SPLIT_KEYS;

    for (uint32_t r = r0; r < r1; r++) {
        uint32_t n_splits = (a->pos0 + r) / ATTN_SPLIT_KEYS + 1;

        for (uint32_t g = 0; g < a->n_group; g++) {
            struct folded f = {.acc = a->out + r * a->out_ld + (size_t)g * a->head_dim};
            struct attention one = *a;

            one.n_group = 1;
            one.q = a->q + (size_t)g * a->head_dim;
            for (uint32_t i = 0; i < n_splits; i++) {
                c_attention_split(&one, r, i, partials, scratch);
                fold(&f, partials, a->head_dim);
            }
            fold_end(&f, a->head_dim);
        }
    }
}

/* The raw value of row t, which may lie in the history. */
static float conv_raw(const float *m, size_t m_ld, const float *hist, uint32_t n_ch, uint32_t taps,
                      int64_t t, uint32_t c)
{
    return t < 0 ? hist[(size_t)(t + taps - 1) * n_ch + c] : m[(size_t)t * m_ld + c];
}

static void c_conv_silu(const float *m, size_t m_ld, uint32_t n_rows, const float *w, uint32_t taps,
                        float *hist, uint32_t n_ch, uint32_t c0, uint32_t c1, float *y, size_t y_ld)
{
    int64_t n_hist = (int64_t)taps - 1;

    for (uint32_t c = c0; c < c1; c++) {
        for (int64_t t = 0; t < n_rows; t++) {
            float v = w[(size_t)c * taps] * conv_raw(m, m_ld, hist, n_ch, taps, t - n_hist, c);

            for (uint32_t i = 1; i < taps; i++)
                v = fmaf(w[(size_t)c * taps + i],
                         conv_raw(m, m_ld, hist, n_ch, taps, t - n_hist + i, c), v);
            y[(size_t)t * y_ld + c] = vm_silu(v);
        }
        /* Upwards, so that a row is read before it is overwritten. */
        for (int64_t i = 0; i < n_hist; i++)
            hist[(size_t)i * n_ch + c] =
                conv_raw(m, m_ld, hist, n_ch, taps, n_rows - n_hist + i, c);
    }
}

/* One row; S[i][j] is touched in the order of i for one j after the other. */
static void delta_row(const struct delta *d, uint32_t row)
{
    const float *q = d->q + row * d->ld_qkv, *k = d->k + row * d->ld_qkv,
                *v = d->v + row * d->ld_qkv;
    const float *z = d->z + row * d->ld_z;
    float *o = d->o + row * d->ld_o;
    float nq = sqrtf(dot(q, q, d->dim) + 1e-6f), nk = sqrtf(dot(k, k, d->dim) + 1e-6f);
    float beta = vm_sigmoid(d->b[row * d->ld_ab]);
    float alpha = vm_exp(d->a_coef * vm_softplus(d->a[row * d->ld_ab] + d->dt));
    float root = sqrtf((float)d->dim);

    for (uint32_t j = 0; j < d->dim; j++) {
        float *s = d->state + j, p = 0, sum = 0, delta;

        for (size_t i = 0; i < d->dim; i++) {
            s[i * d->dim] = alpha * s[i * d->dim];
            p = fmaf(k[i] / nk, s[i * d->dim], p);
        }
        delta = beta * (v[j] - p);
        for (size_t i = 0; i < d->dim; i++) {
            s[i * d->dim] = fmaf(k[i] / nk, delta, s[i * d->dim]);
            sum = fmaf(q[i] / nq, s[i * d->dim], sum);
        }
        o[j] = sum / root;
    }
    c_rmsnorm(o, d->norm, d->eps, d->dim, o);
    for (uint32_t j = 0; j < d->dim; j++)
        o[j] = o[j] * vm_silu(z[j]);
}

static void c_delta_rows(const struct delta *d)
{
    for (uint32_t row = 0; row < d->n_rows; row++)
        delta_row(d, row);
}

static bool c_all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

const struct kernels kernels_c = {
    .name = "c",
    .matmul_scratch = c_matmul_scratch,
    .matmul = c_matmul,
    .quantize_q8 = c_quantize_q8,
    .to_float = c_to_float,
    .rmsnorm = c_rmsnorm,
    .add = c_add,
    .axpy = c_axpy,
    .scale = c_scale,
    .silu_mul = c_silu_mul,
    .sigmoid_mul = c_sigmoid_mul,
    .softmax = c_softmax,
    .rope = c_rope,
    .kv_store = c_kv_store,
    .attention_scratch = c_attention_scratch,
    .attention = c_attention,
    .attention_split = c_attention_split,
    .attention_fold = c_attention_fold,
    .conv_silu = c_conv_silu,
    .delta_rows = c_delta_rows,
    .all_finite = c_all_finite,
};
