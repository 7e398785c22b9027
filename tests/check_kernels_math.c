/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels compute, against double precision; and what must not change it: how many rows
 * are multiplied at once, where the work is cut.  Runs on the plain version and on every vector
 * version that the processor has, though equal bits (check_kernels.c) would let one do.
 */
#include <check.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/vmath.h"
#include "engine/gguf.h"
#include "engine/quant.h"
#include "tests/kernel_inputs.h"

/* "c" and the vector versions. */
static const struct kernels *all[5];
static uint32_t n_all;

static void *scratch_of(size_t n)
{
    return guarded((n + 63) & ~(size_t)63);
}

static float *normal_floats(struct rng *r, size_t n)
{
    float *x = guarded_floats(n);

    fill(r, KIND_NORMAL, x, n);
    return x;
}

/* sqrt(sum (a-b)^2 / sum b^2) */
static double relative_rms(const float *a, const double *b, size_t n)
{
    double d = 0, s = 0;

    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return sqrt(d / s);
}

static double ulps(float y, double exact)
{
    int e = exact == 0 ? -149 : ilogb(exact) - 23;

    return fabs((double)y - exact) / ldexp(1, e < -149 ? -149 : e);
}

START_TEST(exp_is_within_one_ulp_everywhere)
{
    double worst = 0;

    for (uint64_t u = (uint64_t)_i; u < (1ULL << 32); u += 1009 * 8) {
        float x = vm_float((uint32_t)u), y = vm_exp(x);
        double exact = exp((double)x), e;

        if (isnan(x)) {
            ck_assert(isnan(y));
            continue;
        }
        if (exact >= (double)FLT_MAX * (1 + 0x1p-25)) {
            ck_assert(isinf(y) && y > 0);
            continue;
        }
        e = ulps(y, exact);
        worst = e > worst ? e : worst;
    }
    ck_assert_double_lt(worst, 1.0);
    ck_assert(vm_bits(vm_exp(0)) == vm_bits(1.0f));
    ck_assert(vm_bits(vm_exp(-INFINITY)) == 0);
    ck_assert(vm_bits(vm_exp(-104.0f)) == 0);
    ck_assert(vm_bits(vm_exp(-103.9f)) == 1);
    ck_assert(isinf(vm_exp(88.73f)));
    ck_assert(isfinite(vm_exp(88.72f)));
}
END_TEST

START_TEST(softplus_is_within_one_ulp_and_keeps_nan)
{
    for (float x = -100.0f; x < 25.0f; x += 0.00317f) {
        double exact = x > 20.0f ? (double)x : log1p((double)vm_exp(x));

        ck_assert_double_lt(ulps(vm_softplus(x), exact), 1.0);
    }
    ck_assert(isnan(vm_softplus(NAN)));
    ck_assert(vm_softplus(INFINITY) == INFINITY);
    ck_assert(vm_softplus(-INFINITY) == 0);
}
END_TEST

START_TEST(rope_tables_are_cosines_and_sines_rounded_once)
{
    float inv_freq[32], cs[64];

    for (int i = 0; i < 32; i++)
        inv_freq[i] = (float)pow(1e4, -2.0 * i / 64);
    for (uint32_t pos = (uint32_t)_i; pos < 3000000; pos += 4999) {
        rope_table(pos, inv_freq, 64, cs);
        for (int i = 0; i < 32; i++) {
            double a = (double)((float)pos * inv_freq[i]);

            /* libm is itself within an ulp of double: half an ulp of float and a little. */
            ck_assert_double_lt(ulps(cs[i], cos(a)), 0.5001);
            ck_assert_double_lt(ulps(cs[32 + i], sin(a)), 0.5001);
        }
    }
}
END_TEST

