/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step holds.
 *
 * Two passes over the running, oldest first: `share` says how many rows each may have, `place`
 * finds the pages for them.  Pages go to the oldest first, so when they run out it is the younger
 * ones who wait, or leave: the oldest is always served, and so everybody becomes the oldest.
 * Somebody who waits keeps its pages until an older one needs them; to leave earlier would cost a
 * second reading for nothing.
 */
#include "daemon/sched_private.h"

#include <errno.h>

/* The running, oldest first; returns their number. */
static uint32_t sort_by_age(struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++) {
        struct slot *slot = &s->slots[i];
        uint32_t k = n;

        if (slot->state != SLOT_RUNNING)
            continue;
        for (; k > 0 && s->by_age[k - 1]->run->order > slot->run->order; k--)
            s->by_age[k] = s->by_age[k - 1];
        s->by_age[k] = slot;
        n++;
    }
    return n;
}

/*
 * Rows of prompts for this step.  Between tokens of others one chunk; with nobody to wait for it as
 * many as fit into max_gap_ms by what was measured, since a cancellation and the watchdog wait for
 * the step too.  Before anything was measured, one chunk.
 */
static uint32_t prompt_budget(const struct sched *s, uint32_t n_decode)
{
    const uint32_t room = s->max_rows - n_decode;
    uint32_t n = SCHED_CHUNK;

    if (n_decode == 0 && s->ns_per_row > 0) {
        double fit = (double)s->o.max_gap_ms * 1e6 / s->ns_per_row;

        n = fit >= (double)room ? room : (uint32_t)fit;
        n -= n % SCHED_CHUNK;
        if (n < SCHED_CHUNK)
            n = SCHED_CHUNK;
    }
    return n < room ? n : room;
}

/* Deals `budget` rows to the readers in turn, a chunk at a time, beginning behind the one that was
 * served last. */
static void share_prompts(struct sched *s, uint32_t n, uint32_t budget)
{
    uint32_t first = 0, dealt = 1;

    while (first < n && s->by_age[first]->run->order <= s->served)
        first++;
    while (budget > 0 && dealt > 0) {
        dealt = 0;
        for (uint32_t k = 0; k < n && budget > 0; k++) {
            struct slot *slot = s->by_age[(first + k) % n];
            const struct run *run = slot->run;
            uint32_t rows;

            if (run->paused || !is_reading(run))
                continue;
            rows = run->n_goal - run->n_rows - slot->n_share;
            rows = rows < SCHED_CHUNK ? rows : SCHED_CHUNK;
            rows = rows < budget ? rows : budget;
            if (rows == 0)
                continue;
            slot->n_share += rows;
            budget -= rows;
            dealt += rows;
            s->served = run->order;
        }
    }
}

static void share(struct sched *s, uint32_t n)
{
    uint32_t n_decode = 0;

    for (uint32_t k = 0; k < n; k++) {
        struct slot *slot = s->by_age[k];
        const struct run *run = slot->run;

        /* No row for a token that cannot be wanted: the last one is sampled, not read.  Nor for
         * one that may be another: what follows n_hold is said when all before it is known. */
        slot->n_share = !run->paused && !run->finished && !is_reading(run) &&
                        run->r->n_generated + run->n_samples < run->n_limit &&
                        run->r->n_generated + run->n_samples < run->r->n_hold;
        n_decode += slot->n_share;
    }
    share_prompts(s, n, prompt_budget(s, n_decode));
}

/* It could leave now, and that would free something. */
static bool may_park(const struct slot *slot)
{
    if (slot->state == SLOT_LOADING)
        return slot->n_jobs + slot->n_loads == 0;
    return slot->state == SLOT_RUNNING && sequence_n_pages(slot->seq) > 0;
}

/*
 * Who has to leave so that `run` gets pages: one that is paused, else the youngest that is younger;
 * for the oldest of the running also one that waits for pages to begin with, whatever its age.
 * NULL: nobody.
 */
static struct run *find_victim(const struct sched *s, const struct run *run, bool is_oldest)
{
    struct run *found = NULL;

    for (uint32_t i = 0; i < s->o.parallel; i++) {
        const struct slot *slot = &s->slots[i];
        struct run *other = slot->run;

        if (other == run || !may_park(slot))
            continue;
        if (!other->paused && other->order < run->order &&
            !(is_oldest && slot->state == SLOT_LOADING))
            continue;
        if (!found || other->paused > found->paused ||
            (other->paused == found->paused && other->order > found->order))
            found = other;
    }
    return found;
}

static uint32_t reserve(const struct sched *s)
{
    return pages_reserved(s, slots_busy(s));
}

static bool steps_in_flight(const struct sched *s)
{
    for (int i = 0; i < SCHED_STEPS; i++)
        if (s->steps[i].in_flight)
            return true;
    return false;
}

/*
 * `run` needs one page and none is free.  What was parked comes back with a later step, so `run`
 * only waits here. The oldest with nobody left to park cannot be helped.
 */
