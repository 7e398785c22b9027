/* SPDX-License-Identifier: Apache-2.0 */
/* cache/arena: random takes and drops against a plain list, and the memory that lies behind. */
#include "cache/arena.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNIT = 192, PER_SEGMENT = 7, MOST = 60, STEPS = 3000 };

/* The plain model: what each unit number holds. */
struct world {
    struct arena *a;
    uint32_t max;
    uint32_t n_used;
    uint32_t refs[MOST];
    uint32_t stamp[MOST]; /* written all over the unit */
    uint32_t last_stamp;
    unsigned int seed;
};

static void fill(const struct world *w, uint32_t unit)
{
    uint32_t *p = arena_ptr(w->a, unit);

    for (size_t i = 0; i < UNIT / sizeof *p; i++)
        p[i] = w->stamp[unit];
}

/* Every unit still holds what was written into it, which no other overlaps. */
static bool holds_all(const struct world *w)
{
    for (uint32_t u = 0; u < MOST; u++) {
        const uint32_t *p;

        if (arena_refs(w->a, u) != w->refs[u])
            return false;
        if (w->refs[u] == 0)
            continue;
        p = arena_ptr(w->a, u);
        for (size_t i = 0; i < UNIT / sizeof *p; i++)
            if (p[i] != w->stamp[u])
                return false;
    }
    return true;
}

