/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon without its sockets: an engine, both tiers of the cache and the scheduler on one event
 * loop, as strataD joins them (daemon/reuse.c), for measuring what a request sees.
 *
 * Owner: the thread that opened it.
 */
#ifndef BENCH_STACK_H
#define BENCH_STACK_H

#include "daemon/request.h"

#include <stdint.h>

typedef struct sd_event sd_event;
struct arena;
struct cache;
struct cache_stats;
struct decisions;
struct engine;
struct err_text;
struct model;
struct sched;
struct tokenizer;

enum { STACK_SLOTS = 4 };

struct stack {
    sd_event *event; /* all owned */
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct arena *arena;
    struct cache *cache;
    struct decisions *decisions;
    struct sched *sched;
    uint64_t unit_bytes;
    uint32_t n_units; /* of each tier */
    uint32_t checkpoint_units, context, n_vocab;
    unsigned int n_running; /* requests */
};

/*
 * Each tier holds at most `n_units`, enough for a few sequences.  `n_tokens` is the context, or the
 * file's where that is smaller.  0, or negative with `e`, and nothing is open.
 */
int stack_open(struct stack *s, const char *path, uint32_t n_threads, uint32_t n_tokens,
               uint32_t n_units, uint32_t checkpoint_every, struct err_text *e);
void stack_close(struct stack *s);

/*
 * Submits all and runs the loop until all are done.  `ret_mounted_ms` (may be NULL): from the first
 * submission until the first source was in place.  A request that fails is an error.
 */
int stack_run(struct stack *s, struct request **r, uint32_t n, double *ret_mounted_ms,
              struct err_text *e);
/* Until nothing runs and every copy to ram is done. */
int stack_settle(struct stack *s, struct err_text *e);
/* Everything leaves vram and is in ram. */
int stack_demote(struct stack *s, struct err_text *e);
/* Nothing is stored any more. */
int stack_forget(struct stack *s, struct err_text *e);

#endif
