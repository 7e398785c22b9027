/* SPDX-License-Identifier: Apache-2.0 */
/* Free memory read from a made-up machine, and rates over made-up seconds. */
#include "daemon/memory.h"
#include "daemon/options.h"
#include "daemon/rates.h"
#include "engine/engine.h"

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

    (void)snprintf(s, sizeof s, "mkdir -p '%s%s'", root, dir);
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

START_TEST(the_nearest_limit_of_the_older_hierarchy_is_the_smallest_of_the_path)
{
    put("/proc", "meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self", "cgroup", "4:cpu,memory:/a/b\n");
    put("/sys/fs/cgroup/memory/a/b", "memory.limit_in_bytes", "900000\n");
    put("/sys/fs/cgroup/memory/a/b", "memory.usage_in_bytes", "100\n");
    put("/sys/fs/cgroup/memory/a", "memory.limit_in_bytes", "5000\n");
    put("/sys/fs/cgroup/memory/a", "memory.usage_in_bytes", "1000\n");
    ck_assert_uint_eq(memory_available(root), 4000);
    /* The very top has one too. */
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "3000\n");
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "2999\n");
    ck_assert_uint_eq(memory_available(root), 1);
    /* Another controller's group is none of ours. */
    put("/proc/self", "cgroup", "4:cpu,memory_not:/a/b\n");
    ck_assert_uint_eq(memory_available(root), 1000 * 1024);
}
END_TEST

START_TEST(a_level_without_files_does_not_hide_the_one_above)
{
    put("/proc", "meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self", "cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a", "memory.max", "7000\n");
    put("/sys/fs/cgroup/a", "memory.current", "0\n");
    put("/sys/fs/cgroup/a/b/c", "memory.max", "max\n");
    /* A limit whose use is not known says nothing. */
    put("/sys/fs/cgroup/a/b", "memory.max", "10\n");
    ck_assert_uint_eq(memory_available(root), 7000);
}
END_TEST

START_TEST(memory_high_counts_like_a_limit)
{
    put("/proc/self", "cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a", "memory.max", "9000\n");
    put("/sys/fs/cgroup/a", "memory.high", "max\n");
    put("/sys/fs/cgroup/a", "memory.current", "1000\n");
    ck_assert_uint_eq(memory_available(root), 8000);
    put("/sys/fs/cgroup/a", "memory.high", "6000\n");
    ck_assert_uint_eq(memory_available(root), 5000);
    put("/sys/fs/cgroup/a", "memory.max", "max\n");
    ck_assert_uint_eq(memory_available(root), 5000);
}
END_TEST

START_TEST(file_pages_that_would_go_are_free)
{
    put("/proc/self", "cgroup", "4:memory:/a\n0::/b\n");
    put("/sys/fs/cgroup/b", "memory.max", "9000\n");
    put("/sys/fs/cgroup/b", "memory.current", "8000\n");
    put("/sys/fs/cgroup/b", "memory.stat", "anon 1\nactive_file 900\ninactive_file 3000\n");
    ck_assert_uint_eq(memory_available(root), 4000);
    put("/sys/fs/cgroup/memory/a", "memory.limit_in_bytes", "9000\n");
    put("/sys/fs/cgroup/memory/a", "memory.usage_in_bytes", "8000\n");
    put("/sys/fs/cgroup/memory/a", "memory.stat", "inactive_file 7\ntotal_inactive_file 2000\n");
    ck_assert_uint_eq(memory_available(root), 3000);
    /* More than is used is nonsense, and not believed. */
    put("/sys/fs/cgroup/memory/a", "memory.stat", "total_inactive_file 20000\n");
    put("/sys/fs/cgroup/b", "memory.stat", "inactive_file 20000\n");
    ck_assert_uint_eq(memory_available(root), 9000);
}
END_TEST

START_TEST(both_hierarchies_of_a_hybrid_machine_count)
{
    put("/proc", "meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self", "cgroup", "3:memory:/v1/x\n1:name=systemd:/y\n0::/v2/x\n");
    put("/proc/self", "mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
        "35 31 0:32 / /somewhere\\040else/mem rw shared:9 master:1 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n");
    put("/sys/fs/cgroup/cpu/v1", "memory.limit_in_bytes", "1\n");
    put("/sys/fs/cgroup/cpu/v1", "memory.usage_in_bytes", "1\n");
    put("/sys/fs/cgroup/unified/v2", "memory.max", "8000\n");
    put("/sys/fs/cgroup/unified/v2", "memory.current", "1000\n");
    ck_assert_uint_eq(memory_available(root), 7000);
    put("/somewhere else/mem/v1", "memory.limit_in_bytes", "8000\n");
    put("/somewhere else/mem/v1", "memory.usage_in_bytes", "2000\n");
    ck_assert_uint_eq(memory_available(root), 6000);
}
END_TEST

