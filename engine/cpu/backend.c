/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's jobs; memory.c makes what they work on. */
#include "engine/cpu/cpu.h"

#include "engine/cpu/memory.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <string.h>

static uint8_t *unit_at(const struct backend *b, uint32_t unit)
{
    return b->units + (size_t)unit * b->layout.unit_bytes;
}

/* Runs over the pieces of a checkpoint that [off, off + n) touches. */
static void checkpoint_span(const struct backend *b, const uint32_t *units, size_t off, uint8_t *p,
                            size_t n, bool write)
{
    const size_t size = b->layout.unit_bytes;

    while (n) {
        const size_t at = off % size, part = size - at < n ? size - at : n;
        uint8_t *unit = unit_at(b, units[off / size]) + at;

        if (write)
            memcpy(unit, p, part);
        else
            memcpy(p, unit, part);
        p += part;
        off += part;
        n -= part;
    }
}

void cpu_checkpoint_write(const struct backend *b, const uint32_t *units, size_t off, const void *p,
                          size_t n)
{
    checkpoint_span(b, units, off, (uint8_t *)(uintptr_t)p, n, true);
}

void cpu_checkpoint_read(const struct backend *b, const uint32_t *units, size_t off, void *p,
                         size_t n)
{
    checkpoint_span(b, units, off, p, n, false);
}

/* What is left of the last unit is zero, so that equal checkpoints have equal bytes. */
static void zero_checkpoint_tail(const struct backend *b, const uint32_t *units)
{
    const size_t used = b->layout.checkpoint_bytes % b->layout.unit_bytes;

    if (used)
        memset(unit_at(b, units[b->layout.checkpoint_units - 1]) + used, 0,
               b->layout.unit_bytes - used);
}

static void zero_checkpoint_tails(const struct backend *b, const struct step_capture *caps,
                                  uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        zero_checkpoint_tail(b, caps[i].units);
}

static int run_step(struct backend *b, struct job_step *j)
{
    const uint64_t start = clock_ns();
    int r;

    b->step = j;
    r = cpu_forward(b);
    for (uint32_t i = 0; i < j->n_entries; i++)
        zero_checkpoint_tails(b, j->entries[i].captures, j->entries[i].n_captures);
    j->run_ns = clock_ns() - start;
    return r;
}

static int run_mount(struct backend *b, const struct job_mount *j)
{
    struct cpu_seq *s = &b->seqs[j->seq->index];

    for (uint32_t i = 0; i < j->n_pages; i++)
        s->pages[i] = unit_at(b, j->pages[i]);
    s->n_pages = j->n_pages;
    s->pos = j->pos;
    if (j->pos == 0)
        return 0;
    memcpy(s->tokens, j->tokens, j->pos * sizeof *s->tokens);
    if (j->checkpoint)
        cpu_checkpoint_read(b, j->checkpoint, 0, s->state, b->layout.checkpoint_bytes);
    return 0;
}

static int run_commit(struct backend *b, const struct job_commit *j)
{
    struct cpu_seq *s = &b->seqs[j->seq->index];
    const uint32_t n = s->n_tentative, before = n - s->n_tent_logits;

    if (j->n_rows > n)
        return -EINVAL; /* the entry was skipped, there is nothing to accept */
    s->pos -= n;
    /* With captures the rows run again even when all are accepted: that is where checkpoints are
     * taken. */
    if (b->layout.checkpoint_bytes && (j->n_rows < n || j->n_captures))
        cpu_replay(b, s, j->n_rows, j->captures, j->n_captures);
    zero_checkpoint_tails(b, j->captures, j->n_captures);
    s->pos += j->n_rows;
    s->n_tentative = 0;
    s->ended = false;
    if (j->n_rows > before) {
        s->last = s->tent_samples[j->n_rows - before - 1];
        s->ended = s->tent_ends[j->n_rows - before - 1];
    }
    return 0;
}

static int run_capture(struct backend *b, struct job_capture *j)
{
    struct cpu_seq *s = &b->seqs[j->seq->index];

    j->pos = 0;
    if (s->spoilt)
        return ERR_NONFINITE;
    if (s->pos == 0)
        return -ECANCELED;
    cpu_checkpoint_write(b, j->units, 0, s->state, b->layout.checkpoint_bytes);
    zero_checkpoint_tail(b, j->units);
    j->pos = s->pos;
    return 0;
}

static int run_release(struct backend *b, const struct job_release *j)
{
    struct cpu_seq *s = &b->seqs[j->seq->index];

    s->pos = s->n_pages = s->n_tentative = 0;
    s->ended = s->spoilt = false;
    /* The next sequence of this number starts from nothing; only what was used is cleared. */
    if (b->layout.checkpoint_bytes)
        memset(s->state, 0, b->layout.checkpoint_bytes);
    return 0;
}

static void cpu_run(struct backend *b, struct job *j)
{
    int r = -EINVAL;

    switch (j->kind) {
    case JOB_STEP:
        r = run_step(b, (struct job_step *)j);
        break;
    case JOB_MOUNT:
        r = run_mount(b, (const struct job_mount *)j);
        break;
    case JOB_COMMIT:
        r = run_commit(b, (const struct job_commit *)j);
        break;
    case JOB_CAPTURE:
        r = run_capture(b, (struct job_capture *)j);
        break;
    case JOB_RELEASE:
        r = run_release(b, (const struct job_release *)j);
        break;
    case JOB_EXPORT:
    case JOB_IMPORT:
    case JOB_COPY:
        break;
    }
    engine_job_done(b->engine, j, r);
}

static void cpu_transfer(struct backend *b, struct job_transfer *j)
{
    const size_t size = b->layout.unit_bytes;

    for (uint32_t i = 0; i < j->n_items; i++) {
        const struct transfer *t = &j->items[i];
        const bool partial = t->n_tokens > 0 && t->n_tokens < ENGINE_PAGE_TOKENS;

        if (j->job.kind == JOB_IMPORT) {
            memcpy(unit_at(b, t->unit), t->host, size);
            continue;
        }
        uint8_t *to = j->job.kind == JOB_EXPORT ? t->host : unit_at(b, t->unit);
        memcpy(to, unit_at(b, j->job.kind == JOB_EXPORT ? t->unit : t->from), size);
        if (partial)
            layout_zero_tail(&b->layout, to, t->n_tokens);
    }
    engine_job_done(b->engine, &j->job, 0);
}

static const char *cpu_isa(const struct backend *b)
{
    return b->k->name;
}

static uint32_t cpu_n_threads(const struct backend *b)
{
    return b->n_members;
}

const struct backend_ops cpu_backend = {
    .name = "cpu",
    .plan = cpu_memory_plan,
    .open = cpu_memory_open,
    .close = cpu_memory_close,
    .run = cpu_run,
    .transfer = cpu_transfer,
    .isa = cpu_isa,
    .n_threads = cpu_n_threads,
};
