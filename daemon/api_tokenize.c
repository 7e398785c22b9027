/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /tokenize, /detokenize and /apply-template.  They are work for a front thread, their answers
 * too.
 */
#include "daemon/api.h"

#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/api_parse.h"
#include "daemon/chat_template.h"
#include "daemon/front.h"
#include "daemon/http_call.h"
#include "daemon/json_out.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct text_job {
    struct front_job job; /* first */
    struct call *call;    /* NULL: the client is gone */
    bool busy;            /* on a front thread */
    int (*run)(struct text_job *j, const json_t *o);
    struct completion_limits limits;
    struct buf body;
    struct body_charge charge;
    struct buf answer;
    struct api_error error; /* status 0: none */
};

static void settle(struct text_job *j)
{
    if (j->busy || j->call)
        return;
    buf_done(&j->body);
    buf_done(&j->answer);
    free(j);
}

/* Front thread. */
static void work(struct front_job *job)
{
    struct text_job *j = (struct text_job *)job;
    json_t *o = NULL;

    /* What is not the body's fault is memory. */
    if (api_json_read(j->body.data, j->body.len, &o, &j->error) >= 0 && j->run(j, o) < 0 &&
        !j->error.status)
        (void)api_error_oom(&j->error);
    json_decref(o);
    api_json_body_done(&j->body);
}

static void done(struct front_job *job)
{
    struct text_job *j = (struct text_job *)job;

    j->busy = false;
    body_release(&j->charge);
    if (j->call && j->error.status)
        call_fail(j->call, &j->error);
    else if (j->call)
        call_answer(j->call, 200, &j->answer);
    settle(j);
}

static void gone(void *arg)
{
    struct text_job *j = arg;

    j->call = NULL;
    settle(j);
}

static void start(struct call *call, int (*run)(struct text_job *j, const json_t *o))
{
    struct server *s = call_server(call);
    struct text_job *j = calloc(1, sizeof *j);
    struct api_error e;

    if (!j) {
        (void)api_error_oom(&e);
        call_fail(call, &e);
        return;
    }
    j->job.work = work;
    j->job.done = done;
    j->call = call;
    j->busy = true;
    j->run = run;
    j->limits.tokenizer = s->tokenizer;
    j->limits.context = engine_limits(s->engine)->context;
    j->limits.chat = s->chat;
    call_take_body(call, &j->body, &j->charge);
    call_set_owner(call, &(struct call_owner){.gone = gone, .arg = j});
    front_submit(s->front, &j->job);
}

/*
 * {"id":5,"piece":"x"}; a piece that is no UTF-8 by itself is an array of bytes, as llama-server
 * has it.
 */
static int put_piece(struct buf *b, const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *s = tokenizer_piece(t, id, true, &n);
    int r = buf_addf(b, "{\"id\":%" PRId32 ",\"piece\":", id);

    if (r < 0)
        return r;
    if (utf8_is_valid(s, n)) {
        r = json_out_string(b, s, n);
    } else {
        for (size_t i = 0; i < n && r >= 0; i++)
            r = buf_addf(b, i ? ",%u" : "[%u", (unsigned char)s[i]);
        if (r >= 0)
            r = buf_addz(b, "]");
    }
    return r < 0 ? r : buf_addz(b, "}");
}

static int put_tokens(struct text_job *j, const struct token_list *l, bool with_pieces)
{
    struct buf *b = &j->answer;
    int r = buf_addz(b, "\"tokens\":[");

    for (size_t i = 0; i < l->n && r >= 0; i++) {
        r = buf_addz(b, i ? "," : "");
        if (r >= 0)
            r = with_pieces ? put_piece(b, j->limits.tokenizer, l->ids[i])
                            : buf_addf(b, "%" PRId32, l->ids[i]);
    }
    return r < 0 ? r : buf_addz(b, "]");
}

static int tokenize(struct text_job *j, const json_t *o)
{
    struct tokenize_options how = {.add_special = false, .parse_special = true};
    CLEANUP(token_list_done) struct token_list l = {0};
    bool with_pieces = false;
    const char *text;
    size_t n;
    int r;

    r = api_get_bool(o, "add_special", &how.add_special, &j->error);
    if (r >= 0)
        r = api_get_bool(o, "parse_special", &how.parse_special, &j->error);
    if (r >= 0)
        r = api_get_bool(o, "with_pieces", &with_pieces, &j->error);
    if (r >= 0)
        r = api_get_string(o, "content", &text, &n, &j->error);
    if (r < 0)
        return r;
    if (r == 0)
        return api_error_set(&j->error, 400, "missing_field", "content",
                             "content is missing; it must be a string");
    r = tokenizer_encode(j->limits.tokenizer, text, n, &how, &l);
    if (r >= 0)
        r = buf_addz(&j->answer, "{");
    if (r >= 0)
        r = put_tokens(j, &l, with_pieces);
    return r < 0 ? r : buf_addz(&j->answer, "}\n");
}

static int detokenize(struct text_job *j, const json_t *o)
{
    CLEANUP(token_list_done) struct token_list l = {0};
    CLEANUP(buf_done) struct buf raw = {0};
    const json_t *tokens;
    char room[64];
    int r;

    if (!api_get(o, "tokens", &tokens))
        return api_error_set(&j->error, 400, "missing_field", "tokens",
                             "tokens is missing; it must be an array of token ids");
    if (!json_is_array(tokens))
        return api_bad_field(&j->error, "tokens", "tokens is %s; it must be an array of token ids",
                             api_json_describe(tokens, room, sizeof room));
    r = api_token_ids(tokens, "tokens", j->limits.tokenizer, &l, &j->error);
    if (r >= 0)
        r = tokenizer_decode(j->limits.tokenizer, l.ids, l.n, true, &raw);
    if (r >= 0)
        r = buf_addz(&j->answer, "{\"content\":");
    /* Repairs what is no UTF-8. */
    if (r >= 0)
        r = json_out_string(&j->answer, raw.data ? raw.data : "", raw.len);
    return r < 0 ? r : buf_addz(&j->answer, "}\n");
}

/* llama-server's, and the prompt's tokens on request. */
static int apply_template(struct text_job *j, const json_t *o)
{
    CLEANUP(chat_prompt_done) struct chat_prompt prompt = {0};
    bool tokens = false;
    int r = api_get_bool(o, "return_token_ids", &tokens, &j->error);

    if (r >= 0)
        r = chat_render(o, &j->limits, tokens, &prompt, &j->error);
    if (r >= 0)
        r = buf_addz(&j->answer, "{\"prompt\":");
    if (r >= 0)
        r = json_out_string(&j->answer, prompt.text.data ? prompt.text.data : "", prompt.text.len);
    if (r >= 0 && tokens)
        r = buf_addz(&j->answer, ",");
    if (r >= 0 && tokens)
        r = put_tokens(j, &prompt.ids, false);
    return r < 0 ? r : buf_addz(&j->answer, "}\n");
}

void api_tokenize(struct call *c)
{
    start(c, tokenize);
}

void api_detokenize(struct call *c)
{
    start(c, detokenize);
}

void api_apply_template(struct call *c)
{
    start(c, apply_template);
}
