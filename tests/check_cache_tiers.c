/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: vram and ram: loading, write-back, demotion, what must not be lost, and copies that fail
 * or that things change under.
 *
 * Loop tests: _i = 0 is a model that is resumed at every token, 1 one with checkpoints of 3 units.
 */
#include "tests/cache_world.h"

#include "cache/arena.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static struct cw_world *world(int i, uint32_t vram_units, uint32_t ram_units)
{
    return cw_new(&(struct cw_options){.vram_units = vram_units,
                                       .ram_units = ram_units,
                                       .checkpoint_units = i ? 3 : 0,
                                       .n_roots = 4});
}

static uint32_t held(struct cw_world *w, enum cache_tier t)
{
    return cw_stats(w).tier[t].units_held;
}

static struct cache_entry entry(struct cw_world *w, uint64_t id)
{
    struct cache_entry e = {0};

    ck_assert_int_eq(cache_entry(w->cache, id, &e), 0);
    return e;
}

/* --- loading --------------------------------------------------------------------------------- */

START_TEST(a_load_takes_as_many_units_as_there_are)
{
    struct cw_world *w = world(_i, 50, 50);
    struct cache_found f;
    struct cache_pin p;
    uint32_t n_all = _i ? 7 : 4, done = 0;

    cw_request(w, w->space, "a200");
    cw_demote_all(w);
    ck_assert_uint_eq(held(w, CACHE_VRAM), 0);
    f = cw_find(w, w->space, "a200 z1");
    ck_assert_int_eq(cache_pin(w->cache, w->space, &f.best, w->now, &p), 0);
    ck_assert(!cache_is_loaded(w->cache, &p));
    ck_assert_uint_eq(cache_units_to_load(w->cache, &p), n_all);
    while (done < n_all) {
        struct cache_move *list = NULL;
        uint32_t units[3], used = 0, n;

        /* One at a time; three only where one is not enough for a checkpoint. */
        for (n = 1; n <= 3 && used == 0; n += 2) {
            for (uint32_t i = 0; i < n; i++)
                units[i] = cw_take(w);
            used = cache_load(w->cache, &p, units, n, &list);
            ck_assert(used == 0 || used == n);
            ck_assert((used == 0) == (list == NULL));
            for (uint32_t i = 0; i < n; i++) {
                if (i < used)
                    w->cache_refs[units[i]]++;
                else
                    cw_unref(w, units[i]);
            }
        }
        ck_assert_uint_gt(used, 0);
        cw_begin_moves(w, list);
        done += used;
        ck_assert_uint_eq(cache_units_to_load(w->cache, &p), n_all - done);
        ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_coming, done);
        ck_assert(!cache_is_loaded(w->cache, &p));
        cw_check(w);
    }
    cw_end_moves(w, true);
    ck_assert(cache_is_loaded(w->cache, &p));
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_VRAM].units_coming, 0);
    ck_assert_uint_eq(held(w, CACHE_VRAM), n_all);
    ck_assert_uint_eq(cw_stats(w).load_bytes, (uint64_t)n_all * CW_UNIT_BYTES);
    cache_unpin(w->cache, &p);
    cache_unpin(w->cache, &p);
    cw_free(w);
}
END_TEST

START_TEST(two_that_want_the_same_load_it_once)
{
    struct cw_world *w = world(_i, 50, 50);
    struct cw_run *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    struct cw_seq qa = cw_seq("S200 a9"), qb = cw_seq("S200 b9");
    const uint32_t n_all = _i ? 7 : 4;

    cw_request(w, w->space, "S200");
    cw_demote_all(w);
    cw_run_begin(a, w, w->space, &qa, false);
    cw_run_begin(b, w, w->space, &qb, false);
    ck_assert_int_eq(cw_run_load(a), 0);
    ck_assert_uint_eq(cache_units_to_load(w->cache, &b->pin), 0);
    ck_assert(!cache_is_loaded(w->cache, &b->pin));
    ck_assert_int_eq(cw_run_load(b), 0);
    ck_assert_uint_eq(held(w, CACHE_VRAM), n_all);
    cw_end_moves(w, true);
    ck_assert_int_eq(cw_run_load(b), 1);
    ck_assert(cw_run_start(a) && cw_run_start(b));
    ck_assert_uint_eq(a->reused + b->reused, 400);
    ck_assert_uint_eq(held(w, CACHE_VRAM), n_all);
    cw_run_abandon(a);
    cw_run_abandon(b);
    free(a);
    free(b);
    cw_free(w);
}
END_TEST

