/* SPDX-License-Identifier: Apache-2.0 */
/* "listen": what can be had and what cannot, and the names in it. */
#include "daemon/tcp_listen.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4 };

static struct listener list[MOST];
static size_t n;
static struct err_text e;

static int listen_on(const char *listen)
{
    n = 0;
    return tcp_listen_open(listen, list, &n, MOST, &e);
}

static void close_all(void)
{
    for (size_t i = 0; i < n; i++)
        (void)close(list[i].fd);
}

START_TEST(each_address_gets_a_socket_of_its_own)
{
    ck_assert_msg(listen_on("127.0.0.1:0, 127.0.0.1:0,0.0.0.0:0") == 0, "%s", e.s);
    ck_assert_uint_eq(n, 3);
    for (size_t i = 0; i < n; i++) {
        ck_assert(list[i].is_tcp && list[i].is_ours);
        ck_assert_int_eq(list[i].is_remote, i == 2);
        ck_assert_int_eq(fcntl(list[i].fd, F_GETFD), FD_CLOEXEC);
        ck_assert_int_eq(fcntl(list[i].fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    }
    ck_assert_int_eq(strncmp(list[0].path, "127.0.0.1:", 10), 0);
    ck_assert_str_ne(list[0].path, "127.0.0.1:0");
    ck_assert_str_ne(list[0].path, list[1].path);
    close_all();
}
END_TEST

START_TEST(a_name_is_all_the_addresses_that_are_there)
{
    ck_assert_msg(listen_on("localhost:0") == 0, "%s", e.s);
    ck_assert_uint_ge(n, 1);
    for (size_t i = 0; i < n; i++)
        ck_assert(!list[i].is_remote);
    close_all();
}
END_TEST

START_TEST(an_address_that_cannot_be_had_is_named)
{
    char taken[108];

    /* RFC 5737: nobody has it. */
    ck_assert_int_eq(listen_on("127.0.0.1:0,192.0.2.1:8080"), -EADDRNOTAVAIL);
    ck_assert_ptr_nonnull(strstr(e.s, "listen: cannot listen on 192.0.2.1:8080: "));
    ck_assert_uint_eq(n, 1); /* for the caller to close */
    (void)strcpy(taken, list[0].path);
    n = 0;
    ck_assert_int_eq(tcp_listen_open(taken, &list[1], &n, 1, &e), -EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(e.s, taken));
    (void)close(list[0].fd);
    ck_assert_int_eq(listen_on("127.0.0.1:0,127.0.0.1:0,127.0.0.1:0,127.0.0.1:0,127.0.0.1:0"),
                     ERR_CAPACITY);
    ck_assert_ptr_nonnull(strstr(e.s, "more than 4 sockets"));
    close_all();
}
END_TEST

START_TEST(names_in_listen_are_known)
{
    const char *listen = "127.0.0.1:8080, Box.Lan:80,[::1]:1";

    ck_assert(tcp_listen_names(listen, "box.lan", 7));
    ck_assert(tcp_listen_names(listen, "::1", 3));
    ck_assert(!tcp_listen_names(listen, "box.la", 6));
    ck_assert(!tcp_listen_names(listen, "box.lan.", 8));
    ck_assert(!tcp_listen_names(listen, "", 0));
    ck_assert(!tcp_listen_names(NULL, "box.lan", 7));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tcp_listen");
    TCase *t = tcase_create("tcp_listen");
    SRunner *r;
    int failed;

    tcase_add_test(t, each_address_gets_a_socket_of_its_own);
    tcase_add_test(t, a_name_is_all_the_addresses_that_are_there);
    tcase_add_test(t, an_address_that_cannot_be_had_is_named);
    tcase_add_test(t, names_in_listen_are_known);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
