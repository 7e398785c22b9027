/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_engine_private.h"

#include "tests/fake_tokenizer.h"
#include "util/err.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* --- the model --- */

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

static uint64_t hidden_of(uint64_t hash)
{
    return mix(hash ^ 0x68696464656eu);
}

/* One more token: its row, and the state after it. */
static struct fake_row next_row(struct fake_state *s, uint32_t pos, int32_t id)
{
    struct fake_row r = {.hash = hash_add(s->hash, pos, id)};

    r.draft = pos ? mix(s->hidden * 37 + (uint32_t)id) : 0;
    s->hash = r.hash;
    s->hidden = hidden_of(r.hash);
    return r;
}

static int32_t token_of(const struct fake_options *o, uint64_t h, bool ban_end)
{
    uint64_t x = mix(h ^ o->seed);

    if (!ban_end && o->end_every && x % o->end_every == 0)
        return FAKE_END;
    return (int32_t)(2 + (x >> 20) % (o->n_vocab - 2));
}

static struct fake_state state_after(const int32_t *ids, size_t n)
{
    struct fake_state s = {0};

    for (size_t i = 0; i < n; i++)
        (void)next_row(&s, (uint32_t)i, ids[i]);
    return s;
}

int32_t fake_next(const struct fake_options *o, const int32_t *ids, size_t n, bool ban_end)
{
    return token_of(o, state_after(ids, n).hash, ban_end);
}

void fake_page(const int32_t *ids, uint32_t n, uint32_t i_page, void *ret)
{
    const uint32_t begin = i_page * ENGINE_PAGE_TOKENS;
    struct fake_state s = state_after(ids, begin);
    struct fake_row rows[ENGINE_PAGE_TOKENS] = {{0}};

    for (uint32_t i = 0; i < ENGINE_PAGE_TOKENS && begin + i < n; i++)
        rows[i] = next_row(&s, begin + i, ids[begin + i]);
    memcpy(ret, rows, sizeof rows);
}

struct checkpoint_head {
    uint64_t magic, pos;
    struct fake_state state;
};
#define CHECKPOINT_MAGIC 0x746e696f706b6863u

/* Every word depends on all of the head, so that no unit of it can be another's. */
static void fill_checkpoint(uint32_t n_units, uint32_t pos, struct fake_state s, void *ret)
{
    const struct checkpoint_head head = {CHECKPOINT_MAGIC, pos, s};
    const size_t n = (size_t)n_units * FAKE_UNIT_BYTES;
    uint8_t *p = ret;

    memcpy(p, &head, sizeof head);
    for (size_t at = sizeof head; at < n; at += sizeof(uint64_t)) {
        const uint64_t word = mix(s.hash * 41 + s.hidden * 43 + at);

        memcpy(p + at, &word, sizeof word);
    }
}

void fake_checkpoint(const struct fake_options *o, const int32_t *ids, uint32_t n, void *ret)
{
    fill_checkpoint(o->checkpoint_units, n, state_after(ids, n), ret);
}

/* --- steps --- */

static struct fake_row *row_at(struct engine *e, const struct sequence *s, uint32_t pos)
{
    const uint32_t page = pos / ENGINE_PAGE_TOKENS;

    MUST(page < s->n_pages);
    return (struct fake_row *)(void *)unit_bytes(e, s->pages[page]) + pos % ENGINE_PAGE_TOKENS;
}

/* The pages hold what this sequence, or whoever it has them from, wrote. */
static void check_rows(struct engine *e, const struct sequence *s)
{
    for (uint32_t i = 0; i < s->x_length; i++)
        MUST(memcmp(row_at(e, s, i), &s->x_rows[i], sizeof s->x_rows[i]) == 0);
}

static void write_checkpoint(struct engine *e, const struct sequence *s, const uint32_t *units)
{
    fill_checkpoint(e->o.checkpoint_units, s->x_length, s->x_state, e->checkpoint);
    for (uint32_t i = 0; i < e->o.checkpoint_units; i++)
        memcpy(unit_bytes(e, units[i]), e->checkpoint + (size_t)i * FAKE_UNIT_BYTES,
               FAKE_UNIT_BYTES);
    e->log.n_captures++;
}

static bool is_banned(const struct sampler_params *p, int32_t id)
{
    for (size_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id == id && isinf(p->bias[i].bias) && p->bias[i].bias < 0)
            return true;
    return false;
}

static void sample(struct engine *e, struct step_entry *en)
{
    const struct sampler_params *p = en->sampling;
    struct sequence *s = en->seq;
    int32_t id = token_of(&e->o, s->x_state.hash, is_banned(p, FAKE_END));

    MUST(p->n_prompt > 0 && p->n_prompt <= s->x_length);
    s->x_sampled = id;
    s->x_has_sample = true;
    for (size_t i = 0; i < p->n_end_ids; i++)
        s->x_ended = s->x_ended || p->end_ids[i] == id;
    en->samples[0] = (struct sample){.id = id, .end = s->x_ended, .logprob = -(float)id};
}

