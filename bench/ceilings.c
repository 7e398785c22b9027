/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/ceilings.h"

#include "engine/cpu/pool.h"
#include "util/clock.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    PEAK_ROUNDS = 100000, /* of the chains: about a millisecond, little beside a time slice */
    MIN_RUNS = 5,
};
#define MIN_TOTAL_S 0.05

/* The shortest time of fn on all members, in seconds. */
static double shortest(struct pool *p, void (*fn)(void *, uint32_t), void *arg)
{
    double best = INFINITY, total = 0;

    for (int i = 0; i < MIN_RUNS || total < MIN_TOTAL_S; i++) {
        uint64_t start = clock_ns();
        double t;

        pool_run(p, fn, arg);
        t = (double)(clock_ns() - start) * 1e-9;
        total += t;
        best = t < best ? t : best;
    }
    return best;
}

#if defined(__x86_64__)
/*
 * Twelve chains of one instruction: more than latency times throughput of any core so far (10), and
 * few enough for the registers.  All registers are zeroed first: what they hold could be denormal.
 */
#define N_CHAINS 12
#define CHAINS(instruction)                                                                        \
    __asm__ volatile("vzeroall" ::: CLOBBERED);                                                    \
    for (int i = 0; i < PEAK_ROUNDS; i++)                                                          \
    __asm__ volatile(instruction("0") instruction("1") instruction("2") instruction("3")           \
                         instruction("4") instruction("5") instruction("6") instruction("7")       \
                             instruction("8") instruction("9") instruction("10")                   \
                                 instruction("11")::                                               \
                                     : CLOBBERED)
#define CLOBBERED                                                                                  \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define FMA_256(r)   "vfmadd231ps %%ymm12, %%ymm13, %%ymm" r "\n\t"
#define FMA_512(r)   "vfmadd231ps %%zmm12, %%zmm13, %%zmm" r "\n\t"
#define BYTES_256(r) "vpmaddubsw %%ymm12, %%ymm13, %%ymm" r "\n\t"
#define BYTES_512(r) "vpdpbusd %%zmm12, %%zmm13, %%zmm" r "\n\t"

__attribute__((target("avx2,fma"))) static void fma_256(void *arg, uint32_t i_member)
{
    (void)arg;
    (void)i_member;
    CHAINS(FMA_256);
}

__attribute__((target("avx512f"))) static void fma_512(void *arg, uint32_t i_member)
{
    (void)arg;
    (void)i_member;
    CHAINS(FMA_512);
}

__attribute__((target("avx2"))) static void bytes_256(void *arg, uint32_t i_member)
{
    (void)arg;
    (void)i_member;
    CHAINS(BYTES_256);
}

__attribute__((target("avx512f,avx512vnni"))) static void bytes_512(void *arg, uint32_t i_member)
{
    (void)arg;
    (void)i_member;
    CHAINS(BYTES_512);
}

void ceilings_measure(struct pool *p, const char *isa, struct ceilings *ret)
{
    const bool wide = strcmp(isa, "avx512") == 0;
    const double n = (double)N_CHAINS * PEAK_ROUNDS * pool_size(p);

    *ret = (struct ceilings){.q8_name = wide ? "vnni" : "maddubs"};
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return;
    ret->flops = n * (wide ? 32 : 16) / shortest(p, wide ? fma_512 : fma_256, NULL);
    ret->q8_ops = n * (wide ? 128 : 64) / shortest(p, wide ? bytes_512 : bytes_256, NULL);
}
#else
void ceilings_measure(struct pool *p, const char *isa, struct ceilings *ret)
{
    (void)p;
    (void)isa;
    *ret = (struct ceilings){.q8_name = "none"};
}
#endif

struct reading {
    const uint64_t *words;
    size_t n_words; /* of each member */
};

/* Wide vectors of the compiler's: eight of them keep enough loads in flight on every processor. */
typedef uint64_t words4 __attribute__((vector_size(32)));

static volatile uint64_t sink;

/* "memory" is all that keeps the loads: nothing else uses their values. */
static void read_part(void *arg, uint32_t i_member)
{
    const struct reading *r = arg;
    const words4 *w = (const words4 *)(const void *)(r->words + r->n_words * i_member);
    words4 sum[8] = {{0}};

    for (size_t i = 0; i < r->n_words / 4; i += 8)
        for (size_t k = 0; k < 8; k++)
            sum[k] |= w[i + k];
    for (size_t k = 1; k < 8; k++)
        sum[0] |= sum[k];
    sink = sum[0][0] | sum[0][1] | sum[0][2] | sum[0][3];
}

double ceiling_reading(struct pool *p, size_t n)
{
    const size_t part = (n / pool_size(p) + 255) & ~(size_t)255, total = part * pool_size(p);
    struct reading r = {.n_words = part / sizeof(uint64_t)};
    void *memory = aligned_alloc(256, total);
    double s;

    if (!memory)
        return 0;
    memset(memory, 1, total);
    r.words = memory;
    s = shortest(p, read_part, &r);
    free(memory);
    return (double)total / s;
}
