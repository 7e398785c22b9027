/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the model on a thread of its own, so that the loop answers meanwhile.
 *
 * Owner: the loop thread.  What was loaded moves to it with the `done` call; nothing is shared
 * before.
 */
#ifndef DAEMON_LOADER_H
#define DAEMON_LOADER_H

#include "util/err.h"

#include <stdint.h>

typedef struct sd_event sd_event;
struct chat_template;
struct engine;
struct loader;
struct model;
struct options;
struct tokenizer;

struct loaded {
    int status; /* 0, or negative with `error`: then the pointers are NULL */
    struct err_text error;
    uint64_t available;  /* bytes that were free before */
    struct model *model; /* owned by the receiver from here on */
    struct tokenizer *tokenizer;
    struct chat_template *chat; /* NULL: the model has none */
    struct engine *engine;
};

/* Starts at once.  `o` is borrowed until loader_free; `done` is called once, on the loop thread. */
int loader_new(sd_event *event, const struct options *o, void (*done)(struct loaded *l, void *arg),
               void *arg, struct loader **ret);

/* Ends early with -ECANCELED, at the next point where that is possible. */
void loader_cancel(struct loader *l);

/* Waits for the thread, and frees what it loaded if `done` was not called. */
void loader_free(struct loader *l);

/* 0..100. */
unsigned int loader_percent(const struct loader *l);
/* Counts up while the loading gets on. */
uint64_t loader_ticks(const struct loader *l);

#endif