/* Docker without a namespace: the mount shows our group as its top. */
START_TEST(in_a_container_the_mount_begins_at_its_group)
{
    put("/proc/self", "cgroup", "4:memory:/docker/abc/inner\n");
    put("/proc/self", "mountinfo",
        "34 31 0:32 /other /mnt/other rw - cgroup cgroup rw,memory\n"
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("/mnt/other", "memory.limit_in_bytes", "10\n");
    put("/mnt/other", "memory.usage_in_bytes", "0\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9000\n");
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "1000\n");
    ck_assert_uint_eq(memory_available(root), 8000);
    put("/sys/fs/cgroup/memory/inner", "memory.limit_in_bytes", "500\n");
    put("/sys/fs/cgroup/memory/inner", "memory.usage_in_bytes", "0\n");
    ck_assert_uint_eq(memory_available(root), 500);
}
END_TEST

START_TEST(a_path_that_is_not_below_the_mount_means_the_mounts_top)
{
    static const char *const paths[] = {"0::/kubepods/pod/x\n", "0::/../../elsewhere\n",
                                        "0::/docker/abcd\n"};

    put("/proc/self", "mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup", "memory.max", "9000\n");
    put("/sys/fs/cgroup", "memory.current", "1000\n");
    put("/sys/fs", "memory.max", "5\n");
    put("/sys/fs", "memory.current", "0\n");
    put("/sys/fs/cgroup/d", "memory.max", "7\n"); /* "/docker/abcd" is no child "d" of ours */
    put("/sys/fs/cgroup/d", "memory.current", "0\n");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        put("/proc/self", "cgroup", paths[i]);
        ck_assert_msg(memory_available(root) == 8000, "%s", paths[i]);
    }
    /* The same under a mount of the whole, where the folder is not there. */
    put("/proc/self", "mountinfo", "35 31 0:32 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        put("/proc/self", "cgroup", paths[i]);
        ck_assert_msg(memory_available(root) == 8000, "%s", paths[i]);
    }
}
END_TEST

START_TEST(broken_files_say_nothing)
{
    put("/proc", "meminfo", "MemAvailable: lots\nMemAvailable\n");
    put("/proc/self", "cgroup", "\n::\n0:\n0\nx:memory\n0::/a\n");
    put("/proc/self", "mountinfo", "\n - \n1 2 3 - cgroup2\n35 31 0:32 / - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/a", "memory.max", "\n");
    put("/sys/fs/cgroup/a", "memory.current", "-\n");
    ck_assert_uint_eq(memory_available(root), UINT64_MAX);
    put("/sys/fs/cgroup/a", "memory.max", "70\n");
    put("/sys/fs/cgroup/a", "memory.current", "0\n");
    ck_assert_uint_eq(memory_available(root), 70);
}
END_TEST

START_TEST(the_ram_tier_is_what_was_asked_for_or_a_quarter_of_what_is_left)
{
    const struct engine_plan plan = {
        .weight_bytes = 1000, .workspace_bytes = 200, .sequence_bytes = 25};
    struct options o = {.cache = true, .parallel = 4, .conversation_cache_mib = OPTION_DECIDE};

    /* 3000 - 1000 - 200 - 4 * 25 - 500 */
    ck_assert_uint_eq(memory_ram_budget(&o, 3000, &plan, 500), 1200 / 4);
    ck_assert_uint_eq(memory_ram_budget(&o, 1800, &plan, 500), 0);
    ck_assert_uint_eq(memory_ram_budget(&o, 0, &plan, 500), 0);
    ck_assert_uint_eq(memory_ram_budget(&o, UINT64_MAX, &plan, 500), 500);
    o.conversation_cache_mib = 0;
    ck_assert_uint_eq(memory_ram_budget(&o, 3000, &plan, 500), 0);
    o.conversation_cache_mib = 16777216;
    ck_assert_uint_eq(memory_ram_budget(&o, 3000, &plan, 500), UINT64_C(16777216) << 20);
    o.cache = false;
    ck_assert_uint_eq(memory_ram_budget(&o, 3000, &plan, 500), 0);
    o.conversation_cache_mib = OPTION_DECIDE;
    ck_assert_uint_eq(memory_ram_budget(&o, 3000, &plan, 500), 0);
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
    tcase_add_test(t, the_nearest_limit_of_the_older_hierarchy_is_the_smallest_of_the_path);
    tcase_add_test(t, a_level_without_files_does_not_hide_the_one_above);
    tcase_add_test(t, memory_high_counts_like_a_limit);
    tcase_add_test(t, file_pages_that_would_go_are_free);
    tcase_add_test(t, both_hierarchies_of_a_hybrid_machine_count);
    tcase_add_test(t, in_a_container_the_mount_begins_at_its_group);
    tcase_add_test(t, a_path_that_is_not_below_the_mount_means_the_mounts_top);
    tcase_add_test(t, broken_files_say_nothing);
    tcase_add_test(t, the_ram_tier_is_what_was_asked_for_or_a_quarter_of_what_is_left);
    tcase_add_test(t, rates_cover_the_last_ten_samples);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
