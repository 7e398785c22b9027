/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chat's answer, built from the text of its request: content, reasoning and tool calls, as the
 * deltas of a stream or as one message.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_CHAT_ANSWER_H
#define DAEMON_CHAT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct chat_answer;
struct completion_params;
struct request;

/* NULL when out of memory.  `p` is borrowed for its life. */
struct chat_answer *chat_answer_new(const struct completion_params *p);
void chat_answer_free(struct chat_answer *c); /* NULL is fine */

/* Takes what is new in the request's text; at its end also what was held back.  0 or -ENOMEM. */
int chat_answer_take(struct chat_answer *c, const struct request *r);
/* Something was taken that no delta has told. */
bool chat_answer_has_more(const struct chat_answer *c);
/* "delta":{…} with it.  0 or buf's errors. */
int chat_answer_delta(struct chat_answer *c, struct buf *out);
/* "message":{…} with everything. */
int chat_answer_message(const struct chat_answer *c, struct buf *out);

/* "tool_calls", or NULL: what the request says. */
const char *chat_answer_finish(const struct chat_answer *c);
bool chat_answer_in_reasoning(const struct chat_answer *c);

/*
 * The budget of its reasoning, asked when request.n_hold is reached (request.h: observer.held):
 * sets it anew, and says whether the request's `insert`, which ends reasoning, goes on.  In the
 * middle of a character or of what may be a marker the answer is: one token more first.
 */
bool chat_answer_held(struct chat_answer *c, struct request *r);

#endif
