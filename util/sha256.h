/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), plain and slow: for API keys and goldens, not for files. */
#ifndef UTIL_SHA256_H
#define UTIL_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *p, size_t n, uint8_t ret[SHA256_BYTES]);
/* The same in 64 lower-case digits. */
void sha256_hex(const void *p, size_t n, char ret[2 * SHA256_BYTES + 1]);

#endif