START_TEST(a_failed_load_breaks_the_pin_and_what_is_lost_is_told)
{
    struct cw_world *w = world(_i, 50, 50);
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("a200 z9");
    uint64_t a = cw_request(w, w->space, "a200").id, b = cw_request(w, w->space, "b200").id;

    cw_demote_all(w);
    cw_forget_events(w);
    cw_run_begin(r, w, w->space, &q, false);
    ck_assert_int_eq(cw_run_load(r), 0);
    cw_end_moves(w, false);
    cw_check(w);
    ck_assert(cache_is_broken(w->cache, &r->pin));
    ck_assert(!cache_is_loaded(w->cache, &r->pin));
    ck_assert_int_eq(cw_run_load(r), -1);
    cw_check(w);
    ck_assert_uint_ge(cw_stats(w).failed_moves, 1);
    ck_assert_uint_eq(cw_pos(w, w->space, "a200 z1"), 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_FAILED, a), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, b), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "b200 z1"), 200);
    free(r);
    cw_free(w);
}
END_TEST

/* --- write-back ------------------------------------------------------------------------------ */

START_TEST(what_was_parked_is_copied_to_ram_in_the_background)
{
    struct cw_world *w = world(_i, 50, 50);
    uint64_t a = cw_request(w, w->space, "a200").id;
    const uint32_t n_all = _i ? 7 : 4;

    ck_assert_uint_eq(held(w, CACHE_RAM), 0);
    while (cw_begin_write_back(w))
        cw_check(w);
    ck_assert_uint_eq(held(w, CACHE_RAM), n_all);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_RAM].units_coming, n_all);
    ck_assert_uint_eq(entry(w, a).n_pages_ram, 0);
    cw_end_moves(w, true);
    ck_assert_uint_eq(entry(w, a).n_pages_ram, 4);
    ck_assert_uint_eq(entry(w, a).n_pages_vram, 4);
    ck_assert_uint_eq(cw_stats(w).tier[CACHE_RAM].units_coming, 0);
    ck_assert_uint_eq(cw_stats(w).write_back_bytes, (uint64_t)n_all * CW_UNIT_BYTES);
    /* Once is enough. */
    ck_assert(!cw_begin_write_back(w));
    cw_free(w);
}
END_TEST

START_TEST(without_ram_nothing_is_copied)
{
    struct cw_world *w = world(_i, 50, 0);
    uint32_t coming;

    cw_request(w, w->space, "a200");
    ck_assert(!cw_begin_write_back(w));
    ck_assert_uint_eq(cw_shed(w, 50, &coming), _i ? 7 : 4);
    ck_assert_uint_eq(coming, 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_SPACE, 0), 1);
    cw_free(w);
}
END_TEST

START_TEST(background_copies_never_cost_another_its_last_copy)
{
    struct cw_world *w = world(_i, 50, _i ? 14 : 8);

    /* Two fill ram and have nothing else; the third has vram still, so it may wait. */
    cw_request(w, w->space, "a200");
    cw_request(w, w->space, "b200");
    cw_demote_all(w);
    ck_assert_uint_eq(held(w, CACHE_VRAM), 0);
    for (int i = 0; i < 5; i++) /* of more value */
        ck_assert_uint_eq(cw_request(w, w->space, "c200 c1").id != 0, true);
    cw_forget_events(w);
    cw_settle(w);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, 0), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    ck_assert_uint_eq(cw_mount(w, w->space, "b200 z1"), 200);
    ck_assert_uint_eq(cw_pos(w, w->space, "c200 c1 z1"), 201);
    cw_free(w);
}
END_TEST

START_TEST(a_background_copy_takes_the_place_of_a_mirror)
{
    /* What is in both tiers gives its ram to what would be lost otherwise. */
    struct cw_world *w = world(_i, 50, _i ? 7 : 4);

    cw_request(w, w->space, "a256");
    cw_settle(w);
    ck_assert_uint_eq(held(w, CACHE_RAM), _i ? 7 : 4);
    cw_request(w, w->space, "b256");
    ck_assert(cw_make_room(w, 50));
    ck_assert_uint_eq(cw_mount(w, w->space, "b256 z1"), 256);
    cw_free(w);
}
END_TEST