static void make_room(struct sched *s, struct run *run, bool is_oldest)
{
    /* What is parked leaves first, and some of it only when it has been copied. */
    while (pages_free_up(s, 1 + reserve(s)) <= reserve(s) &&
           slots_pages_returning(s) + s->n_coming == 0) {
        struct run *victim = find_victim(s, run, is_oldest);

        if (!victim && run->finished) {
            run->n_goal = run->n_rows; /* others will read it themselves */
            return;
        }
        /* What is in flight holds pages too: checkpoints that it takes. */
        if (!victim && steps_in_flight(s))
            return;
        if (!victim && is_oldest && run->keeps) {
            /* Its own checkpoints have to make way. */
            if (run->r->decision)
                run->r->decision->keep_error = -ENOSPC;
            keep_nothing(s, run);
            continue;
        }
        /* The cache may fail, a request may not: at last, what an operator pinned. */
        if (!victim && is_oldest && s->o.cache && cache_yield_pin(s->o.cache))
            continue;
        if (!victim) {
            if (is_oldest)
                run_finish(s, run, FINISH_ERROR, ERR_CAPACITY, "no page is left in the pool");
            return;
        }
        run_park(s, victim);
    }
    /* Nothing may be in flight that would make the loop turn again. */
    if (engine_units(s->engine)->n_free > reserve(s))
        sched_wake(s);
}

/* Checkpoints that these rows pass; for want of pages they are left out. */
static void add_captures(struct sched *s, struct step *st, uint32_t i, const struct run *run,
                         uint32_t n_rows)
{
    struct step_entry *en = &st->entries[i];
    uint32_t from = run->n_rows;
    struct capture_plan p;

    while (en->n_captures < STEP_CAPTURES && next_capture(s, run, from, run->n_rows + n_rows, &p)) {
        const uint32_t k = i * STEP_CAPTURES + en->n_captures;
        uint32_t *units = st->capture_units + (size_t)k * s->checkpoint_units;

        from = p.pos;
        if (pages_take(s, s->checkpoint_units, units) < 0) {
            if (run->r->decision)
                run->r->decision->n_checkpoints_skipped++;
            continue;
        }
        st->captures[k] = (struct step_capture){p.pos, units};
        st->kinds[k] = p.kinds;
        en->n_captures++;
    }
    if (en->n_captures > 0)
        en->captures = &st->captures[(size_t)i * STEP_CAPTURES];
}

static void add_entry(struct sched *s, struct step *st, struct run *run, uint32_t n_rows,
                      uint32_t n_units)
{
    struct request *r = run->r;
    const uint32_t i = st->job.n_entries++;
    struct step_entry *en = &st->entries[i];
    const bool last = run->n_rows + n_rows >= run->n_goal;

    *en = (struct step_entry){
        .seq = run->slot->seq,
        .n_rows = n_rows,
        .n_logits = last && run->n_limit > 0 && !run->finished,
        .units = n_units ? st->units + st->n_units : NULL,
        .n_units = n_units,
        .sampling = &r->sampling,
        .samples = &st->samples[i],
    };
    if (is_reading(run)) {
        en->ids = st->ids + st->n_ids;
        for (uint32_t k = 0; k < n_rows; k++)
            st->ids[st->n_ids++] = run->ids[run->n_rows + k];
        st->n_prompt_rows += n_rows;
    }
    if (s->checkpoint_units > 0)
        add_captures(s, st, i, run, n_rows);
    st->runs[i] = run;
    st->n_rows += n_rows;
    st->n_units += n_units;
}

/* Its rows, or as many as there are pages for; with none it makes room for the next step. */
static void place(struct sched *s, struct step *st, struct run *run, bool is_oldest)
{
    struct units *u = engine_units(s->engine);
    const uint32_t have = sequence_n_pages(run->slot->seq);
    /* 64-bit: a pool may hold more tokens than a sequence can. */
    const uint32_t need = engine_pages(run->n_rows + run->slot->n_share) - have;
    const uint32_t n_free = pages_free_up(s, need + reserve(s)),
                   n_usable = n_free > reserve(s) ? n_free - reserve(s) : 0;
    const uint64_t fit = ((uint64_t)have + n_usable) * ENGINE_PAGE_TOKENS - run->n_rows;
    uint32_t n_rows = run->slot->n_share, n_units;

    if (n_rows > fit)
        n_rows = (uint32_t)fit;
    if (n_rows == 0) {
        make_room(s, run, is_oldest);
        return;
    }
    n_units = engine_pages(run->n_rows + n_rows) - have;
    if (n_units > 0 && units_take(u, n_units, st->units + st->n_units) < 0)
        return;
    add_entry(s, st, run, n_rows, n_units);
}

bool plan_step(struct sched *s, struct step *st)
{
    const uint32_t n = sort_by_age(s);

    step_clear(st);
    share(s, n);
    for (uint32_t k = 0; k < n; k++) {
        struct slot *slot = s->by_age[k];

        /* Parked a moment ago, by an older one. */
        if (slot->state == SLOT_RUNNING && slot->n_share > 0)
            place(s, st, slot->run, k == 0);
    }
    return st->job.n_entries > 0;
}
