/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that leave, are slow, are many or come too early, and what becomes of their requests. */
#include "tests/http_world.h"

#include "daemon/front.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

START_TEST(a_client_that_closes_its_sending_half_is_served)
{
    struct world *w = world_new();
    struct client *a = client_new(w), *b = client_new(w);

    client_post(a, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":50,\"stream\":true}");
    client_half_close(a);
    client_post(b, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":50}");
    client_half_close(b);
    client_expect(w, a, 200, "[DONE]");
    client_expect(w, b, 200, "\"finish_reason\":\"length\"");
    UNTIL(w, a->eof && b->eof);
    ck_assert_uint_eq(world_totals(w).cancelled, 0);
    world_free(w);
}
END_TEST

START_TEST(a_client_that_leaves_stops_its_own_request_wherever_it_is)
{
    struct world *w = world_new();
    struct client *read_, *gen, *queued, *stays;
    struct response r;
    char body[2000];

    w->engine_runs = false;
    (void)snprintf(body, sizeof body, "{\"prompt\":\"%01000d\",\"stream\":%s}", 1,
                   _i ? "true" : "false");
    gen = client_new(w);
    client_post(gen, "/v1/completions",
                _i ? "{\"prompt\":\"x\",\"stream\":true}" : "{\"prompt\":\"x\"}");
    UNTIL(w, world_totals(w).running == 1);
    /* A prompt of many chunks is being read. */
    read_ = client_new(w);
    client_post(read_, "/v1/completions", body);
    UNTIL(w, world_totals(w).queued == 1);
    ck_assert(fake_engine_run(w->server.engine));
    UNTIL(w, world_totals(w).running == 2);
    /* Two slots are taken: these wait.  The engine stands still. */
    queued = client_new(w);
    client_post(queued, "/v1/completions", body);
    UNTIL(w, world_totals(w).queued == 1);
    stays = client_new(w);
    client_post(stays, "/v1/completions", "{\"prompt\":\"stay\",\"max_tokens\":4}");
    UNTIL(w, world_totals(w).queued == 2);

    client_close(queued);
    UNTIL(w, world_totals(w).queued == 1);
    UNTIL(w, strstr(w->log, "finish=cancelled") != NULL);
    client_close(read_);
    UNTIL(w, http_n_active(w->server.http) == 2);

    w->engine_runs = true;
    if (_i)
        UNTIL(w, client_count(gen, "data: ") > 3);
    client_wait(w, stays, &r);
    ck_assert_int_eq(r.status, 200);
    response_done(&r);
    ck_assert_uint_eq(world_totals(w).cancelled, 2);
    client_close(gen);
    UNTIL(w, world_totals(w).cancelled == 3);
    ck_assert_uint_eq(world_totals(w).running, 0);
    UNTIL(w, world_totals(w).units_used == 0);
    world_free(w);
}
END_TEST

START_TEST(a_client_may_leave_at_any_moment)
{
    /* The seed decides how far the world turns before the client is gone. */
    struct world *w = world_new();

    for (int i = 0; i < 20; i++) {
        struct client *c = client_new(w);

        client_post(c, "/v1/completions",
                    i % 2 ? "{\"prompt\":\"leaves\",\"stream\":true,\"max_tokens\":100}"
                          : "{\"prompt\":\"leaves\",\"max_tokens\":100}");
        for (int k = 0; k < (_i * 7 + i * 3) % 40; k++)
            world_turn(w);
        client_close(c);
    }
    world_free(w);
}
END_TEST

