/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request begins with.
 *
 * Found and pinned first, then room is made for what has to be loaded, then loaded, its last page
 * copied when it is partial (the sequence writes on in it), then mounted.  Whatever fails on the
 * way costs a shorter prefix, never the request.
 */
#include "daemon/sched_private.h"

#include "util/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is there -----------------------------------------------------------------------------
 */

void run_enter_cache(struct sched *s, struct run *run)
{
    const struct request *r = run->r;
    const size_t n_salt = r->cache_salt ? strlen(r->cache_salt) : 0;
    /* Fixed width or no space in front, so that no salt can imitate another key. */
    char key[64 + 256];
    int n;

    run->n_first = UINT32_MAX;
    if (!s->o.cache || r->no_cache || n_salt > sizeof key - 64)
        return;
    if (r->key && !s->o.share_all)
        n = snprintf(key, 64, "key %s salt ", r->key);
    else
        n = snprintf(key, 64, "uid %010u salt ", s->o.share_all ? 0 : r->uid);
    if (n_salt > 0)
        memcpy(key + n, r->cache_salt, n_salt);
    run->space = cache_space_get(s->o.cache, key, (size_t)n + n_salt, r->uid);
    /* The cache may fail, a request may not. */
    if (!run->space && r->decision)
        r->decision->keep_error = -ENOMEM;
}

void run_find(struct sched *s, struct run *run, struct cache_found *ret)
{
    const uint32_t n = run_n_ids(run);

    *ret = (struct cache_found){0};
    if (run->space && !run->from_0)
        cache_find(s->o.cache, run->space, run_ids(run), n, n - 1, ret);
    if (run->n_first == UINT32_MAX)
        run->n_first = ret->best.pos;
}

uint32_t run_units_to_start(struct sched *s, const struct run *run, const struct cache_found *f,
                            uint32_t *ret_avail)
{
    const uint32_t most = run_pages_to_start(run);
    /* Of a partial page it gets a copy. */
    const uint32_t shared = f->best.pos / ENGINE_PAGE_TOKENS;
    const uint32_t loads = f->best.units_to_load;
    uint32_t need = most > shared ? most - shared : 0;

    *ret_avail = engine_units(s->engine)->n_free;
    if (s->o.cache)
        *ret_avail += cache_idle_vram(s->o.cache) - f->best.units_idle;
    return need + loads;
}

/* --- choosing ----------------------------------------------------------------------------------
 */

/* Milliseconds until the first token, as far as they are known. */
static double estimate(const struct sched *s, uint32_t n, const struct cache_match *m)
{
    double ns = (double)(n - m->pos) * s->ns_per_row;

    if (m->units_to_load > 0 && s->bytes_per_ns > 0)
        ns += (double)m->units_to_load * (double)s->unit_bytes / s->bytes_per_ns;
    return ns / 1e6;
}

static const struct cache_match *choose(const struct sched *s, uint32_t n,
                                        const struct cache_found *f, enum decision_why *ret_why)
{
    *ret_why = f->best.pos > 0 ? WHY_LONGEST : WHY_NOTHING_STORED;
    if (s->ns_per_row > 0 && f->best.units_to_load > 0 &&
        estimate(s, n, &f->vram) < estimate(s, n, &f->best)) {
        *ret_why = WHY_READING_FASTER;
        return &f->vram;
    }
    return &f->best;
}

/* A few tokens that open any next message do not make another conversation's text. */
static bool is_root_only(const struct cache_match *m)
{
    return m->root_pos > 0 && !m->continues && m->pos - m->root_pos < CACHE_PAGE;
}

/* Decided from what was found at arrival (design section 1). */
static void classify(const struct slot *slot, const struct run *run, const struct cache_match *m,
                     struct decision *x)
{
    const bool own = run->conversation != 0;

    x->is_switch = true;
    if (m->pos == 0) {
        x->source = SOURCE_NONE;
    } else if (own && slot->remembers == run->conversation) {
        x->source = SOURCE_SLOT;
        x->is_switch = false;
    } else if (is_root_only(m)) {
        x->source = SOURCE_ROOT;
    } else if (!own) {
        x->source = SOURCE_BORROWED;
    } else {
        x->source = m->units_to_load > 0 ? SOURCE_RAM : SOURCE_VRAM;
    }
    if (x->n_joined > 0)
        x->source = SOURCE_JOINED;
    x->is_hit = x->is_switch && m->pos > 0 && !is_root_only(m);
}

