/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's half of the engine: references, order, threads.  It computes nothing; engine/submit.c
 * holds the rules a job must keep, and a backend does the work.
 */
#include "engine/engine.h"

#include "engine/backend.h"
#include "engine/model.h"
#include "engine/submit.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct engine {
    struct engine_plan plan;
    struct layout layout;
    struct units units;
    struct backend *backend; /* owned */
    struct sequence *seqs;   /* owned, [n_seqs] */
    uint32_t n_seqs;
    uint32_t n_in_flight; /* owner thread */
    uint32_t n_vocab;

    struct mailbox steps, transfers; /* to the engine thread and the copier thread */
    struct mailbox finished;         /* back to the owner */
    pthread_t step_thread, transfer_thread;
    bool have_step_thread, have_transfer_thread;
    _Alignas(64) atomic_uint_fast64_t ticks;
};

/* Enough rows that reading a weight once costs little of the time, few enough for the caches. */
enum { DEFAULT_MAX_ROWS = 512 };

static const struct backend_ops *const ops = &cpu_backend;

int engine_plan(const struct model *m, const struct engine_options *o, struct engine_plan *ret,
                struct err_text *e)
{
    struct engine_plan p = {0};
    struct layout l;
    int r;

    r = layout_init(&l, m, o->kv_type, e);
    if (r < 0)
        return r;

    p.context = o->context ? o->context : m->hp.n_context;
    if (p.context > 1u << 24)
        return err_set(e, -EINVAL, "context %u is more than %u", p.context, 1u << 24);
    p.max_rows = o->max_rows ? o->max_rows : DEFAULT_MAX_ROWS;
    p.weight_bytes = gguf_file_bytes(m->gguf);
    p.unit_bytes = l.unit_bytes;
    p.n_units = o->pool_bytes / l.unit_bytes > UINT32_MAX
                    ? UINT32_MAX
                    : (uint32_t)(o->pool_bytes / l.unit_bytes);
    p.checkpoint_bytes = l.checkpoint_bytes;
    p.checkpoint_units = l.checkpoint_units;
    r = ops->plan(m, o, &l, &p, e);
    if (r < 0)
        return r;
    *ret = p;
    return 0;
}

void engine_job_done(struct engine *e, struct job *j, int status)
{
    j->status = status;
    mailbox_put(&e->finished, &j->mail);
}

void engine_tick(struct engine *e)
{
    (void)atomic_fetch_add_explicit(&e->ticks, 1, memory_order_relaxed);
}

static void *step_main(void *arg)
{
    struct engine *e = arg;
    struct mail *mail;

    (void)pthread_setname_np(pthread_self(), "engine");
    while ((mail = mailbox_wait(&e->steps)))
        ops->run(e->backend, (struct job *)mail);
    return NULL;
}

static void *transfer_main(void *arg)
{
    struct engine *e = arg;
    struct mail *mail;

    (void)pthread_setname_np(pthread_self(), "copier");
    while ((mail = mailbox_wait(&e->transfers)))
        ops->transfer(e->backend, (struct job_transfer *)mail);
    return NULL;
}

static void stop_threads(struct engine *e)
{
    if (e->have_step_thread) {
        mailbox_close(&e->steps);
        (void)pthread_join(e->step_thread, NULL);
    }
    if (e->have_transfer_thread) {
        mailbox_close(&e->transfers);
        (void)pthread_join(e->transfer_thread, NULL);
    }
}

static void engine_free(struct engine *e)
{
    if (!e)
        return;
    stop_threads(e);
    if (e->backend)
        ops->close(e->backend);
    for (uint32_t i = 0; e->seqs && i < e->n_seqs; i++)
        free(e->seqs[i].pages);
    free(e->seqs);
    units_done(&e->units);
    if (e->finished.fd >= 0)
        mailbox_done(&e->finished);
    if (e->transfers.fd >= 0)
        mailbox_done(&e->transfers);
    if (e->steps.fd >= 0)
        mailbox_done(&e->steps);
    free(e);
}

static void engine_freep(struct engine **e)
{
    engine_free(*e);
}

static int open_parts(struct engine *e, const struct model *m, const struct engine_options *o,
                      struct err_text *err)
{
    uint32_t n_pages = e->plan.context / ENGINE_PAGE_TOKENS + 1;
    int r;

    if ((r = mailbox_init(&e->steps)) < 0 || (r = mailbox_init(&e->transfers)) < 0 ||
        (r = mailbox_init(&e->finished)) < 0)
        return err_set(err, r, "cannot make a queue for the engine: %s", err_str(r));
    r = units_init(&e->units, e->plan.n_units);
    if (r < 0)
        return err_set(err, r, "no memory for the table of %u units", e->plan.n_units);

    e->n_seqs = o->n_sequences;
    e->seqs = calloc(e->n_seqs, sizeof *e->seqs);
    if (!e->seqs)
        return err_set(err, -ENOMEM, "no memory for %u sequences", e->n_seqs);
    for (uint32_t i = 0; i < e->n_seqs; i++) {
        struct sequence *s = &e->seqs[i];

        s->engine = e;
        s->index = i;
        s->pages = malloc(n_pages * sizeof *s->pages);
        if (!s->pages)
            return err_set(err, -ENOMEM, "no memory for the page tables");
    }

