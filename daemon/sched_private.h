/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the scheduler.
 *
 * sched.c        the public functions, the event sources, the calls of observers
 * sched_slots.c  a request's way: queue, slot, release, back to the queue or out
 * sched_plan.c   what a step holds: who gets rows, who gets pages, who has to leave
 * sched_step.c   a step's way to the engine and back
 * sched_mount.c  what a request begins with: find, choose, load, copy, mount
 * sched_join.c   waiting for what is being read for another request
 * sched_keep.c   what a request leaves: pages, checkpoints, its conversation
 * sched_moves.c  copies between the tiers
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

#include "cache/cache.h"
#include "daemon/decisions.h"
#include "daemon/request.h"
#include "daemon/sched.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sd_event_source sd_event_source;

enum {
    SCHED_STEPS = 2,   /* in flight: one runs, the next waits, so that the engine never does */
    SCHED_CHUNK = 64,  /* rows of prompts in a step while anybody decodes, and the grain of larger
                          chunks: one page */
    RUN_CAPTURES = 8,  /* planned with reasons of their own */
    STEP_CAPTURES = 4, /* of one entry of a step; what is left is another entry's */
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
    uint32_t n_done;  /* of these, come back while they counted */
    uint32_t n_ran;   /* of these, come back at all */
    uint32_t n_samples; /* samples in flight */

    /*
     * Its tokens: the prompt, and all that were sampled, those too that came after its end; owned,
     * made with its first slot and never moved (a mount points to it).
     */
    int32_t *ids;
    uint32_t n_ids, cap_ids;

    /* What it has to do with the cache.  space NULL: nothing. */
    struct cache_space *space; /* referenced */
    struct cache_pin pin;      /* its source, until it has a page of its own there */
    struct cache_cursor cursor;
    uint64_t conversation; /* that it goes on with; 0: a new one */
    bool keeps;            /* has a cursor, and everything so far was published */
    bool root_done;
    bool load_failed;
    bool from_0;        /* a mount of it failed: the next one is none */
    bool settled;       /* its decision was counted */
    uint32_t n_first;   /* stored for it when it came; UINT32_MAX: not looked yet */
    uint64_t join_with; /* request that it waits for, 0: none */
    uint32_t join_pos;  /* up to here; 0: nobody knows */
    uint32_t join_ran;  /* that one's n_ran then */
    struct capture_plan {
        uint32_t pos;
        unsigned int kinds; /* enum cache_kind */
    } plan[RUN_CAPTURES];   /* ascending */
    uint32_t n_plan;
    struct kept_check { /* taken, waits for its page to be published */
        uint32_t pos;
        unsigned int kinds;
        uint32_t *units; /* owned, one reference each */
        struct kept_check *next;
    } * kept; /* owned list */
};

enum slot_state {
    SLOT_FREE,
    SLOT_LOADING, /* its source is on the way to vram, or its last page is being copied */
    SLOT_RUNNING,
    SLOT_ENDING,    /* what is in flight comes back, then it is kept */
    SLOT_RELEASING, /* its sequence ends; the run waits for that */
    SLOT_LOST, /* the engine refused to release the sequence: a fault of ours, never used again */
};

struct slot {
    uint32_t i;
    enum slot_state state;
    struct run *run;      /* borrowed; NULL while free */
    struct sequence *seq; /* the engine's; NULL while free */
    struct job_release release;
    struct job_mount mount;
    struct job_transfer copy;
    struct transfer copy_item;
    struct job_capture capture;
    unsigned int n_jobs;   /* of mount, copy, capture: in flight */
    uint32_t *pages;       /* owned, [context / 64 + 1]: of the mount */
    uint32_t *check_units; /* owned, [checkpoint_units]: of the mount */
    uint32_t *end_units;   /* owned, [checkpoint_units]: of the capture */
    uint32_t n_loads;      /* moves under way that it asked for */
    uint64_t remembers;    /* conversation that ran in it last; 0: none */
    uint64_t last_used;    /* order of that run */
    uint32_t n_share;      /* rows it may have in the step that is being planned */
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
    /* Of entry i: [i * STEP_CAPTURES ...]; owned.  The units' references are ours. */
    struct step_capture *captures;
    unsigned int *kinds;
    uint32_t *capture_units;
};

struct sched {
    struct engine *engine;             /* borrowed */
    const struct tokenizer *tokenizer; /* borrowed */
    sd_event_source *io, *deferred;    /* owned */
    struct sched_options o;
    uint32_t context, max_rows, n_units;
    uint32_t checkpoint_units;
    uint64_t unit_bytes;

    struct slot *slots;   /* owned, [parallel] */
    struct slot **by_age; /* owned, [parallel]: scratch of the planner */
    struct step steps[SCHED_STEPS];

    /* Runs without a slot, oldest first. */
    struct run *queue, *queue_tail;
    uint32_t n_queued;
    uint64_t last_order;
    struct run *events, *events_tail;

