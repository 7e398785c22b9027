/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's way: the queue, a slot, the end of its sequence, and from there out or back to the
 * queue.
 *
 * The queue is kept by age, so a parked run, which is older than anybody who has never run, is at
 * its front.
 */
#include "daemon/sched_private.h"

#include "util/clock.h"

#include <errno.h>
#include <stdlib.h>

void queue_insert(struct sched *s, struct run *run)
{
    struct run *after = s->queue_tail;

    while (after && after->order > run->order)
        after = after->prev;
    run->prev = after;
    run->next = after ? after->next : s->queue;
    if (run->next)
        run->next->prev = run;
    else
        s->queue_tail = run;
    if (after)
        after->next = run;
    else
        s->queue = run;
    run->queued = true;
    s->n_queued++;
}

static void queue_remove(struct sched *s, struct run *run)
{
    if (run->prev)
        run->prev->next = run->next;
    else
        s->queue = run->next;
    if (run->next)
        run->next->prev = run->prev;
    else
        s->queue_tail = run->prev;
    run->prev = run->next = NULL;
    run->queued = false;
    s->n_queued--;
}

void run_drop(struct sched *s, struct run *run)
{
    if (!run->told || run->slot || run->n_in_flight > 0 || run->has_events)
        return;
    if (s->o.cache)
        cache_space_unref(s->o.cache, run->space);
    run->r->run = NULL;
    (void)request_unref(run->r);
    free(run->ids);
    free(run);
}

/* --- pages -------------------------------------------------------------------------------------
 */

uint32_t pages_free_up(struct sched *s, uint32_t n)
{
    const struct units *u = engine_units(s->engine);

    /* Again, as what it gives back may be a running sequence's too. */
    while (s->o.cache && u->n_free < n && cache_shed(s->o.cache, n - u->n_free, &s->n_coming) > 0)
        ;
    return u->n_free;
}

int pages_take(struct sched *s, uint32_t n, uint32_t *ret)
{
    (void)pages_free_up(s, n);
    return units_take(engine_units(s->engine), n, ret);
}

void pages_give(struct sched *s, uint32_t n, const uint32_t *units)
{
    for (uint32_t i = 0; i < n; i++)
        units_unref(engine_units(s->engine), units[i]);
}

uint32_t pages_reserved(const struct sched *s, uint32_t n_busy)
{
    return n_busy > 1 && s->n_units >= 16 * s->checkpoint_units ? s->checkpoint_units : 0;
}

uint32_t slots_pages_returning(const struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++) {
        const struct slot *slot = &s->slots[i];

        if (slot->state == SLOT_RELEASING)
            n += sequence_n_pages(slot->seq);
        else if (slot->state == SLOT_ENDING)
            n += sequence_n_pages(slot->seq) + 1;
        else if (slot->state == SLOT_LOADING && slot->n_jobs + slot->n_loads > 0)
            n++;
    }
    return n;
}

/* Rows it can need at most: the last token it may sample is never read. */
static uint32_t rows_at_most(const struct run *run)
{
    return (uint32_t)run->r->prompt.n + (run->n_limit > 0 ? run->n_limit - 1 : 0);
}

uint32_t run_pages_to_start(const struct run *run)
{
    uint32_t most = engine_pages(rows_at_most(run));
    uint32_t n = engine_pages((uint32_t)run->r->prompt.n + run->r->n_generated) + 1;

    return n < most ? n : most;
}

/* Pages that the running have been admitted for and not taken yet. */
static uint32_t pages_promised(const struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++) {
        const struct slot *slot = &s->slots[i];
        const struct run *run = slot->run;
        uint32_t have, want;

        if (slot->state != SLOT_RUNNING && slot->state != SLOT_LOADING)
            continue;
        have = slot->state == SLOT_RUNNING ? sequence_n_pages(slot->seq)
                                           : run->pin.m.pos / ENGINE_PAGE_TOKENS;
        if (run->n_rows < run->n_goal)
            want = run_pages_to_start(run);
        else
            want = engine_pages(run->n_rows < rows_at_most(run) ? run->n_rows + 1 : run->n_rows);
        n += want > have ? want - have : 0;
    }
    return n;
}

/* --- slots -------------------------------------------------------------------------------------
 */

uint32_t slots_busy(const struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++)
        n += s->slots[i].state != SLOT_FREE && s->slots[i].state != SLOT_LOST;
    return n;
}

/*
 * A free slot, best the one that remembers this conversation (0: none), else one that remembers
 * nothing, else the one that ran longest ago.
 */
static struct slot *find_free_slot(struct sched *s, uint64_t conversation)
{
    struct slot *found = NULL;

