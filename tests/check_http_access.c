/* SPDX-License-Identifier: Apache-2.0 */
/* Host, Origin and keys, in tables. */
#include "daemon/http_access.h"

#include "daemon/api_error.h"
#include "daemon/api_keys.h"
#include "util/err.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTEN "127.0.0.1:8080, box.lan:8080,[::1]:1"

static const struct {
    const char *host, *origin;
    int status; /* 0: may */
} origins[] = {
    {"127.0.0.1:8080", NULL, 0},
    {"127.0.0.1", NULL, 0},
    {"192.168.1.5:8080", NULL, 0},
    {"[::1]:8080", NULL, 0},
    {"[fe80::1]", NULL, 0},
    {"localhost", NULL, 0},
    {"LocalHost:1234", NULL, 0},
    {"localhost.:80", NULL, 0},
    {"strata.localhost:80", NULL, 0},
    {"box.lan:8080", NULL, 0},
    {"BOX.lan", NULL, 0},
    {NULL, NULL, 0},
    {"", NULL, 403},
    {"evil.example", NULL, 403},
    {"evil.example:8080", NULL, 403},
    {"notlocalhost", NULL, 403},
    {"localhost.evil.example", NULL, 403},
    {"box.lan.evil.example", NULL, 403},
    {"x.box.lan", NULL, 403},
    {"127.0.0.1.evil.example", NULL, 403},
    {"127.0.0.1@evil.example", NULL, 403},
    {"127.0.0.1:80:80", NULL, 403},
    {"127.0.0.1:8o", NULL, 403},
    {"[::1", NULL, 403},
    {"[::1]x", NULL, 403},
    {"[]", NULL, 403},
    {"evil.example/.localhost", NULL, 403},
    {"evil.example@x.localhost", NULL, 403},
    {"1270.0.1", NULL, 403},
    {"127.0.0.1:8080", "http://127.0.0.1:8080", 0},
    {"localhost:8080", "http://LOCALHOST:8080", 0},
    {"box.lan", "https://box.lan", 0},
    {"127.0.0.1:8080", "http://127.0.0.1:8081", 403},
    {"127.0.0.1:8080", "http://127.0.0.1", 403},
    {"127.0.0.1:8080", "http://localhost:8080", 403},
    {"127.0.0.1:8080", "http://evil.example", 403},
    {"127.0.0.1:8080", "http://127.0.0.1:8080.evil.example", 403},
    {"127.0.0.1:8080", "null", 403},
    {"127.0.0.1:8080", "file://", 403},
    {"127.0.0.1:8080", "", 403},
    {"127.0.0.1:8080", "http://", 403},
    {"127.0.0.1:8080", "chrome-extension://127.0.0.1:8080", 403},
    {NULL, "http://evil.example", 403},
    {NULL, "http://", 403},
    {"evil.example", "http://evil.example", 403},
};

START_TEST(only_this_server_by_its_own_names_and_no_page_from_elsewhere)
{
    const struct access_headers h = {.host = origins[_i].host, .origin = origins[_i].origin};
    struct api_error e = {0};
    int r = access_check_origin(&h, LISTEN, &e);

    ck_assert_msg((r == 0 ? 0 : e.status) == origins[_i].status, "Host %s, Origin %s: %d %s",
                  h.host, h.origin, e.status, e.message);
    ck_assert_str_eq(r == 0                      ? ""
                     : strstr(e.message, "page") ? "origin_not_allowed"
                                                 : "host_not_allowed",
                     r == 0 ? "" : e.code);
}
END_TEST

START_TEST(without_listen_no_name_is_ours_and_headers_stand_once)
{
    struct access_headers h = {.host = "box.lan"};
    struct api_error e;

    ck_assert_int_lt(access_check_origin(&h, NULL, &e), 0);
    ck_assert_int_eq(e.status, 403);
    ck_assert_ptr_nonnull(strstr(e.message, "box.lan"));
    h.host = "127.0.0.1";
    ck_assert_int_eq(access_check_origin(&h, NULL, &e), 0);
    h.many = true;
    ck_assert_int_lt(access_check_origin(&h, NULL, &e), 0);
    ck_assert_int_eq(e.status, 400);
}
END_TEST

static const struct {
    const char *authorization, *x_api_key, *owner; /* NULL: 401 */
} keys[] = {
    {"Bearer key-of-alice", NULL, "alice"},
    {"bearer   key-of-alice ", NULL, "alice"},
    {NULL, "key-of-bob-42", "bob"},
    {"Basic a2V5", "key-of-bob-42", "bob"},
    {"Bearer key-of-alice", "wrong", "alice"},
    {"Bearer wrong", "key-of-alice", NULL},
    {"Bearer", NULL, NULL},
    {"Bearer ", NULL, NULL},
    {"key-of-alice", NULL, NULL},
    {"Bearer key-of-alic", NULL, NULL},
    {"Bearer key-of-alice2", NULL, NULL},
    {"Bearer KEY-OF-ALICE", NULL, NULL},
    {"Bearer alice", NULL, NULL},
    {"Basic key-of-alice", NULL, NULL},
    {NULL, "", NULL},
    {NULL, NULL, NULL},
};

START_TEST(a_key_says_who_it_is_and_nothing_else_does)
{
    const struct access_headers h = {.authorization = keys[_i].authorization,
                                     .x_api_key = keys[_i].x_api_key};
    const struct api_key_owner *owner = NULL;
    char path[] = "/tmp/check_access.XXXXXX";
    struct api_error e = {0};
    struct err_text why;
    struct api_keys *k;
    int fd = mkstemp(path), r;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(dprintf(fd, "alice key-of-alice\nbob key-of-bob-42\n"), 0);
    (void)close(fd);
    ck_assert_msg(api_keys_open(path, &k, &why) == 0, "%s", why.s);
    (void)unlink(path);
    r = access_check_key(&h, k, &owner, &e);
    if (keys[_i].owner) {
        ck_assert_msg(r == 0, "%s", e.message);
        ck_assert_str_eq(owner->name, keys[_i].owner);
    } else {
        ck_assert_int_lt(r, 0);
        ck_assert_int_eq(e.status, 401);
        ck_assert_str_eq(e.code, "invalid_api_key");
        ck_assert_ptr_null(strstr(e.message, "alic"));
        ck_assert_ptr_null(owner);
    }
    ck_assert_int_lt(access_check_key(&h, NULL, &owner, &e), 0); /* no keys: nobody */
    api_keys_free(k);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_access");
    TCase *t = tcase_create("http_access");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, only_this_server_by_its_own_names_and_no_page_from_elsewhere, 0,
                        sizeof origins / sizeof origins[0]);
    tcase_add_test(t, without_listen_no_name_is_ours_and_headers_stand_once);
    tcase_add_loop_test(t, a_key_says_who_it_is_and_nothing_else_does, 0,
                        sizeof keys / sizeof keys[0]);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
