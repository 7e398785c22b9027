/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /props: what llama-server's clients read there, as far as it is so here.
 *
 * `params` are what a request gets that says nothing, from the same code that reads a request.
 */
#include "daemon/api.h"

#include "daemon/api_error.h"
#include "daemon/api_parse.h"
#include "daemon/chat_template.h"
#include "daemon/http_call.h"
#include "daemon/json_out.h"
#include "daemon/options.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"

#include "strata-config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int put_float(struct buf *b, const char *name, float v)
{
    int r = buf_addf(b, "\"%s\":", name);

    if (r >= 0)
        r = json_out_float(b, v);
    return r < 0 ? r : buf_addz(b, ",");
}

static int put_text(struct buf *b, const char *name, const char *s, size_t n)
{
    int r = buf_addf(b, ",\"%s\":", name);

    return r < 0 ? r : json_out_string(b, s, n);
}

/* The text of a token; -1: the model has none. */
static int put_token(struct buf *b, const char *name, const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *s = id < 0 ? "" : tokenizer_piece(t, id, true, &n);

    return put_text(b, name, s, n);
}

static int put_params(struct buf *b, const struct server *s, struct api_error *e)
{
    const struct completion_limits limits = {.tokenizer = s->tokenizer};
    struct request *q = request_new();
    const struct sampler_params *p;
    int r = q ? completion_sampling(NULL, &limits, q, e) : -ENOMEM;

    p = q ? &q->sampling : NULL;
    if (r >= 0)
        r = buf_addz(b, "{\"n_predict\":-1,\"seed\":-1,\"stream\":false,\"stop\":[],");
    if (r >= 0)
        r = put_float(b, "temperature", p->temperature);
    if (r >= 0)
        r = put_float(b, "top_p", p->top_p);
    if (r >= 0)
        r = put_float(b, "min_p", p->min_p);
    if (r >= 0)
        r = put_float(b, "presence_penalty", p->presence_penalty);
    if (r >= 0)
        r = put_float(b, "frequency_penalty", p->frequency_penalty);
    if (r >= 0)
        r = put_float(b, "repeat_penalty", p->repeat_penalty);
    if (r >= 0)
        r = buf_addf(b, "\"repeat_last_n\":%" PRId32 ",\"top_k\":%" PRId32 "}", p->penalty_last_n,
                     p->top_k);
    (void)request_unref(q);
    return r;
}

static int put_props(struct buf *b, const struct server *s, struct api_error *e)
{
    const char *model = s->options->model, *source = "";
    size_t n_source = 0;
    int r = buf_addf(b, "{\"default_generation_settings\":{\"n_ctx\":%" PRIu32 ",\"params\":",
                     engine_limits(s->engine)->context);

    if (s->chat)
        source = chat_template_source(s->chat, &n_source);
    if (r >= 0)
        r = put_params(b, s, e);
    if (r >= 0)
        r = buf_addf(b, "},\"total_slots\":%" PRIu32, s->options->parallel);
    if (r >= 0)
        r = put_text(b, "model_alias", s->model_id, strlen(s->model_id));
    if (r >= 0)
        r = put_text(b, "model_path", model, strlen(model));
    if (r >= 0)
        r = buf_addz(b, ",\"modalities\":{\"vision\":false,\"audio\":false}");
    if (r >= 0)
        r = put_text(b, "chat_template", source, n_source);
    if (r >= 0)
        r = put_token(b, "bos_token", s->tokenizer, tokenizer_bos(s->tokenizer));
    if (r >= 0)
        r = put_token(b, "eos_token", s->tokenizer, tokenizer_eos(s->tokenizer));
    return r < 0 ? r : buf_addz(b, ",\"build_info\":\"strata-" PACKAGE_VERSION "\"}\n");
}

void api_props(struct call *c)
{
    struct buf b = {0};
    struct api_error e;

    if (put_props(&b, call_server(c), &e) >= 0) {
        call_answer(c, 200, &b);
        return;
    }
    buf_done(&b);
    (void)api_error_oom(&e);
    call_fail(c, &e);
}
