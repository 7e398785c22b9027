/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the books of the prefix cache cost: no bytes of a model are in here.
 *
 *     bench_cache [--rounds N]
 *
 * Prints rows of the CSV of bench_engine, without its header, and on standard error what is slower
 * or larger than it should be: a lookup among 100,000 pages 50 us and 0.3 us for each page that
 * matches, everything that one request of 512 tokens asks of the cache 0.5 ms, our own memory 1 %
 * of the bytes kept.  "ceiling" is that target.
 */
#include "cache/arena.h"
#include "cache/cache.h"
#include "util/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROUNDS = 1000,
    N_PAGES = 100000,
    ROOT_PAGES = 100, /* of the common beginning */
    CHAT_PAGES = 300, /* of each chat behind it */
    N_CHATS = (N_PAGES - ROOT_PAGES) / CHAT_PAGES,
    UNIT_BYTES = 96 << 10,
    REQUEST_PAGES = 8, /* 512 tokens */
    CHECKPOINT_UNITS = 3,
    VRAM_UNITS = N_PAGES + 200000,
    MAX_TOKENS = (ROOT_PAGES + CHAT_PAGES + 1) * CACHE_PAGE,
    LOOKUPS = 200, /* a round */
    REQUESTS = 200,
};

struct bench {
    struct cache *cache;
    struct arena *arena;
    struct cache_space *space;
    uint32_t next_unit; /* of a pool that is never short */
    uint64_t now;
    int32_t tokens[MAX_TOKENS];
};

static void ignore_unit(void *arg, uint32_t unit)
{
    (void)arg;
    (void)unit;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

static void row(const char *name, const char *unit, double *v, uint32_t n, double target)
{
    qsort(v, n, sizeof *v, descending);
    printf("cache,%s,1,-,%u,%s,%.4f,%.4f,%.4f,1.00,target,%.4f,%.3f\n", name, n, unit, v[n / 2],
           v[0], v[n - 1], target, v[n / 2] / target);
    if (v[n / 2] > target)
        (void)fprintf(stderr, "bench: MISSED: cache %s takes %.4f %s, the target is %.4f\n", name,
                      v[n / 2], unit, target);
}

/* The root is 0 for all, then the chat's number in its first token, then text like any other. */
static void fill(struct bench *b, uint32_t chat)
{
    uint32_t x = chat + 1;

    for (uint32_t i = 0; i < MAX_TOKENS; i++) {
        if (i == ROOT_PAGES * CACHE_PAGE)
            x = chat * 2654435761u + 12345;
        x = x * 1664525u + 1013904223u;
        b->tokens[i] = i < ROOT_PAGES * CACHE_PAGE ? (int32_t)(i % 997) : (int32_t)(x >> 12);
    }
}

static uint32_t take_unit(struct bench *b)
{
    b->next_unit = (b->next_unit + 1) % VRAM_UNITS;
    return b->next_unit;
}

static int fail(const char *what, int code)
{
    (void)fprintf(stderr, "bench_cache: %s: %s\n", what, strerror(-code));
    return code;
}

/* One path of n full pages from the beginning, read from where the cache has it, with a checkpoint
 * at each of `at`. */
static int request(struct bench *b, uint32_t n_pages, const uint32_t *at, uint32_t n_at)
{
    const uint32_t n = n_pages * CACHE_PAGE;
    struct cache_ending end = {.n_tokens = n, .turn_pos = at[0]};
    struct cache_found f;
    struct cache_pin pin;
    struct cache_cursor u;
    int r;

    b->now += 1000000000;
    cache_find(b->cache, b->space, b->tokens, n, n - 1, &f);
    r = cache_pin(b->cache, b->space, &f.best, b->now, &pin);
    if (r < 0)
        return fail("pin", r);
    (void)cache_supersede(b->cache, b->space, b->tokens, n, 0);
    cache_cursor_init(b->cache, b->space, &pin, &u);
    cache_unpin(b->cache, &pin);
    while (u.n_pages < n_pages && r == 0) {
        r = cache_extend(b->cache, &u, b->tokens + (size_t)u.n_pages * CACHE_PAGE, take_unit(b),
                         b->now);
        for (uint32_t i = 0; i < n_at && r == 0; i++) {
            uint32_t units[CHECKPOINT_UNITS];

            if (at[i] > u.n_pages * CACHE_PAGE || at[i] <= (u.n_pages - 1) * CACHE_PAGE)
                continue;
            for (uint32_t k = 0; k < CHECKPOINT_UNITS; k++)
                units[k] = take_unit(b);
            r = cache_add_checkpoint(b->cache, &u, NULL, at[i], CACHE_AT_TURN, units);
        }
    }
    if (r == 0 && cache_park(b->cache, &u, &end, b->now) == 0)
        r = -1;
    cache_cursor_done(b->cache, &u);
    return r < 0 ? fail("request", r) : 0;
}

static int build(struct bench *b)
{
    const struct cache_ops ops = {ignore_unit, ignore_unit, NULL, NULL};
    struct cache_options o = {
        .unit_bytes = UNIT_BYTES, .vram_units = VRAM_UNITS, .checkpoint_units = CHECKPOINT_UNITS};
    const uint32_t end = (ROOT_PAGES + CHAT_PAGES) * CACHE_PAGE;
    const uint32_t at[] = {ROOT_PAGES * CACHE_PAGE, end / 2, end};
    int r = arena_new(UNIT_BYTES, 0, ARENA_SEGMENT_BYTES, &b->arena);

    if (r < 0)
        return fail("arena", r);
    o.arena = b->arena;
    r = cache_new(&o, &ops, &b->cache);
    if (r < 0)
        return fail("cache", r);
    b->space = cache_space_get(b->cache, "bench", 5, 0);
    if (!b->space)
        return fail("space", -12);
    for (uint32_t i = 0; i < N_CHATS && r == 0; i++) {
        fill(b, i);
        r = request(b, ROOT_PAGES + CHAT_PAGES, at, 3);
    }
    return r;
}

/* Microseconds for each lookup that matches n_pages, the token after them being another. */
static double lookup_us(struct bench *b, uint32_t n_pages)
{
    const uint32_t n = n_pages * CACHE_PAGE + 1;
    const uint64_t begin = clock_ns();
    struct cache_found f = {0};
    uint32_t common = 0;
    const int32_t was = b->tokens[n - 1];

    b->tokens[n - 1] = -1;
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        cache_find(b->cache, b->space, b->tokens, n, n - 1, &f);
        common |= f.n_common ^ (n - 1);
    }
    b->tokens[n - 1] = was;
    if (common != 0)
        (void)fprintf(stderr, "bench_cache: a lookup of %u pages found %u tokens\n", n_pages,
                      f.n_common);
    return clock_ms_since(begin) * 1e3 / LOOKUPS;
}

