/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: made here, found dead or alive, or handed over by a service manager. */
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
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[32], path[64];
static struct err_text e;

static void set_up(void)
{
    (void)umask(077);
    (void)strcpy(dir, "/tmp/check_listen.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/s.sock", dir);
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

/* Options with both sockets in the directory of the test.  No ck_assert: see in_child. */
static void make_options(struct options *o)
{
    char s[80];

    if (options_init(o) < 0)
        abort();
    (void)snprintf(s, sizeof s, "%s/api.sock", dir);
    o->api_socket = strdup(s);
    (void)snprintf(s, sizeof s, "%s/control.sock", dir);
    o->control_socket = strdup(s);
}

START_TEST(both_sockets_are_made_for_owner_and_group_and_go_away)
{
    struct listeners l;
    struct options o;
    struct stat st;

    make_options(&o);
    ck_assert_msg(listeners_open(&o, &l, &e) == 0, "%s", e.s);
    ck_assert_uint_eq(l.n_api, 1);
    ck_assert_uint_eq(l.n_control, 1);
    ck_assert_str_eq(l.api[0].path, o.api_socket);
    ck_assert_int_eq(lstat(o.api_socket, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0660);
    ck_assert_int_eq(lstat(o.control_socket, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0660);
    ck_assert_int_eq(fcntl(l.api[0].fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(connect_to(o.api_socket), 0);
    ck_assert_int_eq(connect_to(o.control_socket), 0);
    listeners_close(&l);
    ck_assert(!exists(o.api_socket));
    ck_assert(!exists(o.control_socket));
    options_done(&o);
}
END_TEST

START_TEST(the_socket_of_a_dead_process_is_replaced)
{
    struct listener l;
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(listener_bind(path, &l, NULL) < 0); /* leaves its file */
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(exists(path));
    ck_assert_int_eq(connect_to(path), -ECONNREFUSED);
    ck_assert_msg(listener_bind(path, &l, &e) == 0, "%s", e.s);
    ck_assert_int_eq(connect_to(path), 0);
    (void)close(l.fd);
}
END_TEST

START_TEST(the_socket_of_a_living_process_is_refused_and_its_owner_named)
{
    struct listener a, b;
    char want[128];

    ck_assert_int_eq(listener_bind(path, &a, &e), 0);
    ck_assert_int_eq(listener_bind(path, &b, &e), -EADDRINUSE);
    (void)snprintf(want, sizeof want, "%s: process %d serves there already", path, (int)getpid());
    ck_assert_str_eq(e.s, want);
    ck_assert_int_eq(connect_to(path), 0);
    (void)close(a.fd);
}
END_TEST

START_TEST(a_living_socket_with_a_full_backlog_is_alive_too)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct listener l;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), waiting[8];

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(fd, 0), 0);
    for (int i = 0; i < 8; i++) {
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (struct sockaddr *)&a, sizeof a);
    }
    ck_assert_int_eq(listener_bind(path, &l, &e), -EADDRINUSE);
    ck_assert(exists(path));
    for (int i = 0; i < 8; i++)
        (void)close(waiting[i]);
    (void)close(fd);
}
END_TEST

START_TEST(a_file_or_a_link_in_the_way_is_left_alone)
{
    char target[64];
    struct listener l;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(listener_bind(path, &l, &e), -EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(e.s, "something that is not a socket lies there"));
    ck_assert(exists(path));
    ck_assert_int_eq(unlink(path), 0);
    (void)snprintf(target, sizeof target, "%s/elsewhere", dir);
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_eq(listener_bind(path, &l, &e), -EADDRINUSE);
    ck_assert(exists(path));
    ck_assert(!exists(target));
}
END_TEST

START_TEST(somebody_elses_new_socket_is_not_removed_at_the_end)
{
    struct listeners l = {.n_control = 1};
    struct listener other;

    ck_assert_int_eq(listener_bind(path, &l.control, &e), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(listener_bind(path, &other, &e), 0);
    listeners_close(&l);
    ck_assert_int_eq(connect_to(path), 0);
    (void)close(other.fd);
}
END_TEST

START_TEST(a_stranger_that_locks_the_directory_does_not_hold_up_the_start)
{
    const int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct listener l;

    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(flock(lock, LOCK_EX), 0);
    ck_assert_msg(listener_bind(path, &l, &e) == 0, "%s", e.s);
    ck_assert_int_eq(connect_to(path), 0);
    (void)close(l.fd);
    (void)close(lock);
}
END_TEST

START_TEST(one_path_for_both_sockets_is_refused_by_the_names_of_the_options)
{
    struct listeners l;
    struct options o;

    make_options(&o);
    (void)strcpy(o.control_socket, "x");
    free(o.api_socket);
    o.api_socket = strdup("x");
    ck_assert_int_eq(listeners_open(&o, &l, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.s, "api_socket and control_socket are both"));
    options_done(&o);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_refused_with_the_limit)
{
    char deep[200];
    struct listener l;

    memset(deep, 'x', sizeof deep);
    deep[0] = '/';
    deep[199] = '\0';
    ck_assert_int_eq(listener_bind(deep, &l, &e), -ENAMETOOLONG);
    ck_assert_ptr_nonnull(strstr(e.s, "at most 107 bytes"));
}
END_TEST

START_TEST(the_runtime_directories_are_made_with_their_modes)
{
    struct stat st;
    char p[80];

    ck_assert_msg(listener_make_dirs(dir, "a", false, &e) == 0, "%s", e.s);
    (void)snprintf(p, sizeof p, "%s/strata/a", dir);
    ck_assert_int_eq(stat(p, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_msg(listener_make_dirs(dir, "b", true, &e) == 0, "%s", e.s);
    (void)snprintf(p, sizeof p, "%s/strata/b", dir);
    ck_assert_int_eq(stat(p, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0755);
    ck_assert_int_eq(listener_make_dirs(dir, "b", true, &e), 0); /* they may be there */
}
END_TEST

START_TEST(a_link_in_place_of_a_directory_is_not_followed)
{
    char p[80], target[64];

    (void)snprintf(target, sizeof target, "%s/target", dir);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    (void)snprintf(p, sizeof p, "%s/strata", dir);
    ck_assert_int_eq(symlink(target, p), 0);
    ck_assert_int_lt(listener_make_dirs(dir, "a", false, &e), 0);
    (void)snprintf(p, sizeof p, "%s/a", target);
    ck_assert(!exists(p));
}
END_TEST

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
    char of_tcp[108];
    struct listeners l;
    struct options o;

    make_options(&o);
    o.api_key_file = strdup("keys");
    o.listen = strdup("127.0.0.1:0");
    ck_assert_msg(listeners_open(&o, &l, &e) == 0, "%s", e.s);
    ck_assert_uint_eq(l.n_api, 2);
    ck_assert_int_eq(connect_to(o.api_socket), 0);
    ck_assert_int_eq(connect_tcp(l.api[1].path), 0);
    (void)strcpy(of_tcp, l.api[1].path);
    listeners_close(&l);
    ck_assert_int_eq(connect_tcp(of_tcp), -ECONNREFUSED);
    ck_assert(!exists(o.api_socket));
    /* What cannot be opened leaves nothing open. */
    (void)strcpy(o.listen, "127.0.0.1:x");
    ck_assert_int_eq(listeners_open(&o, &l, &e), -EINVAL);
    ck_assert(!exists(o.api_socket));
    options_done(&o);
}
END_TEST

/*
 * A service manager.  These run in a process of their own: passed descriptors begin at 3, where
 * libcheck has its own, to which even an assertion that holds writes.
 */

#define REQUIRE(expr)                                                                              \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            (void)fprintf(stderr, "line %d: %s: %s\n", __LINE__, #expr, e.s);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void in_child(void (*run)(int i), int i)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        run(i);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

/* What the manager of systemd's protocol does: descriptors from 3 on, and their names in the
 * environment. */
static void pass(const int *fds, int n, const char *names)
{
    char s[16];

    for (int i = 0; i < n; i++) {
        int high = fcntl(fds[i], F_DUPFD, 100 + i);

        REQUIRE(high >= 0);
        REQUIRE(dup2(high, 3 + i) == 3 + i);
        (void)close(high);
    }
    (void)snprintf(s, sizeof s, "%d", n);
    (void)setenv("LISTEN_FDS", s, 1);
    (void)snprintf(s, sizeof s, "%d", (int)getpid());
    (void)setenv("LISTEN_PID", s, 1);
    (void)setenv("LISTEN_FDNAMES", names, 1);
}

static int listening(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, name);
    REQUIRE(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    REQUIRE(listen(fd, 8) == 0);
    return fd;
}

static const char *const orders[] = {"api:control", "control:api",
                                     "strata@x.socket:strata-control@x.socket",
                                     "strata-control@x.socket:api"};

static void run_passed_sockets_are_told_apart_by_name_in_either_order(int i)
{
    bool api_first = strncmp(orders[i], "api", 3) == 0 || strncmp(orders[i], "strata@", 7) == 0;
    int fds[2] = {listening(api_first ? "a" : "c"), listening(api_first ? "c" : "a")};
    struct listeners l;
    struct options o;
    char want[64];

    pass(fds, 2, orders[i]);
    make_options(&o);
    REQUIRE(listeners_open(&o, &l, &e) == 0);
    REQUIRE(l.n_api == 1);
    REQUIRE(l.n_control == 1);
    (void)snprintf(want, sizeof want, "%s/a", dir);
    REQUIRE(strcmp(l.api[0].path, want) == 0);
    (void)snprintf(want, sizeof want, "%s/c", dir);
    REQUIRE(strcmp(l.control.path, want) == 0);
    REQUIRE(fcntl(l.api[0].fd, F_GETFD) & FD_CLOEXEC);
    REQUIRE(fcntl(l.api[0].fd, F_GETFL) & O_NONBLOCK);
    REQUIRE(getenv("LISTEN_FDS") == NULL);
    listeners_close(&l);
    (void)snprintf(want, sizeof want, "%s/a", dir);
    REQUIRE(exists(want)); /* the manager's file is not ours */
    REQUIRE(!exists(o.api_socket));
    options_done(&o);
}

START_TEST(passed_sockets_are_told_apart_by_name_in_either_order)
{
    in_child(run_passed_sockets_are_told_apart_by_name_in_either_order, _i);
}
END_TEST

static void run_what_is_not_passed_is_made(int i)
{
    int fds[2] = {listening("a"), listening("b")};
    struct listeners l;
    struct options o;

    (void)i;
    pass(fds, 2, "api:api");
    make_options(&o);
    REQUIRE(listeners_open(&o, &l, &e) == 0);
    REQUIRE(l.n_api == 2);
    REQUIRE(strcmp(l.control.path, o.control_socket) == 0);
    listeners_close(&l);
    options_done(&o);
}

START_TEST(what_is_not_passed_is_made)
{
    in_child(run_what_is_not_passed_is_made, _i);
}
END_TEST

static void run_other_things_that_a_manager_passes_are_refused(int i)
{
    static const char *const names[] = {"api", "api", "api", "stored", "control:control"};
    static const char *const words[] = {
        "TCP socket as \"api\", where every request needs a key: set \"api_key_file\"",
        "not a listening stream socket", "not a listening stream socket",
        "passed \"stored\", expected \"api\" or \"control\"",
        "passed more than 1 sockets as \"control\""};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct listeners l;
    struct options o;
    int fds[2] = {-1, -1}, n = 1;

    if (i == 0) {
        fds[0] = socket(AF_INET, SOCK_STREAM, 0);
        REQUIRE(bind(fds[0], (struct sockaddr *)&in, sizeof in) == 0);
        REQUIRE(listen(fds[0], 1) == 0);
    } else if (i == 1) {
        fds[0] = open("/dev/null", O_RDONLY);
    } else if (i == 2) {
        fds[0] = socket(AF_UNIX, SOCK_STREAM, 0); /* does not listen */
    } else {
        fds[0] = listening("a");
    }
    if (i == 4) {
        fds[1] = listening("b");
        n = 2;
    }
    pass(fds, n, names[i]);
    make_options(&o);
    REQUIRE(listeners_open(&o, &l, &e) < 0);
    REQUIRE(strstr(e.s, words[i]));
    REQUIRE(fcntl(3, F_GETFD) == -1); /* nothing stays open */
    REQUIRE(!exists(o.api_socket));
    options_done(&o);
}

static int listening_tcp(int family)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    int fd = socket(family, SOCK_STREAM, 0);

    if (fd < 0)
        return -1;
    if (family == AF_INET)
        REQUIRE(bind(fd, (struct sockaddr *)&in, sizeof in) == 0);
    else
        REQUIRE(bind(fd, (struct sockaddr *)&in6, sizeof in6) == 0);
    REQUIRE(listen(fd, 1) == 0);
    return fd;
}

/* Where there is no IPv6 the second one is IPv4 too. */
static void run_passed_tcp_is_taken_where_there_are_keys(int i)
{
    int fds[3] = {listening("a"), listening_tcp(AF_INET), listening_tcp(AF_INET6)};
    const bool v6 = fds[2] >= 0;
    struct listeners l;
    struct options o;

    (void)i;
    if (!v6)
        fds[2] = listening_tcp(AF_INET);
    pass(fds, 3, "api:api:api");
    make_options(&o);
    o.api_key_file = strdup("keys");
    REQUIRE(listeners_open(&o, &l, &e) == 0);
    REQUIRE(l.n_api == 3);
    REQUIRE(!l.api[0].is_tcp && l.api[1].is_tcp && l.api[2].is_tcp);
    REQUIRE(strncmp(l.api[1].path, "127.0.0.1:", 10) == 0);
    REQUIRE(!l.api[1].is_remote);
    REQUIRE(!v6 || (strncmp(l.api[2].path, "[::]:", 5) == 0 && l.api[2].is_remote));
    REQUIRE(!l.api[1].is_ours);
    listeners_close(&l);
    options_done(&o);
}

START_TEST(passed_tcp_is_taken_where_there_are_keys)
{
    in_child(run_passed_tcp_is_taken_where_there_are_keys, _i);
}
END_TEST

static void run_the_control_socket_is_never_tcp(int i)
{
    int fd = listening_tcp(AF_INET);
    struct listeners l;
    struct options o;

    (void)i;
    pass(&fd, 1, "control");
    make_options(&o);
    o.api_key_file = strdup("keys");
    REQUIRE(listeners_open(&o, &l, &e) == -EINVAL);
    REQUIRE(strstr(e.s, "the control socket is a Unix socket"));
    options_done(&o);
}

START_TEST(the_control_socket_is_never_tcp)
{
    in_child(run_the_control_socket_is_never_tcp, _i);
}
END_TEST

START_TEST(other_things_that_a_manager_passes_are_refused)
{
    in_child(run_other_things_that_a_manager_passes_are_refused, _i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("listeners");
    TCase *t = tcase_create("listeners");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, both_sockets_are_made_for_owner_and_group_and_go_away);
    tcase_add_test(t, the_socket_of_a_dead_process_is_replaced);
    tcase_add_test(t, the_socket_of_a_living_process_is_refused_and_its_owner_named);
    tcase_add_test(t, a_living_socket_with_a_full_backlog_is_alive_too);
    tcase_add_test(t, a_file_or_a_link_in_the_way_is_left_alone);
    tcase_add_test(t, somebody_elses_new_socket_is_not_removed_at_the_end);
    tcase_add_test(t, a_stranger_that_locks_the_directory_does_not_hold_up_the_start);
    tcase_add_test(t, one_path_for_both_sockets_is_refused_by_the_names_of_the_options);
    tcase_add_test(t, a_path_that_is_too_long_is_refused_with_the_limit);
    tcase_add_test(t, the_runtime_directories_are_made_with_their_modes);
    tcase_add_test(t, a_link_in_place_of_a_directory_is_not_followed);
    tcase_add_loop_test(t, passed_sockets_are_told_apart_by_name_in_either_order, 0,
                        sizeof orders / sizeof orders[0]);
    tcase_add_test(t, what_is_not_passed_is_made);
    tcase_add_loop_test(t, other_things_that_a_manager_passes_are_refused, 0, 5);
    tcase_add_test(t, passed_tcp_is_taken_where_there_are_keys);
    tcase_add_test(t, the_control_socket_is_never_tcp);
    tcase_add_test(t, tcp_is_opened_beside_the_unix_socket);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
