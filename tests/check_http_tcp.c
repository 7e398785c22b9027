/* SPDX-License-Identifier: Apache-2.0 */
/* What TCP needs beyond a Unix socket, and what slow or greedy clients of either cannot do. */
#include "daemon/api_keys.h"
#include "daemon/front.h"
#include "tests/http_world.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST  "Host: 127.0.0.1\r\n"
#define ALICE "Authorization: Bearer key-of-alice\r\n"
#define BOB   "X-Api-Key: key-of-bob-42\r\n"

static struct world *tcp_world(void)
{
    return world_with(&(struct world_options){.state = SERVER_READY, .tcp = true});
}

/* One request, its headers given. */
static void ask(struct client *c, const char *line, const char *headers, const char *body)
{
    struct buf b = {0};

    ck_assert_int_eq(
        buf_addf(&b, "%s\r\n%sContent-Length: %zu\r\n\r\n%s", line, headers, strlen(body), body),
        0);
    client_send(c, b.data, b.len);
    buf_done(&b);
}

#define POST "POST /v1/completions HTTP/1.1"

START_TEST(a_key_opens_and_nothing_else_does)
{
    struct world *w = tcp_world();
    struct client *c = client_new(w);
    struct response r;

    ask(c, POST, HOST ALICE, "{\"prompt\":\"a\",\"max_tokens\":2}");
    client_expect(w, c, 200, "\"completion_tokens\":2");
    ask(c, POST, HOST BOB, "{\"prompt\":\"a\",\"max_tokens\":2}");
    client_expect(w, c, 200, "\"completion_tokens\":2");
    ask(c, "GET /v1/models HTTP/1.1", HOST, "");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 401);
    ck_assert_ptr_nonnull(strstr(r.head.data, "WWW-Authenticate: Bearer\r\n"));
    ck_assert_ptr_null(strcasestr(r.head.data, "Access-Control"));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"code\":\"invalid_api_key\""));
    response_done(&r);
    c = client_new(w);
    ask(c, "GET /health HTTP/1.1", HOST, "");
    client_expect(w, c, 200, "{\"status\":\"ok\"}");
    ask(c, "GET /nothing HTTP/1.1", HOST, "");
    client_expect(w, c, 401, NULL); /* not even what there is */
    world_free(w);
}
END_TEST

START_TEST(a_body_without_a_key_is_not_read)
{
    struct world *w = tcp_world();
    struct client *c = client_new(w);

    client_sendz(c, POST "\r\n" HOST "Content-Length: 60000\r\n\r\n");
    client_expect(w, c, 401, NULL);
    UNTIL(w, c->eof);
    c = client_new(w);
    client_sendz(c, POST "\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n");
    client_expect(w, c, 401, NULL);
    ck_assert_uint_eq(w->server.http->body_used, 0);
    UNTIL(w, c->eof);
    /* Nor is it asked for. */
    c = client_new(w);
    client_sendz(c, POST "\r\n" HOST "Expect: 100-continue\r\nContent-Length: 60000\r\n\r\n");
    client_expect(w, c, 401, NULL);
    world_free(w);
}
END_TEST

