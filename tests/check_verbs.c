/* SPDX-License-Identifier: Apache-2.0 */
/* The methods about cache and requests: what they answer, and to whom. */
#include "daemon/verbs.h"

#include "ctl/varlink.h"
#include "daemon/api_keys.h"
#include "daemon/decisions.h"
#include "daemon/rates.h"
#include "daemon/server.h"
#include "daemon/verb_peer.h"
#include "tests/hand_cache.h"
#include "util/buf.h"
#include "util/clock.h"
#include "util/err.h"

#include <check.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Users that no data base knows. */
enum { OWN_UID = 471147, OTHER_UID = 471148 };

static struct server server;
static struct rates rates;
static uint64_t now_ns;

static void set_up(void)
{
    now_ns = 9000000000;
    clock_set_fake(&now_ns);
    server = (struct server){.state = SERVER_READY, .cache = hand_cache_new()};
    ck_assert_int_eq(decisions_new(&server.decisions), 0);
}

static void tear_down(void)
{
    decisions_free(server.decisions);
    if (server.cache)
        hand_cache_free(server.cache);
}

/* The whole reply of io.strata.Control.METHOD(parameters) to `uid`. */
static json_t *call_as(uint32_t uid, const char *method, const char *parameters)
{
    struct verb_context c = {.server = &server, .rates = &rates, .peer = {.uid = uid, .gid = uid}};
    struct varlink_call call;
    struct buf out = {0};
    char frame[256];
    json_t *j;

    (void)snprintf(frame, sizeof frame, "{\"method\":\"io.strata.Control.%s\",\"parameters\":%s}",
                   method, parameters);
    ck_assert_int_eq(varlink_call_parse(frame, strlen(frame), &call, NULL), 0);
    ck_assert_int_eq(verbs_run(&c, &call, &out), 0);
    varlink_call_done(&call);
    j = json_loads(out.data, 0, NULL);
    ck_assert_ptr_nonnull(j);
    buf_done(&out);
    return j;
}

/* The parameters of a reply that has to be a success; a new reference. */
static json_t *ask(uint32_t uid, const char *method, const char *parameters)
{
    json_t *j = call_as(uid, method, parameters), *p = json_object_get(j, "parameters");

    ck_assert_msg(!json_object_get(j, "error"), "%s: %s", method,
                  json_string_value(json_object_get(j, "error")));
    json_incref(p);
    json_decref(j);
    return p;
}

static void expect(uint32_t uid, const char *method, const char *parameters, const char *want)
{
    json_t *got = call_as(uid, method, parameters);
    char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS);

    ck_assert_str_eq(text, want);
    free(text);
    json_decref(got);
}

static void show(uint64_t id, const char *key, json_int_t want)
{
    char parameters[64];
    json_t *p;

    (void)snprintf(parameters, sizeof parameters, "{\"id\":%llu}", (unsigned long long)id);
    p = ask(OWN_UID, "CacheShow", parameters);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(p, "entry"), key)), want);
    json_decref(p);
}

/* Whether the fields of `o` are those that the interface file lists after `head`. */
static void check_fields(const json_t *o, const char *head)
{
    const char *p = strstr(strata_control_idl, head);
    size_t n = 0;

    ck_assert_msg(p, "%s", head);
    for (;;) {
        char name[64];
        int used = 0;

        p = strchr(p, '\n') + 1;
        if (*p == ')')
            break;
        if (sscanf(p, "  %63[a-z_]: %n", name, &used) != 1)
            continue; /* a comment */
        ck_assert_msg(json_object_get(o, name) || p[used] == '?', "%s lacks %s", head, name);
        n += json_object_get(o, name) != NULL;
    }
    ck_assert_uint_eq(n, json_object_size(o));
}

static void evict(uint64_t id, bool forget, const char *want)
{
    char parameters[64];

    (void)snprintf(parameters, sizeof parameters, "{\"id\":%llu,\"forget\":%s}",
                   (unsigned long long)id, forget ? "true" : "false");
    expect(0, "CacheEvict", parameters, want);
}

#define DONE    "{\"parameters\":{}}"
#define DENIED  "{\"error\":\"org.varlink.service.PermissionDenied\",\"parameters\":{}}"
#define NO_SUCH "{\"error\":\"io.strata.Control.NoSuchEntry\",\"parameters\":{\"id\":\"%s\"}}"