START_TEST(halves_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float here = half_to_float((uint16_t)h);
        double up = h == 0x7bff ? 65536.0 : (double)half_to_float((uint16_t)(h + 1)),
               middle = ((double)here + up) / 2;
        uint16_t even = (uint16_t)(h % 2 ? h + 1 : h);

        ck_assert_uint_eq(float_to_half(here), h);
        ck_assert_uint_eq(float_to_half(-here), h | 0x8000);
        ck_assert_uint_eq(float_to_half((float)middle), even);
        ck_assert_uint_eq(float_to_half(nextafterf((float)middle, 0)), h);
        ck_assert_uint_eq(float_to_half(nextafterf((float)middle, INFINITY)), h + 1);
    }
    ck_assert_uint_eq(float_to_half(INFINITY), 0x7c00);
    ck_assert(isnan(half_to_float(float_to_half(NAN))));
    ck_assert_uint_eq(float_to_bf16(1.00390625f), 0x3f80);
    ck_assert_uint_eq(float_to_bf16(1.01171875f), 0x3f82);
    ck_assert(isnan(bf16_to_float(float_to_bf16(NAN))));
}
END_TEST

/* Products of every type with n_x rows against double, and one row at a time, and cut into two
 * ranges. */
static void check_products(const struct kernels *k, struct rng *r, uint32_t type)
{
    const bool quant = quant_is(type);
    uint32_t elems = quant ? quant_stored_elems(type) : 32;
    uint32_t n_k = elems * rng_range(r, 1, 60 * 32 / elems), n_rows = rng_range(r, 2, 70),
             n_x = rng_range(r, 1, 30);
    uint32_t cut = rng_range(r, 1, n_rows - 1);
    uint8_t *w = guarded(weight_row_bytes(type, n_k) * n_rows);
    float *x = normal_floats(r, (size_t)n_x * n_k), *wf = guarded_floats(n_k);
    int8_t *xq = guarded((size_t)n_x * n_k);
    float *xd = guarded_floats((size_t)n_x * n_k / 32);
    int16_t *xs = guarded((size_t)n_x * n_k / 16 * sizeof *xs);
    float *y = guarded_floats((size_t)n_x * n_rows), *y2 = guarded_floats((size_t)n_x * n_rows);
    double *exact = calloc((size_t)n_x * n_rows, sizeof(double));
    void *scratch = scratch_of(k->matmul_scratch(n_k));
    struct matmul m = {.w = w,
                       .type = type,
                       .k = n_k,
                       .row_bytes = weight_row_bytes(type, n_k),
                       .x = x,
                       .x_ld = n_k,
                       .xq = xq,
                       .xq_ld = n_k,
                       .xd = xd,
                       .xd_ld = n_k / 32,
                       .xs = xs,
                       .n_x = n_x,
                       .y = y,
                       .y_ld = n_rows};

    ck_assert_ptr_nonnull(exact);
    fill_weights(r, KIND_NORMAL, type, n_k, n_rows, w);
    for (uint32_t t = 0; t < n_x; t++)
        k->quantize_q8(x + (size_t)t * n_k, n_k, xq + (size_t)t * n_k, xd + (size_t)t * (n_k / 32),
                       xs + (size_t)t * (n_k / 16));
    for (uint32_t row = 0; row < n_rows; row++) {
        k->to_float(w + row * m.row_bytes, type, n_k, wf);
        for (uint32_t t = 0; t < n_x; t++)
            for (uint32_t i = 0; i < n_k; i++)
                exact[t * n_rows + row] += (double)wf[i] * (double)x[(size_t)t * n_k + i];
    }
    k->matmul(&m, 0, n_rows, scratch);
    ck_assert_double_lt(relative_rms(y, exact, (size_t)n_x * n_rows), quant ? 1.5e-2 : 1e-5);

    m.y = y2;
    k->matmul(&m, cut, n_rows, scratch);
    k->matmul(&m, 0, cut, scratch);
    ck_assert_mem_eq(y, y2, (size_t)n_x * n_rows * sizeof(float));
    memset(y2, 0, (size_t)n_x * n_rows * sizeof(float));
    m.n_x = 1;
    for (uint32_t t = 0; t < n_x;
         t++, m.x += n_k, m.xq += n_k, m.xd += n_k / 32, m.xs += n_k / 16, m.y += n_rows)
        k->matmul(&m, 0, n_rows, scratch);
    ck_assert_mem_eq(y, y2, (size_t)n_x * n_rows * sizeof(float));
    free(exact);
    guarded_free_all();
}

