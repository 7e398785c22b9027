/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/verbs.h"

#include "ctl/varlink.h"
#include "daemon/verb_cache.h"
#include "daemon/verb_requests.h"
#include "daemon/verb_status.h"
#include "util/buf.h"

#include "strata-config.h"

#include <errno.h>
#include <string.h>

struct verb {
    const char *name;
    const char *parameters; /* the names that it takes, " a b " */
    verb_method *run;
};

struct interface {
    const char *name;
    const char *description;
    const struct verb *verbs; /* ends with a NULL name */
};

static verb_method get_info, get_interface_description;

static int run_status(const struct verb_context *c, json_t *parameters, json_t **ret,
                      struct verb_error *e)
{
    (void)parameters;
    (void)e;
    *ret = verb_status(c);
    return *ret ? 0 : -ENOMEM;
}

static int run_slots(const struct verb_context *c, json_t *parameters, json_t **ret,
                     struct verb_error *e)
{
    (void)parameters;
    (void)e;
    *ret = verb_slots(c);
    return *ret ? 0 : -ENOMEM;
}

static const struct verb service_verbs[] = {
    {"GetInfo", "", get_info},
    {"GetInterfaceDescription", " interface ", get_interface_description},
    {NULL, NULL, NULL},
};

static const struct verb control_verbs[] = {
    {"CacheClear", "", verb_cache_clear},
    {"CacheEvict", " id forget ", verb_cache_evict},
    {"CacheList", " limit ", verb_cache_list},
    {"CacheShow", " id ", verb_cache_show},
    {"CacheStats", "", verb_cache_stats},
    {"Explain", " id ", verb_explain},
    {"Requests", " limit ", verb_requests},
    {"RootsClear", "", verb_roots_clear},
    {"RootsList", "", verb_roots_list},
    {"RootsPin", " id ", verb_roots_pin},
    {"RootsUnpin", " id ", verb_roots_unpin},
    {"Slots", "", run_slots},
    {"Status", "", run_status},
    {NULL, NULL, NULL},
};

static const struct interface interfaces[] = {
    {STRATA_CONTROL, strata_control_idl, control_verbs},
    {VARLINK_SERVICE, varlink_service_idl, service_verbs},
};

enum { N_INTERFACES = sizeof interfaces / sizeof interfaces[0] };

static const struct interface *find_interface(const char *name, size_t n)
{
    for (size_t i = 0; i < N_INTERFACES; i++)
        if (strlen(interfaces[i].name) == n && memcmp(interfaces[i].name, name, n) == 0)
            return &interfaces[i];
    return NULL;
}

static int get_info(const struct verb_context *c, json_t *parameters, json_t **ret,
                    struct verb_error *e)
{
    json_t *names = json_array();

    (void)c;
    (void)parameters;
    (void)e;
    for (size_t i = 0; i < N_INTERFACES; i++)
        if (json_array_append_new(names, json_string(interfaces[i].name)) < 0) {
            json_decref(names);
            return -ENOMEM;
        }
    *ret = json_pack("{s:s, s:s, s:s, s:s, s:o}", "vendor", "Strata", "product", "strataD",
                     "version", PACKAGE_VERSION, "url", "", "interfaces", names);
    return *ret ? 0 : -ENOMEM;
}

static int get_interface_description(const struct verb_context *c, json_t *parameters, json_t **ret,
                                     struct verb_error *e)
{
    const char *name = json_string_value(json_object_get(parameters, "interface"));
    const struct interface *i;

    (void)c;
    if (!name)
        return verb_bad_parameter(e, "interface");
    i = find_interface(name, strlen(name));
    if (!i)
        return verb_fail(e, VARLINK_INTERFACE_NOT_FOUND, "interface", name);
    *ret = json_pack("{s:s}", "description", i->description);
    return *ret ? 0 : -ENOMEM;
}

/* A parameter that the verb does not take, or NULL. */
static const char *find_unknown(const struct verb *v, json_t *parameters)
{
    const char *key;
    json_t *value;

    json_object_foreach(parameters, key, value)
    {
        const char *p = strstr(v->parameters, key);
        size_t n = strlen(key);

        if (n == 0 || strchr(key, ' ') || !p || p == v->parameters || p[-1] != ' ' || p[n] != ' ')
            return key;
    }
    return NULL;
}

int verb_fail(struct verb_error *e, const char *name, const char *key, const char *value)
{
    e->name = name;
    e->key = key;
    e->value = value;
    return -EINVAL;
}

int verb_bad_parameter(struct verb_error *e, const char *key)
{
    return verb_fail(e, VARLINK_INVALID_PARAMETER, "parameter", key);
}

static int run_verb(const struct verb_context *c, const struct verb *v, json_t *parameters,
                    struct buf *out)
{
    const char *unknown = find_unknown(v, parameters);
    struct verb_error e = {0};
    json_t *reply = NULL;
    int r;

    if (unknown)
        return varlink_add_error(out, VARLINK_INVALID_PARAMETER, "parameter", unknown);
    r = v->run(c, parameters, &reply, &e);
    if (r == 0)
        return varlink_add_reply(out, reply, false);
    return e.name ? varlink_add_error(out, e.name, e.key, e.value) : r;
}

/* Answers into `out`, oneway or not. */
static int answer(const struct verb_context *c, const struct varlink_call *call, struct buf *out)
{
    const char *dot = strrchr(call->method, '.');
    const struct interface *i =
        dot ? find_interface(call->method, (size_t)(dot - call->method)) : NULL;
    json_t *none, *parameters = call->parameters;
    char name[256];
    int r;

    if (call->upgrade)
        return varlink_add_error(out, VARLINK_METHOD_NOT_IMPLEMENTED, "method", call->method);
    if (!i) {
        (void)snprintf(name, sizeof name, "%.*s",
                       dot ? (int)(dot - call->method > 255 ? 255 : dot - call->method) : 255,
                       call->method);
        r = varlink_add_error(out, VARLINK_INTERFACE_NOT_FOUND, "interface", name);
        /* The cut may have split a character, which is not a JSON string then. */
        return r == -ENOMEM ? varlink_add_error(out, VARLINK_INTERFACE_NOT_FOUND, "interface", "")
                            : r;
    }
    for (const struct verb *v = i->verbs; v->name; v++) {
        if (strcmp(v->name, dot + 1) != 0)
            continue;
        if (parameters)
            return run_verb(c, v, parameters, out);
        none = json_object();
        r = none ? run_verb(c, v, none, out) : -ENOMEM;
        json_decref(none);
        return r;
    }
    return varlink_add_error(out, VARLINK_METHOD_NOT_FOUND, "method", call->method);
}

int verbs_run(const struct verb_context *c, const struct varlink_call *call, struct buf *out)
{
    struct buf unwanted = {.limit = out->limit};
    int r;

    if (!call->oneway)
        return answer(c, call, out);
    r = answer(c, call, &unwanted);
    buf_done(&unwanted);
    return r;
}
