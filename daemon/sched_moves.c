/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the tiers: what the cache asks for becomes transfers of the engine, which run
 * beside its steps.
 *
 * A transfer bundles several moves; loads, which somebody waits for, are begun at once, copies to
 * ram only a few at a time, so that a load never waits behind many.
 */
#include "daemon/sched_private.h"

#include "cache/arena.h"
#include "util/clock.h"

#include <stdlib.h>

enum {
    WRITE_BACKS = 2,     /* transfers at once */
    TRANSFER_UNITS = 64, /* of one copy to ram: a few MiB for most models */
};

struct transfer_job {
    struct job_transfer job; /* first */
    struct cache_move *moves;
    struct slot *slot; /* whose mount it is for, borrowed: it waits for n_loads; NULL: nobody's */
    uint64_t t_begin, bytes;
    bool load;
    struct transfer items[];
};

static void fail_all(struct sched *s, struct cache_move *moves)
{
    while (moves) {
        struct cache_move *m = moves;

        moves = m->next;
        cache_move_done(s->o.cache, m, false);
    }
}

static void add_items(struct sched *s, struct transfer_job *t, const struct cache_move *m)
{
    for (uint32_t i = 0; i < m->n_units; i++)
        t->items[t->job.n_items++] = (struct transfer){
            .unit = m->vram[i],
            .host = arena_ptr(s->o.arena, m->ram[i]),
            .n_tokens = m->load ? 0 : m->n_tokens,
        };
}

/* All of one direction; on failure they are done, and failed. */
static bool submit(struct sched *s, struct cache_move *moves, uint32_t n_units, struct slot *slot)
{
    struct transfer_job *t = calloc(1, sizeof *t + n_units * sizeof t->items[0]);
    struct err_text e;

    if (!t) {
        fail_all(s, moves);
        return false;
    }
    t->load = moves->load;
    t->job.job = (struct job){.kind = t->load ? JOB_IMPORT : JOB_EXPORT, .user = t};
    t->job.items = t->items;
    t->moves = moves;
    t->slot = slot;
    t->t_begin = clock_ns();
    t->bytes = n_units * s->unit_bytes;
    for (const struct cache_move *m = moves; m; m = m->next)
        add_items(s, t, m);
    if (engine_submit(s->engine, &t->job.job, &e) < 0) {
        fail_all(s, moves);
        free(t);
        return false;
    }
    if (t->load) {
        s->n_loads++;
    } else {
        s->n_write_backs++;
        s->n_writing += n_units;
    }
    return true;
}

void moves_load(struct sched *s, struct slot *slot, struct cache_move *moves)
{
    uint32_t n_units = 0;

    for (const struct cache_move *m = moves; m; m = m->next)
        n_units += m->n_units;
    if (submit(s, moves, n_units, slot))
        slot->n_loads++;
    else
        slot->run->load_failed = true;
}

/* While stopping only those that somebody has asked for: the pages of what still runs come from
 * there, and the cache cannot be freed before they are done. */
static struct cache_move *next_write_back(struct sched *s, uint32_t n_gathered)
{
    struct cache_stats st;

    if (s->stopping) {
        cache_stats(s->o.cache, &st);
        if (st.tier[CACHE_RAM].units_coming <= s->n_writing + n_gathered)
            return NULL;
    }
    return cache_next_write_back(s->o.cache);
}

void moves_pump(struct sched *s)
{
    if (!s->o.cache)
        return;
    while (s->n_write_backs < WRITE_BACKS) {
        struct cache_move *moves = NULL, **tail = &moves, *m;
        uint32_t n_units = 0;

        while (n_units < TRANSFER_UNITS && (m = next_write_back(s, n_units))) {
            *tail = m;
            tail = &m->next;
            n_units += m->n_units;
        }
        if (!moves || !submit(s, moves, n_units, NULL))
            return;
    }
}

bool moves_idle(const struct sched *s)
{
    return s->n_write_backs == 0 && s->n_loads == 0;
}

static void measure(struct sched *s, const struct transfer_job *t)
{
    const uint64_t ns = clock_ns() - t->t_begin;
    double rate;

    if (ns == 0)
        return;
    rate = (double)t->bytes / (double)ns;
    s->bytes_per_ns = s->bytes_per_ns > 0 ? (s->bytes_per_ns + rate) / 2 : rate;
}

void moves_done(struct sched *s, struct job *j)
{
    struct transfer_job *t = j->user;
    struct slot *slot = t->slot;
    const bool ok = j->status >= 0;

    if (t->load) {
        s->n_loads--;
        if (ok)
            measure(s, t);
    } else {
        s->n_write_backs--;
        s->n_writing -= t->job.n_items;
    }
    while (t->moves) {
        struct cache_move *m = t->moves;

        t->moves = m->next;
        cache_move_done(s->o.cache, m, ok);
    }
    if (slot) {
        slot->n_loads--;
        if (!ok && slot->run)
            slot->run->load_failed = true;
        if (slot->run && slot->run->r->decision && ok)
            slot->run->r->decision->bytes_loaded += t->bytes;
        if (slot->state == SLOT_ENDING)
            slot_end_advance(s, slot);
    }
    s->n_coming = 0; /* asked anew */
    free(t);
    /* Others may have waited for the same pages. */
    for (uint32_t i = 0; i < s->o.parallel; i++)
        if (s->slots[i].state == SLOT_LOADING)
            mount_advance(s, &s->slots[i]);
}
