/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request leaves: pages as they fill, checkpoints where somebody will want to resume, and at
 * its end the last page and its conversation.
 *
 * A checkpoint is taken inside the step that passes its position, and waits here until the page it
 * lies on is published.
 */
#include "daemon/sched_private.h"

#include "util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- where checkpoints are taken ---------------------------------------------------------------
 */

bool plan_capture(struct run *run, uint32_t pos, unsigned int kinds)
{
    uint32_t i;

    for (i = 0; i < run->n_plan && run->plan[i].pos < pos; i++)
        ;
    if (i < run->n_plan && run->plan[i].pos == pos) {
        run->plan[i].kinds |= kinds;
        return true;
    }
    if (run->n_plan == RUN_CAPTURES)
        return false;
    memmove(&run->plan[i + 1], &run->plan[i], (run->n_plan - i) * sizeof run->plan[0]);
    run->plan[i] = (struct capture_plan){pos, kinds};
    run->n_plan++;
    return true;
}

static void plan_ahead(struct run *run, uint32_t from, uint32_t pos, unsigned int kinds)
{
    if (pos > from && pos < run_n_ids(run))
        (void)plan_capture(run, pos, kinds);
}

static uint32_t wanted_root(const struct sched *s, const struct request *r)
{
    return r->root_asked || r->bounds.root >= s->o.root_min ? r->bounds.root : 0;
}

void plan_captures(struct sched *s, struct run *run, uint32_t from, uint32_t n_common)
{
    const struct request *r = run->r;
    const uint32_t n = (uint32_t)r->prompt.n;

    run->n_plan = 0;
    if (!run->space || s->checkpoint_units == 0)
        return;
    plan_ahead(run, from, wanted_root(s, r), CACHE_AT_ROOT);
    plan_ahead(run, from, r->bounds.turn, CACHE_AT_TURN);
    plan_ahead(run, from, r->bounds.query, CACHE_AT_QUERY);
    if (n > 1 && n - 1 - r->bounds.turn > CACHE_PAGE)
        plan_ahead(run, from, n - 1, CACHE_AT_LAST);
    /* For less than a page of tokens a checkpoint costs more than it saves. */
    if (n_common >= from + CACHE_PAGE)
        plan_ahead(run, from, n_common, CACHE_AT_BRANCH);
}

bool next_capture(const struct sched *s, const struct run *run, uint32_t from, uint32_t to,
                  struct capture_plan *ret)
{
    const uint32_t every = s->o.checkpoint_every;
    bool found = false;

    if (!run->keeps || s->checkpoint_units == 0)
        return false;
    for (uint32_t i = 0; i < run->n_plan && !found; i++)
        if (run->plan[i].pos > from && run->plan[i].pos <= to) {
            *ret = run->plan[i];
            found = true;
        }
    if (every > 0 && from / every < to / every) {
        const uint32_t pos = (from / every + 1) * every;

        if (pos < run->r->prompt.n && (!found || pos < ret->pos)) {
            *ret = (struct capture_plan){pos, CACHE_AT_INTERVAL};
            found = true;
        }
    }
    return found;
}

/* --- publishing --------------------------------------------------------------------------------
 */

static void check_free(struct sched *s, struct kept_check *k)
{
    pages_give(s, s->checkpoint_units, k->units);
    free(k->units);
    free(k);
}

void keep_check(struct sched *s, struct run *run, uint32_t pos, unsigned int kinds,
                const uint32_t *units)
{
    struct kept_check *k = calloc(1, sizeof *k);

    if (k)
        k->units = calloc(s->checkpoint_units, sizeof *k->units);
    if (!k || !k->units) {
        free(k);
        pages_give(s, s->checkpoint_units, units);
        return;
    }
    memcpy(k->units, units, s->checkpoint_units * sizeof *units);
    k->pos = pos;
    k->kinds = kinds;
    k->next = run->kept;
    run->kept = k;
}

static void failed(struct run *run, int rc)
{
    if (run->r->decision)
        run->r->decision->keep_error = rc;
}

/* Those up to `end`, which is published. */
static void publish_checks(struct sched *s, struct run *run, uint32_t end)
{
    const int32_t *tail = run->ids + (size_t)run->cursor.n_pages * CACHE_PAGE;

    for (struct kept_check **at = &run->kept, *k; (k = *at);) {
        int rc;

        if (k->pos > end) {
            at = &k->next;
            continue;
        }
        rc = cache_add_checkpoint(s->o.cache, &run->cursor, tail, k->pos, k->kinds, k->units);
        if (rc < 0)
            failed(run, rc);
        else if (run->r->decision)
            run->r->decision->n_checkpoints++;
        *at = k->next;
        check_free(s, k);
    }
}

static void publish_root(struct sched *s, struct run *run, uint32_t end)
{
    const uint32_t root = wanted_root(s, run->r);

    if (run->root_done || root == 0 || end < root)
        return;
    run->root_done =
        cache_make_root(s->o.cache, &run->cursor,
                        run->ids + (size_t)run->cursor.n_pages * CACHE_PAGE, root, clock_ns()) != 0;
}

