/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/workload.h"

#include "engine/engine.h"
#include "engine/model.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <string.h>
#include <time.h>

const struct work works[] = {
    {"prefill-512", 512, 1, 0},       {"decode-64", 1, 1, 64},
    {"decode-64-at-512", 512, 1, 64}, {"decode-64-batch-4", 1, 4, 64},
    {"decode-64-batch-8", 1, 8, 64},
};
const size_t n_works = sizeof works / sizeof works[0];

const struct work *work_find(const char *name)
{
    for (size_t i = 0; i < n_works; i++)
        if (strcmp(works[i].name, name) == 0)
            return &works[i];
    return NULL;
}

uint32_t work_tokens(const struct work *w)
{
    return w->n_steps ? w->n_steps * w->n_sequences : w->context;
}

int workload_open(struct workload *wl, const char *path, uint32_t n_threads, const char *isa,
                  struct err_text *e)
{
    struct engine_options o = {
        .isa = isa,
        .n_threads = n_threads,
        .n_sequences = WORK_MAX_SEQUENCES,
        .max_rows = WORK_MAX_ROWS,
        .context = WORK_CONTEXT,
    };
    struct engine_plan plan;
    int r;

    *wl = (struct workload){0};
    r = model_open(path, &wl->model, e);
    if (r < 0)
        return r;
    r = engine_plan(wl->model, &o, &plan, e);
    if (r >= 0) {
        o.pool_bytes =
            plan.unit_bytes * WORK_MAX_SEQUENCES * (WORK_CONTEXT / ENGINE_PAGE_TOKENS + 1);
        r = engine_open(wl->model, &o, &wl->engine, e);
    }
    if (r < 0)
        workload_close(wl);
    return r;
}

void workload_close(struct workload *wl)
{
    if (wl->engine)
        engine_close(wl->engine);
    model_free(wl->model);
    *wl = (struct workload){0};
}

/* Submits a job and waits for it; its status. */
static int finish(struct workload *wl, struct job *j, struct err_text *e)
{
    int r = engine_submit(wl->engine, j, e);

    if (r < 0)
        return r;
    if (engine_wait(wl->engine) != j)
        return err_set(e, -EINVAL, "another job completed");
    return j->status < 0 ? err_set(e, j->status, "a job failed") : 0;
}

static double cpu_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* One step; its time is added to *t.  Pages are taken before and given to the sequences. */
static int step(struct workload *wl, struct step_entry *entries, uint32_t n, struct work_time *t,
                struct err_text *e)
{
    uint32_t pages[WORK_MAX_SEQUENCES][WORK_CONTEXT / ENGINE_PAGE_TOKENS];
    struct job_step j = {.job.kind = JOB_STEP, .entries = entries, .n_entries = n};
    struct units *units = engine_units(wl->engine);
    uint64_t start;
    double cpu;
    int r;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t end = sequence_length(entries[i].seq) + entries[i].n_rows;
        const uint32_t have = sequence_n_pages(entries[i].seq);
        const uint32_t need = engine_pages(end);

        entries[i].n_units = need > have ? need - have : 0;
        entries[i].units = pages[i];
        r = units_take(units, entries[i].n_units, pages[i]);
        if (r < 0)
            return err_set(e, r, "no page is free");
    }
    cpu = cpu_s();
    start = clock_ns();
    r = finish(wl, &j.job, e);
    t->wall_s += (double)(clock_ns() - start) * 1e-9;
    t->cpu_s += cpu_s() - cpu;
    t->run_s += (double)j.run_ns * 1e-9;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < entries[i].n_units; k++)
            units_unref(units, pages[i][k]);
    for (uint32_t i = 0; i < n && r == 0; i++)
        if (entries[i].status < 0)
            r = err_set(e, entries[i].status, "an entry failed");
    return r;
}

/* The generator that bench/peer.py has too. */
static void make_ids(uint32_t seed, uint32_t n_vocab, uint32_t n, int32_t *ids)
{
    uint32_t x = seed;

    for (uint32_t i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U;
        ids[i] = (int32_t)((x >> 8) % n_vocab);
    }
}

static int run(struct workload *wl, const struct work *w, struct sequence **seqs,
               struct work_time *ret, struct err_text *e)
{
    struct step_entry entries[WORK_MAX_SEQUENCES];
    struct sample samples[WORK_MAX_SEQUENCES];
    int32_t ids[WORK_CONTEXT];
    struct sampler_params greedy;
    struct work_time read = {0}, generate = {0};
    int r = 0;

    sampler_params_init(&greedy);
    for (uint32_t i = 0; i < w->n_sequences && r == 0; i++) {
        make_ids(i + 1, wl->model->hp.n_vocab, w->context, ids);
        entries[i] = (struct step_entry){
            .seq = seqs[i],
            .ids = ids,
            .n_rows = w->context,
            .n_logits = 1,
            .sampling = &greedy,
            .samples = &samples[i],
        };
        r = step(wl, &entries[i], 1, &read, e);
    }
    for (uint32_t k = 0; k < w->n_steps && r == 0; k++) {
        for (uint32_t i = 0; i < w->n_sequences; i++) {
            entries[i].ids = NULL;
            entries[i].n_rows = 1;
        }
        r = step(wl, entries, w->n_sequences, &generate, e);
    }
    if (r == 0)
        *ret = w->n_steps ? generate : read;
    return r;
}

int workload_round(struct workload *wl, const struct work *w, struct work_time *ret,
                   struct err_text *e)
{
    struct sequence *seqs[WORK_MAX_SEQUENCES];
    uint32_t n = 0;
    int r = 0;

    for (; n < w->n_sequences && r == 0; n += r == 0)
        r = sequence_new(wl->engine, &seqs[n]);
    if (r < 0)
        (void)err_set(e, r, "no sequence");
    else
        r = run(wl, w, seqs, ret, e);
    for (uint32_t i = 0; i < n; i++) {
        struct job_release j = {.job.kind = JOB_RELEASE, .seq = seqs[i]};
        int released = finish(wl, &j.job, e);

        r = r < 0 ? r : released;
    }
    return r;
}
