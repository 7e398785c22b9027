/* SPDX-License-Identifier: Apache-2.0 */
/* The file of keys: what it may hold, who owns what, and what a reload does. */
#include "daemon/api_keys.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[32], path[64];
static struct err_text e;

static void set_up(void)
{
    (void)strcpy(dir, "/tmp/check_keys.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/keys", dir);
    e.s[0] = '\0';
}

static void tear_down(void)
{
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void write_bytes(const char *s, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, s, n), (ssize_t)n);
    (void)close(fd);
}

static void write_keys(const char *s)
{
    write_bytes(s, strlen(s));
}

static const struct api_key_owner *find(const struct api_keys *k, const char *key)
{
    return api_keys_find(k, key, strlen(key));
}

START_TEST(keys_have_owners_by_name_or_by_themselves)
{
    const struct api_key_owner *a, *b;
    struct api_keys *k;

    write_keys("# people\n\n  alice \t first-key-of-hers # since May\r\n"
               "alice second-key-of-hers\nbob his#key\nsolitary-key");
    ck_assert_msg(api_keys_open(path, &k, &e) == 0, "%s", e.s);
    ck_assert_uint_eq(api_keys_n(k), 4);
    ck_assert_uint_eq(api_keys_n_short(k), 2);
    a = find(k, "first-key-of-hers");
    ck_assert_ptr_nonnull(a);
    ck_assert_str_eq(a->name, "alice");
    ck_assert_ptr_eq(find(k, "second-key-of-hers"), a);
    b = find(k, "his#key");
    ck_assert_str_eq(b->name, "bob");
    ck_assert_uint_ne(a->uid, b->uid);
    ck_assert(!uid_is_user(a->uid) && a->uid != UINT32_MAX);
    /* printf %s solitary-key | sha256sum */
    ck_assert_str_eq(find(k, "solitary-key")->name, "sha256:ae9f1c822b2cceaf");
    ck_assert_str_eq(api_keys_name(k, b->uid), "bob");
    ck_assert_ptr_null(api_keys_name(k, API_KEY_UIDS + 3));
    ck_assert_ptr_null(api_keys_name(k, API_KEY_UIDS - 1));
    ck_assert_ptr_null(api_keys_name(k, UINT32_MAX));
    ck_assert_ptr_null(api_keys_name(NULL, b->uid));
    ck_assert_ptr_null(find(k, "alice"));
    ck_assert_ptr_null(find(k, "first-key-of-her"));
    ck_assert_ptr_null(find(k, "first-key-of-herss"));
    ck_assert_ptr_null(find(k, ""));
    api_keys_free(k);
}
END_TEST

static const struct {
    const char *text, *words;
} bad[] = {
    {"", "holds no key"},
    {"# nothing\n\n", "holds no key"},
    {"a b c\n", "line 1: expected KEY or NAME KEY, found more words"},
    {"good-key\nna:me secret-secret\n", "line 2: a name has 1 to 40 letters"},
    {"x123456789012345678901234567890123456789012345 secret-secret\n", "line 1: a name has"},
    {"secret-secret\n#\nsecret-secret\n", "line 3: the key of line 1 again"},
    {"alice secret-secret\nbob secret-secret\n", "line 2: the key of line 1 again"},
    {"secr\xc3\xa9t\n", "line 1: a key has at most 256 bytes of printable ASCII"},
};

START_TEST(what_is_no_list_of_keys_is_refused_by_line_and_never_quoted)
{
    struct api_keys *k;

    write_keys(bad[_i].text);
    ck_assert_int_lt(api_keys_open(path, &k, &e), 0);
    ck_assert_msg(strstr(e.s, bad[_i].words) != NULL, "%s", e.s);
    ck_assert_ptr_nonnull(strstr(e.s, path));
    ck_assert_ptr_null(strstr(e.s, "secret"));
}
END_TEST

