/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the matrix products of the kernels are, beside the ceilings of the same run.  For work
 * on the kernels: `make bench` measures the engine.
 *
 *     bench_kernels [VERSION [THREADS [SECONDS-PER-FIGURE [PART-OF-A-LABEL]]]]
 *
 * Figures are the best of several runs: other work on the machine only ever makes them worse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/ceilings.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/pool.h"
#include "engine/gguf.h"
#include "engine/quant.h"
#include "util/clock.h"

enum { READ_BYTES = 256 << 20, MAX_THREADS = 64 };

static const struct kernels *k;
static struct pool *pool;
static double figure_s = 0.15;

static void *room(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);

    if (!p) {
        (void)fprintf(stderr, "no memory for %zu bytes\n", n);
        exit(EXIT_FAILURE);
    }
    return p;
}

/* With one thread its own time, so that others on the processor matter less; with more, that of the
 * clock. */
static uint64_t time_ns(void)
{
    struct timespec ts;

    if (pool_size(pool) > 1)
        return clock_ns();
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The shortest time of fn on all members, in seconds. */
static double best(void (*fn)(void *, uint32_t), void *arg)
{
    double s = INFINITY, total = 0;

    for (int i = 0; i < 3 || total < figure_s; i++) {
        uint64_t t0 = time_ns();
        double t;

        pool_run(pool, fn, arg);
        t = (double)(time_ns() - t0) * 1e-9;
        total += t;
        s = t < s ? t : s;
    }
    return s;
}

struct job {
    struct matmul m;
    uint32_t n_rows;
    struct pool_counter counter;
    void *scratch[MAX_THREADS];
};

static void multiply(void *arg, uint32_t i_member)
{
    struct job *j = arg;
    uint32_t r0, r1, grain = (j->n_rows / (pool_size(pool) * 4) + 15) & ~15U;

    if (pool_size(pool) == 1) {
        k->matmul(&j->m, 0, j->n_rows, j->scratch[0]);
        return;
    }
    if (grain > 256)
        grain = 256;
    while (pool_take(&j->counter, j->n_rows, grain, &r0, &r1))
        k->matmul(&j->m, r0, r1, j->scratch[i_member]);
    pool_barrier(pool);
    if (i_member == 0)
        atomic_store(&j->counter.next, 0);
}

/* One line; nothing when `part` is not in its label. */
static void product(uint32_t type, uint32_t n_rows, uint32_t n_k, uint32_t n_x, const char *part,
                    const struct ceilings *top, double reading)
{
    static struct job j;
    char label[64];
    double s, flops = 2.0 * n_rows * n_k * n_x;
    const bool quant = quant_is(type);
    uint32_t elems, bytes;
    size_t row;
    uint8_t *w;
    float *x, *y, *xd;
    int8_t *xq;
    int16_t *xs;

    (void)snprintf(label, sizeof(label), "%s %ux%u %u", tensor_type_name(type), n_rows, n_k, n_x);
    if (!tensor_type_block(type, &elems, &bytes) || n_k % elems != 0)
        return;
    if (part && !strstr(label, part))
        return;
    row = (size_t)n_k / elems * bytes;
    w = room(row * n_rows);
    x = room((size_t)n_x * n_k * sizeof(float));
    y = room((size_t)n_x * n_rows * sizeof(float));
    xq = room((size_t)n_x * n_k);
    xd = room((size_t)n_x * n_k / 32 * sizeof(float));
    xs = room((size_t)n_x * n_k / 16 * sizeof(int16_t));
    for (size_t i = 0; i < (size_t)n_x * n_k; i++)
        x[i] = (float)(rand() % 2000 - 1000) * 0.001f;
    for (uint32_t t = 0; t < n_x; t++)
        k->quantize_q8(x + (size_t)t * n_k, n_k, xq + (size_t)t * n_k, xd + (size_t)t * (n_k / 32),
                       xs + (size_t)t * (n_k / 16));
    /* Whatever the format, a value that is finite as a scale and anything as integers. */
    for (size_t i = 0; i + 2 <= row * n_rows; i += 2) {
        uint16_t h = (uint16_t)((rand() & 0x3333) | 0x4848);

        memcpy(w + i, &h, 2);
    }
    j.m = (struct matmul){.w = w,
                          .type = type,
                          .k = n_k,
                          .row_bytes = row,
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
    j.n_rows = n_rows;
    for (uint32_t i = 0; i < pool_size(pool); i++)
        j.scratch[i] = room(k->matmul_scratch(n_k));
    s = best(multiply, &j);
    printf("%-20s %7.1f GFLOP/s, %.2f of %s; weights at %6.2f GB/s, %.2f of reading\n", label,
           flops / s * 1e-9, flops / s / (quant ? top->q8_ops : top->flops),
           quant ? top->q8_name : "FMA", (double)row * n_rows / s * 1e-9,
           (double)row * n_rows / s / reading);
    for (uint32_t i = 0; i < pool_size(pool); i++)
        free(j.scratch[i]);
    free(w);
    free(x);
    free(y);
    free(xq);
    free(xd);
    free(xs);
}

int main(int argc, char **argv)
{
    static const uint32_t shapes[][2] = {{256, 256},  {96, 256},   {256, 96},   {576, 576},
                                         {1536, 576}, {576, 1536}, {49152, 576}};
    static const uint32_t types[] = {
        TENSOR_F16,    TENSOR_Q8_0,   TENSOR_Q4_0,  TENSOR_Q4_1,    TENSOR_Q5_0,  TENSOR_Q5_1,
        TENSOR_IQ4_NL, TENSOR_MXFP4,  TENSOR_Q2_K,  TENSOR_Q3_K,    TENSOR_Q4_K,  TENSOR_Q5_K,
        TENSOR_Q6_K,   TENSOR_IQ4_XS, TENSOR_IQ3_S, TENSOR_IQ3_XXS, TENSOR_IQ2_XS};
    static const uint32_t n_x[] = {1, 2, 4, 8, 12, 64, 512};
    uint32_t n_threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    const char *part = argc > 4 ? argv[4] : NULL;
    struct ceilings top;
    double reading;

    k = kernels_get(argc > 1 ? argv[1] : NULL);
    if (!k || n_threads < 1 || n_threads > MAX_THREADS || pool_new(n_threads, &pool) < 0) {
        (void)fprintf(
            stderr,
            "usage: bench_kernels [c|avx2|avx512 [threads up to %d [seconds [part of a label]]]]\n",
            MAX_THREADS);
        return EXIT_FAILURE;
    }
    if (argc > 3)
        figure_s = strtod(argv[3], NULL);
    ceilings_measure(pool, k->name, &top);
    reading = ceiling_reading(pool, READ_BYTES);
    printf("%s, %u threads: FMA %.1f GFLOP/s, %s %.1f GOP/s, reading %.2f GB/s\n", k->name,
           n_threads, top.flops * 1e-9, top.q8_name, top.q8_ops * 1e-9, reading * 1e-9);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
            /* The output head is never multiplied by many rows. */
            for (size_t i = 0; i < sizeof(n_x) / sizeof(n_x[0]); i++)
                if (shapes[s][0] < 4096 || n_x[i] < 64)
                    product(types[t], shapes[s][0], shapes[s][1], n_x[i], part, &top, reading);
    pool_free(pool);
    return EXIT_SUCCESS;
}
