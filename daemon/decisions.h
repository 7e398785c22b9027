/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was decided for the newest requests and why, what left the cache and why, and the sums that
 * follow: switches, hits, reused tokens.
 *
 * The scheduler makes a decision with every request and fills it in while the request runs; the API
 * and the control socket read them.  Nothing of a prompt is in here, lengths only.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_DECISIONS_H
#define DAEMON_DECISIONS_H

#include "cache/cache.h"
#include "util/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DECISIONS_KEPT = 1000,
    DECISION_EVENTS_KEPT = 4000,
    DECISION_EVENTS_TOLD = 100, /* of one request, so that an answer about it stays small */
};

/* Where a request's reused tokens came from (design section 1). */
enum source {
    SOURCE_NONE,
    SOURCE_SLOT, /* its slot remembers the conversation */
    SOURCE_VRAM,
    SOURCE_RAM,
    SOURCE_DISK,
    SOURCE_BORROWED, /* another conversation's, which stays as it was */
    SOURCE_JOINED,   /* was being read for another request just then */
    SOURCE_ROOT,     /* only a root */
};
const char *source_str(enum source s);

/* Why it was mounted from there, and no further. */
enum decision_why {
    WHY_WAITING,        /* nothing decided yet */
    WHY_LONGEST,        /* the longest stored prefix */
    WHY_READING_FASTER, /* a longer one is in ram, but copying it would take longer than reading */
    WHY_NOTHING_STORED, /* no stored prefix that can be resumed */
    WHY_CACHE_OFF,      /* "cache": false, or the request said cache_prompt false */
    WHY_NO_ROOM,        /* a longer one could not be mounted: no free pages for it */
    WHY_LOAD_FAILED,    /* a copy failed; what was found next was taken */
};
const char *decision_why_str(enum decision_why w); /* a few words */

/* As the API says it: "stop", "length", "cancelled", "error"; "none" before the end. */
const char *decision_finish_str(int finish);

struct decision {
    unsigned int refs;
    uint64_t request; /* of this process, from 1 */
    char name[48];    /* the id in its answer ("cmpl-..."), or "" */
    uint32_t uid;
    const char *key;  /* TCP: the name of the API key's owner (request.h), or NULL */
    char http_id[72]; /* X-Request-Id, or "" */
    bool done;
    int finish; /* enum finish_reason */

    /* Found at arrival at its slot, before anything was parked or mounted. */
    uint32_t n_prompt;
    uint32_t n_common; /* of it, tokens in common with the nearest stored path */
    uint32_t n_found;  /* of these, up to the last position that can be resumed */
    uint32_t n_found_vram;
    uint32_t root_pos;                       /* the part of n_found that is a root, 0 none */
    uint32_t turn_pos, query_pos, root_want; /* its own boundaries, 0 none */
    uint64_t from; /* the conversation (or root) it was found in, 0 none */
    bool is_switch, is_hit;

    /* Chosen. */
    enum source source;
    enum decision_why why;
    double est_best_ms, est_vram_ms, est_cold_ms; /* estimates that were compared; 0: not known */
    uint32_t n_reused, n_read, n_generated;
    uint32_t n_joined;    /* of n_reused, tokens it waited for while another request read them */
    uint64_t joined_with; /* that request, 0 none */
    uint64_t bytes_loaded;
    double wait_ms, load_ms, read_ms, total_ms; /* in its slot: load, then read */
    uint32_t n_parked; /* times that it was parked itself for want of pages */

    /* Left behind. */
    bool keeping;          /* done, but what it leaves is not in the cache yet */
    uint64_t conversation; /* its own, 0 none */
    uint32_t n_kept;       /* tokens parked */
    uint32_t n_checkpoints, n_checkpoints_skipped; /* made; not made for want of pages */
    int keep_error;                                /* why less was kept than could have been; 0 */
    uint32_t n_superseded;                         /* tails that its prompt left behind */
    uint32_t n_evicted;      /* conversations that were evicted while it was at work, for it */
    uint64_t t_begin, t_end; /* clock_ns */
};

/* Something left or was refused; `time_ns` is clock_ns. */
struct decision_event {
    uint64_t time_ns;
    struct cache_event e;
};

struct decision_totals {
    uint64_t requests; /* decided */
    uint64_t switches, hits, misses, continuations;
    uint64_t prompt_tokens, reused_tokens;
};

struct decisions;

int decisions_new(struct decisions **ret); /* 0 or -ENOMEM */
void decisions_free(struct decisions *d);  /* those that requests hold stay; NULL is fine */

/* A new one, the newest; one reference for the caller.  NULL when out of memory. */
struct decision *decision_new(struct decisions *d, uint64_t request, const char *name,
                              uint32_t uid);
void decision_unref(struct decision *x); /* NULL is fine */
/* Its source and switch are settled: counts it. */
void decision_settled(struct decisions *d, const struct decision *x);
/* Keeps it, and counts an eviction at the request that caused it. */
void decisions_event(struct decisions *d, const struct cache_event *e, uint64_t now);

/* By number or by the id in the answer; NULL when it is not (or no longer) known. */
const struct decision *decisions_find(const struct decisions *d, const char *id);
/*
 * For somebody: by number, by the id in the answer, or the newest by X-Request-Id, which clients
 * choose; of those that may be seen.  NULL when there is none.
 */
const struct decision *
decisions_find_seen(const struct decisions *d, const char *id,
                    bool (*may_see)(const struct decision *x, const void *arg), const void *arg);
/* i = 0 is the newest; NULL behind the oldest. */
const struct decision *decisions_at(const struct decisions *d, uint32_t i);
const struct decision_event *decisions_event_at(const struct decisions *d, uint32_t i);
/* Those that `x` caused, newest first, the first DECISION_EVENTS_TOLD in `ret`; how many there are.
 */
uint32_t decision_events_of(const struct decisions *d, const struct decision *x,
                            const struct decision_event *ret[DECISION_EVENTS_TOLD]);
void decisions_totals(const struct decisions *d, struct decision_totals *ret);

/*
 * The story of one request in plain words, a line each: why each part of the prompt was reused or
 * read, and what left for it.  0 or -ENOMEM.
 */
int decision_explain(const struct decisions *d, const struct decision *x, struct buf *out);

#endif
