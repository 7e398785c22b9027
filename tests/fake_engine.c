/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_engine_private.h"

#include "util/err.h"

#include <string.h>

static struct engine *engines;

struct engine *fake_engine_new(const struct fake_options *o)
{
    struct engine *e = must_alloc(1, sizeof *e);

    e->o = *o;
    e->plan = (struct engine_plan){
        .n_units = o->n_units,
        .unit_bytes = FAKE_UNIT_BYTES,
        .checkpoint_units = o->checkpoint_units,
        .checkpoint_bytes = (uint64_t)o->checkpoint_units * FAKE_UNIT_BYTES,
        .context = o->context,
        .max_rows = o->max_rows,
    };
    MUST(units_init(&e->units, o->n_units) == 0);
    MUST(mailbox_init(&e->finished) == 0);
    e->bytes = must_alloc(o->n_units, FAKE_UNIT_BYTES);
    e->checkpoint = must_alloc(o->checkpoint_units, FAKE_UNIT_BYTES);
    e->seqs = must_alloc(o->n_sequences, sizeof *e->seqs);
    for (uint32_t i = 0; i < o->n_sequences; i++) {
        e->seqs[i].engine = e;
        e->seqs[i].pages =
            must_alloc(o->context / ENGINE_PAGE_TOKENS + 1, sizeof *e->seqs[i].pages);
        e->seqs[i].x_rows = must_alloc(o->context, sizeof *e->seqs[i].x_rows);
    }
    memset(e->bytes, FAKE_UNIT_POISON, (size_t)o->n_units * FAKE_UNIT_BYTES);
    e->next = engines;
    engines = e;
    return e;
}

void engine_close(struct engine *e)
{
    struct engine **at = &engines;

    MUST(e->n_in_flight == 0 && !e->flights && !e->running);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    for (uint32_t i = 0; i < e->o.n_sequences; i++) {
        MUST(!e->seqs[i].in_use);
        free(e->seqs[i].pages);
        free(e->seqs[i].x_rows);
    }
    free(e->seqs);
    free(e->checkpoint);
    free(e->bytes);
    units_done(&e->units);
    mailbox_done(&e->finished);
    free(e);
}

const char *engine_backend(const struct engine *e)
{
    (void)e;
    return "fake";
}

const char *engine_isa(const struct engine *e)
{
    (void)e;
    return "fake";
}

uint32_t engine_n_threads(const struct engine *e)
{
    (void)e;
    return 1;
}

const struct engine_plan *engine_limits(const struct engine *e)
{
    return &e->plan;
}

struct units *engine_units(struct engine *e)
{
    return &e->units;
}

uint64_t engine_ticks(const struct engine *e)
{
    return e->ticks;
}

uint32_t engine_in_flight(const struct engine *e)
{
    return e->n_in_flight;
}

int engine_fd(const struct engine *e)
{
    return e->finished.fd;
}

const struct fake_log *fake_engine_log(const struct engine *e)
{
    return &e->log;
}

const void *fake_engine_unit(const struct engine *e, uint32_t unit)
{
    return unit_bytes(e, unit);
}

void fake_engine_refuse_kind(struct engine *e, enum job_kind kind, int rc)
{
    e->refuse[kind] = rc;
}

void fake_engine_fail_kind(struct engine *e, enum job_kind kind, int rc)
{
    e->fail[kind] = rc;
}

void fake_engine_refuse(struct engine *e, int rc)
{
    fake_engine_refuse_kind(e, JOB_STEP, rc);
}

void fake_engine_fail(struct engine *e, int rc)
{
    fake_engine_fail_kind(e, JOB_STEP, rc);
}

/* --- sequences --- */

int sequence_new(struct engine *e, struct sequence **ret)
{
    for (uint32_t i = 0; i < e->o.n_sequences; i++) {
        struct sequence *s = &e->seqs[i];

        if (s->in_use)
            continue;
        *s = (struct sequence){.engine = e, .in_use = true, .pages = s->pages, .x_rows = s->x_rows};
        *ret = s;
        return 0;
    }
    return ERR_CAPACITY;
}

uint32_t sequence_length(const struct sequence *s)
{
    MUST(s->in_use);
    return s->length;
}

uint32_t sequence_n_pages(const struct sequence *s)
{
    MUST(s->in_use);
    return s->n_pages;
}

const uint32_t *sequence_pages(const struct sequence *s)
{
    MUST(s->in_use);
    return s->pages;
}

void sequence_cancel(struct sequence *s)
{
    MUST(s->in_use && !s->releasing);
    s->cancelled = true;
}

/* --- jobs --- */

void fake_unit_freed(const struct units *u, uint32_t unit)
{
    for (struct engine *e = engines; e; e = e->next)
        if (&e->units == u)
            memset(unit_bytes(e, unit), FAKE_UNIT_POISON, FAKE_UNIT_BYTES);
}

int engine_submit(struct engine *e, struct job *j, struct err_text *err)
{
    struct flight *f, **at = &e->flights;
    int rc;

    MUST((unsigned int)j->kind < N_JOB_KINDS);
    rc = e->refuse[j->kind];
    if (rc) {
        e->refuse[j->kind] = 0;
        return err_set(err, rc, "refused as the test wants");
    }
    f = must_alloc(1, sizeof *f);
    f->job = j;
    fake_take_job(e, f);
    for (; *at; at = &(*at)->next)
        MUST((*at)->job != j);
    *at = f;
    j->status = 0;
    e->n_in_flight++;
    return 0;
}

static struct flight *oldest_waiting(const struct engine *e, bool transfer)
{
    for (struct flight *f = e->flights; f; f = f->next)
        if (f->state == FLIGHT_WAITS && is_transfer(f->job) == transfer)
            return f;
    return NULL;
}

static void start(struct engine *e, struct flight *f)
{
    f->state = FLIGHT_RUNS;
    f->job->status = fake_run_job(e, f->job);
}

static void finish(struct engine *e, struct flight *f)
{
    f->state = FLIGHT_DONE;
    mailbox_put(&e->finished, &f->job->mail);
}

bool fake_engine_start(struct engine *e)
{
    struct flight *f = e->running ? NULL : oldest_waiting(e, false);

    if (!f)
        return false;
    e->running = f;
    e->ticks++;
    start(e, f);
    return true;
}

bool fake_engine_finish(struct engine *e)
{
    struct flight *f = e->running;

    if (!f)
        return false;
    e->running = NULL;
    finish(e, f);
    return true;
}

bool fake_engine_transfer(struct engine *e)
{
    struct flight *f = oldest_waiting(e, true);

    if (!f)
        return false;
    start(e, f);
    finish(e, f);
    return true;
}

bool fake_engine_run(struct engine *e)
{
    (void)fake_engine_start(e);
    return fake_engine_finish(e) || fake_engine_transfer(e);
}

struct job *engine_reap(struct engine *e)
{
    struct job *j = (struct job *)mailbox_take(&e->finished);
    struct flight **at = &e->flights, *f;

    if (!j)
        return NULL;
    while ((*at)->job != j)
        at = &(*at)->next;
    f = *at;
    *at = f->next;
    e->n_in_flight--;
    fake_return_job(e, f);
    return j;
}

struct job *engine_wait(struct engine *e)
{
    struct job *j;

    while (!(j = engine_reap(e)) && fake_engine_run(e))
        ;
    return j;
}