    uint64_t served;     /* order of the run whose prompt got rows last: the next one's turn */
    double ns_per_row;   /* of steps that read; 0: not measured yet */
    double bytes_per_ns; /* of loads; 0: not measured yet */
    uint32_t n_coming;   /* pool units that copies to ram will free */
    unsigned int n_write_backs, n_loads; /* transfers in flight */
    uint32_t n_writing;                  /* units of the former */

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
static inline const int32_t *run_ids(const struct run *run)
{
    return run->ids ? run->ids : run->r->prompt.ids;
}
static inline uint32_t run_n_ids(const struct run *run)
{
    return run->ids ? run->n_ids : (uint32_t)run->r->prompt.n;
}
static inline bool is_reading(const struct run *run)
{
    return run->n_rows < run->n_goal;
}
void queue_insert(struct sched *s, struct run *run);
/* Gives free slots to the queue's oldest while they fit. */
void slots_admit(struct sched *s);
/*
 * Pages that stay free while n_busy run: one of them may have to be parked when there is no other
 * page, and it goes on from its own pages only with a checkpoint at its end.
 */
uint32_t pages_reserved(const struct sched *s, uint32_t n_busy);
/* Most pages `run` needs to be admitted. */
uint32_t run_pages_to_start(const struct run *run);
/* The end of a run, wherever it is; words and `error` for FINISH_ERROR only.  Harmless when
 * finished. */
void run_finish(struct sched *s, struct run *run, enum finish_reason why, int error,
                const char *words);
/* Back to the queue, its pages to the pool. */
void run_park(struct sched *s, struct run *run);
/* The same for one whose sequence is spoilt: nothing of it is kept. */
void run_restart(struct sched *s, struct run *run);
void slot_released(struct sched *s, struct slot *slot);
void slot_captured(struct sched *s, struct slot *slot);
/* A finished run that is read on for others: ends when they have what they wait for. */
void run_ghost_advance(struct sched *s, struct run *run);
/* Goes on with an end that waits for something. */
void slot_end_advance(struct sched *s, struct slot *slot);
/* Slots that are neither free nor lost. */
uint32_t slots_busy(const struct sched *s);
/* Units of the pool, one reference each: what is parked leaves for them first.  0 or -ENOSPC, with
 * nothing taken. */
int pages_take(struct sched *s, uint32_t n, uint32_t *ret);
/* Drops one reference to each. */
void pages_give(struct sched *s, uint32_t n, const uint32_t *units);
/* Tries that n units are free; how many are. */
uint32_t pages_free_up(struct sched *s, uint32_t n);
/* Frees `run` when nothing needs it any more. */
void run_drop(struct sched *s, struct run *run);
/* Pages on their way back to the pool or to the cache, and those of slots that will soon have some
 * to give. */
uint32_t slots_pages_returning(const struct sched *s);

/* sched_plan.c: fills `st`; false when there is nothing to run. */
bool plan_step(struct sched *s, struct step *st);

/* sched_step.c */
int step_init(struct step *st, uint32_t parallel, uint32_t max_rows, uint32_t checkpoint_units);
void step_clear(struct step *st);
void step_free(struct step *st);
/* Plans and submits while fewer than two are in flight. */
void steps_submit(struct sched *s);
void step_finished(struct sched *s, struct step *st);

/* sched_mount.c */
/* Its space, if it may have one.  Without memory for that it runs without the cache. */
void run_enter_cache(struct sched *s, struct run *run);
/* What is there for a run that waits; the conversation's slot, if one remembers it. */
void run_find(struct sched *s, struct run *run, struct cache_found *ret);
/* Pool units that it needs beyond what is there and what it would mount; *ret_avail those that can
 * be had. */
uint32_t run_units_to_start(struct sched *s, const struct run *run, const struct cache_found *f,
                            uint32_t *ret_avail);
/* `run` has its slot: chooses, pins and begins to mount. */
void mount_begin(struct sched *s, struct slot *slot, const struct cache_found *f);
/* Goes on with a mount as far as it gets: loads, copies the last page, mounts.  Harmless while
 * something of it is under way. */
void mount_advance(struct sched *s, struct slot *slot);
void mount_job_done(struct sched *s, struct slot *slot, struct job *j);

/* sched_join.c: whether it should wait for what another one reads; `best` tokens are stored. */
bool join_wait(struct sched *s, struct run *run, uint32_t best);
/* Whether the answer was yes and still is, with nothing changed but how far the other one has
 * read: it need not be asked again. */
bool join_goes_on(const struct sched *s, const struct run *run);
/* The last position that somebody waits for; 0: nobody. */
uint32_t join_wanted(const struct sched *s, const struct run *reader);

/* sched_keep.c */
/* Where checkpoints are taken of a prompt that is read from `from` on, and has n_common tokens in
 * common with what is stored: instead of all that were planned. */
void plan_captures(struct sched *s, struct run *run, uint32_t from, uint32_t n_common);
/* One more; false: there is no room for it. */
bool plan_capture(struct run *run, uint32_t pos, unsigned int kinds);
/* The first planned position in (from, to]; false: none. */
bool next_capture(const struct sched *s, const struct run *run, uint32_t from, uint32_t to,
                  struct capture_plan *ret);
/* A checkpoint was taken: takes over the units' references. */
void keep_check(struct sched *s, struct run *run, uint32_t pos, unsigned int kinds,
                const uint32_t *units);
/* Publishes what has run. */
void keep_pages(struct sched *s, struct run *run);
/* Everything of it has come back: what there is is kept, and let go of. */
void keep_end(struct sched *s, struct run *run, bool parked_itself);
/* Lets go of everything in the cache, keeping nothing more. */
void keep_nothing(struct sched *s, struct run *run);
/* Its logits are not finite: all of its path goes. */
void keep_drop(struct sched *s, struct run *run);

/* sched_moves.c */
void moves_load(struct sched *s, struct slot *slot, struct cache_move *moves);
/* Copies to ram, in the background. */
void moves_pump(struct sched *s);
bool moves_idle(const struct sched *s);
void moves_done(struct sched *s, struct job *j);

#endif