START_TEST(silence_is_filled_with_a_comment_every_5_seconds)
{
    struct world *w = world_new();
    struct client *c = client_new(w), *q;

    w->engine_runs = false;
    client_post(c, "/v1/completions", "{\"prompt\":\"quiet\",\"stream\":true,\"max_tokens\":2}");
    UNTIL(w, client_count(c, "\r\n\r\n") == 1);
    world_pass(w, 4999);
    world_settle(w);
    ck_assert_uint_eq(client_count(c, ": keep-alive\n\n"), 0);
    world_pass(w, 1);
    UNTIL(w, client_count(c, ": keep-alive\n\n") == 1);
    world_pass(w, 4999);
    world_settle(w);
    ck_assert_uint_eq(client_count(c, ": keep-alive\n\n"), 1);
    world_pass(w, 1);
    UNTIL(w, client_count(c, ": keep-alive\n\n") == 2);

    /* In the queue too. */
    q = client_new(w);
    client_post(q, "/v1/completions", "{\"prompt\":\"2\",\"stream\":true,\"max_tokens\":1}");
    UNTIL(w, client_count(q, "\r\n\r\n") == 1);
    q = client_new(w);
    client_post(q, "/v1/completions", "{\"prompt\":\"3\",\"stream\":true,\"max_tokens\":1}");
    UNTIL(w, client_count(q, "\r\n\r\n") == 1);
    ck_assert_uint_eq(world_totals(w).queued, 1);
    world_pass(w, 5000);
    UNTIL(w, client_count(q, ": keep-alive\n\n") == 1);

    w->engine_runs = true;
    client_expect(w, c, 200, "[DONE]");
    client_expect(w, q, 200, "[DONE]");
    world_free(w);
}
END_TEST

START_TEST(a_slow_reader_pauses_only_its_own_request)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .context = 30000});
    struct client *slow = client_new(w), *quick = client_new(w);
    struct response r;
    struct buf text = {0};
    uint64_t generated;
    char *want = malloc(12001);

    slow->lazy = true;
    client_post(slow, "/v1/completions",
                "{\"prompt\":\"slow\",\"stream\":true,\"max_tokens\":12000}");
    client_post(quick, "/v1/completions", "{\"prompt\":\"quick\",\"max_tokens\":14000}");
    client_wait(w, quick, &r);
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"completion_tokens\":14000"));
    response_done(&r);
    /* The other one stands still: more than a megabyte waits, and no end of the request is near. */
    world_settle(w);
    generated = world_totals(w).generated_tokens;
    ck_assert_uint_lt(generated, 14000 + 12000);
    world_settle(w);
    ck_assert_uint_eq(world_totals(w).generated_tokens, generated);
    ck_assert_uint_eq(world_totals(w).running, 1);

    slow->lazy = false;
    client_wait(w, slow, &r);
    stream_text(r.body.data, &text);
    world_expect(w, "slow", 12000, want);
    ck_assert_int_eq(strcmp(text.data, want), 0);
    free(want);
    buf_done(&text);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(a_reader_that_takes_nothing_for_30_seconds_is_dropped)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .context = 30000});
    struct client *slow = client_new(w);

    slow->lazy = true;
    client_post(slow, "/v1/completions",
                "{\"prompt\":\"slow\",\"stream\":true,\"max_tokens\":20000}");
    UNTIL(w, world_totals(w).generated_tokens > 4000);
    world_settle(w);
    ck_assert_uint_eq(world_totals(w).running, 1);
    world_pass(w, 29999);
    world_settle(w);
    ck_assert_uint_eq(world_totals(w).running, 1);
    world_pass(w, 1);
    UNTIL(w, world_totals(w).cancelled == 1);
    UNTIL(w, http_n_active(w->server.http) == 0);
    slow->lazy = false;
    UNTIL(w, slow->eof);
    world_free(w);
}
END_TEST

START_TEST(many_connections_are_served_together)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .max_queued = 300});
    struct client *c[200];

    for (int i = 0; i < 200; i++) {
        c[i] = client_new(w);
        client_post(c[i], "/v1/completions",
                    i % 2 ? "{\"prompt\":\"many\",\"max_tokens\":3,\"stream\":true}"
                          : "{\"prompt\":\"many\",\"max_tokens\":3}");
    }
    for (int i = 0; i < 200; i++)
        client_expect(w, c[i], 200, i % 2 ? "[DONE]" : "\"finish_reason\":\"length\"");
    ck_assert_uint_eq(world_totals(w).finished, 200);
    world_free(w);
}
END_TEST

