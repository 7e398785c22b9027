/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine can do at all with a number of threads, to stand beside what the engine does:
 * multiply-adds out of registers, and reading of memory.
 *
 * Each is the best of several runs, since other work on the machine only makes them worse.  On a
 * processor that is not x86 only reading is measured; the others are 0.
 */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include <stddef.h>

struct pool;

struct ceilings {
    double flops;        /* fused multiply-adds of floats, two operations each, per second */
    double q8_ops;       /* multiply-adds of bytes, two operations each, per second */
    const char *q8_name; /* the instruction: "maddubs" or "vnni" */
};

/* `isa` is the engine's: "avx512" measures 512-bit registers, anything else 256-bit ones. */
void ceilings_measure(struct pool *p, const char *isa, struct ceilings *ret);

/*
 * Bytes per second when `n` bytes are read again and again by all members, each its own part; what
 * fits a cache is read from there.  0 when memory is out.
 */
double ceiling_reading(struct pool *p, size_t n);

#endif
