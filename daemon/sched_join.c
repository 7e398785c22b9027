/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what is being read for another request just now, instead of reading it as well.
 *
 * No promise is remembered: when a queued request could start it is asked again what those in slots
 * still have ahead of it, so a reader that fails, is parked or turns out not to keep what was hoped
 * for just stops being waited for.  What a reader has published is found like anything else.  Only
 * while a reader just reads on towards what it was waited for is nobody asked: a thousand agents
 * may wait for one prompt of a thousand pages.
 */
#include "daemon/sched_private.h"

/* Tokens that have to be worth waiting for. */
enum { JOIN_LEAST = CACHE_PAGE };

static uint32_t common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/*
 * The last position up to d where `run` will be able to resume what `reader` reads.  Its pages are
 * published when they are full, so a position counts when its page will be.
 */
static uint32_t resumable(const struct sched *s, struct run *reader, uint32_t d)
{
    const uint32_t full = reader->n_goal - reader->n_goal % CACHE_PAGE;
    uint32_t pos = d < full ? d : full;
    struct capture_plan p;
    uint32_t from = reader->n_ran, last = 0;

    if (s->checkpoint_units == 0)
        return pos - pos % CACHE_PAGE;
    /* One of its own for those who leave here, if it is not too late. */
    if (pos > reader->n_rows && plan_capture(reader, pos, CACHE_AT_BRANCH))
        return pos;
    for (const struct kept_check *k = reader->kept; k; k = k->next)
        if (k->pos <= pos && k->pos > last)
            last = k->pos;
    while (next_capture(s, reader, from, pos, &p))
        from = last = p.pos;
    return last;
}

/* What `run` would gain by waiting for the run in this slot, and up to which position it would. */
static uint32_t gain(const struct sched *s, const struct run *run, struct run *other,
                     enum slot_state state, uint32_t best, uint32_t *ret_pos)
{
    const uint32_t n = run_n_ids(run) - 1;
    const uint32_t known = other->n_ids < n ? other->n_ids : n;
    uint32_t d, pos;

    *ret_pos = 0;
    if (other == run || other->paused || !other->keeps || other->space != run->space)
        return 0;
    d = common(run_ids(run), other->ids, known);
    if (d <= best)
        return 0;
    if (state == SLOT_ENDING) {
        /* A moment only, and what it leaves is as good as it gets. */
        pos = d < other->n_ran ? d : other->n_ran;
        return pos > best ? JOIN_LEAST : 0;
    }
    if ((state != SLOT_RUNNING && state != SLOT_LOADING) || other->n_ran >= other->n_goal)
        return 0;
    pos = resumable(s, other, d);
    *ret_pos = pos;
    return pos > best && pos > other->cursor.n_pages * CACHE_PAGE ? pos - best : 0;
}

bool join_wait(struct sched *s, struct run *run, uint32_t best)
{
    run->join_with = 0;
    run->join_pos = 0;
    if (!run->space)
        return false;
    for (uint32_t i = 0; i < s->o.parallel; i++) {
        struct slot *slot = &s->slots[i];
        uint32_t pos;

        if (!slot->run || gain(s, run, slot->run, slot->state, best, &pos) < JOIN_LEAST)
            continue;
        run->join_with = slot->run->r->id;
        run->join_pos = pos;
        run->join_ran = slot->run->n_ran;
        if (run->r->decision && slot->state != SLOT_ENDING)
            run->r->decision->joined_with = run->join_with;
        return true;
    }
    return false;
}

bool join_goes_on(const struct sched *s, const struct run *run)
{
    for (uint32_t i = 0; run->join_pos > 0 && i < s->o.parallel; i++) {
        const struct run *other = s->slots[i].run;

        /* One that has begun anew has other plans, and has run less. */
        if (other && other->r->id == run->join_with)
            return s->slots[i].state == SLOT_RUNNING && other->keeps && !other->paused &&
                   other->n_ran >= run->join_ran && other->n_ran < other->n_goal &&
                   other->n_goal >= run->join_pos &&
                   other->cursor.n_pages * CACHE_PAGE < run->join_pos;
    }
    return false;
}

uint32_t join_wanted(const struct sched *s, const struct run *reader)
{
    uint32_t last = 0;

    for (const struct run *q = s->queue; q; q = q->next) {
        uint32_t d;

        if (q->join_with != reader->r->id)
            continue;
        d = common(run_ids(q), reader->ids,
                   run_n_ids(q) < reader->n_ids ? run_n_ids(q) : reader->n_ids);
        /* Up to the end of the page: only then is it published. */
        d += (CACHE_PAGE - d % CACHE_PAGE) % CACHE_PAGE;
        if (d > reader->n_goal)
            d = reader->n_goal;
        if (d > last)
            last = d;
    }
    return last;
}
