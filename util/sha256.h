/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by libcrypto, whose headers stay behind this one. */
#ifndef UTIL_SHA256_H
#define UTIL_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *p, size_t n, uint8_t ret[SHA256_BYTES]);
/* The same in 64 lower-case digits. */
void sha256_hex(const void *p, size_t n, char ret[2 * SHA256_BYTES + 1]);
/* In a time that does not depend on the bytes. */
bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);

#endif