START_TEST(shed_lets_go_at_once_queues_and_drops)
{
    struct cw_world *w = world(_i, 50, 50);
    const uint32_t n_each = _i ? 7 : 4;
    uint64_t a, b;
    uint32_t coming;

    a = cw_request(w, w->space, "a200").id;
    cw_settle(w);
    b = cw_request(w, w->space, "b200").id;
    /* Nobody wants more than what is let go at once. */
    ck_assert_uint_eq(cache_idle_vram(w->cache), 2 * n_each);
    ck_assert_uint_eq(cw_shed(w, n_each, &coming), n_each);
    ck_assert_uint_eq(coming, 0);
    ck_assert_uint_eq(entry(w, a).n_pages_vram, 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_DEMOTED, CACHE_WHY_SPACE, a), 1);
    ck_assert_uint_eq(cw_shed(w, n_each, &coming), 0);
    ck_assert_uint_eq(coming, n_each);
    ck_assert_uint_eq(entry(w, b).n_pages_vram, 4);
    while (cw_begin_write_back(w))
        ;
    cw_end_moves(w, true);
    cw_check(w);
    (void)cw_shed(w, n_each, &coming);
    ck_assert_uint_eq(coming, 0);
    ck_assert_uint_eq(held(w, CACHE_VRAM), 0);
    ck_assert_uint_eq(entry(w, b).n_pages_ram, 4);
    ck_assert_uint_eq(cw_n_events(w, CACHE_DEMOTED, CW_ANY, b), 1);
    ck_assert_uint_eq(cw_stats(w).demotions, 2);
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cache_idle_vram(w->cache), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    ck_assert_uint_eq(cw_mount(w, w->space, "b200 z1"), 200);
    cw_free(w);
}
END_TEST

START_TEST(what_is_held_is_never_evicted)
{
    struct cw_world *w = world(_i, 50, _i ? 14 : 8);
    struct cw_run *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("a200 b300");

    cw_request(w, w->space, "a200");
    cw_settle(w);
    cw_run_begin(r, w, w->space, &q, false); /* pinned */
    (void)cw_shed(w, 50, NULL);
    ck_assert_uint_eq(cw_find(w, w->space, "a200 z1").vram.pos, 200);
    ck_assert_uint_eq(cache_idle_vram(w->cache), 0);
    ck_assert(cw_run_start(r));
    ck_assert(cw_run_read(r, 150)); /* by its cursor: five pages */
    (void)cw_shed(w, 50, NULL);
    cw_settle(w);
    (void)cw_shed(w, 50, NULL);
    (void)cache_clear(w->cache);
    w->lowered = true;
    w->limits.ram_units = 0;
    cache_set_limits(w->cache, &w->limits);
    cw_check(w);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_gt(w->cache_refs[r->units[i]], 0);
    cw_run_abandon(r);
    cache_set_limits(w->cache, &w->limits);
    w->lowered = false;
    cw_check(w);
    (void)cw_shed(w, 50, NULL);
    ck_assert_uint_eq(held(w, CACHE_VRAM) + held(w, CACHE_RAM), 0);
    free(r);
    cw_free(w);
}
END_TEST

START_TEST(a_lowered_ram_limit_evicts_down_to_it)
{
    const uint32_t n_each = _i ? 7 : 4;
    struct cw_world *w = world(_i, 50, 3 * n_each);
    uint64_t a = cw_request(w, w->space, "a256").id, b = cw_request(w, w->space, "b256").id, c;

    c = cw_request(w, w->space, "c256").id;
    cw_demote_all(w);
    ck_assert_uint_eq(held(w, CACHE_RAM), 3 * n_each);
    w->limits.ram_units = n_each;
    cache_set_limits(w->cache, &w->limits);
    cw_check(w);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_LIMITS, a), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_LIMITS, b), 1);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, c), 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "c256 z1"), 256);
    cw_free(w);
}
END_TEST

START_TEST(what_is_too_large_is_refused_without_evicting)
{
    const uint32_t n_each = _i ? 7 : 4;
    struct cw_world *w = world(_i, 60, n_each + 1);
    uint64_t a = cw_request(w, w->space, "a200").id;

    cw_demote_all(w);
    cw_request(w, w->space, "b1280"); /* 20 pages */
    cw_settle(w);
    (void)cw_make_room(w, 60);
    cw_settle(w);
    cw_check(w);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CW_ANY, a), 0);
    ck_assert_uint_ge(cw_n_events(w, CACHE_REFUSED, CACHE_WHY_TOO_LARGE, 0), 1);
    ck_assert_uint_ge(cw_stats(w).refused, 1);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    cw_free(w);
}
END_TEST

