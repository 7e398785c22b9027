/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: what is found and mounted, how paths share, grow and are told apart.
 *
 * Loop tests: _i = 0 is a model that is resumed at every token, 1 one with checkpoints of 3 units.
 */
#include "tests/cache_world.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cw_world *roomy(int i)
{
    return cw_new(&(struct cw_options){
        .vram_units = 200, .ram_units = 200, .checkpoint_units = i ? 3 : 0, .n_roots = 4});
}

/* --- find ------------------------------------------------------------------------------------ */

START_TEST(without_checkpoints_every_token_is_resumed_at)
{
    struct cw_world *w = roomy(0);
    char spec[32];

    cw_request(w, w->space, "S200");
    for (uint32_t n = 1; n <= 200; n++) {
        struct cache_match m;

        (void)snprintf(spec, sizeof spec, "S%u z1", n);
        m = cw_find(w, w->space, spec).best;
        ck_assert_uint_eq(m.pos, n);
        ck_assert_uint_eq(m.n_pages, (n + 63) / 64);
        ck_assert_uint_eq(m.n_pages_vram, m.n_pages);
        ck_assert_uint_eq(m.units_to_load, 0);
        ck_assert_ptr_null(m.checkpoint);
        ck_assert_uint_eq(cw_find(w, w->space, spec).n_common, n);
        ck_assert_uint_eq(cw_mount(w, w->space, spec), n);
    }
    cw_free(w);
}
END_TEST

START_TEST(with_checkpoints_they_alone_are_resumed_at)
{
    struct cw_world *w = roomy(1);
    char spec[32];

    /* Around the end of a page, and in the middle of one. */
    cw_request(w, w->space, "S63/ T1? U36| !V100");
    for (uint32_t n = 1; n <= 200; n++) {
        const uint32_t want = n < 63 ? 0 : n < 64 ? 63 : n < 100 ? 64 : n < 200 ? 100 : 200;
        struct cache_found f;

        if (n <= 63)
            (void)snprintf(spec, sizeof spec, "S%u z1", n);
        else if (n <= 64)
            (void)snprintf(spec, sizeof spec, "S63 T1 z1");
        else if (n <= 100)
            (void)snprintf(spec, sizeof spec, "S63 T1 U%u z1", n - 64);
        else
            (void)snprintf(spec, sizeof spec, "S63 T1 U36 V%u z1", n - 100);
        f = cw_find(w, w->space, spec);
        ck_assert_uint_eq(f.best.pos, want);
        ck_assert_uint_eq(f.best.n_pages, (want + 63) / 64);
        ck_assert_uint_eq(f.n_common, n);
        ck_assert(want == 0 || f.best.checkpoint);
        ck_assert_uint_eq(cw_mount(w, w->space, spec), want);
    }
    cw_free(w);
}
END_TEST

START_TEST(at_least_one_token_is_left_to_read)
{
    struct cw_world *w = roomy(_i);
    struct cache_found f;
    struct cw_seq q;

    cw_request(w, w->space, "S100| !a100");
    /* Equal to a stored one, a prefix of one, ends exactly at a checkpoint. */
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 a100"), _i ? 100 : 199);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 a60"), _i ? 100 : 159);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100"), _i ? 0 : 99);
    ck_assert_uint_eq(cw_mount(w, w->space, "S1"), 0);
    q = cw_seq("S100 a100");
    for (uint32_t most = 0; most < 200; most++) {
        cache_find(w->cache, w->space, q.t, 200, most, &f);
        ck_assert_uint_eq(f.best.pos, !_i ? most : most < 100 ? 0 : 100);
    }
    cw_free(w);
}
END_TEST

