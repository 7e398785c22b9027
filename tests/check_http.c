/* SPDX-License-Identifier: Apache-2.0 */
/* The API over real sockets: what a client sees, and what its going away does. */
#include "daemon/chat_template.h"
#include "tests/http_world.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_of(const struct response *r)
{
    json_error_t e;
    json_t *j = json_loadb(r->body.data, r->body.len, 0, &e);

    ck_assert_msg(j != NULL, "no JSON: %s: %s", e.text, r->body.data);
    return j;
}

START_TEST(a_completion_streams_from_its_body_to_done)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;
    struct buf text = {0};
    const char *finish;
    char want[21];

    client_post(c, "/v1/completions", "{\"prompt\":\"Hello\",\"max_tokens\":20,\"stream\":true}");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(r.head.data, "Content-Type: text/event-stream"));
    ck_assert_ptr_nonnull(strstr(r.head.data, "X-Request-Id: req-"));
    stream_text(r.body.data, &text);
    world_expect(w, "Hello", 20, want);
    ck_assert_str_eq(text.data, want);
    finish = strstr(r.body.data, "\"finish_reason\":\"length\"");
    ck_assert_ptr_nonnull(finish);
    ck_assert_ptr_null(strstr(finish + 1, "\"finish_reason\":\"")); /* once */
    ck_assert_str_eq(r.body.data + r.body.len - 14, "data: [DONE]\n\n");
    buf_done(&text);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(a_whole_answer_has_usage_timings_and_ids)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;
    json_t *j, *choice, *usage;
    char want[6];

    client_post(c, "/v1/completions",
                "{\"prompt\":[40,41,42],\"max_tokens\":5,\"return_token_ids\":true}");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    j = json_of(&r);
    choice = json_array_get(json_object_get(j, "choices"), 0);
    usage = json_object_get(j, "usage");
    world_expect(w, "FGH", 5, want);
    ck_assert_str_eq(json_string_value(json_object_get(choice, "text")), want);
    ck_assert_str_eq(json_string_value(json_object_get(j, "model")), "fake \"model\"");
    ck_assert_int_eq(json_array_size(json_object_get(choice, "token_ids")), 5);
    ck_assert_int_eq(json_array_size(json_object_get(choice, "prompt_token_ids")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "prompt_tokens")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "completion_tokens")), 5);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(j, "timings"), "predicted_n")), 5);
    json_decref(j);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(a_stream_can_have_usage_progress_ids_and_logprobs)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;
    struct buf body = {0};

    /* More than two chunks of 64. */
    ck_assert_int_eq(
        buf_addf(
            &body,
            "{\"prompt\":\"%0*d\",\"max_tokens\":3,\"stream\":true,\"return_progress\":true,"
            "\"stream_options\":{\"include_usage\":true},\"return_token_ids\":true,\"logprobs\":0}",
            150, 7),
        0);
    client_post(c, "/completions", body.data);
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(
        strstr(r.body.data, "\"prompt_progress\":{\"total\":150,\"cache\":0,\"processed\":"));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"prompt_token_ids\":["));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"token_logprobs\":["));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"usage\":null"));
    ck_assert_ptr_nonnull(strstr(
        r.body.data, "\"choices\":[],\"usage\":{\"prompt_tokens\":150,\"completion_tokens\":3,"
                     "\"total_tokens\":153,\"prompt_tokens_details\":{\"cached_tokens\":0}}"));
    buf_done(&body);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(an_end_token_is_in_the_ids_and_not_in_the_text)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .end_every = 8});
    struct client *c = client_new(w);
    struct response r;
    json_t *j, *choice, *ids;
    char want[400];
    size_t n;

    client_post(c, "/v1/completions",
                "{\"prompt\":\"abc\",\"return_token_ids\":true,\"logprobs\":0,\"max_tokens\":300}");
    client_wait(w, c, &r);
    j = json_of(&r);
    choice = json_array_get(json_object_get(j, "choices"), 0);
    ids = json_object_get(choice, "token_ids");
    n = json_array_size(ids);
    world_expect(w, "abc", 300, want);
    ck_assert_uint_lt(strlen(want), 300); /* the seed has an end in it */
    ck_assert_str_eq(json_string_value(json_object_get(choice, "text")), want);
    ck_assert_str_eq(json_string_value(json_object_get(choice, "finish_reason")), "stop");
    ck_assert_uint_eq(n, strlen(want) + 1);
    ck_assert_int_eq(json_integer_value(json_array_get(ids, n - 1)), 0);
    ck_assert_uint_eq(
        json_array_size(json_object_get(json_object_get(choice, "logprobs"), "tokens")), n);
    ck_assert_int_eq(
        json_integer_value(json_array_get(
            json_object_get(json_object_get(choice, "logprobs"), "text_offset"), n - 1)),
        (json_int_t)n - 1);
    json_decref(j);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(errors_leave_the_connection_usable)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    client_post(c, "/v1/completions", "{\"prompt\":");
    client_expect(w, c, 400, "\"code\":\"invalid_json\"");
    client_post(c, "/v1/completions", "{\"prompt\":\"a\",\"n\":2}");
    client_expect(w, c, 400, "\"param\":\"n\"");
    client_post(c, "/v1/nothing", "{}");
    client_expect(w, c, 404, "there is nothing at /v1/nothing");
    client_post(c, "/v1/responses", "{}");
    client_expect(w, c, 404, "/v1/responses is not served");
    client_post(c, "/v1/chat/completions", "{}");
    client_expect(w, c, 400, "no chat template");
    client_get(c, "/v1/completions");
    client_expect(w, c, 405, "answers POST only");
    client_post(c, "/health", "{}");
    client_expect(w, c, 405, "GET");
    client_get(c, "/v1/models/other");
    client_expect(w, c, 404, "model_not_found");
    client_sendz(c, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(w, client_count(c, "\r\n\r\n") == 1);
    ck_assert_uint_eq(client_count(c, "HTTP/1.1 200"), 1);
    buf_clear(&c->in);
    client_get(c, "/health");
    client_expect(w, c, 200, "{\"status\":\"ok\"}");
    world_free(w);
}
END_TEST

