/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler over the fake engine with clients that know what a cold run of their request gives.
 */
#ifndef TESTS_SCHED_WORLD_H
#define TESTS_SCHED_WORLD_H

#include "daemon/sched.h"
#include "tests/fake_engine.h"
#include "tests/fake_tokenizer.h"

enum { WORLD_VOCAB = 40, WORLD_CLIENTS = 64 };

struct world;

struct world_options {
    struct fake_options engine;
    struct sched_options sched;
};

struct client {
    struct world *w;
    struct request *r;         /* refcounted */
    bool submitted, own_calls; /* own_calls: its observer acts at random (check_sched_random.c) */
    unsigned int n_progress, n_output, n_done;
    unsigned int done_at; /* how many were done before it, and itself */
    uint32_t seen_read;
    size_t seen_tokens, seen_text;
};

struct world {
    struct world_options o;
    struct sd_event *event;
    struct engine *engine;
    struct tokenizer *tokenizer;
    struct sched *sched;
    struct client clients[WORLD_CLIENTS];
    uint32_t n_clients;
    unsigned int n_submitted, n_done;
    unsigned int seed;
    bool inside; /* a public function of the scheduler: no observer may be called */
    void (*on_call)(struct client *c, bool done); /* NULL; from within every call of an observer */
};

struct world *world_new(const struct world_options *o);
/* Ends what still runs; checks that every unit came back. */
void world_free(struct world *w);

/* The loop's turns until it has nothing to do. */
void world_turn(struct world *w);
/* Runs the engine and the loop until neither has anything to do. */
void world_run(struct world *w);

/* A prompt of n tokens, of the world's seed. */
struct client *client_new(struct world *w, uint32_t n_prompt, uint32_t max_tokens);
int client_submit(struct client *c, struct err_text *e);
/* What it got is what a cold run gives; a part of it when cancelled. */
void client_check(const struct client *c);
void client_free(struct client *c);

#endif
