/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_engine_private.h"

#include "util/err.h"

#include <errno.h>
#include <string.h>

/* --- what stays as it is --- */

static void watch(struct flight *f, const void *at, size_t n)
{
    struct span *s;

    if (!at || n == 0)
        return;
    s = must_alloc(1, sizeof *s);
    *s = (struct span){.at = at, .n = n, .was = must_alloc(n, 1), .next = f->spans};
    memcpy(s->was, at, n);
    f->spans = s;
}

/* The members of *p from `first` up to `end`. */
#define WATCH_MEMBERS(f, p, first, end)                                                            \
    watch(f, &(p)->first, offsetof(__typeof__(*(p)), end) - offsetof(__typeof__(*(p)), first))

static void check_untouched(struct flight *f)
{
    while (f->spans) {
        struct span *s = f->spans;

        MUST(memcmp(s->at, s->was, s->n) == 0);
        f->spans = s->next;
        free(s->was);
        free(s);
    }
}

/* --- units --- */

static bool is_paged(const struct engine *e, uint32_t unit, const struct sequence *but)
{
    for (uint32_t i = 0; i < e->o.n_sequences; i++)
        for (uint32_t k = 0; e->seqs[i].in_use && k < e->seqs[i].n_pages; k++)
            if (&e->seqs[i] != but && e->seqs[i].pages[k] == unit)
                return true;
    return false;
}

static bool is_held(const struct engine *e, uint32_t unit)
{
    return unit < e->units.n && e->units.refs[unit] > 0;
}

/* The owner has the only reference. */
static bool is_private(const struct engine *e, uint32_t unit)
{
    return is_held(e, unit) && e->units.refs[unit] == 1 && !is_paged(e, unit, NULL);
}

/* Transfers run beside the other jobs, in an order that nobody knows: what one of the two writes,
 * the other may not touch before it is reaped. */
static bool has_conflict(const struct engine *e, const struct job *j, uint32_t unit, bool write)
{
    for (const struct flight *f = e->flights; f; f = f->next)
        for (uint32_t i = 0; i < f->n_uses; i++)
            if (is_transfer(f->job) != is_transfer(j) && f->uses[i].unit == unit &&
                (write || f->uses[i].write))
                return true;
    return false;
}

static void use(struct engine *e, struct flight *f, uint32_t unit, bool write, bool held)
{
    MUST(is_held(e, unit));
    MUST(!has_conflict(e, f->job, unit, write));
    if (f->n_uses == f->cap_uses) {
        f->cap_uses = f->cap_uses ? 2 * f->cap_uses : 16;
        f->uses = realloc(f->uses, f->cap_uses * sizeof *f->uses);
        MUST(f->uses);
    }
    f->uses[f->n_uses++] = (struct unit_use){.unit = unit, .write = write, .held = held};
    if (held)
        units_ref(&e->units, unit);
}

/* Nobody else has it, or any of what it holds. */
static void poison(struct engine *e, uint32_t unit)
{
    memset(unit_bytes(e, unit), FAKE_UNIT_POISON, FAKE_UNIT_BYTES);
}

static void use_checkpoint(struct engine *e, struct flight *f, const uint32_t *units, bool write)
{
    MUST(e->o.checkpoint_units > 0 && units);
    for (uint32_t i = 0; i < e->o.checkpoint_units; i++) {
        if (write) {
            MUST(is_private(e, units[i]));
            poison(e, units[i]);
        }
        use(e, f, units[i], write, true);
    }
    watch(f, units, e->o.checkpoint_units * sizeof *units);
}

static void give_page(struct engine *e, struct sequence *s, uint32_t unit)
{
    units_ref(&e->units, unit);
    s->pages[s->n_pages++] = unit;
}

/* --- jobs --- */

static void check_sequence(const struct engine *e, const struct sequence *s)
{
    MUST(s && s->engine == e && s->in_use && !s->releasing);
}

