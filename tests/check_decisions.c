/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of requests, how it is counted, and the stories that are told of it. */
#include "daemon/decisions.h"

#include "daemon/request.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct decisions *d;

static void set_up(void)
{
    ck_assert_int_eq(decisions_new(&d), 0);
}

static void tear_down(void)
{
    decisions_free(d);
}

static struct decision *make(uint64_t request, const char *name)
{
    struct decision *x = decision_new(d, request, name, 1000);

    ck_assert_ptr_nonnull(x);
    return x;
}

static void make_and_forget(uint64_t request)
{
    char name[16];

    (void)snprintf(name, sizeof name, "cmpl-%" PRIu64, request);
    decision_unref(make(request, name));
}

START_TEST(the_newest_thousand_are_kept)
{
    uint64_t n = DECISIONS_KEPT + 7;

    ck_assert_ptr_null(decisions_at(d, 0));
    for (uint64_t i = 1; i <= n; i++)
        make_and_forget(i);
    for (uint32_t i = 0; i < DECISIONS_KEPT; i++)
        if (decisions_at(d, i)->request != n - i)
            ck_abort_msg("%" PRIu32 ": %" PRIu64, i, decisions_at(d, i)->request);
    ck_assert_ptr_null(decisions_at(d, DECISIONS_KEPT));
    ck_assert_ptr_null(decisions_at(d, UINT32_MAX));
}
END_TEST

START_TEST(one_that_somebody_holds_outlives_its_place)
{
    struct decision *x = make(1, "cmpl-x");

    for (uint64_t i = 2; i < DECISIONS_KEPT + 2; i++)
        make_and_forget(i);
    ck_assert_ptr_null(decisions_find(d, "1"));
    ck_assert_uint_eq(x->request, 1);
    decisions_free(d);
    ck_assert_str_eq(x->name, "cmpl-x");
    decision_unref(x);
    decision_unref(NULL);
    d = NULL;
}
END_TEST

START_TEST(one_is_found_by_its_number_and_by_its_name)
{
    decision_unref(make(5, ""));
    make_and_forget(6);
    ck_assert_uint_eq(decisions_find(d, "5")->request, 5);
    ck_assert_uint_eq(decisions_find(d, "6")->request, 6);
    ck_assert_uint_eq(decisions_find(d, "cmpl-6")->request, 6);
    ck_assert_ptr_null(decisions_find(d, "7"));
    ck_assert_ptr_null(decisions_find(d, "cmpl-"));
    ck_assert_ptr_null(decisions_find(d, "6 "));
    ck_assert_ptr_null(decisions_find(d, "")); /* not request 5, which has no name */
}
END_TEST

START_TEST(a_name_that_is_too_long_is_cut)
{
    struct decision *x;
    char name[100];

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    x = make(1, name);
    ck_assert_uint_eq(strlen(x->name), sizeof x->name - 1);
    decision_unref(x);
}
END_TEST

static void settle(uint64_t request, bool is_switch, bool is_hit, uint32_t prompt, uint32_t reused)
{
    struct decision *x = make(request, "");

    x->is_switch = is_switch;
    x->is_hit = is_hit;
    x->n_prompt = prompt;
    x->n_reused = reused;
    decision_settled(d, x);
    decision_unref(x);
}

START_TEST(totals_follow_the_definitions)
{
    struct decision_totals t, want = {.requests = 6,
                                      .switches = 4,
                                      .hits = 1,
                                      .misses = 3,
                                      .continuations = 2,
                                      .prompt_tokens = 2121,
                                      .reused_tokens = 1110};

    settle(1, true, true, 1000, 900);
    settle(2, true, false, 1000, 200); /* only a root: reused, and a miss all the same */
    settle(3, true, false, 100, 0);
    settle(4, true, false, 10, 0);
    settle(5, false, false, 10, 9);
    settle(6, false, true, 1, 1); /* a continuation is no hit, whatever it says */
    make_and_forget(7);           /* not settled */
    decisions_totals(d, &t);
    ck_assert_mem_eq(&t, &want, sizeof t);
}
END_TEST

