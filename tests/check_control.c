/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket in this process: a real listener and loop, clients that speak raw bytes. */
#include "daemon/control.h"

#include "ctl/varlink.h"
#include "daemon/listeners.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "tests/fake_engine.h"
#include "tests/fake_tokenizer.h"
#include "tests/hand_cache.h"
#include "util/clock.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <unistd.h>

static char dir[32];
static struct server server;
static struct options options;
static struct listeners listeners;
static uint64_t now_ns;

static void no_log(int priority, const char *text, void *arg)
{
    (void)priority;
    (void)text;
    (void)arg;
}

static void set_up(void)
{
    char path[64];
    struct err_text e;

    log_set_sink(no_log, NULL);
    now_ns = 5000000000;
    clock_set_fake(&now_ns);
    (void)strcpy(dir, "/tmp/check_control.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/control.sock", dir);
    ck_assert_int_eq(options_init(&options), 0);
    ck_assert_int_eq(listener_bind(path, &listeners.control, &e), 0);
    listeners.n_control = 1;
    server = (struct server){
        .options = &options, .listeners = &listeners, .load_percent = 42, .model_id = "m"};
    ck_assert_int_ge(sd_event_new(&server.event), 0);
    ck_assert_int_eq(control_new(&server, listeners.control.fd, &server.control), 0);
}

static void tear_down(void)
{
    control_free(server.control);
    (void)sd_event_unref(server.event);
    listeners_close(&listeners);
    options_done(&options);
    ck_assert_int_eq(rmdir(dir), 0); /* the socket's file is gone */
}

static int connect_client(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    ck_assert_int_ge(fd, 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", listeners.control.path);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Turns the loop until nothing is ready any more. */
static void settle(void)
{
    while (sd_event_run(server.event, 0) > 0)
        ;
}

static void send_bytes(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

        if (k < 0)
            ck_assert_int_eq(errno, EAGAIN);
        else {
            p += k;
            n -= (size_t)k;
        }
        settle();
    }
}

/* One message with its NUL. */
static void send_frame(int fd, const char *s)
{
    send_bytes(fd, s, strlen(s) + 1);
}

/* The next reply, or NULL when the connection has ended or nothing comes. */
static json_t *receive(int fd, struct varlink_reader *in)
{
    const char *frame;
    size_t n, room;
    char *to;

    while (!varlink_reader_next(in, &frame, &n)) {
        ssize_t k;

        settle();
        ck_assert_int_eq(varlink_reader_room(in, &to, &room), 0);
        k = recv(fd, to, room, MSG_DONTWAIT);
        if (k <= 0)
            return NULL;
        varlink_reader_received(in, (size_t)k);
    }
    return json_loadb(frame, n, 0, NULL);
}

static bool at_end(int fd)
{
    char c;

    settle();
    return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

/* One call on a connection of its own. */
static json_t *call(const char *frame)
{
    struct varlink_reader in = {0};
    int fd = connect_client();
    json_t *j;

    send_frame(fd, frame);
    j = receive(fd, &in);
    buf_done(&in.in);
    (void)close(fd);
    settle();
    return j;
}

#define STATUS "{\"method\":\"io.strata.Control.Status\"}"

START_TEST(status_answers_while_the_model_loads)
{
    json_t *j = call(STATUS), *p = json_object_get(j, "parameters");

    ck_assert_str_eq(json_string_value(json_object_get(p, "state")), "loading");
    ck_assert_int_eq(json_integer_value(json_object_get(p, "percent")), 42);
    ck_assert_str_eq(json_string_value(json_object_get(p, "control_socket")),
                     listeners.control.path);
    ck_assert_ptr_null(json_object_get(p, "backend"));
    json_decref(j);
    j = call("{\"method\":\"io.strata.Control.Slots\",\"parameters\":{}}");
    ck_assert_uint_eq(json_array_size(json_object_get(json_object_get(j, "parameters"), "slots")),
                      0);
    ck_assert(json_is_array(json_object_get(json_object_get(j, "parameters"), "slots")));
    json_decref(j);
}
END_TEST

START_TEST(status_says_why_loading_failed)
{
    json_t *j;

    server.state = SERVER_FAILED;
    (void)err_set(&server.fail_reason, 0, "x.gguf: \xff is not UTF-8");
    j = call(STATUS);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "parameters"), "state")),
                     "failed");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "parameters"), "reason")),
                     "(not UTF-8)");
    json_decref(j);
}
END_TEST

