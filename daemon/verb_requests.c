/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/verb_requests.h"

#include "ctl/varlink.h"
#include "daemon/api_keys.h"
#include "daemon/decision_json.h"
#include "daemon/decisions.h"
#include "daemon/server.h"
#include "daemon/verb_peer.h"
#include "util/clock.h"

#include <errno.h>

enum { LIMIT_DEFAULT = 20 };

struct viewer {
    uint32_t uid;
    bool is_admin; /* asked for once: the user data bases may be slow */
};

static bool may_see(const struct decision *x, const void *arg)
{
    const struct viewer *v = arg;

    return v->is_admin || (uid_is_user(v->uid) && x->uid == v->uid);
}

int verb_requests(const struct verb_context *c, json_t *parameters, json_t **ret,
                  struct verb_error *e)
{
    const struct decisions *d = c->server->decisions;
    const struct viewer viewer = {c->peer.uid, verb_peer_is_admin(&c->peer)};
    const json_t *asked = json_object_get(parameters, "limit");
    json_int_t limit = LIMIT_DEFAULT;
    const struct decision *x;
    json_t *list;
    bool ok;

    if (asked && !json_is_null(asked)) {
        limit = json_integer_value(asked);
        if (limit < 1 || limit > DECISIONS_KEPT)
            return verb_bad_parameter(e, "limit");
    }
    list = json_array();
    ok = list != NULL;
    for (uint32_t i = 0;
         ok && d && json_array_size(list) < (size_t)limit && (x = decisions_at(d, i)); i++)
        if (may_see(x, &viewer))
            ok = json_array_append_new(list, decision_json_row(x)) == 0;
    if (!ok) {
        json_decref(list);
        return -ENOMEM;
    }
    *ret = json_pack("{s:o}", "requests", list);
    return *ret ? 0 : -ENOMEM;
}

int verb_explain(const struct verb_context *c, json_t *parameters, json_t **ret,
                 struct verb_error *e)
{
    const struct decisions *d = c->server->decisions;
    const char *id = json_string_value(json_object_get(parameters, "id"));
    const struct viewer viewer = {c->peer.uid, verb_peer_is_admin(&c->peer)};
    const struct decision *x;

    if (!id)
        return verb_bad_parameter(e, "id");
    x = d ? decisions_find_seen(d, id, may_see, &viewer) : NULL;
    if (!x)
        return verb_fail(e, STRATA_CONTROL ".NoSuchRequest", "id", id);
    *ret = json_pack("{s:o, s:o, s:o}", "request", decision_json(x), "events",
                     decision_json_events(d, x, clock_ns()), "explain", decision_json_story(d, x));
    return *ret ? 0 : -ENOMEM;
}
