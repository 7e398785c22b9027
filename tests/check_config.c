/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file: what is taken, and what a refusal says. */
#include "daemon/config.h"

#include "daemon/options.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct options o;

static void set_up(void)
{
    ck_assert_int_eq(options_init(&o), 0);
}

static void tear_down(void)
{
    options_done(&o);
}

static int read_text(const char *s, struct err_text *e)
{
    return config_read_bytes(&o, "x.json", s, strlen(s), e);
}

START_TEST(a_good_file_sets_its_keys_and_no_others)
{
    struct err_text e;

    ck_assert_int_eq(
        read_text("{\n  \"model\": \"/m/a.gguf\",\n  \"parallel\": 8,\n  \"kv_type\": \"bf16\",\n"
                  "  \"deterministic\": true, \"monitor_cache_window\": null, \"disk_mib\": 0, "
                  "\"cache\": false,\n"
                  "  \"isolation\": \"uid\", \"threads\": 2.0\n}\n",
                  &e),
        0);
    ck_assert_str_eq(o.model, "/m/a.gguf");
    ck_assert_uint_eq(o.parallel, 8);
    ck_assert_uint_eq(o.threads, 2);
    ck_assert_str_eq(o.kv_type, "bf16");
    ck_assert(o.deterministic);
    ck_assert(!o.cache);
    ck_assert_str_eq(o.isolation, "uid");
    ck_assert_uint_eq(o.monitor_cache_window, 20);
    ck_assert_uint_eq(o.max_gap_ms, 200);
}
END_TEST

static const struct {
    const char *file;
    const char *text;
} bad_files[] = {
    {"{\"paralel\": 4}", "x.json:1: unknown key \"paralel\"; did you mean \"parallel\"?"},
    {"{\n\n \"modell\": \"x\"}", "x.json:3: unknown key \"modell\"; did you mean \"model\"?"},
    {"{\"qqq\": 1}", "x.json:1: unknown key \"qqq\"; strata.json(5) lists the keys"},
    {"{\"\": 1}", "x.json:1: unknown key \"\"; strata.json(5) lists the keys"},
    {"{\"\\u0001\\\"\": 1}", "x.json:1: unknown key \"\\x01\\x22\"; strata.json(5) lists the keys"},
    {"{\"name\": \"x\"}", "x.json:1: \"name\" is an option of the command line, not a key"},
    {"{\n\"model\": \"a\",\n\"parallel\": \"4\"}",
     "x.json:3: \"parallel\": expected a whole number from 1 to 256, found the text \"4\""},
    {"{\n\"parallel\":\n 0}",
     "x.json:2: \"parallel\": 0 is out of range: a whole number from 1 to 256"},
    {"{\"parallel\": -9223372036854775808}",
     "x.json:1: \"parallel\": -9223372036854775808 is out of range"},
    {"{\"parallel\": 1.5}",
     "x.json:1: \"parallel\": expected a whole number from 1 to 256, found the number 1.5"},
    {"{\"parallel\": 1e300}",
     "x.json:1: \"parallel\": expected a whole number from 1 to 256, found the number 1e+300"},
    {"{\"parallel\": null}",
     "x.json:1: \"parallel\": expected a whole number from 1 to 256, found null"},
    {"{\"parallel\": [\"}\", \"model\"], \"model\": 1}",
     "x.json:1: \"parallel\": expected a whole number from 1 to 256, found an array"},
    {"{\"threads\": 1,\n\"model\": {\"model\": \"a\",\n\"b\": 2},\n\"parallel\": 1}",
     "x.json:2: \"model\": expected text, found an object"},
    {"{\"model\": true}", "x.json:1: \"model\": expected text, found true"},
    {"{\"deterministic\": \"true\"}",
     "x.json:1: \"deterministic\": expected true or false, found the text \"true\""},
    {"{\"kv_type\": 16}",
     "x.json:1: \"kv_type\": expected one of f16|bf16|f32, found the number 16"},
    {"{\"kv_type\": \"q8_0\"}",
     "x.json:1: \"kv_type\": \"q8_0\" is not supported yet: it comes with quantised state"},
    {"{\"model\": \"a\\\"\\n\",\n\"listen\": [\"0.0.0.0:80\", 1]}",
     "x.json:2: \"listen\": expected text or a list of texts, found an array"},
    {"{\"listen\": []}", "x.json:1: \"listen\": the list is empty"},
    {"{\"listen\": 80}",
     "x.json:1: \"listen\": expected text or a list of texts, found the number 80"},
    {"{\"model\": [\"a\"]}", "x.json:1: \"model\": expected text, found an array"},
    {"{\"cache\": 1}", "x.json:1: \"cache\": expected true or false, found the number 1"},
    {"{\"batch_mtp\": false}",
     "x.json:1: \"batch_mtp\": not supported yet: it comes with speculative decoding"},
    {"{\"layer_split\": null}",
     "x.json:1: \"layer_split\": not supported yet: it comes with models that span several GPUs"},
    {"{\"monitor_cache_window\": \"20\"}", "x.json:1: \"monitor_cache_window\": expected a whole "
                                           "number from 1 to 500, found the text \"20\""},
    {"{\"monitor_cache_window\": 0}",
     "x.json:1: \"monitor_cache_window\": 0 is out of range: a whole number from 1 to 500"},
    {"{\"parallel\": 1,\n\"parallel\": 2}", "x.json:2: duplicate object key"},
    {"{\"parallel\": 1,\n}", "x.json:2: "},
    {"{\"parallel\": 1}\n x", "x.json:2: end of file expected"},
    {"", "x.json:1: "},
    {"[]", "x.json:1: expected an object"},
    {"4", "x.json:1: "},
    {"{\"model\": \"\xff\"}", "x.json:1: "},
    {"{\"model\": \"a\\u0000b\"}", "x.json:1: "},
};

