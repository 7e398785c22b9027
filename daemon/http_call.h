/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request and its answer: what stands between libmicrohttpd and the handlers (api_*.c).
 *
 * A call collects its body, is given to the handler of its route, and then waits, suspended, until
 * the handler answers it: at once with call_answer/call_fail, or piece by piece with call_stream_*.
 * The handler never sees libmicrohttpd and is never called from inside one of these functions,
 * except for `drained` (from the server's own event).
 *
 * While a call waits or streams its socket is watched through a duplicate of its descriptor, since
 * libmicrohttpd does not look at suspended connections: a client that goes away is noticed at once.
 * On a Unix socket only EPOLLHUP counts, so that a client that closes its sending half is served.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_HTTP_CALL_H
#define DAEMON_HTTP_CALL_H

#include "util/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct sd_event_source sd_event_source;
struct MHD_Connection;
struct MHD_Daemon;
struct api_error;
struct call;
struct http;
struct route;
struct server;

enum {
    CALL_QUEUE_HIGH = 1 << 20, /* unsent bytes of a stream from which its request should pause */
    CALL_QUEUE_LOW = 1 << 18,  /* and below which it may go on */
    CALL_SILENCE_S = 5,        /* a stream that says nothing for so long gets a comment */
    CALL_STALL_S = 30, /* a reader that takes nothing of what waits for it for so long is dropped */
};

/* What a handler that answers later wants to hear.  Calls come on the loop thread. */
struct call_owner {
    /*
     * The client went away, or the answer is complete and sent: the call must not be touched any
     * more.  Once.
     */
    void (*gone)(void *arg);
    /* The queue of a stream fell below CALL_QUEUE_LOW.  May be NULL. */
    void (*drained)(void *arg);
    void *arg;
};

/* What a body takes of the memory for all bodies, and for whom.  Loop thread. */
struct body_charge {
    struct http *http;               /* NULL while there is nothing */
    struct body_charge *prev, *next; /* in http->charges */
    uint64_t bytes;
    uint32_t uid; /* of its call, like the next */
    bool is_unix;
};

struct call {
    struct http *http;
    struct MHD_Connection *conn; /* libmicrohttpd's */
    struct call *prev, *next;    /* in http->calls */
    const struct route *route;   /* NULL: answered without one */
    char *tail;                  /* owned: what follows a route that ends in '/'; NULL otherwise */
    char request_id[72];         /* X-Request-Id: the client's, or ours */
    uint32_t uid;                /* peer of a Unix socket, or owner of a key (api_keys.h);
                                    UINT32_MAX otherwise */
    const char *key;             /* TCP: the name of its owner, borrowed until the server ends */
    bool is_unix;

    struct buf body;
    uint64_t n_body;           /* bytes received, kept or not */
    struct body_charge charge; /* of `body` */
    bool reading;              /* the body is not whole yet; it was `n_marked` long at `t_mark` */
    uint64_t t_mark, n_marked; /* later t_mark is when there was a whole answer */
    bool discard; /* the answer is an error already: read the rest of the body and forget it */

    bool started; /* given to its handler */
    bool waiting; /* suspended until the server's state changes */
    bool suspended;
    bool gone;              /* nobody is there to read an answer */
    int watch_fd;           /* owned duplicate, -1 */
    sd_event_source *watch; /* owned */
    struct call_owner owner;

    /* The answer. */
    int status;        /* 0: none yet */
    struct buf answer; /* JSON */
    const char *allow; /* static: Allow header of a 405 */
    int retry_after_s;
    bool streaming, ended;
    struct buf out; /* unsent bytes of a stream: [out_sent, len) */
    size_t out_sent;
    bool was_high;
    uint64_t t_put, t_taken; /* clock_ns: last byte queued; last time the reader took something or
                                began to owe */
};

/* For handlers. */

struct server *call_server(const struct call *c);

/* The value of a key of the query string, decoded; NULL when absent.  While the handler starts. */
const char *call_query(const struct call *c, const char *key);

/* From now on `owner` hears of the call; it is told `gone` exactly once. */
void call_set_owner(struct call *c, const struct call_owner *owner);

/*
 * Hands the body over, and with it what it has been given of the budgets for bodies, the server's
 * and its user's: the caller's until body_release, which it must not be moved before.
 */
void call_take_body(struct call *c, struct buf *ret, struct body_charge *ret_charge);
void body_release(struct body_charge *b);

/* The whole answer: takes the bytes of `json` over. */
void call_answer(struct call *c, int status, struct buf *json);
void call_fail(struct call *c, const struct api_error *e);

/* 200 and a stream of server-sent events; the header goes out at once. */
void call_stream_begin(struct call *c);
/* 0 with the bytes queued, or -ENOMEM. */
int call_stream_put(struct call *c, const void *p, size_t n);
/* True: more than CALL_QUEUE_HIGH waits; `drained` will be called. */
bool call_stream_is_full(struct call *c);
void call_stream_end(struct call *c);
/* Cuts the connection, so that the client cannot take what it has for a whole answer. */
void call_abort(struct call *c);

/* For http.c. */

enum call_step { CALL_SUSPEND, CALL_QUEUE_ANSWER, CALL_QUEUE_STREAM, CALL_CLOSE };

struct call *call_new(struct http *h, struct MHD_Connection *conn, bool is_unix);
/* Ends the watch, tells the owner, frees. */
void call_free(struct call *c);
/* Whether both come from one user. */
bool call_same_user(const struct call *a, const struct call *b);
/* A piece of the body.  Negative: the connection is not worth reading to its end. */
int call_body(struct call *c, const char *p, size_t n);
/* Tells the owner that the client is gone, whatever the call was doing. */
void call_hang_up(struct call *c);
/* Resumes a suspended connection, so that its handler or reader is called again. */
void call_wake(struct call *c);
/* Before a suspension: sees to the watch.  Negative when the descriptors are out. */
int call_watch(struct call *c);
/* Bytes for libmicrohttpd: > 0, 0 for "suspend me", or one of its MHD_CONTENT_READER_ codes. */
ssize_t call_read(struct call *c, char *p, size_t max);
/* Comments, stalls, slow bodies and answers that nobody takes.  Returns when to look again
 * (clock_ns), UINT64_MAX: no need. */
uint64_t call_tick(struct call *c, uint64_t now);

#endif