START_TEST(files_too_large_or_with_too_many_keys_are_refused)
{
    char *s = malloc(API_KEYS_MAX_BYTES + 2), *p = s;
    struct api_keys *k;

    memset(s, '#', API_KEYS_MAX_BYTES + 1);
    write_bytes(s, API_KEYS_MAX_BYTES + 1);
    ck_assert_int_eq(api_keys_open(path, &k, &e), ERR_CAPACITY);
    for (int i = 0; i <= API_KEYS_MAX; i++)
        p += sprintf(p, "key-number-%d\n", i);
    write_keys(s);
    ck_assert_int_eq(api_keys_open(path, &k, &e), ERR_CAPACITY);
    ck_assert_ptr_nonnull(strstr(e.s, "line 1001: more than 1000 keys"));
    write_bytes("a\0b", 3);
    ck_assert_int_eq(api_keys_open(path, &k, &e), -EINVAL);
    memset(s, 'k', API_KEY_MAX_BYTES + 1);
    s[API_KEY_MAX_BYTES + 1] = '\0';
    write_keys(s);
    ck_assert_int_eq(api_keys_open(path, &k, &e), -EINVAL);
    s[API_KEY_MAX_BYTES] = '\0';
    write_keys(s);
    ck_assert_int_eq(api_keys_open(path, &k, &e), 0);
    ck_assert_ptr_nonnull(find(k, s));
    api_keys_free(k);
    free(s);
}
END_TEST

START_TEST(a_file_that_others_may_read_or_change_is_refused)
{
    static const struct {
        mode_t mode;
        bool good;
    } modes[] = {{0600, true},  {0400, true},  {0640, true},  {0440, true},
                 {0644, false}, {0660, false}, {0604, false}, {0602, false}};
    struct api_keys *k;

    write_keys("secret-secret\n");
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        int r;

        ck_assert_int_eq(chmod(path, modes[i].mode), 0);
        r = api_keys_open(path, &k, &e);
        ck_assert_int_eq(r, modes[i].good ? 0 : -EPERM);
        if (r == 0)
            api_keys_free(k);
        else
            ck_assert_ptr_nonnull(strstr(e.s, "lets others read or change it"));
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        /* Root's daemon with a file of somebody else's. */
        ck_assert_int_eq(chown(path, 12345, 0), 0);
        ck_assert_int_eq(api_keys_open(path, &k, &e), -EPERM);
        ck_assert_ptr_nonnull(strstr(e.s, "belongs to another user (uid 12345)"));
    }
    ck_assert_int_eq(api_keys_open(dir, &k, &e), -EINVAL);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(api_keys_open(path, &k, &e), -ENOENT);
}
END_TEST

START_TEST(a_reload_exchanges_keys_and_keeps_owners_and_a_broken_one_changes_nothing)
{
    const struct api_key_owner *a;
    struct api_keys *k;
    uint32_t uid;

    write_keys("alice old-key\nbob bobs-key\n");
    ck_assert_int_eq(api_keys_open(path, &k, &e), 0);
    a = find(k, "old-key");
    uid = a->uid;
    write_keys("a b c\n");
    ck_assert_int_eq(api_keys_reload(k, &e), -EINVAL);
    ck_assert_ptr_eq(find(k, "old-key"), a);
    write_keys("carol carols-key\nalice new-key\n");
    ck_assert_int_eq(api_keys_reload(k, &e), 0);
    ck_assert_ptr_null(find(k, "old-key"));
    ck_assert_ptr_null(find(k, "bobs-key"));
    ck_assert_ptr_eq(find(k, "new-key"), a);
    ck_assert_uint_eq(a->uid, uid);
    ck_assert_uint_ne(find(k, "carols-key")->uid, uid);
    api_keys_free(k);
}
END_TEST

START_TEST(a_name_without_a_slash_is_a_credential_where_there_are_any)
{
    struct api_keys *k;

    write_keys("secret-secret\n");
    ck_assert_int_eq(setenv("CREDENTIALS_DIRECTORY", dir, 1), 0);
    ck_assert_int_eq(api_keys_open("keys", &k, &e), 0);
    api_keys_free(k);
    ck_assert_int_eq(api_keys_open("others", &k, &e), -ENOENT);
    ck_assert_ptr_nonnull(strstr(e.s, dir));
    ck_assert_int_eq(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    ck_assert_int_eq(api_keys_open("keys", &k, &e), -ENOENT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_keys");
    TCase *t = tcase_create("api_keys");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, keys_have_owners_by_name_or_by_themselves);
    tcase_add_loop_test(t, what_is_no_list_of_keys_is_refused_by_line_and_never_quoted, 0,
                        sizeof bad / sizeof bad[0]);
    tcase_add_test(t, files_too_large_or_with_too_many_keys_are_refused);
    tcase_add_test(t, a_file_that_others_may_read_or_change_is_refused);
    tcase_add_test(t, a_reload_exchanges_keys_and_keeps_owners_and_a_broken_one_changes_nothing);
    tcase_add_test(t, a_name_without_a_slash_is_a_credential_where_there_are_any);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
