/* SPDX-License-Identifier: Apache-2.0 */
/* Free memory read from a made-up machine, and rates over made-up seconds. */
#include "daemon/memory.h"
#include "daemon/rates.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[32];

static void set_up(void)
{
    (void)strcpy(root, "/tmp/check_memory.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void tear_down(void)
{
    char command[80];

    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *dir, const char *name, const char *text)
{
    char s[256];
    FILE *f;

    (void)snprintf(s, sizeof s, "mkdir -p %s%s", root, dir);
    ck_assert_int_eq(system(s), 0);
    (void)snprintf(s, sizeof s, "%s%s/%s", root, dir, name);
    f = fopen(s, "we");
    ck_assert_ptr_nonnull(f);
    (void)fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(without_any_limit_it_is_what_the_machine_has)
{
    ck_assert_uint_eq(memory_available(root), UINT64_MAX);
    put("/proc", "meminfo", "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable:    64 kB\n");
    ck_assert_uint_eq(memory_available(root), 64 * 1024);
    put("/proc/self", "cgroup", "0::/\n");
    ck_assert_uint_eq(memory_available(root), 64 * 1024);
}
END_TEST

START_TEST(a_limit_of_our_group_or_of_one_above_counts)
{
    put("/proc", "meminfo", "MemAvailable: 1000000 kB\n");
    put("/proc/self", "cgroup", "0::/strata.slice/strata@x.service\n");
    put("/sys/fs/cgroup/strata.slice/strata@x.service", "memory.max", "max\n");
    put("/sys/fs/cgroup/strata.slice/strata@x.service", "memory.current", "5\n");
    ck_assert_uint_eq(memory_available(root), 1000000ull * 1024);
    put("/sys/fs/cgroup/strata.slice", "memory.max", "5000\n");
    put("/sys/fs/cgroup/strata.slice", "memory.current", "3000\n");
    ck_assert_uint_eq(memory_available(root), 2000);
    put("/sys/fs/cgroup/strata.slice/strata@x.service", "memory.max", "105\n");
    ck_assert_uint_eq(memory_available(root), 100);
    put("/sys/fs/cgroup/strata.slice", "memory.current", "6000\n");
    ck_assert_uint_eq(memory_available(root), 0);
}
END_TEST

START_TEST(the_older_hierarchy_counts_too)
{
    put("/proc", "meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self", "cgroup", "9:cpu,cpuacct:/b\n8:memory:/a\n0::/c\n");
    put("/sys/fs/cgroup/memory/a", "memory.limit_in_bytes", "9000\n");
    put("/sys/fs/cgroup/memory/a", "memory.usage_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "123\n");
    ck_assert_uint_eq(memory_available(root), 8000);
}
END_TEST

START_TEST(rates_cover_the_last_ten_samples)
{
    struct rates r = {0};
    struct rates_sample now = {.ns = 5};
    double prompt = -1, generated = -1;

    rates_get(&r, now, &prompt, &generated);
    ck_assert_double_eq(prompt, 0);
    ck_assert_double_eq(generated, 0);
    /* 100 prompt tokens in each of 5 seconds, then 15 seconds of 3 generated tokens each. */
    for (int s = 0; s <= 20; s++) {
        rates_add(&r, now);
        rates_get(&r, now, &prompt, &generated);
        if (s == 4)
            ck_assert_double_eq(prompt, 100);
        now.ns += 1000000000;
        now.prompt_tokens += s < 5 ? 100 : 0;
        now.generated_tokens += s < 5 ? 0 : 3;
    }
    rates_get(&r, now, &prompt, &generated);
    ck_assert_double_eq(prompt, 0);
    ck_assert_double_eq(generated, 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, without_any_limit_it_is_what_the_machine_has);
    tcase_add_test(t, a_limit_of_our_group_or_of_one_above_counts);
    tcase_add_test(t, the_older_hierarchy_counts_too);
    tcase_add_test(t, rates_cover_the_last_ten_samples);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
