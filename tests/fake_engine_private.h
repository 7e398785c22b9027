/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the fake engine.
 *
 * fake_engine.c         the public functions, sequences, what runs when
 * fake_engine_submit.c  the rules of a job, what it holds and what may not change meanwhile
 * fake_engine_run.c     the model: what jobs do to units and sequences
 * fake_engine_units.c   which units are in use
 */
#ifndef TESTS_FAKE_ENGINE_PRIVATE_H
#define TESTS_FAKE_ENGINE_PRIVATE_H

#include "tests/fake_engine.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            (void)fprintf(stderr, "%s:%d: the engine's rule is broken: %s\n", __FILE__, __LINE__,  \
                          #x);                                                                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { MAX_STEPS_IN_FLIGHT = 2 };
#define N_JOB_KINDS (JOB_COPY + 1)

struct fake_row {
    uint64_t hash;  /* of all tokens up to this one */
    uint64_t draft; /* of the hidden row before and this token */
};

/* What a sequence goes on from. */
struct fake_state {
    uint64_t hash, hidden;
};

struct sequence {
    struct engine *engine;
    bool in_use, releasing, cancelled;
    /* As submitted. */
    uint32_t length, n_pages;
    bool sampled;
    uint32_t *pages;
    /* As run. */
    uint32_t x_length;
    struct fake_state x_state;
    struct fake_row *x_rows; /* [context], what its pages must hold */
    int32_t x_sampled;
    bool x_has_sample;                /* and no row of it yet */
    bool x_ended, x_spoilt, x_broken; /* broken: its mount failed */
};

/* Memory of the owner that must stay as it was at submit. */
struct span {
    const void *at;
    size_t n;
    void *was;
    struct span *next;
};

/* A unit that a job reads or writes. */
struct unit_use {
    uint32_t unit;
    bool write;
    bool held; /* the job has a reference of its own */
};

/* A job from submit to reap. */
struct flight {
    struct job *job;
    struct flight *next; /* in the order of submission */
    enum { FLIGHT_WAITS, FLIGHT_RUNS, FLIGHT_DONE } state;
    struct span *spans;
    struct unit_use *uses;
    uint32_t n_uses, cap_uses;
};

struct engine {
    struct engine *next; /* of all there are */
    struct fake_options o;
    struct engine_plan plan;
    struct units units;
    uint8_t *bytes;      /* [n_units][FAKE_UNIT_BYTES]: the pool */
    uint8_t *checkpoint; /* [checkpoint_units][FAKE_UNIT_BYTES]: scratch */
    struct sequence *seqs;
    struct flight *flights;
    struct flight *running; /* NULL: none */
    uint32_t n_in_flight;
    struct mailbox finished;
    uint64_t ticks;
    int refuse[N_JOB_KINDS], fail[N_JOB_KINDS];
    struct fake_log log;
};

static inline void *must_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    MUST(p);
    return p;
}

static inline bool is_transfer(const struct job *j)
{
    return j->kind == JOB_EXPORT || j->kind == JOB_IMPORT || j->kind == JOB_COPY;
}

static inline uint8_t *unit_bytes(const struct engine *e, uint32_t unit)
{
    MUST(unit < e->o.n_units);
    return e->bytes + (size_t)unit * FAKE_UNIT_BYTES;
}

/* fake_engine.c: its contents go. */
void fake_unit_freed(const struct units *u, uint32_t unit);

/* fake_engine_submit.c */
void fake_take_job(struct engine *e, struct flight *f);
/* Nothing that belonged to the engine was touched; references go back. */
void fake_return_job(struct engine *e, struct flight *f);

/* fake_engine_run.c: does the job's work and returns its status. */
int fake_run_job(struct engine *e, struct job *j);

#endif