START_TEST(entries_are_listed_with_what_the_interface_promises)
{
    uint64_t root, a = hand_cache_park(server.cache, OWN_UID, 3, 2, &root, now_ns), b;
    json_t *p, *list;

    now_ns += 5000000;
    b = hand_cache_park(server.cache, OTHER_UID, 1, 0, NULL, now_ns);
    p = ask(OWN_UID, "CacheList", "{}");
    list = json_object_get(p, "entries");
    ck_assert_int_eq(json_integer_value(json_object_get(p, "total")), 3);
    ck_assert_uint_eq(json_array_size(list), 3);
    check_fields(json_array_get(list, 0), "type Entry (");
    /* Another's entry is shown with its uid; the newest comes first. */
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(list, 0), "id")),
                     (json_int_t)b);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(list, 0), "uid")),
                     OTHER_UID);
    json_decref(p);
    p = ask(OWN_UID, "CacheList", "{\"limit\":1}");
    ck_assert_int_eq(json_integer_value(json_object_get(p, "total")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(p, "entries")), 1);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_array_get(json_object_get(p, "entries"), 0), "id")),
        (json_int_t)b);
    json_decref(p);
    p = ask(OWN_UID, "RootsList", "{}");
    list = json_object_get(p, "roots");
    ck_assert_uint_eq(json_array_size(list), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(list, 0), "id")),
                     (json_int_t)root);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "kind")), "root");
    json_decref(p);
    show(a, "tokens", 192);
    show(a, "pages", 3);
    show(a, "vram_pages", 3);
    show(a, "ram_pages", 0);
    show(a, "own_pages", 1);
    show(a, "vram_bytes", 3 * HAND_UNIT_BYTES);
    show(a, "idle_ms", 5);
    show(root, "tokens", 128);
}
END_TEST

START_TEST(what_came_over_tcp_is_shown_by_the_owner_of_its_key)
{
    char path[] = "/tmp/check_verbs.XXXXXX";
    int fd = mkstemp(path);
    struct err_text e;
    json_t *p, *x;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(dprintf(fd, "bob key-of-bob-42\nalice key-of-alice\n"), 0);
    (void)close(fd);
    ck_assert_msg(api_keys_open(path, &server.keys, &e) == 0, "%s", e.s);
    (void)unlink(path);
    (void)hand_cache_park(server.cache, API_KEY_UIDS + 1, 1, 0, NULL, now_ns);
    p = ask(OWN_UID, "CacheList", "{}");
    x = json_array_get(json_object_get(p, "entries"), 0);
    check_fields(x, "type Entry (");
    ck_assert_str_eq(json_string_value(json_object_get(x, "key")), "alice");
    ck_assert_ptr_null(json_object_get(x, "uid"));
    json_decref(p);
    api_keys_free(server.keys);
}
END_TEST

START_TEST(statistics_have_what_the_interface_promises)
{
    struct decision *x = decision_new(server.decisions, 1, "", OWN_UID);
    uint64_t root;
    json_t *p;

    x->n_prompt = 100;
    x->n_reused = 60;
    x->is_switch = x->is_hit = true;
    decision_settled(server.decisions, x);
    decision_unref(x);
    (void)hand_cache_park(server.cache, OWN_UID, 3, 2, &root, now_ns);
    p = ask(OWN_UID, "CacheStats", "{}");
    check_fields(p, "method CacheStats() -> (");
    check_fields(json_object_get(p, "vram"), "type Tier (");
    check_fields(json_object_get(p, "ram"), "type Tier (");
    check_fields(json_object_get(p, "reuse"), "type Reuse (");
    ck_assert_int_eq(json_integer_value(json_object_get(p, "pages")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(p, "parked")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(p, "roots")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(p, "vram"), "units_held")),
                     3);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(p, "ram"), "units_limit")),
                     100);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(p, "reuse"), "reused_tokens")), 60);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(p, "reuse"), "hits")), 1);
    json_decref(p);
}
END_TEST

START_TEST(an_operator_evicts_clears_and_pins)
{
    uint64_t root, a = hand_cache_park(server.cache, OWN_UID, 3, 2, &root, now_ns);
    uint64_t b = hand_cache_park(server.cache, OWN_UID, 1, 0, NULL, now_ns);
    char text[64], want[128];
    json_t *p;

    evict(b, true, DONE);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)b);
    (void)snprintf(want, sizeof want, NO_SUCH, text);
    evict(b, true, want);
    evict(a, true, DONE);
    (void)snprintf(text, sizeof text, "{\"id\":%llu}", (unsigned long long)root);
    expect(0, "RootsPin", text, DONE);
    (void)snprintf(want, sizeof want,
                   "{\"error\":\"io.strata.Control.Busy\",\"parameters\":{\"id\":\"%llu\"}}",
                   (unsigned long long)root);
    evict(root, true, want);
    expect(0, "RootsClear", "{}", "{\"parameters\":{\"roots\":0}}");
    p = ask(OWN_UID, "RootsList", "{}");
    ck_assert_uint_ge(json_array_size(json_object_get(p, "roots")), 1);
    json_decref(p);
    expect(0, "RootsUnpin", text, DONE);
    (void)hand_cache_park(server.cache, OWN_UID, 1, 0, NULL, now_ns);
    (void)hand_cache_park(server.cache, OTHER_UID, 1, 0, NULL, now_ns);
    expect(0, "CacheClear", "{}", "{\"parameters\":{\"conversations\":2}}");
    p = ask(OWN_UID, "CacheStats", "{}");
    ck_assert_int_eq(json_integer_value(json_object_get(p, "parked")), 0);
    json_decref(p);
}
END_TEST

