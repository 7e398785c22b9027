/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models and /health: what is served, and whether. */
#include "daemon/api.h"

#include "daemon/api_error.h"
#include "daemon/http_call.h"
#include "daemon/json_out.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "util/err.h"

#include <inttypes.h>
#include <string.h>

static void answer_or_oom(struct call *c, int status, int r, struct buf *b)
{
    struct api_error e;

    if (r >= 0) {
        call_answer(c, status, b);
        return;
    }
    buf_done(b);
    (void)api_error_oom(&e);
    call_fail(c, &e);
}

/* Weights in the file. */
static uint64_t n_params(const struct gguf *g)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        n += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return n;
}

/* llama-server's `meta`, and the length that clients of vLLM look for. */
static int put_model(const struct server *s, struct buf *b)
{
    const struct hparams *hp = &s->model->hp;
    const uint32_t context = engine_limits(s->engine)->context;
    int r = buf_addz(b, "{\"id\":");

    if (r >= 0)
        r = json_out_string(b, s->model_id, strlen(s->model_id));
    if (r >= 0)
        r = buf_addf(b,
                     ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"strata\""
                     ",\"max_model_len\":%" PRIu32 ",\"meta\":{\"architecture\":",
                     s->created, context);
    if (r >= 0)
        r = json_out_string(b, hp->arch, strnlen(hp->arch, sizeof hp->arch));
    if (r >= 0)
        r = buf_addf(b,
                     ",\"n_vocab\":%" PRIu32 ",\"n_ctx\":%" PRIu32 ",\"n_ctx_train\":%" PRIu32
                     ",\"n_embd\":%" PRIu32 ",\"n_layer\":%" PRIu32 ",\"n_params\":%" PRIu64
                     ",\"size\":%" PRIu64 "}}",
                     hp->n_vocab, context, hp->n_context, hp->n_embd, hp->n_layer,
                     n_params(s->model->gguf), gguf_file_bytes(s->model->gguf));
    return r;
}

void api_models(struct call *c)
{
    struct buf b = {0};
    int r = buf_addz(&b, "{\"object\":\"list\",\"data\":[");

    if (r >= 0)
        r = put_model(call_server(c), &b);
    if (r >= 0)
        r = buf_addz(&b, "]}\n");
    answer_or_oom(c, 200, r, &b);
}

void api_model(struct call *c)
{
    const struct server *s = call_server(c);
    struct buf b = {0};
    struct api_error e;
    char room[160];
    int r;

    if (strcmp(c->tail, s->model_id) != 0) {
        (void)api_error_set(&e, 404, "model_not_found", "model", "there is no model \"%s\" here",
                            err_escape(room, sizeof room, c->tail, strlen(c->tail)));
        call_fail(c, &e);
        return;
    }
    r = put_model(s, &b);
    if (r >= 0)
        r = buf_addz(&b, "\n");
    answer_or_oom(c, 200, r, &b);
}

/* llama-server's words, so that what waits for it can wait for us. */
void api_health(struct call *c)
{
    const struct server *s = call_server(c);
    const char *message = NULL;
    struct buf b = {0};
    int r;

    switch (s->state) {
    case SERVER_READY:
        break;
    case SERVER_LOADING:
        message = "Loading model";
        break;
    case SERVER_FAILED:
        message = "Loading the model failed";
        break;
    case SERVER_STOPPING:
        message = "Stopping";
        break;
    }
    if (!message) {
        r = buf_addz(&b, "{\"status\":\"ok\"}\n");
    } else {
        r = buf_addf(&b,
                     "{\"error\":{\"code\":503,\"message\":\"%s\",\"type\":\"unavailable_error\"}"
                     ",\"progress\":%u}\n",
                     message, s->state == SERVER_LOADING ? s->load_percent : 0);
        c->retry_after_s = s->state == SERVER_FAILED ? 0 : 1;
    }
    answer_or_oom(c, message ? 503 : 200, r, &b);
}
