/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /v1/completions: from bytes to a request that the scheduler can take.
 *
 * Runs on a front thread, with nothing shared but the tokenizer.  Fields that we know and do not
 * honour are refused by name (api_refuse.c); fields that nobody knows are ignored.
 */
#ifndef DAEMON_API_PARSE_H
#define DAEMON_API_PARSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_error;
struct chat_prompt;
struct chat_template;
struct request;
struct token_list;
struct tokenizer;

enum {
    COMPLETION_MAX_STOP = 64,         /* stop strings; OpenAI allows 4 */
    COMPLETION_MAX_STOP_BYTES = 4096, /* of one: so much text may have to be held back */
    COMPLETION_MAX_SALT_BYTES = 256,  /* part of the key of everything that is kept */
};

/* What the answer needs beyond what the request itself knows. */
struct completion_params {
    bool stream;
    bool include_usage; /* stream_options: a chunk with the usage before [DONE] */
    bool return_token_ids;
    bool return_progress; /* chunks while the prompt is read */
    bool logprobs;        /* how many beside the chosen one is request.sampling.n_top */

    /* Of a chat. */
    bool is_chat;
    bool in_reasoning, knows_reasoning; /* of its prompt (chat_template.h) */
    uint32_t reasoning_budget;          /* most tokens of it, UINT32_MAX: no limit */
    json_t *tools;                      /* owned; NULL: none */
};

struct completion_limits {
    const struct tokenizer *tokenizer; /* borrowed */
    uint32_t context;                  /* tokens of one sequence */
    const struct chat_template *chat;  /* borrowed; NULL: the model has none */
};

/*
 * 0 with *ret_params set and *ret an owned request of one reference, not submitted; or negative
 * with `e`, nothing made.
 */
int completion_parse(const char *body, size_t n, const struct completion_limits *limits,
                     struct completion_params *ret_params, struct request **ret,
                     struct api_error *e);

/*
 * The body of POST /v1/chat/completions, likewise (api_chat_parse.c).  ret_params->tools is the
 * caller's to free.
 */
int chat_parse(const char *body, size_t n, const struct completion_limits *limits,
               struct completion_params *ret_params, struct request **ret, struct api_error *e);

/*
 * The prompt that a chat with this body would have, without making a request: what is refused there
 * is refused here.  *ret is the caller's to free; its tokens are made if `tokens`.
 */
int chat_render(const json_t *o, const struct completion_limits *limits, bool tokens,
                struct chat_prompt *ret, struct api_error *e);

/* The pieces of it. */

/* What completions of text and of chats have in common, but for the prompt. */
int completion_common(const json_t *o, const struct completion_limits *limits, struct request *r,
                      struct completion_params *p, struct api_error *e);
/* cache_root, once the prompt's tokens are there. */
int completion_root(const json_t *o, struct request *r, struct api_error *e);
int completion_too_long(struct api_error *e, const char *field, size_t n, uint32_t context);

/* 0, or negative when `o` asks for something known that does not work here. */
int completion_refuse(const json_t *o, struct api_error *e);
/* The same for chats. */
int chat_refuse(const json_t *o, struct api_error *e);

/*
 * prompt, add_special, parse_special to tokens.  Longer than the context is refused with both
 * numbers.
 */
int completion_prompt(const json_t *o, const struct completion_limits *limits,
                      struct token_list *out, struct api_error *e);

/* temperature, top_p, ..., logit_bias, ignore_eos into r->sampling and r->bias. */
int completion_sampling(const json_t *o, const struct completion_limits *limits, struct request *r,
                        struct api_error *e);

/*
 * An array of token ids, each of the vocabulary, appended to `out`.  `name` is the field's, for
 * messages.
 */
int api_token_ids(const json_t *array, const char *name, const struct tokenizer *t,
                  struct token_list *out, struct api_error *e);

#endif