START_TEST(roots_are_given_up_when_cleared)
{
    uint64_t root;

    (void)hand_cache_park(server.cache, OWN_UID, 3, 2, &root, now_ns);
    expect(0, "RootsClear", "{}", "{\"parameters\":{\"roots\":1}}");
    expect(0, "RootsList", "{}", "{\"parameters\":{\"roots\":[]}}");
}
END_TEST

static const struct {
    const char *method, *parameters;
} changes[] = {
    {"CacheEvict", "{\"id\":1}"}, {"CacheClear", "{}"},         {"RootsClear", "{}"},
    {"RootsPin", "{\"id\":1}"},   {"RootsUnpin", "{\"id\":1}"},
};

START_TEST(nobody_else_changes_anything)
{
    uint64_t root, a = hand_cache_park(server.cache, OWN_UID, 3, 2, &root, now_ns);
    struct cache_entry x;

    /* Not even what is his own. */
    expect(OWN_UID, changes[_i].method, changes[_i].parameters, DENIED);
    ck_assert_int_eq(cache_entry(server.cache, a, &x), 0);
    ck_assert_int_eq(cache_entry(server.cache, root, &x), 0);
    ck_assert(!x.is_pinned);
}
END_TEST

static const struct {
    const char *method, *parameters, *bad;
} wrong[] = {
    {"CacheShow", "{}", "id"},
    {"CacheShow", "{\"id\":\"1\"}", "id"},
    {"CacheShow", "{\"id\":0}", "id"},
    {"CacheShow", "{\"id\":-1}", "id"},
    {"CacheEvict", "{\"id\":1,\"forget\":1}", "forget"},
    {"CacheEvict", "{\"forget\":true}", "id"},
    {"CacheClear", "{\"yes\":true}", "yes"},
    {"CacheList", "{\"limit\":0}", "limit"},
    {"CacheList", "{\"limit\":1001}", "limit"},
    {"RootsPin", "{}", "id"},
    {"RootsUnpin", "{\"id\":1.5}", "id"},
    {"Requests", "{\"limit\":0}", "limit"},
    {"Requests", "{\"limit\":\"5\"}", "limit"},
    {"Requests", "{\"limit\":1001}", "limit"},
    {"Explain", "{}", "id"},
    {"Explain", "{\"id\":5}", "id"},
};

START_TEST(a_wrong_parameter_is_named)
{
    char want[128];

    (void)snprintf(want, sizeof want,
                   "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{"
                   "\"parameter\":\"%s\"}}",
                   wrong[_i].bad);
    expect(0, wrong[_i].method, wrong[_i].parameters, want);
}
END_TEST

static const struct {
    const char *method, *parameters;
} cached[] = {
    {"CacheList", "{}"},          {"CacheShow", "{\"id\":1}"}, {"CacheStats", "{}"},
    {"CacheEvict", "{\"id\":1}"}, {"CacheClear", "{}"},        {"RootsList", "{}"},
    {"RootsClear", "{}"},         {"RootsPin", "{\"id\":1}"},  {"RootsUnpin", "{\"id\":1}"},
};

START_TEST(without_a_cache_each_says_why)
{
    hand_cache_free(server.cache);
    server.cache = NULL;
    expect(0, cached[_i].method, cached[_i].parameters,
           "{\"error\":\"io.strata.Control.NoCache\",\"parameters\":{\"reason\":\"the setting "
           "cache is false\"}}");
    server.state = SERVER_LOADING;
    expect(0, cached[_i].method, cached[_i].parameters,
           "{\"error\":\"io.strata.Control.NoCache\",\"parameters\":{\"reason\":\"the model is not "
           "loaded\"}}");
}
END_TEST