    r = ops->open(e, m, o, &e->layout, &e->plan, &e->backend, err);
    if (r < 0)
        return r;
    r = -pthread_create(&e->step_thread, NULL, step_main, e);
    if (r < 0)
        return err_set(err, r, "cannot start the engine thread: %s", err_str(r));
    e->have_step_thread = true;
    r = -pthread_create(&e->transfer_thread, NULL, transfer_main, e);
    if (r < 0)
        return err_set(err, r, "cannot start the copier thread: %s", err_str(r));
    e->have_transfer_thread = true;
    return 0;
}

int engine_open(const struct model *m, const struct engine_options *o, struct engine **ret,
                struct err_text *err)
{
    CLEANUP(engine_freep) struct engine *e = NULL;
    int r;

    if (o->n_sequences == 0 || o->n_sequences > 4096)
        return err_set(err, -EINVAL, "n_sequences %u is not in 1..4096", o->n_sequences);
    e = aligned_alloc(64, (sizeof *e + 63) & ~(size_t)63);
    if (!e)
        return -ENOMEM;
    memset(e, 0, sizeof *e);
    e->steps.fd = e->transfers.fd = e->finished.fd = -1;
    e->n_vocab = m->hp.n_vocab;

    r = engine_plan(m, o, &e->plan, err);
    if (r < 0)
        return r;
    if (e->plan.n_units == 0)
        return err_set(err, ERR_CAPACITY, "a pool of %llu bytes holds no page of %llu bytes",
                       (unsigned long long)o->pool_bytes, (unsigned long long)e->plan.unit_bytes);
    r = layout_init(&e->layout, m, o->kv_type, err);
    if (r < 0)
        return r;
    r = open_parts(e, m, o, err);
    if (r < 0)
        return r;
    *ret = TAKE(e);
    return 0;
}

void engine_close(struct engine *e)
{
    assert(!e || e->n_in_flight == 0);
    engine_free(e);
}

const struct engine_plan *engine_limits(const struct engine *e)
{
    return &e->plan;
}

struct units *engine_units(struct engine *e)
{
    return &e->units;
}

const char *engine_backend(const struct engine *e)
{
    (void)e;
    return ops->name;
}

const char *engine_isa(const struct engine *e)
{
    return ops->isa(e->backend);
}

uint32_t engine_n_threads(const struct engine *e)
{
    return ops->n_threads(e->backend);
}

uint64_t engine_ticks(const struct engine *e)
{
    return atomic_load_explicit(&e->ticks, memory_order_relaxed);
}

uint32_t engine_in_flight(const struct engine *e)
{
    return e->n_in_flight;
}

int engine_fd(const struct engine *e)
{
    return e->finished.fd;
}

int sequence_new(struct engine *e, struct sequence **ret)
{
    for (uint32_t i = 0; i < e->n_seqs; i++) {
        struct sequence *s = &e->seqs[i];

        if (s->in_use)
            continue;
        s->in_use = true;
        s->releasing = s->sampled = false;
        s->length = s->n_tentative = s->n_pages = 0;
        atomic_store_explicit(&s->cancelled, false, memory_order_relaxed);
        *ret = s;
        return 0;
    }
    return ERR_CAPACITY;
}

uint32_t sequence_length(const struct sequence *s)
{
    return s->length;
}

uint32_t sequence_n_pages(const struct sequence *s)
{
    return s->n_pages;
}

const uint32_t *sequence_pages(const struct sequence *s)
{
    return s->pages;
}

void sequence_cancel(struct sequence *s)
{
    atomic_store_explicit(&s->cancelled, true, memory_order_relaxed);
}

int engine_submit(struct engine *e, struct job *j, struct err_text *err)
{
    const struct submit_limits lim = {
        .engine = e,
        .n_vocab = e->n_vocab,
        .max_rows = e->plan.max_rows,
        .context = e->plan.context,
        .checkpoint_units = e->plan.checkpoint_units,
    };
    int r;

    r = submit_check(&lim, &e->units, j, err);
    if (r < 0)
        return r;

    submit_take(&lim, &e->units, j);
    j->status = 0;
    e->n_in_flight++;
    if (j->kind == JOB_EXPORT || j->kind == JOB_IMPORT || j->kind == JOB_COPY)
        mailbox_put(&e->transfers, &j->mail);
    else
        mailbox_put(&e->steps, &j->mail);
    return 0;
}

static struct job *reaped(struct engine *e, struct mail *mail)
{
    struct job *j = (struct job *)mail;

    if (!j)
        return NULL;
    e->n_in_flight--;
    submit_return(&e->units, e->plan.checkpoint_units, j);
    return j;
}

struct job *engine_reap(struct engine *e)
{
    return reaped(e, mailbox_take(&e->finished));
}

struct job *engine_wait(struct engine *e)
{
    return e->n_in_flight ? reaped(e, mailbox_wait(&e->finished)) : NULL;
}
