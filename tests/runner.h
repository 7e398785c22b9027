/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine made easy for tests: everything is waited for, and a fault is a failed check.
 */
#ifndef TESTS_RUNNER_H
#define TESTS_RUNNER_H

#include "engine/engine.h"
#include "engine/model.h"

#include <stddef.h>
#include <stdint.h>

struct mkmodel;

struct runner {
    struct model *model;
    struct engine *engine;
    uint32_t n_vocab, max_rows;
    struct engine_plan plan;
};

struct runner_options {
    const char *kv_type, *isa;
    uint32_t n_threads, n_sequences, max_rows, context, n_units;
};

/* Defaults: fastest kernels, 1 thread, 8 sequences, 512 rows, context 4096, 192 units. */
void runner_open(struct runner *r, const char *path, const struct runner_options *o);
/* The same with a model that tests/mkmodel makes; family NULL: the needle file. */
void runner_open_made(struct runner *r, const struct mkmodel *m, const struct runner_options *o);
void runner_close(struct runner *r);

struct sequence *runner_sequence(struct runner *r);
void runner_release(struct runner *r, struct sequence *s);

/* Fills in pages for the rows of an entry (caller's array of at least n_rows/64 + 1). */
void runner_pages(struct runner *r, struct step_entry *en, uint32_t *units);
/* Runs one step to its end; pages are taken here. */
void runner_step(struct runner *r, struct step_entry *entries, uint32_t n);
/* Runs any job to its end and returns its status. */
int runner_job(struct runner *r, struct job *j);

/*
 * Reads ids[0..n) in pieces of at most `cut` rows; the logits of the last row go to `logits` when
 * not NULL ([n_vocab]). Returns the greedy token.
 */
int32_t runner_read(struct runner *r, struct sequence *s, const int32_t *ids, uint32_t n,
                    uint32_t cut, float *logits);
/* One more token, greedily, from the one sampled last. */
int32_t runner_next(struct runner *r, struct sequence *s, float *logits);

/* All pages (zeroed beyond the length) and the checkpoint after the last token, as bytes;
 * malloc'ed. */
uint8_t *runner_state(struct runner *r, struct sequence *s, const uint32_t *checkpoint,
                      size_t *ret_n);

#endif
