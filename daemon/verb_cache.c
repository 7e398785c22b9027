/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/verb_cache.h"

#include "cache/cache.h"
#include "ctl/varlink.h"
#include "daemon/api_keys.h"
#include "daemon/decisions.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "daemon/verb_peer.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Entries in one answer: a message is at most 1 MiB, and one takes some 400 bytes of it. */
enum { ENTRIES_MOST = 1000 };

/* --- parameters --------------------------------------------------------------------------------
 */

static int need_cache(const struct verb_context *c, struct verb_error *e)
{
    if (c->server->cache)
        return 0;
    return verb_fail(e, STRATA_CONTROL ".NoCache", "reason",
                     c->server->state == SERVER_READY || c->server->state == SERVER_STOPPING
                         ? "the setting cache is false"
                         : "the model is not loaded");
}

static int get_id(json_t *parameters, uint64_t *ret, struct verb_error *e)
{
    json_int_t id = json_integer_value(json_object_get(parameters, "id"));

    if (id < 1)
        return verb_bad_parameter(e, "id");
    *ret = (uint64_t)id;
    return 0;
}

/* What the cache answered for entry `id`. */
static int result(int r, uint64_t id, struct verb_error *e)
{
    (void)snprintf(e->room, sizeof e->room, "%" PRIu64, id);
    if (r == -ENOENT)
        return verb_fail(e, STRATA_CONTROL ".NoSuchEntry", "id", e->room);
    if (r == -EBUSY)
        return verb_fail(e, STRATA_CONTROL ".Busy", "id", e->room);
    return r;
}

/* --- what there is -----------------------------------------------------------------------------
 */

static json_t *entry_json(const struct server *s, const struct cache_entry *x, uint64_t now)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:o*, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
                     "s:I, s:I, s:I, s:I, "
                     "s:I, s:f}",
                     "id", (json_int_t)x->id, "kind", x->is_root ? "root" : "conversation",
                     "active", x->is_active, "pinned", x->is_pinned, "shared", x->is_shared, "uid",
                     uid_is_user(x->uid) ? json_integer(x->uid) : NULL, "key",
                     api_keys_name(s->keys, x->uid), "tokens", (json_int_t)x->n_tokens, "turn_pos",
                     (json_int_t)x->turn_pos, "query_pos", (json_int_t)x->query_pos, "pages",
                     (json_int_t)x->n_pages, "vram_pages", (json_int_t)x->n_pages_vram, "ram_pages",
                     (json_int_t)x->n_pages_ram, "own_pages", (json_int_t)x->n_pages_own,
                     "checkpoints", (json_int_t)x->n_checkpoints, "vram_bytes",
                     (json_int_t)x->bytes_vram, "ram_bytes", (json_int_t)x->bytes_ram, "idle_ms",
                     (json_int_t)(now > x->last_use ? (now - x->last_use) / 1000000 : 0), "hits",
                     (json_int_t)x->hits, "value", x->value);
}

/* All entries, or the roots; the newest `most` of them.  *ret_total counts all. */
static int list(const struct server *s, bool roots_only, uint32_t most, json_t **ret,
                uint32_t *ret_total)
{
    const uint64_t now = clock_ns();
    CLEANUP(free_p) struct cache_entry *entries = calloc(most, sizeof *entries);
    const int n = entries ? cache_entries(s->cache, roots_only, entries, most, ret_total) : -ENOMEM;
    json_t *a = json_array();
    bool ok = a && n >= 0;

    for (int i = 0; ok && i < n; i++)
        ok = json_array_append_new(a, entry_json(s, &entries[i], now)) == 0;
    if (!ok) {
        json_decref(a);
        return -ENOMEM;
    }
    *ret = a;
    return 0;
}

int verb_cache_list(const struct verb_context *c, json_t *parameters, json_t **ret,
                    struct verb_error *e)
{
    const json_t *asked = json_object_get(parameters, "limit");
    json_int_t limit = ENTRIES_MOST;
    json_t *entries;
    uint32_t total;
    int r;

    if (asked && !json_is_null(asked)) {
        limit = json_integer_value(asked);
        if (limit < 1 || limit > ENTRIES_MOST)
            return verb_bad_parameter(e, "limit");
    }
    r = need_cache(c, e);
    if (r == 0)
        r = list(c->server, false, (uint32_t)limit, &entries, &total);
    if (r < 0)
        return r;
    *ret = json_pack("{s:I, s:o}", "total", (json_int_t)total, "entries", entries);
    return *ret ? 0 : -ENOMEM;
}

int verb_roots_list(const struct verb_context *c, json_t *parameters, json_t **ret,
                    struct verb_error *e)
{
    json_t *roots;
    uint32_t total;
    int r = need_cache(c, e);

    (void)parameters;
    if (r == 0)
        r = list(c->server, true, ENTRIES_MOST, &roots, &total);
    if (r < 0)
        return r;
    *ret = json_pack("{s:o}", "roots", roots);
    return *ret ? 0 : -ENOMEM;
}

int verb_cache_show(const struct verb_context *c, json_t *parameters, json_t **ret,
                    struct verb_error *e)
{
    struct cache_entry x;
    uint64_t id = 0;
    int r = get_id(parameters, &id, e);

