/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler with its cache over the real CPU engine and a real model, in this process; and a
 * second engine that never reuses anything, to compare with.
 *
 * What a request sampled and what it left (every page and checkpoint, in every tier) is compared
 * with what a plain sequence of the second engine samples and is after the same tokens, as bytes.
 */
#ifndef TESTS_SCHED_LAB_H
#define TESTS_SCHED_LAB_H

#include "cache/cache.h"
#include "daemon/decisions.h"
#include "daemon/request.h"
#include "tests/runner.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sd_event sd_event;
struct mkmodel;
struct sched;

struct lab_options {
    uint32_t parallel;  /* 4 */
    uint32_t n_threads; /* 1; the engine to compare with has 1 */
    uint32_t max_rows;  /* 128 */
    uint32_t n_units;   /* of the pool; 256 */
    uint32_t context;   /* 2048 */
    uint32_t ram_units; /* as said: 0 is none */
    uint32_t n_conversations;
    uint32_t n_roots;          /* 8 */
    uint32_t checkpoint_every; /* 8192 */
};

struct lab {
    sd_event *event;
    struct runner runner, cold;
    struct tokenizer *tokenizer;
    struct arena *arena;
    struct cache *cache;
    struct decisions *decisions;
    struct sched *sched;
    uint64_t last_id;
    uint32_t n_running; /* submitted, and `done` was not called */
    uint32_t unit_pages_compared, checks_compared;
};

/* `make` as for runner_open_made. */
void lab_open(struct lab *l, const struct mkmodel *make, const struct lab_options *o);
/* Everything must have ended; fails when the books do not add up. */
void lab_close(struct lab *l);

/* A request of uid 1000 for n_answer tokens, not submitted; one reference. */
struct request *lab_request(struct lab *l, const int32_t *ids, uint32_t n, uint32_t n_answer);
void lab_submit(struct lab *l, struct request *r);
/* Until all that were submitted have ended and nothing moves any more. */
void lab_run(struct lab *l);
/* One turn of the loop, or nothing when there is nothing to do. */
void lab_turn(struct lab *l);

/* What it sampled, with the logarithms of the most likely tokens, and the path of all its tokens as
 * far as it is stored. */
void lab_expect_cold(struct lab *l, const struct request *r, const char *what, uint32_t k);
/* Everything that is stored. */
void lab_expect_all_cold(struct lab *l, const char *what, uint32_t k);

/* The bytes of the stored path of ids[0..n) in vram; malloc'ed.  Units as they are, or as they
 * leave the process.  Fails when it is not wholly there. */
uint8_t *lab_path_bytes(struct lab *l, uint32_t uid, const int32_t *ids, uint32_t n,
                        bool as_they_are, size_t *ret_n);

#endif