START_TEST(the_service_describes_itself)
{
    json_t *j = call("{\"method\":\"org.varlink.service.GetInfo\",\"parameters\":null}"),
           *p = json_object_get(j, "parameters");

    ck_assert_str_eq(json_string_value(json_object_get(p, "product")), "strataD");
    ck_assert_uint_eq(json_array_size(json_object_get(p, "interfaces")), 2);
    json_decref(j);
    j = call("{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
             "\"interface\":\"io.strata.Control\"}}");
    ck_assert_str_eq(
        json_string_value(json_object_get(json_object_get(j, "parameters"), "description")),
        strata_control_idl);
    json_decref(j);
}
END_TEST

static const struct {
    const char *frame, *error, *key, *value;
} errors[] = {
    {"{\"method\":\"a.b.C\"}", "InterfaceNotFound", "interface", "a.b"},
    {"{\"method\":\"nodot\"}", "InterfaceNotFound", "interface", "nodot"},
    {"{\"method\":\"\"}", "InterfaceNotFound", "interface", ""},
    {"{\"method\":\".\"}", "InterfaceNotFound", "interface", ""},
    {"{\"method\":\"io.strata.Control.\"}", "MethodNotFound", "method", "io.strata.Control."},
    {"{\"method\":\"io.strata.Control.status\"}", "MethodNotFound", "method",
     "io.strata.Control.status"},
    {"{\"method\":\"io.strata.Control.Status\",\"parameters\":{\"x\":1}}", "InvalidParameter",
     "parameter", "x"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\"}", "InvalidParameter",
     "parameter", "interface"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":5}"
     "}",
     "InvalidParameter", "parameter", "interface"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"inter\":5}}",
     "InvalidParameter", "parameter", "inter"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":"
     "\"no.such\"}}",
     "InterfaceNotFound", "interface", "no.such"},
    {"{\"method\":\"io.strata.Control.Status\",\"upgrade\":true}", "MethodNotImplemented", "method",
     "io.strata.Control.Status"},
};

START_TEST(a_wrong_call_gets_the_error_of_the_specification)
{
    json_t *j = call(errors[_i].frame);
    char name[80];

    (void)snprintf(name, sizeof name, "org.varlink.service.%s", errors[_i].error);
    ck_assert_str_eq(json_string_value(json_object_get(j, "error")), name);
    ck_assert_str_eq(
        json_string_value(json_object_get(json_object_get(j, "parameters"), errors[_i].key)),
        errors[_i].value);
    json_decref(j);
}
END_TEST

START_TEST(calls_on_one_connection_are_answered_in_order)
{
    enum { N = 1000 };
    struct varlink_reader in = {0};
    struct buf out = {0};
    int fd = connect_client();

    for (int i = 0; i < N; i++) {
        char method[64];

        (void)snprintf(method, sizeof method, "no.such%d.X", i);
        ck_assert_int_eq(varlink_add_call(&out, method, NULL, i % 3 == 0), 0);
    }
    send_bytes(fd, out.data, out.len);
    for (int i = 0; i < N; i++) {
        json_t *j = receive(fd, &in);
        char name[64];

        (void)snprintf(name, sizeof name, "no.such%d", i);
        ck_assert_str_eq(
            json_string_value(json_object_get(json_object_get(j, "parameters"), "interface")),
            name);
        ck_assert_ptr_null(json_object_get(j, "continues"));
        json_decref(j);
    }
    buf_done(&out);
    buf_done(&in.in);
    (void)close(fd);
}
END_TEST

START_TEST(a_oneway_call_gets_no_reply_and_the_next_one_does)
{
    struct varlink_reader in = {0};
    int fd = connect_client();
    json_t *j;

    send_frame(fd, "{\"method\":\"io.strata.Control.Status\",\"oneway\":true}");
    send_frame(fd, "{\"method\":\"no.such.X\",\"oneway\":true}");
    send_frame(fd, "{\"method\":\"no.such.Y\"}");
    j = receive(fd, &in);
    ck_assert_ptr_nonnull(json_object_get(j, "error"));
    json_decref(j);
    ck_assert_ptr_null(receive(fd, &in));
    buf_done(&in.in);
    (void)close(fd);
}
END_TEST

