/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running model: sequences, steps over batches of them, and a pool of units that holds their
 * state.
 *
 * - Unit: the one size of memory state is managed in: the K/V of one page (64 tokens of one
 *   sequence) in every attention layer, the draft layer last, as
 *   [layer][K|V][kv head][token][dim].  The pool is an array of units; the owner decides which unit
 *   holds what, and counts references in `struct units`.
 * - Page: a unit in a sequence's page table; page p holds the rows of positions 64p .. 64p+63. Rows
 *   beyond the sequence's length are undefined in the pool and are zeroed by an export that says
 *   so.
 * - Checkpoint: checkpoint_units units holding, one after the other as one run of bytes: for every
 *   DeltaNet layer the convolution history [taps-1][channels] f32 and the state
 *   [value head][dk][dv] f32, then the last hidden row [n_embd] f32 (after the final norm) that the
 *   draft layer's next row needs.  A pure attention model without draft block has none
 *   (checkpoint_units is 0).
 *
 * Everything that takes time is a job.  engine_submit returns at once; the job, and everything it
 * points to, belongs to the engine until engine_reap hands it back with `status` set.  Steps,
 * mounts, commits, captures and releases run in the order of submission, so a step may be submitted
 * for a sequence whose last step has not completed (`ids` NULL: "the token just sampled").
 * Transfers (export, import, copy) run beside them, in order among themselves; whoever submits them
 * waits for an import or copy to complete before submitting a mount or step that reads those units,
 * and does not export a page that a step in flight may write.  A unit in a job must not be reused
 * before the job was reaped: submit takes a reference on every unit of a transfer, mount, capture
 * or step and reap returns it (a sequence's pages are held from the step or mount that brought them
 * until its release was reaped).
 *
 * In the exact modes a row's result depends on the tokens before it alone (kernels.h).
 *
 * Owner: the thread that called engine_open (the daemon's loop).  The engine has threads of its own
 * behind this interface.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/sampler.h"
#include "engine/units.h"
#include "util/mailbox.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct err_text;
struct model;
struct sequence;

enum {
    ENGINE_PAGE_TOKENS = 64,
    ENGINE_TENTATIVE_ROWS = 16, /* most rows of a tentative entry */
    /*
     * Raised when any model gives other bits than before: state that outlives the process is of
     * use to the same arithmetic only.  tests/check_arithmetic.c pins the bits.
     */
    ENGINE_ARITHMETIC_REVISION = 1,
};

/* Pages that hold n tokens. */
static inline uint32_t engine_pages(uint32_t n_tokens)
{
    return n_tokens / ENGINE_PAGE_TOKENS + (n_tokens % ENGINE_PAGE_TOKENS != 0);
}

struct engine_options {
    const char *kv_type;  /* "f16" (NULL), "bf16", "f32" */
    const char *isa;      /* NULL: the fastest this processor has */
    uint32_t n_threads;   /* 0: one per processor we may run on */
    uint32_t n_sequences; /* most sequences alive at once */
    uint32_t max_rows;    /* most rows of one step, all entries together; 0: 512 */
    uint32_t context;     /* most tokens of one sequence; 0: the model's */
    uint64_t pool_bytes;  /* budget of the pool of units */
};

/* What opening would take, computed without allocating (`--check`). */
struct engine_plan {
    uint64_t weight_bytes; /* mapped from the file */
    uint64_t unit_bytes;   /* one page */
    uint32_t n_units;      /* pool_bytes / unit_bytes */
    uint32_t checkpoint_units;
    uint64_t checkpoint_bytes;
    uint64_t sequence_bytes; /* live recurrent state and tables of one sequence */
    uint64_t workspace_bytes;
    uint32_t context;
    uint32_t max_rows; /* most rows of one step */
};
/* 0, -EINVAL or ERR_UNSUPPORTED for what opening would refuse, with `e`. */
int engine_plan(const struct model *m, const struct engine_options *o, struct engine_plan *ret,
                struct err_text *e);

/* `m` is borrowed until engine_close.  engine_plan's errors; ERR_CAPACITY when the pool holds no
 * page; -ENOMEM, or another negative errno when a thread cannot be started. */
int engine_open(const struct model *m, const struct engine_options *o, struct engine **ret,
                struct err_text *e);
/* Every sequence must be released and every job reaped. */
void engine_close(struct engine *e);

const struct engine_plan *engine_limits(const struct engine *e);
struct units *engine_units(struct engine *e);       /* which units are in use; owner thread only */
const char *engine_backend(const struct engine *e); /* "cpu" */
const char *engine_isa(const struct engine *e);     /* "c", "avx2", "avx512" */
uint32_t engine_n_threads(const struct engine *e);

/* Counts up with every layer of every step, so that a watchdog sees progress.  Any thread. */
uint64_t engine_ticks(const struct engine *e);
/* Jobs submitted and not reaped. */
uint32_t engine_in_flight(const struct engine *e);

/* A timeline of tokens.  ERR_CAPACITY when n_sequences exist. */
int sequence_new(struct engine *e, struct sequence **ret);
/* Tokens it will have once everything submitted has run, tentative rows included. */
uint32_t sequence_length(const struct sequence *s);
/* Pages its table will have. */
uint32_t sequence_n_pages(const struct sequence *s);
/* Their units, in order; valid until the next submit for this sequence. */
const uint32_t *sequence_pages(const struct sequence *s);
/* Rows of this sequence that have not started are skipped from now on: their entries complete with
 * -ECANCELED. */
void sequence_cancel(struct sequence *s);

enum job_kind {
    JOB_STEP,
    JOB_MOUNT,
    JOB_COMMIT,
    JOB_CAPTURE,
    JOB_RELEASE,
    JOB_EXPORT,
    JOB_IMPORT,
    JOB_COPY,
};

/* The head of every job; embed it first. */
struct job {
    struct mail mail; /* the engine's */
    enum job_kind kind;
    int status; /* set on completion: 0 or negative */
    void *user; /* the owner's */
};

/* A checkpoint to take inside the step that passes it: the state after exactly `pos` tokens. */
struct step_capture {
    uint32_t pos;          /* in (length before the entry, length after it] */
    const uint32_t *units; /* [checkpoint_units] */
};

struct step_entry {
    struct sequence *seq; /* at most once per step */
    const int32_t *ids;   /* [n_rows]; NULL: one row, the token this sequence sampled last */
    uint32_t n_rows;
    uint32_t n_logits;     /* the last n_logits rows get logits and are sampled, in order */
    bool tentative;        /* rows count only once committed (JOB_COMMIT), e.g. drafts */
    const uint32_t *units; /* [n_units] pages to append to the table before the rows run, as many as
                              the rows need */
    uint32_t n_units;
    const struct step_capture *captures; /* ascending; not with tentative */
    uint32_t n_captures;
    const struct sampler_params *sampling; /* when n_logits > 0 */
    float *logits;                         /* optional copy of the raw rows, [n_logits][n_vocab] */

    /*
     * Results.  Nothing ran: -ECANCELED, ERR_ENDED (ids NULL after an end token), -ENOMEM.  The
     * rows ran, and the sequence is spoilt: ERR_NONFINITE, -EINVAL (the bias bans every token).
     */
    int status;
    struct sample *samples; /* [n_logits], caller's memory */
};

struct job_step {
    struct job job;
    struct step_entry *entries;
    uint32_t n_entries;
    uint64_t run_ns; /* result: time from start to end of the step */
};

/* Accepts the first n_rows of the rows of the tentative entry that ran last on `seq`; the others
 * never were (recurrent state included). */
struct job_commit {
    struct job job;
    struct sequence *seq;
    uint32_t n_rows;
    const struct step_capture *captures; /* positions within the accepted rows */
    uint32_t n_captures;
};

/*
 * A checkpoint of the state after everything that was submitted before for `seq`, between steps:
 * the end of a request, whose last position nobody knew when its steps were submitted.  Refused
 * for a model without checkpoints, a sequence of length 0, and while rows wait for a commit.
 *
 * The checkpoint is of the rows that really ran.  Those that were skipped (sequence_cancel, an end
 * token) do not count, so the owner may cancel a sequence, submit this and the release at once, and
 * learn from `pos` where the sequence stopped.
 *
 * Status: -ECANCELED when no row ran; ERR_NONFINITE when the sequence is spoilt.  `pos` is 0 then
 * and the units hold nothing.
 */
struct job_capture {
    struct job job;
    struct sequence *seq;
    const uint32_t *units; /* [checkpoint_units] */
    uint32_t pos;          /* result: tokens it is after */
};

/*
 * Puts a new sequence at `pos`: its table becomes `pages` (ceil(pos/64) of them; the last one must
 * be the sequence's own when pos is not a multiple of 64, since it will be written), its recurrent
 * state that of the checkpoint.  `tokens` [pos] are its history (for penalties).
 */
struct job_mount {
    struct job job;
    struct sequence *seq;
    uint32_t pos;
    const int32_t *tokens;
    const uint32_t *pages;
    uint32_t n_pages;
    /* [checkpoint_units]; NULL only when checkpoint_units is 0 or pos is 0. */
    const uint32_t *checkpoint;
};

/* Ends a sequence; its pages lose the sequence's reference when the job is reaped, and the pointer
 * dies then. */
struct job_release {
    struct job job;
    struct sequence *seq;
};

/* Moves whole units between the pool and host memory, or inside the pool. */
struct transfer {
    uint32_t unit;
    void *host;        /* unit_bytes of them; export writes, import reads */
    uint32_t from;     /* JOB_COPY: source unit, `unit` is the destination */
    uint32_t n_tokens; /* export and copy of a partial page: rows from here on are zeroed in what
                          is written; 0 or 64: whole unit as it is */
};
struct job_transfer {
    struct job job;
    struct transfer *items;
    uint32_t n_items;
};

/*
 * Hands a job over.  0; -EINVAL for a job that contradicts the rules above (nothing is taken over;
 * reason in `e`).
 */
int engine_submit(struct engine *e, struct job *j, struct err_text *err);

/* A completed job, or NULL at once.  engine_fd is readable while there is one. */
struct job *engine_reap(struct engine *e);
/* Sleeps until a job completes; NULL when nothing is in flight.  For tests and tools; the daemon's
 * loop never calls it. */
struct job *engine_wait(struct engine *e);
int engine_fd(const struct engine *e);

#endif
