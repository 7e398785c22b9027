/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time, replaceable in tests so that none of them has to sleep. */
#ifndef UTIL_CLOCK_H
#define UTIL_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start (CLOCK_MONOTONIC), or the fake time once one is set. */
uint64_t clock_ns(void);

/* Tests only, before other threads start: from now on clock_ns() returns *fake. NULL undoes it. */
void clock_set_fake(const uint64_t *fake);

static inline double clock_ms_since(uint64_t start_ns)
{
    return (double)(clock_ns() - start_ns) / 1e6;
}

#endif
