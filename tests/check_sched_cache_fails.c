/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache may fail; a request may not: copies and mounts that fail, cancelling in the middle of
 * them, too little room, limits that change.  _i 0 is a pure attention model, _i 1 a hybrid.
 */
#include "tests/sched_world.h"

#include "util/clock.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

/* A first turn of 300 tokens and an answer of 20 are stored; `p` is the second turn. */
static uint64_t first_turn(struct world *w, struct text *p)
{
    struct client *a;

    p->n = 0;
    text_add(p, 300, 1);
    a = world_ask(w, p, 20);
    text_add_answer(p, a);
    text_add(p, 50, 2);
    return a->r->decision->conversation;
}

/* The same, in ram only. */
static uint64_t first_turn_in_ram(struct world *w, struct text *p)
{
    const uint64_t id = first_turn(w, p);
    struct cache_entry e;

    ck_assert_int_eq(cache_evict(w->cache, id, false), 0);
    world_run(w);
    ck_assert_int_eq(cache_entry(w->cache, id, &e), 0);
    ck_assert_uint_eq(e.n_pages_vram, 0);
    ck_assert_uint_eq(e.n_pages_ram, 5);
    return id;
}

static const struct told next_turn = {SOURCE_SLOT, false, false, 319, 51, WHY_LONGEST};

/* Nothing stands in the way of the same prompt again: all but a token, or up to the turn's end. */
static void check_again(struct world *w, const struct text *p)
{
    const struct client *c = world_ask(w, p, 20);

    ck_assert_uint_ge(c->r->n_cached, 319);
    ck_assert_int_eq(c->r->decision->why, WHY_LONGEST);
}

START_TEST(what_is_only_in_ram_is_loaded)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    const uint32_t units = _i ? 8 : 5;
    struct text p;
    struct client *c;

    (void)first_turn_in_ram(w, &p);
    ck_assert_uint_eq(fake_engine_log(w->engine)->n_imported, 0);
    c = world_ask(w, &p, 20);
    client_told(c, next_turn);
    ck_assert_uint_eq(fake_engine_log(w->engine)->n_imported, units);
    ck_assert_uint_eq(c->r->decision->bytes_loaded, units * FAKE_UNIT_BYTES);
    ck_assert_uint_eq(world_rows(w), 319 + 51 + 19);
    world_free(w);
}
END_TEST

START_TEST(from_ram_into_another_slot_is_a_hit)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p, other = {0};
    struct client *c;

    o.sched.parallel = 1;
    w = world_new(&o);
    (void)first_turn_in_ram(w, &p);
    text_add(&other, 30, 7);
    (void)world_ask(w, &other, 5);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_RAM, true, true, 319, 51, WHY_LONGEST});
    world_free(w);
}
END_TEST

START_TEST(a_failed_import_is_read_instead)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    (void)first_turn_in_ram(w, &p);
    fake_engine_fail_kind(w->engine, JOB_IMPORT, -EIO);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    ck_assert_uint_eq(world_rows(w), 319 + 370 + 19);
    ck_assert_uint_ge(world_n_events(w, CACHE_REFUSED), 1);
    check_again(w, &p);
    world_free(w);
}
END_TEST

START_TEST(a_refused_import_is_read_instead)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    (void)first_turn_in_ram(w, &p);
    fake_engine_refuse_kind(w->engine, JOB_IMPORT, -ENOMEM);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    check_again(w, &p);
    world_free(w);
}
END_TEST

START_TEST(a_failed_or_refused_copy_costs_the_source)
{
    struct world_options o = world_cached(_i % 2);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    (void)first_turn(w, &p);
    if (_i < 2)
        fake_engine_fail_kind(w->engine, JOB_COPY, -EIO);
    else
        fake_engine_refuse_kind(w->engine, JOB_COPY, -ENOMEM);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    check_again(w, &p);
    world_free(w);
}
END_TEST

START_TEST(a_refused_mount_is_read_from_0)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    (void)first_turn(w, &p);
    fake_engine_refuse_kind(w->engine, JOB_MOUNT, -EINVAL);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    ck_assert_uint_eq(world_rows(w), 319 + 370 + 19);
    check_again(w, &p);
    world_free(w);
}
END_TEST

