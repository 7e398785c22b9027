/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device does for the engine: a CPU now, CUDA later.
 *
 * The engine (engine.c) keeps the rules of engine.h: it checks jobs, counts references and hands
 * jobs over in order.  A backend owns the memory of the pool and of the sequences, and computes.
 *
 * `run` is called by the engine thread with steps, mounts, commits, captures and releases, in
 * order; `transfer` by the copier thread.  A backend finishes each job by engine_job_done, before
 * or after it returns (a GPU enqueues and finishes from its own thread), each kind in the order it
 * got them.
 */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include "engine/engine.h"
#include "engine/layout.h"

#include <stdatomic.h>

struct backend;

/*
 * A timeline.  The owner's half is touched by the owner thread only, the other by the backend's
 * run() only; `index` never changes while the sequence lives.
 */
struct sequence {
    struct engine *engine;
    uint32_t index;        /* among n_sequences; the backend's state of this number is its own */
    atomic_bool cancelled; /* set by the owner, read by run() */

    /* Owner: what will be once everything submitted has run. */
    bool in_use;
    bool releasing;
    bool sampled; /* the last entry sampled, so that ids may be NULL */
    uint32_t length;
    uint32_t n_tentative; /* rows waiting for a commit */
    uint32_t n_pages;
    uint32_t *pages; /* owned, [context / 64 rounded up] */
};

struct backend_ops {
    const char *name;
    /* Adds what this backend needs to *p (workspace, sequence_bytes). */
    int (*plan)(const struct model *m, const struct engine_options *o, const struct layout *l,
                struct engine_plan *p, struct err_text *e);
    int (*open)(struct engine *e, const struct model *m, const struct engine_options *o,
                const struct layout *l, const struct engine_plan *p, struct backend **ret,
                struct err_text *err);
    void (*close)(struct backend *b);
    void (*run)(struct backend *b, struct job *j);
    void (*transfer)(struct backend *b, struct job_transfer *j);
    const char *(*isa)(const struct backend *b);
    uint32_t (*n_threads)(const struct backend *b);
};

extern const struct backend_ops cpu_backend;

/* Hands a finished job back to the owner; any thread. */
void engine_job_done(struct engine *e, struct job *j, int status);

/* One layer of a step is done: progress for the watchdog.  Any thread. */
void engine_tick(struct engine *e);

#endif
