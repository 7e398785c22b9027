/* SPDX-License-Identifier: Apache-2.0 */
/* "listen": TCP sockets beside the Unix sockets, and addresses that cannot be had. */
#include "daemon/tcp_listen.h"

#include "daemon/listeners.h"
#include "daemon/options.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[32];
static struct err_text e;

static void set_up(void)
{
    (void)umask(077);
    (void)strcpy(dir, "/tmp/check_listen.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    e.s[0] = '\0';
}

static void tear_down(void)
{
    char command[80];

    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static bool exists(const char *p)
{
    struct stat st;

    return lstat(p, &st) == 0;
}

static int connect_to(const char *p)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", p);
    r = connect(fd, (struct sockaddr *)&a, sizeof a) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

/* Options with both sockets in the directory of the test. */
static void make_options(struct options *o)
{
    char s[80];

    ck_assert_int_eq(options_init(o), 0);
    (void)snprintf(s, sizeof s, "%s/api.sock", dir);
    o->api_socket = strdup(s);
    (void)snprintf(s, sizeof s, "%s/control.sock", dir);
    o->control_socket = strdup(s);
    o->api_key_file = strdup("keys");
}

static int connect_tcp(const char *address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

    in.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    r = connect(fd, (struct sockaddr *)&in, sizeof in) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

START_TEST(tcp_is_opened_beside_the_unix_socket)
{
    struct listeners l;
    struct options o;
    char path_of_tcp[108];

    make_options(&o);
    o.listen = strdup("127.0.0.1:0, 127.0.0.1:0");
    ck_assert_msg(listeners_open(&o, &l, &e) == 0, "%s", e.s);
    ck_assert_uint_eq(l.n_api, 3);
    ck_assert_int_eq(connect_to(o.api_socket), 0);
    ck_assert(l.api[1].is_tcp && !l.api[1].is_remote);
    ck_assert_int_eq(strncmp(l.api[1].path, "127.0.0.1:", 10), 0);
    ck_assert_str_ne(l.api[1].path, "127.0.0.1:0");
    ck_assert_str_ne(l.api[1].path, l.api[2].path);
    ck_assert_int_eq(connect_tcp(l.api[1].path), 0);
    ck_assert_int_eq(fcntl(l.api[1].fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void)strcpy(path_of_tcp, l.api[1].path);
    listeners_close(&l);
    ck_assert_int_eq(connect_tcp(path_of_tcp), -ECONNREFUSED);
    options_done(&o);
}
END_TEST

START_TEST(an_address_that_cannot_be_had_is_named_and_nothing_stays_open)
{
    struct listeners l, other;
    struct options o;
    char text[160];

    make_options(&o);
    /* RFC 5737: nobody has it. */
    o.listen = strdup("127.0.0.1:0,192.0.2.1:8080");
    ck_assert_int_eq(listeners_open(&o, &l, &e), -EADDRNOTAVAIL);
    ck_assert_ptr_nonnull(strstr(e.s, "listen: cannot listen on 192.0.2.1:8080: "));
    ck_assert(!exists(o.api_socket));

    (void)strcpy(o.listen, "127.0.0.1:0");
    ck_assert_int_eq(listeners_open(&o, &other, &e), 0);
    (void)snprintf(text, sizeof text, "%s", other.api[1].path);
    free(o.listen);
    o.listen = strdup(text);
    free(o.api_socket);
    (void)snprintf(text, sizeof text, "%s/api2.sock", dir);
    o.api_socket = strdup(text);
    ck_assert_int_eq(listeners_open(&o, &l, &e), -EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(e.s, other.api[1].path));
    ck_assert(!exists(o.api_socket));
    listeners_close(&other);
    options_done(&o);
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

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, tcp_is_opened_beside_the_unix_socket);
    tcase_add_test(t, an_address_that_cannot_be_had_is_named_and_nothing_stays_open);
    tcase_add_test(t, names_in_listen_are_known);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
