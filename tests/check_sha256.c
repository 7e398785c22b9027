/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4, around the borders of its blocks. */
#include "util/sha256.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    char byte;
    size_t n;
    const char *hex;
} of_one_byte[] = {
    {'a', 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {'a', 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
    {'a', 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
    {'a', 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
    {'a', 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

START_TEST(digests_are_those_of_others)
{
    char *s = malloc(of_one_byte[_i].n + 1), hex[65];

    ck_assert_ptr_nonnull(s);
    memset(s, of_one_byte[_i].byte, of_one_byte[_i].n);
    sha256_hex(s, of_one_byte[_i].n, hex);
    ck_assert_str_eq(hex, of_one_byte[_i].hex);
    free(s);
}
END_TEST

START_TEST(the_standards_own_examples_hold)
{
    char hex[65];
    uint8_t raw[SHA256_BYTES];

    sha256_hex("abc", 3, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("abc", 3, raw);
    ck_assert_uint_eq(raw[0], 0xba);
    ck_assert_uint_eq(raw[31], 0xad);
    sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
    ck_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sha256");
    TCase *t = tcase_create("sha256");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, digests_are_those_of_others, 0,
                        sizeof of_one_byte / sizeof of_one_byte[0]);
    tcase_add_test(t, the_standards_own_examples_hold);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