static int run_entry(struct engine *e, struct step_entry *en)
{
    struct sequence *s = en->seq;
    uint32_t i_cap = 0;

    if (s->cancelled || s->x_broken) {
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
    check_rows(e, s);
    MUST(!en->ids || !s->x_has_sample || en->ids[0] == s->x_sampled);
    s->x_has_sample = false;
    for (uint32_t i = 0; i < en->n_rows; i++) {
        int32_t id = en->ids ? en->ids[i] : s->x_sampled;
        struct fake_row row = next_row(&s->x_state, s->x_length, id);

        s->x_spoilt = s->x_spoilt || id == FAKE_POISON;
        *row_at(e, s, s->x_length) = row;
        s->x_rows[s->x_length++] = row;
        if (i_cap < en->n_captures && en->captures[i_cap].pos == s->x_length) {
            /* A checkpoint of such a row keeps its poison: whoever uses it is found out. */
            if (!s->x_spoilt)
                write_checkpoint(e, s, en->captures[i_cap].units);
            i_cap++;
        }
    }
    e->log.n_rows += en->n_rows;
    if (s->x_spoilt)
        return ERR_NONFINITE;
    if (en->n_logits)
        sample(e, en);
    return 0;
}

static void run_step(struct engine *e, struct job_step *j, bool fails)
{
    uint64_t n_rows = 0;

    e->log.n_steps++;
    for (uint32_t i = 0; i < j->n_entries; i++) {
        n_rows += j->entries[i].n_rows;
        if (!fails)
            j->entries[i].status = run_entry(e, &j->entries[i]);
    }
    j->run_ns = n_rows * e->o.ns_per_row;
}

/* --- the others --- */

/* From the bytes of the checkpoint, all of which must be of this position. */
static struct fake_state read_checkpoint(struct engine *e, const uint32_t *units, uint32_t pos)
{
    struct checkpoint_head head;

    memcpy(&head, unit_bytes(e, units[0]), sizeof head);
    MUST(head.magic == CHECKPOINT_MAGIC && head.pos == pos);
    fill_checkpoint(e->o.checkpoint_units, pos, head.state, e->checkpoint);
    for (uint32_t i = 0; i < e->o.checkpoint_units; i++)
        MUST(memcmp(unit_bytes(e, units[i]), e->checkpoint + (size_t)i * FAKE_UNIT_BYTES,
                    FAKE_UNIT_BYTES) == 0);
    return head.state;
}

static void run_mount(struct engine *e, const struct job_mount *j)
{
    struct sequence *s = j->seq;
    struct fake_state truth = {0};

    s->x_length = j->pos;
    if (j->pos == 0)
        return;
    for (uint32_t i = 0; i < j->pos; i++)
        s->x_rows[i] = *row_at(e, s, i);
    if (e->o.checkpoint_units) {
        s->x_state = read_checkpoint(e, j->checkpoint, j->pos);
    } else {
        s->x_state.hash = s->x_rows[j->pos - 1].hash;
        s->x_state.hidden = hidden_of(s->x_state.hash);
    }
    /* The tokens only say whether these were the right bytes. */
    for (uint32_t i = 0; i < j->pos; i++) {
        const struct fake_row row = next_row(&truth, i, j->tokens[i]);

        MUST(memcmp(&s->x_rows[i], &row, sizeof row) == 0);
    }
    MUST(memcmp(&s->x_state, &truth, sizeof truth) == 0);
    e->log.n_mounts++;
    e->log.n_mounted_tokens += j->pos;
}

static int run_capture(struct engine *e, struct job_capture *j)
{
    j->pos = 0;
    if (j->seq->x_spoilt)
        return ERR_NONFINITE;
    if (j->seq->x_length == 0)
        return -ECANCELED;
    check_rows(e, j->seq);
    write_checkpoint(e, j->seq, j->units);
    j->pos = j->seq->x_length;
    return 0;
}

static void run_transfer(struct engine *e, struct job_transfer *j)
{
    struct fake_row poison;

    memset(&poison, FAKE_UNIT_POISON, sizeof poison);
    for (uint32_t i = 0; i < j->n_items; i++) {
        const struct transfer *t = &j->items[i];
        const uint32_t n = t->n_tokens ? t->n_tokens : ENGINE_PAGE_TOKENS;
        uint8_t *to = unit_bytes(e, t->unit);
        const uint8_t *from = t->host;

        if (j->job.kind == JOB_IMPORT) {
            e->log.n_imported++;
            memcpy(to, from, FAKE_UNIT_BYTES);
            continue;
        }
        if (j->job.kind == JOB_EXPORT) {
            e->log.n_exported++;
            from = to;
            to = t->host;
            for (uint32_t k = 0; k < n; k++)
                MUST(memcmp(from + k * sizeof poison, &poison, sizeof poison) != 0);
        } else {
            e->log.n_copied++;
            from = unit_bytes(e, t->from);
        }
        memcpy(to, from, n * sizeof poison);
        memset(to + n * sizeof poison, 0, FAKE_UNIT_BYTES - n * sizeof poison);
    }
}

int fake_run_job(struct engine *e, struct job *j)
{
    const int fail = e->fail[j->kind];
    int rc = fail;

    e->fail[j->kind] = 0;
    switch (j->kind) {
    case JOB_STEP:
        run_step(e, (struct job_step *)j, fail != 0);
        break;
    case JOB_MOUNT:
        ((struct job_mount *)j)->seq->x_broken = fail != 0;
        if (!fail)
            run_mount(e, (const struct job_mount *)j);
        break;
    case JOB_CAPTURE:
        if (fail)
            ((struct job_capture *)j)->pos = 0;
        else
            rc = run_capture(e, (struct job_capture *)j);
        break;
    case JOB_EXPORT:
    case JOB_IMPORT:
    case JOB_COPY:
        if (!fail)
            run_transfer(e, (struct job_transfer *)j);
        break;
    case JOB_RELEASE:
    case JOB_COMMIT:
        break;
    }
    return rc;
}
