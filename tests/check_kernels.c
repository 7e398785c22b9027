/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector kernels against the plain C ones: equal bits for every function, over sizes with tails
 * and inputs with everything in them.  Products are in check_kernels_products.c; what the values
 * should be is in check_kernels_math.c.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "tests/kernel_inputs.h"

/* _i is the seed in all of these; every third has infinities and NaN. */
#define KIND ((enum kinds)(_i % KIND_N))

#define SAME(version, a, b, n)                                                                     \
    do {                                                                                           \
        const char *why = differ(a, b, n);                                                         \
        ck_assert_msg(!why, "%s: %s", (version)->name, why);                                       \
    } while (0)

static const struct kernels *c, *v[4];
static uint32_t n_v;

static float *copy_of(const float *x, size_t n)
{
    float *y = guarded_floats(n);

    memcpy(y, x, n * sizeof(*x));
    return y;
}

static float *random_floats(struct rng *r, enum kinds kind, size_t n)
{
    float *x = guarded_floats(n);

    fill(r, kind, x, n);
    return x;
}

START_TEST(keys_and_values_are_stored_with_equal_bytes)
{
    struct rng r;
    uint32_t n;
    float *x;

    rng_init(&r, (uint64_t)_i);
    n = rng_range(&r, 1, 300);
    x = random_floats(&r, KIND, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u;

        /* Now and then the very middle between two halves. */
        memcpy(&u, &x[i], 4);
        if (rng_below(&r, 4) == 0)
            u = (u & 0xffffe000) | 0x1000;
        else if (rng_below(&r, 4) == 0)
            u = (u & 0xffff0000) | 0x8000;
        memcpy(&x[i], &u, 4);
    }
    for (enum kv_type t = 0; t < KV_N; t++) {
        size_t bytes = (size_t)n * (t == KV_F32 ? 4 : 2);
        uint8_t *y0 = guarded(bytes);

        c->kv_store(x, n, t, y0);
        for (uint32_t i = 0; i < n_v; i++) {
            uint8_t *y1 = guarded(bytes);

            v[i]->kv_store(x, n, t, y1);
            if (KIND == KIND_BROKEN && t == KV_F16) { /* the payload of a NaN is free */
                for (uint32_t e = 0; e < n; e++) {
                    float a = half_to_float((uint16_t)(y0[2 * e] | y0[2 * e + 1] << 8));
                    float b = half_to_float((uint16_t)(y1[2 * e] | y1[2 * e + 1] << 8));

                    SAME(v[i], &a, &b, 1);
                }
            } else {
                ck_assert_mem_eq(y0, y1, bytes);
            }
        }
    }
    guarded_free_all();
}
END_TEST

/* Calls the i-th of the functions that work on rows. */
static void row_function(const struct kernels *k, uint32_t i, float *y, const float *x,
                         const float *w, uint32_t n)
{
    switch (i) {
    case 0:
        k->rmsnorm(x, w, 1e-6f, n, y);
        break;
    case 1:
        k->rmsnorm(y, w, 1e-5f, n, y);
        break;
    case 2:
        k->add(y, x, n);
        break;
    case 3:
        k->axpy(y, w[0], x, n);
        break;
    case 4:
        k->scale(y, w[0], n);
        break;
    case 5:
        k->silu_mul(x, w, n, y);
        break;
    case 6:
        k->sigmoid_mul(y, x, n);
        break;
    case 7:
        k->softmax(y, n);
        break;
    case 8:
        k->rope(y, n & ~1U, true, x);
        break;
    default:
        k->rope(y, n & ~1U, false, x);
        break;
    }
}

START_TEST(functions_on_rows_have_equal_bits)
{
    struct rng r;

    rng_init(&r, (uint64_t)_i);
    for (uint32_t f = 0; f < 10; f++) {
        uint32_t n = _i < 40 ? (uint32_t)_i + 1 : rng_range(&r, 1, 700);
        float *x = random_floats(&r, KIND, n), *w = random_floats(&r, KIND, n),
              *y = random_floats(&r, KIND, n);
        float *y0 = copy_of(y, n);

        row_function(c, f, y0, x, w, n);
        for (uint32_t i = 0; i < n_v; i++) {
            float *y1 = copy_of(y, n);
            const char *why;

            row_function(v[i], f, y1, x, w, n);
            why = differ(y0, y1, n);
            ck_assert_msg(!why, "%s, function %u of %u values: %s", v[i]->name, f, n, why);
        }
        guarded_free_all();
    }
}
END_TEST

