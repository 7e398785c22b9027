/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a completion's answer says: OpenAI's objects, with llama-server's timings and progress.
 *
 * All write JSON into a buf and return 0 or buf's errors.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_API_ANSWER_H
#define DAEMON_API_ANSWER_H

#include "daemon/api_parse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct chat_answer;
struct request;
struct tokenizer;

/* What of a request has been told already; zero at the beginning. */
struct answer_cursor {
    size_t text;          /* bytes of request.text */
    size_t token;         /* of request.tokens */
    size_t byte, n_chars; /* n_chars code points lie before byte `byte` of request.text */
    bool prompt_ids;
};

struct answer {
    const struct request *request;
    const struct tokenizer *tokenizer;
    const struct completion_params *params;
    const char *id; /* "cmpl-...", "chatcmpl-..." */
    const char *model;
    int64_t created;          /* unix seconds */
    struct chat_answer *chat; /* borrowed; what is new must have been taken; NULL: a completion of
                                 text */
    struct answer_cursor at;
};

/* The one object of an answer that is not streamed; the request is done. */
int answer_whole(struct answer *a, struct buf *out);

/* True when a chunk would say something new. */
bool answer_has_more(const struct answer *a);
/*
 * The event of a chunk with everything since the last one; with finish reason and timings when the
 * request is done.
 */
int answer_chunk(struct answer *a, struct buf *out);
/* The event of prompt_progress. */
int answer_progress(const struct answer *a, struct buf *out);
/* The event of the usage (no choices), for include_usage. */
int answer_usage(const struct answer *a, struct buf *out);

#endif
