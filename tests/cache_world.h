/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache with everything around it that is fake: a pool of vram units with reference counts and
 * real contents, an arena of small units, copies between them that end when the test says so, a
 * clock, and requests that do what the scheduler does.
 *
 * The contents are hashes of the tokens: row j of a page is the rolling hash of all tokens up to j,
 * a checkpoint's words derive from the hash at its position.  Any wrong reuse is an unequal word.
 * Freed units and the targets of copies are filled with garbage.
 */
#ifndef TESTS_CACHE_WORLD_H
#define TESTS_CACHE_WORLD_H

#include "cache/cache.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CW_TOKENS = 2048,
    CW_PAGES = CW_TOKENS / CACHE_PAGE,
    CW_EVENTS = 8192,
    CW_MOVES = 4096,
    CW_CAPTURES = 24,
    CW_CHECKPOINT_UNITS = 8, /* at most */
    CW_UNIT_BYTES = CACHE_PAGE * 8,
};
#define CW_SECOND UINT64_C(1000000000)

/* A sequence, its prompt first. */
struct cw_seq {
    uint32_t n, n_prompt;
    uint32_t root, turn, query; /* positions, 0: none */
    int32_t t[CW_TOKENS];
};
/*
 * From "S100/ u20?| ! a30": letter and count are a segment (equal letters are equal tokens), marks
 * stand behind the tokens they follow: "/" root, "?" query, "|" turn, "!" the end of the prompt.
 */
struct cw_seq cw_seq(const char *spec);

struct cw_options {
    uint32_t vram_units, ram_units, checkpoint_units;
    uint32_t n_conversations, n_roots;
};

struct cw_world {
    struct cw_options o;
    struct cache *cache;
    struct arena *arena;
    struct cache_limits limits;
    struct cache_space *space; /* one for tests that need no other; referenced */
    uint64_t now;              /* a second more with every request */
    bool shares;               /* units of several spaces: idle ones may be counted for each */
    bool lowered;              /* a limit was lowered: held entries may be above it */
    uint32_t n_free, next_unit;
    uint32_t *refs, *cache_refs, *n_flying; /* [vram_units] of anybody, the cache's, of copies */
    uint64_t (*vram)[CACHE_PAGE];
    struct cache_move *moves[CW_MOVES]; /* under way */
    uint32_t n_moves;
    struct cache_event events[CW_EVENTS]; /* the newest */
    uint64_t n_events;
    void (*on_event)(void *arg, const struct cache_event *e); /* may be NULL */
    void *on_event_arg;
};

struct cw_world *cw_new(const struct cw_options *o);
/* Everything has to come back. */
void cw_free(struct cw_world *w);
/* Invariants, and the books of the cache against ours. */
void cw_check(const struct cw_world *w);

/* --- units ----------------------------------------------------------------------------------- */

uint32_t cw_take(struct cw_world *w); /* one reference; CACHE_NO_UNIT when none is free */
void cw_unref(struct cw_world *w, uint32_t unit);
/* Has n units free, shedding and copying to ram; false when that cannot be. */
bool cw_make_room(struct cw_world *w, uint32_t n);

/* --- moves ----------------------------------------------------------------------------------- */

void cw_begin_moves(struct cw_world *w, struct cache_move *list);
/* The next write-back is under way; false when there is none. */
bool cw_begin_write_back(struct cw_world *w);
void cw_end_move(struct cw_world *w, uint32_t i, bool ok);
void cw_end_moves(struct cw_world *w, bool ok);
/* Copies until nothing is left to be copied. */
void cw_settle(struct cw_world *w);
/* Settles, then everything that can leaves vram for ram. */
void cw_demote_all(struct cw_world *w);

/* --- events ---------------------------------------------------------------------------------- */

enum { CW_ANY = -1 };
/* Of that kind, why (or CW_ANY) and id (0: any), since cw_forget_events. */
uint32_t cw_n_events(const struct cw_world *w, enum cache_event_kind kind, int why, uint64_t id);
void cw_forget_events(struct cw_world *w);

/* --- requests -------------------------------------------------------------------------------- */

struct cw_run {
    struct cw_world *w;
    struct cache_space *space;
    struct cw_seq q;
    uint32_t n; /* tokens of it that are read or generated */
    uint64_t hash;
    uint32_t units[CW_PAGES]; /* the sequence's page table, one reference each */
    uint32_t n_units;
    struct cache_found found;
    struct cache_pin pin;
    struct cache_cursor cursor;
    bool has_cursor;
    uint32_t reused, n_superseded;
    uint64_t conversation, root; /* resumed, made */
    struct cw_capture {
        uint32_t pos;
        unsigned int kinds;
        bool done;
        uint32_t units[CW_CHECKPOINT_UNITS];
    } captures[CW_CAPTURES];
    uint32_t n_captures;
    uint32_t last_checkpoint; /* published or resumed at */
    uint32_t parked_at;
    bool dead;
};

/* Finds, resumes, pins, supersedes.  `vram` takes the match that is wholly there. */
void cw_run_begin(struct cw_run *r, struct cw_world *w, struct cache_space *s,
                  const struct cw_seq *q, bool vram);
/* Loads with the units that are free.  1: all is there; 0: units or moves are missing; -1: the pin
 * is broken and let go: begin again. */
int cw_run_load(struct cw_run *r);
/* Compares what was mounted with what it should be and begins after it. */
bool cw_run_start(struct cw_run *r); /* false: no unit for the last page */
/* Wants a checkpoint when the run comes to `pos`. */
void cw_run_capture(struct cw_run *r, uint32_t pos, unsigned int kinds);
/* Reads or generates up to n tokens more and publishes; false when units are missing. */
bool cw_run_read(struct cw_run *r, uint32_t n);
/* Publishes the rest, makes the root and parks where it can be resumed: the conversation's id.
 * Then lets everything go. */
uint64_t cw_run_park(struct cw_run *r);
/* Ends without parking. */
void cw_run_abandon(struct cw_run *r);

struct cw_result {
    uint64_t id, root;
    uint32_t reused, n_common, n_superseded;
    bool resumed;
};
/* A whole request, with as much shedding and copying as it needs. */
struct cw_result cw_request(struct cw_world *w, struct cache_space *s, const char *spec);

/* Finds with all but the last token of `spec`; counts as no use. */
struct cache_found cw_find(struct cw_world *w, struct cache_space *s, const char *spec);
uint32_t cw_pos(struct cw_world *w, struct cache_space *s, const char *spec);
/* Finds, pins and lets go: a use.  Its position. */
uint32_t cw_use(struct cw_world *w, struct cache_space *s, const char *spec);
/* Mounts the whole match, compares every word, lets go: its position. */
uint32_t cw_mount(struct cw_world *w, struct cache_space *s, const char *spec);

struct cache_stats cw_stats(const struct cw_world *w);
uint32_t cw_shed(struct cw_world *w, uint32_t n, uint32_t *ret_coming); /* ret_coming may be NULL */

#endif