static void event(enum cache_event_kind kind, enum cache_why why, enum cache_tier tier, uint64_t id,
                  uint64_t cause, uint32_t n_tokens, uint64_t bytes)
{
    decisions_event(d,
                    &(struct cache_event){.kind = kind,
                                          .why = why,
                                          .tier = tier,
                                          .id = id,
                                          .cause = cause,
                                          .uid = 1000,
                                          .n_tokens = n_tokens,
                                          .bytes = bytes},
                    77);
}

START_TEST(the_newest_events_are_kept)
{
    uint64_t n = DECISION_EVENTS_KEPT + 5;

    ck_assert_ptr_null(decisions_event_at(d, 0));
    for (uint64_t i = 1; i <= n; i++)
        event(CACHE_EVICTED, CACHE_WHY_SPACE, CACHE_RAM, i, 1, 10, 10);
    for (uint32_t i = 0; i < DECISION_EVENTS_KEPT; i++)
        if (decisions_event_at(d, i)->e.id != n - i)
            ck_abort_msg("%" PRIu32 ": %" PRIu64, i, decisions_event_at(d, i)->e.id);
    ck_assert_uint_eq(decisions_event_at(d, 0)->time_ns, 77);
    ck_assert_ptr_null(decisions_event_at(d, DECISION_EVENTS_KEPT));
}
END_TEST

/* --- stories -----------------------------------------------------------------------------------
 */

static void expect_story(const struct decision *x, const char *want)
{
    struct buf b = {0};

    ck_assert_int_eq(decision_explain(d, x, &b), 0);
    ck_assert_str_eq(b.data, want);
    buf_done(&b);
}

START_TEST(a_story_tells_each_part_of_the_prompt)
{
    struct decision *x = make(17, "cmpl-00ff");

    x->n_prompt = 5312;
    x->n_common = 4300;
    x->n_found = 4210;
    x->n_found_vram = 2700;
    x->root_pos = 2700;
    x->from = 12;
    x->is_switch = x->is_hit = true;
    x->source = SOURCE_RAM;
    x->why = WHY_LONGEST;
    x->est_best_ms = 250.5;
    x->est_vram_ms = 600;
    x->est_cold_ms = 1200.25;
    x->n_reused = 4210;
    x->n_read = 1102;
    x->n_generated = 200;
    x->bytes_loaded = 43201331;
    x->load_ms = 12.3;
    x->wait_ms = 1.5;
    x->read_ms = 240;
    x->total_ms = 1900.75;
    x->conversation = 31;
    x->n_kept = 5511;
    x->n_checkpoints = 3;
    x->n_superseded = 1;
    x->done = true;
    x->finish = FINISH_STOP;
    event(CACHE_EVICTED, CACHE_WHY_SPACE, CACHE_RAM, 8, 16, 1, 1); /* another's */
    event(CACHE_SUPERSEDED, CACHE_WHY_SUPERSEDED, CACHE_RAM, 12, 17, 4300, 3 << 20);
    event(CACHE_DEMOTED, CACHE_WHY_SPACE, CACHE_VRAM, 10, 17, 900, 1 << 20);
    event(CACHE_EVICTED, CACHE_WHY_SPACE, CACHE_RAM, 9, 17, 30211, 316669952);
    event(CACHE_REFUSED, CACHE_WHY_TOO_LARGE, CACHE_RAM, 0, 17, 64, 1536);
    event(CACHE_ROOT_MADE, CACHE_WHY_SPACE, CACHE_VRAM, 4, 17, 2700, 0);
    event(CACHE_ROOT_LOST, CACHE_WHY_ROOTS, CACHE_VRAM, 3, 17, 1, 0);
    event(CACHE_EVICTED, CACHE_WHY_SPACE, CACHE_RAM, 8, 0, 1, 1); /* nobody's */
    expect_story(
        x,
        "request 17 (cmpl-00ff): 5312 tokens of prompt, 4210 reused, 1102 read, 200 generated\n"
        "a switch and a hit: more than a root was found that its slot does not remember\n"
        "0..2700: reused: a root\n"
        "2700..4210: reused from conversation 12, from ram\n"
        "copied from ram to vram for it: 41.2 MiB in 12.3 ms\n"
        "4210..4300: read again: stored, but nothing between 4210 and 4300 can be resumed (no "
        "checkpoint)\n"
        "4300..5312: read: new\n"
        "estimated: 250.5 ms with the longest (4210), 600.0 ms with what is in vram (2700), 1200.2 "
        "ms reading everything; chosen: the longest stored prefix\n"
        "ended (stop) after 1900.8 ms: 1.5 ms waiting, 12.3 ms copying, 240.0 ms reading\n"
        "superseded by it: 1 tail\n"
        "evicted for it: 1 conversation\n"
        "conversation 12 of 4300 tokens is superseded: a prompt went on differently from its turn "
        "or query checkpoint (3.0 MiB)\n"
        "conversation 10 of 900 tokens left vram and is in ram: its room was needed for something "
        "of more value (1.0 MiB)\n"
        "conversation 9 of 30211 tokens left ram: its room was needed for something of more value "
        "(302.0 MiB)\n"
        "a path of 64 tokens was not taken into ram: it would not fit even alone (1.5 KiB)\n"
        "root 4 of 2700 tokens was made\n"
        "root 3 of 1 token was lost: more roots were kept than may be\n"
        "left conversation 31 of 5511 tokens with 3 new checkpoints\n");
    decision_unref(x);
}
END_TEST

