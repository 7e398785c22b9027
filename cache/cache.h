/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix cache: every page and checkpoint that some request left, as one tree per isolation
 * key, in two tiers.
 *
 * Pure bookkeeping over numbers: it knows which unit of which tier holds which tokens, never looks
 * into a unit and never moves one.  The owner runs the moves that it asks for (struct cache_move)
 * and tells when they are done.  Nothing here sleeps, reads a clock or does I/O; `now` is the
 * owner's clock in nanoseconds.
 *
 * - A page is CACHE_PAGE consecutive tokens of a path.  A path from the top of a space is a prefix;
 *   two paths that differ inside of a page have a page each from there on.  The last page of a path
 *   may be partial.
 * - A checkpoint hangs at a position; a model with checkpoints (checkpoint_units > 0) is resumed at
 *   one only, any other model at every token.
 * - A conversation ends where a request ended; a root is a prefix that other prompts will begin
 *   with.  Both are marks on paths, and own nothing by themselves.
 * - vram: units of the engine's pool, shared with running sequences; the cache holds one reference
 *   (ops.vram_ref) on each that it keeps.  ram: units of an arena (arena.h) that the cache owns.
 *
 * A path that somebody holds (a pin or a cursor) is not evicted from any tier.  Everything else may
 * be, by value; what is lost is told through ops.event, with its reason (design section 6).
 *
 * Owner: one thread.  No function is reentered from an op.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct cache;
struct cache_node;
struct cache_checkpoint;
struct cache_space;
struct err_text;

enum { CACHE_PAGE = 64 };
#define CACHE_NO_UNIT UINT32_MAX

enum cache_tier { CACHE_VRAM, CACHE_RAM, CACHE_TIERS };
const char *cache_tier_str(enum cache_tier tier); /* a word of the API, static */

/* Why something left, or was not taken. */
enum cache_why {
    CACHE_WHY_SPACE,      /* the tier's budget was needed for something of more value */
    CACHE_WHY_SLOTS,      /* more parked conversations than may be */
    CACHE_WHY_ROOTS,      /* more roots than may be kept */
    CACHE_WHY_SUPERSEDED, /* a prompt went on differently from its turn or query checkpoint */
    CACHE_WHY_TOO_LARGE,  /* would not fit the tier even alone */
    CACHE_WHY_NONFINITE,  /* its path produced logits that are not finite */
    CACHE_WHY_OPERATOR,   /* evict, clear */
    CACHE_WHY_MEMORY,     /* out of memory for the books or for a segment */
    CACHE_WHY_FAILED,     /* a copy between tiers failed */
    CACHE_WHY_LIMITS,     /* a limit was lowered */
};
const char *cache_why_str(enum cache_why why); /* a few words, static */

enum cache_event_kind {
    CACHE_EVICTED,    /* a conversation's end is in no tier any more */
    CACHE_SUPERSEDED, /* its tail leaves first; counted apart from evictions */
    CACHE_REFUSED,    /* something was not taken into a tier; nothing was evicted for it */
    CACHE_DEMOTED,    /* a conversation left vram and is in ram */
    CACHE_ROOT_MADE,
    CACHE_ROOT_LOST,
};
const char *cache_event_str(enum cache_event_kind kind); /* a word of the API, static */

struct cache_event {
    enum cache_event_kind kind;
    enum cache_why why;
    enum cache_tier tier; /* for REFUSED, DEMOTED and EVICTED: the (last) tier it was about */
    uint64_t id;          /* of the conversation or root; 0: of none */
    uint64_t cause;       /* the request at work then (cache_set_cause); 0: none */
    uint32_t uid;         /* whose */
    uint32_t n_tokens;
    uint64_t bytes; /* that left or were refused */
};

struct cache_ops {
    void (*vram_ref)(void *arg, uint32_t unit);
    void (*vram_unref)(void *arg, uint32_t unit);
    void (*event)(void *arg, const struct cache_event *e); /* may be NULL */
    void *arg;
};

/* Budgets; may change at any time. */
struct cache_limits {
    uint32_t ram_units;       /* 0: nothing is kept beyond vram */
    uint32_t n_conversations; /* most parked ones; 0: as many as fit */
    uint32_t n_roots;         /* roots that are kept, an operator's pins apart; 0: none is made */
    uint64_t half_life_ns;    /* of the chance that something is used again; 0: half an hour */
};

struct cache_options {
    uint64_t unit_bytes;
    uint32_t vram_units;       /* units of the pool: unit numbers are below this */
    uint32_t checkpoint_units; /* of one checkpoint; 0: resumable at every token */
    uint64_t checkpoint_bytes; /* of what is in them; 0: not known */
    struct arena *arena;       /* borrowed */
    struct cache_limits limits;
};

