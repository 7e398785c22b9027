/* SPDX-License-Identifier: Apache-2.0 */
/* Strict numbers and the distance of words. */
#include "util/text.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(numbers_are_taken_whole_or_not_at_all)
{
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3", "a"};
    uint64_t u = 7;

    ck_assert_int_eq(text_u64("18446744073709551615", &u), 0);
    ck_assert_uint_eq(u, UINT64_MAX);
    ck_assert_int_eq(text_u64("000", &u), 0);
    ck_assert_uint_eq(u, 0);
    u = 7;
    ck_assert_int_eq(text_u64("18446744073709551616", &u), -ERANGE);
    ck_assert_int_eq(text_u64("99999999999999999999999999", &u), -ERANGE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(text_u64(bad[i], &u) == -EINVAL, "%s", bad[i]);
    ck_assert_uint_eq(u, 7);
}
END_TEST

START_TEST(fractions_are_finite_and_decimal)
{
    static const char *const bad[] = {"",   "nan", "inf", "0x1p3", "1,5", " 1",
                                      "1 ", "--1", "1e",  "e",     "."};
    double d = 7;

    ck_assert_int_eq(text_f64("-0.25", &d), 0);
    ck_assert_double_eq(d, -0.25);
    ck_assert_int_eq(text_f64("1e3", &d), 0);
    ck_assert_double_eq(d, 1000);
    ck_assert_int_eq(text_f64("1e999", &d), -ERANGE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(text_f64(bad[i], &d) == -EINVAL, "%s", bad[i]);
}
END_TEST

/* The plain recursion, for short words. */
static uint32_t slow(const char *a, const char *b)
{
    uint32_t d, x;

    if (!*a || !*b)
        return (uint32_t)(strlen(a) + strlen(b));
    d = slow(a + 1, b + 1) + (*a != *b);
    x = slow(a + 1, b) + 1;
    d = x < d ? x : d;
    x = slow(a, b + 1) + 1;
    d = x < d ? x : d;
    if (a[1] && b[1] && a[0] == b[1] && a[1] == b[0]) {
        x = slow(a + 2, b + 2) + 1;
        d = x < d ? x : d;
    }
    return d;
}

START_TEST(the_distance_is_that_of_the_plain_recursion)
{
    uint32_t seed = (uint32_t)_i;
    char w[2][7];

    for (int k = 0; k < 2; k++) {
        uint32_t n;

        seed = seed * 1664525u + 1013904223u;
        n = (seed >> 16) % 7;
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            w[k][i] = (char)('a' + (seed >> 16) % 3);
        }
        w[k][n] = '\0';
    }
    ck_assert_msg(text_distance(w[0], w[1]) == slow(w[0], w[1]), "%s %s: %u", w[0], w[1],
                  text_distance(w[0], w[1]));
}
END_TEST

START_TEST(long_words_are_far_from_everything)
{
    char a[65];

    memset(a, 'a', 64);
    a[64] = '\0';
    ck_assert_uint_eq(text_distance(a, "a"), UINT32_MAX);
    ck_assert_uint_eq(text_distance("a", a), UINT32_MAX);
    ck_assert_uint_eq(text_distance(a + 1, a + 1), 0);
    ck_assert_uint_eq(text_distance(a + 1, ""), 63);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    SRunner *r;
    int failed;

    tcase_add_test(t, numbers_are_taken_whole_or_not_at_all);
    tcase_add_test(t, fractions_are_finite_and_decimal);
    tcase_add_loop_test(t, the_distance_is_that_of_the_plain_recursion, 0, 2000);
    tcase_add_test(t, long_words_are_far_from_everything);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
