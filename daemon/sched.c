/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's outside: its functions, its two event sources, and the calls of observers.
 *
 * Whatever happens inside is noted per run and told to the observers from the loop, when the books
 * are in order again: an observer may submit, cancel, pause or drop its reference from within its
 * call.  The public functions never plan or tell; they wake the deferred source, which does both.
 */
#include "daemon/sched.h"

#include "daemon/sched_private.h"
#include "util/clock.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <systemd/sd-event.h>

void sched_wake(struct sched *s)
{
    /* Fails only in a forked child or with a source that is gone. */
    (void)sd_event_source_set_enabled(s->deferred, SD_EVENT_ONESHOT);
}

void sched_note(struct sched *s, struct run *run, unsigned int events)
{
    run->events |= events;
    if (run->has_events)
        return;
    run->has_events = true;
    run->next_event = NULL;
    if (s->events_tail)
        s->events_tail->next_event = run;
    else
        s->events = run;
    s->events_tail = run;
}

static void call(void (*fn)(struct request *, void *), struct request *r)
{
    if (fn)
        fn(r, r->observer.arg);
}

static void tell_observers(struct sched *s)
{
    struct run *run;

    while ((run = s->events)) {
        struct request *r = run->r;
        unsigned int events = run->events;

        s->events = run->next_event;
        if (!s->events)
            s->events_tail = NULL;
        run->events = 0;
        run->has_events = false;

        /* A call may note more: the run is then in the list again, and cannot be dropped until it
         * was told that. */
        if (events & RUN_PROGRESS)
            call(r->observer.progress, r);
        if (events & RUN_OUTPUT)
            call(r->observer.output, r);
        if (events & RUN_DONE) {
            run->told = true;
            call(r->observer.done, r);
        }
        run_drop(s, run);
    }
}

static bool is_idle(const struct sched *s)
{
    if (slots_busy(s) > 0 || !moves_idle(s))
        return false;
    for (int i = 0; i < SCHED_STEPS; i++)
        if (s->steps[i].in_flight)
            return false;
    return !s->queue && !s->events;
}

/* Everything the loop does for the scheduler; the engine's next step goes first. */
static void turn(struct sched *s)
{
    for (uint32_t i = 0; i < s->o.parallel; i++)
        if (s->slots[i].state == SLOT_LOADING)
            mount_advance(s, &s->slots[i]);
    /* Not only when a step can be planned: loads begin, and who reads hears that others wait. */
    slots_admit(s);
    steps_submit(s);
    moves_pump(s);
    tell_observers(s);
    if (s->stopping && s->idle && is_idle(s)) {
        void (*idle)(void *) = s->idle;

        s->idle = NULL;
        idle(s->idle_arg);
    }
}

static int on_deferred(sd_event_source *source, void *arg)
{
    (void)source;
    turn(arg);
    return 0;
}

static int on_engine(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct sched *s = arg;
    struct job *j;

    (void)source;
    (void)fd;
    (void)revents;
    while ((j = engine_reap(s->engine))) {
        s->progressed = true;
        switch (j->kind) {
        case JOB_STEP:
            step_finished(s, (struct step *)j);
            break;
        case JOB_RELEASE:
            slot_released(s, j->user);
            break;
        case JOB_CAPTURE:
            slot_captured(s, j->user);
            break;
        case JOB_MOUNT:
        case JOB_COPY:
            mount_job_done(s, j->user, j);
            break;
        case JOB_EXPORT:
        case JOB_IMPORT:
            moves_done(s, j);
            break;
        case JOB_COMMIT: /* never submitted here */
            break;
        }
    }
    turn(s);
    return 0;
}

