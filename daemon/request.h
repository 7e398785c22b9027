/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One completion, from its parameters to its last token.
 *
 * Life: made by the API layer on a front thread (JSON read, prompt tokenised), handed to the loop,
 * given to sched_submit, which queues it for a slot, has its prompt read in chunks and its tokens
 * generated, and turns tokens into text (request_text.c: UTF-8 kept whole, stop strings found
 * across token and chunk borders).  The observer is told on the loop thread.
 *
 * Owner: from sched_submit on the loop thread only.  Reference counted there: the scheduler holds
 * one reference until `done` was called, the API another.
 */
#ifndef DAEMON_REQUEST_H
#define DAEMON_REQUEST_H

#include "daemon/boundaries.h"
#include "engine/sampler.h"
#include "engine/tokenizer.h"
#include "util/buf.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <stdint.h>

struct decision;
struct request;
struct run;
struct stop_match;

enum request_state {
    REQUEST_NEW,
    REQUEST_QUEUED,  /* waits for a slot */
    REQUEST_READING, /* its prompt is being read */
    REQUEST_GENERATING,
    REQUEST_DONE,
};

enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,      /* end token or stop string */
    FINISH_LENGTH,    /* max_tokens or the context is full */
    FINISH_CANCELLED, /* the client went away, or an operator or a shutdown stopped it */
    FINISH_ERROR,     /* `error` says why */
};

/* One generated token as the API reports it. */
struct out_token {
    int32_t id;
    size_t text_begin; /* offset of its text in request.text (bytes), once released */
    float logprob;
    uint32_t n_top;
    struct token_logprob *top; /* owned, [n_top] */
};

struct request_observer {
    /* More of the prompt was read (n_read of n_prompt); called at most once a step. */
    void (*progress)(struct request *r, void *arg);
    /* Text or tokens were appended since the last call. */
    void (*output)(struct request *r, void *arg);
    /* state is REQUEST_DONE, finish is set; the last call. */
    void (*done)(struct request *r, void *arg);
    /*
     * n_generated has reached n_hold: sets n_hold anew, and says whether `insert` goes on in place
     * of what would be sampled next.  Called from inside the scheduler, so it must call nothing of
     * it.  NULL when n_hold is UINT32_MAX.
     */
    bool (*held)(struct request *r, void *arg);
    void *arg;
};

struct request {
    unsigned int refs;
    uint64_t id;      /* of this process, from 1 */
    char name[48];    /* its id in the answer, "" */
    uint32_t uid;     /* peer: its isolation key, with cache_salt; UINT32_MAX unknown */
    const char *key;  /* TCP: the name of its API key's owner, who is the isolation key then (uid is
                         a number of this process); borrowed until the server ends; NULL: none */
    char http_id[72]; /* X-Request-Id, "" */

    /* Parameters, fixed once submitted. */
    struct token_list prompt;       /* owned, at least one token */
    struct sampler_params sampling; /* n_prompt, end_ids set by sched_submit */
    struct logit_bias *bias;        /* owned, what sampling.bias points to */
    uint32_t max_tokens;            /* UINT32_MAX: may fill the context */
    struct token_list insert;       /* owned: what observer.held may put into the answer */
    bool ignore_eos;                /* end tokens neither end it nor are likely: bias -infinity */
    char **stop;                    /* owned, stop strings: valid UTF-8, non-empty */
    size_t n_stop;
    struct request_observer observer;
    struct boundaries bounds; /* of the prompt; a root asked for by `cache_root` is in here */
    char *cache_salt; /* owned, NULL: none; only the same salt shares what is cached.  At most 256
                         bytes */
    bool root_asked;  /* bounds.root is what the request said, whatever its size */
    bool no_cache;    /* `cache_prompt` false: neither reuses nor leaves anything */

    /* Progress. */
    enum request_state state;
    enum finish_reason finish;
    int error; /* when FINISH_ERROR */
    struct err_text error_text;
    int32_t stop_token;   /* the end token that ended it, -1 */
    char *stop_word;      /* borrowed from stop[]: the stop string that ended it, NULL */
    int slot;             /* -1 while it has none */
    uint32_t n_cached;    /* prompt tokens that did not have to be read */
    uint32_t n_read;      /* prompt tokens read, cached ones included */
    uint32_t n_generated; /* tokens of the answer, inserted ones and the end token included */
    uint32_t n_hold;      /* observer.held is asked when so many were generated; > n_generated */

    /* Output.  `text` holds released text: whole UTF-8, nothing that may still become a stop
     * string. */
    struct buf text;
    struct out_token *tokens; /* owned, [n_tokens]: of the answer, the end token included */
    size_t n_tokens, cap_tokens;
    size_t n_tokens_released; /* tokens whose text is wholly in `text` (or was cut by a stop string,
                                 when done) */

    /* Times, clock_ns; 0: not yet. */
    uint64_t t_submit, t_start /* got its slot */, t_prompt_done, t_first, t_last;

    /* Owned by request_text.c. */
    struct buf held;            /* text that may be the beginning of a stop string */
    struct utf8_stream utf8;    /* the beginning of a character whose rest is still to come, */
    size_t i_utf8;              /* and the token that it began in */
    struct stop_match *matches; /* owned, [n_stop]; made with the first text */

    struct decision *decision; /* one reference; NULL before sched_submit */

    /* Owned by sched.c: NULL before sched_submit and once it is done with the request. */
    struct run *run;
};

/* NULL when out of memory; one reference; greedy, max_tokens UINT32_MAX. */
struct request *request_new(void);
struct request *request_ref(struct request *r);
/* Frees with the last reference; NULL is fine; returns NULL. */
struct request *request_unref(struct request *r);

/*
 * Appends a sampled token and its text; finds stop strings.  Returns 1 when a stop string ended the
 * text (stop_word set, text cut before it), 0, or -ENOMEM. An end token adds no text.  Of several
 * stop strings the one that is complete first wins, and among those that are complete at the same
 * byte the longest, so the result does not depend on how the text was cut into tokens.
 */
int request_put_token(struct request *r, const struct tokenizer *t, const struct sample *s);
/* The end: releases what was held back.  The same returns; a second call does nothing. */
int request_end_text(struct request *r);
/* Frees what only the making of text needs; request_unref does it too. */
void request_text_done(struct request *r);

#endif
