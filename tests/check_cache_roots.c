/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: roots, and what leaves with a path whose logits were not finite.
 *
 * Loop tests: _i = 0 is a model that is resumed at every token, 1 one with checkpoints of 3 units.
 */
#include "tests/cache_world.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct cw_world *world(int i, uint32_t ram_units, uint32_t n_roots)
{
    return cw_new(&(struct cw_options){.vram_units = 100,
                                       .ram_units = ram_units,
                                       .checkpoint_units = i ? 3 : 0,
                                       .n_roots = n_roots});
}

static uint64_t root(struct cw_world *w, const char *spec)
{
    return cw_request(w, w->space, spec).root;
}

START_TEST(a_root_is_made_kept_and_refreshed)
{
    struct cw_world *w = world(_i, 0, 4);
    uint64_t r = root(w, "S100/ a20");
    struct cache_match m;

    ck_assert_uint_ne(r, 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_MADE, CW_ANY, r), 1);
    m = cw_find(w, w->space, "S100 b20").best;
    ck_assert_uint_eq(m.pos, 100);
    ck_assert_uint_eq(m.root_pos, 100);
    ck_assert_uint_eq(cw_find(w, w->space, "S100 a20 b20").best.root_pos, 100);
    ck_assert_uint_eq(cw_find(w, w->space, "S100 a20 b20").best.pos, 120);
    ck_assert_uint_eq(cw_find(w, w->space, "S99 b20").best.root_pos, 0);
    /* The same again is the same object. */
    ck_assert_uint_eq(root(w, "S100/ b20"), r);
    ck_assert_uint_eq(cw_stats(w).n_roots, 1);
    ck_assert_uint_eq(cw_stats(w).roots_made, 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_MADE, CW_ANY, 0), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 0);
    cw_free(w);
}
END_TEST

START_TEST(n_roots_0_makes_none)
{
    struct cw_world *w = world(_i, 50, 0);

    ck_assert_uint_eq(root(w, "S100/ a20"), 0);
    cw_settle(w);
    ck_assert_uint_eq(cw_find(w, w->space, "S100 b20").best.root_pos, 0);
    ck_assert_uint_eq(cw_stats(w).n_roots + cw_stats(w).roots_made, 0);
    ck_assert_uint_eq(w->n_events, 0);
    /* Prefixes still match in conversations. */
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 b20"), 100);
    cw_free(w);
}
END_TEST

START_TEST(a_root_needs_a_published_resumable_position)
{
    struct cw_world *w = world(_i, 0, 4);
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("S100");

    cw_run_begin(r, w, w->space, &q, false);
    ck_assert(cw_run_start(r));
    ck_assert(cw_run_read(r, 100));
    ck_assert_uint_eq(cache_make_root(w->cache, &r->cursor, q.t + 64, 65, w->now), 0);
    ck_assert_uint_eq(cache_make_root(w->cache, &r->cursor, q.t + 64, 64, w->now) != 0, !_i);
    cw_run_abandon(r);
    free(r);
    cw_free(w);
}
END_TEST

START_TEST(two_of_three_roots_are_kept_and_the_first_is_lost)
{
    struct cw_world *w = world(_i, 0, 2);
    uint64_t a = root(w, "A100/ x20"), b = root(w, "B100/ x20"), c = root(w, "C100/ x20");

    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_ROOTS, a), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 1);
    ck_assert_uint_eq(cw_stats(w).n_roots, 2);
    ck_assert_uint_eq(cw_stats(w).roots_lost, 1);
    ck_assert_int_eq(cache_entry(w->cache, a, &(struct cache_entry){0}), -ENOENT);
    ck_assert_int_eq(cache_entry(w->cache, b, &(struct cache_entry){0}), 0);
    ck_assert_int_eq(cache_entry(w->cache, c, &(struct cache_entry){0}), 0);
    /* Its conversation is none the worse for it. */
    ck_assert_uint_eq(cw_pos(w, w->space, "A100 x20 z1"), 120);
    cw_free(w);
}
END_TEST

