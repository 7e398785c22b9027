/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API server: libmicrohttpd on sd-event, and the routes (api_*.c).
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stddef.h>
#include <stdint.h>

struct api_keys;
struct http;
struct server;

struct http_options {
    const int *fds; /* listening sockets; the array is read by http_new only, the sockets are
                       borrowed until http_free */
    size_t n_fds;
    uint64_t max_body;        /* bytes; a larger body is 413 */
    uint32_t max_connections; /* of each socket; more wait in its backlog */
    /* For TCP sockets, borrowed until http_free. */
    const struct api_keys *keys; /* NULL: nobody has one */
    const char *listen;          /* the setting, whose names may be a Host; NULL: none */
};

int http_new(struct server *s, const struct http_options *o, struct http **ret);
/*
 * Ends every connection and cancels its request.  The front must have been freed before; the
 * scheduler must be there until the cancelled requests are done.
 */
void http_free(struct http *h);

/* server.state changed: waiting completions go on (READY) or get 503 (FAILED, STOPPING). */
void http_state_changed(struct http *h);

/*
 * Accepts nobody any more; who comes stays in the backlog, for the process that is served the
 * socket next.  Connections that are there go on.
 */
void http_quiesce(struct http *h);

/* Requests that are not answered to the end yet.  Idle connections do not count. */
uint32_t http_n_active(const struct http *h);
/*
 * Connections that have not sent their first request yet.  A client that was accepted just before
 * the end is about to: closing on it would be an answer of no bytes, which it cannot tell from a
 * crash.
 */
uint32_t http_n_silent(const struct http *h);

#endif
