/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of strataD share: one struct, owned by the loop thread, made in lifecycle.c.
 *
 * The daemon listens before the model is loaded.  While it loads, /health answers 503 with the
 * percent, the control socket answers, and completions wait; lifecycle.c then calls
 * http_state_changed().
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "util/err.h"

#include <stdint.h>

typedef struct sd_event sd_event;
struct api_keys;
struct arena;
struct cache;
struct chat_template;
struct control;
struct decisions;
struct diverging;
struct engine;
struct front;
struct http;
struct listeners;
struct model;
struct options;
struct sched;
struct tokenizer;

enum server_state {
    SERVER_LOADING,
    SERVER_READY,    /* a completion would work */
    SERVER_FAILED,   /* loading failed: 503 to everyone, then exit code 78 */
    SERVER_STOPPING, /* no new requests: 503 */
};

struct server {
    sd_event *event;                   /* owned */
    const struct options *options;     /* borrowed, valid for the life of the process */
    const struct listeners *listeners; /* borrowed, likewise */
    enum server_state state;
    unsigned int load_percent;   /* 0..100 while loading */
    struct err_text fail_reason; /* when SERVER_FAILED */
    /* What /v1/models and `model` in answers say: general.name or the file's name; printable. */
    char model_id[256];
    int64_t created;     /* unix seconds of the load, for /v1/models */
    uint64_t started_ns; /* clock_ns at process start */
    uint64_t available;  /* bytes of memory that were free before the model was loaded */

    /* NULL before SERVER_READY. */
    struct model *model;         /* owned */
    struct tokenizer *tokenizer; /* owned */
    struct chat_template *chat;  /* owned; NULL: the model has none */
    struct engine *engine;       /* owned */
    struct sched *sched;         /* owned */
    struct decisions *decisions; /* owned */
    struct arena *arena;         /* owned; the cache's ram tier */
    struct cache *cache;         /* owned; stays NULL with "cache": false, like the next */
    struct diverging *diverging; /* owned */

    /* From the start. */
    struct api_keys *keys;   /* owned; NULL: no TCP */
    struct front *front;     /* owned */
    struct http *http;       /* owned */
    struct control *control; /* owned */
};

#endif