START_TEST(a_cold_prompt_is_all_new)
{
    struct decision *x = make(1, "");

    x->n_prompt = x->n_read = 100;
    x->n_generated = 1;
    x->is_switch = true;
    x->why = WHY_NOTHING_STORED;
    x->est_cold_ms = 10; /* nothing to compare it with */
    expect_story(x, "request 1: 100 tokens of prompt, 0 reused, 100 read, 1 generated\n"
                    "a switch and a miss: nothing was found that can be resumed\n"
                    "0..100: read: nothing stored begins like this\n");
    decision_unref(x);
}
END_TEST

START_TEST(the_same_prompt_again_reads_its_last_token)
{
    struct decision *x = make(2, "");

    x->n_prompt = x->n_common = 100;
    x->n_found = x->n_found_vram = x->n_reused = 99;
    x->n_read = 1;
    x->from = 1;
    x->source = SOURCE_SLOT;
    x->why = WHY_LONGEST;
    expect_story(
        x, "request 2: 100 tokens of prompt, 99 reused, 1 read, 0 generated\n"
           "a continuation: the conversation that its slot remembers goes on, or is asked again\n"
           "0..99: reused from conversation 1, which its slot remembers\n"
           "99..100: read again: the last token of a prompt always is\n");
    decision_unref(x);
}
END_TEST

START_TEST(only_a_root_is_a_miss)
{
    struct decision *x = make(3, "");

    x->n_prompt = 1000;
    x->n_common = 700;
    x->n_found = x->n_found_vram = x->root_pos = x->n_reused = 640;
    x->n_read = 360;
    x->from = 5;
    x->is_switch = true;
    x->source = SOURCE_ROOT;
    x->why = WHY_LONGEST;
    expect_story(x, "request 3: 1000 tokens of prompt, 640 reused, 360 read, 0 generated\n"
                    "a switch and a miss: nothing but a root was found\n"
                    "0..640: reused: root 5\n"
                    "640..700: read again: stored, but nothing between 640 and 700 can be resumed "
                    "(no checkpoint)\n"
                    "700..1000: read: new\n");
    decision_unref(x);
}
END_TEST