START_TEST(products_are_right_however_they_are_cut)
{
    struct rng r;

    rng_init(&r, (uint64_t)_i);
    for (uint32_t v = 0; v < n_all; v++)
        check_products(all[v], &r, weight_types[_i % N_WEIGHT_TYPES]);
}
END_TEST

START_TEST(quantised_activations_are_within_half_a_step)
{
    struct rng r;
    float x[320], d[10];
    int8_t q[320];
    int16_t sums[20];

    rng_init(&r, (uint64_t)_i);
    fill(&r, KIND_NORMAL, x, 320);
    for (uint32_t v = 0; v < n_all; v++) {
        all[v]->quantize_q8(x, 320, q, d, sums);
        for (uint32_t i = 0; i < 320; i++)
            ck_assert_float_le(fabsf((float)q[i] * d[i / 32] - x[i]), 0.5001f * d[i / 32]);
        x[5] = _i % 2 ? NAN : INFINITY;
        all[v]->quantize_q8(x, 320, q, d, sums);
        ck_assert(!isfinite(d[0]));
        x[5] = 0;
    }
}
END_TEST

START_TEST(norms_and_activations_are_right)
{
    struct rng r;
    uint32_t n;
    float *x, *w, *u, *y;
    double e[600], ss = 0, sum = 0;

    rng_init(&r, (uint64_t)_i);
    n = rng_range(&r, 1, 600);
    x = normal_floats(&r, n);
    w = normal_floats(&r, n);
    u = normal_floats(&r, n);
    y = guarded_floats(n);
    for (uint32_t v = 0; v < n_all; v++) {
        ss = sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            ss += (double)x[i] * (double)x[i];
            sum += exp((double)x[i]);
        }
        for (uint32_t i = 0; i < n; i++)
            e[i] = (double)x[i] / sqrt(ss / n + 1e-5) * (double)w[i];
        all[v]->rmsnorm(x, w, 1e-5f, n, y);
        ck_assert_double_lt(relative_rms(y, e, n), 1e-6);
        for (uint32_t i = 0; i < n; i++)
            e[i] = (double)x[i] / (1 + exp(-(double)x[i])) * (double)u[i];
        all[v]->silu_mul(x, u, n, y);
        ck_assert_double_lt(relative_rms(y, e, n), 1e-6);
        for (uint32_t i = 0; i < n; i++)
            e[i] = (double)u[i] / (1 + exp(-(double)x[i]));
        memcpy(y, u, n * sizeof(*y));
        all[v]->sigmoid_mul(y, x, n);
        ck_assert_double_lt(relative_rms(y, e, n), 1e-6);
        for (uint32_t i = 0; i < n; i++)
            e[i] = exp((double)x[i]) / sum;
        memcpy(y, x, n * sizeof(*y));
        all[v]->softmax(y, n);
        ck_assert_double_lt(relative_rms(y, e, n), 1e-6);
    }
    guarded_free_all();
}
END_TEST

/* Rows of attention in double, on the stored keys and values. */
static void exact_attention(const struct attention *a, double *out)
{
    for (uint32_t row = 0; row < a->n_rows; row++)
        for (uint32_t g = 0; g < a->n_group; g++) {
            const float *q = a->q + row * a->q_ld + g * a->head_dim;
            double *o = out + row * a->out_ld + g * a->head_dim, sum = 0;

            for (uint32_t j = a->first_key; j <= a->pos0 + row; j++) {
                const float *k = (const float *)(const void *)(a->pages[j / 64] + a->k_off) +
                                 j % 64 * a->head_dim;
                const float *v = (const float *)(const void *)(a->pages[j / 64] + a->v_off) +
                                 j % 64 * a->head_dim;
                double s = 0;

                for (uint32_t d = 0; d < a->head_dim; d++)
                    s += (double)q[d] * (double)k[d];
                s = exp(s * (double)a->scale);
                sum += s;
                for (uint32_t d = 0; d < a->head_dim; d++)
                    o[d] += s * (double)v[d];
            }
            for (uint32_t d = 0; d < a->head_dim; d++)
                o[d] = sum > 0 ? o[d] / sum : 0;
        }
}

