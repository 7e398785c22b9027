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

void run_drop(struct run *run)
{
    if (!run->told || run->slot || run->n_in_flight > 0 || run->has_events)
        return;
    run->r->run = NULL;
    (void)request_unref(run->r);
    free(run);
}

uint32_t slots_pages_returning(const struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++)
        if (s->slots[i].state == SLOT_RELEASING)
            n += sequence_n_pages(s->slots[i].seq);
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

        if (slot->state != SLOT_RUNNING)
            continue;
        have = sequence_n_pages(slot->seq);
        if (run->n_rows < run->n_goal)
            want = run_pages_to_start(run);
        else
            want = engine_pages(run->n_rows < rows_at_most(run) ? run->n_rows + 1 : run->n_rows);
        n += want > have ? want - have : 0;
    }
    return n;
}

static struct slot *find_free_slot(struct sched *s, uint32_t *ret_n_busy)
{
    struct slot *found = NULL;

    *ret_n_busy = 0;
    for (uint32_t i = 0; i < s->o.parallel; i++) {
        if (s->slots[i].state == SLOT_FREE && !found)
            found = &s->slots[i];
        *ret_n_busy += s->slots[i].state == SLOT_RUNNING || s->slots[i].state == SLOT_RELEASING;
    }
    return found;
}

/*
 * `run` leaves the queue and begins in `slot`.  This is where its source is found, pinned and
 * mounted once there is a cache: the longest useful prefix would be submitted as a JOB_MOUNT here,
 * and n_rows, n_done, n_cached and n_read would begin at its position.  Until then every prompt is
 * read from 0.
 */
static int slot_start(struct sched *s, struct slot *slot, struct run *run)
{
    struct request *r = run->r;
    int rc;

    rc = sequence_new(s->engine, &slot->seq);
    if (rc < 0)
        return rc;

    queue_remove(s, run);
    slot->state = SLOT_RUNNING;
    slot->run = run;
    run->slot = slot;
    run->n_goal = (uint32_t)r->prompt.n + r->n_generated;
    run->n_rows = run->n_done = run->n_samples = 0;
    r->slot = (int)slot->i;
    r->state = REQUEST_READING;
    if (r->t_start == 0)
        r->t_start = clock_ns();
    return 0;
}

void slots_admit(struct sched *s)
{
    const struct units *u = engine_units(s->engine);

    for (struct run *run = s->queue, *next; run; run = next) {
        uint32_t n_busy, need = run_pages_to_start(run);
        struct slot *slot = find_free_slot(s, &n_busy);
        int rc;

        next = run->next;
        if (!slot)
            return;
        if (run->paused)
            continue;
        /* First come, first served: nobody passes the oldest.  With nobody left to wait for it may
         * try its luck. */
        if (n_busy > 0 && need + pages_promised(s) > u->n_free)
            return;

        rc = slot_start(s, slot, run);
        if (rc < 0 && n_busy > 0)
            return;
        if (rc < 0)
            run_finish(s, run, FINISH_ERROR, rc, "no sequence could be started");
    }
}

/* Rows that have not started are skipped; the release waits behind what is in flight. */
static void slot_release(struct sched *s, struct slot *slot)
{
    struct err_text e = {0};

    if (engine_in_flight(s->engine) == 0)
        s->progressed = true;
    sequence_cancel(slot->seq);
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
    }
    run_drop(run);
}

void run_park(struct sched *s, struct run *run)
{
    run->r->state = REQUEST_QUEUED;
    s->totals.parked++;
    slot_release(s, run->slot);
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
        s->totals.failed++;
    } else if (why == FINISH_CANCELLED) {
        s->totals.cancelled++;
    } else {
        s->totals.finished++;
    }

    if (run->slot && run->slot->state == SLOT_RUNNING)
        slot_release(s, run->slot);
    else if (run->queued)
        queue_remove(s, run);
    sched_note(s, run, RUN_DONE);
    if (r->text.len != n_text || r->n_tokens_released != n_released)
        sched_note(s, run, RUN_OUTPUT);
}
