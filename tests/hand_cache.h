/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small cache with entries made by hand, for tests of what shows and steers it: no requests, no
 * engine.  Units are numbers only.
 */
#ifndef TESTS_HAND_CACHE_H
#define TESTS_HAND_CACHE_H

#include "cache/cache.h"

#include <stdint.h>

enum { HAND_UNIT_BYTES = 4096 };

/* Cannot fail: aborts the test.  `now` is 0 in it; room for 100 units in ram, 1000 in vram. */
struct cache *hand_cache_new(void);
void hand_cache_free(struct cache *c);

/* A parked conversation of n_pages full pages for `uid`; the first `n_root` of them are a root too,
 * whose id is in *ret_root (NULL: no root).  Its id. */
uint64_t hand_cache_park(struct cache *c, uint32_t uid, uint32_t n_pages, uint32_t n_root,
                         uint64_t *ret_root, uint64_t now);

#endif
