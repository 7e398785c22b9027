/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which request runs in which slot, and what the next step of the engine holds.
 *
 * Several requests run in one batch over `parallel` slots.  A step mixes one decode row of every
 * generating slot with a chunk of a prompt; while anybody decodes a chunk is small enough that no
 * gap between tokens exceeds max_gap_ms (on the CPU one chunk of 64 rows), else it may be as large
 * as the engine's max_rows.  Step n+1 is planned and submitted while step n runs.  A request is
 * admitted when a slot is free and its prompt and one page fit; the queue is first come, first
 * served.  With a cache a request begins with the longest prefix that is worth mounting
 * (sched_mount.c), waits for one that is being read for another request (sched_join.c), and leaves
 * what it read and generated (sched_keep.c).  When the pool is out while requests run, the younger
 * ones wait for pages, and when an older one needs them the youngest (or one that is paused) goes
 * back to the queue's front and goes on later from what was kept of it; none fails.  A request may
 * use the whole pool: then it ends with FINISH_LENGTH.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_SCHED_H
#define DAEMON_SCHED_H

#include "daemon/request.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sd_event sd_event;
struct arena;
struct cache;
struct decisions;
struct engine;
struct sched;
struct tokenizer;

struct sched_options {
    uint32_t parallel; /* slots */
    uint32_t max_gap_ms;
    uint32_t max_queued;         /* requests that may wait; more are refused */
    struct cache *cache;         /* borrowed, over the units of this engine; NULL: no reuse */
    struct arena *arena;         /* borrowed: its ram tier */
    struct decisions *decisions; /* borrowed; NULL: nobody wants to know */
    uint32_t root_min;           /* least tokens of a root that nobody asked for */
    uint32_t checkpoint_every;   /* tokens; 0: none but those with a reason */
    bool share_all;              /* isolation "none": one key for everybody */
};

/*
 * `engine`, `tokenizer` and `event` are borrowed and outlive it.  Watches engine_fd in `event`.  0,
 * -EINVAL when a step has no room for more rows than `parallel`, or another negative errno.
 */
int sched_new(sd_event *event, struct engine *engine, const struct tokenizer *tokenizer,
              const struct sched_options *o, struct sched **ret);
/* Nothing may be running (see sched_stop). */
void sched_free(struct sched *s);

/*
 * Takes a reference and runs `r`; the observer hears of it later, never from inside this call.
 * Errors, nothing taken: -EINVAL an empty prompt or an id that no token has, -E2BIG the prompt does
 * not fit the context (n_prompt >= context), ERR_CAPACITY it cannot fit the pool even alone,
 * -EAGAIN the queue is full, -ESHUTDOWN while stopping, -ENOMEM; words in `e`.
 */
int sched_submit(struct sched *s, struct request *r, struct err_text *e);

/* Ends `r` wherever it is, within one chunk; `done` is called (later) with FINISH_CANCELLED.
 * Harmless when done. */
void sched_cancel(struct sched *s, struct request *r);

/* A reader that does not keep up: no new rows for `r` until resumed.  Others go on. */
void sched_pause(struct sched *s, struct request *r);
void sched_resume(struct sched *s, struct request *r);

/*
 * No more requests; those that run or wait are cancelled when `cancel`, else they end by
 * themselves.  `idle` is called from the loop once nothing runs.  May be called again, to cancel
 * after all.
 */
void sched_stop(struct sched *s, bool cancel, void (*idle)(void *arg), void *arg);

struct slot_info {
    uint32_t i;
    enum request_state state; /* REQUEST_NEW: free */
    uint64_t request_id;      /* 0: none */
    uint32_t uid;
    uint32_t n_prompt, n_read, n_generated;
    uint32_t n_pages;
};
uint32_t sched_n_slots(const struct sched *s);
/* i < sched_n_slots. */
void sched_slot(const struct sched *s, uint32_t i, struct slot_info *ret);

struct sched_totals {
    uint64_t requests, finished, cancelled, failed;
    uint64_t parked; /* times that one went back to the queue for want of pages */
    uint64_t prompt_tokens, generated_tokens;
    uint64_t steps, step_ns;
    uint64_t cached_tokens; /* of prompts, not read */
    uint32_t queued, running;
    uint32_t units_used, units_total;
};
void sched_totals(const struct sched *s, struct sched_totals *ret);

/* The cache has changed from outside (limits, an operator): what can be done now is. */
void sched_cache_changed(struct sched *s);

/* For the watchdog: true when the engine is idle, or has ticked since the last call of this
 * function. */
bool sched_is_alive(struct sched *s);

#endif