/* A segment is there exactly while one of its units is taken. */
static bool segments_fit(const struct world *w)
{
    uint32_t n = 0;

    for (uint32_t s = 0; s <= MOST / PER_SEGMENT; s++) {
        uint32_t used = 0;
        struct stat st;

        for (uint32_t i = s * PER_SEGMENT; i < (s + 1) * PER_SEGMENT && i < MOST; i++)
            used += w->refs[i] > 0;
        if ((arena_segment_fd(w->a, s) >= 0) != (used > 0))
            return false;
        if (used == 0)
            continue;
        n++;
        if (s >= arena_n_segments(w->a) || fstat(arena_segment_fd(w->a, s), &st) < 0 ||
            st.st_size < UNIT * PER_SEGMENT)
            return false;
    }
    return arena_bytes_mapped(w->a) == n * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The unit that has to come next: one of the fullest segment that has room below the limit. */
static bool is_of_the_fullest(const struct world *w, uint32_t unit)
{
    uint32_t used[MOST / PER_SEGMENT + 1] = {0}, most = 0;

    for (uint32_t u = 0; u < MOST; u++)
        used[u / PER_SEGMENT] += w->refs[u] > 0;
    for (uint32_t u = 0; u < w->max; u++)
        if (w->refs[u] == 0 && used[u / PER_SEGMENT] > most)
            most = used[u / PER_SEGMENT];
    return unit < w->max && w->refs[unit] == 0 && used[unit / PER_SEGMENT] == most;
}

static void take(struct world *w)
{
    uint32_t unit = UINT32_MAX;
    int r = arena_take(w->a, &unit);

    if (w->n_used >= w->max) {
        ck_assert_int_eq(r, -ENOSPC);
        ck_assert_uint_eq(unit, UINT32_MAX);
        return;
    }
    ck_assert_int_eq(r, 0);
    ck_assert(is_of_the_fullest(w, unit));
    w->refs[unit] = 1;
    w->stamp[unit] = ++w->last_stamp;
    w->n_used++;
    fill(w, unit);
}

/* A taken unit, or MOST. */
static uint32_t any_unit(struct world *w)
{
    uint32_t first = (uint32_t)rand_r(&w->seed) % MOST;

    for (uint32_t i = 0; i < MOST; i++)
        if (w->refs[(first + i) % MOST] > 0)
            return (first + i) % MOST;
    return MOST;
}

static void drop(struct world *w, uint32_t unit)
{
    arena_unref(w->a, unit);
    w->n_used -= --w->refs[unit] == 0;
}

static void step(struct world *w)
{
    /* Long stretches that mostly take, then that mostly drop. */
    unsigned int r = (unsigned int)rand_r(&w->seed) % 100, takes = w->last_stamp / 40 % 2 ? 35 : 60;
    uint32_t unit = any_unit(w);

    if (r < takes || (unit == MOST && r < 97)) {
        take(w);
    } else if (r < 97) {
        if (r % 4 == 0) {
            arena_ref(w->a, unit);
            w->refs[unit]++;
        } else {
            drop(w, unit);
        }
    } else {
        w->max = (uint32_t)rand_r(&w->seed) % (MOST + 1);
        arena_set_max(w->a, w->max);
    }
}

START_TEST(random_use_is_what_a_plain_list_says)
{
    struct world w = {.max = MOST, .seed = (unsigned int)_i};
    bool ok = true;

    ck_assert_int_eq(arena_new(UNIT, w.max, UNIT * PER_SEGMENT + 63, &w.a), 0);
    for (int i = 0; i < STEPS && ok; i++) {
        step(&w);
        ok = arena_is_sane(w.a) && holds_all(&w) && segments_fit(&w) &&
             arena_n_used(w.a) == w.n_used && arena_max_units(w.a) == w.max;
    }
    ck_assert(ok);
    for (uint32_t u; (u = any_unit(&w)) != MOST;)
        drop(&w, u);
    ck_assert_uint_eq(arena_bytes_mapped(w.a), 0);
    ck_assert_uint_eq(arena_n_segments(w.a), 0);
    arena_free(w.a);
}
END_TEST

static uint32_t must_take(struct arena *a)
{
    uint32_t u = 0;

    ck_assert_int_eq(arena_take(a, &u), 0);
    return u;
}

START_TEST(a_segment_is_a_memfd_of_this_process_alone_and_holds_the_bytes)
{
    char in[4096], out[4096];
    struct arena *a;
    uint32_t u[3];
    int fd;

    ck_assert_int_eq(arena_new(4096, 10, 2 * 4096, &a), 0);
    ck_assert_int_eq(arena_segment_fd(a, 0), -1);
    for (int i = 0; i < 3; i++) {
        u[i] = must_take(a);
        ck_assert_uint_eq((uintptr_t)arena_ptr(a, u[i]) % 4096, 0);
        memset(arena_ptr(a, u[i]), 'a' + i, 4096);
    }
    ck_assert_uint_eq(arena_n_segments(a), 2);
    fd = arena_segment_fd(a, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    memset(in, 'b', sizeof in);
    ck_assert_int_eq(pread(fd, out, sizeof out, 4096), sizeof out);
    ck_assert_mem_eq(in, out, sizeof in);
    ck_assert_int_eq(arena_segment_fd(a, 2), -1);

    /* Given back: the descriptor is closed. */
    arena_unref(a, u[0]);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    arena_unref(a, u[1]);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    ck_assert_int_eq(arena_segment_fd(a, 0), -1);
    ck_assert_uint_eq(arena_n_segments(a), 2);
    ck_assert_uint_eq(arena_bytes_mapped(a), 2 * 4096);
    arena_free(a);
}
END_TEST

START_TEST(memory_is_charged_when_it_is_written_and_not_before)
{
    struct arena *a;
    struct stat st;

    ck_assert_int_eq(arena_new(1 << 16, 4096, ARENA_SEGMENT_BYTES, &a), 0);
    ck_assert_uint_eq(arena_bytes_mapped(a), 0);
    (void)must_take(a);
    ck_assert_uint_eq(arena_bytes_mapped(a), ARENA_SEGMENT_BYTES);
    ck_assert_int_eq(fstat(arena_segment_fd(a, 0), &st), 0);
    ck_assert_int_eq(st.st_size, ARENA_SEGMENT_BYTES);
    ck_assert_int_eq(st.st_blocks, 0);
    arena_free(a);
}
END_TEST

START_TEST(a_unit_larger_than_a_segment_has_one_of_its_own)
{
    struct arena *a;
    uint32_t x, y;

    ck_assert_int_eq(arena_new(3 * 4096 + 64, 2, 4096, &a), 0);
    x = must_take(a);
    y = must_take(a);
    memset(arena_ptr(a, x), 1, 3 * 4096 + 64);
    memset(arena_ptr(a, y), 2, 3 * 4096 + 64);
    ck_assert_uint_eq(arena_bytes_mapped(a), 8 * 4096);
    ck_assert_int_eq(*((char *)arena_ptr(a, x) + 3 * 4096), 1);
    arena_free(a);
}
END_TEST

START_TEST(a_lowered_limit_leaves_the_taken_and_empties_what_is_above)
{
    struct arena *a;
    uint32_t u[12], v;

    ck_assert_int_eq(arena_new(64, 12, 4 * 64, &a), 0);
    for (int i = 0; i < 12; i++)
        u[i] = must_take(a);
    arena_set_max(a, 6);
    ck_assert_int_eq(arena_take(a, &v), -ENOSPC);
    for (int i = 0; i < 7; i++)
        arena_unref(a, u[i]);
    /* Five above are left: one more fits, and it lies below. */
    v = must_take(a);
    ck_assert_uint_lt(v, 6);
    ck_assert_int_eq(arena_take(a, &v), -ENOSPC);
    for (int i = 7; i < 12; i++)
        arena_unref(a, u[i]);
    ck_assert_uint_eq(arena_n_used(a), 1);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_lt(must_take(a), 6);
    ck_assert_int_eq(arena_take(a, &v), -ENOSPC);
    arena_set_max(a, 0);
    ck_assert_int_eq(arena_take(a, &v), -ENOSPC);
    arena_set_max(a, 7);
    ck_assert_uint_eq(must_take(a), 6);
    ck_assert(arena_is_sane(a));
    arena_free(a);
}
END_TEST

START_TEST(when_the_system_has_no_segment_the_others_go_on)
{
    struct rlimit old, none;
    struct arena *a;
    uint32_t u, v = 77;

    ck_assert_int_eq(arena_new(64, 4, 2 * 64, &a), 0);
    u = must_take(a);
    (void)must_take(a);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(arena_take(a, &v), -ENOMEM);
    ck_assert_uint_eq(v, 77);
    ck_assert(arena_is_sane(a));
    arena_unref(a, u);
    ck_assert_uint_eq(must_take(a), u);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    ck_assert_int_eq(arena_take(a, &v), 0);
    ck_assert_uint_eq(arena_n_used(a), 3);
    arena_free(a);
}
END_TEST

/* A scan of all units or segments for each would take minutes, which the test's time limit ends. */
START_TEST(a_hundred_thousand_units_come_and_go)
{
    enum { N = 100000 };
    uint32_t *u = malloc(N * sizeof *u);
    struct arena *a;
    int r = 0;

    ck_assert_int_eq(arena_new(64, N, 1000 * 64, &a), 0);
    for (uint32_t i = 0; i < N; i++)
        r |= arena_take(a, &u[i]);
    ck_assert_int_eq(r, 0);
    ck_assert_uint_eq(arena_n_segments(a), 100);
    /* Every tenth stays, then the space between is filled again. */
    for (uint32_t i = 0; i < N; i++)
        if (i % 10)
            arena_unref(a, u[i]);
    ck_assert(arena_is_sane(a));
    for (uint32_t i = 0; i < N; i++)
        if (i % 10)
            r |= arena_take(a, &u[i]);
    ck_assert_int_eq(r, 0);
    for (uint32_t i = 0; i < N; i++)
        arena_unref(a, u[i]);
    ck_assert_uint_eq(arena_bytes_mapped(a), 0);
    arena_free(a);
    free(u);
}
END_TEST

START_TEST(senseless_sizes_are_refused)
{
    struct arena *a = NULL;

    ck_assert_int_eq(arena_new(0, 1, 4096, &a), -EINVAL);
    ck_assert_int_eq(arena_new(65, 1, 4096, &a), -EINVAL);
    ck_assert_int_eq(arena_new(64, 1, 0, &a), -EINVAL);
    ck_assert_int_eq(arena_new(UINT64_MAX - 63, 1, 4096, &a), -EINVAL);
    ck_assert_int_eq(arena_new(64, 1, UINT64_MAX, &a), -EINVAL);
    ck_assert_ptr_null(a);
    arena_free(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arena");
    TCase *t = tcase_create("arena");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, random_use_is_what_a_plain_list_says, 0, 10);
    tcase_add_test(t, a_segment_is_a_memfd_of_this_process_alone_and_holds_the_bytes);
    tcase_add_test(t, memory_is_charged_when_it_is_written_and_not_before);
    tcase_add_test(t, a_unit_larger_than_a_segment_has_one_of_its_own);
    tcase_add_test(t, a_lowered_limit_leaves_the_taken_and_empties_what_is_above);
    tcase_add_test(t, when_the_system_has_no_segment_the_others_go_on);
    tcase_add_test(t, a_hundred_thousand_units_come_and_go);
    tcase_add_test(t, senseless_sizes_are_refused);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