START_TEST(a_405_says_what_is_allowed_and_an_id_of_the_client_comes_back)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;

    client_sendz(c, "DELETE /v1/models HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1.2_3\r\n\r\n");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 405);
    ck_assert_ptr_nonnull(strstr(r.head.data, "Allow: GET, HEAD\r\n"));
    ck_assert_ptr_nonnull(strstr(r.head.data, "X-Request-Id: mine-1.2_3\r\n"));
    response_done(&r);
    client_sendz(c, "POST /completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-4\r\n"
                    "Content-Length: 29\r\n\r\n{\"prompt\":\"a\",\"max_tokens\":3}");
    client_expect(w, c, 200, NULL);
    ck_assert_ptr_nonnull(strstr(w->log, "completion done request="));
    ck_assert_ptr_nonnull(strstr(w->log, " x_request_id=mine-4 uid="));
    client_sendz(c, "GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: bad id\r\n\r\n");
    client_wait(w, c, &r);
    ck_assert_ptr_nonnull(strstr(r.head.data, "X-Request-Id: req-"));
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(texts_become_tokens_and_back)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    client_post(c, "/tokenize", "{\"content\":\" !<|end|>\"}");
    client_expect(w, c, 200, "{\"tokens\":[2,3,0]}");
    client_post(c, "/tokenize",
                "{\"content\":\"!<|end|>\",\"parse_special\":false,\"with_pieces\":true}");
    client_expect(w, c, 200, "{\"tokens\":[{\"id\":3,\"piece\":\"!\"},{\"id\":30,\"piece\":\"<\"}");
    client_post(c, "/tokenize", "{\"content\":\"\"}");
    client_expect(w, c, 200, "{\"tokens\":[]}");
    client_post(c, "/tokenize", "{}");
    client_expect(w, c, 400, "content is missing");
    client_post(c, "/tokenize", "{\"content\":[]}");
    client_expect(w, c, 400, "\"param\":\"content\"");
    client_post(c, "/detokenize", "{\"tokens\":[3,0,35]}");
    client_expect(w, c, 200, "{\"content\":\"!<|end|>A\"}");
    client_post(c, "/detokenize", "{\"tokens\":[97]}");
    client_expect(w, c, 400, "tokens[0] is 97");
    client_post(c, "/detokenize", "{\"tokens\":\"x\"}");
    client_expect(w, c, 400, "a string");
    world_free(w);
}
END_TEST

/* Everything that takes JSON. */
START_TEST(numbers_that_fit_nowhere_are_refused_where_they_stand)
{
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                        "/detokenize", "/apply-template"};
    struct world *w = world_new();
    struct client *c = client_new(w);

    ck_assert_int_eq(chat_template_make("x", 1, w->server.tokenizer, &w->server.chat), 0);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        client_post(c, paths[i], "{\"a\":[{},{\"b c\":-1e400}]}");
        client_expect(w, c, 400, "\"param\":\"a[1].b c\"");
        client_post(c, paths[i], "{\"tools\":[{\"x\":9223372036854775808}]}");
        client_expect(w, c, 400, "tools[0].x holds the number 9223372036854775808");
    }
    world_free(w);
}
END_TEST