    for (uint32_t i = 0; i < s->o.parallel; i++) {
        struct slot *slot = &s->slots[i];

        if (slot->state != SLOT_FREE)
            continue;
        if (conversation && slot->remembers == conversation)
            return slot;
        if (!found ||
            (found->remembers && (!slot->remembers || slot->last_used < found->last_used)))
            found = slot;
    }
    return found;
}

/* Its tokens, with room for all that it may sample and what comes after its end. */
static int make_ids(struct run *run)
{
    const struct request *r = run->r;

    if (run->ids)
        return 0;
    run->cap_ids = (uint32_t)r->prompt.n + run->n_limit + SCHED_STEPS + 1;
    run->ids = malloc(run->cap_ids * sizeof *run->ids);
    if (!run->ids)
        return -ENOMEM;
    for (size_t i = 0; i < r->prompt.n; i++)
        run->ids[i] = r->prompt.ids[i];
    run->n_ids = (uint32_t)r->prompt.n;
    return 0;
}

/* `run` leaves the queue and begins in `slot`, with what was found for it. */
static int slot_start(struct sched *s, struct slot *slot, struct run *run,
                      const struct cache_found *f)
{
    struct request *r = run->r;
    int rc = make_ids(run);

    if (rc >= 0)
        rc = sequence_new(s->engine, &slot->seq);
    if (rc < 0)
        return rc;

    queue_remove(s, run);
    slot->run = run;
    run->slot = slot;
    run->n_goal = run->n_ids;
    run->n_rows = run->n_done = run->n_ran = run->n_samples = 0;
    r->slot = (int)slot->i;
    r->state = REQUEST_READING;
    if (r->t_start == 0)
        r->t_start = clock_ns();
    mount_begin(s, slot, f);
    return 0;
}

void slots_admit(struct sched *s)
{
    for (struct run *run = s->queue, *next; run; run = next) {
        const uint32_t n_busy = slots_busy(s);
        struct cache_found f;
        struct slot *slot;
        uint32_t need, avail;
        int rc;

        next = run->next;
        if (!find_free_slot(s, 0))
            return;
        if (run->paused || join_goes_on(s, run))
            continue;
        run_find(s, run, &f);
        /* Waiting for others takes no slot, and others may pass. */
        if (join_wait(s, run, f.best.pos))
            continue;
        /* First come, first served: nobody passes the oldest.  With nobody left to wait for it may
         * try its luck. */
        need = run_units_to_start(s, run, &f, &avail);
        if (n_busy > 0 && need + pages_promised(s) + pages_reserved(s, n_busy + 1) > avail)
            return;

        slot = find_free_slot(s, f.best.continues ? f.best.conversation : 0);
        rc = slot_start(s, slot, run, &f);
        if (rc < 0 && n_busy > 0)
            return;
        if (rc < 0)
            run_finish(s, run, FINISH_ERROR, rc, "no sequence could be started");
    }
}

/* --- the end of a run in a slot ----------------------------------------------------------------
 */

static void slot_release(struct sched *s, struct slot *slot)
{
    struct err_text e = {0};

    if (engine_in_flight(s->engine) == 0)
        s->progressed = true;
    slot->release =
        (struct job_release){.job = {.kind = JOB_RELEASE, .user = slot}, .seq = slot->seq};
    slot->state = engine_submit(s->engine, &slot->release.job, &e) < 0 ? SLOT_LOST : SLOT_RELEASING;
    if (slot->state == SLOT_LOST) {
        struct run *run = slot->run;

        /* Cannot be unless the books of the two sides differ; the request must still end. */
        slot->run = NULL;
        run->slot = NULL;
        run_finish(s, run, FINISH_ERROR, -EIO, e.s);
    }
}

/* The state at its end, wherever that will be: nobody knew the position before. */
static void capture_end(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    struct err_text e;

    if (!run->keeps || s->checkpoint_units == 0 || run->n_rows == 0 ||
        run->r->error == ERR_NONFINITE)
        return;
    slot->capture = (struct job_capture){
        .job = {.kind = JOB_CAPTURE, .user = slot}, .seq = slot->seq, .units = slot->end_units};
    if (pages_take(s, s->checkpoint_units, slot->end_units) < 0) {
        if (run->r->decision)
            run->r->decision->n_checkpoints_skipped++;
        return;
    }
    if (engine_submit(s->engine, &slot->capture.job, &e) >= 0) {
        slot->n_jobs++;
        return;
    }
    pages_give(s, s->checkpoint_units, slot->end_units);
}

void slot_captured(struct sched *s, struct slot *slot)
{
    slot->n_jobs--;
    if (slot->capture.job.status >= 0) {
        keep_check(s, slot->run, slot->capture.pos, CACHE_AT_END, slot->end_units);
    } else {
        pages_give(s, s->checkpoint_units, slot->end_units);
    }
    slot_end_advance(s, slot);
}

