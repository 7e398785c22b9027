/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which units of a pool are in use, and by how many holders.
 *
 * Pure bookkeeping: no memory behind it.  Owner: the thread that owns the engine; no locks.
 */
#ifndef ENGINE_UNITS_H
#define ENGINE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

struct units {
    uint32_t n; /* units in the pool */
    uint32_t n_free;
    uint32_t *refs; /* owned, [n]; 0 is free */
    uint32_t *free; /* owned, stack of n_free free units */
};

/* All free.  0 or -ENOMEM. */
int units_init(struct units *u, uint32_t n);
void units_done(struct units *u);

/* Takes n units with one reference each.  0, or -ENOSPC with nothing taken. */
int units_take(struct units *u, uint32_t n, uint32_t *ret);
void units_ref(struct units *u, uint32_t unit);
/* Drops one reference; the last one frees it. */
void units_unref(struct units *u, uint32_t unit);
bool units_is_sane(const struct units *u);

#endif
