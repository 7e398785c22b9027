/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every connection is cheap to serve and bounded: at most 64 of them (the one that was quiet
 * longest makes room), a message of at most 1 MiB in, no reading while 1 MiB of answers waits to be
 * fetched, 64 calls per turn of the loop, and a client that fetches nothing for 30 s is dropped. So
 * no client holds up the loop or another client.
 */
#include "daemon/control.h"

#include "ctl/varlink.h"
#include "daemon/log.h"
#include "daemon/rates.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "daemon/verbs.h"
#include "util/buf.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <systemd/sd-event.h>

enum {
    PEERS_MAX = 64,
    CALLS_PER_TURN = 64,
    OUT_PAUSE = 1 << 20, /* answers that wait; more calls are read only below this */
    OUT_LIMIT = 4 << 20, /* one answer may go past OUT_PAUSE, not past this */
    ACCEPTS_PER_TURN = 16,
};
static const uint64_t SECOND_US = 1000000;
static const uint64_t STALL_NS = 30ull * 1000000000;

struct peer {
    struct control *control;     /* borrowed */
    struct peer *next, **at;     /* in control->peers */
    int fd;                      /* owned */
    sd_event_source *io, *again; /* owned; `again` runs the next turn when calls are left */
    struct varlink_reader in;
    struct buf out;
    size_t sent;        /* bytes of `out` that are gone */
    bool at_end;        /* the client sends no more */
    uint64_t active_ns; /* when it last sent or fetched something */
    struct ucred cred;
};

struct control {
    struct server *server;          /* borrowed */
    sd_event_source *listen, *tick; /* owned */
    struct peer *peers;             /* owned */
    size_t n_peers;
    struct rates rates;
};

static void peer_free(struct peer *p)
{
    *p->at = p->next;
    if (p->next)
        p->next->at = p->at;
    p->control->n_peers--;
    sd_event_source_disable_unref(p->io);
    sd_event_source_disable_unref(p->again);
    (void)close(p->fd);
    buf_done(&p->in.in);
    buf_done(&p->out);
    free(p);
}

/* 0, or negative when the connection is broken. */
static int peer_flush(struct peer *p)
{
    while (p->sent < p->out.len) {
        ssize_t n =
            send(p->fd, p->out.data + p->sent, p->out.len - p->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        p->sent += (size_t)n;
        p->active_ns = clock_ns();
    }
    buf_clear(&p->out);
    p->sent = 0;
    return 0;
}

static size_t peer_waiting(const struct peer *p)
{
    return p->out.len - p->sent;
}

/* One call.  Negative: the connection ends. */
static int peer_call(struct peer *p, const char *frame, size_t n)
{
    struct verb_context c = {
        .server = p->control->server, .rates = &p->control->rates, .peer = p->cred};
    struct varlink_call call;
    struct err_text why;
    int r;

    r = varlink_call_parse(frame, n, &call, &why);
    if (r < 0) {
        log_msg(LOG_INFO,
                "control client sent something that is not a call, closing its connection: %s "
                "uid=%u pid=%d",
                why.s, p->cred.uid, (int)p->cred.pid);
        return r;
    }
    if (p->sent > 0) {
        buf_consume(&p->out, p->sent);
        p->sent = 0;
    }
    r = verbs_run(&c, &call, &p->out);
    varlink_call_done(&call);
    return r;
}

/* Answers what has arrived, sends what fits, and says what to wait for.  Frees `p` when the
 * connection is over. */
static int peer_turn(struct peer *p)
{
    bool drained = false;
    uint32_t events = 0;
    int r = 0;

    for (int i = 0; i < CALLS_PER_TURN && r >= 0 && peer_waiting(p) < OUT_PAUSE; i++) {
        const char *frame;
        size_t n;

        if (!varlink_reader_next(&p->in, &frame, &n)) {
            drained = true;
            break;
        }
        r = peer_call(p, frame, n);
    }
    if (r >= 0)
        r = peer_flush(p);
    if (r < 0 || (drained && p->at_end && peer_waiting(p) == 0)) {
        peer_free(p);
        return 0;
    }

    if (peer_waiting(p) > 0)
        events |= EPOLLOUT;
    if (drained && !p->at_end)
        events |= EPOLLIN;
    (void)sd_event_source_set_io_events(p->io, events);
    if (!drained && peer_waiting(p) < OUT_PAUSE)
        (void)sd_event_source_set_enabled(p->again, SD_EVENT_ONESHOT);
    return 0;
}

static int on_again(sd_event_source *s, void *arg)
{
    (void)s;
    return peer_turn(arg);
}

static int on_peer(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    struct peer *p = arg;
    size_t room;
    char *to;
    ssize_t n;

    (void)s;
    if (revents & EPOLLIN) {
        if (varlink_reader_room(&p->in, &to, &room) < 0) {
            log_msg(LOG_INFO,
                    "control client sent a message that is too large, closing its connection: "
                    "uid=%u pid=%d",
                    p->cred.uid, (int)p->cred.pid);
            peer_free(p);
            return 0;
        }
        n = recv(fd, to, room, MSG_DONTWAIT);
        if (n > 0) {
            varlink_reader_received(&p->in, (size_t)n);
            p->active_ns = clock_ns();
        } else if (n == 0) {
            p->at_end = true;
        } else if (errno != EAGAIN && errno != EINTR) {
            peer_free(p);
            return 0;
        }
    } else if (revents & (EPOLLHUP | EPOLLERR)) {
        /* Both directions are closed: nobody reads the answers. */
        peer_free(p);
        return 0;
    }
    return peer_turn(p);
}

/* Room for one more: the connection that was quiet longest goes. */
static void drop_quietest(struct control *c)
{
    struct peer *quietest = c->peers;

    for (struct peer *p = c->peers; p; p = p->next)
        if (p->active_ns < quietest->active_ns)
            quietest = p;
    if (quietest) {
        log_msg(LOG_INFO,
                "more than %d control connections, closing the one that was quiet longest: uid=%u "
                "pid=%d",
                PEERS_MAX, quietest->cred.uid, (int)quietest->cred.pid);
        peer_free(quietest);
    }
}

/* Takes `fd` over, also on failure. */
static int peer_new(struct control *c, int fd)
{
    struct peer *p = calloc(1, sizeof *p);
    socklen_t n = sizeof p->cred;
    int r;

    if (!p) {
        (void)close(fd);
        return -ENOMEM;
    }
    p->control = c;
    p->fd = fd;
    p->out.limit = OUT_LIMIT;
    p->active_ns = clock_ns();
    p->next = c->peers;
    p->at = &c->peers;
    if (p->next)
        p->next->at = &p->next;
    c->peers = p;
    c->n_peers++;
    r = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &p->cred, &n) < 0 ? -errno : 0;
    if (r >= 0)
        r = sd_event_add_io(c->server->event, &p->io, fd, EPOLLIN, on_peer, p);
    if (r >= 0)
        r = sd_event_add_defer(c->server->event, &p->again, on_again, p);
    if (r >= 0)
        r = sd_event_source_set_enabled(p->again, SD_EVENT_OFF);
    if (r < 0)
        peer_free(p);
    return r < 0 ? r : 0;
}