void slot_end_advance(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;

    if (run->n_in_flight > 0 || slot->n_jobs > 0 || slot->n_loads > 0)
        return;
    keep_end(s, run, !run->finished);
    slot_release(s, slot);
}

/* Rows that have not started are skipped; what is in flight comes back first. */
static void slot_end(struct sched *s, struct slot *slot)
{
    sequence_cancel(slot->seq);
    if (!slot->run->space) {
        slot_release(s, slot);
        return;
    }
    slot->state = SLOT_ENDING;
    capture_end(s, slot);
    slot_end_advance(s, slot);
}

void slot_released(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;

    slot->state = SLOT_FREE;
    slot->run = NULL;
    slot->seq = NULL;
    run->slot = NULL;
    if (!run->finished) {
        run->r->slot = -1;
        queue_insert(s, run);
    } else if (run->conversation) {
        /* Cancelled on its way back to the queue. */
        cache_abandon_conversation(s->o.cache, run->conversation, clock_ns());
        run->conversation = 0;
    }
    run_drop(s, run);
}

static void back_to_queue(struct sched *s, struct run *run)
{
    if (!run->finished)
        run->r->state = REQUEST_QUEUED;
    slot_end(s, run->slot);
}

void run_park(struct sched *s, struct run *run)
{
    s->totals.parked++;
    back_to_queue(s, run);
}

void run_restart(struct sched *s, struct run *run)
{
    run->keeps = false;
    back_to_queue(s, run);
}

void run_ghost_advance(struct sched *s, struct run *run)
{
    struct slot *slot = run->slot;

    if (!slot || slot->state != SLOT_RUNNING || !run->finished)
        return;
    if (run->n_ran >= run->n_goal || join_wanted(s, run) <= run->n_ran)
        slot_end(s, slot);
}

/* A reading that others wait for outlives its request, up to where they need it. */
static bool becomes_ghost(struct sched *s, struct run *run)
{
    const uint32_t wanted = run->slot->state == SLOT_RUNNING &&
                                    run->r->finish == FINISH_CANCELLED && is_reading(run) &&
                                    !s->stopping
                                ? join_wanted(s, run)
                                : 0;

    if (wanted <= run->n_ran)
        return false;
    run->n_goal = wanted > run->n_rows ? wanted : run->n_rows;
    run->paused = false;
    return true;
}

static void decision_finish(const struct run *run)
{
    const struct request *r = run->r;
    struct decision *x = r->decision;

    if (!x)
        return;
    x->done = true;
    x->keeping = run->space && run->slot;
    x->finish = (int)r->finish;
    x->n_read = r->n_read > r->n_cached ? r->n_read - r->n_cached : 0;
    x->n_generated = r->n_generated;
    x->t_end = clock_ns();
    x->total_ms = (double)(x->t_end - r->t_submit) / 1e6;
    if (r->t_prompt_done > r->t_start && r->t_start > 0)
        x->read_ms = (double)(r->t_prompt_done - r->t_start) / 1e6 - x->load_ms;
}

void run_finish(struct sched *s, struct run *run, enum finish_reason why, int error,
                const char *words)
{
    struct request *r = run->r;
    const size_t n_text = r->text.len, n_released = r->n_tokens_released;
    int rc;

    if (run->finished)
        return;
    run->finished = true;

    rc = request_end_text(r);
    if (rc < 0 && why != FINISH_ERROR) {
        why = FINISH_ERROR;
        error = rc;
        words = "no memory for the end of the text";
    }
    if (rc > 0 && why == FINISH_LENGTH)
        why = FINISH_STOP;
    r->finish = why;
    r->state = REQUEST_DONE;
    if (why == FINISH_ERROR) {
        r->error = error;
        (void)err_set(&r->error_text, error, "%s: %s", words, err_str(error));
        /* At once: nobody may begin with it any more. */
        if (error == ERR_NONFINITE)
            keep_drop(s, run);
        s->totals.failed++;
    } else if (why == FINISH_CANCELLED) {
        s->totals.cancelled++;
    } else {
        s->totals.finished++;
    }

    decision_finish(run);
    if (run->slot && (run->slot->state == SLOT_RUNNING || run->slot->state == SLOT_LOADING)) {
        if (!becomes_ghost(s, run))
            slot_end(s, run->slot);
    } else if (run->queued) {
        queue_remove(s, run);
        if (run->conversation)
            cache_abandon_conversation(s->o.cache, run->conversation, clock_ns());
        run->conversation = 0;
    }
    sched_note(s, run, RUN_DONE);
    if (r->text.len != n_text || r->n_tokens_released != n_released)
        sched_note(s, run, RUN_OUTPUT);
}
