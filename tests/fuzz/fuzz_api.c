/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of /v1/completions: whatever they are, a request that keeps its promises, or words that
 * are plain ASCII.
 */
#include "daemon/api_error.h"
#include "daemon/api_parse.h"
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

    MUST(e->status == 400 && e->message[0]);
    for (const char *p = e->message; *p; p++)
        MUST(*p >= ' ' && *p < 0x7f);
    for (const char *p = e->param; *p; p++)
        MUST(*p >= ' ' && *p < 0x7f);
    MUST(api_error_write(e, &b) == 0);
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;
    struct completion_limits limits = {.context = CONTEXT};
    struct completion_params p;
    struct request *r = NULL;
    struct api_error e = {0};
    char *body = malloc(size + 1); /* followed by a NUL, and no more */
    int rc;

    if (!body)
        return 0;
    if (size)
        memcpy(body, data, size);
    body[size] = '\0';
    if (!t)
        t = fake_tokenizer_new(pieces, VOCAB);
    limits.tokenizer = t;

    rc = completion_parse(body, size, &limits, &p, &r, &e);
    MUST((rc == 0) == (r != NULL) && (rc == 0) == (e.status == 0));
    if (r)
        check_request(r, &p);
    else
        check_error(&e);
    (void)request_unref(r);
    free(body);
    return 0;
}