START_TEST(a_full_queue_is_429)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .max_queued = 1});
    struct client *c[4];
    struct response r;

    w->engine_runs = false;
    for (int i = 0; i < 3; i++) {
        c[i] = client_new(w);
        client_post(c[i], "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":3}");
        UNTIL(w, world_totals(w).running + world_totals(w).queued == (uint32_t)i + 1);
    }
    c[3] = client_new(w);
    client_post(c[3], "/v1/completions", "{\"prompt\":\"x\",\"stream\":true}");
    client_wait(w, c[3], &r);
    ck_assert_int_eq(r.status, 429);
    ck_assert_ptr_nonnull(strstr(r.head.data, "Retry-After: 1\r\n"));
    ck_assert_ptr_nonnull(strstr(r.body.data, "rate_limit_error"));
    response_done(&r);
    w->engine_runs = true;
    client_expect(w, c[2], 200, NULL);
    world_free(w);
}
END_TEST

START_TEST(completions_wait_while_the_model_is_loaded)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_LOADING});
    struct client *a = client_new(w), *b = client_new(w), *leaves = client_new(w);

    w->server.load_percent = 42;
    client_post(a, "/v1/completions", "{\"prompt\":\"wait\",\"max_tokens\":2}");
    client_post(leaves, "/v1/completions", "{\"prompt\":\"wait\",\"max_tokens\":2}");
    client_get(b, "/health");
    client_expect(w, b, 503,
                  "\"message\":\"Loading model\",\"type\":\"unavailable_error\"},\"progress\":42}");
    client_get(b, "/v1/models");
    client_expect(w, b, 503, "\"code\":\"loading\"");
    world_settle(w);
    ck_assert_uint_eq(http_n_active(w->server.http), 2);
    client_close(leaves);
    UNTIL(w, http_n_active(w->server.http) == 1);
    ck_assert_uint_eq(world_totals(w).requests, 0);
    w->server.state = SERVER_READY;
    http_state_changed(w->server.http);
    client_expect(w, a, 200, "\"completion_tokens\":2");
    ck_assert_uint_eq(world_totals(w).requests, 1);
    world_free(w);
}
END_TEST

START_TEST(waiting_completions_are_refused_when_loading_fails_or_the_server_stops)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_LOADING});
    struct client *c = client_new(w);

    client_post(c, "/v1/completions", "{\"prompt\":\"wait\"}");
    UNTIL(w, http_n_active(w->server.http) == 1);
    world_settle(w);
    w->server.state = _i ? SERVER_FAILED : SERVER_STOPPING;
    http_state_changed(w->server.http);
    client_expect(w, c, 503, _i ? "model_failed" : "stopping");
    UNTIL(w, c->eof);
    c = client_new(w);
    client_post(c, "/v1/completions", "{\"prompt\":\"late\"}");
    client_expect(w, c, 503, NULL);
    c = client_new(w);
    client_get(c, "/health");
    client_expect(w, c, 503, _i ? "failed" : "Stopping");
    world_free(w);
}
END_TEST

/* A restart under load: who was accepted and has not spoken yet gets an answer, who was not waits.
 */