START_TEST(a_failed_mount_is_read_from_0)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    (void)first_turn(w, &p);
    fake_engine_fail_kind(w->engine, JOB_MOUNT, -EIO);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    ck_assert_uint_eq(c->r->decision->n_parked, 0);
    ck_assert_uint_eq(fake_engine_log(w->engine)->n_mounts, 0);
    check_again(w, &p);
    world_free(w);
}
END_TEST

START_TEST(what_is_read_instead_leaves_its_checkpoints)
{
    struct world_options o = world_cached(true);
    struct world *w = world_new(&o);
    struct text p;
    struct client *c;

    /* Its turn lies in what was to be mounted. */
    (void)(_i ? first_turn(w, &p) : first_turn_in_ram(w, &p));
    if (_i)
        fake_engine_refuse_kind(w->engine, JOB_MOUNT, -EINVAL);
    else
        fake_engine_fail_kind(w->engine, JOB_IMPORT, -EIO);
    c = client_of(w, &p, 20);
    c->r->bounds.turn = 150;
    client_run(c);
    client_told(c, (struct told){SOURCE_NONE, false, false, 0, 370, WHY_LOAD_FAILED});
    p.n = 150;
    text_add(&p, 60, 7);
    c = world_ask(w, &p, 20);
    ck_assert_uint_eq(c->r->n_cached, 150);
    world_free(w);
}
END_TEST

START_TEST(a_failed_export_leaves_it_in_vram)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p;

    fake_engine_fail_kind(w->engine, JOB_EXPORT, -EIO);
    (void)first_turn(w, &p);
    ck_assert_uint_ge(world_n_events(w, CACHE_REFUSED), 1);
    client_told(world_ask(w, &p, 20), next_turn);
    world_free(w);

    w = world_new(&o);
    fake_engine_refuse_kind(w->engine, JOB_EXPORT, -ENOMEM);
    (void)first_turn(w, &p);
    ck_assert_uint_ge(world_n_events(w, CACHE_REFUSED), 1);
    client_told(world_ask(w, &p, 20), next_turn);
    world_free(w);
}
END_TEST

/* --- cancelling --- */

START_TEST(a_cancelled_read_keeps_what_it_has_read)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *a, *b;
    uint32_t n;

    text_add(&p, 900, 1);
    a = client_of(w, &p, 10);
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_run_until_read(w, a, 256);
    sched_cancel(w->sched, a->r);
    world_run(w);
    n = a->r->decision->n_kept;
    ck_assert_uint_ge(n, 256);
    ck_assert_uint_eq(n, world_rows(w));
    b = world_ask(w, &p, 10);
    client_told(b, (struct told){SOURCE_SLOT, false, false, n, 900 - n, WHY_LONGEST});
    ck_assert_uint_eq(world_rows(w), 909);
    world_free(w);
}
END_TEST

/* Its source is loaded, copied, mounted: cancelled after `k` of the engine's jobs. */
START_TEST(cancelled_before_it_reads_its_source_stays)
{
    struct world_options o = world_cached(_i % 2);
    struct world *w = world_new(&o);
    const int k = _i / 2 % 6;
    struct text p;
    struct client *c;

    if (_i / 12)
        (void)first_turn_in_ram(w, &p);
    else
        (void)first_turn(w, &p);
    c = client_of(w, &p, 20);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_turn(w);
    for (int i = 0; i < k / 2; i++) {
        (void)(fake_engine_transfer(w->engine) || fake_engine_run(w->engine));
        world_turn(w);
    }
    if (k % 2)
        (void)(fake_engine_start(w->engine) || fake_engine_transfer(w->engine));
    sched_cancel(w->sched, c->r);
    world_turn(w);
    ck_assert_uint_eq(c->n_done, 1);
    world_run(w);
    ck_assert_int_eq(c->r->finish, FINISH_CANCELLED);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    ck_assert_uint_eq(world_stats(w).n_active, 0);
    check_again(w, &p);
    world_free(w);
}
END_TEST

/* --- little room --- */

