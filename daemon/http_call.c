/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http_call.h"

#include "daemon/api_error.h"
#include "daemon/api_keys.h"
#include "daemon/http_internal.h"
#include "daemon/server.h"
#include "util/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

static const char keep_alive[] = ": keep-alive\n\n";

static int conn_fd(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info ? info->connect_fd : -1;
}

/* A name that is safe in a header and in a log. */
static bool is_request_id(const char *s)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

    return n > 0 && n <= 64 && s[n] == '\0';
}

struct call *call_new(struct http *h, struct MHD_Connection *conn, bool is_unix)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct call *c = calloc(1, sizeof *c);
    const char *id;

    if (!c)
        return NULL;
    c->http = h;
    c->conn = conn;
    c->is_unix = is_unix;
    c->watch_fd = -1;
    c->uid = UINT32_MAX;
    if (is_unix && getsockopt(conn_fd(conn), SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        c->uid = uid_is_user(peer.uid) ? peer.uid : UINT32_MAX;
    c->reading = true;
    c->t_mark = clock_ns();
    http_due(h, c->t_mark + CALL_BODY_S * NS_PER_S);
    id = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "X-Request-Id");
    if (id && is_request_id(id))
        (void)snprintf(c->request_id, sizeof c->request_id, "%s", id);
    else
        (void)snprintf(c->request_id, sizeof c->request_id, "req-%016llx%06llx",
                       (unsigned long long)h->id_base, (unsigned long long)++h->n_ids);
    c->next = h->calls;
    if (c->next)
        c->next->prev = c;
    h->calls = c;
    h->n_calls++;
    return c;
}

static void drop_body(struct call *c)
{
    buf_done(&c->body);
    body_release(&c->charge);
}

static void drop_watch(struct call *c)
{
    c->watch = sd_event_source_disable_unref(c->watch);
    if (c->watch_fd >= 0)
        (void)close(c->watch_fd);
    c->watch_fd = -1;
}

static void tell_gone(struct call *c)
{
    struct call_owner owner = c->owner;

    c->owner = (struct call_owner){0};
    if (owner.gone)
        owner.gone(owner.arg);
}

void call_free(struct call *c)
{
    struct http *h = c->http;

    /*
     * The duplicate must go before libmicrohttpd closes its own, or the peer would never see the
     * end.
     */
    drop_watch(c);
    tell_gone(c);
    drop_body(c);
    buf_done(&c->answer);
    buf_done(&c->out);
    free(c->tail);
    if (c->prev)
        c->prev->next = c->next;
    else
        h->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    h->n_calls--;
    free(c);
}

bool call_same_user(const struct call *a, const struct call *b)
{
    return a->is_unix == b->is_unix && a->uid == b->uid;
}

/* What the bodies of its user take. */
static uint64_t charged_to_user(const struct call *c)
{
    uint64_t sum = 0;

    for (const struct body_charge *b = c->http->charges; b; b = b->next)
        sum += b->is_unix == c->is_unix && b->uid == c->uid ? b->bytes : 0;
    return sum;
}

/* Its neighbours in the list learn where it is now. */
static void charge_moved(struct body_charge *b)
{
    *(b->prev ? &b->prev->next : &b->http->charges) = b;
    if (b->next)
        b->next->prev = b;
}

/* `bytes` in all, more than before. */
static void charge_set(struct call *c, uint64_t bytes)
{
    struct body_charge *b = &c->charge;

    c->http->body_used += bytes - b->bytes;
    if (b->bytes == 0) {
        *b = (struct body_charge){
            .http = c->http, .next = c->http->charges, .uid = c->uid, .is_unix = c->is_unix};
        charge_moved(b);
    }
    b->bytes = bytes;
}

void body_release(struct body_charge *b)
{
    if (b->bytes == 0)
        return;
    assert(b->bytes <= b->http->body_used);
    b->http->body_used -= b->bytes;
    *(b->prev ? &b->prev->next : &b->http->charges) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    *b = (struct body_charge){0};
}

/*
 * Room for n more bytes of body, within the budget that all bodies share, of which one user gets
 * half.  0 or negative.
 */
