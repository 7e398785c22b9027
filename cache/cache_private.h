/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the cache.
 *
 * cache.c    life, limits, spaces, statistics
 * tree.c     pages: children in order, insertion, growing, trimming, death; what hangs on a page
 * find.c     matches, pins, loads, whose path a prompt goes on with
 * grow.c     cursors: what running sequences publish; roots, parking
 * entries.c  conversations and roots: the table, lists, an operator's verbs
 * value.c    what is worth how much; the heaps and sums that follow
 * evict.c    who leaves which tier and when
 * ledger.c   the ledgers of both tiers, and the copies that are charged to them
 * move.c     copies between the tiers
 * sane.c     the invariant walk
 *
 * The children of a page are sorted by their tokens and none is a prefix of another: a page that
 * would be is merged with the longer one.  A checkpoint is listed by every sibling that has its
 * tokens, so that whoever matches a position finds it; one of them is its home, and counts it.
 *
 * A live page has a valid copy in some tier, and so has a listed checkpoint.
 */
#ifndef CACHE_CACHE_PRIVATE_H
#define CACHE_CACHE_PRIVATE_H

#include "cache/arena.h"
#include "cache/cache.h"

#include <assert.h>
#include <stdlib.h>

enum copy_state {
    COPY_NONE,
    COPY_COMING, /* charged, being filled */
    COPY_VALID,
};

enum {
    CACHE_PATH_CHECKPOINTS = 16, /* of one path, a root's apart; more are thinned out */
    NOT_IN_HEAP = -1,
};

/* Lowest leaves first; within one, by value. */
enum value_class {
    CLASS_USELESS, /* superseded, or nothing can be resumed there */
    CLASS_MIRROR,  /* its bytes are in the other tier too */
    CLASS_LAST,    /* the last copy */
    CLASS_ROOT,    /* of a root, while roots hold at most half of the tier */
    CLASS_ABOVE,   /* above everything, for comparisons */
};

struct value {
    enum value_class cls;
    double key;
};

struct copy {
    uint32_t unit; /* CACHE_NO_UNIT while COPY_NONE */
    enum copy_state state;
};

struct cache_checkpoint {
    uint32_t pos;
    unsigned int kinds;
    uint32_t n_nodes; /* pages that list it */
    uint32_t pins, n_moves;
    struct cache_node *home; /* of these; NULL when none lists it any more */
    enum copy_state state[CACHE_TIERS];
    uint32_t units[]; /* [CACHE_TIERS][checkpoint_units] */
};

enum mark_kind { MARK_END, MARK_TURN, MARK_QUERY, MARK_ROOT, MARK_KINDS };

/* A position on a path: after the first `offset` tokens of `node`. */
struct mark {
    enum mark_kind kind;
    uint32_t offset;         /* 1..64 */
    struct cache_node *node; /* NULL: nowhere */
    struct cache_entry_object *entry;
    struct mark *prev, *next; /* on the same page */
};

/* A conversation or a root. */
struct cache_entry_object {
    uint64_t id;
    bool is_root, is_active, is_pinned;
    struct cache_space *space;     /* referenced */
    struct mark marks[MARK_KINDS]; /* a root has its own only, a conversation the other three */
    uint32_t n_tokens, turn_pos, query_pos;
    uint64_t last_use;
    uint32_t hits;
    bool end_lost; /* while it was active; told when its request leaves no other end */
    enum cache_why lost_why;
    uint64_t twin; /* of a pinned root: its entry in the shared space, and the other way round */
    struct cache_entry_object *prev_root, *next_root; /* of a root: neighbours among the roots */
};

struct cache_node {
    struct cache_node *parent; /* NULL: the top of a space */
    struct cache_space *space;
    union {
        struct cache_node *one;   /* n_kids == 1 and cap_kids == 0 */
        struct cache_node **many; /* owned, [n_kids] in order */
    } kids;
    uint32_t n_kids, cap_kids;
    uint32_t depth;      /* page index */
    uint32_t n_tokens;   /* 1..64; 0: a top */
    uint32_t users;      /* pins and cursors whose path it is on */
    uint32_t n_moves;    /* under way */
    uint32_t generation; /* of its bytes: grows when the page does */
    bool aside;          /* out of the heaps while victims are looked for */
    bool dead;           /* out of the tree; freed with the last user and move */
    bool superseded;
    uint32_t
        leaving;    /* units of vram that are let go of when the copy to ram is done; 0: it stays */
    bool queued;    /* waits for a copy to ram */
    bool starved;   /* would, but there was no room */
    bool refused;   /* ram could not hold the path that it is of even alone; it was told */
    uint64_t stamp; /* of the walk that passed it last */
    uint64_t last_use;
    uint64_t owner; /* conversation that ended behind it last */
    uint32_t hits;
    struct copy copy[CACHE_TIERS];
    uint32_t subtree[CACHE_TIERS]; /* itself (0 or 1) and kids below which there is something */
    int heap_at[CACHE_TIERS];
    struct value value[CACHE_TIERS]; /* while in the heap */
    uint32_t counted[CACHE_TIERS];   /* units that the sums have of it */