START_TEST(exp_has_equal_bits_over_its_whole_range)
{
    /* softmax of one value is exp(0); silu(g) * 1 holds exp of any value. */
    static float g[4096], u[4096], y0[4096], y1[4096];
    struct rng r;

    rng_init(&r, (uint64_t)_i);
    for (uint32_t i = 0; i < 4096; i++) {
        uint32_t bits = (uint32_t)rng_next(&r);

        memcpy(&g[i], &bits, 4);
        if (i % 2)
            g[i] = -104.5f + 193.5f * (float)(rng_next(&r) >> 40) * 0x1p-24f;
        u[i] = 1.0f;
    }
    c->silu_mul(g, u, 4096, y0);
    for (uint32_t i = 0; i < n_v; i++) {
        v[i]->silu_mul(g, u, 4096, y1);
        SAME(v[i], y0, y1, 4096);
    }
}
END_TEST

START_TEST(one_value_that_is_not_finite_is_found_anywhere)
{
    struct rng r;
    uint32_t n;
    float *x;

    rng_init(&r, (uint64_t)_i);
    n = rng_range(&r, 1, 200);
    x = random_floats(&r, KIND_WILD, n);
    ck_assert(c->all_finite(x, n));
    for (uint32_t i = 0; i < n_v; i++)
        ck_assert(v[i]->all_finite(x, n));
    for (uint32_t e = 0; e < n; e++) {
        float old = x[e];

        x[e] = rng_below(&r, 2) ? NAN : rng_below(&r, 2) ? INFINITY : -INFINITY;
        ck_assert(!c->all_finite(x, n));
        for (uint32_t i = 0; i < n_v; i++)
            ck_assert(!v[i]->all_finite(x, n));
        x[e] = old;
    }
    guarded_free_all();
}
END_TEST

START_TEST(convolutions_have_equal_bits)
{
    struct rng r;
    uint32_t n_rows, n_ch, c0, c1, taps;
    float *m, *w, *hist, *hist0, *y, *y0;

    rng_init(&r, (uint64_t)_i);
    n_rows = rng_range(&r, 1, 12);
    n_ch = rng_range(&r, 1, 90);
    c0 = rng_below(&r, n_ch);
    c1 = rng_range(&r, c0 + 1, n_ch);
    taps = _i % 5 == 0 ? rng_range(&r, 1, 11) : 4;
    m = random_floats(&r, KIND, (size_t)n_rows * n_ch);
    w = random_floats(&r, KIND, (size_t)n_ch * taps);
    hist = random_floats(&r, KIND, (size_t)(taps - 1) * n_ch);
    y = random_floats(&r, KIND_NORMAL, (size_t)n_rows * n_ch);
    hist0 = copy_of(hist, (size_t)(taps - 1) * n_ch);
    y0 = copy_of(y, (size_t)n_rows * n_ch);
    c->conv_silu(m, n_ch, n_rows, w, taps, hist0, n_ch, c0, c1, y0, n_ch);
    for (uint32_t i = 0; i < n_v; i++) {
        float *hist1 = copy_of(hist, (size_t)(taps - 1) * n_ch),
              *y1 = copy_of(y, (size_t)n_rows * n_ch);

        v[i]->conv_silu(m, n_ch, n_rows, w, taps, hist1, n_ch, c0, c1, y1, n_ch);
        SAME(v[i], hist0, hist1, (size_t)(taps - 1) * n_ch);
        SAME(v[i], y0, y1, (size_t)n_rows * n_ch);
    }
    guarded_free_all();
}
END_TEST

