/* SPDX-License-Identifier: Apache-2.0 */
/* util/hash: short and similar keys spread, whatever the seed. */
#include "util/hash.h"

#include <check.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t n_equal(uint32_t *h, size_t n)
{
    uint32_t equal = 0;

    qsort(h, n, sizeof(*h), by_value);
    for (size_t i = 1; i < n; i++)
        equal += h[i] == h[i - 1];
    return equal;
}

/* _i is the seed.  65536 good values of 32 bits have half a collision on average, more than 8
 * never. */
START_TEST(similar_keys_rarely_meet)
{
    static const char zeros[1 << 16];
    uint64_t seed = (uint64_t)_i << 32 | (uint64_t)_i;
    uint32_t *h = malloc(sizeof(*h) << 16);

    for (uint32_t i = 0; i < 1 << 16; i++)
        h[i] = (uint32_t)hash_bytes(&i, 3, seed);
    ck_assert_uint_le(n_equal(h, 1 << 16), 8);
    for (uint32_t i = 0; i < 1 << 16; i++)
        h[i] = (uint32_t)hash_u64((uint64_t)(i >> 8) << 32 | (i & 255), seed);
    ck_assert_uint_le(n_equal(h, 1 << 16), 8);
    /* Keys that differ in length alone. */
    for (uint32_t i = 0; i < 4096; i++)
        h[i] = (uint32_t)hash_bytes(zeros, i, seed);
    ck_assert_uint_le(n_equal(h, 4096), 2);
    free(h);
}
END_TEST

START_TEST(every_bit_of_the_key_and_of_the_seed_counts)
{
    char key[40] = {0};
    uint64_t plain = hash_bytes(key, sizeof(key), 1);

    for (size_t bit = 0; bit < 8 * sizeof(key); bit++) {
        key[bit / 8] = (char)(1u << bit % 8);
        ck_assert_uint_ne((uint32_t)hash_bytes(key, sizeof(key), 1), (uint32_t)plain);
        key[bit / 8] = 0;
    }
    for (int bit = 0; bit < 64; bit++)
        ck_assert_uint_ne((uint32_t)hash_bytes(key, sizeof(key), 1 ^ UINT64_C(1) << bit),
                          (uint32_t)plain);
    ck_assert_uint_ne(hash_seed(), hash_seed());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hash");
    TCase *t = tcase_create("hash");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, similar_keys_rarely_meet, 0, 16);
    tcase_add_test(t, every_bit_of_the_key_and_of_the_seed_counts);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
