/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: what is kept and what leaves first: value, superseded tails, limits of conversations and
 * roots, shares of spaces, an operator's verbs.
 *
 * Loop tests: _i = 0 is a model that is resumed at every token, 1 one with checkpoints of 3 units.
 */
#include "tests/cache_world.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing beyond vram: what is shed is gone. */
static struct cw_world *vram_only(int i, uint32_t n_conversations, uint32_t n_roots)
{
    return cw_new(&(struct cw_options){.vram_units = 200,
                                       .checkpoint_units = i ? 3 : 0,
                                       .n_conversations = n_conversations,
                                       .n_roots = n_roots});
}

/* Sheds a unit at a time until a conversation is evicted: its id; 0 when none is left. */
static uint64_t next_to_go(struct cw_world *w)
{
    const uint64_t begin = w->n_events;

    for (int i = 0; i < 200; i++) {
        if (cw_shed(w, 1, NULL) == 0)
            return 0;
        cw_check(w);
        for (uint64_t k = begin; k < w->n_events; k++)
            if (w->events[k].kind == CACHE_EVICTED)
                return w->events[k].id;
    }
    return 0;
}

/* --- value ----------------------------------------------------------------------------------- */

START_TEST(among_equals_the_least_recently_used_leaves_first)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    uint64_t a = cw_request(w, w->space, "a128").id;
    uint64_t b = cw_request(w, w->space, "b128").id;
    uint64_t c = cw_request(w, w->space, "c128").id;

    cache_set_cause(w->cache, 77);
    ck_assert_uint_eq(next_to_go(w), a);
    ck_assert_uint_eq(w->events[0].kind, CACHE_EVICTED);
    ck_assert_uint_eq(w->events[0].why, CACHE_WHY_SPACE);
    ck_assert_uint_eq(w->events[0].cause, 77);
    ck_assert_uint_eq(w->events[0].uid, 1000);
    ck_assert_uint_eq(w->events[0].n_tokens, 128);
    ck_assert_uint_lt(cw_pos(w, w->space, "a128 z1"), 128);
    ck_assert_uint_eq(next_to_go(w), b);
    ck_assert_uint_eq(cw_pos(w, w->space, "a128 z1"), 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "c128 z1"), 128);
    ck_assert_uint_eq(next_to_go(w), c);
    ck_assert_uint_eq(cw_stats(w).evictions, 3);
    ck_assert_uint_eq(cw_stats(w).n_parked, 0);
    cw_free(w);
}
END_TEST

START_TEST(the_end_of_a_path_leaves_before_its_beginning)
{
    struct cw_world *w = vram_only(0, 0, 4);

    cw_request(w, w->space, "a320");
    for (uint32_t n = 256; n > 0; n -= 64) {
        ck_assert_uint_eq(cw_shed(w, 1, NULL), 1);
        ck_assert_uint_eq(cw_pos(w, w->space, "a320 z1"), n);
    }
    ck_assert_uint_eq(cw_shed(w, 1, NULL), 1);
    ck_assert_uint_eq(cw_shed(w, 1, NULL), 0);
    cw_free(w);
}
END_TEST

START_TEST(from_one_resumable_position_to_the_next_leaves_at_once)
{
    struct cw_world *w = vram_only(1, 0, 4);

    cw_request(w, w->space, "S128| !a200");
    /* Six pages and two checkpoints; what leaves is the end with its checkpoint, and then no page
     * stays that leads to no checkpoint while others do. */
    for (int i = 0; cw_pos(w, w->space, "S128 a200 z1") == 328; i++) {
        ck_assert_int_lt(i, 12);
        ck_assert_uint_gt(cw_shed(w, 1, NULL), 0);
    }
    ck_assert_uint_eq(cw_pos(w, w->space, "S128 a200 z1"), 128);
    cw_request(w, w->space, "b64");
    while (cw_stats(w).tier[CACHE_VRAM].units_held > 2 + 3 + 1 + 3)
        ck_assert_uint_gt(cw_shed(w, 1, NULL), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S128 a200 z1"), 128);
    ck_assert_uint_eq(cw_mount(w, w->space, "b64 z1"), 64);
    cw_free(w);
}
END_TEST

START_TEST(hits_make_it_stay_longer)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    uint64_t a = cw_request(w, w->space, "a128").id, b, c;

    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(cw_use(w, w->space, "a128 z1"), 128);
    b = cw_request(w, w->space, "b128").id;
    c = cw_request(w, w->space, "c128").id;
    ck_assert_uint_eq(next_to_go(w), b);
    ck_assert_uint_eq(next_to_go(w), c);
    ck_assert_uint_eq(next_to_go(w), a);
    cw_free(w);
}
END_TEST

