/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), plain and slow, for goldens that are given as digests. */
#ifndef TESTS_SHA256_H
#define TESTS_SHA256_H

#include <stddef.h>

void sha256_hex(const void *p, size_t n, char ret[65]);

#endif
