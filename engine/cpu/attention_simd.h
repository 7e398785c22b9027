/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages of keys, one split of 512 keys after the other.
 *
 * The query rows of a call and the heads of the group are one list of queries, rows slow.  For
 * every page the scores are a matrix product with the keys as weights (matmul_simd.h); when all
 * scores of the split stand, they become probabilities, and the values are summed up page by page
 * in key order.
 */
#ifndef ENGINE_CPU_ATTENTION_SIMD_H
#define ENGINE_CPU_ATTENTION_SIMD_H

#include "engine/cpu/matmul_simd.h"
#include "engine/cpu/rows_simd.h"

enum {
    ATTN_QUERIES = 64, /* as many per pass over the keys: their scores are 128 KiB */
    PV_VECTORS = 4,    /* of a head that are summed at once: PV_VECTORS * TILE_T accumulators */
};

/* Queries of rows [row, row + n_rows) and the scratch that serves them. */
struct queries {
    const struct attention *a;
    uint32_t row, n;
    uint32_t weight_type; /* of a->kv_type, in the numbers of matmul */
    size_t elem_bytes;
    float *s;    /* [n][ATTN_SPLIT_KEYS] scores, then probabilities */
    float *page; /* keys, packed, or values as floats: packed_tile_floats(head_dim) for every 4
                    tokens */
    float *acc;  /* [n] rows acc_ld apart: sums of one split */
    size_t acc_ld;
    float *m, *l; /* [n] of one split; l = 0 where no key is seen */
};

static const float *query_at(const struct queries *u, uint32_t i)
{
    return u->a->q + (u->row + i / u->a->n_group) * u->a->q_ld +
           (size_t)(i % u->a->n_group) * u->a->head_dim;
}

static float *out_at(const struct queries *u, uint32_t i)
{
    return u->a->out + (u->row + i / u->a->n_group) * u->a->out_ld +
           (size_t)(i % u->a->n_group) * u->a->head_dim;
}