static int grow_body(struct call *c, size_t n)
{
    struct http *h = c->http;
    uint64_t want = c->body.cap + c->body.cap / 2; /* as buf grows */
    int r;

    if (c->body.len + n < c->body.cap)
        return 0;
    if (want < c->body.len + n + 1)
        want = c->body.len + n + 1;
    if (h->body_used + want - c->charge.bytes > h->body_limit ||
        charged_to_user(c) + want - c->charge.bytes > h->body_limit / 2)
        return -EBUSY;
    r = buf_reserve(&c->body, n);
    if (r < 0)
        return r;
    charge_set(c, c->body.cap);
    return 0;
}

static void refuse_body(struct call *c, int why)
{
    struct api_error e;

    if (why == ERR_CAPACITY) {
        (void)api_error_set(&e, 413, "body_too_large", NULL,
                            "the body is larger than %llu bytes, the most that is accepted",
                            (unsigned long long)c->http->options.max_body);
    } else {
        (void)api_error_set(&e, 503, "overloaded", NULL, "too many large bodies at once");
        e.retry_after_s = 1;
    }
    call_fail(c, &e);
    c->discard = true;
    drop_body(c);
}

int call_body(struct call *c, const char *p, size_t n)
{
    int r;

    c->n_body += n;
    /* An answer can be given only when the body was read; an endless one is cut off instead. */
    if (c->discard)
        return c->n_body > 4 * c->http->options.max_body ? -EMSGSIZE : 0;
    if (c->n_body > c->http->options.max_body) {
        refuse_body(c, ERR_CAPACITY);
        return 0;
    }
    r = grow_body(c, n);
    if (r < 0) {
        refuse_body(c, r);
        return 0;
    }
    return buf_add(&c->body, p, n);
}

void call_take_body(struct call *c, struct buf *ret, struct body_charge *ret_charge)
{
    *ret = c->body;
    *ret_charge = c->charge;
    if (ret_charge->bytes > 0)
        charge_moved(ret_charge);
    c->body = (struct buf){0};
    c->charge = (struct body_charge){0};
}

struct server *call_server(const struct call *c)
{
    return c->http->server;
}

const char *call_query(const struct call *c, const char *key)
{
    return MHD_lookup_connection_value(c->conn, MHD_GET_ARGUMENT_KIND, key);
}

void call_set_owner(struct call *c, const struct call_owner *owner)
{
    assert(!c->owner.gone);
    c->owner = *owner;
}

void call_wake(struct call *c)
{
    if (c->suspended) {
        c->suspended = false;
        MHD_resume_connection(c->conn);
        http_kick(c->http);
    }
}

void call_hang_up(struct call *c)
{
    c->gone = true;
    tell_gone(c);
    call_wake(c);
}

