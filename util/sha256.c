/* SPDX-License-Identifier: Apache-2.0 */
#include "util/sha256.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>

int sha256(const void *p, size_t n, uint8_t ret[SHA256_BYTES])
{
    return SHA256(p, n, ret) ? 0 : -EIO;
}

int sha256_hex(const void *p, size_t n, char ret[2 * SHA256_BYTES + 1])
{
    uint8_t digest[SHA256_BYTES];
    int r = sha256(p, n, digest);

    for (size_t i = 0; i < SHA256_BYTES && r == 0; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
    return r;
}

bool sha256_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES])
{
    return CRYPTO_memcmp(a, b, SHA256_BYTES) == 0;
}