/* Something less was taken: that is its source now; whether it is a switch was settled before. */
static void reclassify(const struct slot *slot, const struct run *run, struct decision *x,
                       enum decision_why why)
{
    const bool is_switch = x->is_switch;

    x->why = why;
    if (run->pin.m.pos <= run->n_first)
        x->n_joined = 0;
    classify(slot, run, &run->pin.m, x);
    x->is_switch = is_switch;
    x->is_hit = is_switch && x->is_hit;
}

static void decide(struct sched *s, const struct slot *slot, const struct run *run,
                   const struct cache_found *f, const struct cache_match *m, enum decision_why why)
{
    struct request *r = run->r;
    struct decision *x = r->decision;
    const struct cache_match none = {0};

    if (!x)
        return;
    if (run->from_0) {
        reclassify(slot, run, x, WHY_LOAD_FAILED);
        return;
    }
    if (x->why != WHY_WAITING) {
        x->n_parked++;
        return;
    }
    x->n_common = f->n_common;
    x->n_found = f->best.pos;
    x->n_found_vram = f->vram.pos;
    x->root_pos = f->best.root_pos;
    x->from = m->conversation;
    x->why = run->space ? why : WHY_CACHE_OFF;
    if (s->ns_per_row > 0) {
        x->est_best_ms = estimate(s, x->n_prompt, &f->best);
        x->est_vram_ms = estimate(s, x->n_prompt, &f->vram);
        x->est_cold_ms = estimate(s, x->n_prompt, &none);
    }
    if (x->joined_with && m->pos > run->n_first)
        x->n_joined = m->pos - run->n_first;
    classify(slot, run, m, x);
    x->wait_ms = clock_ms_since(r->t_submit);
}

/* --- mounting ----------------------------------------------------------------------------------
 */

static void settle(struct sched *s, struct run *run)
{
    if (run->r->decision && !run->settled)
        decision_settled(s->o.decisions, run->r->decision);
    run->settled = true;
}

static void begin_reading(struct sched *s, struct slot *slot, uint32_t pos)
{
    struct run *run = slot->run;
    struct request *r = run->r;
    const uint32_t n_prompt = (uint32_t)r->prompt.n;
    const uint32_t cached = pos < n_prompt ? pos : n_prompt;

    slot->state = SLOT_RUNNING;
    run->n_rows = run->n_done = run->n_ran = pos;
    if (r->n_read < cached) {
        s->totals.cached_tokens += cached - r->n_read;
        r->n_cached += cached - r->n_read;
        r->n_read = cached;
        sched_note(s, run, RUN_PROGRESS);
    }
    if (r->decision) {
        r->decision->n_reused = r->n_cached;
        /* Of the first pass; a later one began long after that. */
        if (!run->settled)
            r->decision->load_ms = clock_ms_since(r->t_start);
    }
    /* A mount may still fail. */
    if (slot->n_jobs == 0)
        settle(s, run);
    run->from_0 = false;
    if (run->keeps)
        keep_pages(s, run);
}

/* Holds `m`, or nothing when that cannot be; the cursor begins there. */
static void take_source(struct sched *s, struct run *run, const struct cache_match *m)
{
    if (!run->space)
        return;
    if (cache_pin(s->o.cache, run->space, m, clock_ns(), &run->pin) < 0)
        run->pin = (struct cache_pin){0};
    cache_cursor_init(s->o.cache, run->space, &run->pin, &run->cursor);
    run->keeps = true;
}

/* What was chosen cannot be had: `m` is taken, and more is read: past other checkpoints. */
static void take_instead(struct sched *s, struct slot *slot, const struct cache_match *m,
                         uint32_t n_common, enum decision_why why)
{
    struct run *run = slot->run;

    cache_cursor_done(s->o.cache, &run->cursor);
    cache_unpin(s->o.cache, &run->pin);
    run->load_failed = false;
    take_source(s, run, m);
    plan_captures(s, run, run->pin.m.pos, n_common);
    if (run->r->decision)
        reclassify(slot, run, run->r->decision, why);
    sched_wake(s);
}