START_TEST(the_last_clients_of_a_process_are_not_hung_up_on)
{
    struct world *w = world_new();
    struct client *mute = client_new(w), *asked = client_new(w), *late;

    client_get(asked, "/health");
    client_expect(w, asked, 200, NULL);
    UNTIL(w, http_n_silent(w->server.http) == 1);
    ck_assert_uint_eq(http_n_active(w->server.http), 0);
    http_quiesce(w->server.http);
    w->server.state = SERVER_STOPPING;
    http_state_changed(w->server.http);
    late = client_new(w);
    client_post(late, "/v1/completions", "{\"prompt\":\"late\"}");
    world_settle(w);
    ck_assert_uint_eq(http_n_silent(w->server.http), 1);
    ck_assert_uint_eq(late->in.len, 0);
    ck_assert(!late->eof);
    client_post(mute, "/v1/completions", "{\"prompt\":\"at last\"}");
    client_expect(w, mute, 503, "stopping");
    UNTIL(w, mute->eof);
    ck_assert_uint_eq(http_n_silent(w->server.http), 0);
    world_free(w);

    /* One that leaves without a word, and one whose word is garbage. */
    w = world_new();
    mute = client_new(w);
    asked = client_new(w);
    UNTIL(w, http_n_silent(w->server.http) == 2);
    client_close(mute);
    client_sendz(asked, "\r\n\r\n?\r\n\r\n");
    UNTIL(w, http_n_silent(w->server.http) == 0);
    world_free(w);
}
END_TEST

START_TEST(a_request_is_refused_when_its_client_cannot_be_watched)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct rlimit was, now;
    int lowest;

    client_get(c, "/health");
    client_expect(w, c, 200, "ok");
    /* No descriptor is left. */
    lowest = dup(0);
    (void)close(lowest);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = was;
    now.rlim_cur = (rlim_t)lowest;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
    client_post(c, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":3}");
    client_expect(w, c, 503, "too many connections");
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    client_post(c, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":3}");
    client_expect(w, c, 200, NULL);
    ck_assert_uint_eq(world_totals(w).requests, 1);
    world_free(w);
}
END_TEST

START_TEST(freeing_the_server_ends_what_is_open)
{
    struct world *w = world_new();
    struct client *c;

    w->engine_runs = false;
    for (int i = 0; i < 6; i++) {
        c = client_new(w);
        client_post(c, "/v1/completions",
                    i % 2 ? "{\"prompt\":\"x\",\"stream\":true}" : "{\"prompt\":\"x\"}");
    }
    UNTIL(w, world_totals(w).running + world_totals(w).queued == 6);
    c = client_new(w);
    client_sendz(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    world_settle(w);
    front_free(w->server.front);
    http_free(w->server.http);
    for (uint32_t i = 0; i < w->n_clients; i++)
        UNTIL(w, w->clients[i].eof);
    ck_assert_uint_eq(world_totals(w).cancelled, 6);
    /* world_free wants both. */
    ck_assert_int_eq(front_new(w->server.event, 1, &w->server.front), 0);
    ck_assert_int_eq(http_new(&w->server,
                              &(struct http_options){.max_body = 1, .max_connections = 1},
                              &w->server.http),
                     0);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_gone");
    TCase *t = tcase_create("http_gone");
    SRunner *sr;
    int n;

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_client_that_closes_its_sending_half_is_served);
    tcase_add_loop_test(t, a_client_that_leaves_stops_its_own_request_wherever_it_is, 0, 2);
    tcase_add_loop_test(t, a_client_may_leave_at_any_moment, 0, 8);
    tcase_add_test(t, silence_is_filled_with_a_comment_every_5_seconds);
    tcase_add_test(t, a_slow_reader_pauses_only_its_own_request);
    tcase_add_test(t, a_reader_that_takes_nothing_for_30_seconds_is_dropped);
    tcase_add_test(t, many_connections_are_served_together);
    tcase_add_test(t, a_full_queue_is_429);
    tcase_add_test(t, completions_wait_while_the_model_is_loaded);
    tcase_add_loop_test(t, waiting_completions_are_refused_when_loading_fails_or_the_server_stops,
                        0, 2);
    tcase_add_test(t, a_request_is_refused_when_its_client_cannot_be_watched);
    tcase_add_test(t, the_last_clients_of_a_process_are_not_hung_up_on);
    tcase_add_test(t, freeing_the_server_ends_what_is_open);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    n = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
