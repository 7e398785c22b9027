/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix products of the vector kernels against the plain C ones, and what they are made of:
 * weights of every type, quantised activations.  Equal bits, as in check_kernels.c.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/gguf.h"
#include "engine/quant.h"
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

static void run_matmul(const struct kernels *k, struct matmul *m, uint32_t r0, uint32_t r1,
                       float *y)
{
    m->y = y;
    k->matmul(m, r0, r1, guarded((k->matmul_scratch(m->k) + 63) & ~(size_t)63));
}

static void check_matmul(struct rng *r, enum kinds kind, uint32_t type)
{
    uint32_t elems = quant_is(type) ? quant_stored_elems(type) : 1;
    uint32_t k = elems == 256  ? 256 * rng_range(r, 1, 5)
                 : elems == 32 ? 32 * rng_range(r, 1, 40)
                               : rng_range(r, 1, rng_below(r, 4) ? 200 : 1500);
    uint32_t n_rows = rng_range(r, 1, 150), n_x = rng_range(r, 1, rng_below(r, 3) ? 9 : 40);
    uint32_t r0 = rng_below(r, n_rows), r1 = rng_range(r, r0 + 1, n_rows),
             n_in = rng_range(r, 1, 40);
    uint32_t in[40], out[40];
    size_t y_ld = n_rows + rng_below(r, 5), x_ld = k + rng_below(r, 3);
    uint8_t *w = guarded(weight_row_bytes(type, k) * n_rows);
    float *x = random_floats(r, kind, x_ld * (n_in > n_x ? n_in : n_x));
    float *y0 = random_floats(r, KIND_WILD, y_ld * n_x), *y1 = copy_of(y0, y_ld * n_x);
    struct matmul m = {.w = w,
                       .type = type,
                       .k = k,
                       .row_bytes = weight_row_bytes(type, k),
                       .n_x = n_x,
                       .y_ld = y_ld};

    fill_weights(r, kind, type, k, n_rows, w);
    for (uint32_t t = 0; t < n_x; t++)
        in[t] = rng_below(r, n_in);
    rng_order(r, out, n_x);
    m.in = rng_below(r, 2) ? in : NULL;
    m.out = rng_below(r, 2) ? out : NULL;
    m.acc = rng_below(r, 2);
    m.x = x;
    m.x_ld = x_ld;
    if (quant_is(type)) {
        uint32_t n = n_in > n_x ? n_in : n_x;
        int8_t *xq = guarded((size_t)n * k);
        float *xd = guarded_floats((size_t)n * (k / 32));
        int16_t *xs = guarded((size_t)n * (k / 32) * 2 * sizeof *xs);

        for (uint32_t t = 0; t < n; t++)
            c->quantize_q8(x + t * x_ld, k, xq + (size_t)t * k, xd + (size_t)t * (k / 32),
                           xs + (size_t)t * 2 * (k / 32));
        m.x = NULL;
        m.xq = xq;
        m.xq_ld = k;
        m.xd = xd;
        m.xs = xs;
        m.xd_ld = k / 32;
    }
    run_matmul(c, &m, r0, r1, y0);
    for (uint32_t i = 0; i < n_v; i++) {
        float *y = copy_of(y1, y_ld * n_x);
        const char *why;

        run_matmul(v[i], &m, r0, r1, y);
        why = differ(y0, y, y_ld * n_x);
        ck_assert_msg(!why, "%s, %s, %u x %u, %u rows: %s", v[i]->name, tensor_type_name(type),
                      r1 - r0, k, n_x, why);
    }
}

START_TEST(products_have_equal_bits_for_every_type_of_weights)
{
    struct rng r;

    rng_init(&r, (uint64_t)_i);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        check_matmul(&r, KIND, weight_types[t]);
        guarded_free_all();
    }
}
END_TEST

/* Lanes that a short last group does not reach must not be touched, not even by adding 0. */
START_TEST(a_lane_of_minus_zero_survives_a_short_last_group)
{
    uint16_t w[4 * 40];
    float x[3 * 40], y[3 * 4];
    uint32_t k = (uint32_t)_i;
    struct matmul m = {
        .w = w, .type = TENSOR_F16, .k = k, .row_bytes = 2 * k, .x = x, .x_ld = k, .y_ld = 4};

    for (uint32_t i = 0; i < 4 * k; i++)
        w[i] = 1; /* 2^-24 */
    for (uint32_t i = 0; i < 3 * k; i++)
        x[i] = -0x1p-149f; /* the product rounds to -0 */
    for (uint32_t v0 = 0; v0 <= n_v; v0++)
        for (m.n_x = 1; m.n_x <= 3; m.n_x++) {
            run_matmul(v0 < n_v ? v[v0] : c, &m, 0, 4, y);
            for (uint32_t i = 0; i < 4 * m.n_x; i++)
                ck_assert(y[i] == 0 && (signbit(y[i]) != 0) == (k >= 16));
        }
    guarded_free_all();
}
END_TEST

