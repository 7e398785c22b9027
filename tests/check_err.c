/* SPDX-License-Identifier: Apache-2.0 */
/* util/err: words for every code, reasons that always fit, text that is safe to print. */
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(every_own_code_has_words_of_its_own)
{
    for (int a = ERR_DAMAGED; a <= ERR_LAST; a++) {
        ck_assert_str_ne(err_str(a), "unknown error");
        for (int b = ERR_DAMAGED; b < a; b++)
            ck_assert_str_ne(err_str(a), err_str(b));
    }
}
END_TEST

START_TEST(an_errno_has_the_words_of_the_c_library)
{
    ck_assert_str_eq(err_str(-ENOENT), "No such file or directory");
    ck_assert_str_eq(err_str(0), "success");
    ck_assert_str_eq(err_str(7), "success");
}
END_TEST

START_TEST(a_value_nobody_defined_still_has_words)
{
    const int odd[] = {-4000, -4095, -4096, -4900, ERR_DAMAGED - 1, ERR_LAST + 1, INT32_MIN};

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        ck_assert_str_eq(err_str(odd[i]), "unknown error");
}
END_TEST

START_TEST(set_fills_the_reason_and_returns_the_code)
{
    struct err_text e;

    ck_assert_int_eq(err_set(&e, -EINVAL, "%s is %d", "key", 3), -EINVAL);
    ck_assert_str_eq(e.s, "key is 3");
    ck_assert_int_eq(err_set(NULL, ERR_DAMAGED, "nobody reads this"), ERR_DAMAGED);
}
END_TEST

START_TEST(a_reason_that_is_too_long_is_cut_and_terminated)
{
    struct err_text e;
    char lots[2 * sizeof e.s];

    memset(lots, 'x', sizeof lots - 1);
    lots[sizeof lots - 1] = '\0';
    (void)err_set(&e, -EINVAL, "%s", lots);
    ck_assert_uint_eq(strlen(e.s), sizeof e.s - 1);
}
END_TEST

START_TEST(escaped_text_is_printable_ascii)
{
    char out[64];

    ck_assert_str_eq(err_escape(out, sizeof out, "a b", 3), "a b");
    ck_assert_str_eq(err_escape(out, sizeof out, "\"\\\n\x7f\xc3\0z", 7),
                     "\\x22\\x5c\\x0a\\x7f\\xc3\\x00z");
    ck_assert_str_eq(err_escape(out, sizeof out, "", 0), "");
}
END_TEST

/* The guard bytes behind `out` prove that it stays in its size; _i is the seed. */
START_TEST(escaping_never_leaves_its_buffer_or_half_an_escape)
{
    unsigned int seed = (unsigned int)_i;
    char in[40], out[80], all[sizeof in * 4 + 1];

    for (int round = 0; round < 500; round++) {
        size_t n = (size_t)rand_r(&seed) % sizeof in, size = (size_t)rand_r(&seed) % 60;
        size_t len;

        for (size_t i = 0; i < n; i++)
            in[i] = (char)rand_r(&seed);
        memset(out, '#', sizeof out);
        (void)err_escape(out, size, in, n);
        for (size_t i = size; i < sizeof out; i++)
            ck_assert_int_eq(out[i], '#');
        if (size == 0)
            continue;
        len = strnlen(out, size);
        ck_assert_uint_lt(len, size);
        /* What fits is a prefix of the whole, cut only between characters. */
        (void)err_escape(all, sizeof all, in, n);
        ck_assert_int_eq(strncmp(all, out, len), 0);
        ck_assert(all[len] == '\0' || size - len <= 4);
        for (size_t i = 0; i < len;) {
            ck_assert(out[i] >= 0x20 && out[i] < 0x7f && out[i] != '"');
            i += out[i] == '\\' ? 4 : 1;
            ck_assert_uint_le(i, len);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("err");
    TCase *t = tcase_create("err");
    SRunner *runner;
    int failed;

    tcase_add_test(t, every_own_code_has_words_of_its_own);
    tcase_add_test(t, an_errno_has_the_words_of_the_c_library);
    tcase_add_test(t, a_value_nobody_defined_still_has_words);
    tcase_add_test(t, set_fills_the_reason_and_returns_the_code);
    tcase_add_test(t, a_reason_that_is_too_long_is_cut_and_terminated);
    tcase_add_test(t, escaped_text_is_printable_ascii);
    tcase_add_loop_test(t, escaping_never_leaves_its_buffer_or_half_an_escape, 0, 8);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
