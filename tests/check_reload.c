/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: what changes, what is only reported, and that what is broken changes nothing. */
#include "daemon/reload.h"

#include "daemon/api_keys.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "util/err.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

static char dir[32], config[48], keys[48];
static char *argv[] = {"strataD", "--config", config, NULL};
static struct options options;
static struct server server;
static char said[4096]; /* "level text" lines */

static void keep(int priority, const char *text, void *arg)
{
    const size_t n = strlen(said);

    (void)arg;
    (void)snprintf(said + n, sizeof said - n, "%d %s\n", priority, text);
}

static void write_file(const char *path, const char *s)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, s, strlen(s)), (ssize_t)strlen(s));
    (void)close(fd);
}

/* The settings, with whatever else there shall be. */
static void write_config(const char *more)
{
    char s[256];

    (void)snprintf(s, sizeof s, "{\"model\": \"m.gguf\", \"api_key_file\": \"%s\"%s}", keys, more);
    write_file(config, s);
}

static void set_up(void)
{
    struct options_argv asked;
    struct err_text e;

    (void)strcpy(dir, "/tmp/check_reload.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(config, sizeof config, "%s/config", dir);
    (void)snprintf(keys, sizeof keys, "%s/keys", dir);
    write_config("");
    write_file(keys, "alice a-long-enough-key\n");
    ck_assert_int_eq(options_init(&options), 0);
    ck_assert_msg(options_read_argv(&options, 3, argv, &asked, &e) == 0, "%s", e.s);
    server = (struct server){.options = &options};
    log_set_sink(keep, NULL);
    ck_assert_msg(reload_open_keys(&server, &e) == 0, "%s", e.s);
    said[0] = '\0';
}

static void tear_down(void)
{
    log_set_sink(NULL, NULL);
    log_set_level(LOG_INFO);
    api_keys_free(server.keys);
    options_done(&options);
    (void)unlink(config);
    (void)unlink(keys);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* Reads everything again, and says `want`. */
static void expect(const char *want)
{
    said[0] = '\0';
    reload_run(&server, 3, argv);
    ck_assert_str_eq(said, want);
}

static bool has(const char *key)
{
    return api_keys_find(server.keys, key, strlen(key)) != NULL;
}

START_TEST(what_may_change_changes_and_the_rest_is_reported)
{
    write_config(", \"log_level\": \"warning\", \"parallel\": 3, \"context\": 512");
    expect("4 \"parallel\" has changed; it takes effect at the next start\n"
           "4 \"context\" has changed; it takes effect at the next start\n");
    ck_assert_uint_ne(options.parallel, 3);
    write_config("");
    expect("5 configuration read again\n6 API keys read: keys=1\n");
}
END_TEST

START_TEST(a_broken_configuration_changes_nothing_and_keys_are_read_all_the_same)
{
    char want[256];

    write_file(config, "{\"log_level\": \"warning\", \"nonsense\": 1}");
    write_file(keys, "bob another-long-enough-key\n");
    reload_run(&server, 3, argv);
    (void)snprintf(want, sizeof want,
                   "3 the new configuration is refused, the old one stays: %s:1: unknown key",
                   config);
    ck_assert_msg(strncmp(said, want, strlen(want)) == 0, "%s", said);
    ck_assert_ptr_nonnull(strstr(said, "\n6 API keys read: keys=1\n")); /* still at level info */
    ck_assert(has("another-long-enough-key") && !has("a-long-enough-key"));
}
END_TEST

START_TEST(broken_keys_leave_the_old_ones_and_short_ones_are_reported)
{
    char want[256];

    write_file(keys, "a b c\n");
    (void)snprintf(want, sizeof want,
                   "5 configuration read again\n3 \"api_key_file\": the new keys are refused, the "
                   "old ones stay: %s: line 1: expected KEY or NAME KEY, found more words\n",
                   keys);
    expect(want);
    ck_assert(has("a-long-enough-key"));
    write_file(keys, "short\n");
    expect("5 configuration read again\n6 API keys read: keys=1\n"
           "4 1 API keys are shorter than 16 characters and can be guessed\n");
}
END_TEST

START_TEST(keys_that_cannot_be_read_keep_it_from_starting)
{
    struct err_text e;

    api_keys_free(server.keys);
    server.keys = NULL;
    ck_assert_int_eq(unlink(keys), 0);
    ck_assert_int_lt(reload_open_keys(&server, &e), 0);
    ck_assert_ptr_eq(strstr(e.s, "\"api_key_file\": /tmp/check_reload."), e.s);
    ck_assert_ptr_null(server.keys);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reload");
    TCase *t = tcase_create("reload");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, what_may_change_changes_and_the_rest_is_reported);
    tcase_add_test(t, a_broken_configuration_changes_nothing_and_keys_are_read_all_the_same);
    tcase_add_test(t, broken_keys_leave_the_old_ones_and_short_ones_are_reported);
    tcase_add_test(t, keys_that_cannot_be_read_keep_it_from_starting);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
