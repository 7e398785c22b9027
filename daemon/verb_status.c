/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/verb_status.h"

#include "cache/cache.h"
#include "daemon/api_keys.h"
#include "daemon/decisions.h"
#include "daemon/http.h"
#include "daemon/listeners.h"
#include "daemon/options.h"
#include "daemon/rates.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "daemon/verbs.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "util/clock.h"

#include "strata-config.h"

#include <stdbool.h>
#include <unistd.h>

static const char *state_word(enum server_state state)
{
    switch (state) {
    case SERVER_LOADING:
        return "loading";
    case SERVER_READY:
        return "ready";
    case SERVER_FAILED:
        return "failed";
    case SERVER_STOPPING:
        return "stopping";
    }
    return "failed";
}

/* `value` is taken over; NULL is out of memory and turns *ok off. */
static void set(json_t *o, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(o, key, value) < 0)
        *ok = false;
}

/* A text that came from a file or the file system need not be UTF-8, which JSON has to be. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s);

    return j ? j : json_string("(not UTF-8)");
}

static json_t *model_object(const struct server *s)
{
    json_t *o = json_pack("{s:o, s:o}", "name", text(s->model_id), "path",
                          text(s->options->model ? s->options->model : ""));

    if (o && s->model && (json_object_set_new(o, "arch", text(s->model->hp.arch)) < 0)) {
        json_decref(o);
        return NULL;
    }
    if (o && s->engine &&
        json_object_set_new(o, "context", json_integer(engine_limits(s->engine)->context)) < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *sockets(const struct server *s)
{
    json_t *a = json_array();

    for (size_t i = 0; a && s->listeners && i < s->listeners->n_api; i++)
        if (json_array_append_new(a, text(s->listeners->api[i].path)) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static json_t *cache_object(const struct server *s)
{
    const uint64_t unit = engine_limits(s->engine)->unit_bytes;
    struct decision_totals t = {0};
    struct cache_stats c;

    cache_stats(s->cache, &c);
    if (s->decisions)
        decisions_totals(s->decisions, &t);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parked", (json_int_t)c.n_parked,
                     "roots", (json_int_t)c.n_roots, "vram_bytes",
                     (json_int_t)c.tier[CACHE_VRAM].bytes, "vram_limit_bytes",
                     (json_int_t)(c.tier[CACHE_VRAM].units_limit * unit), "ram_bytes",
                     (json_int_t)c.tier[CACHE_RAM].bytes, "ram_limit_bytes",
                     (json_int_t)(c.tier[CACHE_RAM].units_limit * unit), "switches",
                     (json_int_t)t.switches, "hits", (json_int_t)t.hits);
}

/* The parts that exist once the model is loaded. */
static void add_running(json_t *o, const struct verb_context *c, bool *ok)
{
    const struct server *s = c->server;
    struct rates_sample now = {.ns = clock_ns()};
    struct sched_totals t;
    double prompt, generated;

    sched_totals(s->sched, &t);
    now.prompt_tokens = t.prompt_tokens;
    now.generated_tokens = t.generated_tokens;
    rates_get(c->rates, now, &prompt, &generated);

    set(o, "backend",
        json_pack("{s:s, s:s, s:I, s:s}", "name", engine_backend(s->engine), "isa",
                  engine_isa(s->engine), "threads", (json_int_t)engine_n_threads(s->engine),
                  "kv_type", s->options->kv_type),
        ok);
    set(o, "slots_used", json_integer(t.running), ok);
    set(o, "queued", json_integer(t.queued), ok);
    set(o, "pool",
        json_pack("{s:I, s:I, s:I}", "unit_bytes", (json_int_t)engine_limits(s->engine)->unit_bytes,
                  "units_used", (json_int_t)t.units_used, "units_total", (json_int_t)t.units_total),
        ok);
    set(o, "totals",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)t.requests,
                  "finished", (json_int_t)t.finished, "cancelled", (json_int_t)t.cancelled,
                  "failed", (json_int_t)t.failed, "prompt_tokens", (json_int_t)t.prompt_tokens,
                  "generated_tokens", (json_int_t)t.generated_tokens, "steps", (json_int_t)t.steps,
                  "step_ms", (json_int_t)(t.step_ns / 1000000)),
        ok);
    if (s->cache)
        set(o, "cache", cache_object(s), ok);
    set(o, "rates", json_pack("{s:f, s:f}", "prompt_tokens", prompt, "generated_tokens", generated),
        ok);
}

json_t *verb_status(const struct verb_context *c)
{
    const struct server *s = c->server;
    json_t *o = json_object();
    bool ok = o != NULL;

    set(o, "version", json_string(PACKAGE_VERSION), &ok);
    set(o, "instance", json_string(s->options->name), &ok);
    set(o, "pid", json_integer(getpid()), &ok);
    set(o, "state", json_string(state_word(s->state)), &ok);
    set(o, "percent", json_integer(s->state == SERVER_LOADING ? (json_int_t)s->load_percent : 100),
        &ok);
    if (s->state == SERVER_FAILED)
        set(o, "reason", text(s->fail_reason.s), &ok);
    set(o, "uptime_ms", json_integer((json_int_t)clock_ms_since(s->started_ns)), &ok);
    set(o, "model", model_object(s), &ok);
    set(o, "slots_total", json_integer(s->options->parallel), &ok);
    set(o, "slots_used", json_integer(0), &ok);
    set(o, "queued", json_integer(0), &ok);
    set(o, "connections", json_integer(s->http ? http_n_active(s->http) : 0), &ok);
    if (s->sched)
        add_running(o, c, &ok);
    set(o, "api_sockets", sockets(s), &ok);
    set(o, "control_socket", text(s->listeners ? s->listeners->control.path : ""), &ok);
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static const char *slot_word(enum request_state state)
{
    switch (state) {
    case REQUEST_NEW:
    case REQUEST_QUEUED:
    case REQUEST_DONE:
        return "free";
    case REQUEST_READING:
        return "reading";
    case REQUEST_GENERATING:
        return "generating";
    }
    return "free";
}

static json_t *slot_object(const struct server *s, const struct slot_info *i)
{
    json_t *o = json_pack("{s:I, s:s, s:I, s:I, s:I, s:I}", "index", (json_int_t)i->i, "state",
                          slot_word(i->state), "prompt_tokens", (json_int_t)i->n_prompt,
                          "read_tokens", (json_int_t)i->n_read, "generated_tokens",
                          (json_int_t)i->n_generated, "pages", (json_int_t)i->n_pages);
    const char *key = api_keys_name(s->keys, i->uid);
    bool ok = o != NULL;

    if (ok && i->request_id != 0) {
        set(o, "request", json_integer((json_int_t)i->request_id), &ok);
        if (uid_is_user(i->uid))
            set(o, "uid", json_integer(i->uid), &ok);
        if (key)
            set(o, "key", json_string(key), &ok);
    }
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *verb_slots(const struct verb_context *c)
{
    const struct server *s = c->server;
    json_t *slots = json_array();
    uint32_t n = s->sched ? sched_n_slots(s->sched) : 0;

    for (uint32_t i = 0; slots && i < n; i++) {
        struct slot_info info;

        sched_slot(s->sched, i, &info);
        if (json_array_append_new(slots, slot_object(s, &info)) < 0) {
            json_decref(slots);
            return NULL;
        }
    }
    return slots ? json_pack("{s:o}", "slots", slots) : NULL;
}
