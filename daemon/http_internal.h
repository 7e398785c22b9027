/* SPDX-License-Identifier: Apache-2.0 */
/* What http.c, http_call.c and http_route.c share. */
#ifndef DAEMON_HTTP_INTERNAL_H
#define DAEMON_HTTP_INTERNAL_H

#include "daemon/http.h"
#include "daemon/http_call.h"

#include <stdbool.h>

enum {
    CONN_HEADER_S = 30, /* a first request's header is there so long after the connection */
    CONN_IDLE_S = 120,  /* the next one so long after an answer */
    CALL_BODY_S = 30,   /* in every such time a body grows by at least CALL_BODY_BYTES */
    CALL_BODY_BYTES = 64 << 10,
    CALL_TAKE_S = 120, /* a whole answer is taken in this time, and one second more for each */
    CALL_TAKE_BYTES = 64 << 10,
};

struct connection;

/* One listening socket: libmicrohttpd has one a daemon. */
struct http_listener {
    struct http *http;
    struct MHD_Daemon *mhd; /* owned */
    bool is_unix;
    uint32_t n_open;
    struct connection *oldest, *newest; /* those that wait for a request */
    sd_event_source *io;                /* owned: its epoll descriptor */
    sd_event_source *timeout;           /* owned: what it asks for */
    sd_event_source *again;             /* owned: run it in the next turn of the loop */
};

struct http {
    struct server *server;
    struct http_options options;
    struct http_listener *listeners; /* owned, [n_listeners] */
    size_t n_listeners;
    struct call *calls; /* owned list */
    uint32_t n_calls;
    uint32_t n_silent;  /* connections that have not asked for anything yet */
    uint64_t body_used; /* bytes of bodies in memory, those in the handlers' hands included */
    struct body_charge *charges; /* list of what that is the sum of, each in its body's owner */
    uint64_t body_limit;
    bool closing;                   /* http_free is under way: nothing begins any more */
    sd_event_source *deadline;      /* owned: the next http_tick */
    uint64_t deadline_ns;           /* when it is armed for; UINT64_MAX: off */
    uint64_t id_base, n_ids;        /* for request ids */
    uint64_t refused_ns, n_refused; /* when access was last logged as refused; how often since */
};

/*
 * Looks after streams: comments into silence, stalled readers.  Called by a timer; tests call it
 * themselves.
 */
void http_tick(struct http *h);
/* A stream began or was given bytes: http_tick is due no later than `t`. */
void http_due(struct http *h, uint64_t t);
/* Lets libmicrohttpd run in the next turn of the loop. */
void http_kick(struct http *h);

/* Connections, and who may ask (http_conn.c). */

/* `context` is libmicrohttpd's room for us. */
void connection_begin(struct http_listener *l, struct MHD_Connection *conn, void **context);
void connection_end(struct http_listener *l, void *context);
/* A request's header is there; its answer is sent. */
void connection_asked(struct MHD_Connection *conn);
void connection_answered(struct MHD_Connection *conn);
/* Ends those that waited too long.  Returns when to look again, UINT64_MAX: no need. */
uint64_t connections_tick(struct http_listener *l, uint64_t now);
/* A new call may go on, as whoever its key says, or is failed. */
void call_admit(struct call *c, const char *path);

/* The way to a handler (http_route.c). */

/* Whether a path may be asked without a key. */
bool route_is_open(const char *path);

/* Finds the route of a new call; one that does not exist, or not for this method, is failed. */
void route_find(struct call *c, const char *method, const char *path);
/*
 * The whole body is there: starts the handler.  False when the call has to wait until the server's
 * state changes.
 */
bool route_start(struct call *c);

#endif
