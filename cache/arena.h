/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ram tier's memory: units of one size in segments that are memfds, so that they can be handed
 * to the service manager and outlive the process.
 *
 * A segment is made when the first unit of it is needed and given back to the system only whole,
 * when the last of its units was put back.  Units are taken from the fullest segments first.  No
 * unit crosses a border of segments.
 *
 * Owner: one thread; the memory of a taken unit may be read and written by any.
 */
#ifndef CACHE_ARENA_H
#define CACHE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define ARENA_SEGMENT_BYTES ((uint64_t)256 << 20)

/*
 * Units of unit_bytes (a multiple of 64), at most max_units ever; segments of segment_bytes
 * (ARENA_SEGMENT_BYTES; smaller in tests), or of one unit when that is larger.  Takes no memory for
 * units yet.  0, -EINVAL or -ENOMEM.
 */
int arena_new(uint64_t unit_bytes, uint32_t max_units, uint64_t segment_bytes, struct arena **ret);
void arena_free(struct arena *a); /* NULL is fine */

/* A unit with one reference.  0; -ENOSPC all max_units are taken; -ENOMEM the system has none. */
int arena_take(struct arena *a, uint32_t *ret);
void arena_ref(struct arena *a, uint32_t unit);
/* Drops a reference; the last one puts the unit back. */
void arena_unref(struct arena *a, uint32_t unit);
uint32_t arena_refs(const struct arena *a, uint32_t unit);

/* Its bytes, page aligned when unit_bytes is a multiple of 4096, at least 64 otherwise. */
void *arena_ptr(const struct arena *a, uint32_t unit);

uint32_t arena_n_used(const struct arena *a);
uint32_t arena_max_units(const struct arena *a);
/* May grow and shrink; units that are taken stay valid (unit numbers do not change). */
void arena_set_max(struct arena *a, uint32_t max_units);
/* Memory of all segments there are, used or not. */
uint64_t arena_bytes_mapped(const struct arena *a);

/* Segments, for handing over and for tests; -1 when there is no such segment now. */
uint32_t arena_n_segments(const struct arena *a);
int arena_segment_fd(const struct arena *a, uint32_t i);

bool arena_is_sane(const struct arena *a);

#endif
