/* SPDX-License-Identifier: Apache-2.0 */
/* A step's way to the engine and back, and what its results mean for the requests in it. */
#include "daemon/sched_private.h"

#include "util/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int step_init(struct step *st, uint32_t parallel, uint32_t max_rows, uint32_t checkpoint_units)
{
    /* An entry of n rows takes at most ceil(n / 64) new pages, whatever position it begins at. */
    const size_t n_units = (size_t)max_rows / ENGINE_PAGE_TOKENS + parallel;
    const size_t n_captures = (size_t)parallel * STEP_CAPTURES;

    st->entries = calloc(parallel, sizeof *st->entries);
    st->samples = calloc(parallel, sizeof *st->samples);
    st->runs = calloc(parallel, sizeof(struct run *));
    st->ids = calloc(max_rows, sizeof *st->ids);
    st->units = calloc(n_units, sizeof *st->units);
    st->captures = calloc(n_captures, sizeof *st->captures);
    st->kinds = calloc(n_captures, sizeof *st->kinds);
    st->capture_units = calloc(n_captures * checkpoint_units + 1, sizeof *st->capture_units);
    /* What was made is freed by step_free. */
    return st->captures && st->kinds && st->capture_units && st->entries && st->samples &&
                   st->runs && st->ids && st->units
               ? 0
               : -ENOMEM;
}

void step_free(struct step *st)
{
    free(st->entries);
    free(st->samples);
    free(st->runs);
    free(st->ids);
    free(st->units);
    free(st->captures);
    free(st->kinds);
    free(st->capture_units);
}

void step_clear(struct step *st)
{
    st->job = (struct job_step){.job = {.kind = JOB_STEP}, .entries = st->entries};
    st->n_rows = st->n_ids = st->n_units = st->n_prompt_rows = 0;
}

/* The step is in flight: the runs count on it.  The sequences hold their pages now, so our
 * references go. */
static void step_taken(struct sched *s, struct step *st)
{
    st->in_flight = true;
    for (uint32_t i = 0; i < st->job.n_entries; i++) {
        struct run *run = st->runs[i];

        run->n_rows += st->entries[i].n_rows;
        run->n_samples += st->entries[i].n_logits;
        run->n_in_flight++;
    }
    pages_give(s, st->n_units, st->units);
}

static void captures_drop(struct sched *s, struct step *st)
{
    for (uint32_t i = 0; i < st->job.n_entries; i++)
        for (uint32_t k = 0; k < st->entries[i].n_captures; k++)
            pages_give(s, s->checkpoint_units, st->entries[i].captures[k].units);
}

static void step_refused(struct sched *s, struct step *st, int rc, const struct err_text *e)
{
    pages_give(s, st->n_units, st->units);
    captures_drop(s, st);
    for (uint32_t i = 0; i < st->job.n_entries; i++)
        run_finish(s, st->runs[i], FINISH_ERROR, rc, e->s[0] ? e->s : "the engine refused a step");
    sched_wake(s);
}

void steps_submit(struct sched *s)
{
    for (int i = 0; i < SCHED_STEPS; i++) {
        struct step *st = &s->steps[i];
        struct err_text e = {0};
        int rc;

        if (st->in_flight)
            continue;
        slots_admit(s);
        if (!plan_step(s, st))
            return;
        if (engine_in_flight(s->engine) == 0)
            s->progressed = true;
        rc = engine_submit(s->engine, &st->job.job, &e);
        if (rc < 0) {
            step_refused(s, st, rc, &e);
            return;
        }
        step_taken(s, st);
    }
}

/*
 * The answer goes on with the request's `insert`: rows to read like those of a prompt, in one pass.
 * Where no room is left to say anything after it, it stays out.
 */
static int insert_tokens(struct sched *s, struct run *run)
{
    struct request *r = run->r;
    int rc = 0;

    assert(run->n_samples == 0);
    if (r->insert.n == 0 || r->insert.n >= run->n_limit - r->n_generated)
        return 0;
    for (size_t i = 0; i < r->insert.n && rc == 0; i++) {
        const struct sample certain = {.id = r->insert.ids[i]};

        run->ids[run->n_ids++] = certain.id;
        rc = request_put_token(r, s->tokenizer, &certain);
        s->totals.generated_tokens++;
    }
    run->n_goal = run->n_ids;
    return rc;
}