    struct cache_checkpoint **checks; /* owned, [n_checks], ascending */
    uint32_t n_checks;
    struct mark *marks;
    struct cache_node *q_prev, *q_next; /* queued or starved */
    int32_t tokens[CACHE_PAGE];
};

struct heap {
    struct cache_node **v; /* owned */
    int n, cap;
};

/* Whose spaces are: all of one uid have one share, however many salts it uses. */
struct cache_owner {
    struct cache_owner *next;
    unsigned int refs; /* its spaces */
    uint32_t uid;
    uint32_t held[CACHE_TIERS]; /* by its spaces together */
};

struct cache_space {
    struct cache *cache;
    struct cache_space *prev, *next;
    unsigned int refs;
    uint32_t uid;
    struct cache_owner *owner; /* one reference */
    size_t n_name;
    struct cache_node *top; /* owned */
    struct heap heap[CACHE_TIERS];
    uint32_t held[CACHE_TIERS]; /* units its pages and checkpoints hold (a unit of two spaces counts
                                   in each) */
    uint8_t name[];
};

struct node_queue {
    struct cache_node *first, *last;
};

struct cache {
    struct cache_options o;
    struct cache_ops ops;
    struct cache_limits limits;
    struct cache_space *spaces, *shared;
    struct cache_owner *owners;          /* owned list */
    struct cache_entry_object **entries; /* owned, by id */
    uint32_t n_entries, cap_entries;
    /* Few among many conversations, and asked for often; by id, the shared ones too. */
    struct cache_entry_object *first_root, *last_root;
    uint64_t last_id, last_stamp, cause;
    enum cache_why why; /* what room is made for just now */

    uint32_t *vram_refs; /* owned, [vram_units]: ours, those of moves included */
    struct holders {
        uint32_t all, busy;     /* pages and checkpoints that are in it; on somebody's path */
    } * vram_holders;           /* owned, [vram_units] */
    uint32_t held[CACHE_TIERS]; /* units with a reference of ours, each once */
    uint32_t n_coming[CACHE_TIERS];
    uint32_t n_leaving;      /* units of vram that go when copies to ram are done */
    uint64_t n_check_copies; /* copies of checkpoints, in all tiers */
    uint32_t idle_vram; /* units of the pages, and their checkpoints, that nobody's path is on */

    struct node_queue dirty, starved;
    struct cache_move *ready; /* made already, to be handed out first */
    struct cache_move **ready_tail;
    struct cache_move *moves; /* all there are, handed out or not */
    uint32_t n_moves;
    bool ram_freed;  /* since the starved were looked at last */
    bool ram_denied; /* the system had no memory for the last unit that was asked for: told once */

    struct cache_stats st; /* the counters of it */
    uint64_t book_bytes, n_pages, n_checkpoints;
};

/* --- cache.c --- */
/* Counts it, and tells the owner. */
void cache_tell(struct cache *c, enum cache_event_kind kind, enum cache_why why,
                enum cache_tier tier, const struct cache_entry_object *e, uint64_t bytes);
static inline bool has_checkpoints(const struct cache *c)
{
    return c->o.checkpoint_units > 0;
}
/* Units of a page and of the checkpoints that it is home of, in `t`. */
uint32_t node_units(const struct cache *c, const struct cache_node *n, enum cache_tier t);

/* --- tree.c --- */
struct cache_node *node_new(struct cache *c, struct cache_space *s, struct cache_node *parent,
                            const int32_t *tokens, uint32_t n);
/* Frees a dead page that nobody uses any more; harmless otherwise. */
void node_reap(struct cache *c, struct cache_node *n);
static inline struct cache_node *node_kid(const struct cache_node *n, uint32_t i)
{
    return n->cap_kids == 0 ? n->kids.one : n->kids.many[i];
}
/* Tokens that two runs begin with alike. */
uint32_t tokens_common(const int32_t *a, const int32_t *b, uint32_t n);
/* The child that has most of tokens[0..n) in common, and how much; NULL: none has any. */
struct cache_node *node_find(const struct cache_node *parent, const int32_t *tokens, uint32_t n,
                             uint32_t *ret_common);