static void take_captures(struct engine *e, struct flight *f, const struct step_entry *en,
                          uint32_t begin, uint32_t end)
{
    uint32_t last = begin;

    watch(f, en->captures, en->n_captures * sizeof *en->captures);
    for (uint32_t k = 0; k < en->n_captures; k++) {
        MUST(en->captures[k].pos > last && en->captures[k].pos <= end);
        last = en->captures[k].pos;
        use_checkpoint(e, f, en->captures[k].units, true);
    }
}

static void take_entry(struct engine *e, struct flight *f, struct step_entry *en)
{
    struct sequence *s = en->seq;
    const uint32_t begin = s->length, end = begin + en->n_rows;

    check_sequence(e, s);
    MUST(!s->cancelled);
    MUST(en->n_rows >= 1 && end > begin && end <= e->o.context);
    /* A scheduler feeds what was sampled; by its id, when it knows what follows. */
    MUST(en->ids || (s->sampled && en->n_rows == 1));
    for (uint32_t i = 0; en->ids && i < en->n_rows; i++)
        MUST(en->ids[i] >= 0 && (uint32_t)en->ids[i] < e->o.n_vocab);
    MUST(en->n_logits <= en->n_rows && en->n_logits <= 1 && !en->tentative);
    MUST(en->n_logits == 0 || (en->sampling && en->samples));
    MUST(s->n_pages + en->n_units == engine_pages(end) ||
         (en->n_units == 0 && s->n_pages >= engine_pages(end)));
    for (uint32_t i = 0; i < en->n_units; i++) {
        MUST(is_private(e, en->units[i]));
        poison(e, en->units[i]);
        give_page(e, s, en->units[i]);
    }
    for (uint32_t p = begin / ENGINE_PAGE_TOKENS; p < engine_pages(end); p++) {
        MUST(!is_paged(e, s->pages[p], s));
        use(e, f, s->pages[p], true, false);
    }
    take_captures(e, f, en, begin, end);
    s->length = end;
    s->sampled = en->n_logits > 0;

    WATCH_MEMBERS(f, en, seq, status);
    watch(f, &en->samples, sizeof en->samples);
    watch(f, en->ids, en->ids ? en->n_rows * sizeof *en->ids : 0);
    watch(f, en->units, en->n_units * sizeof *en->units);
    if (en->n_logits) {
        watch(f, en->sampling, sizeof *en->sampling);
        watch(f, en->sampling->bias, en->sampling->n_bias * sizeof *en->sampling->bias);
        watch(f, en->sampling->end_ids, en->sampling->n_end_ids * sizeof *en->sampling->end_ids);
    }
}

static void take_step(struct engine *e, struct flight *f, struct job_step *j)
{
    uint32_t n_rows = 0;

    MUST(j->n_entries >= 1 && ++e->log.steps_in_flight <= MAX_STEPS_IN_FLIGHT);
    for (uint32_t i = 0; i < j->n_entries; i++) {
        for (uint32_t k = 0; k < i; k++)
            MUST(j->entries[k].seq != j->entries[i].seq);
        take_entry(e, f, &j->entries[i]);
        n_rows += j->entries[i].n_rows;
    }
    MUST(n_rows <= e->o.max_rows);
    WATCH_MEMBERS(f, j, entries, run_ns);
    e->log.last_rows = n_rows;
    e->log.last_entries = j->n_entries;
}

static void take_mount(struct engine *e, struct flight *f, struct job_mount *j)
{
    struct sequence *s = j->seq;

    check_sequence(e, s);
    MUST(s->length == 0 && s->n_pages == 0);
    MUST(j->pos <= e->o.context && j->n_pages == engine_pages(j->pos));
    MUST(j->pos == 0 || j->tokens);
    for (uint32_t i = 0; i < j->n_pages; i++) {
        /* A partial page is going to be written. */
        MUST(i + 1 < j->n_pages || j->pos % ENGINE_PAGE_TOKENS == 0 || is_private(e, j->pages[i]));
        use(e, f, j->pages[i], false, false);
        give_page(e, s, j->pages[i]);
    }
    if (j->pos && e->o.checkpoint_units)
        use_checkpoint(e, f, j->checkpoint, false);
    s->length = j->pos;
    watch(f, &j->seq, sizeof *j - offsetof(struct job_mount, seq));
    watch(f, j->tokens, j->pos * sizeof *j->tokens);
    watch(f, j->pages, j->n_pages * sizeof *j->pages);
}