START_TEST(quantised_activations_have_equal_bytes)
{
    struct rng r;
    uint32_t k;
    float *x, *d0;
    int8_t *q0;
    int16_t *s0;

    rng_init(&r, (uint64_t)_i);
    k = 32 * rng_range(&r, 1, 20);
    x = random_floats(&r, KIND, k);
    for (uint32_t b = 0; b < k / 32; b++) {
        /* Blocks of one magnitude, so that each extreme is some block's scale; halves test the
         * rounding. */
        static const float sizes[] = {1.0f,     0x1p-140f, 0x1p-119f, 0x1p-120f,
                                      0x1p120f, 0.0f,      127.0f};
        float size = sizes[rng_below(&r, 7)];

        for (uint32_t i = 0; i < 32 && rng_below(&r, 4) != 0; i++)
            x[32 * b + i] = size == 127.0f ? (i ? (float)rng_below(&r, 254) - 126.5f : 127.0f)
                                           : size * rng_normal(&r);
    }
    q0 = guarded(k);
    d0 = guarded_floats(k / 32);
    s0 = guarded(k / 16 * sizeof *s0);
    c->quantize_q8(x, k, q0, d0, s0);
    for (uint32_t i = 0; i < k; i++)
        ck_assert_int_ne(q0[i], -128);
    for (uint32_t b = 0; b < k / 16; b++) {
        int sum = 0;

        for (uint32_t i = 0; i < 16; i++)
            sum += q0[16 * b + i];
        ck_assert_int_eq(s0[b], sum);
    }
    for (uint32_t i = 0; i < n_v; i++) {
        int8_t *q1 = guarded(k);
        float *d1 = guarded_floats(k / 32);
        int16_t *s1 = guarded(k / 16 * sizeof *s1);

        v[i]->quantize_q8(x, k, q1, d1, s1);
        SAME(v[i], d0, d1, k / 32);
        ck_assert_mem_eq(s0, s1, k / 16 * sizeof *s1);
        ck_assert_mem_eq(q0, q1, k);
    }
    guarded_free_all();
}
END_TEST

START_TEST(weights_become_equal_floats)
{
    struct rng r;

    rng_init(&r, (uint64_t)_i);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const uint32_t type = weight_types[t];
        uint32_t k =
            quant_is(type) ? quant_stored_elems(type) * rng_range(&r, 1, 9) : rng_range(&r, 1, 300);
        uint8_t *w = guarded(weight_row_bytes(type, k));
        float *y0 = guarded_floats(k);

        fill_weights(&r, KIND, type, k, 1, w);
        c->to_float(w, type, k, y0);
        for (uint32_t i = 0; i < n_v; i++) {
            float *y1 = guarded_floats(k);

            v[i]->to_float(w, type, k, y1);
            SAME(v[i], y0, y1, k);
        }
    }
    guarded_free_all();
}
END_TEST

START_TEST(every_half_becomes_the_same_float)
{
    uint16_t h[256];
    float y0[256], y1[256];

    for (uint32_t i = 0; i < 256; i++)
        h[i] = (uint16_t)((uint32_t)_i * 256 + i);
    c->to_float(h, TENSOR_F16, 256, y0);
    for (uint32_t i = 0; i < n_v; i++) {
        v[i]->to_float(h, TENSOR_F16, 256, y1);
        SAME(v[i], y0, y1, 256);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels' products");
    TCase *t = tcase_create("equal bits");
    SRunner *runner;
    /* The sanitizers make it several times slower. */
    int n = getenv("STRATA_TEST_SHORT") ? 30 : 120, failed;

    c = kernels_get("c");
    n_v = vector_versions(v);
    tcase_add_loop_test(t, products_have_equal_bits_for_every_type_of_weights, 0, n);
    tcase_add_loop_test(t, a_lane_of_minus_zero_survives_a_short_last_group, 1, 41);
    tcase_add_loop_test(t, quantised_activations_have_equal_bytes, 0, n);
    tcase_add_loop_test(t, weights_become_equal_floats, 0, n);
    tcase_add_loop_test(t, every_half_becomes_the_same_float, 0, 256);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