START_TEST(attention_is_right_however_its_rows_are_cut)
{
    static const uint32_t starts[] = {0, 1, 62, 300, 505, 1000};
    struct attention a = {.kv_type = KV_F32, .head_dim = 32, .scale = 0.2f};
    const uint8_t *pages[20];
    struct rng r;
    size_t n_out;
    double *exact;

    rng_init(&r, (uint64_t)_i);
    a.n_group = rng_range(&r, 1, 4);
    a.pos0 = starts[_i % 6];
    a.n_rows = rng_range(&r, 1, 30);
    a.first_key = (uint32_t)_i % 2;
    a.v_off = 64 * 32 * 4;
    for (uint32_t p = 0; p <= (a.pos0 + a.n_rows - 1) / 64; p++)
        pages[p] = (const uint8_t *)normal_floats(&r, 2 * 64 * 32);
    a.pages = pages;
    a.q_ld = a.out_ld = a.n_group * a.head_dim;
    n_out = a.n_rows * a.out_ld;
    a.q = normal_floats(&r, n_out);
    exact = calloc(n_out, sizeof(double));
    ck_assert_ptr_nonnull(exact);
    exact_attention(&a, exact);
    for (uint32_t v = 0; v < n_all; v++) {
        void *scratch = scratch_of(all[v]->attention_scratch(a.head_dim, a.n_group, a.n_rows));
        float *whole = guarded_floats(n_out), *cut = guarded_floats(n_out);

        a.out = whole;
        all[v]->attention(&a, 0, a.n_rows, scratch);
        if (a.pos0 > 0 || a.n_rows > 1 || a.first_key == 0)
            ck_assert_double_lt(relative_rms(whole, exact, n_out), 1e-5);
        a.out = cut;
        for (uint32_t row = 0; row < a.n_rows;) {
            uint32_t n = rng_range(&r, 1, a.n_rows - row);

            all[v]->attention(&a, row, row + n, scratch);
            row += n;
        }
        ck_assert_mem_eq(whole, cut, n_out * sizeof(float));
        if (a.pos0 == 0 && a.first_key == 1) /* row 0 sees nothing */
            for (size_t i = 0; i < a.out_ld; i++)
                ck_assert(vm_bits(whole[i]) == 0);
    }
    free(exact);
    guarded_free_all();
}
END_TEST

START_TEST(the_delta_rule_is_the_same_row_by_row)
{
    enum { DIM = 64 };
    struct rng r;
    uint32_t n_rows;
    float *qkv, *z, *ab, *norm, *s;
    struct delta d;

    rng_init(&r, (uint64_t)_i);
    n_rows = rng_range(&r, 1, 50);
    qkv = normal_floats(&r, (size_t)n_rows * 3 * DIM);
    z = normal_floats(&r, (size_t)n_rows * DIM);
    ab = normal_floats(&r, (size_t)n_rows * 2);
    norm = normal_floats(&r, DIM);
    s = normal_floats(&r, DIM * DIM);
    for (uint32_t v = 0; v < n_all; v++) {
        float *s1 = guarded_floats(DIM * DIM), *s2 = guarded_floats(DIM * DIM);
        float *o1 = guarded_floats((size_t)n_rows * DIM),
              *o2 = guarded_floats((size_t)n_rows * DIM);

        memcpy(s1, s, DIM * DIM * sizeof(float));
        memcpy(s2, s, DIM * DIM * sizeof(float));
        d = (struct delta){.dim = DIM,
                           .n_rows = n_rows,
                           .state = s1,
                           .q = qkv,
                           .k = qkv + DIM,
                           .v = qkv + 2 * DIM,
                           .z = z,
                           .ld_qkv = 3 * DIM,
                           .ld_z = DIM,
                           .a = ab,
                           .b = ab + 1,
                           .ld_ab = 2,
                           .a_coef = -0.5f,
                           .dt = 0.2f,
                           .norm = norm,
                           .eps = 1e-6f,
                           .o = o1,
                           .ld_o = DIM};
        all[v]->delta_rows(&d);
        d.state = s2;
        for (uint32_t row = 0; row < n_rows; row += d.n_rows) {
            d.n_rows = rng_range(&r, 1, n_rows - row);
            d.q = qkv + (size_t)row * 3 * DIM;
            d.k = d.q + DIM;
            d.v = d.q + 2 * DIM;
            d.z = z + (size_t)row * DIM;
            d.a = ab + (size_t)row * 2;
            d.b = d.a + 1;
            d.o = o2 + (size_t)row * DIM;
            all[v]->delta_rows(&d);
        }
        ck_assert_mem_eq(s1, s2, DIM * DIM * sizeof(float));
        ck_assert_mem_eq(o1, o2, (size_t)n_rows * DIM * sizeof(float));
    }
    guarded_free_all();
}
END_TEST

