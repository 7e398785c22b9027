/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections between their requests, and who may ask on them.
 *
 * libmicrohttpd closes what is silent, but a byte a minute is not silence to it, and when all
 * places are taken it accepts nobody.  So each place has a deadline of its own, and who waits
 * longest gives his to who comes when they run out: a client that asks at once is always served.
 */
#include "daemon/api_error.h"
#include "daemon/api_keys.h"
#include "daemon/http_access.h"
#include "daemon/http_internal.h"
#include "daemon/log.h"
#include "util/clock.h"
#include "util/err.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#define NS_PER_S UINT64_C(1000000000)

struct connection {
    struct http_listener *listener;
    struct connection *prev, *next; /* in the listener's list, while it waits for a request */
    int fd;                         /* libmicrohttpd's */
    uint64_t t_since;               /* waits since then */
    bool waiting;
    bool asked; /* its first request has come */
};

static struct connection *connection_of(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static uint64_t deadline_of(const struct connection *o)
{
    return o->t_since + (o->asked ? CONN_IDLE_S : CONN_HEADER_S) * NS_PER_S;
}

static void wait_begin(struct connection *o)
{
    struct http_listener *l = o->listener;

    o->waiting = true;
    o->t_since = clock_ns();
    o->prev = l->newest;
    o->next = NULL;
    *(o->prev ? &o->prev->next : &l->oldest) = o;
    l->newest = o;
    http_due(l->http, deadline_of(o));
}

static void wait_end(struct connection *o)
{
    struct http_listener *l = o->listener;

    if (!o->waiting)
        return;
    o->waiting = false;
    *(o->prev ? &o->prev->next : &l->oldest) = o->next;
    *(o->next ? &o->next->prev : &l->newest) = o->prev;
}

/* libmicrohttpd finds its end and closes it. */
static void cut(struct connection *o)
{
    wait_end(o);
    (void)shutdown(o->fd, SHUT_RDWR);
}

void connection_begin(struct http_listener *l, struct MHD_Connection *conn, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    const uint32_t most = l->http->options.max_connections;
    struct connection *o = calloc(1, sizeof *o);

    l->n_open++;
    *context = o;
    if (!o)
        return; /* libmicrohttpd's own timeout looks after it */
    o->listener = l;
    o->fd = info ? info->connect_fd : -1;
    l->http->n_silent++;
    if (l->n_open >= most - most / 16 && l->oldest)
        cut(l->oldest);
    wait_begin(o);
}

void connection_end(struct http_listener *l, void *context)
{
    struct connection *o = context;

    l->n_open--;
    if (!o)
        return;
    wait_end(o);
    l->http->n_silent -= !o->asked;
    free(o);
}

void connection_asked(struct MHD_Connection *conn)
{
    struct connection *o = connection_of(conn);

    if (!o)
        return;
    wait_end(o);
    o->listener->http->n_silent -= !o->asked;
    o->asked = true;
}

void connection_answered(struct MHD_Connection *conn)
{
    struct connection *o = connection_of(conn);

    if (o && !o->waiting)
        wait_begin(o);
}

uint64_t connections_tick(struct http_listener *l, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    for (struct connection *o = l->oldest, *after; o; o = after) {
        after = o->next;
        if (deadline_of(o) <= now)
            cut(o);
        else if (deadline_of(o) < next)
            next = deadline_of(o);
    }
    return next;
}

/* --- who may ask -------------------------------------------------------------------------------
 */

static void take_once(const char **field, const char *value, bool *many)
{
    *many |= *field != NULL;
    *field = value ? value : "";
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    struct access_headers *h = cls;

    (void)kind;
    if (strcasecmp(key, "Host") == 0)
        take_once(&h->host, value, &h->many);
    else if (strcasecmp(key, "Origin") == 0)
        take_once(&h->origin, value, &h->many);
    else if (strcasecmp(key, "Authorization") == 0)
        h->authorization = value;
    else if (strcasecmp(key, "X-Api-Key") == 0)
        h->x_api_key = value;
    else if (strcasecmp(key, "Content-Length") == 0 || strcasecmp(key, "Transfer-Encoding") == 0)
        h->n_lengths++;
    return MHD_YES;
}

static const char *peer_words(struct MHD_Connection *conn, char *out, size_t size)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    const void *bytes = NULL;

    if (a && a->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    else if (a && a->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (!bytes || !inet_ntop(a->sa_family, bytes, out, (socklen_t)size))
        (void)snprintf(out, size, "?");
    return out;
}

/* Who knocks without a key may do so often: one line a minute says how often. */
static void log_refused(struct call *c, const struct api_error *e)
{
    struct http *h = c->http;
    const uint64_t now = clock_ns();
    char peer[INET6_ADDRSTRLEN];

    h->n_refused++;
    if (h->refused_ns && now - h->refused_ns < 60 * NS_PER_S)
        return;
    log_msg(LOG_NOTICE, "access refused: peer=%s status=%d code=%s refused_since=%" PRIu64 ": %s",
            peer_words(c->conn, peer, sizeof peer), e->status, e->code, h->n_refused, e->message);
    h->refused_ns = now;
    h->n_refused = 0;
}

/* So that no user of a socket can take it from the others. */
static bool has_too_many(const struct call *c)
{
    uint32_t n = 0;

    for (const struct call *o = c->http->calls; o; o = o->next)
        n += call_same_user(o, c);
    return n > c->http->options.max_connections / 2 + 1;
}

void call_admit(struct call *c, const char *path)
{
    const struct http_options *o = &c->http->options;
    const struct api_key_owner *owner = NULL;
    struct access_headers h = {0};
    struct api_error e;
    int r;

    (void)MHD_get_connection_values(c->conn, MHD_HEADER_KIND, take_header, &h);
    r = access_check_length(&h, &e);
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    if (!c->is_unix) {
        r = access_check_origin(&h, o->listen, &e);
        if (r == 0 && !route_is_open(path))
            r = access_check_key(&h, o->keys, &owner, &e);
        if (r < 0) {
            log_refused(c, &e);
            call_fail(c, &e);
            return;
        }
        if (owner) {
            c->uid = owner->uid;
            c->key = owner->name;
        }
    }
    if (has_too_many(c)) {
        (void)api_error_set(&e, 429, "too_many_requests", NULL,
                            "more than %u requests of one user at once",
                            o->max_connections / 2 + 1);
        e.retry_after_s = 1;
        call_fail(c, &e);
    }
}