/*
 * The child that holds tokens[0..n): one that is there, one that was shorter and is grown to it, or
 * a new one without copies.  *ret_fresh says that its vram copy has to be set.  NULL: no memory.
 */
struct cache_node *node_insert(struct cache *c, struct cache_node *parent, const int32_t *tokens,
                               uint32_t n, bool *ret_fresh);
/* Cuts a page back to its first k tokens (1 <= k), or merges it with a sibling that has them. */
void node_trim(struct cache *c, struct cache_node *n, uint32_t k);
/*
 * Takes a page without children out of the tree and lets everything go that hangs on it; what a
 * sibling has as well (marks, checkpoints) moves there.  Conversations that end here are lost, with
 * `why`.
 */
void node_remove(struct cache *c, struct cache_node *n, enum cache_why why);
/* A whole subtree, held or not, its roots too. */
void node_kill(struct cache *c, struct cache_node *n, enum cache_why why);
/* A sibling that has the first k tokens of `n` too, or NULL. */
struct cache_node *node_twin(const struct cache_node *n, uint32_t k);

void mark_set(struct mark *m, struct cache_node *n, uint32_t offset);
void mark_clear(struct mark *m);
/* The largest offset of an END or ROOT mark on `n` that is not of `but`; 0: none. */
uint32_t node_last_mark(const struct cache_node *n, const struct cache_entry_object *but);

struct cache_checkpoint *check_new(struct cache *c, uint32_t pos, unsigned int kinds);
/* The page lists it, and all siblings that have its tokens.  0 or -ENOMEM. */
int check_attach(struct cache *c, struct cache_node *n, struct cache_checkpoint *k);
/* No page lists it any more. */
void check_detach(struct cache *c, struct cache_checkpoint *k);
void check_reap(struct cache *c, struct cache_checkpoint *k);
struct cache_checkpoint *check_at(const struct cache_node *n, uint32_t pos);

/* A path is held, or let go: the page and everything above it. */
void path_hold(struct cache *c, struct cache_node *n);
void path_release(struct cache *c, struct cache_node *n);
/* One page more, below a page that is held already. */
void node_hold(struct cache *c, struct cache_node *n);

/* --- find.c --- */
/*
 * Stamps the pages that tokens[0..n) pass wholly.  Returns the tokens in common with the tree; the
 * page where they end (the last stamped one, or the one that has some of its tokens in common) in
 * *ret_last.
 */
uint32_t path_stamp(struct cache *c, struct cache_space *s, const int32_t *tokens, uint32_t n,
                    struct cache_node **ret_last);
/* After path_stamp with the same tokens: whether they pass this mark. */
bool mark_is_passed(const struct cache *c, const struct mark *m, const int32_t *tokens, uint32_t n);
/* The first n_tokens of page `n` and everything above it in space `s`, by reference; NULL: no
 * memory. */
struct cache_node *path_graft(struct cache *c, struct cache_space *s, struct cache_node *n,
                              uint32_t n_tokens);

/* What a pinned root's pages and their twins in the shared space have copies of, both have. */
void roots_share_copies(struct cache *c);

/* --- grow.c --- */
/* Whether something ends, or goes on from, just there; on whatever sibling it is noted. */
bool check_is_marked(const struct cache *c, const struct cache_checkpoint *k);

/* --- entries.c --- */
struct cache_entry_object *entry_new(struct cache *c, struct cache_space *s, bool is_root);
struct cache_entry_object *entry_find(const struct cache *c, uint64_t id);
static inline void entry_use(struct cache_entry_object *e, uint64_t now)
{
    e->last_use = now;
    e->hits++;
}
/* Its marks go; nothing else. */
void entry_free(struct cache *c, struct cache_entry_object *e);
/* Its request is over and it ends nowhere: told unless it was superseded, and freed. */
void entry_endless(struct cache *c, struct cache_entry_object *e);
/* A mark of it is on a page that leaves. */
void entry_lost(struct cache *c, struct mark *m, enum cache_why why);
/* This checkpoint is gone: nothing that ends there can be resumed there. */
void entries_lose(struct cache *c, const struct cache_checkpoint *k, enum cache_why why);
/* Pages that it alone needs leave every tier; the conversation or root is gone. */
void entry_forget(struct cache *c, struct cache_entry_object *e, enum cache_why why);
/* The tail that only `e` needs, from its end up: the next page, or NULL.  Begin with NULL. */
struct cache_node *entry_own(const struct cache_entry_object *e, struct cache_node *above);
static inline struct mark *entry_end(struct cache_entry_object *e)
{
    return &e->marks[e->is_root ? MARK_ROOT : MARK_END];
}
uint32_t entries_parked(const struct cache *c);
/* What it is worth; the order among conversations. */
double entry_key(const struct cache *c, const struct cache_entry_object *e);

