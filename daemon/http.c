/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd in its external-epoll mode: its epoll descriptor is one more source of the loop,
 * and after every run it is asked when it wants to run again.  It has no thread.
 *
 * What libmicrohttpd calls (on_request, on_read, on_completed) runs inside MHD_run only; nothing
 * here calls MHD_run from inside of them.
 */
#include "daemon/http.h"

#include "daemon/api_error.h"
#include "daemon/http_internal.h"
#include "daemon/server.h"
#include "util/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

/*
 * Memory of a connection; bounds the header.  16 KiB measured best of 8, 16 and 32 for idle memory
 * and uploads.
 */
#define CONNECTION_POOL_BYTES ((size_t)16 << 10)

/* A connection on which nothing moves, for instance an answer that nobody reads. */
#define CONNECTION_TIMEOUT_S ((unsigned int)CONN_IDLE_S)

/* So many bodies of the largest size may be in memory at once. */
#define BODIES_AT_ONCE 6

static void add_headers(struct MHD_Response *r, const struct call *c)
{
    char n[16];

    (void)MHD_add_response_header(r, "X-Request-Id", c->request_id);
    if (c->allow)
        (void)MHD_add_response_header(r, "Allow", c->allow);
    if (c->status == 401)
        (void)MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (c->retry_after_s > 0) {
        (void)snprintf(n, sizeof n, "%d", c->retry_after_s);
        (void)MHD_add_response_header(r, "Retry-After", n);
    }
    /* Connections must not outlive the requests at shutdown. */
    if (c->http->server->state == SERVER_STOPPING || c->http->server->state == SERVER_FAILED)
        (void)MHD_add_response_header(r, "Connection", "close");
}

static enum MHD_Result queue_answer(struct call *c)
{
    /* The call outlives the response: on_completed comes after the last byte. */
    struct MHD_Response *r =
        MHD_create_response_from_buffer(c->answer.len, c->answer.data, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result x;

    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "application/json; charset=utf-8");
    add_headers(r, c);
    x = MHD_queue_response(c->conn, (unsigned int)c->status, r);
    MHD_destroy_response(r);
    return x;
}

/* libmicrohttpd wants bytes.  Given none and not suspended it would ask without a pause. */
static ssize_t on_read(void *cls, uint64_t pos, char *p, size_t max)
{
    struct call *c = cls;
    ssize_t n = call_read(c, p, max);

    (void)pos;
    if (n == 0) {
        c->suspended = true;
        MHD_suspend_connection(c->conn);
    }
    return n;
}

static enum MHD_Result queue_stream(struct call *c)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_read, c, NULL);
    enum MHD_Result x;

    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    add_headers(r, c);
    x = MHD_queue_response(c->conn, (unsigned int)c->status, r);
    MHD_destroy_response(r);
    return x;
}

/*
 * A body that is announced as too large is refused before it is sent; so is one in a coding that
 * nobody reads.
 */
static void check_announced(struct call *c)
{
    const char *length = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Content-Length");
    const char *coding = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Content-Encoding");
    struct api_error e;

    if (c->status)
        return;
    if (length && strtoull(length, NULL, 10) > c->http->options.max_body) {
        (void)api_error_set(
            &e, 413, "body_too_large", NULL, "the body has %llu bytes; at most %llu are accepted",
            strtoull(length, NULL, 10), (unsigned long long)c->http->options.max_body);
        call_fail(c, &e);
    } else if (coding && *coding) {
        (void)api_error_set(&e, 415, "unsupported_encoding", NULL,
                            "the body has a Content-Encoding; it must be plain JSON");
        call_fail(c, &e);
    }
}

/* A call that can do nothing more now: sleeps, watched. */
static enum MHD_Result suspend(struct call *c)
{
    struct api_error e;

    if (call_watch(c) < 0) {
        /* Without the watch a lost client would keep its slot: better no request. */
        (void)api_error_set(&e, 503, "overloaded", NULL, "too many connections");
        e.retry_after_s = 1;
        call_hang_up(c);
        c->gone = false;
        call_fail(c, &e);
        return queue_answer(c);
    }
    c->suspended = true;
    MHD_suspend_connection(c->conn);
    return MHD_YES;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_listener *l = cls;

    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        connection_begin(l, conn, context);
    else
        connection_end(l, *context);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_size, void **con_cls)
{
    struct http_listener *l = cls;
    struct call *c = *con_cls;

    (void)version;
    if (!c) {
        connection_asked(conn);
        c = l->http->closing ? NULL : call_new(l->http, conn, l->is_unix);
        if (!c)
            return MHD_NO;
        *con_cls = c;
        call_admit(c, url);
        if (!c->status)
            check_announced(c);
        if (c->status)
            return queue_answer(c);
        route_find(c, method, url);
        return MHD_YES;
    }
    if (*data_size) {
        int r = call_body(c, data, *data_size);

        *data_size = 0;
        return r < 0 ? MHD_NO : MHD_YES;
    }
    c->reading = false;
    if (c->gone)
        return MHD_NO;
    if (!c->status && !c->started) {
        c->waiting = !route_start(c);
        c->started = !c->waiting;
    }
    if (!c->status)
        return suspend(c);
    if (c->streaming && call_watch(c) < 0)
        return MHD_NO;
    return c->streaming ? queue_stream(c) : queue_answer(c);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct call *c = *con_cls;

    (void)cls;
    (void)code;
    if (c)
        call_free(c);
    *con_cls = NULL;
    connection_answered(conn);
}

