/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a chat's messages to a prompt: the model file's template, rendered, made tokens, and where
 * its messages begin.
 *
 * Text of a message can never become a control token: the template's output says which bytes are
 * the client's, and the tokenizer finds no control token in them.
 *
 * Made by the loader, immutable then; any thread.
 */
#ifndef DAEMON_CHAT_TEMPLATE_H
#define DAEMON_CHAT_TEMPLATE_H

#include "daemon/boundaries.h"
#include "engine/tokenizer.h"
#include "util/buf.h"

#include <jansson.h>
#include <stdbool.h>

struct api_error;
struct chat_template;
struct err_text;
struct gguf;

/*
 * The template of a model file.  0, with *ret NULL when the file has none; what the template cannot
 * do is no error here: chats are refused with its words (chat_template_fault).  -ENOMEM.
 */
int chat_template_new(const struct gguf *g, const struct tokenizer *t, struct chat_template **ret);
/* The same from its text. */
int chat_template_make(const char *source, size_t n, const struct tokenizer *t,
                       struct chat_template **ret);
void chat_template_free(struct chat_template *c); /* NULL is fine */
/* Why it cannot be used, with construct and line; NULL: it can. */
const char *chat_template_fault(const struct chat_template *c);
/* Its text. */
const char *chat_template_source(const struct chat_template *c, size_t *ret_n);

/* How templates end the reasoning of an answer. */
#define CHAT_END_OF_REASONING "\n</think>\n\n"

struct chat_input {
    const json_t *messages;        /* an array of objects with a role each */
    const json_t *tools;           /* a non-empty array, or NULL */
    const json_t *kwargs;          /* an object (chat_template_kwargs), or NULL */
    const json_t *enable_thinking; /* true or false, or NULL: not said */
    const char *reasoning_effort;  /* or NULL */
    bool no_generation_prompt;
    bool no_reasoning; /* thinking is asked off where the template can, and closed where it opens it
                          all the same */
    bool prefill;      /* the last message is the beginning of the answer, and goes on */
};

struct chat_prompt {
    struct buf text;
    struct text_span *data; /* owned, [n_data]: of the text, what is the client's */
    size_t n_data;
    struct token_list ids;    /* empty unless tokens were asked for */
    struct boundaries bounds; /* likewise */
    bool in_reasoning;        /* the answer begins inside of <think> */
    bool knows_reasoning;     /* the template speaks of <think> */
};
void chat_prompt_done(struct chat_prompt *p);

/*
 * Renders, and with `tokens` makes tokens and finds the root and the query checkpoint by rendering
 * again (design section 1).  0, or negative with `e` (400: what the template raised, or a value
 * that does not suit).
 */
int chat_template_prompt(const struct chat_template *c, const struct tokenizer *t,
                         const struct chat_input *in, bool tokens, struct chat_prompt *ret,
                         struct api_error *e);

#endif