START_TEST(a_use_makes_it_the_most_recent)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    uint64_t a = cw_request(w, w->space, "a128").id, b = cw_request(w, w->space, "b128").id;

    ck_assert_uint_eq(cw_use(w, w->space, "a128 z1"), 128);
    ck_assert_uint_eq(next_to_go(w), b);
    ck_assert_uint_eq(next_to_go(w), a);
    cw_free(w);
}
END_TEST

START_TEST(value_is_per_byte)
{
    /* A big checkpoint after few tokens leaves before one that took long to read, though it was
     * used later. */
    struct cw_world *w =
        cw_new(&(struct cw_options){.vram_units = 200, .checkpoint_units = 8, .n_roots = 4});
    uint64_t a = cw_request(w, w->space, "a640").id;
    uint64_t b = cw_request(w, w->space, "b64").id;

    ck_assert_uint_eq(next_to_go(w), b);
    ck_assert_uint_eq(cw_pos(w, w->space, "a640 z1"), 640);
    ck_assert_uint_eq(next_to_go(w), a);

    /* More tokens, and used later, but with two checkpoints. */
    a = cw_request(w, w->space, "a60").id;
    b = cw_request(w, w->space, "b40| b22").id;
    ck_assert_uint_eq(cw_stats(w).n_checkpoints, 3);
    ck_assert_uint_eq(next_to_go(w), b);
    cw_free(w);
}
END_TEST

START_TEST(what_others_need_too_leaves_last)
{
    /* The shared page is older than everything else, and others hang on it. */
    struct cw_world *w = vram_only(0, 0, 4);

    cw_request(w, w->space, "S64 a64");
    cw_request(w, w->space, "S64 b64");
    cw_request(w, w->space, "c64");
    ck_assert_uint_eq(cw_shed(w, 2, NULL), 2);
    ck_assert_uint_eq(cw_pos(w, w->space, "S64 a64 z1"), 64);
    ck_assert_uint_eq(cw_pos(w, w->space, "S64 b64 z1"), 64);
    cw_free(w);
}
END_TEST

/* --- superseded ------------------------------------------------------------------------------ */

START_TEST(a_superseded_tail_leaves_first_and_is_counted_apart)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cw_seq on = cw_seq("S64 c10");
    uint64_t a;

    cw_request(w, w->space, "b192"); /* less recent */
    a = cw_request(w, w->space, "S64|? ! a128").id;
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, on.t, on.n, 0), 1);
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, on.t, on.n, 0), 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_SUPERSEDED, CACHE_WHY_SUPERSEDED, a), 1);
    ck_assert_uint_eq(cw_stats(w).superseded, 1);
    ck_assert_uint_eq(cw_shed(w, _i ? 5 : 2, NULL), _i ? 5 : 2);
    ck_assert_uint_eq(cw_pos(w, w->space, "S64 a128 z1"), 64);
    ck_assert_uint_eq(cw_pos(w, w->space, "b192 z1"), 192);
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, 0), 0);
    cw_free(w);
}
END_TEST