/* 0 or -ENOMEM. */
int cache_new(const struct cache_options *o, const struct cache_ops *ops, struct cache **ret);
/* No pin, cursor or move may be left. */
void cache_free(struct cache *c);
/* Evicts down to lowered limits (what is held stays until it is let go). */
void cache_set_limits(struct cache *c, const struct cache_limits *l);
/* The request that what happens next is done for; 0: none. */
void cache_set_cause(struct cache *c, uint64_t request);

/* --- spaces: isolation -------------------------------------------------------------------------
 */

/*
 * The space of an isolation key: nothing is ever found from another one, except in the shared space
 * that operators' pins make.  One reference for the caller; NULL when out of memory.
 */
struct cache_space *cache_space_get(struct cache *c, const void *key, size_t n, uint32_t uid);
void cache_space_unref(struct cache *c, struct cache_space *s); /* NULL is fine */

/* --- find, hold, mount -------------------------------------------------------------------------
 */

/* A prefix of a prompt that can be resumed.  Valid until the cache changes. */
struct cache_match {
    uint32_t pos;           /* tokens; 0: nothing */
    uint32_t n_pages;       /* ceil(pos / 64) */
    uint32_t n_pages_vram;  /* of these, in vram now */
    uint32_t units_to_load; /* that have to be copied from ram: pages, and the checkpoint's */
    uint32_t units_idle; /* of those in vram, that nobody else's path is on (cache_idle_vram counts
                            them) */
    uint32_t root_pos;   /* of `pos`, the part that is a root; 0: none */
    uint64_t root;       /* that root; 0: none */
    uint64_t conversation; /* whose path this is: the one that goes on, else that of the most recent
                              request; 0: none's (a root's) */
    bool continues; /* the prompt passes that conversation's turn or query checkpoint, or its end */
    struct cache_space *space;           /* where it lies: the own one or the shared one */
    struct cache_node *node;             /* the page that holds the last token */
    struct cache_checkpoint *checkpoint; /* NULL when there is no need for one */
};

struct cache_found {
    struct cache_match best; /* the longest in any tier */
    struct cache_match vram; /* the longest that is wholly in vram; may be the same */
    uint32_t n_common;       /* tokens in common with the nearest stored path, >= best.pos: where a
                                longer prompt leaves it, and a branch checkpoint belongs */
};
/* The prompt's first n tokens; at most `most` of them are looked for (n - 1: one has to be read).
 */
void cache_find(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                uint32_t most, struct cache_found *ret);

/* Holds a match: its path and checkpoint stay where they are. */
struct cache_pin {
    struct cache_match m;
    bool held;
};
/* Counts as a use (`now`).  0 or -ENOMEM (a match in the shared space is grafted into `s` first;
 * the pin's match is then there). */
int cache_pin(struct cache *c, struct cache_space *s, const struct cache_match *m, uint64_t now,
              struct cache_pin *ret);
void cache_unpin(struct cache *c, struct cache_pin *p); /* harmless when not held */

/*
 * A copy between tiers that the owner has to run.  The cache's until cache_move_done; the units
 * stay what they are until then.
 */
struct cache_move {
    bool load; /* ram to vram; else vram to ram */
    uint32_t n_units;
    uint32_t n_tokens; /* a partial page: rows from here on are to be zero in what is written; else
                          0 (whole units) */
    const uint32_t *vram, *ram;             /* [n_units]; unit i goes to unit i */
    struct cache_node *node;                /* the cache's */
    struct cache_checkpoint *checkpoint;    /* the cache's; NULL: a page */
    uint32_t generation;                    /* the cache's */
    struct cache_move *next;                /* the cache's, then the owner's */
    struct cache_move *all_prev, *all_next; /* the cache's */
};

/*
 * What a pin needs in vram and nobody loads yet.  `units` [n] are free pool units, one reference
 * each, of the owner.  Loads as much as they suffice for and returns how many were used (their
 * references are the cache's then); moves are appended to *moves.  0: nothing (more) to load, or
 * too few units for the next piece, or no memory.  cache_units_to_load says how many would be
 * needed.
 */
uint32_t cache_load(struct cache *c, struct cache_pin *p, const uint32_t *units, uint32_t n,
                    struct cache_move **moves);
