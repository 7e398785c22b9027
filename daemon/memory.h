/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process could still take, and how the pool of units is sized from it.
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
 * The least of the machine's MemAvailable and what the limits of our cgroup and of those above it
 * leave.  `root` is put before every path ("" for the real /proc and /sys; a made-up tree in
 * tests).  UINT64_MAX when nothing says.
 */
uint64_t memory_available(const char *root);

/*
 * Engine options for `m` as the settings and the free memory say: the pool is vram_mib, or what
 * `parallel` sequences of full length need, but at most half of what is free beside the weights.  0
 * or negative with `e`.
 */
int memory_plan(const struct model *m, const struct options *o, uint64_t available,
                struct engine_options *ret, struct engine_plan *ret_plan, struct err_text *e);

/* The plan as `strataD --check` prints it. */
void memory_print(FILE *f, const struct model *m, const struct options *o, uint64_t available,
                  const struct engine_options *eo, const struct engine_plan *plan);

#endif