START_TEST(nine_turns_without_their_thinking_are_one_conversation_and_8_superseded)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    char history[256] = "S64", spec[512];
    uint32_t n = 64;
    uint64_t id = 0;

    for (int turn = 0; turn < 9; turn++) {
        struct cw_result r;

        (void)snprintf(spec, sizeof spec, "%s %c20|? ! x30 %c20", history, 'A' + turn, 'a' + turn);
        r = cw_request(w, w->space, spec);
        ck_assert_uint_eq(r.n_superseded, turn > 0);
        ck_assert_uint_eq(r.reused, turn > 0 ? n : 0);
        ck_assert(turn == 0 || r.id == id);
        id = r.id;
        n = n + (turn > 0 ? 40 : 20);
        (void)snprintf(history + strlen(history), 16, " %c20 %c20", 'A' + turn, 'a' + turn);
    }
    ck_assert_uint_eq(cw_stats(w).superseded, 8);
    ck_assert_uint_eq(cw_n_events(w, CACHE_SUPERSEDED, CW_ANY, id), 8);
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    ck_assert_uint_eq(cw_stats(w).parks, 9);
    cw_free(w);
}
END_TEST

START_TEST(a_tool_loops_thinking_is_superseded_from_the_query)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cw_result a = cw_request(w, w->space, "S64 u10? t20 x30| !a30"), b;

    b = cw_request(w, w->space, "S64 u10 a30 v20?| !b30");
    ck_assert(b.resumed && b.id == a.id);
    ck_assert_uint_eq(b.reused, 74);
    ck_assert_uint_eq(b.n_superseded, 1);
    cw_free(w);
}
END_TEST

START_TEST(a_prompt_that_leaves_before_the_query_is_an_edit)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cw_seq edit = cw_seq("S64 u9 v10"), short_of = cw_seq("S64 u10"),
                  same = cw_seq("S64 u10 t20 x30 a30 w5"), end = cw_seq("S64 u10 t20 x30 a10");

    cw_request(w, w->space, "S64 u10? t20 x30| !a30");
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, edit.t, edit.n, 0), 0);
    /* Nor is it left by what does not go on, or goes the same way. */
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, short_of.t, short_of.n, 0), 0);
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, same.t, same.n, 0), 0);
    ck_assert_uint_eq(cache_supersede(w->cache, w->space, end.t, end.n, 0), 0);
    ck_assert_uint_eq(cw_stats(w).superseded, 0);
    cw_free(w);
}
END_TEST

/* --- limits of conversations ----------------------------------------------------------------- */

START_TEST(more_parked_conversations_than_may_be_evict_the_least_valuable)
{
    struct cw_world *w = vram_only(_i, 2, 4);
    uint64_t b;

    cw_request(w, w->space, "a128");
    b = cw_request(w, w->space, "b128").id;
    ck_assert_uint_eq(cw_stats(w).n_conversations_limit, 2);
    ck_assert_uint_eq(cw_use(w, w->space, "a128 z1"), 128);
    cw_request(w, w->space, "c128");
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_SLOTS, b), 1);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    ck_assert_uint_eq(cw_stats(w).evictions, 1);
    ck_assert_uint_eq(cw_pos(w, w->space, "b128 z1"), 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "a128 z1"), 128);
    ck_assert_uint_eq(cw_pos(w, w->space, "c128 z1"), 128);
    cw_free(w);
}
END_TEST

START_TEST(superseded_ones_are_the_first_to_make_place_for_a_parked_one)
{
    struct cw_world *w = vram_only(_i, 2, 4);
    struct cw_seq on = cw_seq("S64 c10");
    uint64_t b = cw_request(w, w->space, "b192").id;
    uint64_t a = cw_request(w, w->space, "S64|? ! a128").id;

    ck_assert_uint_eq(cache_supersede(w->cache, w->space, on.t, on.n, 0), 1);
    cw_request(w, w->space, "d192");
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    ck_assert_uint_eq(cw_pos(w, w->space, "b192 z1"), 192);
    ck_assert_uint_eq(cw_pos(w, w->space, "d192 z1"), 192);
    ck_assert_int_eq(cache_entry(w->cache, b, &(struct cache_entry){0}), 0);
    ck_assert_int_eq(cache_entry(w->cache, a, &(struct cache_entry){0}), -ENOENT);
    cw_free(w);
}
END_TEST