static void take_capture(struct engine *e, struct flight *f, struct job_capture *j)
{
    check_sequence(e, j->seq);
    MUST(j->seq->length > 0);
    use_checkpoint(e, f, j->units, true);
    WATCH_MEMBERS(f, j, seq, pos);
}

static void take_release(struct engine *e, struct flight *f, struct job_release *j)
{
    check_sequence(e, j->seq);
    j->seq->releasing = true;
    watch(f, &j->seq, sizeof j->seq);
}

/* What an export's memory holds until it ran. */
enum { NOT_YET = 0xee };

static void take_transfer(struct engine *e, struct flight *f, struct job_transfer *j)
{
    const enum job_kind kind = j->job.kind;

    for (uint32_t i = 0; i < j->n_items; i++) {
        const struct transfer *t = &j->items[i];

        MUST(t->n_tokens <= ENGINE_PAGE_TOKENS);
        MUST(kind == JOB_COPY || t->host);
        use(e, f, t->unit, kind != JOB_EXPORT, true);
        if (kind == JOB_COPY)
            use(e, f, t->from, false, true);
        if (kind == JOB_EXPORT) {
            memset(t->host, NOT_YET, FAKE_UNIT_BYTES);
            continue;
        }
        MUST(!is_paged(e, t->unit, NULL));
        poison(e, t->unit);
        if (kind == JOB_IMPORT)
            watch(f, t->host, FAKE_UNIT_BYTES);
    }
    watch(f, &j->items, sizeof *j - offsetof(struct job_transfer, items));
    watch(f, j->items, j->n_items * sizeof *j->items);
}

void fake_take_job(struct engine *e, struct flight *f)
{
    struct job *j = f->job;

    MUST(j->kind != JOB_COMMIT);
    watch(f, &j->kind, sizeof j->kind);
    watch(f, &j->user, sizeof j->user);
    switch (j->kind) {
    case JOB_STEP:
        take_step(e, f, (struct job_step *)j);
        break;
    case JOB_MOUNT:
        take_mount(e, f, (struct job_mount *)j);
        break;
    case JOB_CAPTURE:
        take_capture(e, f, (struct job_capture *)j);
        break;
    case JOB_RELEASE:
        take_release(e, f, (struct job_release *)j);
        break;
    case JOB_EXPORT:
    case JOB_IMPORT:
    case JOB_COPY:
        take_transfer(e, f, (struct job_transfer *)j);
        break;
    case JOB_COMMIT:
        break;
    }
}

/* Rows that were skipped never became part of the sequence. */
static void return_step(struct engine *e, const struct job_step *j)
{
    e->log.steps_in_flight--;
    for (uint32_t i = 0; j->job.status == 0 && i < j->n_entries; i++)
        if (j->entries[i].status == ERR_ENDED || j->entries[i].status == -ECANCELED)
            j->entries[i].seq->length -= j->entries[i].n_rows;
}

static void return_release(struct engine *e, struct sequence *s)
{
    for (uint32_t i = 0; i < s->n_pages; i++)
        units_unref(&e->units, s->pages[i]);
    s->n_pages = 0;
    s->in_use = false;
}

void fake_return_job(struct engine *e, struct flight *f)
{
    check_untouched(f);
    for (uint32_t i = 0; i < f->n_uses; i++)
        if (f->uses[i].held)
            units_unref(&e->units, f->uses[i].unit);
    if (f->job->kind == JOB_STEP)
        return_step(e, (const struct job_step *)f->job);
    else if (f->job->kind == JOB_RELEASE)
        return_release(e, ((struct job_release *)f->job)->seq);
    free(f->uses);
    free(f);
}