START_TEST(what_lies_in_ram_is_found_and_what_is_in_vram_is_told_apart)
{
    struct cw_world *w = roomy(_i);
    struct cache_found f;

    cw_request(w, w->space, "S128| !a72");
    cw_demote_all(w);
    f = cw_find(w, w->space, "S128 a72 z1");
    ck_assert_uint_eq(f.best.pos, 200);
    ck_assert_uint_eq(f.best.n_pages_vram, 0);
    ck_assert_uint_eq(f.best.units_to_load, _i ? 7 : 4);
    ck_assert_uint_eq(f.vram.pos, 0);
    /* Now the first two pages (and the checkpoint behind them) come back. */
    ck_assert_uint_eq(cw_mount(w, w->space, "S128 b1"), 128);
    f = cw_find(w, w->space, "S128 a72 z1");
    ck_assert_uint_eq(f.best.pos, 200);
    ck_assert_uint_eq(f.best.n_pages_vram, 2);
    ck_assert_uint_eq(f.best.units_to_load, _i ? 5 : 2);
    ck_assert_uint_eq(f.vram.pos, 128);
    ck_assert_uint_eq(f.vram.n_pages_vram, 2);
    ck_assert_uint_eq(f.vram.units_to_load, 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S128 a72 z1"), 200);
    cw_free(w);
}
END_TEST

/* --- paths ----------------------------------------------------------------------------------- */

START_TEST(prompts_that_differ_inside_a_page_have_a_page_each)
{
    struct cw_world *w = roomy(_i);

    cw_request(w, w->space, "S100 a60");
    cw_request(w, w->space, "S100 b60");
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 a60 z1"), 160);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 b60 z1"), 160);
    /* One for S, two for each from there on. */
    ck_assert_uint_eq(cw_stats(w).n_pages, 5);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    cw_free(w);
}
END_TEST

START_TEST(pages_that_differ_in_their_first_or_last_token_are_two)
{
    struct cw_world *w = roomy(_i);

    cw_request(w, w->space, "S127 a1 c10");
    cw_request(w, w->space, "S127 b1 c10");
    cw_request(w, w->space, "d1 S127");
    ck_assert_uint_eq(cw_mount(w, w->space, "S127 a1 c10 z1"), 138);
    ck_assert_uint_eq(cw_mount(w, w->space, "S127 b1 c10 z1"), 138);
    ck_assert_uint_eq(cw_mount(w, w->space, "d1 S127 z1"), 128);
    ck_assert_uint_eq(cw_stats(w).n_pages, 1 + 2 + 2 + 2);
    cw_free(w);
}
END_TEST

START_TEST(a_partial_page_is_extended)
{
    struct cw_world *w = roomy(_i);

    cw_request(w, w->space, "S70");
    cw_request(w, w->space, "S70 a30");
    ck_assert_uint_eq(cw_stats(w).n_pages, 2);
    ck_assert_uint_eq(cw_mount(w, w->space, "S70 a30 z1"), 100);
    ck_assert_uint_eq(cw_mount(w, w->space, "S70 z1"), 70);
    cw_request(w, w->space, "S70 a100");
    ck_assert_uint_eq(cw_stats(w).n_pages, 3);
    ck_assert_uint_eq(cw_mount(w, w->space, "S70 a100 z1"), 170);
    ck_assert_uint_eq(cw_mount(w, w->space, "S70 z1"), 70);
    /* A turn each time: it is one conversation. */
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    cw_free(w);
}
END_TEST

START_TEST(a_prefix_of_a_stored_path_takes_no_pages)
{
    struct cw_world *w = roomy(_i);
    struct cw_result r;
    uint32_t held;

    cw_request(w, w->space, "S200");
    held = cw_stats(w).tier[CACHE_VRAM].units_held;
    r = cw_request(w, w->space, "S90");
    ck_assert_uint_ne(r.id, 0);
    ck_assert_uint_eq(r.reused, _i ? 0 : 89);
    ck_assert_uint_eq(cw_stats(w).n_pages, 4);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_held, held + (_i ? 3 : 0));
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    ck_assert_uint_eq(cw_mount(w, w->space, "S90 z1"), 90);
    ck_assert_uint_eq(cw_mount(w, w->space, "S200 z1"), 200);
    cw_free(w);
}
END_TEST

