/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/decision_json.h"

#include "daemon/api_keys.h"
#include "daemon/decisions.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <stdbool.h>
#include <string.h>

/* `value` is taken over; NULL is out of memory and turns *ok off. */
static void set(json_t *o, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(o, key, value) < 0)
        *ok = false;
}

static void set_int(json_t *o, const char *key, uint64_t v, bool *ok)
{
    set(o, key, json_integer((json_int_t)v), ok);
}

/* 0 is "none". */
static void set_id(json_t *o, const char *key, uint64_t v, bool *ok)
{
    if (v)
        set_int(o, key, v, ok);
}

static const char *state_str(const struct decision *x)
{
    if (x->done)
        return "done";
    return x->why == WHY_WAITING ? "waiting" : "running";
}

static void add_row(json_t *o, const struct decision *x, bool *ok)
{
    set_int(o, "request", x->request, ok);
    if (x->name[0])
        set(o, "id", json_string(x->name), ok);
    if (x->http_id[0])
        set(o, "x_request_id", json_string(x->http_id), ok);
    if (uid_is_user(x->uid))
        set_int(o, "uid", x->uid, ok);
    if (x->key)
        set(o, "key", json_string(x->key), ok);
    set(o, "state", json_string(state_str(x)), ok);
    if (x->done)
        set(o, "finish_reason", json_string(decision_finish_str(x->finish)), ok);
    set_int(o, "prompt_tokens", x->n_prompt, ok);
    set_int(o, "reused_tokens", x->n_reused, ok);
    set_int(o, "read_tokens", x->n_read, ok);
    set_int(o, "generated_tokens", x->n_generated, ok);
    set(o, "source", json_string(source_str(x->source)), ok);
    set(o, "switch", json_boolean(x->is_switch), ok);
    set(o, "hit", json_boolean(x->is_hit), ok);
    set(o, "total_ms", json_real(x->total_ms), ok);
}

/* 0 is "not known". */
static void set_estimate(json_t *o, const char *key, double ms, bool *ok)
{
    if (ms > 0)
        set(o, key, json_real(ms), ok);
}

static void add_detail(json_t *o, const struct decision *x, bool *ok)
{
    set_int(o, "common_tokens", x->n_common, ok);
    set_int(o, "found_tokens", x->n_found, ok);
    set_int(o, "found_vram_tokens", x->n_found_vram, ok);
    set_int(o, "root_tokens", x->root_pos, ok);
    set_int(o, "turn_pos", x->turn_pos, ok);
    set_int(o, "query_pos", x->query_pos, ok);
    set_int(o, "root_pos", x->root_want, ok);
    set_id(o, "found_in", x->from, ok);
    set(o, "why", json_string(decision_why_str(x->why)), ok);
    set_estimate(o, "estimated_longest_ms", x->est_best_ms, ok);
    set_estimate(o, "estimated_vram_ms", x->est_vram_ms, ok);
    set_estimate(o, "estimated_cold_ms", x->est_cold_ms, ok);
    set_int(o, "joined_tokens", x->n_joined, ok);
    set_id(o, "joined_request", x->joined_with, ok);
    set_int(o, "loaded_bytes", x->bytes_loaded, ok);
    set(o, "load_ms", json_real(x->load_ms), ok);
    set(o, "wait_ms", json_real(x->wait_ms), ok);
    set(o, "read_ms", json_real(x->read_ms), ok);
    set_int(o, "parked", x->n_parked, ok);
    set_id(o, "conversation", x->conversation, ok);
    set_int(o, "kept_tokens", x->n_kept, ok);
    set_int(o, "checkpoints", x->n_checkpoints, ok);
    set_int(o, "checkpoints_skipped", x->n_checkpoints_skipped, ok);
    if (x->keep_error)
        set(o, "keep_error", json_string(err_str(x->keep_error)), ok);
    set_int(o, "superseded", x->n_superseded, ok);
    set_int(o, "evicted", x->n_evicted, ok);
}

static json_t *make(const struct decision *x, bool detail)
{
    json_t *o = json_object();
    bool ok = o != NULL;

    add_row(o, x, &ok);
    if (detail)
        add_detail(o, x, &ok);
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *decision_json_row(const struct decision *x)
{
    return make(x, false);
}

json_t *decision_json(const struct decision *x)
{
    return make(x, true);
}

static json_t *event_json(const struct decision_event *ev, uint64_t now)
{
    const struct cache_event *e = &ev->e;
    json_t *o = json_object();
    bool ok = o != NULL;

    set(o, "kind", json_string(cache_event_str(e->kind)), &ok);
    set_id(o, "id", e->id, &ok);
    if (e->kind == CACHE_EVICTED || e->kind == CACHE_REFUSED || e->kind == CACHE_DEMOTED)
        set(o, "tier", json_string(cache_tier_str(e->tier)), &ok);
    if (e->kind != CACHE_ROOT_MADE)
        set(o, "why", json_string(cache_why_str(e->why)), &ok);
    if (uid_is_user(e->uid))
        set_int(o, "uid", e->uid, &ok);
    set_int(o, "tokens", e->n_tokens, &ok);
    set_int(o, "bytes", e->bytes, &ok);
    set_int(o, "age_ms", now > ev->time_ns ? (now - ev->time_ns) / 1000000 : 0, &ok);
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *decision_json_events(const struct decisions *d, const struct decision *x, uint64_t now)
{
    const struct decision_event *found[DECISION_EVENTS_TOLD];
    uint32_t n = decision_events_of(d, x, found);
    json_t *a = json_array();
    bool ok = a != NULL;

    for (uint32_t i = n < DECISION_EVENTS_TOLD ? n : DECISION_EVENTS_TOLD; ok && i-- > 0;)
        ok = json_array_append_new(a, event_json(found[i], now)) == 0;
    if (!ok) {
        json_decref(a);
        return NULL;
    }
    return a;
}

json_t *decision_json_story(const struct decisions *d, const struct decision *x)
{
    CLEANUP(buf_done) struct buf b = {0};
    json_t *a = json_array();
    bool ok = a && decision_explain(d, x, &b) >= 0;

    for (const char *p = b.data; ok && *p;) {
        const size_t n = strcspn(p, "\n");

        ok = json_array_append_new(a, json_stringn(p, n)) == 0;
        p += n + (p[n] == '\n');
    }
    if (!ok) {
        json_decref(a);
        return NULL;
    }
    return a;
}