START_TEST(an_exchange_that_fits_one_only_keeps_the_pinned_source)
{
    /* Ram holds one; the one that goes is dropped, as the one that comes is held. */
    const uint32_t n_each = _i ? 7 : 4;
    struct cw_world *w = world(_i, n_each + 4, n_each);
    struct cw_result a = cw_request(w, w->space, "a200"), b, again;

    cw_demote_all(w);
    b = cw_request(w, w->space, "b200");
    cw_settle(w);
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    again = cw_request(w, w->space, "a200 c20");
    ck_assert_uint_eq(again.id, a.id);
    ck_assert_uint_eq(again.reused, 200);
    ck_assert_uint_eq(cw_n_events(w, CACHE_EVICTED, CACHE_WHY_SPACE, b.id), 1);
    ck_assert_uint_eq(cw_stats(w).evictions, 1);
    ck_assert_uint_eq(cw_stats(w).superseded, 0);
    ck_assert_uint_eq(cw_stats(w).n_parked, 1);
    ck_assert_uint_lt(cw_pos(w, w->space, "b200 z1"), 200);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 c20 z1"), 220);
    cw_free(w);
}
END_TEST

START_TEST(a_failed_write_back_loses_nothing)
{
    struct cw_world *w = world(_i, 50, 50);

    cw_request(w, w->space, "a200");
    while (cw_begin_write_back(w))
        ;
    cw_end_moves(w, false);
    cw_check(w);
    ck_assert_uint_ge(cw_stats(w).failed_moves, 1);
    ck_assert_uint_eq(held(w, CACHE_RAM), 0);
    ck_assert_uint_eq(cw_stats(w).evictions, 0);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    /* Asked again for the room, it is tried again. */
    ck_assert(cw_make_room(w, 50));
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    cw_free(w);
}
END_TEST

/* No file can be opened any more, so no segment can be made. */
static void allow_files(bool allow)
{
    static struct rlimit was;
    struct rlimit none;

    if (!allow)
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){0, was.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, allow ? &was : &none), 0);
}

START_TEST(memory_that_the_system_does_not_give_is_told_once)
{
    struct cw_world *w = world(_i, 60, 50);

    allow_files(false);
    cw_request(w, w->space, "a200");
    ck_assert(!cw_begin_write_back(w));
    cw_check(w);
    ck_assert_uint_eq(held(w, CACHE_RAM), 0);
    ck_assert_uint_eq(cw_n_events(w, CACHE_REFUSED, CACHE_WHY_MEMORY, 0), 1);
    ck_assert_uint_eq(cw_stats(w).refused, 1);
    ck_assert_uint_eq(cw_mount(w, w->space, "a200 z1"), 200);
    allow_files(true);
    cw_request(w, w->space, "b200");
    cw_settle(w);
    ck_assert_uint_ge(held(w, CACHE_RAM), 4);
    ck_assert_uint_eq(cw_stats(w).refused, 1);
    cw_free(w);
}
END_TEST

START_TEST(a_page_may_grow_while_its_copy_is_under_way)
{
    for (uint32_t grow = 1; grow <= 100; grow += 33) {
        struct cw_world *w = world(_i, 60, 60);
        char spec[32], find[32];

        (void)snprintf(spec, sizeof spec, "a100 b%u", grow);
        (void)snprintf(find, sizeof find, "a100 b%u z1", grow);
        cw_request(w, w->space, "a100");
        while (cw_begin_write_back(w))
            ;
        ck_assert_uint_gt(w->n_moves, 0);
        /* By hand: cw_request would end the moves when it makes room; there is enough. */
        cw_request(w, w->space, spec);
        ck_assert_uint_gt(w->n_moves, 0);
        cw_end_moves(w, true);
        cw_check(w);
        ck_assert_uint_eq(cw_mount(w, w->space, find), 100 + grow);
        cw_demote_all(w);
        ck_assert_uint_eq(held(w, CACHE_VRAM), 0);
        ck_assert_uint_eq(cw_mount(w, w->space, find), 100 + grow);
        ck_assert_uint_eq(cw_mount(w, w->space, "a100 z1"), 100);
        cw_free(w);
    }
}
END_TEST

START_TEST(a_late_copy_of_the_shorter_page_is_not_taken_for_the_longer_one)
{
    struct cw_world *w = world(0, 60, 60);
    uint32_t n;

    cw_request(w, w->space, "a100");
    while (cw_begin_write_back(w))
        ;
    n = w->n_moves;
    cw_request(w, w->space, "a100 b10");
    while (cw_begin_write_back(w))
        ;
    ck_assert_uint_gt(w->n_moves, n);
    /* Those of the shorter page arrive, that of the longer one fails. */
    while (n > 0)
        cw_end_move(w, --n, true);
    cw_check(w);
    cw_end_moves(w, false);
    cw_check(w);
    while (cw_shed(w, 1, NULL) > 0)
        cw_end_moves(w, true);
    ck_assert_uint_eq(cw_mount(w, w->space, "a100 b10 z1"), cw_pos(w, w->space, "a100 b10 z1"));
    cw_free(w);
}
END_TEST

