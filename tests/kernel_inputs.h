/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that make a wrong kernel visible, and the comparison of results.  For tests of engine/cpu.
 *
 * Buffers end where an inaccessible page begins, so that a kernel that reads or writes past a tail
 * crashes.
 */
#ifndef TESTS_KERNEL_INPUTS_H
#define TESTS_KERNEL_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernels;

/* A small generator of its own, so that a seed means the same on every machine. */
struct rng {
    uint64_t s;
};
void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);               /* [0, n) */
uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi); /* [lo, hi] */
/* 0 .. n-1 in any order */
void rng_order(struct rng *r, uint32_t *p, uint32_t n);
float rng_normal(struct rng *r); /* roughly N(0, 1) */

enum kinds {
    KIND_NORMAL, /* ordinary activations */
    KIND_WILD,   /* zeros of both signs, subnormals, tiny and huge values among them */
    KIND_BROKEN, /* the same with infinities and NaN */
    KIND_N,
};
void fill(struct rng *r, enum kinds kind, float *x, size_t n);

/* n bytes ending at a guard page; 64-byte aligned when n is a multiple of 64.  Freed by
 * guarded_free_all. */
void *guarded(size_t n);
float *guarded_floats(size_t n);
void guarded_free_all(void);

/* Every type that kernels read: the float types first, then those of 32 elements a block. */
enum { N_FLOAT_TYPES = 3, N_SMALL_TYPES = 10, N_WEIGHT_TYPES = 19 };
extern const uint32_t weight_types[N_WEIGHT_TYPES];

/* Rows of k weights of any type (enum tensor_type), with the type's own extremes (-128, subnormal
 * scales). */
uint64_t weight_row_bytes(uint32_t type, uint32_t k);
void fill_weights(struct rng *r, enum kinds kind, uint32_t type, uint32_t k, uint32_t n_rows,
                  uint8_t *w);

/* Equal bits, all NaN being one.  On a difference says where, into a static text; else NULL. */
const char *differ(const float *a, const float *b, size_t n);

/* The vector versions that this processor runs, after "c"; the others are named with the reason. */
uint32_t vector_versions(const struct kernels *ret[4]);

#endif