START_TEST(the_root_that_leaves_is_the_least_recently_made_or_used)
{
    struct cw_world *w = world(_i, 0, 2);
    uint64_t a = root(w, "A100/ x20"), b = root(w, "B100/ x20"), c;

    ck_assert_uint_eq(root(w, "A100/ y20"), a); /* made again */
    c = root(w, "C100/ x20");
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_ROOTS, b), 1);
    ck_assert_uint_eq(cw_use(w, w->space, "A100 z9"), 100); /* used */
    root(w, "D100/ x20");
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_ROOTS, c), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 2);
    cw_free(w);
}
END_TEST

START_TEST(pinned_roots_do_not_count)
{
    struct cw_world *w = world(_i, 0, 2);
    uint64_t a = root(w, "A100/ x20"), b, c;

    ck_assert_int_eq(cache_pin_root(w->cache, a, true, w->now), 0);
    b = root(w, "B100/ x20");
    c = root(w, "C100/ x20");
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 0);
    ck_assert_uint_eq(cw_stats(w).n_pinned, 1);
    root(w, "D100/ x20");
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_ROOTS, b), 1);
    ck_assert_uint_eq(cache_clear_roots(w->cache), 2);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_OPERATOR, c), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, a), 0);
    /* Ordinary prefixes now. */
    ck_assert_uint_eq(cw_find(w, w->space, "C100 z9").best.pos, 100);
    ck_assert_uint_eq(cw_find(w, w->space, "C100 z9").best.root_pos, 0);
    ck_assert_uint_eq(cw_find(w, w->space, "A100 z9").best.root_pos, 100);
    cw_free(w);
}
END_TEST

START_TEST(a_lowered_number_of_roots_drops_the_oldest)
{
    struct cw_world *w = world(_i, 0, 3);
    uint64_t a = root(w, "A100/ x20"), b = root(w, "B100/ x20"), c = root(w, "C100/ x20");

    w->limits.n_roots = 1;
    cache_set_limits(w->cache, &w->limits);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_LIMITS, a), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_LIMITS, b), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, c), 0);
    ck_assert_uint_eq(cw_stats(w).n_roots, 1);
    cw_free(w);
}
END_TEST

/* Many chats of every shape, none of them behind the root. */
static void traffic(struct cw_world *w, const char *root_spec, uint32_t pos)
{
    for (uint32_t i = 0; i < 60; i++) {
        char spec[64];

        (void)snprintf(spec, sizeof spec, "%c%u %c%u| !%c%u", 'a' + i % 20, 10 + i * 37 % 150,
                       'a' + i * 7 % 26, 1 + i * 13 % 60, 'a' + i * 3 % 26, 10 + i % 30);
        cw_request(w, w->space, spec);
        if (i % 3 == 0)
            cw_demote_all(w);
        for (uint32_t k = 0; k < i % 4; k++)
            (void)cw_use(w, w->space, spec);
        ck_assert_uint_eq(cw_pos(w, w->space, root_spec), pos);
    }
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, root_spec), pos);
}

START_TEST(no_amount_of_conversations_evicts_a_root_of_at_most_half_a_tier)
{
    /* 3 pages and a checkpoint of 3: 6 of 16. */
    struct cw_world *w = cw_new(&(struct cw_options){
        .vram_units = 16, .ram_units = 16, .checkpoint_units = _i ? 3 : 0, .n_roots = 2});

    root(w, "R150/ X9");
    traffic(w, "R150 Z9", 150);
    cw_free(w);
}
END_TEST

START_TEST(nor_when_there_is_vram_alone)
{
    struct cw_world *w = cw_new(
        &(struct cw_options){.vram_units = 30, .checkpoint_units = _i ? 3 : 0, .n_roots = 2});
    uint32_t coming;

    root(w, "R150/ X9");
    for (uint32_t i = 0; i < 40; i++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c%u", 'a' + i % 20, 10 + i * 37 % 150);
        cw_request(w, w->space, spec);
        if (w->n_free < 12)
            (void)cw_shed(w, 12 - w->n_free, &coming);
        (void)cw_use(w, w->space, spec);
        ck_assert_uint_eq(cw_pos(w, w->space, "R150 Z9"), 150);
    }
    ck_assert_uint_eq(cw_n_events(w, CACHE_ROOT_LOST, CW_ANY, 0), 0);
    cw_free(w);
}
END_TEST

