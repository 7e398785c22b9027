/* SPDX-License-Identifier: Apache-2.0 */
#include "util/hash.h"

#include <sys/random.h>
#include <time.h>

uint64_t hash_seed(void)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed)) {
        struct timespec ts = {0, 0};

        /* The address of a local differs from run to run as well. */
        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        seed = hash_mix((uint64_t)ts.tv_nsec ^ (uint64_t)ts.tv_sec << 32, (uintptr_t)&ts | 1);
    }
    return seed;
}