    if (r == 0)
        r = need_cache(c, e);
    if (r == 0)
        r = result(cache_entry(c->server->cache, id, &x), id, e);
    if (r < 0)
        return r;
    *ret = json_pack("{s:o}", "entry", entry_json(c->server, &x, clock_ns()));
    return *ret ? 0 : -ENOMEM;
}

static json_t *tier_json(const struct cache_tier_stats *t)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "units_held", (json_int_t)t->units_held, "units_limit",
                     (json_int_t)t->units_limit, "units_coming", (json_int_t)t->units_coming,
                     "bytes", (json_int_t)t->bytes);
}

static json_t *reuse_json(const struct server *s)
{
    struct decision_totals t = {0};

    if (s->decisions)
        decisions_totals(s->decisions, &t);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)t.requests,
                     "switches", (json_int_t)t.switches, "hits", (json_int_t)t.hits, "misses",
                     (json_int_t)t.misses, "continuations", (json_int_t)t.continuations,
                     "prompt_tokens", (json_int_t)t.prompt_tokens, "reused_tokens",
                     (json_int_t)t.reused_tokens);
}

int verb_cache_stats(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    struct cache_stats s;
    int r = need_cache(c, e);

    (void)parameters;
    if (r < 0)
        return r;
    cache_stats(c->server->cache, &s);

    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"pages", s.n_pages},
        {"checkpoints", s.n_checkpoints},
        {"spaces", s.n_spaces},
        {"parked", s.n_parked},
        {"parked_limit", s.n_conversations_limit},
        {"active", s.n_active},
        {"roots", s.n_roots},
        {"pinned", s.n_pinned},
        {"parks", s.parks},
        {"evictions", s.evictions},
        {"superseded", s.superseded},
        {"refused", s.refused},
        {"demotions", s.demotions},
        {"roots_made", s.roots_made},
        {"roots_lost", s.roots_lost},
        {"write_backs", s.write_backs},
        {"write_back_bytes", s.write_back_bytes},
        {"loads", s.loads},
        {"load_bytes", s.load_bytes},
        {"failed_moves", s.failed_moves},
        {"book_bytes", s.book_bytes},
        {"token_bytes", s.token_bytes},
        {"rounding_bytes", s.rounding_bytes},
    };
    json_t *o = json_pack("{s:o, s:o, s:o}", "vram", tier_json(&s.tier[CACHE_VRAM]), "ram",
                          tier_json(&s.tier[CACHE_RAM]), "reuse", reuse_json(c->server));
    bool ok = o != NULL;

    for (size_t i = 0; ok && i < sizeof numbers / sizeof numbers[0]; i++)
        ok =
            json_object_set_new(o, numbers[i].key, json_integer((json_int_t)numbers[i].value)) == 0;
    if (!ok) {
        json_decref(o);
        return -ENOMEM;
    }
    *ret = o;
    return 0;
}

/* --- what changes it ---------------------------------------------------------------------------
 */

/* The cache, for somebody who may change it; what happens next is nobody's request's doing. */
static int get_cache(const struct verb_context *c, struct cache **ret, struct verb_error *e)
{
    int r = verb_need_admin(c, e);

    if (r == 0)
        r = need_cache(c, e);
    if (r < 0)
        return r;
    *ret = c->server->cache;
    cache_set_cause(*ret, 0);
    return 0;
}

/* The cache has changed: copies that were asked for begin, and who waits for room is looked at. */
static int done(const struct verb_context *c, json_t *o, json_t **ret)
{
    if (c->server->sched)
        sched_cache_changed(c->server->sched);
    *ret = o;
    return o ? 0 : -ENOMEM;
}

int verb_cache_evict(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    const json_t *forget = json_object_get(parameters, "forget");
    struct cache *cache;
    uint64_t id = 0;
    int r = get_id(parameters, &id, e);

    if (r == 0 && forget && !json_is_boolean(forget) && !json_is_null(forget))
        r = verb_bad_parameter(e, "forget");
    if (r == 0)
        r = get_cache(c, &cache, e);
    if (r == 0)
        r = result(cache_evict(cache, id, json_is_true(forget)), id, e);
    return r < 0 ? r : done(c, json_object(), ret);
}

int verb_cache_clear(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    struct cache *cache;
    int r = get_cache(c, &cache, e);

    (void)parameters;
    if (r < 0)
        return r;
    return done(c, json_pack("{s:I}", "conversations", (json_int_t)cache_clear(cache)), ret);
}

int verb_roots_clear(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    struct cache *cache;
    int r = get_cache(c, &cache, e);

    (void)parameters;
    if (r < 0)
        return r;
    return done(c, json_pack("{s:I}", "roots", (json_int_t)cache_clear_roots(cache)), ret);
}

static int pin(const struct verb_context *c, json_t *parameters, bool pinned, json_t **ret,
               struct verb_error *e)
{
    struct cache *cache;
    uint64_t id = 0;
    int r = get_id(parameters, &id, e);

    if (r == 0)
        r = get_cache(c, &cache, e);
    if (r == 0)
        r = result(cache_pin_root(cache, id, pinned, clock_ns()), id, e);
    return r < 0 ? r : done(c, json_object(), ret);
}

int verb_roots_pin(const struct verb_context *c, json_t *parameters, json_t **ret,
                   struct verb_error *e)
{
    return pin(c, parameters, true, ret, e);
}

int verb_roots_unpin(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    return pin(c, parameters, false, ret, e);
}