START_TEST(roots_beyond_half_a_tier_are_worth_no_more_than_others)
{
    struct cw_world *w = cw_new(&(struct cw_options){
        .vram_units = 20, .ram_units = 20, .checkpoint_units = _i ? 3 : 0, .n_roots = 8});
    uint32_t n = 0;

    /* Four roots of at least 4 units; what comes after them has to find room. */
    root(w, "A256/ x9");
    root(w, "B256/ x9");
    root(w, "C256/ x9");
    root(w, "D256/ x9");
    for (char c = 'a'; c < 'u'; c++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c320", c);
        cw_request(w, w->space, spec);
        cw_demote_all(w);
    }
    ck_assert_uint_eq(cw_pos(w, w->space, "t320 z1"), 320);
    for (char c = 'A'; c < 'E'; c++) {
        char spec[32];

        (void)snprintf(spec, sizeof spec, "%c256 z9", c);
        n += cw_pos(w, w->space, spec) == 256;
    }
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_le(n, 2);
    cw_free(w);
}
END_TEST

/* --- not finite ------------------------------------------------------------------------------ */

START_TEST(not_finite_drops_the_whole_path_roots_and_pins_included)
{
    struct cw_world *w = world(_i, 100, 4);
    struct cache_space *two = cache_space_get(w->cache, "two", 3, 1001);
    struct cw_run *r = calloc(1, sizeof *r), *other = calloc(1, sizeof *other);
    struct cw_result a = cw_request(w, w->space, "S100/ a60| !b20"), keep;
    struct cw_seq q = cw_seq("S100 a60 b20 c200"), q2 = cw_seq("S100 d200");

    cw_request(w, w->space, "S100/ e60| !f20");
    keep = cw_request(w, w->space, "k150| !l20");
    cw_settle(w);
    ck_assert_int_eq(cache_pin_root(w->cache, a.root, true, w->now), 0);
    cw_run_begin(r, w, w->space, &q, false);
    ck_assert(cw_run_start(r));
    ck_assert(cw_run_read(r, 100));
    cw_run_begin(other, w, w->space, &q2, false);
    ck_assert(cw_run_start(other));
    ck_assert(cw_run_read(other, 60));
    ck_assert(!cache_cursor_is_dead(&r->cursor) && !cache_cursor_is_dead(&other->cursor));
    /* Copies of it are under way. */
    while (cw_begin_write_back(w))
        ;
    ck_assert_uint_gt(w->n_moves, 0);
    cw_forget_events(w);

    cache_drop_path(w->cache, &r->cursor);
    cw_check(w);
    ck_assert(cache_cursor_is_dead(&r->cursor) && cache_cursor_is_dead(&other->cursor));
    ck_assert_uint_eq(cw_pos(w, w->space, "S100 a60 b20 z1"), 0);
    ck_assert_uint_eq(cw_find(w, w->space, "S100 a60 b20 z1").n_common, 0);
    ck_assert_uint_eq(cw_pos(w, w->space, "S100 e60 f20 z1"), 0);
    ck_assert_uint_eq(cw_pos(w, two, "S100 z1"), 0);
    ck_assert_int_eq(cache_entry(w->cache, a.root, &(struct cache_entry){0}), -ENOENT);
    ck_assert_uint_eq(cw_stats(w).n_roots + cw_stats(w).n_pinned, 0);
    ck_assert_uint_ge(cw_n_events(w, CACHE_ROOT_LOST, CACHE_WHY_NONFINITE, a.root), 1);
    /* One, and when its request ends that which is active. */
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_NONFINITE, 0), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, keep.id), 0);
    /* Moves in flight survive it, and dead cursors take nothing. */
    cw_end_moves(w, true);
    cw_check(w);
    ck_assert_int_eq(cache_extend(w->cache, &other->cursor, other->q.t, other->units[0], w->now),
                     -ESTALE);
    ck_assert_int_eq(
        cache_extend_tail(w->cache, &other->cursor, other->q.t, 9, other->units[0], w->now),
        -ESTALE);
    ck_assert(cw_run_read(other, 100));
    ck_assert(other->dead);
    ck_assert_uint_eq(cache_make_root(w->cache, &other->cursor, NULL, 64, w->now), 0);
    ck_assert_uint_eq(cw_run_park(other), 0);
    cw_run_abandon(r);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_NONFINITE, a.id), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_NONFINITE, 0), 2);
    ck_assert_uint_eq(cw_pos(w, w->space, "S100 z1"), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "k150 l20 z1"), 170);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    /* It can be read anew. */
    ck_assert_uint_eq(cw_request(w, w->space, "S100/ a60| !b20").reused, 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "S100 a60 b20 z1"), 180);
    cache_space_unref(w->cache, two);
    free(r);
    free(other);
    cw_free(w);
}
END_TEST