START_TEST(pages_of_browsers_are_refused_with_or_without_a_key)
{
    struct world *w =
        world_with(&(struct world_options){.state = SERVER_READY, .tcp = true, .listen = "box:80"});
    static const struct {
        const char *headers;
        int status;
        const char *words;
    } cases[] = {
        {"Host: evil.example\r\n" ALICE, 403, "the Host \\\"evil.example\\\""},
        {HOST ALICE "Origin: http://evil.example\r\n", 403, "a page of http://evil.example"},
        {HOST ALICE "Origin: null\r\n", 403, "a page of null"},
        {HOST "Host: evil.example\r\n" ALICE, 400, "twice"},
        {"Host: box\r\n" ALICE, 200, NULL},
        {HOST ALICE "Origin: http://127.0.0.1\r\n", 200, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client *c = client_new(w);

        ask(c, "GET /v1/models/x HTTP/1.1", cases[i].headers, "");
        client_expect(w, c, cases[i].status == 200 ? 404 : cases[i].status, cases[i].words);
        UNTIL(w, c->eof || cases[i].status == 200);
        /* Where no key is wanted too. */
        c = client_new(w);
        ask(c, "GET /health HTTP/1.1", cases[i].headers, "");
        client_expect(w, c, cases[i].status, cases[i].words);
    }
    world_free(w);
}
END_TEST

START_TEST(refusals_are_logged_once_a_minute_with_their_number)
{
    struct world *w = tcp_world();
    struct client *c;

    for (int i = 0; i < 5; i++) {
        c = client_new(w);
        ask(c, "GET /v1/models HTTP/1.1", HOST "Authorization: Bearer guess\r\n", "");
        client_expect(w, c, 401, NULL);
    }
    ck_assert_uint_eq(w->n_logged, 1);
    ck_assert_ptr_nonnull(strstr(w->log, "peer=127.0.0.1 status=401 code=invalid_api_key"));
    world_pass(w, 60001);
    c = client_new(w);
    ask(c, "GET /v1/models HTTP/1.1", HOST "Authorization: Bearer guess\r\n", "");
    client_expect(w, c, 401, NULL);
    ck_assert_uint_eq(w->n_logged, 2);
    ck_assert_ptr_nonnull(strstr(w->log, "refused_since=5"));
    ck_assert_ptr_null(strstr(w->log, "guess"));
    world_free(w);
}
END_TEST

START_TEST(a_unix_socket_wants_no_key_and_takes_any_host)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    ask(c, POST, "Host: api.openai.com\r\nOrigin: http://evil.example\r\n" BOB,
        "{\"prompt\":\"a\",\"max_tokens\":2}");
    client_expect(w, c, 200, "\"completion_tokens\":2");
    world_free(w);
}
END_TEST

/* --- slow and many -------------------------------------------------------------------------------
 */

/* A body that never becomes whole ends; a slow one that gets on is read. */
START_TEST(a_body_must_grow)
{
    struct world *w = world_with(
        &(struct world_options){.state = SERVER_READY, .tcp = _i != 0, .max_body = 1 << 20});
    struct client *dribbles = client_new(w), *gets_on = client_new(w);
    char *junk = malloc(CALL_BODY_BYTES + 1);

    memset(junk, ' ', CALL_BODY_BYTES);
    junk[CALL_BODY_BYTES] = '\0';
    client_sendz(dribbles, POST "\r\n" HOST ALICE "Content-Length: 500000\r\n\r\n");
    client_sendz(gets_on, POST "\r\n" HOST ALICE "Content-Length: 196610\r\n\r\n");
    world_settle(w);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < CALL_BODY_S; k++) {
            if (!dribbles->eof)
                client_send_some(dribbles, " ", 1);
            world_pass(w, 999);
            world_settle(w);
        }
        client_send(gets_on, junk, CALL_BODY_BYTES);
        world_settle(w);
        world_pass(w, 30);
    }
    UNTIL(w, dribbles->eof);
    client_sendz(gets_on, "{}");
    client_expect(w, gets_on, 400, "prompt is missing");
    free(junk);
    world_free(w);
}
END_TEST

/* Whole answers; a reader of a stream has its own limit (check_http_gone.c). */
START_TEST(an_answer_must_be_taken)
{
    struct world *w = world_with(
        &(struct world_options){.state = SERVER_READY, .tcp = _i != 0, .max_body = 1 << 20});
    struct client *c = client_new(w);
    struct buf b = {0};
    uint64_t len;

    ck_assert_int_eq(buf_addf(&b, "{\"with_pieces\":true,\"content\":\"%0*d\"}", 900000, 7), 0);
    c->lazy = true;
    client_sendz(c, "POST /tokenize HTTP/1.1\r\n" HOST ALICE "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t i = 0; i < b.len; i += 10000) {
        const size_t n = b.len - i < 10000 ? b.len - i : 10000;
        char head[16];

        (void)snprintf(head, sizeof head, "%zx\r\n", n);
        client_sendz(c, head);
        client_send(c, b.data + i, n);
        client_sendz(c, "\r\n");
        world_settle(w);
    }
    client_sendz(c, "0\r\n\r\n");
    buf_done(&b);
    UNTIL(w, w->server.http->calls && w->server.http->calls->status);
    len = w->server.http->calls->answer.len;
    ck_assert_uint_gt(len, 10 << 20); /* no socket's buffers take that */
    world_settle(w);
    world_pass(w, (uint32_t)(CALL_TAKE_S + len / CALL_TAKE_BYTES) * 1000 - 1000);
    world_settle(w);
    ck_assert_uint_eq(http_n_active(w->server.http), 1);
    world_pass(w, 2000);
    UNTIL(w, http_n_active(w->server.http) == 0);
    world_free(w);
}
END_TEST