START_TEST(active_conversations_are_not_counted)
{
    struct cw_world *w = vram_only(_i, 2, 4);
    uint64_t a = cw_request(w, w->space, "a128").id;

    cw_request(w, w->space, "b128");
    ck_assert(cache_resume_conversation(w->cache, a, w->now));
    cw_request(w, w->space, "c128");
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    ck_assert_uint_eq(cw_stats(w).n_active, 1);
    w->now += CW_SECOND;
    cache_abandon_conversation(w->cache, a, w->now);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    ck_assert_uint_eq(cw_stats(w).n_active, 0);
    ck_assert_uint_eq(cw_stats(w).evictions, 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_SLOTS, 0), 1);
    cw_free(w);
}
END_TEST

START_TEST(lowered_limits_evict_at_once_but_nothing_that_is_held)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cache_pin p = {0};
    struct cache_found f;
    uint64_t b, c;

    cw_request(w, w->space, "a128");
    f = cw_find(w, w->space, "a128 z1");
    ck_assert_int_eq(cache_pin(w->cache, w->space, &f.best, w->now, &p), 0);
    b = cw_request(w, w->space, "b128").id;
    w->now += 24 * 3600 * CW_SECOND; /* whatever the pin was worth */
    c = cw_request(w, w->space, "c128").id;
    w->limits.n_conversations = 1;
    cache_set_limits(w->cache, &w->limits);
    cw_check(w);
    ck_assert_uint_eq(cw_mount(w, w->space, "a128 z1"), 128);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_LIMITS, b), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_LIMITS, c), 1);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    cache_unpin(w->cache, &p);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    cw_free(w);
}
END_TEST

START_TEST(a_request_can_leave_no_trace)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("a200");

    cw_run_begin(r, w, w->space, &q, false);
    ck_assert(cw_run_start(r));
    ck_assert(cw_run_read(r, 200));
    cw_run_abandon(r);
    cw_check(w);
    ck_assert_uint_eq(cw_stats(w).n_parked + cw_stats(w).n_active, 0);
    ck_assert_uint_eq(cw_stats(w).parks, 0);
    free(r);
    cw_free(w);
}
END_TEST

/* --- shares ---------------------------------------------------------------------------------- */

static uint32_t n_whole(struct cw_world *w, struct cache_space *s, const char *names)
{
    uint32_t n = 0;

    for (; *names; names++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c192 z1", *names);
        n += cw_pos(w, s, spec) == 192;
    }
    return n;
}

START_TEST(no_space_holds_more_than_its_share_while_others_want_room)
{
    struct cw_world *w = cw_new(&(struct cw_options){.vram_units = 12, .ram_units = 12});
    struct cache_space *two = cache_space_get(w->cache, "two", 3, 1001);

    /* The oldest of all, but its space holds less than half. */
    cw_request(w, two, "Y192");
    cw_demote_all(w);
    for (char c = 'a'; c < 'k'; c++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c192", c);
        cw_request(w, w->space, spec);
        cw_demote_all(w);
    }
    ck_assert_uint_eq(n_whole(w, two, "Y"), 1);
    ck_assert_uint_eq(n_whole(w, w->space, "abcdefghij"), 3);
    /* Now it wants its half, and gets no more. */
    for (char c = 'k'; c < 'n'; c++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c192", c);
        cw_request(w, two, spec);
        cw_demote_all(w);
    }
    ck_assert_uint_eq(n_whole(w, w->space, "abcdefghij"), 2);
    ck_assert_uint_eq(n_whole(w, w->space, "ij"), 2);
    ck_assert_uint_eq(n_whole(w, two, "Yklm"), 2);
    cache_space_unref(w->cache, two);
    cw_free(w);
}
END_TEST

