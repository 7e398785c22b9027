/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CPU backend: its memory, and one step as the team of threads sees it.
 *
 * A step runs as one function on every member of the pool (forward.c).  Members meet at barriers;
 * between two barriers lies a *phase*, whose work is handed out in pieces (cpu_take).  A row is one
 * token of one entry; rows of all entries stand one after the other in every buffer.
 *
 * Steps of few rows (decode) avoid barriers: what is cheap is then done by every member for itself,
 * in memory of its own (cpu_acts).  The values are the same either way (kernels.h).
 */
#ifndef ENGINE_CPU_CPU_H
#define ENGINE_CPU_CPU_H

#include "engine/backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/pool.h"
#include "engine/model.h"
#include "engine/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FEW_ROWS = 4,        /* up to here members repeat cheap work instead of meeting */
    N_COUNTERS = 8,      /* ring of work counters, see cpu_phase */
    ATTN_TILE_ROWS = 16, /* query rows that share one pass over the keys */
    FF_PIECE = 96, /* most hidden columns of a feed-forward part done at once; a multiple of 32 */
    MIX_COLS = 64, /* most output columns of the experts' down projections done at once */
};

/* The backend's half of a sequence.  Engine thread only, and the pool while it runs a step. */
struct cpu_seq {
    uint32_t pos; /* tokens so far */
    bool ended;   /* the last sampled token was an end token */
    bool spoilt;  /* a row was not finite: no more steps */
    int32_t last; /* the token sampled last */
    uint32_t n_pages;
    const uint8_t **pages; /* owned, base of each page's unit */
    int32_t *tokens;       /* owned, [context] */
    float *state; /* owned, checkpoint layout: convolution and recurrent state, last hidden row */

    /* What a commit of fewer rows than a tentative entry had needs to go back. */
    uint32_t n_tentative;
    uint32_t n_tent_logits;
    float *base; /* owned, `state` before the entry */
    float *rows; /* owned, per DeltaNet layer [16][channels] raw convolution input, [16][Hv] a,
                    [16][Hv] b; then [16][n_embd] hidden */
    int32_t tent_samples[ENGINE_TENTATIVE_ROWS];
    bool tent_ends[ENGINE_TENTATIVE_ROWS];
};

/* Which expert a row goes to in one of its n_used slots. */
struct cpu_route {
    uint32_t expert;
    float weight;
};

/*
 * The routing of n rows in a mixture layer.  A *pair* is (slot, row), number slot * n + row, so
 * that pair p belongs to row p % n; `mix` and the hidden rows of the experts are indexed by pair.
 */
struct cpu_routing {
    struct cpu_route *routes; /* [rows][n_used], descending probability */
    float *probs;             /* [rows][n_expert] */
    float *shared_gate;       /* [rows] sigmoid(w . x) */
    uint32_t n_active;
    uint32_t *active; /* [n_expert] experts that have rows, ascending */
    uint32_t *start;  /* [n_expert + 1] of each expert's pairs in `pair` */
    uint32_t *pair;   /* [rows*n_used] */
    uint32_t *row;    /* [rows*n_used] row of each */
};

/* One member's own memory. */
struct cpu_member {
    void *scratch;              /* matmul and attention, 64-byte aligned */
    float *few;                 /* [FEW_ROWS][max_in] normed activations */
    int8_t *few_q[2];           /* [FEW_ROWS][max_in] each */
    float *few_d[2];            /* [FEW_ROWS][max_in / 32] each */
    int16_t *few_s[2];          /* [FEW_ROWS][2 * max_in / 32] each */
    float *hidden;              /* [FEW_ROWS][n_embd] */
    float *pairs;               /* [FEW_ROWS][2*n_embd] */
    float *gate_up;             /* [2][max_rows][FF_PIECE] */
    float *mix;                 /* [(n_used + 1) * max_rows][MIX_COLS] */
    struct cpu_routing routing; /* of few rows */
    void *pick;                 /* sampler */
};

/* A run of rows that belongs to one sequence. */
struct cpu_run {
    struct step_entry *entry;
    struct cpu_seq *seq;
    uint32_t row0, n_rows, pos0;
    uint32_t i_logit; /* first of its rows in the list of logit rows */
};

/* One piece of attention: query rows [r0, r1) of a run on one K/V head; i_split >= 0: one split of
 * one row. */
struct attn_item {
    uint32_t i_run, head, r0, r1;
    int32_t i_split;
    uint32_t n_splits;
    size_t partial; /* floats into the buffer of partials */
};

/* Activations as a matmul reads them: floats and, for quantised weights, their quantised form. */
struct acts {
    const float *f;
    size_t ld;
    const int8_t *q;
    size_t q_ld;
    const float *d;
    const int16_t *s;
    size_t d_ld; /* of s: twice that */
};

struct backend {
    struct engine *engine;
    const struct model *m;
    struct layout layout;
    const struct kernels *k;
    struct pool *pool; /* owned */
    uint32_t n_members;
    struct cpu_member *members; /* owned */
    uint8_t *units;             /* owned, the pool of units */
    size_t units_bytes;
    struct cpu_seq *seqs; /* owned */
    uint32_t n_seqs, max_rows, context;
    float *inv_freq; /* owned, [n_rot/2] */
    uint32_t max_in; /* widest input of any matmul */
    uint32_t max_splits;