static const struct {
    enum decision_why why;
    const char *words, *chosen;
} left_out[] = {
    {WHY_READING_FASTER, "stored, but reading is faster than copying it from ram",
     "a longer prefix is in ram, but copying it would take longer than reading"},
    {WHY_NO_ROOM, "stored, but there were no free pages to copy it to",
     "there were no free pages for a longer prefix"},
    {WHY_LOAD_FAILED, "stored, but copying it failed", "copying a longer prefix failed"},
};

START_TEST(a_candidate_that_was_not_taken_has_its_reason)
{
    struct decision *x = make(4, "");
    char want[1000];

    x->n_prompt = 1000;
    x->n_common = x->n_found = 800;
    x->n_found_vram = x->n_reused = 200;
    x->n_read = 800;
    x->from = 9;
    x->is_switch = x->is_hit = true;
    x->source = SOURCE_BORROWED;
    x->why = left_out[_i].why;
    x->est_vram_ms = 30;
    x->est_cold_ms = 50;
    (void)snprintf(want, sizeof want,
                   "request 4: 1000 tokens of prompt, 200 reused, 800 read, 0 generated\n"
                   "a switch and a hit: more than a root was found that its slot does not "
                   "remember\n"
                   "0..200: reused from conversation 9, borrowed: that stays as it was\n"
                   "200..800: read again: %s\n"
                   "800..1000: read: new\n"
                   "estimated: 30.0 ms with what is in vram (200), 50.0 ms reading everything; "
                   "chosen: %s\n",
                   left_out[_i].words, left_out[_i].chosen);
    expect_story(x, want);
    decision_unref(x);
}
END_TEST

START_TEST(what_it_waited_for_is_joined)
{
    struct decision *x = make(6, "");

    x->n_prompt = 1000;
    x->n_common = x->n_found = 128;
    x->n_reused = 640;
    x->n_joined = 512;
    x->joined_with = 5;
    x->n_read = 100;
    x->from = 2;
    x->is_switch = x->is_hit = true;
    x->source = SOURCE_JOINED;
    x->why = WHY_LONGEST;
    expect_story(x,
                 "request 6: 1000 tokens of prompt, 640 reused, 100 read, 0 generated\n"
                 "a switch and a hit: more than a root was found that its slot does not remember\n"
                 "0..128: reused from conversation 2\n"
                 "128..640: joined: waited for request 5, which was reading the same\n"
                 "640..1000: read: new\n"
                 "100 of these 360 tokens are read so far\n");
    x->n_joined = x->n_reused = 0;
    x->n_common = x->n_found = 0;
    x->is_hit = false;
    expect_story(x, "request 6: 1000 tokens of prompt, 0 reused, 100 read, 0 generated\n"
                    "a switch and a miss: nothing was found that can be resumed\n"
                    "waited for request 5, which left nothing that could be used\n"
                    "0..1000: read: nothing stored begins like this\n"
                    "100 of these 1000 tokens are read so far\n");
    decision_unref(x);
}
END_TEST

START_TEST(an_end_says_what_was_lost_on_the_way)
{
    struct decision *x = make(7, "");

    x->n_prompt = 100;
    x->n_read = 64;
    x->is_switch = true;
    x->why = WHY_CACHE_OFF;
    x->n_parked = 2;
    x->n_checkpoints_skipped = 1;
    x->keep_error = -ENOMEM;
    x->done = true;
    x->finish = FINISH_CANCELLED;
    x->total_ms = 5;
    expect_story(x, "request 7: 100 tokens of prompt, 0 reused, 64 read, 0 generated\n"
                    "a switch and a miss: nothing was found that can be resumed\n"
                    "0..100: read: the cache is off, for the daemon or for this request\n"
                    "64 of these 100 tokens were read before it ended\n"
                    "parked itself 2 times for want of pages\n"
                    "ended (cancelled) after 5.0 ms: 0.0 ms waiting, 0.0 ms copying, 0.0 ms "
                    "reading\n"
                    "left no conversation\n"
                    "1 checkpoint was not made: no free pages for it\n"
                    "less was kept than could have been: Cannot allocate memory\n");
    decision_unref(x);
}
END_TEST