/* --- value.c --- */
/* Its copies, users, children or marks have changed: heaps and sums follow. */
void node_changed(struct cache *c, struct cache_node *n);
/* A copy of it is under way, or a checkpoint that it is home of is being copied or pinned, maybe by
 * a match on a sibling. */
bool node_is_moving(const struct cache_node *n);
struct value node_value(const struct cache *c, const struct cache_node *n, enum cache_tier t);
bool value_less(struct value a, struct value b);
void heap_remove(struct cache *c, struct cache_node *n, enum cache_tier t);
/* --- evict.c --- */
/* Room for n more units in ram, at the cost of what is worth less than v.  */
bool ram_make_room(struct cache *c, struct cache_space *s, uint32_t n, struct value v);
/* For the rest of a page, which itself stays. */
bool ram_make_room_for(struct cache *c, struct cache_node *n, uint32_t need, struct value v);
/* A page that nobody is on, and all below it, out of every tier. */
void subtree_forget(struct cache *c, struct cache_node *n, enum cache_why why);
/* `why` SPACE: something was added; LIMITS: they were lowered. */
void evict_to_limits(struct cache *c, enum cache_why why);
/* Begins a copy to ram of a page that is to leave vram; false when ram cannot have it. */
bool node_demote(struct cache *c, struct cache_node *n);
/* It leaves vram, mirrored as it is; conversations that end there are told. */
void node_leave_vram(struct cache *c, struct cache_node *n, enum cache_why why);
/* Notes that the path of `n` does not fit ram; whether that was told already. */
bool node_refuse(struct cache_node *n);
/* Whether a copy of the path to `n` could be in ram as a whole. */
bool path_fits_ram(const struct cache *c, const struct cache_node *n);

/* --- ledger.c --- */
/* A checkpoint's units in `t`; vram is the first tier. */
static inline uint32_t *check_units(const struct cache *c, struct cache_checkpoint *k,
                                    enum cache_tier t)
{
    return k->units + (size_t)t * c->o.checkpoint_units;
}
void vram_take(struct cache *c, uint32_t unit);
void vram_drop(struct cache *c, uint32_t unit);
/* A page or checkpoint is in this unit of the pool, or not any more. */
void vram_hold(struct cache *c, uint32_t unit, bool busy);
void vram_unhold(struct cache *c, uint32_t unit, bool busy);
/* Its units, and those of the checkpoints that it is home of, are on somebody's path now, or not
 * any more. */
void node_busy(struct cache *c, struct cache_node *n, bool busy);
void check_rehome(struct cache *c, struct cache_checkpoint *k, struct cache_node *home);
/* 0; -ENOSPC the budget is used up; -ENOMEM the system has none, which is told. */
int ram_take(struct cache *c, uint32_t *ret);
void ram_ref(struct cache *c, uint32_t unit);
void ram_drop(struct cache *c, uint32_t unit);
/* A copy of a page or checkpoint goes; its units are let go of. */
void node_drop_copy(struct cache *c, struct cache_node *n, enum cache_tier t);
void check_drop_copy(struct cache *c, struct cache_checkpoint *k, enum cache_tier t);
void node_set_leaving(struct cache *c, struct cache_node *n, bool leaving);
/* Everything of `n` that is in `t` only there. */
bool node_is_mirrored(const struct cache *c, const struct cache_node *n, enum cache_tier t);
/* All of `n` that is in `t` leaves it; what is nowhere else must have been checked before. */
void node_leave(struct cache *c, struct cache_node *n, enum cache_tier t);
/* Units that a copy of all of `n` in ram would still need. */
uint32_t node_ram_missing(const struct cache *c, const struct cache_node *n);

/* --- move.c --- */
/* Makes the moves for these, ram charged; false when ram could not be taken. */
bool node_start_write_back(struct cache *c, struct cache_node *n);
void queue_write_back(struct cache *c, struct cache_node *n);
void queue_forget(struct cache *c, struct cache_node *n);
/* There was no room: asked again when some was freed. */
void queue_starve(struct cache *c, struct cache_node *n);

#endif