/* The same for headers: of the first request, and of the next one. */
START_TEST(a_header_must_come_in_time)
{
    struct world *w = tcp_world();
    struct client *c = client_new(w), *kept = client_new(w);

    client_sendz(c, "GET /health HTTP/1.1\r\n");
    ask(kept, "GET /health HTTP/1.1", HOST, "");
    client_expect(w, kept, 200, NULL);
    for (int k = 0; k < CONN_HEADER_S; k++) {
        ck_assert(!c->eof);
        client_send_some(c, "X", 1);
        client_send_some(kept, "G", 1);
        world_pass(w, 1000);
        world_settle(w);
    }
    UNTIL(w, c->eof);
    ck_assert_uint_eq(http_n_silent(w->server.http), 0);
    for (int k = 0; k < CONN_IDLE_S - CONN_HEADER_S; k++) {
        ck_assert(!kept->eof);
        world_pass(w, 1000);
        world_settle(w);
    }
    UNTIL(w, kept->eof);
    world_free(w);
}
END_TEST

/* Slow ones in all places: who comes and asks is answered, the one that waited longest goes. */
START_TEST(who_comes_takes_the_place_of_who_waits_longest)
{
    struct world *w = world_with(
        &(struct world_options){.state = SERVER_READY, .tcp = _i != 0, .max_connections = 64});
    struct client *slow[100], *works, *c;
    uint32_t n_cut = 0;

    works = client_new(w);
    ask(works, POST, HOST ALICE, "{\"prompt\":\"a\",\"max_tokens\":4000,\"stream\":true}");
    UNTIL(w, client_count(works, "data: {") > 0);
    w->engine_runs = false;
    for (int i = 0; i < 100; i++) {
        slow[i] = client_new(w);
        client_sendz(slow[i], "GET /hea");
        world_pass(w, 1);
        world_settle(w);
    }
    for (int i = 0; i < 100; i++)
        n_cut += slow[i]->eof;
    ck_assert_uint_ge(n_cut, 100 - 64);
    ck_assert(slow[0]->eof && !slow[99]->eof);
    for (int i = 0; i < 20; i++) {
        c = client_new(w);
        ask(c, POST, HOST BOB, "{\"prompt\":7}");
        client_expect(w, c, 400, "prompt is 7");
    }
    ck_assert(!works->eof);
    w->engine_runs = true;
    UNTIL(w, client_count(works, "[DONE]") == 1);
    world_free(w);
}
END_TEST

START_TEST(one_user_cannot_have_all_places)
{
    struct world *w = world_with(
        &(struct world_options){.state = SERVER_READY, .tcp = true, .max_connections = 16});
    struct client *c[12], *other;
    int n_429 = 0;

    w->engine_runs = false;
    for (int i = 0; i < 12; i++) {
        c[i] = client_new(w);
        /* Bodies that are not whole yet. */
        client_sendz(c[i], POST "\r\n" HOST ALICE "Content-Length: 5\r\n\r\n");
        world_settle(w);
    }
    for (int i = 0; i < 12; i++)
        n_429 += client_count(c[i], "HTTP/1.1 429") == 1;
    ck_assert_int_eq(n_429, 12 - (16 / 2 + 1));
    ck_assert_ptr_nonnull(strstr(c[11]->in.data, "Retry-After: 1\r\n"));
    other = client_new(w);
    w->engine_runs = true;
    ask(other, POST, HOST BOB, "{\"prompt\":\"a\",\"max_tokens\":1}");
    client_expect(w, other, 200, NULL);
    world_free(w);
}
END_TEST

static int gate[2];
static int n_passed;

static void wait_at_gate(struct front_job *j)
{
    char c;

    (void)j;
    ck_assert_int_eq(read(gate[0], &c, 1), 1);
}

static void passed(struct front_job *j)
{
    (void)j;
    n_passed++;
}