static void request(uint64_t n, uint32_t uid)
{
    char name[32];
    struct decision *x;

    (void)snprintf(name, sizeof name, "cmpl-%llu", (unsigned long long)n);
    x = decision_new(server.decisions, n, name, uid);
    x->n_prompt = 10;
    x->why = WHY_NOTHING_STORED;
    decision_unref(x);
}

static void expect_requests(uint32_t uid, const char *parameters, const char *want)
{
    json_t *p = ask(uid, "Requests", parameters), *x;
    char got[64] = "";
    size_t i;

    json_array_foreach(json_object_get(p, "requests"), i, x)
    {
        check_fields(x, "type RequestRow (");
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), " %d",
                       (int)json_integer_value(json_object_get(x, "request")));
    }
    ck_assert_str_eq(got, want);
    json_decref(p);
}

START_TEST(requests_of_others_are_the_operators_only)
{
    request(1, OWN_UID);
    request(2, OTHER_UID);
    request(3, OWN_UID);
    expect_requests(OWN_UID, "{}", " 3 1");
    expect_requests(OWN_UID, "{\"limit\":1}", " 3");
    expect_requests(OTHER_UID, "{\"limit\":null}", " 2");
    expect_requests(0, "{}", " 3 2 1");
    expect_requests(geteuid(), "{\"limit\":2}", " 3 2");
    json_decref(ask(OWN_UID, "Explain", "{\"id\":\"1\"}"));
    expect(OWN_UID, "Explain", "{\"id\":\"cmpl-2\"}",
           "{\"error\":\"io.strata.Control.NoSuchRequest\",\"parameters\":{\"id\":\"cmpl-2\"}}");
    expect(OWN_UID, "Explain", "{\"id\":\"9\"}",
           "{\"error\":\"io.strata.Control.NoSuchRequest\",\"parameters\":{\"id\":\"9\"}}");
    json_decref(ask(0, "Explain", "{\"id\":\"cmpl-2\"}"));
    /* Numbers of owners of keys, and of nobody, are no user's. */
    request(4, API_KEY_UIDS);
    request(5, UINT32_MAX);
    expect_requests(API_KEY_UIDS, "{}", "");
    expect_requests(UINT32_MAX, "{}", "");
}
END_TEST

START_TEST(an_explanation_has_what_the_interface_promises)
{
    json_t *p;

    request(7, OWN_UID);
    decisions_event(server.decisions,
                    &(struct cache_event){.kind = CACHE_DEMOTED, .id = 3, .cause = 7, .uid = 1},
                    now_ns);
    p = ask(OWN_UID, "Explain", "{\"id\":\"7\"}");
    ck_assert_uint_eq(json_object_size(p), 3);
    check_fields(json_object_get(p, "request"), "type Request (");
    ck_assert_uint_eq(json_array_size(json_object_get(p, "events")), 1);
    check_fields(json_array_get(json_object_get(p, "events"), 0), "type Event (");
    ck_assert_uint_eq(json_array_size(json_object_get(p, "explain")), 5);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(p, "explain"), 0)),
                     "request 7 (cmpl-7): 10 tokens of prompt, 0 reused, 0 read, 0 generated");
    json_decref(p);
}
END_TEST

START_TEST(membership_is_asked_of_the_system)
{
    const struct passwd *me = getpwuid(geteuid());
    const struct group *g = me ? getgrgid(me->pw_gid) : NULL;

    ck_assert(!verb_user_is_in_group(geteuid(), "no-such-group-here"));
    if (!g) {
        (void)fputs("SKIPPED: this user has no name or no group\n", stderr);
        return;
    }
    ck_assert(verb_user_is_in_group(geteuid(), g->gr_name));
    ck_assert(!verb_user_is_in_group(OWN_UID, g->gr_name));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("verbs");
    TCase *t = tcase_create("verbs");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, entries_are_listed_with_what_the_interface_promises);
    tcase_add_test(t, what_came_over_tcp_is_shown_by_the_owner_of_its_key);
    tcase_add_test(t, statistics_have_what_the_interface_promises);
    tcase_add_test(t, an_operator_evicts_clears_and_pins);
    tcase_add_test(t, roots_are_given_up_when_cleared);
    tcase_add_loop_test(t, nobody_else_changes_anything, 0, sizeof changes / sizeof changes[0]);
    tcase_add_loop_test(t, a_wrong_parameter_is_named, 0, sizeof wrong / sizeof wrong[0]);
    tcase_add_loop_test(t, without_a_cache_each_says_why, 0, sizeof cached / sizeof cached[0]);
    tcase_add_test(t, requests_of_others_are_the_operators_only);
    tcase_add_test(t, an_explanation_has_what_the_interface_promises);
    tcase_add_test(t, membership_is_asked_of_the_system);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
