/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reuse.h"

#include "cache/arena.h"
#include "cache/cache.h"
#include "daemon/api_keys.h"
#include "daemon/decisions.h"
#include "daemon/diverging.h"
#include "daemon/log.h"
#include "daemon/memory.h"
#include "daemon/options.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void on_vram_ref(void *arg, uint32_t unit)
{
    const struct server *s = arg;

    units_ref(engine_units(s->engine), unit);
}

static void on_vram_unref(void *arg, uint32_t unit)
{
    const struct server *s = arg;

    units_unref(engine_units(s->engine), unit);
}

static void on_event(void *arg, const struct cache_event *e)
{
    struct server *s = arg;
    const bool usual = e->kind == CACHE_DEMOTED || e->kind == CACHE_ROOT_MADE;

    decisions_event(s->decisions, e, clock_ns());
    log_msg(usual ? LOG_DEBUG : LOG_INFO,
            "cache %s entry=%" PRIu64 " uid=%" PRId32 " tokens=%" PRIu32 " bytes=%" PRIu64
            " request=%" PRIu64 ": %s",
            cache_event_str(e->kind), e->id, uid_shown(e->uid), e->n_tokens, e->bytes, e->cause,
            cache_why_str(e->why));
}

static struct cache_limits limits_of(const struct server *s, const struct options *o)
{
    const struct engine_plan *plan = engine_limits(s->engine);
    const uint64_t pool = plan->n_units * plan->unit_bytes;
    const uint64_t units = memory_ram_budget(o, s->available, plan, pool) / plan->unit_bytes;

    return (struct cache_limits){
        .ram_units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX - 1,
        .n_conversations = o->conversation_cache_slots,
        .n_roots = o->prompt_cache_roots,
    };
}

int reuse_open(struct server *s, struct err_text *e)
{
    const struct engine_plan *plan = engine_limits(s->engine);
    const struct cache_ops ops = {on_vram_ref, on_vram_unref, on_event, s};
    struct cache_options o = {
        .unit_bytes = plan->unit_bytes,
        .vram_units = plan->n_units,
        .checkpoint_units = plan->checkpoint_units,
        .checkpoint_bytes = plan->checkpoint_bytes,
    };
    int r = decisions_new(&s->decisions);

    if (r == 0 && s->options->cache) {
        o.limits = limits_of(s, s->options);
        r = arena_new(plan->unit_bytes, o.limits.ram_units, ARENA_SEGMENT_BYTES, &s->arena);
        o.arena = s->arena;
        if (r == 0)
            r = cache_new(&o, &ops, &s->cache);
        if (r == 0)
            r = diverging_new(&s->diverging);
    }
    return r < 0 ? err_set(e, r, "cannot set up the cache: %s", err_str(r)) : 0;
}

void reuse_close(struct server *s)
{
    diverging_free(s->diverging);
    cache_free(s->cache);
    arena_free(s->arena);
    decisions_free(s->decisions);
    s->diverging = NULL;
    s->cache = NULL;
    s->arena = NULL;
    s->decisions = NULL;
}

void reuse_describe(const struct server *s, struct sched_options *o)
{
    o->cache = s->cache;
    o->arena = s->arena;
    o->decisions = s->decisions;
    o->root_min = s->options->root_min;
    o->checkpoint_every = s->options->checkpoint_every;
    o->share_all = strcmp(s->options->isolation, "none") == 0;
}

void reuse_apply(struct server *s, const struct options *o)
{
    struct cache_limits l;

    /* A cache without a scheduler: the latter could not be made, and the daemon is ending. */
    if (!s->cache || !s->sched)
        return;
    l = limits_of(s, o);
    cache_set_limits(s->cache, &l);
    sched_cache_changed(s->sched);
}
