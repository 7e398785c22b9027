/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exact.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MATES = 7 };

/* A neighbour in the batch: reads random pieces of random tokens, starts anew when it is long
 * enough. */
struct mate {
    struct sequence *seq;
    int32_t ids[96];
    struct sample sample;
};

static void mate_entry(struct runner *r, struct mate *m, unsigned int *seed,
                       const struct sampler_params *sp, struct step_entry *en)
{
    if (m->seq && sequence_length(m->seq) > 500) {
        runner_release(r, m->seq);
        m->seq = NULL;
    }
    if (!m->seq)
        m->seq = runner_sequence(r);
    *en = (struct step_entry){.seq = m->seq, .ids = m->ids, .sampling = sp, .samples = &m->sample};
    /* Some decode, some read one row, some read many. */
    en->n_rows = rand_r(seed) % 3 == 0 ? 1 : 1 + (uint32_t)rand_r(seed) % 30;
    for (uint32_t i = 0; i < en->n_rows; i++)
        m->ids[i] = (int32_t)((uint32_t)rand_r(seed) % r->n_vocab);
    en->n_logits = (uint32_t)rand_r(seed) % 2;
}

static void run_step(struct runner *r, const struct feed *f, struct mate *mates, unsigned int *seed,
                     const struct step_entry *mine, struct step_entry *done)
{
    struct step_entry entries[MAX_MATES + 1];
    struct sampler_params sp;
    uint32_t at = f->n_mates ? (uint32_t)rand_r(seed) % (f->n_mates + 1) : 0, n = 0;

    sampler_params_init(&sp);
    ck_assert_uint_le(f->n_mates, MAX_MATES);
    for (uint32_t i = 0; i <= f->n_mates; i++) {
        if (i == at)
            entries[i] = *mine;
        else
            mate_entry(r, &mates[n++], seed, &sp, &entries[i]);
    }
    runner_step(r, entries, f->n_mates + 1);
    *done = entries[at];
    ck_assert_int_eq(done->status, 0);
}

void outcome_of(struct runner *r, const struct feed *f, struct outcome *ret)
{
    struct sequence *s = runner_sequence(r);
    struct mate mates[MAX_MATES] = {0};
    struct sampler_params sp;
    struct sample sample = {.id = -1};
    struct units *u = engine_units(r->engine);
    const uint32_t n_ckpt = r->plan.checkpoint_units, n_given = f->n - f->n_generated;
    uint32_t *ckpt = calloc(n_ckpt + 1, sizeof *ckpt), i_cut = 0, pos = 0;
    unsigned int seed = f->seed;
    /* Mates take at most 31 rows each. */
    const uint32_t most = (r->max_rows - f->n_mates * 31);

    sampler_params_init(&sp);
    ret->logits = malloc(r->n_vocab * sizeof *ret->logits);
    ck_assert(ckpt && ret->logits);
    ck_assert_int_eq(units_take(u, n_ckpt, ckpt), 0);
    const struct step_capture capture = {.pos = f->n, .units = ckpt};

    while (pos < f->n) {
        struct step_entry en = {.seq = s, .sampling = &sp, .samples = &sample}, done;

        if (pos < n_given) {
            while (i_cut < f->n_cuts && f->cuts[i_cut] <= pos)
                i_cut++;
            uint32_t end = i_cut < f->n_cuts && f->cuts[i_cut] < n_given ? f->cuts[i_cut] : n_given;
            en.ids = f->ids + pos;
            en.n_rows = end - pos < most ? end - pos : most;
        } else {
            ck_assert_int_eq(sample.id, f->ids[pos]);
            en.n_rows = 1;
        }
        pos += en.n_rows;
        en.n_logits = pos >= n_given;
        if (pos == f->n) {
            en.logits = ret->logits;
            en.captures = &capture;
            en.n_captures = n_ckpt > 0;
        }
        run_step(r, f, mates, &seed, &en, &done);
    }
    ret->next = sample.id;
    ret->state = runner_state(r, s, n_ckpt ? ckpt : NULL, &ret->n_state);
    for (uint32_t i = 0; i < n_ckpt; i++)
        units_unref(u, ckpt[i]);
    free(ckpt);
    for (uint32_t i = 0; i < f->n_mates; i++)
        if (mates[i].seq)
            runner_release(r, mates[i].seq);
    runner_release(r, s);
}

void outcome_done(struct outcome *o)
{
    free(o->state);
    free(o->logits);
    *o = (struct outcome){0};
}

void outcome_expect(const struct runner *r, const struct outcome *want, const struct outcome *have,
                    const char *what, uint32_t n, uint32_t k)
{
    const size_t pages = want->n_state - (size_t)r->plan.checkpoint_units * r->plan.unit_bytes;
    size_t at = 0;

    ck_assert_uint_eq(want->n_state, have->n_state);
    /* Every assertion is a message to the parent: one for all bytes, not one for each. */
    while (at < want->n_state && want->state[at] == have->state[at])
        at++;
    ck_assert_msg(at == want->n_state, "%s: %u tokens, variant %u: %s differ at byte %zu", what, n,
                  k, at < pages ? "pages" : "checkpoints", at < pages ? at : at - pages);
    ck_assert_msg(memcmp(want->logits, have->logits, r->n_vocab * sizeof(float)) == 0,
                  "%s: %u tokens, variant %u: logits differ", what, n, k);
    ck_assert_int_eq(want->next, have->next);
}

int32_t *exact_ids(struct runner *r, uint32_t n, uint32_t n_generated, uint32_t seed)
{
    int32_t *ids = malloc(n * sizeof *ids);
    unsigned int s = seed;
    struct sequence *seq;

    ck_assert(ids && n_generated < n);
    for (uint32_t i = 0; i < n - n_generated; i++)
        ids[i] = (int32_t)((uint32_t)rand_r(&s) % r->n_vocab);
    if (n_generated == 0)
        return ids;
    seq = runner_sequence(r);
    ids[n - n_generated] = runner_read(r, seq, ids, n - n_generated, r->max_rows, NULL);
    for (uint32_t i = n - n_generated + 1; i < n; i++)
        ids[i] = runner_next(r, seq, NULL);
    runner_release(r, seq);
    return ids;
}
