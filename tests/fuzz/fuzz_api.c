/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies, each read as one of /v1/completions, of /v1/chat/completions and of /apply-template:
 * whatever they are, a request that keeps its promises, or words that are plain ASCII.
 */
#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/api_parse.h"
#include "daemon/chat_template.h"
#include "daemon/request.h"
#include "tests/fake_tokenizer.h"
#include "util/buf.h"
#include "util/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            abort();                                                                               \
    } while (0)

enum { CONTEXT = 64, VOCAB = 4 };

static const struct fake_piece pieces[VOCAB] = {{"<|end|>", 7}, {"a", 1}, {"b", 1}, {"ab", 2}};

/* Touches all that a client can put into it. */
static const char source[] =
    "{% for t in tools %}{{ t | tojson }}{% endfor %}{% if x is defined %}{{ x | string }}{% endif "
    "%}"
    "{% for m in messages %}{{ m.role }}{{ m.content }}{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}a{% if enable_thinking %}<think>{% endif %}{% endif %}";

static void check_request(const struct request *r, const struct completion_params *p)
{
    const struct sampler_params *s = &r->sampling;

    MUST(r->prompt.n > 0 && r->prompt.n < CONTEXT);
    for (size_t i = 0; i < r->prompt.n; i++)
        MUST(r->prompt.ids[i] >= 0 && r->prompt.ids[i] < VOCAB);
    MUST(r->max_tokens > 0);
    MUST(s->temperature >= 0 && s->temperature <= 100);
    MUST(s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    MUST(s->repeat_penalty > 0 && isfinite(s->repeat_penalty));
    MUST(fabsf(s->presence_penalty) <= 2 && fabsf(s->frequency_penalty) <= 2);
    MUST(s->top_k >= -1 && s->penalty_last_n >= -1 && s->n_top <= SAMPLER_MAX_TOP);
    MUST(p->logprobs == s->logprob && (s->logprob || s->n_top == 0));
    MUST(s->n_bias <= VOCAB && s->bias == r->bias);
    for (size_t i = 0; i < s->n_bias; i++)
        MUST(s->bias[i].id >= 0 && s->bias[i].id < VOCAB && s->bias[i].bias <= 100);
    MUST(r->n_stop <= COMPLETION_MAX_STOP);
    for (size_t i = 0; i < r->n_stop; i++)
        MUST(r->stop[i][0] && utf8_is_valid(r->stop[i], strlen(r->stop[i])));
}

static void check_error(const struct api_error *e)
{
    struct buf b = {0};

    MUST((e->status == 400 || e->status == 503) && e->message[0]);
    for (const char *p = e->message; *p; p++)
        MUST(*p >= ' ' && *p < 0x7f);
    for (const char *p = e->param; *p; p++)
        MUST(*p >= ' ' && *p < 0x7f);
    MUST(api_error_write(e, &b) == 0);
    buf_done(&b);
}

typedef int parse_fn(const char *body, size_t n, const struct completion_limits *limits,
                     struct completion_params *ret_params, struct request **ret,
                     struct api_error *e);

static void parse(parse_fn *fn, const char *body, size_t size,
                  const struct completion_limits *limits)
{
    struct completion_params p = {0};
    struct request *r = NULL;
    struct api_error e = {0};
    int rc = fn(body, size, limits, &p, &r, &e);

    MUST((rc == 0) == (r != NULL) && (rc == 0) == (e.status == 0));
    if (r)
        check_request(r, &p);
    else
        check_error(&e);
    (void)request_unref(r);
    json_decref(p.tools);
}

static void render(const char *body, size_t size, const struct completion_limits *limits)
{
    struct chat_prompt text = {0}, tokens = {0};
    struct api_error e = {0};
    json_t *o = NULL;

    if (api_json_read(body, size, &o, &e) >= 0 && chat_render(o, limits, false, &text, &e) >= 0) {
        /* The same text once more, and its tokens. */
        MUST(chat_render(o, limits, true, &tokens, &e) == 0);
        MUST(text.text.len == tokens.text.len && text.ids.n == 0);
        MUST(text.text.len == 0 || memcmp(text.text.data, tokens.text.data, text.text.len) == 0);
    } else {
        check_error(&e);
    }
    chat_prompt_done(&text);
    chat_prompt_done(&tokens);
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;
    static struct chat_template *chat;
    struct completion_limits limits = {.context = CONTEXT};
    char *body = malloc(size + 1); /* followed by a NUL, and no more */

    if (!body)
        return 0;
    if (size)
        memcpy(body, data, size);
    body[size] = '\0';
    if (!t)
        t = fake_tokenizer_new(pieces, VOCAB);
    if (!chat)
        MUST(chat_template_make(source, sizeof source - 1, t, &chat) == 0 &&
             !chat_template_fault(chat));
    limits.tokenizer = t;
    limits.chat = chat;

    parse(completion_parse, body, size, &limits);
    parse(chat_parse, body, size, &limits);
    render(body, size, &limits);
    free(body);
    return 0;
}
