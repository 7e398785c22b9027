/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler over the fake engine with clients that know what a cold run of their request gives;
 * with a cache, over a clock of its own, in which the books are walked after everything that the
 * loop does.
 */
#ifndef TESTS_SCHED_WORLD_H
#define TESTS_SCHED_WORLD_H

#include "cache/cache.h"
#include "daemon/decisions.h"
#include "daemon/request.h"
#include "daemon/sched.h"
#include "tests/fake_engine.h"
#include "tests/fake_tokenizer.h"

enum {
    WORLD_VOCAB = 40,
    WORLD_CLIENTS = 64,
    WORLD_EVENTS = 512, /* of the cache, the first */
    WORLD_TEXT = 4096,
};

struct world;

struct world_options {
    struct fake_options engine;
    struct sched_options sched; /* cache, arena and decisions are the world's */
    bool cache;
    struct cache_limits limits;
    uint64_t ns_per_transfer; /* how long it takes; 0: no time */
    bool dear;                /* too large for a walk of the books after everything: once a turn */
};

struct client {
    struct world *w;
    struct request *r;         /* refcounted */
    bool submitted, own_calls; /* own_calls: its observer acts at random (check_sched_random.c) */
    uint32_t hold_every;       /* 0: never; else asked so often, and every third time it inserts */
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
    struct arena *arena; /* these three NULL without a cache */
    struct cache *cache;
    struct decisions *decisions;
    struct cache_event events[WORLD_EVENTS];
    uint32_t n_events;
    struct client clients[WORLD_CLIENTS];
    uint32_t n_clients; /* places used so far */
    unsigned int n_submitted, n_done;
    unsigned int seed;
    bool lowered; /* a limit was: what is held may be above it */
    bool inside;  /* a public function of the scheduler: no observer may be called */
    void (*on_call)(struct client *c, bool done); /* NULL; from within every call of an observer */
};

struct world *world_new(const struct world_options *o);
/* Ends what still runs; checks that every unit came back: with a cache, that what was not free
 * before is the cache's, and that nothing of it is left once it was cleared. */
void world_free(struct world *w);

/* The loop's turns until it has nothing to do. */
void world_turn(struct world *w);
/* Runs the engine and the loop until neither has anything to do. */
void world_run(struct world *w);
/* One turn and what the engine has to do then, a transfer beside it; false when both rest. */
bool world_step(struct world *w);
/* Until `c` has read n tokens of its prompt (reused ones count), or is done. */
void world_run_until_read(struct world *w, const struct client *c, uint32_t n);
/* Events of this kind so far. */
uint32_t world_n_events(const struct world *w, enum cache_event_kind kind);
void world_set_limits(struct world *w, const struct cache_limits *l);

/* A prompt of n tokens, of the world's seed. */
struct client *client_new(struct world *w, uint32_t n_prompt, uint32_t max_tokens);
/* It is held every `every` tokens, and `n` tokens are put in at times; every > n. */
void client_hold(struct client *c, uint32_t every, uint32_t n);
int client_submit(struct client *c, struct err_text *e);
/* What it got is what a cold run gives; a part of it when cancelled. */
void client_check(const struct client *c);
void client_free(struct client *c);

/* Tokens to make prompts of. */
struct text {
    int32_t ids[WORLD_TEXT];
    uint32_t n;
};
/* n tokens that depend on `seed` only; the first one differs between seeds below 38. */
void text_add(struct text *t, uint32_t n, unsigned int seed);
void text_add_ids(struct text *t, const int32_t *ids, uint32_t n);
/* What `c` was answered. */
void text_add_answer(struct text *t, const struct client *c);
uint32_t text_common(const struct text *a, const struct text *b);

/* Not submitted yet. */
struct client *client_of(struct world *w, const struct text *prompt, uint32_t max_tokens);
/* Submits, runs to the end and checks the answer. */
void client_run(struct client *c);
/* client_of and client_run. */
struct client *world_ask(struct world *w, const struct text *prompt, uint32_t max_tokens);

/* What was decided for a request that is done. */
struct told {
    enum source source;
    bool is_switch, is_hit;
    uint32_t n_reused, n_read;
    enum decision_why why;
};
void client_told(const struct client *c, struct told want);
struct told told_cold(uint32_t n); /* nothing was there, n tokens were read */

/* Four slots, 128 units of vram and 256 of ram; hybrid: checkpoints of three units. */
struct world_options world_cached(bool hybrid);
struct cache_stats world_stats(const struct world *w);
uint64_t world_rows(const struct world *w); /* that the engine ran */

#endif