START_TEST(siblings_that_share_k_tokens_share_checkpoints_up_to_k)
{
    struct cw_world *w = roomy(1);

    cw_request(w, w->space, "S80| T20 !a60");
    /* The second one reads on from 80 and leaves a checkpoint where it left the first: in its own
     * page, but the first one's tokens lead there as well. */
    ck_assert_uint_eq(cw_request(w, w->space, "S80 T20 b60").reused, 80);
    ck_assert_uint_eq(cw_mount(w, w->space, "S80 T20 a5 z1"), 100);
    ck_assert_uint_eq(cw_mount(w, w->space, "S80 T20 b5 z1"), 100);
    ck_assert_uint_eq(cw_mount(w, w->space, "S80 T20 c5"), 100);
    /* A third sibling that comes later has them too. */
    cw_request(w, w->space, "S80 T20 c90");
    ck_assert_uint_eq(cw_mount(w, w->space, "S80 T20 c7 z1"), 100);
    ck_assert_uint_eq(cw_mount(w, w->space, "S80 T3 z1"), 80);
    ck_assert_uint_eq(cw_mount(w, w->space, "S79 z1"), 0);
    cw_free(w);
}
END_TEST

START_TEST(the_branch_point_is_reported)
{
    struct cw_world *w = roomy(_i);
    struct cw_result r;

    r = cw_request(w, w->space, "S100| a60");
    ck_assert_uint_eq(r.n_common, 0);
    r = cw_request(w, w->space, "S100 a20 b60");
    ck_assert_uint_eq(r.n_common, 120);
    ck_assert_uint_eq(r.reused, _i ? 100 : 120);
    r = cw_request(w, w->space, "S100 a20 c60");
    ck_assert_uint_eq(r.n_common, 120);
    ck_assert_uint_eq(r.reused, 120);
    cw_free(w);
}
END_TEST

START_TEST(a_checkpoint_needs_a_published_page)
{
    struct cw_world *w = roomy(1);
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("S100");
    uint32_t units[3] = {cw_take(w), cw_take(w), cw_take(w)};

    cw_run_begin(r, w, w->space, &q, false);
    ck_assert(cw_run_start(r));
    ck_assert(cw_run_read(r, 63));
    ck_assert_int_eq(cache_add_checkpoint(w->cache, &r->cursor, q.t, 63, CACHE_AT_TURN, units),
                     -ENOENT);
    ck_assert(cw_run_read(r, 37));
    ck_assert_int_eq(cache_add_checkpoint(w->cache, &r->cursor, q.t + 64, 65, CACHE_AT_TURN, units),
                     -ENOENT);
    ck_assert(!cache_has_checkpoint(w->cache, &r->cursor, q.t, 64));
    ck_assert_int_eq(cache_add_checkpoint(w->cache, &r->cursor, q.t + 64, 64, CACHE_AT_TURN, units),
                     0);
    ck_assert(cache_has_checkpoint(w->cache, &r->cursor, q.t + 64, 64));
    ck_assert(!cache_has_checkpoint(w->cache, &r->cursor, q.t + 64, 63));
    cw_run_abandon(r);
    ck_assert_uint_eq(cw_pos(w, w->space, "S65"), 64);
    for (int i = 0; i < 3; i++)
        cw_unref(w, units[i]);
    free(r);
    cw_free(w);
}
END_TEST