uint32_t cache_units_to_load(const struct cache *c, const struct cache_pin *p);
/* Everything of the pin is in vram.  Loads under way for others are waited for too. */
bool cache_is_loaded(const struct cache *c, const struct cache_pin *p);
/* A load of the pin failed, and so did the pin: take another match. */
bool cache_is_broken(const struct cache *c, const struct cache_pin *p);
/* The pool's units of a loaded pin: pages [m.n_pages], and the checkpoint's [checkpoint_units] or
 * NULL.  The last page is shared like the others: who wants to write behind `pos` copies it. */
void cache_pin_units(const struct cache *c, const struct cache_pin *p, uint32_t *ret_pages,
                     const uint32_t **ret_checkpoint);

/* --- growing paths -----------------------------------------------------------------------------
 */

/*
 * Where a running sequence is in the tree: after its last full page that is published.  Holds its
 * path.  A cursor whose path was dropped (cache_drop_path) is dead: it takes nothing more.
 */
struct cache_cursor {
    struct cache_space *space; /* referenced */
    struct cache_node *node;   /* the top when n_pages is 0 */
    uint32_t n_pages;
};
/* At the last full page of `p`, or at the top (p NULL or nothing held). */
void cache_cursor_init(struct cache *c, struct cache_space *s, const struct cache_pin *p,
                       struct cache_cursor *ret);
void cache_cursor_done(struct cache *c, struct cache_cursor *u);
bool cache_cursor_is_dead(const struct cache_cursor *u);

/*
 * The next full page of the sequence, in pool unit `unit`: the tree takes a reference of its own,
 * unless it holds these tokens in vram already.  0; -ENOMEM, or -ESTALE on a dead cursor: the
 * cursor stays where it is, and nothing that follows can be published.
 */
int cache_extend(struct cache *c, struct cache_cursor *u, const int32_t tokens[CACHE_PAGE],
                 uint32_t unit, uint64_t now);
/* The partial page behind the cursor, 1 <= n < 64, that nobody writes any more; the cursor stays.
 */
int cache_extend_tail(struct cache *c, struct cache_cursor *u, const int32_t *tokens, uint32_t n,
                      uint32_t unit, uint64_t now);

enum cache_kind { /* of a checkpoint; may be several */
                  CACHE_AT_ROOT = 1 << 0,
                  CACHE_AT_TURN = 1 << 1,
                  CACHE_AT_QUERY = 1 << 2,
                  CACHE_AT_END = 1 << 3,
                  CACHE_AT_BRANCH = 1 << 4,
                  CACHE_AT_LAST = 1 << 5,     /* n - 1 of a prompt */
                  CACHE_AT_INTERVAL = 1 << 6, /* every checkpoint_every */
};
/*
 * The checkpoint after exactly the tokens [0, pos) of the cursor's path, in pool `units`
 * [checkpoint_units]: references of the cache's own are taken, unless it has that one in vram.
 * `tail` are the tokens behind the cursor's last page, for a pos in there (which must be
 * published).  0; -ENOENT when pos is not (or no longer) on a published page; -ENOMEM; -ESTALE.
 */
int cache_add_checkpoint(struct cache *c, struct cache_cursor *u, const int32_t *tail, uint32_t pos,
                         unsigned int kinds, const uint32_t *units);
/* Whether there is one at `pos` of the pages [0, pos) of the cursor's path. */
bool cache_has_checkpoint(const struct cache *c, const struct cache_cursor *u, const int32_t *tail,
                          uint32_t pos);

/*
 * [0, pos) of the cursor's path is a root: makes or refreshes the object.  Its id; 0 when none is
 * kept (n_roots 0, pos not published, no checkpoint there where one is needed, no memory).
 */
uint64_t cache_make_root(struct cache *c, struct cache_cursor *u, const int32_t *tail, uint32_t pos,
                         uint64_t now);

/*
 * The request's prompt goes on from `match.conversation`: it is active from now on, and another
 * request can only borrow from it.  False when it is active already, or gone.
 */
bool cache_resume_conversation(struct cache *c, uint64_t id, uint64_t now);
/*
 * A prompt (or, later, all tokens of a request) went its way: stored tails that it leaves behind
 * their turn or query checkpoint are superseded.  `own` is the request's conversation: it stays,
 * only its tail goes.  Returns how many.
 */
uint32_t cache_supersede(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                         uint64_t own);

/* The end of a request: its conversation is parked at n_tokens. */
struct cache_ending {
    uint64_t conversation;        /* 0: a new one */
    uint32_t n_tokens;            /* published, and resumable there if it is to be found again */
    uint32_t turn_pos, query_pos; /* 0: none */
    const int32_t *tail;          /* the tokens behind the cursor's last page */
};
/* Its id; 0 when nothing was published, there was no memory, or the limits had it leave at once. */
uint64_t cache_park(struct cache *c, struct cache_cursor *u, const struct cache_ending *e,
                    uint64_t now);
