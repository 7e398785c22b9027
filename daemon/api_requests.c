/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/requests and /v1/requests/ID: what was decided for the newest requests, and why.
 *
 * A client sees the requests of its own uid, or of its key's owner; root and the daemon's own user
 * see all.  Somebody else's look like unknown ones.
 */
#include "daemon/api.h"

#include "daemon/api_error.h"
#include "daemon/decision_json.h"
#include "daemon/decisions.h"
#include "daemon/http_call.h"
#include "daemon/server.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/text.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_DEFAULT = 20 };

static bool may_see(const struct decision *x, const void *arg)
{
    const struct call *c = arg;

    if (c->uid == x->uid)
        return c->uid != UINT32_MAX;
    return c->is_unix && (c->uid == 0 || c->uid == geteuid());
}

static int add_bytes(const char *p, size_t n, void *out)
{
    return buf_add(out, p, n) < 0 ? -1 : 0;
}

/* Takes `o` over; NULL is out of memory. */
static void answer(struct call *c, json_t *o)
{
    struct buf b = {0};
    struct api_error e;
    bool ok =
        o && json_dump_callback(o, add_bytes, &b, JSON_COMPACT) == 0 && buf_addz(&b, "\n") == 0;

    json_decref(o);
    if (ok) {
        call_answer(c, 200, &b);
        return;
    }
    buf_done(&b);
    (void)api_error_oom(&e);
    call_fail(c, &e);
}

void api_requests(struct call *c)
{
    const struct decisions *d = call_server(c)->decisions;
    const char *asked = call_query(c, "limit");
    uint64_t limit = LIMIT_DEFAULT;
    const struct decision *x;
    struct api_error e;
    char room[64];
    json_t *list;
    bool ok;

    if (asked && (text_u64(asked, &limit) < 0 || limit < 1 || limit > DECISIONS_KEPT)) {
        (void)api_bad_field(&e, "limit", "limit is \"%s\", not a number from 1 to %d",
                            err_escape(room, sizeof room, asked, strlen(asked)), DECISIONS_KEPT);
        call_fail(c, &e);
        return;
    }
    list = json_array();
    ok = list != NULL;
    for (uint32_t i = 0; ok && d && json_array_size(list) < limit && (x = decisions_at(d, i)); i++)
        if (may_see(x, c))
            ok = json_array_append_new(list, decision_json_row(x)) == 0;
    if (!ok) {
        json_decref(list);
        answer(c, NULL);
        return;
    }
    answer(c, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void api_request(struct call *c)
{
    const struct decisions *d = call_server(c)->decisions;
    const struct decision *x = d ? decisions_find_seen(d, c->tail, may_see, c) : NULL;
    struct api_error e;
    char room[160];
    json_t *o;

    if (!x) {
        (void)api_error_set(
            &e, 404, "request_not_found", NULL, "there is no request \"%s\" among the newest %d",
            err_escape(room, sizeof room, c->tail, strlen(c->tail)), DECISIONS_KEPT);
        call_fail(c, &e);
        return;
    }
    o = decision_json(x);
    if (json_object_set_new(o, "explain", decision_json_story(d, x)) < 0 ||
        json_object_set_new(o, "events", decision_json_events(d, x, clock_ns())) < 0) {
        json_decref(o);
        o = NULL;
    }
    answer(c, o);
}
