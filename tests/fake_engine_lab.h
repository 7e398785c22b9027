/* SPDX-License-Identifier: Apache-2.0 */
/* The fake engine with tokens to read, for the tests of itself: every job is run to its end, and a
 * fault is a failed check. */
#ifndef TESTS_FAKE_ENGINE_LAB_H
#define TESTS_FAKE_ENGINE_LAB_H

#include "tests/fake_engine.h"

enum { LAB_N = 200, LAB_MAX_CKPT = 4, LAB_UNITS = 40 };

/* An engine, and ids[0..LAB_N). */
struct lab {
    struct fake_options o;
    struct engine *e;
    struct units *u;
    int32_t ids[LAB_N];
};

/* A step of one entry, with everything that it points to. */
struct lab_step {
    struct job_step job;
    struct step_entry en;
    struct step_capture cap;
    struct sampler_params sp;
    struct sample sample;
    uint32_t units[8];
};

/* ids[0..pos) stored: pages and checkpoint, referenced, the sequence gone. */
struct lab_stored {
    uint32_t pos, n_pages, pages[8], ckpt[LAB_MAX_CKPT];
};

void lab_open(struct lab *l, uint32_t checkpoint_units);
void lab_close(struct lab *l);
void lab_submit(struct lab *l, struct job *j);
int lab_run(struct lab *l, struct job *j);
void lab_take(struct lab *l, uint32_t n, uint32_t *units);
void lab_drop(struct lab *l, uint32_t n, const uint32_t *units);
struct sequence *lab_sequence(struct lab *l);
void lab_release(struct lab *l, struct sequence *s);
/* Rows [length, end) of `ids`; a capture at `cap_pos` when not 0. */
void lab_step_init(struct lab *l, struct lab_step *st, struct sequence *s, const int32_t *ids,
                   uint32_t end, uint32_t cap_pos, const uint32_t *ckpt);
void lab_step_submit(struct lab *l, struct lab_step *st);
/* Reads up to `end` and returns what is sampled there (end == LAB_N). */
int32_t lab_read_to(struct lab *l, struct sequence *s, const int32_t *ids, uint32_t end,
                    uint32_t cap_pos, const uint32_t *ckpt);
void lab_store(struct lab *l, const int32_t *ids, uint32_t pos, struct lab_stored *ret);
void lab_drop_stored(struct lab *l, struct lab_stored *st);
/* The last page, when it is partial, becomes a private copy. */
void lab_copy_tail(struct lab *l, struct lab_stored *st);
struct job_mount lab_mount_job(struct sequence *s, const int32_t *ids, const struct lab_stored *st);
struct sequence *lab_mount(struct lab *l, const int32_t *ids, const struct lab_stored *st);

#endif