START_TEST(props_say_what_is_so)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;
    json_t *j, *settings, *params;

    client_get(c, "/props");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    j = json_of(&r);
    settings = json_object_get(j, "default_generation_settings");
    params = json_object_get(settings, "params");
    ck_assert_int_eq(json_integer_value(json_object_get(settings, "n_ctx")), 4096);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "total_slots")), 2);
    ck_assert_str_eq(json_string_value(json_object_get(j, "model_path")), w->path);
    ck_assert_str_eq(json_string_value(json_object_get(j, "model_alias")), "fake \"model\"");
    ck_assert_str_eq(json_string_value(json_object_get(j, "chat_template")), "");
    ck_assert_str_eq(json_string_value(json_object_get(j, "bos_token")), "");
    ck_assert_str_eq(json_string_value(json_object_get(j, "eos_token")), "");
    ck_assert_int_eq(strncmp(json_string_value(json_object_get(j, "build_info")), "strata-", 7), 0);
    ck_assert(json_is_false(json_object_get(json_object_get(j, "modalities"), "vision")));
    /* As docs/api.md has them. */
    ck_assert(json_number_value(json_object_get(params, "temperature")) == 1);
    ck_assert(json_number_value(json_object_get(params, "top_p")) == 1);
    ck_assert(json_number_value(json_object_get(params, "repeat_penalty")) == 1);
    ck_assert_int_eq(json_integer_value(json_object_get(params, "repeat_last_n")), 64);
    ck_assert_int_eq(json_integer_value(json_object_get(params, "top_k")), 0);
    json_decref(j);
    response_done(&r);
    client_post(c, "/props", "{}");
    client_expect(w, c, 405, "answers GET, HEAD only");
    world_free(w);
}
END_TEST

START_TEST(pipelined_requests_are_answered_in_order)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    client_post(c, "/v1/completions", "{\"prompt\":\"one\",\"max_tokens\":30}");
    client_get(c, "/health");
    client_post(c, "/v1/completions", "{\"prompt\":5}");
    client_post(c, "/v1/completions", "{\"prompt\":\"two\",\"max_tokens\":2,\"stream\":true}");
    client_expect(w, c, 200, "\"completion_tokens\":30");
    client_expect(w, c, 200, "ok");
    client_expect(w, c, 400, "prompt is 5");
    client_expect(w, c, 200, "[DONE]");
    world_free(w);
}
END_TEST

static void send_chunk(struct client *c, const char *s, size_t n)
{
    char head[32];

    (void)snprintf(head, sizeof head, "%zx\r\n", n);
    client_sendz(c, head);
    client_send(c, s, n);
    client_sendz(c, "\r\n");
}