START_TEST(salts_of_one_user_make_no_shares)
{
    struct cw_world *w = cw_new(&(struct cw_options){.vram_units = 12, .ram_units = 12});
    struct cache_space *salted[8];

    for (int i = 0; i < 8; i++) {
        char key[] = {'s', (char)('0' + i)};

        salted[i] = cache_space_get(w->cache, key, sizeof key, 1000);
        cw_request(w, salted[i], "Y64");
        cw_demote_all(w);
    }
    /* Of the same uid: what is older makes way, as within one space. */
    cw_request(w, w->space, "a192");
    cw_demote_all(w);
    cw_request(w, w->space, "b192");
    cw_demote_all(w);
    for (int i = 0; i < 4; i++) {
        cw_request(w, salted[i], "Z64");
        cw_demote_all(w);
    }
    ck_assert_uint_eq(n_whole(w, w->space, "ab"), 2);
    for (int i = 0; i < 8; i++)
        cache_space_unref(w->cache, salted[i]);
    cw_free(w);
}
END_TEST

/* --- an operator's verbs --------------------------------------------------------------------- */

START_TEST(clear_forgets_all_but_what_is_held_or_pinned)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    struct cw_result a = cw_request(w, w->space, "S100/ u20| !a40");
    struct cache_found f;
    struct cache_pin p;

    cw_request(w, w->space, "T100/ b40");
    cw_request(w, w->space, "c140");
    cw_request(w, w->space, "d140");
    ck_assert_int_eq(cache_pin_root(w->cache, a.root, true, w->now), 0);
    f = cw_find(w, w->space, "d140 z1");
    ck_assert_int_eq(cache_pin(w->cache, w->space, &f.best, w->now, &p), 0);
    ck_assert_uint_eq(cache_clear(w->cache), 3);
    cw_check(w);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 u20 a40 z1"), 100);
    ck_assert_uint_eq(cw_pos(w, w->space, "T100 b40 z1"), 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "c140 z1"), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "d140 z1"), 140);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_OPERATOR, 0), 3);
    ck_assert_uint_eq(cw_stats(w).n_roots, 1);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    cache_unpin(w->cache, &p);
    ck_assert_uint_eq(cache_clear(w->cache), 1);
    ck_assert_uint_eq(cw_pos(w, w->space, "d140 z1"), 0);
    cw_free(w);
}
END_TEST

START_TEST(evict_moves_one_tier_down_and_forget_out_of_all)
{
    struct cw_world *w = cw_new(
        &(struct cw_options){.vram_units = 50, .ram_units = 50, .checkpoint_units = _i ? 3 : 0});
    uint64_t a = cw_request(w, w->space, "a128").id, b = cw_request(w, w->space, "b128").id;
    struct cache_found f;
    struct cache_pin p;
    struct cache_entry e;

    cw_settle(w);
    ck_assert_int_eq(cache_evict(w->cache, a, false), 0);
    ck_assert_int_eq(cache_entry(w->cache, a, &e), 0);
    ck_assert_uint_eq(e.n_pages_vram, 0);
    ck_assert_uint_eq(e.n_pages_ram, 2);
    ck_assert_uint_eq(cw_n_events(w, CACHE_DEMOTED, CACHE_WHY_OPERATOR, a), 1);
    ck_assert_uint_eq(cw_stats(w).demotions, 1);
    ck_assert_int_eq(cache_evict(w->cache, a, false), 0);
    ck_assert_int_eq(cache_evict(w->cache, a, false), -ENOENT);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_OPERATOR, a), 1);
    ck_assert_uint_eq(cw_pos(w, w->space, "a128 z1"), 0);

    f = cw_find(w, w->space, "b128 z1");
    ck_assert_int_eq(cache_pin(w->cache, w->space, &f.best, w->now, &p), 0);
    ck_assert_int_eq(cache_evict(w->cache, b, true), -EBUSY);
    cache_unpin(w->cache, &p);
    ck_assert_int_eq(cache_evict(w->cache, b, true), 0);
    ck_assert_int_eq(cache_entry(w->cache, b, &e), -ENOENT);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_held, 0);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_RAM].units_held, 0);
    ck_assert_uint_eq(cw_stats(w).evictions, 2);

    /* Without a copy in ram it is copied first. */
    b = cw_request(w, w->space, "c128").id;
    ck_assert_int_eq(cache_evict(w->cache, b, false), 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "c128 z1"), 128);
    cw_settle(w);
    ck_assert_int_eq(cache_entry(w->cache, b, &e), 0);
    ck_assert_uint_eq(e.n_pages_vram, 0);
    ck_assert_uint_eq(e.n_pages_ram, 2);
    ck_assert_uint_eq(cw_mount(w, w->space, "c128 z1"), 128);

    /* A superseded tail that hangs on its path is nobody's: it does not hold the rest. */
    b = cw_request(w, w->space, "d300| !e100").id;
    ck_assert_uint_eq(cw_request(w, w->space, "d300| f40| !e10").id, b);
    ck_assert_uint_eq(cw_stats(w).superseded, 1);
    cw_settle(w);
    ck_assert_int_eq(cache_evict(w->cache, b, false), 0);
    ck_assert_int_eq(cache_entry(w->cache, b, &e), 0);
    ck_assert_uint_eq(e.n_pages_vram, 0);
    ck_assert_uint_eq(e.n_pages_ram, 6);
    ck_assert_int_eq(cache_evict(w->cache, b, true), 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "d300 z1"), 0);
    cw_free(w);
}
END_TEST

