/* SPDX-License-Identifier: Apache-2.0 */
/* The API over real sockets: what a client sees, and what its going away does. */
#include "tests/http_world.h"

#include "daemon/sched.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_of(const struct response *r)
{
    json_error_t e;
    json_t *j = json_loadb(r->body.data, r->body.len, 0, &e);

    ck_assert_msg(j != NULL, "no JSON: %s: %s", e.text, r->body.data);
    return j;
}

/* The text of all chunks of a stream together; how many chunks had text. */
static void text_of_stream(const char *s, struct buf *out)
{
    ck_assert_int_eq(buf_addz(out, ""), 0);
    for (const char *p = s; (p = strstr(p, "data: {")); p++) {
        json_error_t e;
        json_t *j = json_loads(p + 6, JSON_DISABLE_EOF_CHECK, &e);
        const json_t *choice;

        ck_assert_msg(j != NULL, "no JSON in an event: %s", e.text);
        choice = json_array_get(json_object_get(j, "choices"), 0);
        if (choice)
            ck_assert_int_eq(buf_addz(out, json_string_value(json_object_get(choice, "text"))), 0);
        json_decref(j);
    }
}

START_TEST(a_completion_streams_from_its_body_to_done)
{
    struct world *w = world_new();
    struct client *c = client_new(w);
    struct response r;
    struct buf text = {0};
    char want[21];

    client_post(c, "/v1/completions", "{\"prompt\":\"Hello\",\"max_tokens\":20,\"stream\":true}");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(r.head.data, "Content-Type: text/event-stream"));
    ck_assert_ptr_nonnull(strstr(r.head.data, "X-Request-Id: req-"));
    text_of_stream(r.body.data, &text);
    world_expect(w, "Hello", 20, want);
    ck_assert_str_eq(text.data, want);
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"finish_reason\":\"length\""));
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
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(j, "timings"), "predicted_n")), 5);
    json_decref(j);
    response_done(&r);
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
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    n = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