/* The request ends without parking: a resumed conversation is parked again where it was. */
void cache_abandon_conversation(struct cache *c, uint64_t id, uint64_t now);

/* Logits that are not finite: the whole path goes, with everything that hangs on its first page,
 * out of every tier, held or not. */
void cache_drop_path(struct cache *c, struct cache_cursor *u);

/* --- tiers -------------------------------------------------------------------------------------
 */

/* Units of the pool that only the cache holds and that could be given back now. */
uint32_t cache_idle_vram(const struct cache *c);
/*
 * Gives back at least n units of the pool, cheapest first, or as many as can be.  What is in ram is
 * just let go; what could be in ram is queued to be copied first, and *ret_coming counts those
 * units: call again when moves are done.  Returns units given back now.
 */
uint32_t cache_shed(struct cache *c, uint32_t n, uint32_t *ret_coming);
/* The next copy to ram, urgent ones first; NULL: nothing to do, or no room. */
struct cache_move *cache_next_write_back(struct cache *c);
void cache_move_done(struct cache *c, struct cache_move *m, bool ok);

/* --- what there is -----------------------------------------------------------------------------
 */

struct cache_tier_stats {
    uint32_t units_held, units_limit;
    uint32_t units_coming; /* of units_held: charged, being filled */
    uint64_t bytes;
};
struct cache_stats {
    struct cache_tier_stats tier[CACHE_TIERS];
    uint32_t n_pages, n_checkpoints, n_spaces;
    uint32_t n_parked, n_active, n_roots, n_pinned;
    uint64_t n_conversations_limit;
    uint64_t parks, evictions, superseded, refused, demotions, roots_made, roots_lost;
    uint64_t write_backs, write_back_bytes, loads, load_bytes, failed_moves;
    uint64_t book_bytes;     /* of our own memory, tokens apart */
    uint64_t token_bytes;    /* 4 per token of a page */
    uint64_t rounding_bytes; /* of checkpoints to whole units, in all tiers */
};
void cache_stats(const struct cache *c, struct cache_stats *ret);

struct cache_entry {
    uint64_t id;
    bool is_root, is_active, is_pinned, is_shared;
    uint32_t uid;
    uint32_t n_tokens, turn_pos, query_pos;
    uint32_t n_pages, n_pages_vram, n_pages_ram; /* of its path */
    uint32_t n_pages_own;                        /* that no other entry uses */
    uint32_t n_checkpoints;                      /* on its path */
    uint64_t bytes_vram, bytes_ram;              /* of its path, shared or not */
    uint64_t last_use;                           /* `now` of that */
    uint32_t hits;
    double value; /* the key that eviction goes by; larger stays longer */
};
/* Up to `max` entries, or roots only, most recently used first; *ret_total: how many there are.
 * How many were filled in, or -ENOMEM. */
int cache_entries(const struct cache *c, bool roots_only, struct cache_entry *ret, uint32_t max,
                  uint32_t *ret_total);
/* 0 or -ENOENT. */
int cache_entry(const struct cache *c, uint64_t id, struct cache_entry *ret);
/* Its first tokens, up to `max`; how many, 0 when there is no such entry. */
uint32_t cache_entry_tokens(const struct cache *c, uint64_t id, int32_t *ret, uint32_t max);

/* One tier down: vram to ram (at once what has a copy there, else when it is copied), ram to
 * nothing.  forget: out of all.  0, -ENOENT, or -EBUSY (it is pinned, or somebody holds it). */
int cache_evict(struct cache *c, uint64_t id, bool forget);
/* Forgets everything that nobody holds and that is not pinned; the conversations forgotten. */
uint32_t cache_clear(struct cache *c);
/* Roots that are not pinned become ordinary prefixes; how many. */
uint32_t cache_clear_roots(struct cache *c);
/* A root for everybody, until unpinned: its path is in the shared space too, by reference.  0,
 * -ENOENT, -ENOMEM. */
int cache_pin_root(struct cache *c, uint64_t id, bool pinned, uint64_t now);
/*
 * For a request that would fail for want of vram: unpins the least recently used root of those that
 * hold something there and that nobody holds, and tells (ROOT_LOST, of the shared one).  Whether
 * there was one.
 */
bool cache_yield_pin(struct cache *c);

/* The invariant walk: ledgers against what is reachable, heaps, marks, order of pages.  For tests,
 * and for a daemon that was told to; false with the first contradiction in `e`. */
bool cache_is_sane(const struct cache *c, struct err_text *e);

#endif
