/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_engine.h"

#include "tests/fake_tokenizer.h"
#include "util/err.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            (void)fprintf(stderr, "%s:%d: the engine's rule is broken: %s\n", __FILE__, __LINE__,  \
                          #x);                                                                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { MAX_JOBS = 64, MAX_STEPS_IN_FLIGHT = 2 };

struct sequence {
    struct engine *engine;
    bool in_use, releasing, cancelled;
    /* As submitted. */
    uint32_t length, n_pages;
    bool sampled;
    uint32_t *pages;
    /* As run. */
    uint32_t x_length;
    uint64_t *x_hashes; /* [context], after each row */
    int32_t x_sampled;
    bool x_ended, x_spoilt;
};

/* A job in flight, and a copy of all that belongs to the engine while it is. */
struct flight {
    struct job *job;
    struct step_entry *entries;
    struct sampler_params *sampling;
    int32_t *ids;
    uint32_t *units;
};

struct engine {
    struct fake_options o;
    struct engine_plan plan;
    struct units units;
    uint64_t (*rows)[ENGINE_PAGE_TOKENS]; /* [n_units]: the pool */
    struct sequence *seqs;
    struct flight queue[MAX_JOBS]; /* oldest first */
    uint32_t n_queue, n_in_flight;
    bool running;
    struct mailbox finished;
    uint64_t ticks;
    int refuse, fail;
    struct fake_log log;
};

static void *must_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    MUST(p);
    return p;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint64_t hash_add(uint64_t h, uint32_t pos, int32_t id)
{
    return mix(h * 31 + mix((uint64_t)pos << 32 | (uint32_t)id));
}

static int32_t token_of(const struct fake_options *o, uint64_t h, bool ban_end)
{
    uint64_t x = mix(h ^ o->seed);

    if (!ban_end && o->end_every && x % o->end_every == 0)
        return FAKE_END;
    return (int32_t)(2 + (x >> 20) % (o->n_vocab - 2));
}

int32_t fake_next(const struct fake_options *o, const int32_t *ids, size_t n, bool ban_end)
{
    uint64_t h = 0;

    for (size_t i = 0; i < n; i++)
        h = hash_add(h, (uint32_t)i, ids[i]);
    return token_of(o, h, ban_end);
}

struct engine *fake_engine_new(const struct fake_options *o)
{
    struct engine *e = must_alloc(1, sizeof *e);

    e->o = *o;
    e->plan =
        (struct engine_plan){.n_units = o->n_units, .context = o->context, .max_rows = o->max_rows};
    MUST(units_init(&e->units, o->n_units) == 0);
    MUST(mailbox_init(&e->finished) == 0);
    e->rows = must_alloc(o->n_units, sizeof *e->rows);
    e->seqs = must_alloc(o->n_sequences, sizeof *e->seqs);
    for (uint32_t i = 0; i < o->n_sequences; i++) {
        e->seqs[i].engine = e;
        e->seqs[i].pages =
            must_alloc(o->context / ENGINE_PAGE_TOKENS + 1, sizeof *e->seqs[i].pages);
        e->seqs[i].x_hashes = must_alloc(o->context, sizeof *e->seqs[i].x_hashes);
    }
    return e;
}