/* What is in vram, or nothing. */
static void fall_back(struct sched *s, struct slot *slot, enum decision_why why)
{
    struct cache_found f;

    run_find(s, slot->run, &f);
    take_instead(s, slot, &f.vram, f.n_common, why);
}

static void read_from_0(struct sched *s, struct slot *slot, enum decision_why why)
{
    take_instead(s, slot, &(struct cache_match){0}, 0, why);
    begin_reading(s, slot, 0);
}

static void submit_mount(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    const uint32_t pos = run->pin.m.pos;
    const uint32_t *checkpoint;
    struct err_text e = {0};
    uint32_t mine = CACHE_NO_UNIT;
    int rc;

    if (slot->copy_item.n_tokens > 0)
        mine = slot->copy_item.unit;
    cache_pin_units(s->o.cache, &run->pin, slot->pages, &checkpoint);
    if (mine != CACHE_NO_UNIT)
        slot->pages[run->pin.m.n_pages - 1] = mine;
    /* The cache's own list may change while the job is in flight. */
    if (checkpoint)
        checkpoint =
            memcpy(slot->check_units, checkpoint, s->checkpoint_units * sizeof *checkpoint);
    slot->mount = (struct job_mount){
        .job = {.kind = JOB_MOUNT, .user = slot},
        .seq = slot->seq,
        .pos = pos,
        .tokens = run->ids,
        .pages = slot->pages,
        .n_pages = run->pin.m.n_pages,
        .checkpoint = checkpoint,
    };
    rc = engine_submit(s->engine, &slot->mount.job, &e);
    if (mine != CACHE_NO_UNIT)
        units_unref(engine_units(s->engine), mine);
    slot->copy_item.n_tokens = 0;
    if (rc < 0) {
        read_from_0(s, slot, WHY_LOAD_FAILED);
        return;
    }
    slot->n_jobs++;
    begin_reading(s, slot, pos);
    sched_wake(s);
}

/* The page that the sequence will write on in: a copy of its own.  -ENOSPC: there is no unit for it
 * now. */
static int submit_copy(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    const uint32_t *checkpoint;
    struct err_text e;
    uint32_t unit;
    int rc;

    if (pages_take(s, 1, &unit) < 0)
        return -ENOSPC;
    cache_pin_units(s->o.cache, &run->pin, slot->pages, &checkpoint);
    slot->copy_item = (struct transfer){
        .unit = unit,
        .from = slot->pages[run->pin.m.n_pages - 1],
        .n_tokens = run->pin.m.pos % ENGINE_PAGE_TOKENS,
    };
    slot->copy = (struct job_transfer){
        .job = {.kind = JOB_COPY, .user = slot}, .items = &slot->copy_item, .n_items = 1};
    rc = engine_submit(s->engine, &slot->copy.job, &e);
    if (rc < 0) {
        units_unref(engine_units(s->engine), unit);
        slot->copy_item.n_tokens = 0;
        return rc == -ENOSPC ? -EIO : rc;
    }
    slot->n_jobs++;
    return 0;
}

/*
 * Everybody waits for pages, and nobody has any on the way: the mounts hold each other's.  The
 * youngest of them has to give way, so that the others get on.
 */
static bool has_to_give_way(const struct sched *s, const struct slot *slot)
{
    if (!moves_idle(s) || s->n_coming > 0)
        return false;
    for (uint32_t i = 0; i < s->o.parallel; i++) {
        const struct slot *other = &s->slots[i];

        if (other->state == SLOT_FREE || other->state == SLOT_LOST)
            continue;
        if (other->state != SLOT_LOADING || other->n_jobs > 0 ||
            other->run->order > slot->run->order)
            return false;
    }
    return true;
}

/* Begins what loads it can; false when nothing is under way and nothing can be begun. */
static bool load_more(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    const uint32_t need = cache_units_to_load(s->o.cache, &run->pin);
    struct cache_move *moves = NULL;
    uint32_t *units, n, used = 0;

    if (need == 0)
        return true;
    n = pages_free_up(s, need);
    n = n < need ? n : need;
    units = n > 0 ? calloc(n, sizeof *units) : NULL;
    if (units && units_take(engine_units(s->engine), n, units) == 0) {
        used = cache_load(s->o.cache, &run->pin, units, n, &moves);
        pages_give(s, n - used, units + used);
    }
    free(units);
    if (moves)
        moves_load(s, slot, moves);
    return used > 0 || !has_to_give_way(s, slot);
}