/* The first key that query i does not see. */
static uint32_t query_end(const struct queries *u, uint32_t i)
{
    return u->a->pos0 + u->row + i / u->a->n_group + 1;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void page_scores(const struct queries *u, uint32_t i_page, uint32_t base, uint32_t n_keys)
{
    struct tile_rows j = {
        .w = u->a->pages[i_page] + u->a->k_off, .n_r = n_keys, .k = u->a->head_dim};

    j.w_ld = u->a->head_dim * u->elem_bytes;
    if (u->n > TILE_T) {
        pack(u->weight_type, j.w, j.w_ld, n_keys, j.k, u->page);
        j.packed = u->page;
    }
    for (uint32_t t = 0, n_t; t < u->n; t += n_t) {
        n_t = next_tile(u->n - t);
        /* None of these queries reaches the page. */
        if (query_end(u, t + n_t - 1) <= i_page * PAGE_TOKENS)
            continue;
        for (uint32_t i = 0; i < n_t; i++) {
            j.x[i] = query_at(u, t + i);
            j.y[i] = u->s + (size_t)(t + i) * ATTN_SPLIT_KEYS + (i_page * PAGE_TOKENS - base);
        }
        tiles(&j, u->weight_type, n_t);
    }
}

/* The scores [begin, end) of one query, counted from the split's first key, to probabilities. */
static void split_softmax(float *s, uint32_t begin, uint32_t end, float scale, float *ret_m,
                          float *ret_l)
{
    uint32_t first = begin & ~15U;
    float m;

    /* Keys before `begin` in its group of 16: their probability comes out as 0, which changes no
     * sum. */
    for (uint32_t j = first; j < begin; j++)
        s[j] = -INFINITY;
    EACH_VECTOR(end - begin,
                vf_store(s + begin + i, vf_mul(vf_load(s + begin + i, n), vf_set1(scale)), n));
    m = max_f32(s + begin, end - begin);
    *ret_m = m;
    *ret_l = exp_sum(s + first, end - first, m);
}

/*
 * acc += p[key] * v[key] for the keys [j0, j1) of a page, n_v vectors of the head from element d on
 * (the last with n elements), n_t queries at once.
 */
static ALWAYS_INLINE void pv_tile(const uint32_t n_t, const uint32_t n_v, const uint32_t type,
                                  const uint8_t *v, size_t v_ld, uint32_t j0, uint32_t j1,
                                  const float *const *p, float *const *acc, uint32_t d, uint32_t n)
{
    vf a[TILE_T][PV_VECTORS];

    UNROLLED (t, n_t)
        UNROLLED (c, n_v)
            a[t][c] = vf_load(acc[t] + d + c * VF, n);
    for (uint32_t j = j0; j < j1; j++) {
        vf w[PV_VECTORS];

        UNROLLED (c, n_v)
            w[c] = load_weights(v + j * v_ld, type, d + c * VF, n);
        UNROLLED (t, n_t) {
            vf e = vf_set1(p[t][j]);

            UNROLLED (c, n_v)
                a[t][c] = vf_fma(e, w[c], a[t][c]);
        }
    }
    UNROLLED (t, n_t)
        UNROLLED (c, n_v)
            vf_store(acc[t] + d + c * VF, a[t][c], n);
}

/* The same over the whole head. */
static ALWAYS_INLINE void pv_head(const uint32_t n_t, const uint32_t type, const uint8_t *v,
                                  size_t v_ld, uint32_t j0, uint32_t j1, const float *const *p,
                                  float *const *acc, uint32_t dim)
{
    uint32_t d = 0;

    for (; d + PV_VECTORS * VF <= dim; d += PV_VECTORS * VF)
        pv_tile(n_t, PV_VECTORS, type, v, v_ld, j0, j1, p, acc, d, VF);
    for (; d + VF <= dim; d += VF)
        pv_tile(n_t, 1, type, v, v_ld, j0, j1, p, acc, d, VF);
    if (d < dim)
        pv_tile(n_t, 1, type, v, v_ld, j0, j1, p, acc, d, dim - d);
}

static void pv_one(uint32_t type, const uint8_t *v, size_t v_ld, uint32_t j0, uint32_t j1,
                   const float *const *p, float *const *acc, uint32_t dim)
{
    if (j0 >= j1)
        return;
    if (type == TENSOR_F32)
        pv_head(1, TENSOR_F32, v, v_ld, j0, j1, p, acc, dim);
    else if (type == TENSOR_F16)
        pv_head(1, TENSOR_F16, v, v_ld, j0, j1, p, acc, dim);
    else
        pv_head(1, TENSOR_BF16, v, v_ld, j0, j1, p, acc, dim);
}

static void pv_full(uint32_t type, const uint8_t *v, size_t v_ld, uint32_t j0, uint32_t j1,
                    const float *const *p, float *const *acc, uint32_t dim)
{
    if (j0 >= j1)
        return;
    if (type == TENSOR_F32)
        pv_head(TILE_T, TENSOR_F32, v, v_ld, j0, j1, p, acc, dim);
    else if (type == TENSOR_F16)
        pv_head(TILE_T, TENSOR_F16, v, v_ld, j0, j1, p, acc, dim);
    else
        pv_head(TILE_T, TENSOR_BF16, v, v_ld, j0, j1, p, acc, dim);
}

static void page_values(const struct queries *u, uint32_t i_page, uint32_t base, uint32_t n_keys)
{
    uint32_t type = u->weight_type, dim = u->a->head_dim, key0 = i_page * PAGE_TOKENS;
    uint32_t begin = max_u32(u->a->first_key, key0) - key0;
    const uint8_t *v = u->a->pages[i_page] + u->a->v_off;
    size_t v_ld;

    /* Many queries read floats, made once. */
    if (u->n > TILE_T && type != TENSOR_F32) {
        floats_of(v, type, n_keys * dim, u->page);
        v = (const uint8_t *)u->page;
        type = TENSOR_F32;
    }
    v_ld = dim * (type == TENSOR_F32 ? sizeof(float) : 2);
    for (uint32_t t = 0; t < u->n; t += TILE_T) {
        uint32_t n_t = min_u32(TILE_T, u->n - t), common = begin;
        const float *p[TILE_T];
        float *acc[TILE_T];

        for (uint32_t i = 0; i < n_t; i++) {
            p[i] = u->s + (size_t)(t + i) * ATTN_SPLIT_KEYS + (key0 - base);
            acc[i] = u->acc + (t + i) * u->acc_ld;
        }
        /* What all of them see, at once; then, for the later rows, the keys that only they see. */
        if (n_t == TILE_T) {
            common = max_u32(query_end(u, t), key0) - key0;
            common = max_u32(min_u32(common, n_keys), begin);
            pv_full(type, v, v_ld, begin, common, p, acc, dim);
        }
        for (uint32_t i = 0; i < n_t; i++) {
            uint32_t end = max_u32(query_end(u, t + i), key0) - key0;

            pv_one(type, v, v_ld, common, min_u32(end, n_keys), p + i, acc + i, dim);
        }
    }
}

/* The partials of all queries for one split, in m, l and acc. */
static void split_queries(const struct queries *u, uint32_t i_split)
{
    uint32_t base = i_split * ATTN_SPLIT_KEYS, dim = u->a->head_dim;
    uint32_t begin = max_u32(u->a->first_key, base);
    uint32_t end = min_u32(query_end(u, u->n - 1), base + ATTN_SPLIT_KEYS);

    for (uint32_t i = 0; i < u->n; i++) {
        u->m[i] = u->l[i] = 0;
        memset(u->acc + i * u->acc_ld, 0, dim * sizeof(float));
    }
    if (begin >= end)
        return;
    for (uint32_t p = begin / PAGE_TOKENS; p * PAGE_TOKENS < end; p++)
        page_scores(u, p, base, min_u32(end - p * PAGE_TOKENS, PAGE_TOKENS));
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t e = min_u32(query_end(u, i), end);

        if (begin < e)
            split_softmax(u->s + (size_t)i * ATTN_SPLIT_KEYS, begin - base, e - base, u->a->scale,
                          &u->m[i], &u->l[i]);
    }
    for (uint32_t p = begin / PAGE_TOKENS; p * PAGE_TOKENS < end; p++)
        page_values(u, p, base, min_u32(end - p * PAGE_TOKENS, PAGE_TOKENS));
}

