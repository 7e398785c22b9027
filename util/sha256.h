/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by libcrypto, whose headers stay behind this one.
 *
 * libcrypto allocates, and its configuration may leave it without the digest: a caller that goes on
 * all the same compares what lay in memory.
 */
#ifndef UTIL_SHA256_H
#define UTIL_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

/* 0, or -EIO with `ret` as before. */
int sha256(const void *p, size_t n, uint8_t ret[SHA256_BYTES]) __attribute__((warn_unused_result));
/* The same in 64 lower-case digits. */
int sha256_hex(const void *p, size_t n, char ret[2 * SHA256_BYTES + 1])
    __attribute__((warn_unused_result));
/* In a time that does not depend on the bytes. */
bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

#endif
