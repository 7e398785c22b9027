/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/submit.h"

#include "engine/backend.h"
#include "util/err.h"

#include <errno.h>
#include <string.h>

static bool unit_is_held(const struct units *u, uint32_t unit)
{
    return unit < u->n && u->refs[unit] > 0;
}

static int check_units(const struct units *u, const uint32_t *units, uint32_t n, struct err_text *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (!unit_is_held(u, units[i]))
            return err_set(e, -EINVAL, "unit %u is not in use", units[i]);
    return 0;
}

static int check_sequence(const struct submit_limits *lim, const struct sequence *s,
                          struct err_text *e)
{
    if (!s || s->engine != lim->engine || !s->in_use || s->releasing)
        return err_set(e, -EINVAL, "not a live sequence of this engine");
    return 0;
}

static int check_captures(const struct submit_limits *lim, const struct units *u,
                          const struct step_capture *c, uint32_t n, uint32_t begin, uint32_t end,
                          struct err_text *e)
{
    uint32_t last = begin;
    int r;

    for (uint32_t i = 0; i < n; i++) {
        if (c[i].pos <= last || c[i].pos > end)
            return err_set(e, -EINVAL, "capture at %u is not in (%u, %u]", c[i].pos, last, end);
        last = c[i].pos;
        r = check_units(u, c[i].units, lim->checkpoint_units, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_entry(const struct submit_limits *lim, const struct units *u,
                       const struct step_entry *en, struct err_text *e)
{
    const struct sequence *s = en->seq;
    uint32_t end;
    int r;

    r = check_sequence(lim, s, e);
    if (r < 0)
        return r;
    if (s->n_tentative)
        return err_set(e, -EINVAL, "rows of this sequence wait for a commit");
    if (en->n_rows == 0 || en->n_rows > lim->max_rows)
        return err_set(e, -EINVAL, "an entry of %u rows, expected 1..%u", en->n_rows,
                       lim->max_rows);
    if (__builtin_add_overflow(s->length, en->n_rows, &end) || end > lim->context)
        return err_set(e, -EINVAL, "%u tokens and %u more exceed the context of %u", s->length,
                       en->n_rows, lim->context);
    if (!en->ids && (en->n_rows != 1 || !s->sampled))
        return err_set(e, -EINVAL, "no ids, but the last entry sampled nothing to go on with");
    for (uint32_t i = 0; en->ids && i < en->n_rows; i++)
        if (en->ids[i] < 0 || (uint32_t)en->ids[i] >= lim->n_vocab)
            return err_set(e, -EINVAL, "token id %d is not in 0..%u", en->ids[i], lim->n_vocab - 1);
    if (en->n_logits > en->n_rows || (en->n_logits && (!en->sampling || !en->samples)))
        return err_set(e, -EINVAL,
                       "logits wanted for rows that are not there, or nowhere to put them");
    if (en->tentative && (en->n_rows > ENGINE_TENTATIVE_ROWS || en->n_captures))
        return err_set(e, -EINVAL, "a tentative entry has at most %d rows and no captures",
                       ENGINE_TENTATIVE_ROWS);
    if (s->n_pages + en->n_units != engine_pages(end) &&
        !(en->n_units == 0 && s->n_pages >= engine_pages(end)))
        return err_set(e, -EINVAL, "%u pages and %u more for %u tokens, expected %u", s->n_pages,
                       en->n_units, end, engine_pages(end));
    r = check_units(u, en->units, en->n_units, e);
    if (r < 0)
        return r;
    return check_captures(lim, u, en->captures, en->n_captures, s->length, end, e);
}

static int check_step(const struct submit_limits *lim, const struct units *u,
                      const struct job_step *j, struct err_text *e)
{
    uint64_t n_rows = 0;

    if (j->n_entries == 0)
        return err_set(e, -EINVAL, "a step without entries");
    for (uint32_t i = 0; i < j->n_entries; i++) {
        int r = check_entry(lim, u, &j->entries[i], e);
        if (r < 0)
            return r;
        for (uint32_t k = 0; k < i; k++)
            if (j->entries[k].seq == j->entries[i].seq)
                return err_set(e, -EINVAL, "a sequence stands twice in one step");
        n_rows += j->entries[i].n_rows;
    }
    if (n_rows > lim->max_rows)
        return err_set(e, -EINVAL, "%llu rows in one step, at most %u", (unsigned long long)n_rows,
                       lim->max_rows);
    return 0;
}

static int check_commit(const struct submit_limits *lim, const struct units *u,
                        const struct job_commit *j, struct err_text *e)
{
    uint32_t begin;
    int r;

    r = check_sequence(lim, j->seq, e);
    if (r < 0)
        return r;
    if (j->seq->n_tentative == 0 || j->n_rows > j->seq->n_tentative)
        return err_set(e, -EINVAL, "commit of %u rows where %u wait", j->n_rows,
                       j->seq->n_tentative);
    begin = j->seq->length - j->seq->n_tentative;
    return check_captures(lim, u, j->captures, j->n_captures, begin, begin + j->n_rows, e);
}

static int check_capture(const struct submit_limits *lim, const struct units *u,
                         const struct job_capture *j, struct err_text *e)
{
    int r;

    r = check_sequence(lim, j->seq, e);
    if (r < 0)
        return r;
    if (lim->checkpoint_units == 0)
        return err_set(e, -EINVAL, "capture where the model has no checkpoints");
    if (j->seq->n_tentative)
        return err_set(e, -EINVAL, "rows of this sequence wait for a commit");
    if (j->seq->length == 0)
        return err_set(e, -EINVAL, "capture of a sequence without tokens");
    if (!j->units)
        return err_set(e, -EINVAL, "capture without units");
    return check_units(u, j->units, lim->checkpoint_units, e);
}

static int check_mount(const struct submit_limits *lim, const struct units *u,
                       const struct job_mount *j, struct err_text *e)
{
    int r;

    r = check_sequence(lim, j->seq, e);
    if (r < 0)
        return r;
    if (j->seq->length || j->seq->n_pages)
        return err_set(e, -EINVAL, "mount into a sequence that is not new");
    if (j->pos > lim->context || j->n_pages != engine_pages(j->pos))
        return err_set(e, -EINVAL, "mount of %u tokens in %u pages, context %u", j->pos, j->n_pages,
                       lim->context);
    if (j->pos && (!j->tokens || (lim->checkpoint_units && !j->checkpoint)))
        return err_set(e, -EINVAL, "mount without tokens or checkpoint");
    r = check_units(u, j->pages, j->n_pages, e);
    if (r < 0)
        return r;
    return j->checkpoint ? check_units(u, j->checkpoint, lim->checkpoint_units, e) : 0;
}

static int check_transfer(const struct units *u, const struct job_transfer *j, struct err_text *e)
{
    for (uint32_t i = 0; i < j->n_items; i++) {
        const struct transfer *t = &j->items[i];

        if (!unit_is_held(u, t->unit) || (j->job.kind == JOB_COPY && !unit_is_held(u, t->from)))
            return err_set(e, -EINVAL, "transfer of a unit that is not in use");
        if (j->job.kind != JOB_COPY && !t->host)
            return err_set(e, -EINVAL, "transfer without host memory");
        if (t->n_tokens > ENGINE_PAGE_TOKENS)
            return err_set(e, -EINVAL, "transfer of %u tokens of a page", t->n_tokens);
    }
    return 0;
}

int submit_check(const struct submit_limits *lim, const struct units *u, const struct job *j,
                 struct err_text *e)
{
    switch (j->kind) {
    case JOB_STEP:
        return check_step(lim, u, (const struct job_step *)j, e);
    case JOB_COMMIT:
        return check_commit(lim, u, (const struct job_commit *)j, e);
    case JOB_MOUNT:
        return check_mount(lim, u, (const struct job_mount *)j, e);
    case JOB_CAPTURE:
        return check_capture(lim, u, (const struct job_capture *)j, e);
    case JOB_RELEASE:
        return check_sequence(lim, ((const struct job_release *)j)->seq, e);
    case JOB_EXPORT:
    case JOB_IMPORT:
    case JOB_COPY:
        return check_transfer(u, (const struct job_transfer *)j, e);
    }
    return err_set(e, -EINVAL, "no such kind of job");
}

static void each_unit(struct units *u, const uint32_t *units, uint32_t n,
                      void (*fn)(struct units *, uint32_t))
{
    for (uint32_t i = 0; i < n; i++)
        fn(u, units[i]);
}

/* The units that a job refers to and does not give to a sequence: held from submit to reap. */
static void each_borrowed(struct units *u, uint32_t checkpoint_units, struct job *j,
                          void (*fn)(struct units *, uint32_t))
{
    switch (j->kind) {
    case JOB_STEP: {
        const struct job_step *s = (const struct job_step *)j;

        for (uint32_t i = 0; i < s->n_entries; i++)
            for (uint32_t k = 0; k < s->entries[i].n_captures; k++)
                each_unit(u, s->entries[i].captures[k].units, checkpoint_units, fn);
        break;
    }
    case JOB_COMMIT: {
        const struct job_commit *c = (const struct job_commit *)j;

        for (uint32_t k = 0; k < c->n_captures; k++)
            each_unit(u, c->captures[k].units, checkpoint_units, fn);
        break;
    }
    case JOB_CAPTURE:
        each_unit(u, ((const struct job_capture *)j)->units, checkpoint_units, fn);
        break;
    case JOB_MOUNT: {
        const struct job_mount *m = (const struct job_mount *)j;

        if (m->checkpoint)
            each_unit(u, m->checkpoint, checkpoint_units, fn);
        break;
    }
    case JOB_EXPORT:
    case JOB_IMPORT:
    case JOB_COPY: {
        const struct job_transfer *t = (const struct job_transfer *)j;

        for (uint32_t i = 0; i < t->n_items; i++) {
            fn(u, t->items[i].unit);
            if (j->kind == JOB_COPY)
                fn(u, t->items[i].from);
        }
        break;
    }
    case JOB_RELEASE:
        break;
    }
}

static void give_pages(struct units *u, struct sequence *s, const uint32_t *units, uint32_t n)
{
    each_unit(u, units, n, units_ref);
    if (n)
        memcpy(s->pages + s->n_pages, units, n * sizeof *units);
    s->n_pages += n;
}

void submit_take(const struct submit_limits *lim, struct units *u, struct job *j)
{
    each_borrowed(u, lim->checkpoint_units, j, units_ref);

    if (j->kind == JOB_STEP) {
        struct job_step *s = (struct job_step *)j;

        for (uint32_t i = 0; i < s->n_entries; i++) {
            struct step_entry *en = &s->entries[i];

            give_pages(u, en->seq, en->units, en->n_units);
            en->seq->length += en->n_rows;
            en->seq->sampled = en->n_logits > 0;
            en->seq->n_tentative = en->tentative ? en->n_rows : 0;
        }
    } else if (j->kind == JOB_COMMIT) {
        struct job_commit *c = (struct job_commit *)j;

        c->seq->length -= c->seq->n_tentative - c->n_rows;
        c->seq->n_tentative = 0;
    } else if (j->kind == JOB_MOUNT) {
        struct job_mount *m = (struct job_mount *)j;

        give_pages(u, m->seq, m->pages, m->n_pages);
        m->seq->length = m->pos;
    } else if (j->kind == JOB_RELEASE) {
        ((struct job_release *)j)->seq->releasing = true;
    }
}

void submit_return(struct units *u, uint32_t checkpoint_units, struct job *j)
{
    each_borrowed(u, checkpoint_units, j, units_unref);

    if (j->kind == JOB_STEP) {
        const struct job_step *s = (const struct job_step *)j;

        /* Rows that were skipped never became part of the sequence. */
        for (uint32_t i = 0; i < s->n_entries; i++) {
            const struct step_entry *en = &s->entries[i];

            if (en->status != ERR_ENDED && en->status != -ECANCELED && en->status != -ENOMEM)
                continue;
            en->seq->length -= en->n_rows;
            if (en->tentative)
                en->seq->n_tentative = 0;
        }
    } else if (j->kind == JOB_RELEASE) {
        struct sequence *s = ((struct job_release *)j)->seq;

        each_unit(u, s->pages, s->n_pages, units_unref);
        s->n_pages = 0;
        s->in_use = false;
    }
}