START_TEST(a_page_may_grow_while_it_is_loaded)
{
    struct cw_world *w = world(_i, 60, 60);
    struct cw_run *slow = calloc(1, sizeof *slow), *r = calloc(1, sizeof *r);
    struct cw_seq q = cw_seq("a100 z9"), q2 = cw_seq("a100 b80");

    cw_request(w, w->space, "a100");
    cw_demote_all(w);
    cw_run_begin(slow, w, w->space, &q, false);
    ck_assert_int_eq(cw_run_load(slow), 0);
    /* Another one reads the same from the beginning, and further. */
    q2.n_prompt = 1;
    cw_run_begin(r, w, w->space, &q2, false);
    ck_assert(cw_run_start(r));
    ck_assert_uint_eq(r->reused, 0);
    cw_run_capture(r, 180, CACHE_AT_END);
    ck_assert(cw_run_read(r, 180));
    ck_assert_uint_ne(cw_run_park(r), 0);
    cw_check(w);
    cw_end_moves(w, true);
    cw_check(w);
    ck_assert_int_eq(cw_run_load(slow), 1);
    ck_assert(cw_run_start(slow));
    ck_assert_uint_eq(slow->reused, 100);
    cw_run_abandon(slow);
    ck_assert_uint_eq(cw_mount(w, w->space, "a100 b80 z1"), 180);
    cw_demote_all(w);
    ck_assert_uint_eq(cw_mount(w, w->space, "a100 b80 z1"), 180);
    ck_assert_uint_eq(cw_mount(w, w->space, "a100 z1"), 100);
    free(slow);
    free(r);
    cw_free(w);
}
END_TEST

START_TEST(a_partial_page_leaves_the_process_with_zeros_behind_it)
{
    struct cw_world *w = world(_i, 60, 60);
    uint32_t n_partial = 0;

    cw_request(w, w->space, "a100");
    while (cw_begin_write_back(w)) {
        const struct cache_move *m = w->moves[w->n_moves - 1];

        ck_assert(m->checkpoint || m->n_units == 1);
        ck_assert(!m->checkpoint || m->n_units == 3);
        ck_assert(m->n_tokens == 0 || m->n_tokens == 36);
        n_partial += m->n_tokens == 36;
    }
    ck_assert_uint_eq(n_partial, 1);
    ck_assert_uint_eq(w->n_moves, _i ? 3 : 2);
    cw_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_tiers");
    TCase *t = tcase_create("cache_tiers");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, a_load_takes_as_many_units_as_there_are, 0, 2);
    tcase_add_loop_test(t, two_that_want_the_same_load_it_once, 0, 2);
    tcase_add_loop_test(t, a_failed_load_breaks_the_pin_and_what_is_lost_is_told, 0, 2);
    tcase_add_loop_test(t, what_was_parked_is_copied_to_ram_in_the_background, 0, 2);
    tcase_add_loop_test(t, without_ram_nothing_is_copied, 0, 2);
    tcase_add_loop_test(t, background_copies_never_cost_another_its_last_copy, 0, 2);
    tcase_add_loop_test(t, a_background_copy_takes_the_place_of_a_mirror, 0, 2);
    tcase_add_loop_test(t, shed_lets_go_at_once_queues_and_drops, 0, 2);
    tcase_add_loop_test(t, what_is_held_is_never_evicted, 0, 2);
    tcase_add_loop_test(t, a_lowered_ram_limit_evicts_down_to_it, 0, 2);
    tcase_add_loop_test(t, what_is_too_large_is_refused_without_evicting, 0, 2);
    tcase_add_loop_test(t, an_exchange_that_fits_one_only_keeps_the_pinned_source, 0, 2);
    tcase_add_loop_test(t, a_failed_write_back_loses_nothing, 0, 2);
    tcase_add_loop_test(t, memory_that_the_system_does_not_give_is_told_once, 0, 2);
    tcase_add_loop_test(t, a_page_may_grow_while_its_copy_is_under_way, 0, 2);
    tcase_add_test(t, a_late_copy_of_the_shorter_page_is_not_taken_for_the_longer_one);
    tcase_add_loop_test(t, a_page_may_grow_while_it_is_loaded, 0, 2);
    tcase_add_loop_test(t, a_partial_page_leaves_the_process_with_zeros_behind_it, 0, 2);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