static int on_listen(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    struct control *c = arg;

    (void)revents;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;

        if (peer < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            /* The connection stays in the backlog; asking again at once would only spin. */
            log_msg(LOG_WARNING, "cannot accept control connections, trying again in a second: %s",
                    err_str(-errno));
            (void)sd_event_source_set_enabled(s, SD_EVENT_OFF);
            return 0;
        }
        if (peer < 0)
            return 0;
        if (c->n_peers >= PEERS_MAX)
            drop_quietest(c);
        r = peer_new(c, peer);
        if (r < 0)
            log_msg(LOG_WARNING, "cannot serve a control connection: %s", err_str(r));
    }
    return 0;
}

void control_tick(struct control *c)
{
    struct rates_sample now = {.ns = clock_ns()};
    struct peer *next;

    if (c->server->sched) {
        struct sched_totals t;

        sched_totals(c->server->sched, &t);
        now.prompt_tokens = t.prompt_tokens;
        now.generated_tokens = t.generated_tokens;
        rates_add(&c->rates, now);
    }
    for (struct peer *p = c->peers; p; p = next) {
        next = p->next;
        if (peer_waiting(p) > 0 && now.ns - p->active_ns > STALL_NS) {
            log_msg(
                LOG_INFO,
                "control client does not fetch its answers, closing its connection: uid=%u pid=%d",
                p->cred.uid, (int)p->cred.pid);
            peer_free(p);
        }
    }
    (void)sd_event_source_set_enabled(c->listen, SD_EVENT_ON); /* after a lack of descriptors */
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    control_tick(arg);
    (void)sd_event_source_set_time(s, usec + SECOND_US);
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

int control_new(struct server *s, int fd, struct control **ret)
{
    struct control *c = calloc(1, sizeof *c);
    uint64_t now;
    int r;

    if (!c)
        return -ENOMEM;
    c->server = s;
    r = sd_event_add_io(s->event, &c->listen, fd, EPOLLIN, on_listen, c);
    if (r >= 0)
        r = sd_event_now(s->event, CLOCK_MONOTONIC, &now);
    if (r >= 0)
        r = sd_event_add_time(s->event, &c->tick, CLOCK_MONOTONIC, now + SECOND_US, SECOND_US / 10,
                              on_tick, c);
    if (r < 0) {
        control_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void control_free(struct control *c)
{
    if (!c)
        return;
    while (c->peers)
        peer_free(c->peers);
    sd_event_source_disable_unref(c->listen);
    sd_event_source_disable_unref(c->tick);
    free(c);
}