/* Neither while they come nor while they wait for a front thread. */
START_TEST(one_user_cannot_have_all_memory_for_bodies)
{
    struct world *w = tcp_world();
    struct front_job jobs[2] = {{.work = wait_at_gate, .done = passed},
                                {.work = wait_at_gate, .done = passed}};
    char *body = calloc(1, 40001);
    struct client *c[6], *other;
    int n_503 = 0;

    n_passed = 0;
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++)
        front_submit(w->server.front, &jobs[i]);
    memset(body, ' ', 40000);
    memcpy(body, "{}", 2);
    for (int i = 0; i < 6; i++) {
        c[i] = client_new(w);
        ask(c[i], POST, HOST ALICE, body);
        world_settle(w);
        n_503 += client_count(c[i], "HTTP/1.1 503") == 1;
    }
    ck_assert(n_503 > 0 && n_503 < 6);
    ck_assert_uint_le(w->server.http->body_used, w->server.http->body_limit / 2);
    other = client_new(w);
    ask(other, POST, HOST BOB, body);
    world_settle(w);
    ck_assert_int_eq(write(gate[1], "ab", 2), 2);
    for (int i = 0; i < 6; i++)
        client_expect(w, c[i], i < 6 - n_503 ? 400 : 503, NULL);
    client_expect(w, other, 400, "prompt is missing");
    UNTIL(w, n_passed == 2);
    ask(c[5], POST, HOST ALICE, body);
    client_expect(w, c[5], 400, "prompt is missing");
    (void)close(gate[0]);
    (void)close(gate[1]);
    free(body);
    world_free(w);
}
END_TEST

/* --- HTTP ----------------------------------------------------------------------------------------
 */

START_TEST(a_header_too_large_is_refused)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .tcp = _i != 0});
    struct client *c = client_new(w);
    char junk[20000];

    memset(junk, 'x', sizeof junk);
    client_sendz(c, "GET /health HTTP/1.1\r\n" HOST "X-Junk: ");
    client_send_some(c, junk, sizeof junk);
    UNTIL(w, c->eof);
    ck_assert_ptr_nonnull(c->in.data);
    ck_assert_ptr_nonnull(strstr(c->in.data, "HTTP/1.1 431 "));
    world_free(w);
}
END_TEST

START_TEST(old_and_careful_clients_are_served)
{
    struct world *w = tcp_world();
    struct client *c = client_new(w);

    /* HTTP/1.0, without a Host: the answer ends with the connection. */
    client_sendz(c, "POST /v1/completions HTTP/1.0\r\n" ALICE "Content-Length: 44\r\n\r\n"
                    "{\"prompt\":\"a\",\"max_tokens\":3,\"stream\":true}  ");
    UNTIL(w, c->eof);
    ck_assert_uint_eq(client_count(c, "Transfer-Encoding"), 0);
    ck_assert_uint_eq(client_count(c, "data: [DONE]\n\n"), 1);
    /* Asks whether it may send its body. */
    c = client_new(w);
    client_sendz(c, POST "\r\n" HOST ALICE "Expect: 100-continue\r\nContent-Length: 29\r\n\r\n");
    client_expect(w, c, 100, NULL);
    client_sendz(c, "{\"prompt\":\"a\",\"max_tokens\":3}");
    client_expect(w, c, 200, "\"completion_tokens\":3");
    /* Without Host HTTP/1.1 is none. */
    c = client_new(w);
    client_sendz(c, "GET /health HTTP/1.1\r\n\r\n");
    UNTIL(w, c->eof);
    ck_assert_int_eq(strncmp(c->in.data, "HTTP/1.1 400 ", 13), 0);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_tcp");
    TCase *t = tcase_create("http_tcp");
    SRunner *sr;
    int n;

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_key_opens_and_nothing_else_does);
    tcase_add_test(t, a_body_without_a_key_is_not_read);
    tcase_add_test(t, pages_of_browsers_are_refused_with_or_without_a_key);
    tcase_add_test(t, refusals_are_logged_once_a_minute_with_their_number);
    tcase_add_test(t, a_unix_socket_wants_no_key_and_takes_any_host);
    tcase_add_loop_test(t, a_body_must_grow, 0, 2);
    tcase_add_loop_test(t, an_answer_must_be_taken, 0, 2);
    tcase_add_test(t, a_header_must_come_in_time);
    tcase_add_loop_test(t, who_comes_takes_the_place_of_who_waits_longest, 0, 2);
    tcase_add_test(t, one_user_cannot_have_all_places);
    tcase_add_test(t, one_user_cannot_have_all_memory_for_bodies);
    tcase_add_loop_test(t, a_header_too_large_is_refused, 0, 2);
    tcase_add_test(t, old_and_careful_clients_are_served);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    n = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