START_TEST(a_bad_file_is_refused_with_line_and_key)
{
    struct err_text e = {""};

    ck_assert_int_lt(read_text(bad_files[_i].file, &e), 0);
    ck_assert_msg(strncmp(e.s, bad_files[_i].text, strlen(bad_files[_i].text)) == 0, "%s", e.s);
}
END_TEST

START_TEST(a_list_is_one_text_with_commas)
{
    struct err_text e = {""};

    ck_assert_int_eq(read_text("{\"listen\": [\"127.0.0.1:80\", \"[::1]:80\"]}", &e), 0);
    ck_assert_str_eq(o.listen, "127.0.0.1:80,[::1]:80");
    ck_assert_int_eq(read_text("{\"listen\": \"box:1, 10.0.0.1:2\"}", &e), 0);
    ck_assert_str_eq(o.listen, "box:1, 10.0.0.1:2");
}
END_TEST

START_TEST(nothing_of_a_refused_file_is_used)
{
    struct err_text e;

    ck_assert_int_lt(read_text("{\"model\": \"a\", \"parallel\": 9, \"nope\": 1}", &e), 0);
    ck_assert_ptr_null(o.model);
    ck_assert_uint_eq(o.parallel, 4);
}
END_TEST

/* The line in the message is that of the bad key, whatever stands before it. */
START_TEST(the_line_is_right_whatever_comes_before)
{
    static const char *const parts[] = {
        "\"threads\": 3",           "\"model\": \"a\\\"b:{[\"", "\"context\":\n\n 100",
        "\"state_dir\": \"}\\\\\"", "\"api_socket\"\n:\n\"x\"", "\"vram_mib\" : 5",
    };
    unsigned int seed = (unsigned int)_i, line = 1, wanted = 0;
    unsigned int bad = seed % 7;
    char text[1024] = "{", want[64];
    struct err_text e;

    for (unsigned int i = 0; i < 7; i++) {
        const char *part = i == bad ? "\"bad_key\": 1" : parts[(i < bad ? i : i - 1)];

        seed = seed * 1103515245 + 12345;
        if (i > 0)
            (void)strcat(text, ",");
        for (unsigned int k = 0; k < (seed >> 16) % 4; k++)
            (void)strcat(text, (seed >> 20) & 1 ? "\n" : "\r\n");
        if (i == bad) {
            for (const char *p = text; *p; p++)
                line += *p == '\n';
            wanted = line;
        }
        (void)strcat(text, part);
    }
    (void)strcat(text, "\n}");
    (void)snprintf(want, sizeof want, "x.json:%u: unknown key \"bad_key\"", wanted);
    ck_assert_int_eq(read_text(text, &e), -EINVAL);
    ck_assert_msg(strncmp(e.s, want, strlen(want)) == 0, "%s\n%s\n%s", e.s, want, text);
}
END_TEST

START_TEST(deep_nesting_and_large_files_are_refused_before_they_are_parsed)
{
    struct err_text e;
    char *s = malloc(CONFIG_MAX_BYTES + 2);

    ck_assert_ptr_nonnull(s);
    memset(s, '[', CONFIG_MAX_BYTES + 1);
    s[CONFIG_MAX_BYTES + 1] = '\0';
    ck_assert_int_eq(config_read_bytes(&o, "x.json", s, CONFIG_MAX_BYTES, &e), -EINVAL);
    ck_assert_str_eq(e.s, "x.json:1: nested more than 32 deep");
    ck_assert_int_eq(config_read_bytes(&o, "x.json", s, CONFIG_MAX_BYTES + 1, &e), ERR_CAPACITY);
    free(s);
}
END_TEST

START_TEST(a_path_that_is_no_readable_file_is_refused)
{
    char dir[] = "/tmp/check_config.XXXXXX", path[64];
    struct err_text e;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(config_read(&o, dir, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.s, "not a regular file"));
    (void)snprintf(path, sizeof path, "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(config_read(&o, path, &e), -EINVAL); /* and it does not hang */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(config_read(&o, path, &e), -ENOENT);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(the_command_line_wins_over_the_file)
{
    char path[] = "/tmp/check_config.XXXXXX";
    char *argv[] = {(char *)(uintptr_t) "strataD", (char *)(uintptr_t) "--parallel=2",
                    (char *)(uintptr_t) "--config", path};
    struct options_argv asked;
    struct err_text e;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dprintf(fd, "{\"parallel\": 8, \"threads\": 3}"), 29);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(options_read_argv(&o, 4, argv, &asked, &e), 0);
    ck_assert_uint_eq(o.parallel, 2);
    ck_assert_uint_eq(o.threads, 3);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_good_file_sets_its_keys_and_no_others);
    tcase_add_loop_test(t, a_bad_file_is_refused_with_line_and_key, 0,
                        sizeof bad_files / sizeof bad_files[0]);
    tcase_add_test(t, nothing_of_a_refused_file_is_used);
    tcase_add_test(t, a_list_is_one_text_with_commas);
    tcase_add_loop_test(t, the_line_is_right_whatever_comes_before, 0, 200);
    tcase_add_test(t, deep_nesting_and_large_files_are_refused_before_they_are_parsed);
    tcase_add_test(t, a_path_that_is_no_readable_file_is_refused);
    tcase_add_test(t, the_command_line_wins_over_the_file);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