    /* Buffers of a step, [max_rows] rows each; owned, one allocation. */
    void *arena;
    size_t arena_bytes;
    float *x;                  /* residual stream [n_embd] */
    float *xn;                 /* normed [n_embd] */
    int8_t *xq[2];             /* quantised; two, for routed and shared experts */
    float *xd[2];              /* their scales */
    int16_t *xs[2];            /* their sums */
    float *cs;                 /* rope table of each row [n_rot] */
    float *qg;                 /* query and gate rows as projected */
    float *qc;                 /* query heads, rotated */
    float *kv;                 /* K then V rows as projected */
    float *att;                /* attention or DeltaNet output before the output projection */
    float *conv_in, *conv_out; /* [channels] */
    float *z;         /* [Hv*dv], behind conv_in: both are one where one matrix gives both */
    float *ab;        /* [2*Hv] */
    float *ff;        /* [n_ff], or [n_used*rows][n_ff_expert] by pair */
    float *ff_shared; /* [n_ff_shared] */
    struct cpu_routing routing;
    float *hidden;  /* final norm of every row [n_embd] */
    float *draft;   /* [2*n_embd] pairs */
    float *draft_x; /* [n_embd] projected pairs: not `x`, which a member may still be reading */
    float *logits;  /* [rows that want them][n_vocab]; grows */
    size_t logits_cap;
    float *partials; /* attention splits; grows */
    size_t partials_cap;

    /* The step that runs. */
    struct job_step *step;
    uint32_t n_rows, n_runs, n_logits;
    struct cpu_run *runs;    /* owned, [n_seqs] */
    int32_t *ids;            /* owned, [max_rows] */
    uint32_t *row_run;       /* owned, [max_rows] */
    uint32_t *logit_rows;    /* owned, [max_rows] */
    struct attn_item *items; /* owned; grows */
    uint32_t n_items, cap_items;
    uint32_t n_split_items; /* items of single splits come first */
    /* Owned, [N_COUNTERS]; inside it would make a struct of 64-byte alignment, on the stack too. */
    struct pool_counter *counters;
};

/* A member's view while a step runs. */
struct member {
    struct backend *b;
    struct cpu_member *own;
    uint32_t i;
    uint32_t phase;
};

/* Ends a phase: everybody meets, and work is shared anew. */
void cpu_phase(struct member *m);
/* Shares new work without meeting; at most 3 times between two meetings. */
void cpu_next(struct member *m);
/* The next piece of n items of this phase; see pool_take. */
int cpu_take(struct member *m, uint32_t n, uint32_t grain, uint32_t *ret_begin, uint32_t *ret_end);

static inline const float *tensor_f32(const struct tensor *t)
{
    return t->data;
}

/* matmul.c */

/* One matrix of a phase that multiplies several by the same activations. */
struct mm_part {
    const struct tensor *w; /* NULL parts are skipped */
    const float *bias;      /* [rows] or NULL */
    float *y;
    size_t y_ld;
    bool acc;
};
/*
 * y = W x (+ bias) for every part and n_x rows; row t reads activation row in[t] (NULL: t).  The
 * work of a phase, which the caller ends.  `a` must hold the quantised form when a part is
 * quantised.
 */
void cpu_matmul(struct member *m, const struct mm_part *parts, uint32_t n_parts,
                const struct acts *a, const uint32_t *in, uint32_t n_x);

/*
 * One piece: weight rows [r0, r1) of `w` (of matrix `i_stack` of its stack) for n_x rows.  Column
 * r0 of row t goes to y[out[t] * y_ld], the next columns follow.
 */
struct mm_piece {
    const struct tensor *w;
    uint32_t i_stack;
    uint32_t r0, r1;
    const uint32_t *in, *out;
    uint32_t n_x;
    float *y;
    size_t y_ld;
    bool acc;
};
void cpu_matmul_piece(struct member *m, const struct mm_piece *p, const struct acts *a);

/*
 * Makes activations of n rows of k floats (ld k): normed when `norm` is given, quantised when asked
 * for. With few rows each member does all of it into its own memory and nobody meets; otherwise it
 * is a phase, ended inside.  What a call gave in `slot` (0 or 1) lives until the next call with
 * that slot; floats live in one place only, so `norm` goes with slot 0.
 */
void cpu_acts(struct member *m, const float *x, const float *norm, uint32_t k, uint32_t n,
              bool quantise, int slot, struct acts *ret);

static inline bool is_quant(const struct tensor *t)
{
    return t && quant_is(t->type);
}

/* Each starts and ends with everybody met. */
void cpu_attention_layer(struct member *m, const struct layer *l);
void cpu_deltanet_layer(struct member *m, const struct layer *l);
void cpu_ffn(struct member *m, const struct layer *l);
/* The draft layer's K/V rows; *ret_hidden gets the final-normed rows [n_rows][n_embd], this
 * member's own when rows are few. */
void cpu_draft_rows(struct member *m, const float *hidden);

/* Takes the first n_rows rows of the last tentative entry again, from `base`. */
void cpu_replay(struct backend *b, struct cpu_seq *s, uint32_t n_rows,
                const struct step_capture *caps, uint32_t n_caps);
size_t cpu_replay_floats(const struct model *m);

/* Bytes of a checkpoint that lie in its units, from `off` on. */
void cpu_checkpoint_write(const struct backend *b, const uint32_t *units, size_t off, const void *p,
                          size_t n);
void cpu_checkpoint_read(const struct backend *b, const uint32_t *units, size_t off, void *p,
                         size_t n);

/* Runs b->step to its end, results in its entries.  0, or -ENOMEM with nothing run. */
int cpu_forward(struct backend *b);

#endif
