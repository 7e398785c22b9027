/* SPDX-License-Identifier: Apache-2.0 */
/* Paths and methods to handlers: one table. */
#include "daemon/api.h"
#include "daemon/api_error.h"
#include "daemon/http_internal.h"
#include "daemon/server.h"
#include "util/err.h"

#include <stdbool.h>
#include <string.h>

/* What a route does while the model is being loaded. */
enum when_loading {
    ROUTE_ANSWERS,
    ROUTE_WAITS,
    ROUTE_REFUSES,
};

struct route {
    const char *path; /* ends in '/': whatever follows is call.tail */
    const char *method;
    enum when_loading loading;
    void (*start)(struct call *c);
};

static const struct route routes[] = {
    {"/health", "GET", ROUTE_ANSWERS, api_health},
    {"/v1/health", "GET", ROUTE_ANSWERS, api_health},
    {"/v1/models", "GET", ROUTE_REFUSES, api_models},
    {"/models", "GET", ROUTE_REFUSES, api_models},
    {"/v1/models/", "GET", ROUTE_REFUSES, api_model},
    {"/v1/completions", "POST", ROUTE_WAITS, api_completions},
    {"/completions", "POST", ROUTE_WAITS, api_completions},
    {"/v1/chat/completions", "POST", ROUTE_WAITS, api_chat},
    {"/chat/completions", "POST", ROUTE_WAITS, api_chat},
    {"/v1/requests", "GET", ROUTE_REFUSES, api_requests},
    {"/v1/requests/", "GET", ROUTE_REFUSES, api_request},
    {"/tokenize", "POST", ROUTE_WAITS, api_tokenize},
    {"/detokenize", "POST", ROUTE_WAITS, api_detokenize},
    {"/apply-template", "POST", ROUTE_WAITS, api_apply_template},
    {"/props", "GET", ROUTE_REFUSES, api_props},
};

/* Known paths of other servers, so that their users read what to do instead. */
static const struct {
    const char *path, *words;
} absent[] = {
    {"/v1/responses", "use /v1/chat/completions"},
    {"/v1/messages", "use /v1/chat/completions"},
    {"/completion", "use /v1/completions"},
    {"/infill", "infilling is not supported"},
    {"/v1/embeddings", "embeddings are not supported"},
    {"/v1/rerank", "reranking is not supported"},
    {"/metrics", "metrics come with a later version"},
    {"/slots", "use `stratactl slots list`"},
};

/* Says only whether there is somebody, which who connects knows already. */
bool route_is_open(const char *path)
{
    return strcmp(path, "/health") == 0 || strcmp(path, "/v1/health") == 0;
}

/* The part of the path behind the route, or NULL when it is another one. */
static const char *match(const struct route *r, const char *path)
{
    size_t n = strlen(r->path);

    if (strncmp(r->path, path, n) != 0)
        return NULL;
    if (r->path[n - 1] == '/')
        return path[n] ? path + n : NULL;
    return path[n] ? NULL : path + n;
}

static void not_found(struct call *c, const char *path)
{
    struct api_error e;
    char room[160];

    (void)err_escape(room, sizeof room, path, strlen(path));
    (void)api_error_set(&e, 404, "not_found", NULL, "there is nothing at %s", room);
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (strcmp(absent[i].path, path) == 0)
            (void)api_error_set(&e, 404, "not_found", NULL, "%s is not served: %s", room,
                                absent[i].words);
    call_fail(c, &e);
}

void route_find(struct call *c, const char *method, const char *path)
{
    const struct route *other = NULL;
    struct api_error e;

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *r = &routes[i];
        const char *tail = match(r, path);

        if (!tail)
            continue;
        /* libmicrohttpd leaves the content out of an answer to HEAD. */
        if (strcmp(method, r->method) != 0 &&
            !(strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0)) {
            other = r;
            continue;
        }
        c->route = r;
        if (*tail) {
            c->tail = strdup(tail);
            if (!c->tail) {
                (void)api_error_oom(&e);
                call_fail(c, &e);
            }
        }
        return;
    }

    c->discard = true;
    if (!other) {
        not_found(c, path);
        return;
    }
    c->allow = strcmp(other->method, "GET") == 0 ? "GET, HEAD" : other->method;
    (void)api_error_set(&e, 405, "method_not_allowed", NULL, "%s answers %s only", other->path,
                        c->allow);
    call_fail(c, &e);
}

static void unavailable(struct call *c, const char *code, const char *words, int retry_after_s)
{
    struct api_error e;

    (void)api_error_set(&e, 503, code, NULL, "%s", words);
    e.retry_after_s = retry_after_s;
    call_fail(c, &e);
}

bool route_start(struct call *c)
{
    const struct route *r = c->route;

    switch (call_server(c)->state) {
    case SERVER_READY:
        break;
    case SERVER_LOADING:
        if (r->loading == ROUTE_WAITS)
            return false;
        if (r->loading == ROUTE_REFUSES) {
            unavailable(c, "loading", "the model is being loaded", 1);
            return true;
        }
        break;
    case SERVER_FAILED:
        if (r->loading != ROUTE_ANSWERS) {
            unavailable(c, "model_failed", "the model could not be loaded", 0);
            return true;
        }
        break;
    case SERVER_STOPPING:
        if (r->loading != ROUTE_ANSWERS) {
            unavailable(c, "stopping", "the server is stopping", 1);
            return true;
        }
        break;
    }
    r->start(c);
    return true;
}
