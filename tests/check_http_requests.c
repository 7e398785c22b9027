/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/requests: decisions made by hand, asked for over real HTTP by several users. */
#include "daemon/decisions.h"
#include "daemon/request.h"
#include "tests/http_world.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_UID = 4711, OTHER_UID = 4712 };

static struct world *w;

static void set_up(void)
{
    w = world_new();
    ck_assert_int_eq(decisions_new(&w->server.decisions), 0);
}

static void tear_down(void)
{
    decisions_free(w->server.decisions);
    w->server.decisions = NULL;
    world_free(w);
}

static void make(uint64_t request, uint32_t uid)
{
    char name[32];
    struct decision *x;

    (void)snprintf(name, sizeof name, "cmpl-%llu", (unsigned long long)request);
    x = decision_new(w->server.decisions, request, name, uid);
    ck_assert_ptr_nonnull(x);
    decision_unref(x);
}

/* A client whose peer credentials are `uid`'s; needs root. */
static struct client *client_of(uint32_t uid)
{
    struct client *c;

    ck_assert_int_eq(chmod(w->dir, 0711), 0);
    ck_assert_int_eq(chmod(w->path, 0666), 0);
    ck_assert_int_eq(seteuid(uid), 0);
    c = client_new(w);
    ck_assert_int_eq(seteuid(0), 0);
    return c;
}

/* The answer as JSON; its status has to be this one. */
static json_t *get(struct client *c, const char *path, int status)
{
    struct response r;
    json_error_t e;
    json_t *j;

    client_get(c, path);
    client_wait(w, c, &r);
    ck_assert_msg(r.status == status, "%d, not %d: %s", r.status, status, r.body.data);
    j = json_loads(r.body.data, 0, &e);
    ck_assert_msg(j != NULL, "%s", e.text);
    response_done(&r);
    return j;
}

/* The request numbers of a list, " 3 1". */
static void expect_list(struct client *c, const char *path, const char *want)
{
    json_t *j = get(c, path, 200), *x;
    char got[256] = "";
    size_t i;

    json_array_foreach(json_object_get(j, "data"), i, x)
    {
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), " %d",
                       (int)json_integer_value(json_object_get(x, "request")));
    }
    ck_assert_str_eq(got, want);
    json_decref(j);
}