START_TEST(the_youngest_is_parked_and_goes_on_from_its_own_pages)
{
    struct world_options o = world_cached(_i);
    struct sched_totals t;
    struct world *w;
    struct client *c[3];

    /* Three of 500 + 700 tokens want 57 pages. */
    o.engine.n_units = 48;
    w = world_new(&o);
    for (int i = 0; i < 3; i++) {
        c[i] = client_new(w, 500, 700);
        c[i]->r->uid = 1000;
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_run(w);
    sched_totals(w->sched, &t);
    ck_assert_uint_gt(t.parked, 0);
    for (int i = 0; i < 3; i++) {
        client_check(c[i]);
        ck_assert_uint_eq(c[i]->r->n_generated, 700);
        client_told(c[i], told_cold(500));
    }
    ck_assert_uint_ge(c[2]->r->decision->n_parked, 1);
    ck_assert_uint_ge(world_rows(w), 3 * 1199);
    ck_assert_uint_le(world_rows(w), 3 * 1199 + 64);
    world_free(w);
}
END_TEST

START_TEST(without_ram_what_leaves_vram_is_gone_and_told)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p;
    struct client *c;

    o.limits.ram_units = 0;
    o.engine.n_units = 20;
    w = world_new(&o);
    (void)first_turn(w, &p);
    ck_assert_uint_eq(fake_engine_log(w->engine)->n_exported, 0);
    client_told(world_ask(w, &p, 5), next_turn);
    c = client_new(w, 1000, 100);
    c->r->uid = 1000;
    client_run(c);
    ck_assert_uint_eq(world_stats(w).evictions, 1);
    ck_assert_uint_eq(c->r->decision->n_evicted, 1);
    /* A part of it may be there yet. */
    c = world_ask(w, &p, 5);
    ck_assert_uint_lt(c->r->n_cached, 319);
    world_free(w);
}
END_TEST

START_TEST(what_is_too_large_for_ram_is_refused_and_evicts_nothing)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text small = {0}, large = {0};
    struct client *a, *b;

    o.limits.ram_units = 8;
    w = world_new(&o);
    text_add(&small, 150, 1);
    a = world_ask(w, &small, 10);
    ck_assert_int_eq(cache_evict(w->cache, a->r->decision->conversation, false), 0);
    world_run(w);
    text_add(&large, 1000, 2);
    b = world_ask(w, &large, 10);
    ck_assert_int_eq(cache_evict(w->cache, b->r->decision->conversation, false), 0);
    world_run(w);
    ck_assert_uint_ge(world_n_events(w, CACHE_REFUSED), 1);
    ck_assert_uint_eq(world_n_events(w, CACHE_EVICTED), 0);
    text_add_answer(&small, a);
    text_add(&small, 20, 3);
    ck_assert_uint_eq(world_ask(w, &small, 10)->r->n_cached, 159);
    world_free(w);
}
END_TEST

static void noted(void *arg)
{
    *(bool *)arg = true;
}

START_TEST(a_stop_that_waits_for_requests_gives_them_the_pages_of_others)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct client *c;
    bool idle = false;

    o.engine.n_units = 30;
    w = world_new(&o);
    /* The write-backs of the first one are refused: its pages can leave only when copied. */
    for (int i = 0; i < 8; i++) {
        fake_engine_refuse_kind(w->engine, JOB_EXPORT, -ENOMEM);
        c = client_new(w, 200, 10);
        client_run(c);
    }
    c = client_new(w, 500, 1000);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run_until_read(w, c, 500);
    sched_stop(w->sched, false, noted, &idle);
    world_run(w);
    ck_assert_uint_eq(c->n_done, 1);
    ck_assert(idle);
    client_check(c);
    world_free(w);
}
END_TEST

START_TEST(limits_that_are_lowered_while_it_runs_cost_no_request)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct cache_limits l = o.limits;
    struct client *c[4];

    for (int i = 0; i < 3; i++)
        (void)world_ask(w, &(struct text){.ids = {5 + i, 6, 7}, .n = 3}, 150);
    for (int i = 0; i < 4; i++) {
        c[i] = client_new(w, 300, 100);
        c[i]->r->uid = 1000;
        ck_assert_int_eq(client_submit(c[i], NULL), 0);
    }
    world_run_until_read(w, c[3], 100);
    l.ram_units = 2;
    l.n_conversations = 1;
    l.n_roots = 0;
    world_set_limits(w, &l);
    world_run(w);
    for (int i = 0; i < 4; i++)
        client_check(c[i]);
    ck_assert_uint_le(world_stats(w).tier[CACHE_RAM].units_held, 2);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    l.ram_units = 100;
    l.n_conversations = 0;
    world_set_limits(w, &l);
    client_run(client_new(w, 300, 100));
    world_free(w);
}
END_TEST

/* --- estimates --- */