START_TEST(not_finite_while_it_is_loaded)
{
    struct cw_world *w = world(_i, 100, 4);
    struct cw_run *r = calloc(1, sizeof *r), *other = calloc(1, sizeof *other);
    struct cw_seq q = cw_seq("S128 c20"), q2 = cw_seq("S128 a60 d9");

    cw_request(w, w->space, "S128/ a60");
    cw_demote_all(w);
    cw_run_begin(r, w, w->space, &q, false);
    ck_assert_int_eq(cw_run_load(r), 0);
    cw_end_moves(w, true);
    ck_assert_int_eq(cw_run_load(r), 1);
    ck_assert(cw_run_start(r));
    cw_run_begin(other, w, w->space, &q2, false);
    ck_assert_int_eq(cw_run_load(other), 0);
    ck_assert_uint_gt(w->n_moves, 0);
    cache_drop_path(w->cache, &r->cursor);
    cw_check(w);
    ck_assert(cache_is_broken(w->cache, &other->pin));
    ck_assert(!cache_is_loaded(w->cache, &other->pin));
    ck_assert_int_eq(cw_run_load(other), -1);
    cw_check(w);
    cw_end_moves(w, true);
    cw_check(w);
    ck_assert_uint_eq(cw_pos(w, w->space, "S128 a60 z1"), 0);
    cw_run_abandon(r);
    free(r);
    free(other);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_held, 0);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_RAM].units_held, 0);
    cw_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_roots");
    TCase *t = tcase_create("cache_roots");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, a_root_is_made_kept_and_refreshed, 0, 2);
    tcase_add_loop_test(t, n_roots_0_makes_none, 0, 2);
    tcase_add_loop_test(t, a_root_needs_a_published_resumable_position, 0, 2);
    tcase_add_loop_test(t, two_of_three_roots_are_kept_and_the_first_is_lost, 0, 2);
    tcase_add_loop_test(t, the_root_that_leaves_is_the_least_recently_made_or_used, 0, 2);
    tcase_add_loop_test(t, pinned_roots_do_not_count, 0, 2);
    tcase_add_loop_test(t, a_lowered_number_of_roots_drops_the_oldest, 0, 2);
    tcase_add_loop_test(t, no_amount_of_conversations_evicts_a_root_of_at_most_half_a_tier, 0, 2);
    tcase_add_loop_test(t, nor_when_there_is_vram_alone, 0, 2);
    tcase_add_loop_test(t, roots_beyond_half_a_tier_are_worth_no_more_than_others, 0, 2);
    tcase_add_loop_test(t, not_finite_drops_the_whole_path_roots_and_pins_included, 0, 2);
    tcase_add_loop_test(t, not_finite_while_it_is_loaded, 0, 2);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