static void take_sample(struct sched *s, struct run *run, const struct sample *sample)
{
    struct request *r = run->r;
    int rc;

    r->t_last = clock_ns();
    if (r->t_first == 0)
        r->t_first = r->t_last;
    rc = request_put_token(r, s->tokenizer, sample);
    s->totals.generated_tokens++;
    if (rc == 0 && !sample->end && r->n_generated >= r->n_hold && r->n_generated < run->n_limit &&
        r->observer.held(r, r->observer.arg))
        rc = insert_tokens(s, run);
    sched_note(s, run, RUN_OUTPUT);

    if (rc < 0) {
        run_finish(s, run, FINISH_ERROR, rc, "no memory for the text");
    } else if (sample->end) {
        r->stop_token = sample->id;
        run_finish(s, run, FINISH_STOP, 0, NULL);
    } else if (rc > 0) {
        run_finish(s, run, FINISH_STOP, 0, NULL);
    } else if (r->n_generated >= run->n_limit) {
        run_finish(s, run, FINISH_LENGTH, 0, NULL);
    }
}

static void take_rows(struct sched *s, struct run *run, uint32_t n_rows)
{
    struct request *r = run->r;
    uint32_t n_read;

    run->n_done += n_rows;
    n_read = run->n_done < r->prompt.n ? run->n_done : (uint32_t)r->prompt.n;
    /* A prompt that is read again after a parking was counted the first time. */
    if (n_read > r->n_read) {
        s->totals.prompt_tokens += n_read - r->n_read;
        r->n_read = n_read;
        sched_note(s, run, RUN_PROGRESS);
    }
    if (run->n_done < run->n_goal)
        return;
    /* Not when it was parked while its last rows ran. */
    if (r->state == REQUEST_READING)
        r->state = REQUEST_GENERATING;
    if (r->t_prompt_done == 0)
        r->t_prompt_done = clock_ns();
    if (run->n_limit == 0)
        run_finish(s, run, FINISH_LENGTH, 0, NULL);
}

/* What has run in fact, whether it still counts or not: it can be kept. */
static void take_facts(struct sched *s, struct step *st, uint32_t i, int status)
{
    const struct step_entry *en = &st->entries[i];
    struct run *run = st->runs[i];

    if (status >= 0) {
        run->n_ran += en->n_rows;
        if (en->n_logits > 0 && run->n_ids < run->cap_ids)
            run->ids[run->n_ids++] = en->samples[0].id;
    }
    for (uint32_t k = 0; k < en->n_captures; k++) {
        if (status >= 0 && run->keeps) {
            keep_check(s, run, en->captures[k].pos, st->kinds[i * STEP_CAPTURES + k],
                       en->captures[k].units);
            continue;
        }
        pages_give(s, s->checkpoint_units, en->captures[k].units);
    }
}

static void take_result(struct sched *s, struct run *run, const struct step_entry *en, int status)
{
    /* Surplus: planned before it was known that the run had ended. */
    if (run->finished)
        return;
    /* Parked before these rows started, or because of what they failed on: it reads them again. */
    if (status < 0 && run->r->state == REQUEST_QUEUED)
        return;
    if (status < 0) {
        run_finish(s, run, FINISH_ERROR, status,
                   status == ERR_NONFINITE ? "no token can be sampled" : "a step failed");
        return;
    }
    take_rows(s, run, en->n_rows);
    if (en->n_logits > 0 && !run->finished)
        take_sample(s, run, &en->samples[0]);
}

/* Only steps that are mostly reading say what reading costs. */
static void measure(struct sched *s, const struct step *st)
{
    double ns;

    s->totals.steps++;
    s->totals.step_ns += st->job.run_ns;
    if (st->job.run_ns == 0 || st->n_prompt_rows < SCHED_CHUNK / 2 ||
        st->n_prompt_rows < st->n_rows / 2)
        return;
    ns = (double)st->job.run_ns / (double)st->n_rows;
    s->ns_per_row = s->ns_per_row > 0 ? (s->ns_per_row + ns) / 2 : ns;
}

void step_finished(struct sched *s, struct step *st)
{
    const int failed = st->job.job.status;

    st->in_flight = false;
    measure(s, st);
    for (uint32_t i = 0; i < st->job.n_entries; i++) {
        struct run *run = st->runs[i];

        const int status = failed < 0 ? failed : st->entries[i].status;

        run->n_in_flight--;
        run->n_samples -= st->entries[i].n_logits;
        take_facts(s, st, i, status);
        if (run->keeps && run->slot->state == SLOT_RUNNING)
            keep_pages(s, run);
        take_result(s, run, &st->entries[i], status);
        if (run->slot && run->slot->state == SLOT_ENDING)
            slot_end_advance(s, run->slot);
        else if (run->finished)
            run_ghost_advance(s, run);
        run_drop(s, run);
    }
}