START_TEST(of_too_many_checkpoints_those_that_leave_the_smallest_gap_go)
{
    /* 16 at the ends of pages and one between: that one goes.  A root's is not counted. */
    for (int root = 0; root < 2; root++) {
        struct cw_world *w =
            cw_new(&(struct cw_options){.vram_units = 200, .checkpoint_units = 1, .n_roots = 4});
        struct cw_run *r = calloc(1, sizeof *r);
        struct cw_seq q = cw_seq("S1024");
        char spec[32];

        q.root = root ? 320 : 0;
        cw_run_begin(r, w, w->space, &q, false);
        ck_assert(cw_run_start(r));
        cw_run_capture(r, 330, CACHE_AT_INTERVAL);
        for (uint32_t i = 1; i <= 16; i++)
            cw_run_capture(r, 64 * i, CACHE_AT_INTERVAL);
        if (root)
            cw_run_capture(r, 320, CACHE_AT_ROOT);
        ck_assert(cw_run_read(r, 1024));
        ck_assert_uint_ne(cw_run_park(r), 0);
        ck_assert_int_eq(r->root != 0, root);
        cw_check(w);
        for (uint32_t i = 1; i <= 16; i++) {
            (void)snprintf(spec, sizeof spec, "S%u z1", 64 * i);
            ck_assert_uint_eq(cw_pos(w, w->space, spec), 64 * i);
        }
        ck_assert_uint_eq(cw_pos(w, w->space, "S330 z1"), root ? 330 : 320);
        free(r);
        cw_free(w);
    }
}
END_TEST

/* --- whose path it is ------------------------------------------------------------------------ */

START_TEST(a_prompt_goes_on_past_turn_query_or_end_and_borrows_otherwise)
{
    struct cw_world *w = roomy(_i);
    uint64_t a = cw_request(w, w->space, "S100/ u20? t30| !a50").id;
    struct cache_match m;

    ck_assert_uint_ne(a, 0);
    m = cw_find(w, w->space, "S100 u20 t30 a50 v9").best; /* the next turn */
    ck_assert(m.continues && m.conversation == a && m.pos == 200);
    m = cw_find(w, w->space, "S100 u20 t30 b50 v9").best; /* the thinking was dropped */
    ck_assert(m.continues && m.conversation == a && m.pos == 150);
    m = cw_find(w, w->space, "S100 u20 b50 v9").best; /* the loop's thinking was dropped */
    ck_assert(m.continues && m.conversation == a && m.pos == 120);
    m = cw_find(w, w->space, "S100 w20 b50").best; /* another chat, or an edit */
    ck_assert(!m.continues && m.pos == 100);
    /* Going on makes it active; then it can be borrowed from only. */
    ck_assert(cache_resume_conversation(w->cache, a, w->now));
    ck_assert(!cache_resume_conversation(w->cache, a, w->now));
    ck_assert(!cache_resume_conversation(w->cache, a + 1000, w->now));
    ck_assert_uint_eq(cw_stats(w).n_active, 1);
    ck_assert_uint_eq(cw_stats(w).n_parked, 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "S100 u20 t30 a50 v9"), 200);
    cache_abandon_conversation(w->cache, a, w->now);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    ck_assert(cache_resume_conversation(w->cache, a, w->now));
    cache_abandon_conversation(w->cache, a, w->now);
    cw_free(w);
}
END_TEST

