/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashing for tables in memory.
 *
 * Keyed: with a seed that the sender of the keys cannot know, they cannot choose keys that
 * collide.  Values are good for one process only; never store them.
 */
#ifndef UTIL_HASH_H
#define UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A fresh seed nobody can guess (weaker, but never failing, without a kernel source of randomness).
 */
uint64_t hash_seed(void);

/* Both halves of the 128-bit product, folded: every input bit reaches every output bit. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 m = (unsigned __int128)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash_u64(uint64_t v, uint64_t seed)
{
    return hash_mix(v ^ seed, 0x9E3779B97F4A7C15u);
}

static inline uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const char *s = p;
    uint64_t h = seed ^ hash_mix(n + 1, 0xD6E8FEB86659FD93u), w;

    for (; n > 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = hash_mix(h ^ w, 0x9E3779B97F4A7C15u);
    }
    w = 0;
    if (n)
        memcpy(&w, s, n);
    h = hash_mix(h ^ w, 0xC2B2AE3D27D4EB4Fu);
    return hash_mix(h, 0x9E3779B97F4A7C15u);
}

#endif