START_TEST(a_call_may_come_byte_by_byte_and_end_with_the_clients_half)
{
    struct varlink_reader in = {0};
    int fd = connect_client();
    json_t *j;

    for (const char *p = STATUS; *p; p++)
        send_bytes(fd, p, 1);
    send_bytes(fd, "", 1);
    send_frame(fd, STATUS);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    for (int i = 0; i < 2; i++) {
        j = receive(fd, &in);
        ck_assert_ptr_nonnull(json_object_get(j, "parameters"));
        json_decref(j);
    }
    ck_assert(at_end(fd));
    buf_done(&in.in);
    (void)close(fd);
}
END_TEST

static const char *const hostile[] = {
    "",
    "x",
    "[]",
    "{}",
    "{\"method\":5}",
    "{\"method\":\"io.strata.Control.Status\",\"more\":true,\"oneway\":true}"};

START_TEST(a_broken_frame_ends_its_connection_and_no_other)
{
    struct varlink_reader in = {0};
    int bad = connect_client(), good = connect_client();
    json_t *j;

    settle();
    send_frame(bad, hostile[_i]);
    ck_assert(at_end(bad));
    send_frame(good, STATUS);
    j = receive(good, &in);
    ck_assert_ptr_nonnull(j);
    json_decref(j);
    buf_done(&in.in);
    (void)close(bad);
    (void)close(good);
}
END_TEST

START_TEST(a_frame_without_end_is_cut_off_at_the_limit)
{
    char chunk[4096];
    int fd = connect_client();
    size_t total = 0;

    memset(chunk, 'x', sizeof chunk);
    for (;;) {
        ssize_t n = send(fd, chunk, sizeof chunk, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN)
            break;
        total += n > 0 ? (size_t)n : 0;
        ck_assert_uint_lt(total, 4 << 20);
        settle();
    }
    ck_assert_uint_ge(total, VARLINK_MAX_FRAME);
    (void)close(fd);
}
END_TEST

