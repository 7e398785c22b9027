/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of one chat, as POST /v1/chat/completions takes them: a system message perhaps, then
 * questions and answers in turns.  A question without an answer yet is the last message.
 *
 * No I/O; not thread safe.  All int results are 0, -ENOMEM, or what else is said.
 */
#ifndef CTL_DIALOGUE_H
#define CTL_DIALOGUE_H

#include <jansson.h>
#include <stdbool.h>

struct buf;

struct dialogue {
    json_t *messages;   /* owned: an array */
    json_t *unanswered; /* owned: the question that was taken back, or NULL */
};

int dialogue_init(struct dialogue *d);
void dialogue_done(struct dialogue *d);

/* Sets or replaces the system message; NULL: none any more.  -EILSEQ when it is not UTF-8. */
int dialogue_set_system(struct dialogue *d, const char *text);
/* The next question; one that was taken back is forgotten.  `text` is taken over, also on
 * failure; NULL is -ENOMEM. */
int dialogue_ask(struct dialogue *d, json_t *text);
/* Its answer; `reasoning` may be empty. */
int dialogue_answer(struct dialogue *d, const struct buf *text, const struct buf *reasoning);
/* There is no answer: the question is no message any more, but dialogue_ask_again() knows it. */
void dialogue_take_back(struct dialogue *d);

/* Forgets the last question that has an answer, with it.  -ENOENT when there is none. */
int dialogue_undo(struct dialogue *d);
/* Asks the question that was taken back, or the last one in place of its answer.  -ENOENT. */
int dialogue_ask_again(struct dialogue *d);
/* Forgets all but the system message. */
void dialogue_clear(struct dialogue *d);

#endif