/* Folds the partial (m, l, b) into the running one (*fm, *fl, acc); l = 0 stands for "no key". */
static void simd_fold(float *fm, float *fl, float *acc, float m, float l, const float *b,
                      uint32_t dim)
{
    float max, e, e2;

    if (l == 0)
        return;
    if (*fl == 0) {
        *fm = m;
        *fl = l;
        memcpy(acc, b, dim * sizeof(float));
        return;
    }
    max = (m > *fm ? m : *fm) + 0.0f;
    e = vm_exp(*fm - max);
    e2 = vm_exp(m - max);
    *fm = max;
    *fl = fmaf(l, e2, *fl * e);
    EACH_VECTOR(dim, {
        vf old = vf_mul(vf_load(acc + i, n), vf_set1(e));

        vf_store(acc + i, vf_fma(vf_load(b + i, n), vf_set1(e2), old), n);
    });
}

static void simd_fold_end(float l, float *acc, uint32_t dim)
{
    if (l == 0)
        memset(acc, 0, dim * sizeof(float));
    else
        EACH_VECTOR(dim, vf_store(acc + i, vf_div(vf_load(acc + i, n), vf_set1(l)), n));
}

static void simd_attention_fold(const float *partials, size_t stride, uint32_t n_splits,
                                uint32_t head_dim, float *out)
{
    float m = 0, l = 0;

    for (uint32_t i = 0; i < n_splits; i++, partials += stride)
        simd_fold(&m, &l, out, partials[0], partials[1], partials + 2, head_dim);
    simd_fold_end(l, out, head_dim);
}

/* Rows that one pass over the keys serves. */
static uint32_t rows_per_pass(uint32_t n_group, uint32_t n_rows)
{
    return min_u32(n_rows, max_u32(1, ATTN_QUERIES / n_group));
}

static size_t page_floats(uint32_t head_dim)
{
    return PAGE_TOKENS / TILE_R * packed_tile_floats(head_dim);
}

static size_t simd_attention_scratch(uint32_t head_dim, uint32_t n_group, uint32_t n_rows)
{
    size_t n = (size_t)rows_per_pass(n_group, n_rows) * n_group;
    size_t floats = n * (ATTN_SPLIT_KEYS + head_dim + 4) + page_floats(head_dim);

    return (floats * sizeof(float) + 63) & ~(size_t)63;
}

/* Lays the scratch out for n queries from `row` on; returns what is left of it: 2 n floats. */
static float *queries_init(struct queries *u, const struct attention *a, uint32_t row, uint32_t n,
                           void *scratch)
{
    *u = (struct queries){.a = a, .row = row, .n = n, .s = scratch, .acc_ld = a->head_dim};
    u->weight_type = a->kv_type == KV_F16    ? TENSOR_F16
                     : a->kv_type == KV_BF16 ? TENSOR_BF16
                                             : TENSOR_F32;
    u->elem_bytes = a->kv_type == KV_F32 ? 4 : 2;
    u->page = u->s + (size_t)n * ATTN_SPLIT_KEYS;
    u->acc = u->page + page_floats(a->head_dim);
    u->m = u->acc + (size_t)n * a->head_dim;
    u->l = u->m + n;
    return u->l + n;
}

static void simd_attention(const struct attention *a, uint32_t r0, uint32_t r1, void *scratch)
{
    uint32_t n_rows = rows_per_pass(a->n_group, r1 - r0);

    for (uint32_t r = r0; r < r1; r += n_rows) {
        uint32_t n = min_u32(n_rows, r1 - r) * a->n_group,
                 last = a->pos0 + min_u32(r + n_rows, r1) - 1;
        struct queries u;
        float *fm = queries_init(&u, a, r, n, scratch), *fl = fm + n;

        memset(fm, 0, 2 * n * sizeof(float));
        for (uint32_t s = 0; s <= last / ATTN_SPLIT_KEYS; s++) {
            split_queries(&u, s);
            for (uint32_t i = 0; i < n; i++)
                simd_fold(&fm[i], &fl[i], out_at(&u, i), u.m[i], u.l[i], u.acc + i * u.acc_ld,
                          a->head_dim);
        }
        for (uint32_t i = 0; i < n; i++)
            simd_fold_end(fl[i], out_at(&u, i), a->head_dim);
    }
}

static void simd_attention_split(const struct attention *a, uint32_t row, uint32_t i_split,
                                 float *partials, void *scratch)
{
    size_t stride = ATTN_PARTIAL_FLOATS(a->head_dim);
    struct queries u;

    (void)queries_init(&u, a, row, a->n_group, scratch);
    u.acc = partials + 2;
    u.acc_ld = stride;
    split_queries(&u, i_split);
    for (uint32_t i = 0; i < u.n; i++) {
        partials[i * stride] = u.m[i];
        partials[i * stride + 1] = u.l[i];
    }
}

#endif