/* Behind the pinned root there is no room for the request, nor for a copy of the root. */
START_TEST(a_pin_makes_way_for_a_request_that_would_fail)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p = {0}, other = {0}, more = {0};
    struct client *a;

    o.engine.n_units = 20;
    o.limits.ram_units = 0;
    w = world_new(&o);
    text_add(&p, 900, 1);
    more = p;
    text_add(&p, 20, 2);
    a = client_of(w, &p, 2);
    a->r->bounds.root = 900;
    a->r->root_asked = true;
    client_run(a);
    for (uint64_t id = 1; world_stats(w).n_pinned == 0 && id < 4; id++)
        (void)cache_pin_root(w->cache, id, true, clock_ns());
    ck_assert_uint_eq(world_stats(w).n_pinned, 1);
    /* It may be read on from, if only its checkpoint makes way. */
    text_add(&more, 300, 4);
    (void)world_ask(w, &more, 2);
    text_add(&other, 1000, 3);
    (void)world_ask(w, &other, 2);
    ck_assert_uint_eq(world_stats(w).n_pinned, 0);
    ck_assert_uint_ge(world_n_events(w, CACHE_ROOT_LOST), 1);
    world_free(w);
}
END_TEST

START_TEST(a_slow_tier_loses_to_reading)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p;
    struct client *c;

    o.engine.ns_per_row = 1000;
    w = world_new(&o);
    (void)first_turn_in_ram(w, &p);
    /* Nothing is known of ram: it is tried, and turns out to take 100 ms. */
    w->o.ns_per_transfer = 100000000;
    c = world_ask(w, &p, 20);
    client_told(c, next_turn);
    text_add_answer(&p, c);
    text_add(&p, 30, 3);
    world_run(w);
    ck_assert_int_eq(cache_evict(w->cache, c->r->decision->conversation, false), 0);
    world_run(w);
    c = world_ask(w, &p, 20);
    client_told(c, (struct told){SOURCE_NONE, true, false, 0, 420, WHY_READING_FASTER});
    ck_assert(c->r->decision->est_best_ms > c->r->decision->est_cold_ms);
    ck_assert_uint_eq(c->r->decision->n_found, 389);
    ck_assert_uint_eq(c->r->decision->n_found_vram, 0);
    world_free(w);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
    TCase *tc = tcase_create(name);

    suite_add_tcase(s, tc);
    return tc;
}

int main(void)
{
    Suite *s = suite_create("sched_cache_fails");
    TCase *tc = add_case(s, "copies");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, what_is_only_in_ram_is_loaded, 0, 2);
    tcase_add_loop_test(tc, from_ram_into_another_slot_is_a_hit, 0, 2);
    tcase_add_loop_test(tc, a_failed_import_is_read_instead, 0, 2);
    tcase_add_loop_test(tc, a_refused_import_is_read_instead, 0, 2);
    tcase_add_loop_test(tc, a_failed_or_refused_copy_costs_the_source, 0, 4);
    tcase_add_loop_test(tc, a_refused_mount_is_read_from_0, 0, 2);
    tcase_add_loop_test(tc, a_failed_mount_is_read_from_0, 0, 2);
    tcase_add_loop_test(tc, what_is_read_instead_leaves_its_checkpoints, 0, 2);
    tcase_add_loop_test(tc, a_failed_export_leaves_it_in_vram, 0, 2);
    tc = add_case(s, "cancel");
    tcase_add_loop_test(tc, a_cancelled_read_keeps_what_it_has_read, 0, 2);
    tcase_add_loop_test(tc, cancelled_before_it_reads_its_source_stays, 0, 24);
    tc = add_case(s, "room");
    tcase_add_loop_test(tc, the_youngest_is_parked_and_goes_on_from_its_own_pages, 0, 2);
    tcase_add_loop_test(tc, without_ram_what_leaves_vram_is_gone_and_told, 0, 2);
    tcase_add_loop_test(tc, what_is_too_large_for_ram_is_refused_and_evicts_nothing, 0, 2);
    tcase_add_loop_test(tc, a_stop_that_waits_for_requests_gives_them_the_pages_of_others, 0, 2);
    tcase_add_loop_test(tc, limits_that_are_lowered_while_it_runs_cost_no_request, 0, 2);
    tcase_add_loop_test(tc, a_pin_makes_way_for_a_request_that_would_fail, 0, 2);
    tcase_add_loop_test(tc, a_slow_tier_loses_to_reading, 0, 2);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