/* The number at j[a][b]... of nested arrays. */
static float at(const json_t *j, uint32_t a, uint32_t b, uint32_t c)
{
    j = json_array_get(j, a);
    if (json_is_array(j))
        j = json_array_get(j, b);
    if (json_is_array(j))
        j = json_array_get(j, c);
    ck_assert(json_is_number(j));
    return (float)json_number_value(j);
}

START_TEST(the_delta_rule_follows_its_test_vectors)
{
    enum { HK = 2, HV = 4, DIM = 8, T = 5 };
    static const char *const mappings[] = {"tiled(h%Hk)", "grouped(h//(Hv/Hk))"};
    const char *srcdir = getenv("SRCDIR");
    char path[4096];
    json_t *j;

    (void)snprintf(path, sizeof(path), "%s/tests/data/gdn_small.json", srcdir ? srcdir : ".");
    j = json_load_file(path, 0, NULL);
    ck_assert_msg(j != NULL, "cannot read %s", path);
    for (uint32_t v = 0; v < n_all; v++)
        for (uint32_t h = 0; h < HV; h++)
            for (uint32_t tiled = 0; tiled < 2; tiled++) {
                const json_t *want = json_object_get(j, mappings[!tiled]);
                uint32_t kh = tiled ? h % HK : h / (HV / HK);
                float s[DIM * DIM], q[T * DIM], k[T * DIM], val[T * DIM], z[T * DIM], o[T * DIM],
                    a[T], b[T], norm[DIM];
                double s_want[DIM * DIM], o_want[T * DIM];
                struct delta d = {.dim = DIM,
                                  .n_rows = T,
                                  .state = s,
                                  .q = q,
                                  .k = k,
                                  .v = val,
                                  .z = z,
                                  .ld_qkv = DIM,
                                  .ld_z = DIM,
                                  .a = a,
                                  .b = b,
                                  .ld_ab = 1,
                                  .norm = norm,
                                  .eps = 1e-6f,
                                  .o = o,
                                  .ld_o = DIM};

                d.a_coef = at(json_object_get(j, "A"), h, 0, 0);
                d.dt = at(json_object_get(j, "dt_bias"), h, 0, 0);
                for (uint32_t i = 0; i < DIM * DIM; i++) {
                    s[i] = at(json_array_get(json_object_get(j, "S0"), h), i / DIM, i % DIM, 0);
                    s_want[i] = at(json_array_get(json_object_get(want, "S_final"), h), i / DIM,
                                   i % DIM, 0);
                }
                for (uint32_t t = 0; t < T; t++) {
                    double ss = 0;

                    a[t] = at(json_object_get(j, "alpha_raw"), t, h, 0);
                    b[t] = at(json_object_get(j, "beta_raw"), t, h, 0);
                    for (uint32_t i = 0; i < DIM; i++) {
                        q[t * DIM + i] = at(json_object_get(j, "q"), t, kh, i);
                        k[t * DIM + i] = at(json_object_get(j, "k"), t, kh, i);
                        val[t * DIM + i] = at(json_object_get(j, "v"), t, h, i);
                        o_want[t * DIM + i] = at(json_object_get(want, "o"), t, h, i);
                        ss += o_want[t * DIM + i] * o_want[t * DIM + i];
                        z[t * DIM + i] = 1.5f;
                        norm[i] = 0.5f + (float)i;
                    }
                    /* The vectors stop before the gated norm. */
                    for (uint32_t i = 0; i < DIM; i++)
                        o_want[t * DIM + i] *=
                            (0.5 + i) / sqrt(ss / DIM + 1e-6) * 1.5 / (1 + exp(-1.5));
                }
                all[v]->delta_rows(&d);
                ck_assert_double_lt(relative_rms(s, s_want, DIM * DIM), 2e-5);
                ck_assert_double_lt(relative_rms(o, o_want, T * DIM), 2e-5);
            }
    json_decref(j);
}
END_TEST

