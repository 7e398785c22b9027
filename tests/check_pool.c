/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of the CPU backend; also run under TSan, which sees unordered accesses that a barrier
 * let through. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/pool.h"

enum { MAX_THREADS = 8, PHASES = 60, ITEMS = 500 };

struct world {
    struct pool *pool;
    uint32_t n;
    /* Written without atomics on purpose: only barriers order it. */
    uint32_t cells[MAX_THREADS];
    uint32_t bad;
    struct pool_counter counters[2];
    uint8_t taken[ITEMS];
    uint32_t grain;
    uint32_t calls[MAX_THREADS];
};

static void world_init(struct world *w, int n_threads)
{
    memset(w, 0, sizeof(*w));
    w->n = (uint32_t)n_threads;
    ck_assert_int_eq(pool_new(w->n, &w->pool), 0);
    ck_assert_uint_eq(pool_size(w->pool), w->n);
}

static void count_call(void *arg, uint32_t i_member)
{
    struct world *w = arg;

    w->calls[i_member]++;
}

START_TEST(every_member_runs_the_function_once_per_run)
{
    struct world w;

    world_init(&w, _i);
    for (uint32_t run = 1; run <= 200; run++) {
        pool_run(w.pool, count_call, &w);
        for (uint32_t i = 0; i < w.n; i++)
            ck_assert_uint_eq(w.calls[i], run);
    }
    pool_free(w.pool);
}
END_TEST

static void phases(void *arg, uint32_t i_member)
{
    struct world *w = arg;

    for (uint32_t phase = 1; phase <= PHASES; phase++) {
        w->cells[i_member] = phase;
        pool_barrier(w->pool);
        for (uint32_t i = 0; i < w->n; i++)
            if (w->cells[i] != phase)
                w->bad = phase; /* a plain store, but never reached */
        pool_barrier(w->pool);
    }
}

START_TEST(what_was_written_before_a_barrier_is_seen_behind_it)
{
    struct world w;

    world_init(&w, _i);
    pool_run(w.pool, phases, &w);
    pool_run(w.pool, phases, &w);
    ck_assert_uint_eq(w.bad, 0);
    pool_free(w.pool);
}
END_TEST

static void take_all(void *arg, uint32_t i_member)
{
    struct world *w = arg;

    for (uint32_t loop = 0; loop < 20; loop++) {
        struct pool_counter *c = &w->counters[loop % 2];
        uint32_t begin, end;

        while (pool_take(c, ITEMS, w->grain, &begin, &end))
            for (uint32_t i = begin; i < end; i++)
                w->taken[i]++;
        pool_barrier(w->pool);
        if (i_member == 0)
            atomic_store_explicit(&c->next, 0, memory_order_relaxed);
    }
}

START_TEST(every_item_is_handed_out_once_per_loop)
{
    static const uint32_t grains[] = {1, 7, 16, 499, 500, 501, 100000, UINT32_MAX};
    struct world w;

    world_init(&w, _i);
    for (size_t g = 0; g < sizeof(grains) / sizeof(grains[0]); g++) {
        w.grain = grains[g];
        memset(w.taken, 0, sizeof(w.taken));
        pool_run(w.pool, take_all, &w);
        for (uint32_t i = 0; i < ITEMS; i++)
            ck_assert_uint_eq(w.taken[i], 20);
    }
    pool_free(w.pool);
}
END_TEST

START_TEST(nothing_is_handed_out_of_an_empty_loop)
{
    struct pool_counter c = {0};
    uint32_t begin = 3, end = 4;

    ck_assert_int_eq(pool_take(&c, 0, 16, &begin, &end), 0);
    ck_assert_uint_eq(begin, 3);
    ck_assert_uint_eq(end, 4);
}
END_TEST

START_TEST(a_pool_that_never_ran_can_be_freed)
{
    struct pool *p;

    ck_assert_int_eq(pool_new((uint32_t)_i, &p), 0);
    pool_free(p);
    pool_free(NULL);
}
END_TEST

START_TEST(a_pool_of_nobody_is_refused)
{
    struct pool *p = NULL;

    ck_assert_int_eq(pool_new(0, &p), -EINVAL);
    ck_assert_ptr_null(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, every_member_runs_the_function_once_per_run, 1, MAX_THREADS + 1);
    tcase_add_loop_test(t, what_was_written_before_a_barrier_is_seen_behind_it, 1, MAX_THREADS + 1);
    tcase_add_loop_test(t, every_item_is_handed_out_once_per_loop, 1, MAX_THREADS + 1);
    tcase_add_test(t, nothing_is_handed_out_of_an_empty_loop);
    tcase_add_loop_test(t, a_pool_that_never_ran_can_be_freed, 1, MAX_THREADS + 1);
    tcase_add_test(t, a_pool_of_nobody_is_refused);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
