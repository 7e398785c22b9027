/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API server in this process, for tests: real HTTP, front threads and scheduler over the fake
 * engine and tokenizer, on a Unix socket of its own, with clients that speak raw bytes.
 *
 * One thread drives it all: world_turn lets the loop turn once and the clients read.  Time is the
 * world's (`now_ns`), so that nothing waits for a clock.
 *
 * Vocabulary: 0 is the end token "<|end|>", 1 the engine's poison, 2..96 the printable ASCII
 * characters.
 */
#ifndef TESTS_HTTP_WORLD_H
#define TESTS_HTTP_WORLD_H

#include "daemon/http_internal.h"
#include "daemon/options.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "tests/fake_engine.h"
#include "util/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { WORLD_CLIENTS = 256, WORLD_VOCAB = 97 };

struct client {
    int fd;        /* -1: closed by us */
    struct buf in; /* received and not taken */
    size_t seen;   /* of it: no answer ends in here */
    bool lazy;     /* does not read */
    bool eof;      /* the server closed, or reset, the connection */
};

struct world {
    struct server server;
    struct options options; /* parallel and model only */
    struct fake_options fake;
    char dir[32], path[64];
    bool tcp;
    uint16_t port;
    int listen_fd;
    uint64_t now_ns;
    bool engine_runs; /* every turn runs a job of the engine */
    struct client clients[WORLD_CLIENTS];
    uint32_t n_clients;
    char log[512]; /* the last line */
    uint32_t n_logged;
};

struct world_options {
    uint32_t parallel, max_queued, context, end_every;
    uint64_t max_body;
    enum server_state state;
    bool tcp; /* on 127.0.0.1 instead; keys: "key-of-alice" (alice) and "key-of-bob-42" (bob) */
    const char *listen;       /* names that may be a Host, NULL: none */
    uint32_t max_connections; /* 1000 */
};

/* 2 slots, 4 may wait, context 4096, no end token, bodies of up to 64 KiB, ready. */
struct world *world_new(void);
struct world *world_with(const struct world_options *o);
/* Also checks that nothing of a request is left over. */
void world_free(struct world *w);

void world_turn(struct world *w);
/* Turns until nothing more happens by itself. */
void world_settle(struct world *w);
void world_pass(struct world *w, uint32_t ms);
struct sched_totals world_totals(const struct world *w);

struct client *client_new(struct world *w);
void client_send(struct client *c, const void *p, size_t n);
/* What the server has closed takes less, or nothing. */
void client_send_some(struct client *c, const void *p, size_t n);
void client_sendz(struct client *c, const char *s);
/* "POST path" with this body. */
void client_post(struct client *c, const char *path, const char *body);
void client_get(struct client *c, const char *path);
void client_close(struct client *c);
/* Closes the sending half only. */
void client_half_close(struct client *c);

struct response {
    int status;
    struct buf head, body; /* body without its chunks */
};
void response_done(struct response *r);
/* Takes the oldest answer off the client once it is complete. */
bool client_take(struct client *c, struct response *ret);
/* Turns until it is. */
void client_wait(struct world *w, struct client *c, struct response *ret);

/* The same, and its status and words in it (NULL: any) are as expected. */
void client_expect(struct world *w, struct client *c, int status, const char *words);

/* How often `what` lies in what was received and not taken. */
size_t client_count(const struct client *c, const char *what);

/* The text of all events of a stream together. */
void stream_text(const char *s, struct buf *out);

/* The text of n tokens after this prompt, and the ids. */
void world_expect(const struct world *w, const char *prompt, uint32_t n, char *ret_text);

/* Turns until the expression is true; fails after many in which it was not. */
#define UNTIL(w, expr)                                                                             \
    do {                                                                                           \
        int turns_ = 0;                                                                            \
                                                                                                   \
        while (!(expr)) {                                                                          \
            if (turns_++ == 20000)                                                                 \
                ck_abort_msg("never came true: %s", #expr);                                        \
            world_turn(w);                                                                         \
        }                                                                                          \
    } while (0)

#endif