void keep_pages(struct sched *s, struct run *run)
{
    const uint32_t had = run->cursor.n_pages;

    if (!run->keeps)
        return;
    cache_set_cause(s->o.cache, run->r->id);
    while (run->keeps && (run->cursor.n_pages + 1) * CACHE_PAGE <= run->n_ran) {
        const uint32_t i = run->cursor.n_pages;
        const int rc = cache_extend(s->o.cache, &run->cursor, run->ids + (size_t)i * CACHE_PAGE,
                                    sequence_pages(run->slot->seq)[i], clock_ns());

        if (rc < 0) {
            failed(run, rc);
            run->keeps = false;
        }
    }
    publish_checks(s, run, run->cursor.n_pages * CACHE_PAGE);
    /* What it was mounted from counts too. */
    publish_root(s, run,
                 run->pin.held && run->pin.m.pos > run->cursor.n_pages * CACHE_PAGE
                     ? run->pin.m.pos
                     : run->cursor.n_pages * CACHE_PAGE);
    /* The source is let go of when its last rows are published here as well. */
    if (run->cursor.n_pages > had && run->slot->n_jobs == 0 &&
        run->cursor.n_pages * CACHE_PAGE >= run->pin.m.pos)
        cache_unpin(s->o.cache, &run->pin);
}

/* --- the end -----------------------------------------------------------------------------------
 */

void keep_nothing(struct sched *s, struct run *run)
{
    while (run->kept) {
        struct kept_check *k = run->kept;

        run->kept = k->next;
        check_free(s, k);
    }
    run->keeps = false;
    if (!run->space)
        return;
    cache_cursor_done(s->o.cache, &run->cursor);
    cache_unpin(s->o.cache, &run->pin);
}

static void publish_tail(struct sched *s, struct run *run)
{
    const uint32_t begin = run->cursor.n_pages * CACHE_PAGE;
    int rc;

    if (!run->keeps || run->n_ran <= begin)
        return;
    rc = cache_extend_tail(s->o.cache, &run->cursor, run->ids + begin, run->n_ran - begin,
                           sequence_pages(run->slot->seq)[run->cursor.n_pages], clock_ns());
    if (rc < 0) {
        failed(run, rc);
        run->keeps = false;
        return;
    }
    publish_checks(s, run, run->n_ran);
    publish_root(s, run, run->n_ran);
}

/*
 * Where the last message of the prompt begins; without boundaries, its last token.  So too when
 * that is the root's end: whoever goes on from there is another chat, not the next turn of this
 * one.
 */
static uint32_t turn_of(const struct request *r)
{
    return r->bounds.turn > r->bounds.root ? r->bounds.turn : (uint32_t)r->prompt.n - 1;
}

static uint32_t query_of(const struct request *r)
{
    return r->bounds.query > r->bounds.root ? r->bounds.query : 0;
}

static void park(struct sched *s, struct run *run)
{
    struct slot *slot = run->slot;
    struct decision *x = run->r->decision;
    const uint32_t turn = turn_of(run->r), query = query_of(run->r);
    const struct cache_ending end = {
        .conversation = run->conversation,
        .n_tokens = run->n_ran,
        .turn_pos = turn < run->n_ran ? turn : 0,
        .query_pos = query < run->n_ran ? query : 0,
        .tail = run->ids + (size_t)run->cursor.n_pages * CACHE_PAGE,
    };
    uint64_t id;
    uint32_t n;

    /* What it generated may have left a stored answer behind. */
    n = cache_supersede(s->o.cache, run->space, run->ids, run->n_ran, run->conversation);
    id = cache_park(s->o.cache, &run->cursor, &end, clock_ns());
    slot->remembers = id;
    slot->last_used = run->order;
    run->conversation = 0;
    if (x) {
        x->conversation = id;
        x->n_kept = id ? run->n_ran : 0;
        x->n_superseded += n;
    }
}

void keep_drop(struct sched *s, struct run *run)
{
    struct cache_cursor u = run->cursor;

    run->keeps = false;
    if (!run->space)
        return;
    /* Its source, when it has no page of its own yet. */
    if (u.n_pages == 0 && run->pin.held)
        u.node = run->pin.m.node;
    cache_set_cause(s->o.cache, run->r->id);
    cache_drop_path(s->o.cache, &u);
}

void keep_end(struct sched *s, struct run *run, bool parked_itself)
{
    if (!run->space)
        return;
    cache_set_cause(s->o.cache, run->r->id);
    keep_pages(s, run);
    publish_tail(s, run);
    if (!parked_itself) {
        if (run->keeps && run->n_ran > 0)
            park(s, run);
        else if (run->conversation)
            cache_abandon_conversation(s->o.cache, run->conversation, clock_ns());
        run->conversation = 0;
    }
    keep_nothing(s, run);
    if (run->r->decision)
        run->r->decision->keeping = false;
    cache_set_cause(s->o.cache, 0);
}