START_TEST(before_it_has_a_slot_there_is_little_to_tell)
{
    struct decision *x = make(8, "cmpl-8");

    x->n_prompt = 1;
    expect_story(x, "request 8 (cmpl-8): 1 token of prompt, 0 reused, 0 read, 0 generated\n"
                    "waits: nothing is decided yet\n");
    x->done = true;
    x->finish = FINISH_ERROR;
    expect_story(x, "request 8 (cmpl-8): 1 token of prompt, 0 reused, 0 read, 0 generated\n"
                    "ended (error) before anything was decided\n");
    decision_unref(x);
}
END_TEST

START_TEST(a_story_with_many_events_tells_the_newest)
{
    struct decision *x = make(9, "");
    const struct decision_event *found[DECISION_EVENTS_TOLD];
    struct buf b = {0};
    size_t lines = 0;

    x->n_prompt = 10;
    x->why = WHY_NOTHING_STORED;
    for (uint64_t i = 1; i <= DECISION_EVENTS_TOLD + 3; i++)
        event(CACHE_EVICTED, CACHE_WHY_SLOTS, CACHE_VRAM, i, 9, 10, 10);
    ck_assert_uint_eq(decision_events_of(d, x, found), DECISION_EVENTS_TOLD + 3);
    ck_assert_uint_eq(found[0]->e.id, DECISION_EVENTS_TOLD + 3);
    ck_assert_uint_eq(found[DECISION_EVENTS_TOLD - 1]->e.id, 4);
    ck_assert_int_eq(decision_explain(d, x, &b), 0);
    for (const char *p = b.data; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    ck_assert_uint_eq(lines, 5 + 1 + DECISION_EVENTS_TOLD);
    ck_assert_ptr_nonnull(
        strstr(b.data, "\nevicted for it: 103 conversations\n3 older events are left out\n"
                       "conversation 4 of 10 tokens left vram: more "
                       "conversations were parked than may be (10 B)\n"));
    buf_done(&b);
    decision_unref(x);
}
END_TEST

START_TEST(a_story_that_does_not_fit_is_an_error)
{
    struct buf b = {.limit = 80};
    struct decision *x = make(10, "");

    x->n_prompt = 10;
    x->why = WHY_NOTHING_STORED;
    ck_assert_int_lt(decision_explain(d, x, &b), 0);
    buf_done(&b);
    decision_unref(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("decisions");
    TCase *t = tcase_create("decisions");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_newest_thousand_are_kept);
    tcase_add_test(t, one_that_somebody_holds_outlives_its_place);
    tcase_add_test(t, one_is_found_by_its_number_and_by_its_name);
    tcase_add_test(t, a_name_that_is_too_long_is_cut);
    tcase_add_test(t, totals_follow_the_definitions);
    tcase_add_test(t, the_newest_events_are_kept);
    tcase_add_test(t, a_story_tells_each_part_of_the_prompt);
    tcase_add_test(t, a_cold_prompt_is_all_new);
    tcase_add_test(t, the_same_prompt_again_reads_its_last_token);
    tcase_add_test(t, only_a_root_is_a_miss);
    tcase_add_loop_test(t, a_candidate_that_was_not_taken_has_its_reason, 0,
                        sizeof left_out / sizeof left_out[0]);
    tcase_add_test(t, what_it_waited_for_is_joined);
    tcase_add_test(t, an_end_says_what_was_lost_on_the_way);
    tcase_add_test(t, before_it_has_a_slot_there_is_little_to_tell);
    tcase_add_test(t, a_story_with_many_events_tells_the_newest);
    tcase_add_test(t, a_story_that_does_not_fit_is_an_error);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