int sched_new(sd_event *event, struct engine *engine, const struct tokenizer *tokenizer,
              const struct sched_options *o, struct sched **ret)
{
    const struct engine_plan *plan = engine_limits(engine);
    struct sched *s;
    int rc = 0;

    /* Prompts must get on while everybody else decodes. */
    if (o->parallel == 0 || o->parallel >= plan->max_rows)
        return -EINVAL;
    s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->engine = engine;
    s->tokenizer = tokenizer;
    s->o = *o;
    s->context = plan->context;
    s->max_rows = plan->max_rows;
    s->n_units = engine_units(engine)->n;
    s->checkpoint_units = plan->checkpoint_units;
    s->unit_bytes = plan->unit_bytes;

    s->slots = calloc(o->parallel, sizeof *s->slots);
    s->by_age = calloc(o->parallel, sizeof(struct slot *));
    if (!s->slots || !s->by_age)
        rc = -ENOMEM;
    for (uint32_t i = 0; rc >= 0 && i < o->parallel; i++) {
        struct slot *slot = &s->slots[i];

        slot->i = i;
        slot->pages = calloc(s->context / ENGINE_PAGE_TOKENS + 1, sizeof *slot->pages);
        slot->check_units = calloc(s->checkpoint_units + 1, sizeof *slot->check_units);
        slot->end_units = calloc(s->checkpoint_units + 1, sizeof *slot->end_units);
        if (!slot->pages || !slot->check_units || !slot->end_units)
            rc = -ENOMEM;
    }
    for (int i = 0; rc >= 0 && i < SCHED_STEPS; i++)
        rc = step_init(&s->steps[i], o->parallel, s->max_rows, s->checkpoint_units);

    if (rc >= 0)
        rc = sd_event_add_io(event, &s->io, engine_fd(engine), EPOLLIN, on_engine, s);
    if (rc >= 0)
        rc = sd_event_add_defer(event, &s->deferred, on_deferred, s);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(s->deferred, SD_EVENT_OFF);
    if (rc < 0) {
        sched_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    assert(!s->slots || is_idle(s));
    (void)sd_event_source_disable_unref(s->io);
    (void)sd_event_source_disable_unref(s->deferred);
    for (int i = 0; i < SCHED_STEPS; i++)
        step_free(&s->steps[i]);
    for (uint32_t i = 0; s->slots && i < s->o.parallel; i++) {
        free(s->slots[i].pages);
        free(s->slots[i].check_units);
        free(s->slots[i].end_units);
    }
    free(s->by_age);
    free(s->slots);
    free(s);
}

/* ignore_eos: they are made impossible, since some would go on as text. */
static int ban_end_ids(struct request *r, const int32_t *ids, size_t n)
{
    struct logit_bias *bias = reallocarray(r->bias, r->sampling.n_bias + n, sizeof *bias);

    if (!bias && n > 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        bias[r->sampling.n_bias + i] = (struct logit_bias){ids[i], -INFINITY};
    r->bias = bias;
    r->sampling.bias = bias;
    r->sampling.n_bias += n;
    return 0;
}

/* Ids that the engine would refuse, and a whole step with them. */
static int check_ids(const struct sched *s, const struct request *r, struct err_text *e)
{
    const uint32_t n_vocab = tokenizer_n_vocab(s->tokenizer);

    if (r->prompt.n == 0)
        return err_set(e, -EINVAL, "the prompt is empty");
    for (size_t i = 0; i < r->prompt.n; i++)
        if (r->prompt.ids[i] < 0 || (uint32_t)r->prompt.ids[i] >= n_vocab)
            return err_set(e, -EINVAL, "token id %d of the prompt is not in 0..%u",
                           r->prompt.ids[i], n_vocab - 1);
    return 0;
}

/* Whether there is any hope; sets run->n_limit. */
static int check_size(const struct sched *s, struct run *run, struct err_text *e)
{
    const struct request *r = run->r;
    /* All tokens together: the last one sampled takes no row, and no page. */
    const uint64_t pool = (uint64_t)s->n_units * ENGINE_PAGE_TOKENS + 1;
    uint32_t n_prompt, most, need;

    if (r->prompt.n >= s->context)
        return err_set(e, -E2BIG, "the prompt has %zu tokens, the context holds %u", r->prompt.n,
                       s->context);
    n_prompt = (uint32_t)r->prompt.n;
    most = s->context - n_prompt;
    run->n_limit = r->max_tokens < most ? r->max_tokens : most;
    need = run_pages_to_start(run);
    if (need > s->n_units)
        return err_set(e, ERR_CAPACITY, "the prompt of %u tokens needs %u pages, the pool has %u",
                       n_prompt, need, s->n_units);
    if (n_prompt + (uint64_t)run->n_limit > pool)
        run->n_limit = (uint32_t)(pool - n_prompt);
    return 0;
}

static uint32_t n_free_slots(const struct sched *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->o.parallel; i++)
        n += s->slots[i].state == SLOT_FREE;
    return n;
}

/* Without memory for it the request just has no story. */
static void note_decision(struct sched *s, struct request *r)
{
    struct decision *x =
        s->o.decisions ? decision_new(s->o.decisions, r->id, r->name, r->uid) : NULL;

    if (!x)
        return;
    x->key = r->key;
    (void)snprintf(x->http_id, sizeof x->http_id, "%s", r->http_id);
    x->n_prompt = (uint32_t)r->prompt.n;
    x->turn_pos = r->bounds.turn;
    x->query_pos = r->bounds.query;
    x->root_want = r->bounds.root;
    r->decision = x;
}

int sched_submit(struct sched *s, struct request *r, struct err_text *e)
{
    size_t n_end;
    const int32_t *end_ids = tokenizer_end_ids(s->tokenizer, &n_end);
    struct run *run;
    int rc;

    if (s->stopping)
        return err_set(e, -ESHUTDOWN, "the daemon is stopping");
    rc = check_ids(s, r, e);
    if (rc < 0)
        return rc;
    if (s->n_queued >= (uint64_t)s->o.max_queued + n_free_slots(s))
        return err_set(e, -EAGAIN, "%u requests are waiting already", s->n_queued);
    run = calloc(1, sizeof *run);
    if (!run)
        return err_set(e, -ENOMEM, "no memory for a request");
    run->r = r;
    rc = check_size(s, run, e);
    if (rc >= 0 && r->ignore_eos) {
        rc = ban_end_ids(r, end_ids, n_end);
        if (rc < 0)
            (void)err_set(e, rc, "no memory for a request");
    }
    if (rc < 0) {
        free(run);
        return rc;
    }

    note_decision(s, r);
    run_enter_cache(s, run);
    r->sampling.n_prompt = (uint32_t)r->prompt.n;
    r->sampling.end_ids = r->ignore_eos ? NULL : end_ids;
    r->sampling.n_end_ids = r->ignore_eos ? 0 : n_end;
    r->state = REQUEST_QUEUED;
    r->t_submit = clock_ns();
    r->run = run;
    (void)request_ref(r);
    run->order = ++s->last_order;
    queue_insert(s, run);
    s->totals.requests++;
    sched_wake(s);
    return 0;
}

void sched_cancel(struct sched *s, struct request *r)
{
    if (!r->run)
        return;
    run_finish(s, r->run, FINISH_CANCELLED, 0, NULL);
    sched_wake(s);
}

void sched_pause(struct sched *s, struct request *r)
{
    (void)s;
    if (r->run)
        r->run->paused = true;
}

void sched_resume(struct sched *s, struct request *r)
{
    if (!r->run || !r->run->paused)
        return;
    r->run->paused = false;
    sched_wake(s);
}

void sched_stop(struct sched *s, bool cancel, void (*idle)(void *arg), void *arg)
{
    s->stopping = true;
    s->idle = idle;
    s->idle_arg = arg;
    while (cancel && s->queue)
        run_finish(s, s->queue, FINISH_CANCELLED, 0, NULL);
    for (uint32_t i = 0; cancel && i < s->o.parallel; i++)
        if (s->slots[i].run)
            run_finish(s, s->slots[i].run, FINISH_CANCELLED, 0, NULL);
    sched_wake(s);
}

uint32_t sched_n_slots(const struct sched *s)
{
    return s->o.parallel;
}

void sched_slot(const struct sched *s, uint32_t i, struct slot_info *ret)
{
    const struct slot *slot = &s->slots[i];
    const struct request *r = slot->run ? slot->run->r : NULL;

    *ret = (struct slot_info){.i = i, .state = REQUEST_NEW};
    if (!r)
        return;
    ret->state = r->state;
    ret->request_id = r->id;
    ret->uid = r->uid;
    ret->n_prompt = (uint32_t)r->prompt.n;
    ret->n_read = r->n_read;
    ret->n_generated = r->n_generated;
    ret->n_pages = sequence_n_pages(slot->seq);
}

void sched_cache_changed(struct sched *s)
{
    sched_wake(s);
}

void sched_totals(const struct sched *s, struct sched_totals *ret)
{
    const struct units *u = engine_units(s->engine);

    *ret = s->totals;
    ret->queued = s->n_queued;
    ret->running = 0;
    for (uint32_t i = 0; i < s->o.parallel; i++)
        ret->running += s->slots[i].state == SLOT_RUNNING;
    ret->units_used = u->n - u->n_free;
    ret->units_total = u->n;
}

bool sched_is_alive(struct sched *s)
{
    const uint64_t ticks = engine_ticks(s->engine);
    const bool alive = s->progressed || ticks != s->seen_ticks || engine_in_flight(s->engine) == 0;

    s->seen_ticks = ticks;
    s->progressed = false;
    return alive;
}
