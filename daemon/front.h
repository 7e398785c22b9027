/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Front threads: work on request bodies (JSON, tokeniser) that would hold up the loop.
 *
 * Owner: the loop thread.  A job's `work` runs on a front thread and may touch only what the job
 * owns and immutable things (the tokenizer); `done` runs on the loop thread later.  Jobs are
 * started in order.
 */
#ifndef DAEMON_FRONT_H
#define DAEMON_FRONT_H

#include "util/mailbox.h"

typedef struct sd_event sd_event;
struct front;

struct front_job {
    struct mail mail; /* front's */
    void (*work)(struct front_job *j);
    void (*done)(struct front_job *j); /* owns the job again */
};

/* `event` is borrowed and outlives it; n_threads > 0.  0 or a negative errno. */
int front_new(sd_event *event, unsigned int n_threads, struct front **ret);
/* Runs what was submitted to the end (done is called for each), then joins the threads. */
void front_free(struct front *f);
/* The job is the front's until `done` is called, never from inside this call. */
void front_submit(struct front *f, struct front_job *j);

#endif