START_TEST(one_request_is_shown_whole)
{
    struct decision *x = decision_new(w->server.decisions, 17, "cmpl-ab", OWN_UID);
    struct client *c = client_new(w);
    json_t *got, *want;

    x->n_prompt = 300;
    x->n_common = 260;
    x->n_found = 256;
    x->n_found_vram = 128;
    x->root_pos = 64;
    x->turn_pos = 290;
    x->query_pos = 200;
    x->root_want = 65;
    x->from = 5;
    x->is_switch = x->is_hit = true;
    x->source = SOURCE_BORROWED;
    x->why = WHY_LONGEST;
    x->est_best_ms = 1.5;
    x->est_vram_ms = 2.5;
    x->est_cold_ms = 3.5;
    x->n_reused = 256;
    x->n_read = 44;
    x->n_generated = 3;
    x->n_joined = 0;
    x->bytes_loaded = 2048;
    x->load_ms = 0.25;
    x->wait_ms = 0.5;
    x->read_ms = 4;
    x->total_ms = 8;
    x->n_parked = 1;
    x->conversation = 6;
    x->n_kept = 302;
    x->n_checkpoints = 2;
    x->n_checkpoints_skipped = 1;
    x->keep_error = -12;
    x->n_superseded = 1;
    x->done = true;
    x->finish = FINISH_LENGTH;
    decisions_event(w->server.decisions,
                    &(struct cache_event){.kind = CACHE_EVICTED,
                                          .why = CACHE_WHY_SLOTS,
                                          .tier = CACHE_RAM,
                                          .id = 2,
                                          .cause = 17,
                                          .uid = OTHER_UID,
                                          .n_tokens = 640,
                                          .bytes = 4096},
                    w->now_ns);
    decisions_event(w->server.decisions,
                    &(struct cache_event){.kind = CACHE_ROOT_MADE, .id = 3, .cause = 17, .uid = 1},
                    w->now_ns);
    decisions_event(w->server.decisions,
                    &(struct cache_event){.kind = CACHE_EVICTED, .id = 4, .cause = 16}, w->now_ns);
    w->now_ns += 7000000;
    want = json_pack("{s:i, s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:b, s:b, s:f}", //
                     "request", 17, "id", "cmpl-ab", "uid", OWN_UID, "state", "done",
                     "finish_reason", "length", "prompt_tokens", 300, "reused_tokens", 256,
                     "read_tokens", 44, "generated_tokens", 3, "source", "borrowed", "switch", 1,
                     "hit", 1, "total_ms", 8.0);
    got = get(c, "/v1/requests", 200);
    ck_assert(json_equal(json_array_get(json_object_get(got, "data"), 0), want));
    json_decref(got);

    ck_assert_int_eq(
        json_object_update_new(
            want,
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f}", //
                      "common_tokens", 260, "found_tokens", 256, "found_vram_tokens", 128,
                      "root_tokens", 64, "turn_pos", 290, "query_pos", 200, "root_pos", 65,
                      "found_in", 5, "why", "the longest stored prefix", "estimated_longest_ms",
                      1.5, "estimated_vram_ms", 2.5, "estimated_cold_ms", 3.5)),
        0);
    ck_assert_int_eq(
        json_object_update_new(
            want,
            json_pack("{s:i, s:i, s:f, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:i}", //
                      "joined_tokens", 0, "loaded_bytes", 2048, "load_ms", 0.25, "wait_ms", 0.5,
                      "read_ms", 4.0, "parked", 1, "conversation", 6, "kept_tokens", 302,
                      "checkpoints", 2, "checkpoints_skipped", 1, "keep_error",
                      "Cannot allocate memory", "superseded", 1, "evicted", 1)),
        0);
    ck_assert_int_eq(
        json_object_set_new(
            want, "events",
            json_pack("[{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:i}, {s:s, s:i, s:i, s:i, s:i, s:i}]",
                      "kind", "evicted", "id", 2, "tier", "ram", "why",
                      "more conversations were parked than may be", "uid", OTHER_UID, "tokens", 640,
                      "bytes", 4096, "age_ms", 7, "kind", "root_made", "id", 3, "uid", 1, "tokens",
                      0, "bytes", 0, "age_ms", 7)),
        0);
    got = get(c, "/v1/requests/cmpl-ab", 200);
    ck_assert_str_eq(
        json_string_value(json_array_get(json_object_get(got, "explain"), 0)),
        "request 17 (cmpl-ab): 300 tokens of prompt, 256 reused, 44 read, 3 generated");
    ck_assert_uint_eq(json_array_size(json_object_get(got, "explain")), 17);
    ck_assert_int_eq(json_object_del(got, "explain"), 0);
    ck_assert_msg(json_equal(got, want), "%s\nnot\n%s", json_dumps(got, 0), json_dumps(want, 0));
    json_decref(got);
    got = get(c, "/v1/requests/17", 200);
    ck_assert_int_eq(json_object_del(got, "explain"), 0);
    ck_assert(json_equal(got, want));
    json_decref(got);
    json_decref(want);
    decision_unref(x);
}
END_TEST

START_TEST(what_is_not_known_is_404)
{
    struct client *c = client_new(w);

    make(1, OWN_UID);
    client_get(c, "/v1/requests/2");
    client_expect(w, c, 404, "there is no request \\\"2\\\" among the newest 1000");
    client_get(c, "/v1/requests/cmpl-");
    client_expect(w, c, 404, "request_not_found");
    client_get(c, "/v1/requests/");
    client_expect(w, c, 404, "not_found");
    client_post(c, "/v1/requests/1", "");
    client_expect(w, c, 405, "method_not_allowed");
}
END_TEST