void engine_close(struct engine *e)
{
    MUST(e->n_in_flight == 0 && e->n_queue == 0);
    for (uint32_t i = 0; i < e->o.n_sequences; i++) {
        MUST(!e->seqs[i].in_use);
        free(e->seqs[i].pages);
        free(e->seqs[i].x_hashes);
    }
    free(e->seqs);
    free(e->rows);
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

void fake_engine_refuse(struct engine *e, int rc)
{
    e->refuse = rc;
}

void fake_engine_fail(struct engine *e, int rc)
{
    e->fail = rc;
}

int sequence_new(struct engine *e, struct sequence **ret)
{
    for (uint32_t i = 0; i < e->o.n_sequences; i++) {
        struct sequence *s = &e->seqs[i];

        if (s->in_use)
            continue;
        *s = (struct sequence){
            .engine = e, .in_use = true, .pages = s->pages, .x_hashes = s->x_hashes};
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

void sequence_cancel(struct sequence *s)
{
    MUST(s->in_use && !s->releasing);
    s->cancelled = true;
}

/* --- submit --- */

static bool is_paged(const struct engine *e, uint32_t unit)
{
    for (uint32_t i = 0; i < e->o.n_sequences; i++)
        for (uint32_t k = 0; e->seqs[i].in_use && k < e->seqs[i].n_pages; k++)
            if (e->seqs[i].pages[k] == unit)
                return true;
    return false;
}

static void take_entry(struct engine *e, const struct step_entry *en)
{
    struct sequence *s = en->seq;
    const uint32_t end = s->length + en->n_rows;

    MUST(s && s->engine == e && s->in_use && !s->releasing && !s->cancelled);
    MUST(en->n_rows >= 1 && end <= e->o.context);
    /* A scheduler feeds what was sampled, and nothing else after it. */
    MUST(en->ids ? !s->sampled : s->sampled && en->n_rows == 1);
    for (uint32_t i = 0; en->ids && i < en->n_rows; i++)
        MUST(en->ids[i] >= 0 && (uint32_t)en->ids[i] < e->o.n_vocab);
    MUST(en->n_logits <= en->n_rows && en->n_logits <= 1 && !en->tentative && en->n_captures == 0);
    MUST(en->n_logits == 0 || (en->sampling && en->samples));
    MUST(s->n_pages + en->n_units == engine_pages(end));
    for (uint32_t i = 0; i < en->n_units; i++) {
        MUST(en->units[i] < e->units.n && e->units.refs[en->units[i]] == 1 &&
             !is_paged(e, en->units[i]));
        units_ref(&e->units, en->units[i]);
        s->pages[s->n_pages++] = en->units[i];
    }
    s->length = end;
    s->sampled = en->n_logits > 0;
}

static void take_step(struct engine *e, struct job_step *j, struct flight *f)
{
    uint32_t n_rows = 0, n_units = 0;

    MUST(j->n_entries >= 1 && ++e->log.steps_in_flight <= MAX_STEPS_IN_FLIGHT);
    for (uint32_t i = 0; i < j->n_entries; i++) {
        for (uint32_t k = 0; k < i; k++)
            MUST(j->entries[k].seq != j->entries[i].seq);
        take_entry(e, &j->entries[i]);
        n_rows += j->entries[i].n_rows;
        n_units += j->entries[i].n_units;
    }
    MUST(n_rows <= e->o.max_rows);
    e->log.last_rows = n_rows;
    e->log.last_entries = j->n_entries;

    f->entries = must_alloc(j->n_entries, sizeof *f->entries);
    f->sampling = must_alloc(j->n_entries, sizeof *f->sampling);
    f->ids = must_alloc(n_rows, sizeof *f->ids);
    f->units = must_alloc(n_units, sizeof *f->units);
    memcpy(f->entries, j->entries, j->n_entries * sizeof *f->entries);
    for (uint32_t i = 0, r = 0, u = 0; i < j->n_entries; i++) {
        const struct step_entry *en = &j->entries[i];

        for (uint32_t k = 0; en->ids && k < en->n_rows; k++)
            f->ids[r++] = en->ids[k];
        for (uint32_t k = 0; k < en->n_units; k++)
            f->units[u++] = en->units[k];
        if (en->sampling)
            f->sampling[i] = *en->sampling;
    }
}

int engine_submit(struct engine *e, struct job *j, struct err_text *err)
{
    struct flight *f = &e->queue[e->n_queue];

    MUST(e->n_queue < MAX_JOBS);
    MUST(j->kind == JOB_STEP || j->kind == JOB_RELEASE);
    if (j->kind == JOB_STEP && e->refuse) {
        int rc = e->refuse;

        e->refuse = 0;
        return err_set(err, rc, "refused as the test wants");
    }
    *f = (struct flight){.job = j};
    if (j->kind == JOB_STEP) {
        take_step(e, (struct job_step *)j, f);
    } else {
        struct sequence *s = ((struct job_release *)j)->seq;

        MUST(s->in_use && !s->releasing);
        s->releasing = true;
    }
    e->n_queue++;
    e->n_in_flight++;
    return 0;
}

/* --- run --- */

static bool is_banned(const struct sampler_params *p, int32_t id)
{
    for (size_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id == id && isinf(p->bias[i].bias) && p->bias[i].bias < 0)
            return true;
    return false;
}

static int run_entry(struct engine *e, struct step_entry *en)
{
    struct sequence *s = en->seq;

    if (s->cancelled) {
        e->log.n_entries_skipped++;
        return -ECANCELED;
    }
    if (!en->ids && s->x_ended) {
        e->log.n_entries_skipped++;
        return ERR_ENDED;
    }
    /* Rows that were submitted before anybody could know. */
    if (s->x_spoilt)
        return ERR_NONFINITE;
    for (uint32_t i = 0; i < s->x_length; i++)
        MUST(e->rows[s->pages[i / ENGINE_PAGE_TOKENS]][i % ENGINE_PAGE_TOKENS] == s->x_hashes[i]);
    for (uint32_t i = 0; i < en->n_rows; i++) {
        int32_t id = en->ids ? en->ids[i] : s->x_sampled;
        uint64_t h = hash_add(s->x_length ? s->x_hashes[s->x_length - 1] : 0, s->x_length, id);

        s->x_spoilt = s->x_spoilt || id == FAKE_POISON;
        e->rows[s->pages[s->x_length / ENGINE_PAGE_TOKENS]][s->x_length % ENGINE_PAGE_TOKENS] = h;
        s->x_hashes[s->x_length++] = h;
    }
    e->log.n_rows += en->n_rows;
    if (s->x_spoilt)
        return ERR_NONFINITE;
    if (en->n_logits) {
        const struct sampler_params *p = en->sampling;
        int32_t id = token_of(&e->o, s->x_hashes[s->x_length - 1], is_banned(p, FAKE_END));

        MUST(p->n_prompt > 0 && p->n_prompt <= s->x_length);
        s->x_sampled = id;
        for (size_t i = 0; i < p->n_end_ids; i++)
            s->x_ended = s->x_ended || p->end_ids[i] == id;
        en->samples[0] = (struct sample){.id = id, .end = s->x_ended, .logprob = -(float)id};
    }
    return 0;
}

bool fake_engine_start(struct engine *e)
{
    struct job *j;

    if (e->running || e->n_queue == 0)
        return false;
    e->running = true;
    e->ticks++;
    j = e->queue[0].job;
    j->status = 0;
    if (j->kind == JOB_STEP) {
        struct job_step *st = (struct job_step *)j;
        uint64_t n_rows = 0;

        e->log.n_steps++;
        for (uint32_t i = 0; i < st->n_entries; i++) {
            n_rows += st->entries[i].n_rows;
            if (!e->fail)
                st->entries[i].status = run_entry(e, &st->entries[i]);
        }
        st->run_ns = n_rows * e->o.ns_per_row;
        j->status = e->fail;
        e->fail = 0;
    }
    return true;
}

/* Nothing that belonged to the engine was touched. */
static void check_untouched(const struct flight *f)
{
    const struct job_step *j = (const struct job_step *)f->job;

    if (j->job.kind != JOB_STEP)
        return;
    for (uint32_t i = 0, r = 0, u = 0; i < j->n_entries; i++) {
        const struct step_entry *en = &j->entries[i], *was = &f->entries[i];

        MUST(en->seq == was->seq && en->ids == was->ids && en->n_rows == was->n_rows &&
             en->units == was->units && en->n_units == was->n_units &&
             en->sampling == was->sampling && en->samples == was->samples);
        for (uint32_t k = 0; en->ids && k < en->n_rows; k++)
            MUST(en->ids[k] == f->ids[r++]);
        for (uint32_t k = 0; k < en->n_units; k++)
            MUST(en->units[k] == f->units[u++]);
        if (en->sampling)
            MUST(memcmp(en->sampling, &f->sampling[i], sizeof f->sampling[i]) == 0);
    }
}

bool fake_engine_finish(struct engine *e)
{
    struct flight f = e->queue[0];

    if (!e->running)
        return false;
    e->running = false;
    check_untouched(&f);
    free(f.entries);
    free(f.sampling);
    free(f.ids);
    free(f.units);
    memmove(e->queue, e->queue + 1, --e->n_queue * sizeof *e->queue);
    mailbox_put(&e->finished, &f.job->mail);
    return true;
}

bool fake_engine_run(struct engine *e)
{
    (void)fake_engine_start(e);
    return fake_engine_finish(e);
}

struct job *engine_reap(struct engine *e)
{
    struct job *j = (struct job *)mailbox_take(&e->finished);

    if (!j)
        return NULL;
    e->n_in_flight--;
    if (j->kind == JOB_STEP) {
        e->log.steps_in_flight--;
    } else {
        struct sequence *s = ((struct job_release *)j)->seq;

        for (uint32_t i = 0; i < s->n_pages; i++)
            units_unref(&e->units, s->pages[i]);
        s->n_pages = 0;
        s->in_use = false;
    }
    return j;
}
