/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runner.h"

#include "tests/golden.h"
#include "tests/mkmodel.h"
#include "util/err.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void runner_open(struct runner *r, const char *path, const struct runner_options *o)
{
    const struct runner_options none = {0};
    struct err_text e = {""};
    struct engine_options eo;
    struct engine_plan plan;
    int rc;

    if (!o)
        o = &none;
    memset(r, 0, sizeof *r);
    rc = model_open(path, &r->model, &e);
    ck_assert_msg(rc >= 0, "%s: %s", err_str(rc), e.s);
    eo = (struct engine_options){
        .kv_type = o->kv_type,
        .isa = o->isa,
        .n_threads = o->n_threads ? o->n_threads : 1,
        .n_sequences = o->n_sequences ? o->n_sequences : 8,
        .max_rows = o->max_rows,
        .context = o->context ? o->context : 4096,
    };
    rc = engine_plan(r->model, &eo, &plan, &e);
    ck_assert_msg(rc >= 0, "%s: %s", err_str(rc), e.s);
    eo.pool_bytes = plan.unit_bytes * (o->n_units ? o->n_units : 192);
    rc = engine_open(r->model, &eo, &r->engine, &e);
    ck_assert_msg(rc >= 0, "%s: %s", err_str(rc), e.s);
    r->n_vocab = r->model->hp.n_vocab;
    r->max_rows = o->max_rows ? o->max_rows : 512;
    r->plan = *engine_limits(r->engine);
}

void runner_open_made(struct runner *r, const struct mkmodel *m, const struct runner_options *o)
{
    char path[] = "/tmp/strata_made_XXXXXX";
    int fd;

    if (!m->family) {
        runner_open(r, golden_path("needle-f16.gguf"), o);
        return;
    }
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(mkmodel_write(m, path), 0);
    runner_open(r, path, o);
    (void)unlink(path);
}

void runner_close(struct runner *r)
{
    ck_assert(units_is_sane(engine_units(r->engine)));
    engine_close(r->engine);
    model_free(r->model);
}

struct sequence *runner_sequence(struct runner *r)
{
    struct sequence *s = NULL;

    ck_assert_int_eq(sequence_new(r->engine, &s), 0);
    return s;
}

int runner_job(struct runner *r, struct job *j)
{
    struct err_text e = {""};
    int rc = engine_submit(r->engine, j, &e);

    ck_assert_msg(rc == 0, "%s: %s", err_str(rc), e.s);
    ck_assert_ptr_eq(engine_wait(r->engine), j);
    return j->status;
}

void runner_release(struct runner *r, struct sequence *s)
{
    struct job_release j = {.job.kind = JOB_RELEASE, .seq = s};

    ck_assert_int_eq(runner_job(r, &j.job), 0);
}

void runner_pages(struct runner *r, struct step_entry *en, uint32_t *units)
{
    uint32_t end = sequence_length(en->seq) + en->n_rows, have = sequence_n_pages(en->seq);
    uint32_t need = engine_pages(end);

    en->n_units = need > have ? need - have : 0;
    en->units = units;
    ck_assert_int_eq(units_take(engine_units(r->engine), en->n_units, units), 0);
}

void runner_step(struct runner *r, struct step_entry *entries, uint32_t n)
{
    struct job_step j = {.job.kind = JOB_STEP, .entries = entries, .n_entries = n};
    uint32_t units[64][32];

    ck_assert_uint_le(n, 64);
    for (uint32_t i = 0; i < n; i++)
        runner_pages(r, &entries[i], units[i]);
    ck_assert_int_eq(runner_job(r, &j.job), 0);
    /* The sequence holds them now; the reference of units_take goes. */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < entries[i].n_units; k++)
            units_unref(engine_units(r->engine), units[i][k]);
}

int32_t runner_read(struct runner *r, struct sequence *s, const int32_t *ids, uint32_t n,
                    uint32_t cut, float *logits)
{
    struct sampler_params sp;
    struct sample sample = {.id = -1};

    sampler_params_init(&sp);
    for (uint32_t at = 0; at < n;) {
        uint32_t rows = n - at < cut ? n - at : cut;
        struct step_entry en = {
            .seq = s, .ids = ids + at, .n_rows = rows, .sampling = &sp, .samples = &sample};

        at += rows;
        if (at == n) {
            en.n_logits = 1;
            en.logits = logits;
        }
        runner_step(r, &en, 1);
        ck_assert_int_eq(en.status, 0);
    }
    return sample.id;
}

int32_t runner_next(struct runner *r, struct sequence *s, float *logits)
{
    struct sampler_params sp;
    struct sample sample;
    struct step_entry en = {.seq = s,
                            .n_rows = 1,
                            .n_logits = 1,
                            .sampling = &sp,
                            .samples = &sample,
                            .logits = logits};

    sampler_params_init(&sp);
    runner_step(r, &en, 1);
    ck_assert_int_eq(en.status, 0);
    return sample.id;
}

uint8_t *runner_state(struct runner *r, struct sequence *s, const uint32_t *checkpoint,
                      size_t *ret_n)
{
    const size_t unit = r->plan.unit_bytes;
    const uint32_t n_pages = sequence_n_pages(s),
                   n_ckpt = checkpoint ? r->plan.checkpoint_units : 0;
    const uint32_t used = sequence_length(s) % ENGINE_PAGE_TOKENS;
    struct transfer *items = calloc(n_pages + n_ckpt + 1, sizeof *items);
    uint8_t *bytes = malloc((n_pages + n_ckpt) * unit + 1);
    struct job_transfer j = {.job.kind = JOB_EXPORT, .items = items, .n_items = n_pages + n_ckpt};
    const uint32_t *pages = sequence_pages(s);

    ck_assert(items && bytes);
    for (uint32_t i = 0; i < n_pages + n_ckpt; i++) {
        items[i].unit = i < n_pages ? pages[i] : checkpoint[i - n_pages];
        items[i].host = bytes + i * unit;
        items[i].n_tokens = i + 1 == n_pages ? used : 0;
    }
    ck_assert_int_eq(runner_job(r, &j.job), 0);
    free(items);
    *ret_n = (n_pages + n_ckpt) * unit;
    return bytes;
}