/* Clients choose it: the newest of one's own, and nobody takes the place of an id in an answer. */
START_TEST(x_request_id_finds_the_newest_that_may_be_seen)
{
    static const struct {
        uint32_t uid;
        const char *http_id;
    } made[] = {{OWN_UID, "mine"}, {OWN_UID, "mine"}, {OTHER_UID, "mine"}, {OTHER_UID, "cmpl-1"}};
    struct client *c;
    json_t *j;

    if (geteuid() != 0) {
        (void)fprintf(stderr, "SKIPPED: other users' requests need root\n");
        return;
    }
    for (uint64_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        char name[32];
        struct decision *x;

        (void)snprintf(name, sizeof name, "cmpl-%d", (int)i + 1);
        x = decision_new(w->server.decisions, i + 1, name, made[i].uid);
        (void)strcpy(x->http_id, made[i].http_id);
        decision_unref(x);
    }
    c = client_of(OWN_UID);
    j = get(c, "/v1/requests/mine", 200);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "request")), 2);
    ck_assert_str_eq(json_string_value(json_object_get(j, "x_request_id")), "mine");
    json_decref(j);
    j = get(c, "/v1/requests/cmpl-1", 200);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "request")), 1);
    json_decref(j);
    json_decref(get(c, "/v1/requests/3", 404));
    c = client_of(OTHER_UID);
    j = get(c, "/v1/requests/mine", 200);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "request")), 3);
    json_decref(j);
}
END_TEST

START_TEST(a_list_has_the_newest_and_no_more_than_asked_for)
{
    struct client *c = client_new(w);
    json_t *j;

    expect_list(c, "/v1/requests", "");
    for (uint64_t i = 1; i <= 30; i++)
        make(i, OWN_UID);
    expect_list(c, "/v1/requests?limit=3", " 30 29 28");
    expect_list(c, "/v1/requests?x=1&limit=1", " 30");
    j = get(c, "/v1/requests", 200);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "data")), 20);
    json_decref(j);
    j = get(c, "/v1/requests?limit=1000", 200);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "data")), 30);
    json_decref(j);
}
END_TEST

static const char *const bad_limits[] = {"0", "1001", "-1", "x", "", "1.5", "%22"};

START_TEST(a_limit_that_is_none_is_refused_by_name)
{
    struct client *c = client_new(w);
    char path[64];

    (void)snprintf(path, sizeof path, "/v1/requests?limit=%s", bad_limits[_i]);
    client_get(c, path);
    client_expect(w, c, 400, "not a number from 1 to 1000");
}
END_TEST

START_TEST(a_user_sees_the_own_requests_only)
{
    struct client *own, *other;

    if (geteuid() != 0) {
        (void)fputs("SKIPPED: clients of several users need root\n", stderr);
        return;
    }
    own = client_of(OWN_UID);
    other = client_of(OTHER_UID);
    make(1, OWN_UID);
    make(2, OTHER_UID);
    make(3, OWN_UID);
    make(4, UINT32_MAX);
    expect_list(own, "/v1/requests", " 3 1");
    expect_list(own, "/v1/requests?limit=1", " 3");
    expect_list(other, "/v1/requests", " 2");
    expect_list(client_new(w), "/v1/requests", " 4 3 2 1");
    json_decref(get(own, "/v1/requests/1", 200));
    client_get(own, "/v1/requests/2");
    client_expect(w, own, 404, "there is no request \\\"2\\\" among the newest 1000");
    client_get(own, "/v1/requests/cmpl-2");
    client_expect(w, own, 404, "there is no request");
    client_get(own, "/v1/requests/4");
    client_expect(w, own, 404, "there is no request");
}
END_TEST

START_TEST(without_decisions_there_are_no_requests)
{
    struct client *c = client_new(w);

    decisions_free(w->server.decisions);
    w->server.decisions = NULL;
    expect_list(c, "/v1/requests", "");
    client_get(c, "/v1/requests/1");
    client_expect(w, c, 404, "request_not_found");
    w->server.state = SERVER_LOADING;
    client_get(c, "/v1/requests");
    client_expect(w, c, 503, "loading");
    w->server.state = SERVER_READY;
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_requests");
    TCase *t = tcase_create("http_requests");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, one_request_is_shown_whole);
    tcase_add_test(t, what_is_not_known_is_404);
    tcase_add_test(t, x_request_id_finds_the_newest_that_may_be_seen);
    tcase_add_test(t, a_list_has_the_newest_and_no_more_than_asked_for);
    tcase_add_loop_test(t, a_limit_that_is_none_is_refused_by_name, 0,
                        sizeof bad_limits / sizeof bad_limits[0]);
    tcase_add_test(t, a_user_sees_the_own_requests_only);
    tcase_add_test(t, without_decisions_there_are_no_requests);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