START_TEST(delta_rules_have_equal_bits)
{
    static const uint32_t dims[] = {8, 16, 32, 64, 128, 13, 40, 100, 264};
    struct rng r;
    uint32_t dim, n_rows;
    float *qkv, *z, *ab, *norm, *s, *s0, *o0;
    struct delta d = {0};

    rng_init(&r, (uint64_t)_i);
    dim = dims[rng_below(&r, 9)];
    n_rows = rng_range(&r, 1, dim > 100 ? 4 : 40);
    qkv = random_floats(&r, KIND, (size_t)n_rows * 3 * dim);
    z = random_floats(&r, KIND, (size_t)n_rows * dim);
    ab = random_floats(&r, KIND, (size_t)n_rows * 2);
    norm = random_floats(&r, KIND_NORMAL, dim);
    s = random_floats(&r, KIND, (size_t)dim * dim);
    s0 = copy_of(s, (size_t)dim * dim);
    o0 = guarded_floats((size_t)n_rows * dim);
    d = (struct delta){.dim = dim,
                       .n_rows = n_rows,
                       .state = s0,
                       .q = qkv,
                       .k = qkv + dim,
                       .v = qkv + 2 * dim,
                       .z = z,
                       .ld_qkv = 3 * (size_t)dim,
                       .ld_z = dim,
                       .a = ab,
                       .b = ab + 1,
                       .ld_ab = 2,
                       .a_coef = -0.3f,
                       .dt = 0.1f,
                       .norm = norm,
                       .eps = 1e-6f,
                       .o = o0,
                       .ld_o = dim};
    c->delta_rows(&d);
    for (uint32_t i = 0; i < n_v; i++) {
        d.state = copy_of(s, (size_t)dim * dim);
        d.o = guarded_floats((size_t)n_rows * dim);
        v[i]->delta_rows(&d);
        SAME(v[i], s0, d.state, (size_t)dim * dim);
        SAME(v[i], o0, d.o, (size_t)n_rows * dim);
    }
    guarded_free_all();
}
END_TEST

/* Attention over random pages; the keys behind the last row are there too and must not matter. */
struct attn_case {
    struct attention a;
    const uint8_t *pages[32];
    size_t n_out;
};

static void attn_case_init(struct attn_case *ac, struct rng *r, enum kinds kind)
{
    static const uint32_t dims[] = {8, 16, 32, 64, 64, 128, 24, 50};
    static const uint32_t lengths[] = {1, 2, 63, 64, 65, 130, 511, 512, 513, 600, 1024, 1100};
    struct attention *a = &ac->a;
    uint32_t n_pages;
    size_t elem, kv;

    *a = (struct attention){.kv_type = (enum kv_type)rng_below(r, KV_N),
                            .head_dim = dims[rng_below(r, 8)]};
    a->n_group = rng_range(r, 1, rng_below(r, 4) ? 4 : 9);
    a->pos0 = lengths[rng_below(r, 12)] - 1;
    a->n_rows = rng_range(r, 1, rng_below(r, 2) ? 4 : 40);
    if (a->pos0 > 200 && a->n_rows > 8)
        a->n_group = 1;
    a->first_key = rng_below(r, 4) ? 0 : rng_below(r, 3) ? 1 : rng_range(r, 1, a->pos0 + 2);
    a->scale = 0.2f;
    n_pages = (a->pos0 + a->n_rows - 1) / PAGE_TOKENS + 1;
    elem = a->kv_type == KV_F32 ? 4 : 2;
    kv = elem * PAGE_TOKENS * a->head_dim;
    a->k_off = 64;
    a->v_off = 64 + kv;
    for (uint32_t p = 0; p < n_pages; p++) {
        uint8_t *page = guarded(64 + 2 * kv);

        for (uint32_t i = 0; i < 2 * PAGE_TOKENS * a->head_dim; i++) {
            float f;

            fill(r, kind == KIND_BROKEN && rng_below(r, 2000) ? KIND_NORMAL : kind, &f, 1);
            c->kv_store(&f, 1, a->kv_type, page + 64 + i * elem);
        }
        ac->pages[p] = page;
    }
    a->pages = ac->pages;
    a->q_ld = a->out_ld = (size_t)a->n_group * a->head_dim + 3;
    ac->n_out = a->n_rows * a->out_ld;
    a->q = random_floats(r, kind == KIND_BROKEN ? KIND_NORMAL : kind, a->n_rows * a->q_ld);
}

