/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process could still take, and how the pool of units and the ram tier are
 * sized from it.
 *
 * Any thread: no state of its own.  Sizes are bytes.
 */
#ifndef DAEMON_MEMORY_H
#define DAEMON_MEMORY_H

#include <stdint.h>
#include <stdio.h>

struct engine_options;
struct engine_plan;
struct err_text;
struct model;
struct options;

/*
 * The least of the machine's MemAvailable and what the limits of our cgroup and of all above it
 * leave, as far up as they can be seen: memory.max and memory.high of version 2, limit_in_bytes of
 * version 1, and both where both are mounted.  File pages that could go at once count as free.
 * `root` is put before every path ("" for the real /proc and /sys; a made-up tree in tests).
 * UINT64_MAX when nothing says.
 */
uint64_t memory_available(const char *root);

/*
 * Engine options for `m` as the settings and the free memory say: the pool is vram_mib, or what
 * `parallel` sequences of full length need, but at most half of what is free beside the weights.  0
 * or negative with `e`.
 */
int memory_plan(const struct model *m, const struct options *o, uint64_t available,
                struct engine_options *ret, struct engine_plan *ret_plan, struct err_text *e);

/*
 * The budget of the ram tier: conversation_cache_mib when it is given, else a quarter of what
 * `available` leaves beside weights, workspace, sequences and the pool (as much as the pool when
 * `available` is UINT64_MAX).  0 without a cache.  `available` is that of before the model was
 * opened, also when the settings are read again later.
 */
uint64_t memory_ram_budget(const struct options *o, uint64_t available,
                           const struct engine_plan *plan, uint64_t pool_bytes);

/* The plan as `strataD --check` prints it. */
void memory_print(FILE *f, const struct model *m, const struct options *o, uint64_t available,
                  const struct engine_options *eo, const struct engine_plan *plan);

#endif
