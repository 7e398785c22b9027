/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of descriptors under made-up limits of this process, and the exit code of --check. */
#include "daemon/check.h"
#include "daemon/descriptors.h"
#include "daemon/options.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* A hard limit cannot be raised again: where tests share a process, later ones go lower. */
static void limit(rlim_t soft, rlim_t hard)
{
    const struct rlimit r = {soft, hard};

    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static rlim_t soft(void)
{
    struct rlimit r;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
    return r.rlim_cur;
}

START_TEST(the_soft_limit_is_raised_for_all_connections_of_all_listeners)
{
    limit(256, 4000);
    ck_assert_uint_eq(descriptors_reserve(3, 500), 500);
    ck_assert_uint_ge(soft(), 3 * 2 * 500 + 100);
    ck_assert_uint_lt(soft(), 4000);
}
END_TEST

START_TEST(a_limit_that_is_enough_is_left_alone)
{
    limit(3000, 3500);
    ck_assert_uint_eq(descriptors_reserve(1, 1000), 1000);
    ck_assert_uint_eq(soft(), 3000);
}
END_TEST

START_TEST(under_a_low_hard_limit_connections_leave_room_for_the_rest)
{
    uint32_t n;

    limit(256, 1024);
    n = descriptors_reserve(2, 1024);
    ck_assert_uint_eq(soft(), 1024);
    ck_assert_uint_ge(n, 100);
    ck_assert_uint_le(2 * 2 * n, 1024 - 100);
}
END_TEST

START_TEST(even_a_tiny_limit_leaves_one_connection)
{
    limit(64, 64);
    ck_assert_uint_eq(descriptors_reserve(8, 1024), 1);
}
END_TEST

START_TEST(checking_a_model_that_would_not_load_gives_the_code_of_bad_configuration)
{
    char path[] = "/tmp/check_descriptors.XXXXXX";
    const int fd = mkstemp(path);
    struct options o;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(options_init(&o), 0);
    ck_assert_int_eq(check_model(&o, path, stdout), 78);
    ck_assert_int_eq(check_model(&o, "/nonexistent/model.gguf", stdout), 78);
    options_done(&o);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("descriptors");
    TCase *t = tcase_create("descriptors");
    SRunner *r;
    int failed;

    tcase_add_test(t, the_soft_limit_is_raised_for_all_connections_of_all_listeners);
    tcase_add_test(t, a_limit_that_is_enough_is_left_alone);
    tcase_add_test(t, under_a_low_hard_limit_connections_leave_room_for_the_rest);
    tcase_add_test(t, even_a_tiny_limit_leaves_one_connection);
    tcase_add_test(t, checking_a_model_that_would_not_load_gives_the_code_of_bad_configuration);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