static void *attn_scratch(const struct kernels *k, const struct attention *a, uint32_t n_rows)
{
    return guarded((k->attention_scratch(a->head_dim, a->n_group, n_rows) + 63) & ~(size_t)63);
}

START_TEST(attention_has_equal_bits)
{
    struct attn_case ac;
    struct rng r;
    float *old, *out0;
    uint32_t r0, r1;

    rng_init(&r, (uint64_t)_i);
    attn_case_init(&ac, &r, KIND);
    r0 = rng_below(&r, ac.a.n_rows);
    r1 = rng_range(&r, r0 + 1, ac.a.n_rows);
    old = random_floats(&r, KIND_NORMAL, ac.n_out);
    out0 = copy_of(old, ac.n_out);
    ac.a.out = out0;
    c->attention(&ac.a, r0, r1, attn_scratch(c, &ac.a, r1 - r0));
    for (uint32_t i = 0; i < n_v; i++) {
        ac.a.out = copy_of(old, ac.n_out);
        v[i]->attention(&ac.a, r0, r1, attn_scratch(v[i], &ac.a, r1 - r0));
        SAME(v[i], out0, ac.a.out, ac.n_out);
    }
    guarded_free_all();
}
END_TEST

START_TEST(splits_of_attention_have_equal_bits_and_fold_to_the_whole)
{
    struct attn_case ac;
    struct rng r;
    uint32_t row, n_splits;
    size_t stride, n_part;
    float *part0, *whole;

    rng_init(&r, (uint64_t)_i);
    attn_case_init(&ac, &r, KIND);
    row = rng_below(&r, ac.a.n_rows);
    n_splits = (ac.a.pos0 + row) / ATTN_SPLIT_KEYS + 1;
    stride = ac.a.n_group * ATTN_PARTIAL_FLOATS(ac.a.head_dim);
    n_part = stride * n_splits;
    part0 = guarded_floats(n_part);
    whole = ac.a.out = guarded_floats(ac.n_out);
    c->attention(&ac.a, row, row + 1, attn_scratch(c, &ac.a, 1));
    for (uint32_t s = 0; s < n_splits; s++)
        c->attention_split(&ac.a, row, s, part0 + s * stride, attn_scratch(c, &ac.a, 1));
    for (uint32_t i = 0; i <= n_v; i++) {
        const struct kernels *k = i < n_v ? v[i] : c;
        float *part1 = guarded_floats(n_part), *out = guarded_floats(ac.a.head_dim);

        for (uint32_t s = 0; s < n_splits; s++)
            k->attention_split(&ac.a, row, s, part1 + s * stride, attn_scratch(k, &ac.a, 1));
        SAME(k, part0, part1, n_part);
        for (uint32_t g = 0; g < ac.a.n_group; g++) {
            k->attention_fold(part1 + g * ATTN_PARTIAL_FLOATS(ac.a.head_dim), stride, n_splits,
                              ac.a.head_dim, out);
            SAME(k, whole + row * ac.a.out_ld + (size_t)g * ac.a.head_dim, out, ac.a.head_dim);
        }
    }
    guarded_free_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels");
    TCase *t = tcase_create("equal bits");
    SRunner *runner;
    /* The sanitizers make it several times slower. */
    int n = getenv("STRATA_TEST_SHORT") ? 30 : 120, failed;

    c = kernels_get("c");
    n_v = vector_versions(v);
    tcase_add_loop_test(t, keys_and_values_are_stored_with_equal_bytes, 0, n);
    tcase_add_loop_test(t, functions_on_rows_have_equal_bits, 0, n);
    tcase_add_loop_test(t, exp_has_equal_bits_over_its_whole_range, 0, n / 4);
    tcase_add_loop_test(t, one_value_that_is_not_finite_is_found_anywhere, 0, n);
    tcase_add_loop_test(t, convolutions_have_equal_bits, 0, n);
    tcase_add_loop_test(t, delta_rules_have_equal_bits, 0, n);
    tcase_add_loop_test(t, attention_has_equal_bits, 0, n);
    tcase_add_loop_test(t, splits_of_attention_have_equal_bits_and_fold_to_the_whole, 0, n);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
