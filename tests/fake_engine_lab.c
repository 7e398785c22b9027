/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake_engine_lab.h"

#include <check.h>
#include <string.h>

void lab_open(struct lab *l, uint32_t checkpoint_units)
{
    *l = (struct lab){.o = {.n_units = LAB_UNITS,
                            .context = 512,
                            .max_rows = 256,
                            .n_sequences = 4,
                            .n_vocab = 50,
                            .checkpoint_units = checkpoint_units,
                            .seed = 3}};
    l->e = fake_engine_new(&l->o);
    l->u = engine_units(l->e);
    for (int i = 0; i < LAB_N; i++)
        l->ids[i] = 2 + (i * 7 + i / 11) % 48;
}

void lab_close(struct lab *l)
{
    ck_assert(units_is_sane(l->u));
    ck_assert_uint_eq(l->u->n_free, LAB_UNITS);
    engine_close(l->e);
}

void lab_submit(struct lab *l, struct job *j)
{
    ck_assert_int_eq(engine_submit(l->e, j, NULL), 0);
}

int lab_run(struct lab *l, struct job *j)
{
    lab_submit(l, j);
    ck_assert_ptr_eq(engine_wait(l->e), j);
    return j->status;
}

void lab_take(struct lab *l, uint32_t n, uint32_t *units)
{
    ck_assert_int_eq(units_take(l->u, n, units), 0);
}

void lab_drop(struct lab *l, uint32_t n, const uint32_t *units)
{
    for (uint32_t i = 0; i < n; i++)
        units_unref(l->u, units[i]);
}

struct sequence *lab_sequence(struct lab *l)
{
    struct sequence *s = NULL;

    ck_assert_int_eq(sequence_new(l->e, &s), 0);
    return s;
}

void lab_release(struct lab *l, struct sequence *s)
{
    ck_assert_int_eq(lab_run(l, &(struct job_release){.job.kind = JOB_RELEASE, .seq = s}.job), 0);
}

void lab_step_init(struct lab *l, struct lab_step *st, struct sequence *s, const int32_t *ids,
                   uint32_t end, uint32_t cap_pos, const uint32_t *ckpt)
{
    const uint32_t begin = sequence_length(s), have = sequence_n_pages(s);

    memset(st, 0, sizeof *st);
    sampler_params_init(&st->sp);
    st->sp.n_prompt = 1;
    st->cap = (struct step_capture){.pos = cap_pos, .units = ckpt};
    st->en = (struct step_entry){.seq = s,
                                 .ids = ids + begin,
                                 .n_rows = end - begin,
                                 .n_logits = end == LAB_N,
                                 .units = st->units,
                                 .n_units = engine_pages(end) - have,
                                 .captures = &st->cap,
                                 .n_captures = cap_pos > 0,
                                 .sampling = &st->sp,
                                 .samples = &st->sample};
    st->job = (struct job_step){.job.kind = JOB_STEP, .entries = &st->en, .n_entries = 1};
    lab_take(l, st->en.n_units, st->units);
}

void lab_step_submit(struct lab *l, struct lab_step *st)
{
    lab_submit(l, &st->job.job);
    lab_drop(l, st->en.n_units, st->units);
}

int32_t lab_read_to(struct lab *l, struct sequence *s, const int32_t *ids, uint32_t end,
                    uint32_t cap_pos, const uint32_t *ckpt)
{
    struct lab_step st;

    lab_step_init(l, &st, s, ids, end, cap_pos, ckpt);
    lab_step_submit(l, &st);
    ck_assert_ptr_eq(engine_wait(l->e), &st.job.job);
    ck_assert_int_eq(st.en.status, 0);
    return st.sample.id;
}

void lab_store(struct lab *l, const int32_t *ids, uint32_t pos, struct lab_stored *ret)
{
    struct sequence *s = lab_sequence(l);

    *ret = (struct lab_stored){.pos = pos, .n_pages = engine_pages(pos)};
    lab_take(l, l->o.checkpoint_units, ret->ckpt);
    (void)lab_read_to(l, s, ids, pos, l->o.checkpoint_units ? pos : 0, ret->ckpt);
    memcpy(ret->pages, sequence_pages(s), ret->n_pages * sizeof *ret->pages);
    for (uint32_t i = 0; i < ret->n_pages; i++)
        units_ref(l->u, ret->pages[i]);
    lab_release(l, s);
}

void lab_drop_stored(struct lab *l, struct lab_stored *st)
{
    lab_drop(l, st->n_pages, st->pages);
    lab_drop(l, l->o.checkpoint_units, st->ckpt);
}

void lab_copy_tail(struct lab *l, struct lab_stored *st)
{
    struct transfer t = {.from = st->pages[st->n_pages - 1], .n_tokens = st->pos % 64};
    struct job_transfer j = {.job.kind = JOB_COPY, .items = &t, .n_items = 1};

    if (t.n_tokens == 0)
        return;
    lab_take(l, 1, &t.unit);
    ck_assert_int_eq(lab_run(l, &j.job), 0);
    units_unref(l->u, t.from);
    st->pages[st->n_pages - 1] = t.unit;
}

struct job_mount lab_mount_job(struct sequence *s, const int32_t *ids, const struct lab_stored *st)
{
    return (struct job_mount){.job.kind = JOB_MOUNT,
                              .seq = s,
                              .pos = st->pos,
                              .tokens = ids,
                              .pages = st->pages,
                              .n_pages = st->n_pages,
                              .checkpoint = st->ckpt};
}

struct sequence *lab_mount(struct lab *l, const int32_t *ids, const struct lab_stored *st)
{
    struct sequence *s = lab_sequence(l);
    struct job_mount j = lab_mount_job(s, ids, st);

    ck_assert_int_eq(lab_run(l, &j.job), 0);
    ck_assert_uint_eq(sequence_length(s), st->pos);
    return s;
}