/* Milliseconds for each new chat of 512 tokens. */
static double request_ms(struct bench *b, uint32_t *chat)
{
    static const uint32_t at[] = {100, 300, REQUEST_PAGES * CACHE_PAGE};
    double ms = 0;

    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint64_t begin;

        fill(b, ++*chat);
        for (uint32_t k = 0; k < REQUEST_PAGES * CACHE_PAGE; k++)
            b->tokens[k] = b->tokens[ROOT_PAGES * CACHE_PAGE + k];
        begin = clock_ns();
        if (request(b, REQUEST_PAGES, at, 3) < 0)
            return 1e9;
        ms += clock_ms_since(begin) / REQUESTS;
    }
    return ms;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    static const uint32_t pages[] = {1, ROOT_PAGES, ROOT_PAGES + CHAT_PAGES};
    static struct bench b;
    static double v[MAX_ROUNDS];
    uint32_t rounds = 5, chat = 1000000;
    struct cache_stats st;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        rounds = c == 'r' ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        if (rounds < 1 || rounds > MAX_ROUNDS) {
            (void)fprintf(stderr, "usage: bench_cache [--rounds N]\n");
            return EXIT_FAILURE;
        }
    }
    if (build(&b) < 0)
        return EXIT_FAILURE;
    cache_stats(b.cache, &st);
    v[0] = 100.0 * (double)st.book_bytes / (double)st.tier[CACHE_VRAM].bytes;
    row("overhead", "%", v, 1, 1.0);
    fill(&b, N_CHATS / 2);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char name[32];

        for (uint32_t k = 0; k < rounds; k++)
            v[k] = lookup_us(&b, pages[i]);
        (void)snprintf(name, sizeof name, "lookup_%u", pages[i]);
        row(name, "us", v, rounds, 50 + 0.3 * pages[i]);
    }
    for (uint32_t k = 0; k < rounds; k++)
        v[k] = request_ms(&b, &chat);
    row("request_512", "ms", v, rounds, 0.5);
    cache_space_unref(b.cache, b.space);
    cache_free(b.cache);
    arena_free(b.arena);
    return EXIT_SUCCESS;
}