START_TEST(the_convolution_continues_where_it_was_cut)
{
    enum { CH = 19, ROWS = 9 };
    struct rng r;
    float *m, *w, *h0;

    rng_init(&r, (uint64_t)_i);
    m = normal_floats(&r, ROWS * CH);
    w = normal_floats(&r, CH * 4);
    h0 = normal_floats(&r, 3 * CH);
    for (uint32_t v = 0; v < n_all; v++) {
        float h1[3 * CH], h2[3 * CH], y1[ROWS * CH], y2[ROWS * CH];
        double exact[ROWS * CH];
        uint32_t cut = rng_range(&r, 1, ROWS - 1);

        memcpy(h1, h0, sizeof(h1));
        memcpy(h2, h0, sizeof(h2));
        for (int t = 0; t < ROWS; t++)
            for (int c = 0; c < CH; c++) {
                double s = 0;

                for (int i = 0; i < 4; i++)
                    s += (double)w[4 * c + i] *
                         (double)(t + i < 3 ? h0[(t + i) * CH + c] : m[(t + i - 3) * CH + c]);
                exact[t * CH + c] = s / (1 + exp(-s));
            }
        all[v]->conv_silu(m, CH, ROWS, w, 4, h1, CH, 0, CH, y1, CH);
        all[v]->conv_silu(m, CH, cut, w, 4, h2, CH, 0, CH, y2, CH);
        all[v]->conv_silu(m + cut * CH, CH, ROWS - cut, w, 4, h2, CH, 0, CH, y2 + cut * CH, CH);
        ck_assert_double_lt(relative_rms(y1, exact, ROWS * CH), 1e-6);
        ck_assert_mem_eq(y1, y2, sizeof(y1));
        ck_assert_mem_eq(h1, h2, sizeof(h1));
        ck_assert_mem_eq(h1, m + (ROWS - 3) * CH, sizeof(h1));
    }
    guarded_free_all();
}
END_TEST

START_TEST(versions_are_found_by_name)
{
    ck_assert_str_eq(kernels_get("c")->name, "c");
    ck_assert_ptr_nonnull(kernels_get(NULL));
    ck_assert_ptr_null(kernels_get("sse"));
    ck_assert_ptr_null(kernels_get(""));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels' mathematics");
    TCase *t = tcase_create("mathematics");
    SRunner *runner;
    /* The sanitizers make it several times slower. */
    int n = getenv("STRATA_TEST_SHORT") ? 8 : 40, failed;

    all[0] = kernels_get("c");
    n_all = 1 + vector_versions(all + 1);
    tcase_add_loop_test(t, exp_is_within_one_ulp_everywhere, 0, 8);
    tcase_add_test(t, softplus_is_within_one_ulp_and_keeps_nan);
    tcase_add_loop_test(t, rope_tables_are_cosines_and_sines_rounded_once, 0, 4);
    tcase_add_test(t, halves_round_to_nearest_even);
    tcase_add_loop_test(t, products_are_right_however_they_are_cut, 0, n);
    tcase_add_loop_test(t, quantised_activations_are_within_half_a_step, 0, 10);
    tcase_add_loop_test(t, norms_and_activations_are_right, 0, n);
    tcase_add_loop_test(t, attention_is_right_however_its_rows_are_cut, 0, n);
    tcase_add_loop_test(t, the_delta_rule_is_the_same_row_by_row, 0, 10);
    tcase_add_test(t, the_delta_rule_follows_its_test_vectors);
    tcase_add_loop_test(t, the_convolution_continues_where_it_was_cut, 0, 10);
    tcase_add_test(t, versions_are_found_by_name);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
