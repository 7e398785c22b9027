/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the scheduler.
 *
 * sched.c        the public functions, the event sources, the calls of observers
 * sched_slots.c  a request's way: queue, slot, release, back to the queue or out
 * sched_plan.c   what a step holds: who gets rows, who gets pages, who has to leave
 * sched_step.c   a step's way to the engine and back
 *
 * A `run` is a request inside the scheduler, from sched_submit until `done` was called and the
 * engine has given back everything that points to it.  A slot owns one sequence of the engine while
 * it is not free.  Everything a step points to lies in the step itself or in the request, and the
 * request lives as long as its run.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_SCHED_PRIVATE_H
#define DAEMON_SCHED_PRIVATE_H

#include "daemon/request.h"
#include "daemon/sched.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sd_event_source sd_event_source;

enum {
    SCHED_STEPS = 2,  /* in flight: one runs, the next waits, so that the engine never does */
    SCHED_CHUNK = 64, /* rows of prompts in a step while anybody decodes, and the grain of larger
                         chunks: one page */
};

/* What an observer is still to hear. */
enum run_event {
    RUN_PROGRESS = 1 << 0,
    RUN_OUTPUT = 1 << 1,
    RUN_DONE = 1 << 2,
};

struct run {
    struct request *r;       /* refcounted */
    uint64_t order;          /* of arrival: smaller is older, and has precedence in everything */
    struct slot *slot;       /* NULL while queued, and at the end */
    struct run *prev, *next; /* neighbours in the queue */
    struct run *next_event;  /* neighbour in the list of those with events */
    unsigned int events;     /* enum run_event */
    bool has_events;         /* is in that list */
    bool queued;             /* is in the queue */
    bool paused;
    bool finished;            /* r->finish is set; nothing that comes back counts any more */
    bool told;                /* `done` was called */
    unsigned int n_in_flight; /* entries of it in steps in flight */

    uint32_t n_limit; /* most tokens it may sample */
    uint32_t n_goal;  /* rows to read in this slot: the prompt, and what it had generated before it
                         was parked */
    uint32_t n_rows;  /* rows submitted in this slot: the sequence's length */
    uint32_t n_done;  /* of these, come back */
    uint32_t n_samples; /* samples in flight */
};

enum slot_state {
    SLOT_FREE,
    SLOT_RUNNING,
    SLOT_RELEASING, /* its sequence ends; the run waits for that */
    SLOT_LOST, /* the engine refused to release the sequence: a fault of ours, never used again */
};

struct slot {
    uint32_t i;
    enum slot_state state;
    struct run *run;      /* borrowed; NULL while free */
    struct sequence *seq; /* the engine's; NULL while free */
    struct job_release release;
    uint32_t n_share; /* rows it may have in the step that is being planned */
};

struct step {
    struct job_step job; /* first; job.job.user is not needed */
    bool in_flight;
    uint32_t n_rows, n_ids, n_units;
    uint32_t n_prompt_rows;
    struct step_entry *entries; /* owned, [parallel] */
    struct sample *samples;     /* owned, [parallel] */
    struct run **runs;          /* owned, [parallel]; borrowed pointers */
    int32_t *ids;               /* owned, [max_rows] */
    uint32_t *units;            /* owned, [max_rows / 64 + parallel] */
};

struct sched {
    struct engine *engine;             /* borrowed */
    const struct tokenizer *tokenizer; /* borrowed */
    sd_event_source *io, *deferred;    /* owned */
    struct sched_options o;
    uint32_t context, max_rows, n_units;

    struct slot *slots;   /* owned, [parallel] */
    struct slot **by_age; /* owned, [parallel]: scratch of the planner */
    struct step steps[SCHED_STEPS];

    /* Runs without a slot, oldest first. */
    struct run *queue, *queue_tail;
    uint32_t n_queued;
    uint64_t last_order;
    struct run *events, *events_tail;

    uint64_t served;   /* order of the run whose prompt got rows last: the next one's turn */
    double ns_per_row; /* of steps that read; 0: not measured yet */

    bool stopping;
    void (*idle)(void *arg);
    void *idle_arg;

    uint64_t seen_ticks;
    bool progressed; /* idle, or a job came back, since sched_is_alive was called */
    struct sched_totals totals;
};

/* sched.c: observers are told later. */
void sched_note(struct sched *s, struct run *run, unsigned int events);
void sched_wake(struct sched *s);

/* sched_slots.c */
void queue_insert(struct sched *s, struct run *run);
/* Gives free slots to the queue's oldest while they fit. */
void slots_admit(struct sched *s);
/* Most pages `run` needs to be admitted. */
uint32_t run_pages_to_start(const struct run *run);
/* The end of a run, wherever it is; words and `error` for FINISH_ERROR only.  Harmless when
 * finished. */
void run_finish(struct sched *s, struct run *run, enum finish_reason why, int error,
                const char *words);
/* Back to the queue, its pages to the pool. */
void run_park(struct sched *s, struct run *run);
void slot_released(struct sched *s, struct slot *slot);
/* Frees `run` when nothing needs it any more. */
void run_drop(struct run *run);
/* Pages on their way back to the pool. */
uint32_t slots_pages_returning(const struct sched *s);

/* sched_plan.c: fills `st`; false when there is nothing to run. */
bool plan_step(struct sched *s, struct step *st);

/* sched_step.c */
int step_init(struct step *st, uint32_t parallel, uint32_t max_rows);
void step_clear(struct step *st);
void step_free(struct step *st);
/* Plans and submits while fewer than two are in flight. */
void steps_submit(struct sched *s);
void step_finished(struct sched *s, struct step *st);

#endif