START_TEST(a_chunked_body_is_read_and_counted)
{
    struct world *w = world_with(&(struct world_options){.state = SERVER_READY, .max_body = 4096});
    struct client *c = client_new(w);
    char junk[1000];

    memset(junk, ' ', sizeof junk);
    client_sendz(c,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    send_chunk(c, "{\"prompt\":\"chu", 14);
    world_settle(w);
    send_chunk(c, "nked\",\"max_tokens\":3}", 21);
    client_sendz(c, "0\r\n\r\n");
    client_expect(w, c, 200, "\"prompt_tokens\":7,\"completion_tokens\":3");

    /* Too long: the answer comes after the end of the body, and the connection lives. */
    client_sendz(c,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 5; i++)
        send_chunk(c, junk, sizeof junk);
    world_settle(w);
    ck_assert_uint_eq(w->server.http->body_used, 0);
    client_sendz(c, "0\r\n\r\n");
    client_expect(w, c, 413, "4096");
    client_get(c, "/health");
    client_expect(w, c, 200, "ok");

    /* Without end: cut. */
    client_sendz(c,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++)
        send_chunk(c, junk, sizeof junk);
    UNTIL(w, c->eof);
    world_free(w);
}
END_TEST

START_TEST(a_body_announced_as_too_large_is_refused_before_it_comes)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    client_sendz(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
    client_expect(w, c, 413, "the body has 65537 bytes; at most 65536 are accepted");
    UNTIL(w, c->eof);
    c = client_new(w);
    client_sendz(
        c,
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n");
    UNTIL(w, c->eof);
    c = client_new(w);
    client_sendz(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: "
                    "gzip\r\nContent-Length: 5\r\n\r\n");
    client_expect(w, c, 415, "Content-Encoding");
    world_free(w);
}
END_TEST

/* A proxy may have read it in the other way, and what is behind it is another user's then. */
START_TEST(a_length_that_is_said_twice_is_refused_and_nothing_behind_it_is_read)
{
    static const char *const lengths[] = {
        "Content-Length: 2\r\nContent-Length: 40\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n",
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    };
    struct world *w = world_new();

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct client *c = client_new(w);

        client_sendz(c, "POST /tokenize HTTP/1.1\r\nHost: x\r\n");
        client_sendz(c, lengths[i]);
        client_sendz(c, i < 2 ? "\r\n{}" : "\r\n2\r\n{}\r\n0\r\n\r\n");
        client_sendz(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        client_expect(w, c, 400, "the length of the body is said twice");
        UNTIL(w, c->eof);
        ck_assert_uint_eq(c->in.len, 0);
    }
    world_free(w);
}
END_TEST

START_TEST(bodies_together_have_a_budget)
{
    struct world *w = world_new();
    struct client *c[8];
    char *junk = malloc(60000);
    int n_503 = 0;

    memset(junk, ' ', 60000);
    for (int i = 0; i < 8; i++) {
        c[i] = client_new(w);
        client_sendz(c[i],
                     "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60001\r\n\r\n");
        client_send(c[i], junk, 60000);
        world_settle(w);
    }
    ck_assert_uint_le(w->server.http->body_used, w->server.http->body_limit);
    for (int i = 0; i < 8; i++) {
        struct response r;

        client_sendz(c[i], "x");
        client_wait(w, c[i], &r);
        n_503 += r.status == 503;
        ck_assert(r.status == 503 || r.status == 400);
        response_done(&r);
    }
    ck_assert_int_gt(n_503, 0);
    ck_assert_int_lt(n_503, 8);
    free(junk);
    world_free(w);
}
END_TEST

START_TEST(garbage_is_refused_and_the_server_lives_on)
{
    struct world *w = world_new();
    struct client *c;
    unsigned int seed = (unsigned int)_i;

    for (int i = 0; i < 20; i++) {
        char junk[3000];

        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (char)rand_r(&seed);
        c = client_new(w);
        if (i % 3 == 1)
            client_sendz(c, "POST /v1/completions HTTP/1.1\r\n");
        if (i % 3 == 2)
            client_sendz(
                c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n");
        client_send(c, junk, sizeof junk);
        world_settle(w);
        client_half_close(c);
        UNTIL(w, c->eof);
    }
    c = client_new(w);
    client_sendz(c, "GET /v1/\xff\x01%00%ff HTTP/1.1\r\nHost: x\r\n\r\n");
    client_half_close(c);
    UNTIL(w, c->eof);
    c = client_new(w);
    client_get(c, "/health");
    client_expect(w, c, 200, "ok");
    world_free(w);
}
END_TEST

START_TEST(non_finite_logits_are_an_error_of_the_request)
{
    struct world *w = world_new();
    struct client *c = client_new(w);

    client_post(c, "/v1/completions", "{\"prompt\":[40,1,41],\"max_tokens\":5}");
    client_expect(w, c, 500, "\"code\":\"non_finite\"");
    client_post(c, "/v1/completions", "{\"prompt\":[40,1,41],\"max_tokens\":5,\"stream\":true}");
    client_expect(w, c, 200, "data: {\"error\":{\"message\":");
    client_post(c, "/v1/completions", "{\"prompt\":[40,41],\"max_tokens\":5}");
    client_expect(w, c, 200, NULL);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http");
    TCase *t = tcase_create("http");
    SRunner *sr;
    int n;

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_completion_streams_from_its_body_to_done);
    tcase_add_test(t, a_whole_answer_has_usage_timings_and_ids);
    tcase_add_test(t, a_stream_can_have_usage_progress_ids_and_logprobs);
    tcase_add_test(t, an_end_token_is_in_the_ids_and_not_in_the_text);
    tcase_add_test(t, errors_leave_the_connection_usable);
    tcase_add_test(t, a_405_says_what_is_allowed_and_an_id_of_the_client_comes_back);
    tcase_add_test(t, texts_become_tokens_and_back);
    tcase_add_test(t, numbers_that_fit_nowhere_are_refused_where_they_stand);
    tcase_add_test(t, props_say_what_is_so);
    tcase_add_test(t, pipelined_requests_are_answered_in_order);
    tcase_add_test(t, a_chunked_body_is_read_and_counted);
    tcase_add_test(t, a_body_announced_as_too_large_is_refused_before_it_comes);
    tcase_add_test(t, a_length_that_is_said_twice_is_refused_and_nothing_behind_it_is_read);
    tcase_add_test(t, bodies_together_have_a_budget);
    tcase_add_loop_test(t, garbage_is_refused_and_the_server_lives_on, 0, 3);
    tcase_add_test(t, non_finite_logits_are_an_error_of_the_request);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    n = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