START_TEST(a_borrower_leaves_the_lender_as_it_was)
{
    struct cw_world *w = roomy(_i);
    struct cw_result a = cw_request(w, w->space, "S100/ u20|? !a50"), b, c;

    b = cw_request(w, w->space, "S100/ v20|? !b50");
    ck_assert(!b.resumed && b.id != a.id && b.reused == 100 && b.n_superseded == 0);
    c = cw_request(w, w->space, "S100/ u20 a50 w20|? !c50");
    ck_assert(c.resumed && c.id == a.id && c.reused == 170 && c.n_superseded == 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 v20 b50 z1"), 170);
    ck_assert_uint_eq(cw_stats(w).n_parked, 2);
    cw_free(w);
}
END_TEST

START_TEST(of_several_paths_the_most_recent_requests_is_meant)
{
    struct cw_world *w = roomy(_i);
    uint64_t a = cw_request(w, w->space, "S150 a50| !x9").id;
    uint64_t b = cw_request(w, w->space, "S150 b50| !y9").id;

    ck_assert_uint_eq(cw_find(w, w->space, "S150 c9").best.conversation, b);
    ck_assert_uint_eq(cw_request(w, w->space, "S150 a50 x9 d9| !e9").id, a);
    ck_assert_uint_eq(cw_find(w, w->space, "S150 c9").best.conversation, a);
    cw_free(w);
}
END_TEST

START_TEST(what_was_before_an_edit_stays_and_going_back_is_a_hit_of_whole_length)
{
    struct cw_world *w = roomy(_i);
    struct cw_result a = cw_request(w, w->space, "S70/ u50?| !a40"), b, c;

    a = cw_request(w, w->space, "S70/ u50 a40 v30?| !b40");
    b = cw_request(w, w->space, "S70/ e50?| !c40"); /* the first message is edited */
    ck_assert_uint_ne(b.id, a.id);
    ck_assert_uint_eq(b.n_superseded, 0);
    c = cw_request(w, w->space, "S70/ u50 a40 v30 b40 w10?| !d10");
    ck_assert_uint_eq(c.reused, 230);
    ck_assert_uint_eq(c.id, a.id);
    ck_assert_uint_eq(cw_mount(w, w->space, "S70 e50 c40 z1"), 160);
    ck_assert_uint_eq(cw_stats(w).superseded, 0);
    cw_free(w);
}
END_TEST

/* --- spaces ---------------------------------------------------------------------------------- */

START_TEST(nothing_is_found_from_another_space)
{
    struct cw_world *w = roomy(_i);
    struct cache_space *other = cache_space_get(w->cache, "two", 3, 1001), *again;
    struct cache_found f;
    uint32_t held;

    ck_assert_ptr_ne(other, w->space);
    again = cache_space_get(w->cache, "two", 3, 1001);
    ck_assert_ptr_eq(again, other);
    cache_space_unref(w->cache, again);
    again = cache_space_get(w->cache, "tw", 2, 1001);
    ck_assert_ptr_ne(again, other);
    cache_space_unref(w->cache, again);

    cw_request(w, w->space, "S100/ u20| !a40");
    held = cw_stats(w).tier[CACHE_VRAM].units_held;
    f = cw_find(w, other, "S100 u20 a40 z1");
    ck_assert_uint_eq(f.best.pos, 0);
    ck_assert_uint_eq(f.vram.pos, 0);
    ck_assert_uint_eq(f.n_common, 0);
    ck_assert_uint_eq(f.best.conversation, 0);
    ck_assert_uint_eq(cw_request(w, other, "S100/ u20| !a40").reused, 0);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_held, 2 * held);
    ck_assert_uint_eq(cw_mount(w, other, "S100 u20 a40 z1"), 160);
    cache_space_unref(w->cache, other);
    cw_free(w);
}
END_TEST

START_TEST(a_space_outlives_its_last_reference_while_something_is_in_it)
{
    struct cw_world *w = roomy(_i);
    struct cache_space *other = cache_space_get(w->cache, "two", 3, 1001);

    cw_request(w, other, "S100");
    cache_space_unref(w->cache, other);
    other = cache_space_get(w->cache, "two", 3, 1001);
    ck_assert_uint_eq(cw_mount(w, other, "S100 z1"), 100);
    cache_space_unref(w->cache, other);
    cache_space_unref(w->cache, NULL);
    cw_free(w);
}
END_TEST

/* A found match, pinned from `s`: by reference, and there. */
static void use_shared(struct cw_world *w, struct cache_space *s, const char *spec, uint32_t want)
{
    struct cache_found f = cw_find(w, s, spec);
    struct cache_pin p = {0};
    uint32_t vram = cw_stats(w).tier[CACHE_VRAM].units_held;

    ck_assert_uint_eq(f.best.pos, want);
    ck_assert_uint_eq(f.best.root_pos, want);
    ck_assert_ptr_ne(f.best.space, s);
    ck_assert_int_eq(cache_pin(w->cache, s, &f.best, w->now, &p), 0);
    ck_assert_ptr_eq(p.m.space, s);
    ck_assert_uint_eq(p.m.pos, want);
    cw_check(w);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_held, vram);
    cache_unpin(w->cache, &p);
}