static void run(struct http_listener *l)
{
    unsigned long long ms;

    (void)MHD_run(l->mhd);
    if (MHD_get_timeout(l->mhd, &ms) != MHD_YES) {
        (void)sd_event_source_set_enabled(l->timeout, SD_EVENT_OFF);
    } else if (ms == 0) {
        (void)sd_event_source_set_enabled(l->again, SD_EVENT_ONESHOT);
    } else {
        (void)sd_event_source_set_time_relative(l->timeout, (uint64_t)ms * 1000);
        (void)sd_event_source_set_enabled(l->timeout, SD_EVENT_ONESHOT);
    }
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    (void)source;
    (void)fd;
    (void)revents;
    run(arg);
    return 0;
}

static int on_timeout(sd_event_source *source, uint64_t t, void *arg)
{
    (void)source;
    (void)t;
    run(arg);
    return 0;
}

static int on_again(sd_event_source *source, void *arg)
{
    (void)source;
    run(arg);
    return 0;
}

void http_kick(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++)
        if (h->listeners[i].again)
            (void)sd_event_source_set_enabled(h->listeners[i].again, SD_EVENT_ONESHOT);
}

void http_due(struct http *h, uint64_t t)
{
    uint64_t now = clock_ns();

    if (t >= h->deadline_ns || !h->deadline)
        return;
    h->deadline_ns = t;
    (void)sd_event_source_set_time_relative(h->deadline, t > now ? (t - now) / 1000 : 0);
    (void)sd_event_source_set_enabled(h->deadline, SD_EVENT_ONESHOT);
}

void http_tick(struct http *h)
{
    uint64_t now = clock_ns(), next = UINT64_MAX;

    for (struct call *c = h->calls; c; c = c->next) {
        uint64_t t = call_tick(c, now);

        if (t < next)
            next = t;
    }
    for (size_t i = 0; i < h->n_listeners; i++) {
        uint64_t t = connections_tick(&h->listeners[i], now);

        if (t < next)
            next = t;
    }
    h->deadline_ns = UINT64_MAX;
    http_due(h, next);
}

static int on_deadline(sd_event_source *source, uint64_t t, void *arg)
{
    (void)source;
    (void)t;
    http_tick(arg);
    return 0;
}

static int listener_init(struct http_listener *l, struct http *h, int fd)
{
    sd_event *ev = h->server->event;
    socklen_t len = sizeof(int);
    int domain = AF_UNSPEC;
    int r;

    l->http = h;
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    l->is_unix = domain == AF_UNIX;
    l->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request,
                              l, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                              h->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
                              CONNECTION_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                              CONNECTION_POOL_BYTES, MHD_OPTION_STRICT_FOR_CLIENT,
                              l->is_unix ? 0 : 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, l,
                              MHD_OPTION_NOTIFY_CONNECTION, on_connection, l, MHD_OPTION_END);
    if (!l->mhd)
        return errno > 0 ? -errno : -EIO;

    r = sd_event_add_io(ev, &l->io, MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
                        EPOLLIN, on_io, l);
    if (r < 0)
        return r;
    r = sd_event_add_time_relative(ev, &l->timeout, CLOCK_MONOTONIC, 0, 1000, on_timeout, l);
    if (r < 0)
        return r;
    (void)sd_event_source_set_enabled(l->timeout, SD_EVENT_OFF);
    r = sd_event_add_defer(ev, &l->again, on_again, l);
    if (r < 0)
        return r;
    return sd_event_source_set_enabled(l->again, SD_EVENT_OFF);
}

int http_new(struct server *s, const struct http_options *o, struct http **ret)
{
    struct http *h = calloc(1, sizeof *h);
    int r;

    if (!h)
        return -ENOMEM;
    h->server = s;
    h->options = *o;
    h->body_limit = BODIES_AT_ONCE * (o->max_body + 4096);
    h->deadline_ns = UINT64_MAX;
    h->listeners = calloc(o->n_fds ? o->n_fds : 1, sizeof *h->listeners);
    if (!h->listeners) {
        http_free(h);
        return -ENOMEM;
    }
    if (getrandom(&h->id_base, sizeof h->id_base, 0) != sizeof h->id_base)
        h->id_base = clock_ns();

    r = sd_event_add_time_relative(s->event, &h->deadline, CLOCK_MONOTONIC, 0, 10000, on_deadline,
                                   h);
    if (r >= 0)
        r = sd_event_source_set_enabled(h->deadline, SD_EVENT_OFF);
    for (size_t i = 0; r >= 0 && i < o->n_fds; i++) {
        h->n_listeners = i + 1;
        r = listener_init(&h->listeners[i], h, o->fds[i]);
    }
    if (r < 0) {
        http_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    h->closing = true;
    /* libmicrohttpd must not be stopped while a connection is suspended. */
    for (struct call *c = h->calls; c; c = c->next)
        call_hang_up(c);
    for (size_t i = 0; i < h->n_listeners; i++) {
        struct http_listener *l = &h->listeners[i];

        if (l->mhd) {
            /* The socket is not ours to close. */
            (void)MHD_quiesce_daemon(l->mhd);
            (void)MHD_run(l->mhd);
            MHD_stop_daemon(l->mhd);
        }
        (void)sd_event_source_disable_unref(l->io);
        (void)sd_event_source_disable_unref(l->timeout);
        (void)sd_event_source_disable_unref(l->again);
    }
    (void)sd_event_source_disable_unref(h->deadline);
    free(h->listeners);
    free(h);
}

void http_quiesce(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++)
        (void)MHD_quiesce_daemon(h->listeners[i].mhd);
}

void http_state_changed(struct http *h)
{
    for (struct call *c = h->calls; c; c = c->next)
        if (c->waiting)
            call_wake(c);
}

uint32_t http_n_active(const struct http *h)
{
    return h->n_calls;
}

uint32_t http_n_silent(const struct http *h)
{
    return h->n_silent;
}