START_TEST(a_client_that_fetches_nothing_is_bounded_and_dropped_in_the_end)
{
    static const char frame[] = "{\"method\":\"org.varlink.service.GetInterfaceDescription\","
                                "\"parameters\":{\"interface\":\"io.strata.Control\"}}";
    int slow = connect_client(), stuck = 0;
    size_t sent = 0;
    json_t *j;

    /* Each call asks for some 2 KiB; reading stops once 1 MiB of answers waits, so the client's
     * sends do too. */
    while (stuck < 100) {
        ssize_t n = send(slow, frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);

        stuck = n < 0 ? stuck + 1 : 0;
        sent += n > 0 ? (size_t)n : 0;
        ck_assert_uint_lt(sent, 16 << 20);
        settle();
    }
    j = call(STATUS);
    ck_assert_ptr_nonnull(j);
    json_decref(j);
    now_ns += 29ull * 1000000000;
    control_tick(server.control);
    ck_assert_int_eq(send(slow, frame, 1, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EAGAIN);
    now_ns += 2ull * 1000000000;
    control_tick(server.control);
    ck_assert_int_eq(send(slow, frame, 1, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EPIPE);
    (void)close(slow);
}
END_TEST

START_TEST(one_connection_too_many_takes_the_place_of_the_quietest)
{
    enum { N = 65 };
    struct varlink_reader in = {0};
    int fds[N];
    json_t *j;

    for (int i = 0; i < N; i++) {
        fds[i] = connect_client();
        settle();
        now_ns++;
        if (i == N - 2) {
            send_frame(fds[0], STATUS); /* the oldest is not the quietest any more */
            j = receive(fds[0], &in);
            ck_assert_ptr_nonnull(j);
            json_decref(j);
            now_ns++;
        }
    }
    ck_assert(!at_end(fds[0]));
    ck_assert(at_end(fds[1]));
    ck_assert(!at_end(fds[2]));
    ck_assert(!at_end(fds[N - 1]));
    buf_done(&in.in);
    for (int i = 0; i < N; i++)
        (void)close(fds[i]);
}
END_TEST

/* Whether the fields of `o` are those that the interface file lists after `head`. */
static void check_fields(const json_t *o, const char *head)
{
    const char *p = strstr(strata_control_idl, head), *key;
    json_t *value;
    size_t n = 0;

    ck_assert_msg(p, "%s", head);
    p += strlen(head);
    for (;;) {
        char name[64];
        int used = 0;

        p = strchr(p, '\n') + 1;
        if (*p == ')')
            break;
        if (sscanf(p, "  %63[a-z_]: %n", name, &used) != 1)
            continue; /* a comment */
        value = json_object_get(o, name);
        ck_assert_msg(value || p[used] == '?', "%s lacks %s", head, name);
        n += value != NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        char line[80];

        (void)snprintf(line, sizeof line, "\n  %s: ", key);
        ck_assert_msg(strstr(strata_control_idl, line), "%s is not in the interface", key);
    }
    ck_assert_uint_eq(n, json_object_size(o));
}

START_TEST(a_running_server_shows_what_the_interface_promises)
{
    static struct fake_piece pieces[] = {{"<|end|>", 7}, {"a", 1}, {"b", 1}};
    struct fake_options fo = {
        .n_units = 64, .context = 4096, .max_rows = 64, .n_sequences = 4, .n_vocab = 3, .seed = 1};
    struct sched_options so = {.parallel = 4, .max_gap_ms = 200, .max_queued = 4};
    json_t *j, *p, *slots;

    server.tokenizer = fake_tokenizer_new(pieces, 3);
    server.engine = fake_engine_new(&fo);
    ck_assert_int_eq(sched_new(server.event, server.engine, server.tokenizer, &so, &server.sched),
                     0);
    server.state = SERVER_READY;
    control_tick(server.control);
    now_ns += 1000000000;
    j = call(STATUS);
    ck_assert_ptr_null(json_object_get(json_object_get(j, "parameters"), "cache"));
    json_decref(j);
    server.cache = hand_cache_new();
    (void)hand_cache_park(server.cache, 1, 3, 0, NULL, now_ns);
    j = call(STATUS);
    p = json_object_get(j, "parameters");
    check_fields(json_object_get(p, "cache"), "type CacheSummary (");
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(p, "cache"), "parked")), 1);
    check_fields(p, "method Status() -> (");
    check_fields(json_object_get(p, "model"), "type Model (");
    check_fields(json_object_get(p, "backend"), "type Backend (");
    check_fields(json_object_get(p, "pool"), "type Pool (");
    check_fields(json_object_get(p, "totals"), "type Totals (");
    check_fields(json_object_get(p, "rates"), "type Rates (");
    json_decref(j);
    j = call("{\"method\":\"io.strata.Control.Slots\"}");
    slots = json_object_get(json_object_get(j, "parameters"), "slots");
    ck_assert_uint_eq(json_array_size(slots), 4);
    check_fields(json_array_get(slots, 3), "type Slot (");
    json_decref(j);
    hand_cache_free(server.cache);
    server.cache = NULL;
    sched_free(server.sched);
    server.sched = NULL;
    engine_close(server.engine);
    server.engine = NULL;
    tokenizer_free(server.tokenizer);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control");
    TCase *t = tcase_create("control");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, status_answers_while_the_model_loads);
    tcase_add_test(t, status_says_why_loading_failed);
    tcase_add_test(t, the_service_describes_itself);
    tcase_add_loop_test(t, a_wrong_call_gets_the_error_of_the_specification, 0,
                        sizeof errors / sizeof errors[0]);
    tcase_add_test(t, calls_on_one_connection_are_answered_in_order);
    tcase_add_test(t, a_oneway_call_gets_no_reply_and_the_next_one_does);
    tcase_add_test(t, a_call_may_come_byte_by_byte_and_end_with_the_clients_half);
    tcase_add_loop_test(t, a_broken_frame_ends_its_connection_and_no_other, 0,
                        sizeof hostile / sizeof hostile[0]);
    tcase_add_test(t, a_frame_without_end_is_cut_off_at_the_limit);
    tcase_add_test(t, a_client_that_fetches_nothing_is_bounded_and_dropped_in_the_end);
    tcase_add_test(t, one_connection_too_many_takes_the_place_of_the_quietest);
    tcase_add_test(t, a_running_server_shows_what_the_interface_promises);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