static int on_hup(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct call *c = arg;

    (void)fd;
    (void)revents;
    /* The condition stays; once is enough. */
    (void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
    call_hang_up(c);
    return 0;
}

int call_watch(struct call *c)
{
    if (c->watch)
        return 0;
    c->watch_fd = fcntl(conn_fd(c->conn), F_DUPFD_CLOEXEC, 3);
    if (c->watch_fd < 0)
        return -errno;
    /*
     * EPOLLHUP is always reported.  Over TCP a client that left looks like one that closed its
     * sending half.
     */
    return sd_event_add_io(c->http->server->event, &c->watch, c->watch_fd,
                           c->is_unix ? 0 : EPOLLRDHUP, on_hup, c);
}

/* When a whole answer is with its client, or that one holds it for too long. */
static uint64_t taken_by(const struct call *c)
{
    return c->t_mark + (CALL_TAKE_S + c->answer.len / CALL_TAKE_BYTES) * NS_PER_S;
}

void call_answer(struct call *c, int status, struct buf *json)
{
    assert(c->status == 0);
    c->status = status;
    buf_done(&c->answer);
    c->answer = *json;
    *json = (struct buf){0};
    if (!c->reading) {
        c->t_mark = clock_ns();
        http_due(c->http, taken_by(c));
    }
    call_wake(c);
}

void call_fail(struct call *c, const struct api_error *e)
{
    struct buf b = {0};

    assert(e->status >= 400);
    if (api_error_write(e, &b) < 0)
        buf_done(&b); /* the status says it */
    c->retry_after_s = e->retry_after_s;
    call_answer(c, e->status, &b);
}

void call_stream_begin(struct call *c)
{
    assert(c->status == 0);
    c->status = 200;
    c->streaming = true;
    c->t_put = c->t_taken = clock_ns();
    http_due(c->http, c->t_put + CALL_SILENCE_S * NS_PER_S);
    call_wake(c);
}

int call_stream_put(struct call *c, const void *p, size_t n)
{
    int r;

    if (c->out_sent == c->out.len) {
        buf_clear(&c->out);
        c->out_sent = 0;
        c->t_taken = clock_ns();
    }
    r = buf_add(&c->out, p, n);
    if (r < 0)
        return r;
    c->t_put = clock_ns();
    call_wake(c);
    return 0;
}

bool call_stream_is_full(struct call *c)
{
    bool full = c->out.len - c->out_sent > CALL_QUEUE_HIGH;

    c->was_high |= full;
    return full;
}

void call_stream_end(struct call *c)
{
    c->ended = true;
    call_wake(c);
}

void call_abort(struct call *c)
{
    c->gone = true;
    /* Works in whatever state libmicrohttpd has the connection. */
    if (c->watch_fd >= 0)
        (void)shutdown(c->watch_fd, SHUT_RDWR);
    call_wake(c);
}

ssize_t call_read(struct call *c, char *p, size_t max)
{
    size_t n = c->out.len - c->out_sent;

    if (c->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0)
        return c->ended ? MHD_CONTENT_READER_END_OF_STREAM : 0;
    if (n > max)
        n = max;
    memcpy(p, c->out.data + c->out_sent, n);
    c->out_sent += n;
    c->t_taken = clock_ns();
    /* Moved only when that is cheap: every byte at most once. */
    if (c->out_sent >= c->out.len / 2) {
        buf_consume(&c->out, c->out_sent);
        c->out_sent = 0;
    }
    if (c->was_high && c->out.len - c->out_sent < CALL_QUEUE_LOW) {
        c->was_high = false;
        if (c->owner.drained)
            c->owner.drained(c->owner.arg);
    }
    return (ssize_t)n;
}

/* A body that hardly grows holds what others could use. */
static uint64_t tick_body(struct call *c, uint64_t now)
{
    if (now < c->t_mark + CALL_BODY_S * NS_PER_S)
        return c->t_mark + CALL_BODY_S * NS_PER_S;
    if (c->n_body - c->n_marked < CALL_BODY_BYTES) {
        (void)shutdown(conn_fd(c->conn), SHUT_RDWR);
        return UINT64_MAX;
    }
    c->n_marked = c->n_body;
    c->t_mark = now;
    return now + CALL_BODY_S * NS_PER_S;
}

uint64_t call_tick(struct call *c, uint64_t now)
{
    uint64_t stall = c->t_taken + CALL_STALL_S * NS_PER_S;
    uint64_t silence = c->t_put + CALL_SILENCE_S * NS_PER_S;

    if (c->reading)
        return tick_body(c, now);
    if (c->gone)
        return UINT64_MAX;
    if (c->status && !c->streaming) {
        if (now < taken_by(c))
            return taken_by(c);
        (void)shutdown(conn_fd(c->conn), SHUT_RDWR);
        return UINT64_MAX;
    }
    if (!c->streaming)
        return UINT64_MAX;
    if (c->out.len > c->out_sent) {
        if (now < stall)
            return stall;
        call_hang_up(c);
        call_abort(c);
        return UINT64_MAX;
    }
    if (c->ended)
        return UINT64_MAX;
    if (now < silence)
        return silence;
    if (call_stream_put(c, keep_alive, sizeof keep_alive - 1) < 0)
        return now + NS_PER_S; /* out of memory: try again */
    return now + CALL_SILENCE_S * NS_PER_S;
}