START_TEST(a_pinned_root_is_shared_by_reference)
{
    struct cw_world *w = roomy(_i);
    struct cache_space *two = cache_space_get(w->cache, "two", 3, 1001);
    struct cache_space *three = cache_space_get(w->cache, "three", 5, 1002);
    struct cw_result a = cw_request(w, w->space, "S100/ u20| !a40");
    struct cache_stats before, after;

    cw_settle(w);
    ck_assert_uint_eq(cw_pos(w, two, "S100 u20 z1"), 0);
    before = cw_stats(w);
    ck_assert_int_eq(cache_pin_root(w->cache, a.root, true, w->now), 0);
    ck_assert_int_eq(cache_pin_root(w->cache, a.root, true, w->now), 0);
    ck_assert_int_eq(cache_pin_root(w->cache, 12345, true, w->now), -ENOENT);
    cw_check(w);
    after = cw_stats(w);
    ck_assert_uint_eq(after.tier[CACHE_VRAM].units_held, before.tier[CACHE_VRAM].units_held);
    ck_assert_uint_eq(after.tier[CACHE_RAM].units_held, before.tier[CACHE_RAM].units_held);
    ck_assert_uint_eq(after.n_pinned, 1);
    use_shared(w, two, "S100 u20 z1", 100);
    ck_assert_uint_eq(cw_mount(w, two, "S100 u20 z1"), 100);
    ck_assert_uint_eq(cw_request(w, two, "S100 x20| !y40").reused, 100);
    /* Not for those who come after the pin was taken away. */
    ck_assert_int_eq(cache_pin_root(w->cache, a.root, false, w->now), 0);
    ck_assert_uint_eq(cw_stats(w).n_pinned, 0);
    ck_assert_uint_eq(cw_pos(w, three, "S100 u20 z1"), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 u20 a40 z1"), 160);
    cw_check(w);
    cache_space_unref(w->cache, two);
    cache_space_unref(w->cache, three);
    cw_free(w);
}
END_TEST

/* --- the list -------------------------------------------------------------------------------- */

START_TEST(entries_tell_what_is_there)
{
    struct cw_world *w = roomy(_i);
    struct cw_result a = cw_request(w, w->space, "S100/ u20?| !a40");
    struct cw_result b = cw_request(w, w->space, "S100/ v20?| !b90");
    struct cache_entry e[4];
    const struct cw_seq q = cw_seq("S100");
    int32_t tokens[16];
    uint32_t total;

    ck_assert_int_eq(cache_entries(w->cache, false, e, 4, &total), 3);
    ck_assert_int_eq(cache_entries(w->cache, true, e, 4, &total), 1);
    ck_assert_uint_eq(total, 1);
    ck_assert_uint_eq(e[0].id, a.root);
    ck_assert_int_eq(cache_entry(w->cache, a.id, &e[0]), 0);
    ck_assert_int_eq(cache_entry(w->cache, b.id, &e[1]), 0);
    ck_assert_int_eq(cache_entry(w->cache, a.root, &e[2]), 0);
    ck_assert_int_eq(cache_entry(w->cache, 12345, &e[3]), -ENOENT);
    ck_assert_uint_eq(a.root, b.root);
    ck_assert(!e[0].is_root && !e[1].is_root && e[2].is_root && !e[2].is_pinned);
    ck_assert_uint_eq(e[0].n_tokens, 160);
    ck_assert_uint_eq(e[0].turn_pos, 120);
    ck_assert_uint_eq(e[0].query_pos, 120);
    ck_assert_uint_eq(e[0].n_pages, 3);
    ck_assert_uint_eq(e[1].n_pages, 4);
    ck_assert_uint_eq(e[2].n_pages, 2);
    ck_assert_uint_eq(e[1].n_pages_vram, 4);
    ck_assert_uint_eq(e[1].n_pages_ram, 0);
    /* The first page is everybody's; the second may count as the root's, which ends in there. */
    ck_assert(e[1].n_pages_own == 2 || e[1].n_pages_own == 3);
    ck_assert_uint_eq(e[0].n_checkpoints, _i ? 3 : 0);
    ck_assert_uint_eq(e[0].uid, 1000);
    ck_assert(e[1].last_use > e[0].last_use);
    ck_assert_uint_eq(cache_entry_tokens(w->cache, b.id, tokens, 16), 16);
    ck_assert_mem_eq(tokens, q.t, sizeof tokens);
    ck_assert_uint_eq(cache_entry_tokens(w->cache, 12345, tokens, 16), 0);
    /* The most recently used comes first, however few are asked for. */
    ck_assert_uint_eq(cw_request(w, w->space, "S100 u20 a40 w9| !c9").id, a.id);
    ck_assert_int_eq(cache_entries(w->cache, false, e, 1, &total), 1);
    ck_assert_uint_eq(total, 3);
    ck_assert_uint_eq(e[0].id, a.id);
    cw_settle(w);
    ck_assert_int_eq(cache_entry(w->cache, b.id, &e[1]), 0);
    ck_assert_uint_eq(e[1].n_pages_ram, 4);
    ck_assert_uint_eq(e[1].bytes_ram, (_i ? 13 : 4) * CW_UNIT_BYTES);
    ck_assert_uint_eq(e[1].bytes_vram, e[1].bytes_ram);
    cw_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache");
    TCase *t = tcase_create("cache");
    SRunner *runner;
    int failed;

    tcase_add_test(t, without_checkpoints_every_token_is_resumed_at);
    tcase_add_test(t, with_checkpoints_they_alone_are_resumed_at);
    tcase_add_loop_test(t, at_least_one_token_is_left_to_read, 0, 2);
    tcase_add_loop_test(t, what_lies_in_ram_is_found_and_what_is_in_vram_is_told_apart, 0, 2);
    tcase_add_loop_test(t, prompts_that_differ_inside_a_page_have_a_page_each, 0, 2);
    tcase_add_loop_test(t, pages_that_differ_in_their_first_or_last_token_are_two, 0, 2);
    tcase_add_loop_test(t, a_partial_page_is_extended, 0, 2);
    tcase_add_loop_test(t, a_prefix_of_a_stored_path_takes_no_pages, 0, 2);
    tcase_add_test(t, siblings_that_share_k_tokens_share_checkpoints_up_to_k);
    tcase_add_loop_test(t, the_branch_point_is_reported, 0, 2);
    tcase_add_test(t, a_checkpoint_needs_a_published_page);
    tcase_add_test(t, of_too_many_checkpoints_those_that_leave_the_smallest_gap_go);
    tcase_add_loop_test(t, a_prompt_goes_on_past_turn_query_or_end_and_borrows_otherwise, 0, 2);
    tcase_add_loop_test(t, a_borrower_leaves_the_lender_as_it_was, 0, 2);
    tcase_add_loop_test(t, of_several_paths_the_most_recent_requests_is_meant, 0, 2);
    tcase_add_loop_test(t, what_was_before_an_edit_stays_and_going_back_is_a_hit_of_whole_length, 0,
                        2);
    tcase_add_loop_test(t, nothing_is_found_from_another_space, 0, 2);
    tcase_add_loop_test(t, a_space_outlives_its_last_reference_while_something_is_in_it, 0, 2);
    tcase_add_loop_test(t, a_pinned_root_is_shared_by_reference, 0, 2);
    tcase_add_loop_test(t, entries_tell_what_is_there, 0, 2);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