START_TEST(forgetting_one_leaves_what_others_share)
{
    struct cw_world *w = vram_only(_i, 0, 4);
    uint64_t a = cw_request(w, w->space, "S128 a128").id;

    ck_assert_uint_ne(cw_request(w, w->space, "S128 b128").id, a);
    ck_assert_int_eq(cache_evict(w->cache, a, true), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S128 b128 z1"), 256);
    ck_assert_uint_eq(cw_mount(w, w->space, "S128 a128 z1"), 128);
    cw_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_kept");
    TCase *t = tcase_create("cache_kept");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, among_equals_the_least_recently_used_leaves_first, 0, 2);
    tcase_add_test(t, the_end_of_a_path_leaves_before_its_beginning);
    tcase_add_test(t, from_one_resumable_position_to_the_next_leaves_at_once);
    tcase_add_loop_test(t, hits_make_it_stay_longer, 0, 2);
    tcase_add_loop_test(t, a_use_makes_it_the_most_recent, 0, 2);
    tcase_add_test(t, value_is_per_byte);
    tcase_add_test(t, what_others_need_too_leaves_last);
    tcase_add_loop_test(t, a_superseded_tail_leaves_first_and_is_counted_apart, 0, 2);
    tcase_add_loop_test(t, nine_turns_without_their_thinking_are_one_conversation_and_8_superseded,
                        0, 2);
    tcase_add_loop_test(t, a_tool_loops_thinking_is_superseded_from_the_query, 0, 2);
    tcase_add_loop_test(t, a_prompt_that_leaves_before_the_query_is_an_edit, 0, 2);
    tcase_add_loop_test(t, more_parked_conversations_than_may_be_evict_the_least_valuable, 0, 2);
    tcase_add_loop_test(t, superseded_ones_are_the_first_to_make_place_for_a_parked_one, 0, 2);
    tcase_add_loop_test(t, active_conversations_are_not_counted, 0, 2);
    tcase_add_loop_test(t, lowered_limits_evict_at_once_but_nothing_that_is_held, 0, 2);
    tcase_add_loop_test(t, a_request_can_leave_no_trace, 0, 2);
    tcase_add_test(t, no_space_holds_more_than_its_share_while_others_want_room);
    tcase_add_test(t, salts_of_one_user_make_no_shares);
    tcase_add_loop_test(t, clear_forgets_all_but_what_is_held_or_pinned, 0, 2);
    tcase_add_loop_test(t, evict_moves_one_tier_down_and_forget_out_of_all, 0, 2);
    tcase_add_loop_test(t, forgetting_one_leaves_what_others_share, 0, 2);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
