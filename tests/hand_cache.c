/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/hand_cache.h"

#include "cache/arena.h"

#include <check.h>
#include <stddef.h>

static struct arena *arena;
static uint32_t next_unit;
static int32_t next_token;

static void count(void *arg, uint32_t unit)
{
    (void)arg;
    (void)unit;
}

struct cache *hand_cache_new(void)
{
    struct cache_options o = {
        .unit_bytes = HAND_UNIT_BYTES,
        .vram_units = 1000,
        .limits = {.ram_units = 100, .n_roots = 8},
    };
    struct cache_ops ops = {.vram_ref = count, .vram_unref = count};
    struct cache *c;

    next_unit = 0;
    next_token = 0;
    ck_assert_int_eq(arena_new(HAND_UNIT_BYTES, 100, 1 << 20, &arena), 0);
    o.arena = arena;
    ck_assert_int_eq(cache_new(&o, &ops, &c), 0);
    return c;
}

void hand_cache_free(struct cache *c)
{
    cache_free(c);
    arena_free(arena);
    arena = NULL;
}

uint64_t hand_cache_park(struct cache *c, uint32_t uid, uint32_t n_pages, uint32_t n_root,
                         uint64_t *ret_root, uint64_t now)
{
    struct cache_space *s = cache_space_get(c, &uid, sizeof uid, uid);
    struct cache_ending e = {.n_tokens = n_pages * CACHE_PAGE};
    struct cache_cursor u;
    uint64_t id;

    ck_assert_ptr_nonnull(s);
    cache_cursor_init(c, s, NULL, &u);
    for (uint32_t p = 0; p < n_pages; p++) {
        int32_t tokens[CACHE_PAGE];

        for (int i = 0; i < CACHE_PAGE; i++)
            tokens[i] = next_token++;
        ck_assert_int_eq(cache_extend(c, &u, tokens, next_unit++, now), 0);
        if (n_root == p + 1) {
            *ret_root = cache_make_root(c, &u, NULL, n_root * CACHE_PAGE, now);
            ck_assert_uint_ne(*ret_root, 0);
        }
    }
    id = cache_park(c, &u, &e, now);
    ck_assert_uint_ne(id, 0);
    cache_cursor_done(c, &u);
    cache_space_unref(c, s);
    return id;
}
