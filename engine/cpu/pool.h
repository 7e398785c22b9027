/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of threads that run one function together (SPMD): the caller of pool_run is member 0.
 *
 * Inside the function, members meet at barriers and share work by counters.  Members spin for a
 * short while before they sleep, since a decode step has a hundred barriers and lasts less than a
 * millisecond; an idle pool sleeps.  How many members there are, and who does which piece, never
 * changes a result (kernels.h).
 *
 * Owner: one thread creates, runs and frees it (the engine thread).
 */
#ifndef ENGINE_CPU_POOL_H
#define ENGINE_CPU_POOL_H

#include <stdatomic.h>
#include <stdint.h>

struct pool;

/* n_threads members in all, the caller included; >= 1.  0 or negative errno. */
int pool_new(uint32_t n_threads, struct pool **ret);
void pool_free(struct pool *p);
uint32_t pool_size(const struct pool *p);

/* Runs fn(arg, member) on every member and returns when all have returned. */
void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t i_member), void *arg);

/* Inside fn only: every member calls it the same number of times.  Orders memory. */
void pool_barrier(struct pool *p);

/*
 * Work sharing inside fn: items 0..n-1 are handed out in pieces of `grain`, each to one member.
 * A counter serves one loop; between that loop and its next use one member resets it, with a
 * pool_barrier on both sides.  cpu_phase (matmul.c) keeps a ring of counters for that.
 */
struct pool_counter {
    _Alignas(64) atomic_uint next;
};
/* Takes the next piece: 1 with [*ret_begin, *ret_end) set, or 0 when nothing is left. */
int pool_take(struct pool_counter *c, uint32_t n, uint32_t grain, uint32_t *ret_begin,
              uint32_t *ret_end);

#endif
