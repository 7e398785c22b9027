/* SPDX-License-Identifier: Apache-2.0 */
#include "util/clock.h"

#include <stddef.h>
#include <time.h>

static const uint64_t *fake_ns; /* borrowed; set before threads start */

uint64_t clock_ns(void)
{
    struct timespec t;

    if (fake_ns)
        return *fake_ns;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void clock_set_fake(const uint64_t *fake)
{
    fake_ns = fake;
}