void mount_advance(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    int rc;

    if (slot->n_jobs > 0)
        return;
    cache_set_cause(s->o.cache, run->r->id);
    while (run->load_failed || cache_is_broken(s->o.cache, &run->pin))
        fall_back(s, slot, WHY_LOAD_FAILED);
    if (!load_more(s, slot)) {
        fall_back(s, slot, WHY_NO_ROOM);
    } else if (run->load_failed) {
        mount_advance(s, slot);
        return;
    }
    if (!cache_is_loaded(s->o.cache, &run->pin))
        return;
    if (!run->pin.held) {
        begin_reading(s, slot, 0);
        sched_wake(s);
        return;
    }
    if (run->pin.m.pos % ENGINE_PAGE_TOKENS == 0) {
        submit_mount(s, slot);
        return;
    }
    rc = submit_copy(s, slot);
    /* Not even one page, and nobody who will give one back: the source itself has to give way. */
    if (rc == -ENOSPC && has_to_give_way(s, slot)) {
        if (slots_busy(s) == 1)
            read_from_0(s, slot, WHY_NO_ROOM);
        else
            run_restart(s, run);
    } else if (rc < 0 && rc != -ENOSPC) {
        read_from_0(s, slot, WHY_LOAD_FAILED);
    }
}

static void copy_drop(struct sched *s, struct slot *slot)
{
    if (slot->copy_item.n_tokens > 0)
        units_unref(engine_units(s->engine), slot->copy_item.unit);
    slot->copy_item.n_tokens = 0;
}

/* Its state is spoilt (design, law 2): back to the queue's front, and from there it is read from
 * 0. */
static void mount_failed(struct sched *s, struct slot *slot)
{
    struct run *run = slot->run;
    struct request *r = run->r;

    if (!run->finished) {
        s->totals.cached_tokens -= r->n_cached;
        r->n_cached = 0;
        if (r->decision)
            r->decision->n_reused = 0;
    }
    run->from_0 = true;
    run_restart(s, run);
}

void mount_job_done(struct sched *s, struct slot *slot, struct job *j)
{
    struct run *run = slot->run;

    slot->n_jobs--;
    if (j->kind == JOB_MOUNT && j->status >= 0)
        settle(s, run);
    if (slot->state == SLOT_ENDING) {
        if (j->kind == JOB_COPY)
            copy_drop(s, slot);
        slot_end_advance(s, slot);
    } else if (j->kind == JOB_COPY) {
        if (j->status >= 0 && !cache_is_broken(s->o.cache, &run->pin)) {
            submit_mount(s, slot);
            return;
        }
        copy_drop(s, slot);
        if (j->status < 0)
            read_from_0(s, slot, WHY_LOAD_FAILED);
        else
            mount_advance(s, slot);
    } else if (j->status < 0) {
        mount_failed(s, slot);
    }
}

void mount_begin(struct sched *s, struct slot *slot, const struct cache_found *f)
{
    struct run *run = slot->run;
    enum decision_why why;
    const struct cache_match *m = choose(s, run_n_ids(run), f, &why);

    slot->state = SLOT_LOADING;
    if (s->o.cache)
        cache_set_cause(s->o.cache, run->r->id);
    take_source(s, run, m);
    /* One that was parked for want of pages has its conversation already. */
    if (run->space && run->conversation == 0 && m->continues &&
        cache_resume_conversation(s->o.cache, m->conversation, clock_ns()))
        run->conversation = m->conversation;
    decide(s, slot, run, f, m, why);
    if (run->space) {
        const uint32_t n =
            cache_supersede(s->o.cache, run->space, run->ids, run->n_ids, run->conversation);

        if (run->r->decision)
            run->r->decision->n_superseded += n;
    }
    plan_captures(s, run, run->pin.m.pos, f->n_common);
    if (run->space)
        mount_advance(s, slot);
    else
        begin_reading(s, slot, 0);
}
