/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/completions and /v1/chat/completions.
 *
 *   loop: body -> front: JSON, tokens -> loop: sched_submit -> observer: chunks or the whole answer
 *
 * A `struct completion` is kept by two holders that end in any order: the call, until `gone`, and
 * whoever works on it, a front thread or the scheduler (`holder`).  When the client is gone first,
 * the request is cancelled and the rest of the way is walked in silence.
 */
#include "daemon/api.h"

#include "daemon/api_answer.h"
#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/api_keys.h"
#include "daemon/chat_answer.h"
#include "daemon/decisions.h"
#include "daemon/diverging.h"
#include "daemon/front.h"
#include "daemon/http_call.h"
#include "daemon/log.h"
#include "daemon/request.h"
#include "daemon/sched.h"
#include "daemon/server.h"
#include "engine/engine.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* Who works on it; while it is the front, only `call` may be touched here. */
enum holder { HOLDER_NONE, HOLDER_FRONT, HOLDER_SCHED };

struct completion {
    struct front_job job;  /* first: the front hands it back */
    struct server *server; /* borrowed, outlives us */
    struct call *call;     /* NULL: the client is gone */
    enum holder holder;
    bool paused, is_chat;
    uint32_t uid;
    const char *key; /* borrowed until the server ends (http_call.h); NULL: none */

    struct buf body; /* owned until it is parsed */
    struct body_charge charge;
    struct completion_limits limits;
    struct completion_params params;
    struct api_error error;  /* of the parsing; status 0: none */
    struct request *request; /* one reference */

    char id[48];
    struct answer answer;
    struct chat_answer *chat; /* owned; NULL: a completion of text */
};

/* Frees once nobody holds it. */
static void completion_settle(struct completion *c)
{
    if (c->holder != HOLDER_NONE || c->call)
        return;
    (void)request_unref(c->request);
    chat_answer_free(c->chat);
    json_decref(c->params.tools);
    buf_done(&c->body);
    free(c);
}

/* Front thread. */
static void work(struct front_job *j)
{
    struct completion *c = (struct completion *)j;

    if (c->is_chat)
        (void)chat_parse(c->body.data, c->body.len, &c->limits, &c->params, &c->request, &c->error);
    else
        (void)completion_parse(c->body.data, c->body.len, &c->limits, &c->params, &c->request,
                               &c->error);
    api_json_body_done(&c->body);
}

struct who_text {
    char s[32 + API_KEY_NAME_BYTES];
};

/* Whose request it is, as the journal has it. */
static struct who_text who_text(uint32_t uid, const char *key)
{
    struct who_text t;

    (void)snprintf(t.s, sizeof t.s, "uid=%" PRId32 "%s%s", uid_shown(uid), key ? " key=" : "",
                   key ? key : "");
    return t;
}

/* The one line of a request; of its text only sizes. */
static void log_done(const struct completion *c)
{
    const struct request *r = c->request;
    const uint64_t now = clock_ns();

    log_msg(LOG_INFO,
            "completion done request=%" PRIu64
            " x_request_id=%s %s finish=%s prompt=%zu cached=%" PRIu32 " read=%" PRIu32
            " generated=%" PRIu32 " wait_ms=%.1f total_ms=%.1f%s%s",
            r->id, r->http_id, who_text(r->uid, r->key).s, decision_finish_str((int)r->finish),
            r->prompt.n, r->n_cached, r->n_read - r->n_cached, r->n_generated,
            (double)((r->t_start ? r->t_start : now) - r->t_submit) / 1e6,
            (double)(now - r->t_submit) / 1e6, r->finish == FINISH_ERROR ? " error=" : "",
            r->finish == FINISH_ERROR ? r->error_text.s : "");
}

/* A client that will never find its prompts here, told to the operator once. */
static void note_diverging(const struct completion *c)
{
    const struct request *r = c->request;
    const uint32_t n = (uint32_t)r->prompt.n;
    struct diverging *d = c->server->diverging;
    char client[16], position[16];
    const struct log_field fields[] = {{"UID", client}, {"POSITION", position}, {NULL, NULL}};
    uint32_t pos;

    if (!d || !r->decision || r->no_cache ||
        (r->finish != FINISH_STOP && r->finish != FINISH_LENGTH) ||
        !diverging_note(d, r->uid, r->cache_salt, r->prompt.ids, n, r->decision->n_common, &pos))
        return;
    (void)snprintf(client, sizeof client, "%" PRId32, uid_shown(r->uid));
    (void)snprintf(position, sizeof position, "%" PRIu32, pos);
    log_event(LOG_NOTICE, LOG_EVENT_DIVERGING, fields,
              "prompts keep differing from token %" PRIu32 " on and are read from there each time"
              " %s position=%" PRIu32 " prompt=%" PRIu32 " in_a_row=%d",
              pos, who_text(r->uid, r->key).s, pos, n, DIVERGING_ROW);
}

static void refuse(struct completion *c, const struct api_error *e)
{
    log_msg(LOG_INFO, "completion refused x_request_id=%s %s status=%d code=%s",
            c->call->request_id, who_text(c->uid, c->key).s, e->status, e->code ? e->code : "none");
    call_fail(c->call, e);
}

/* There is no way to tell a stream's reader that memory is out but to end it. */
static void give_up(struct completion *c)
{
    sched_cancel(c->server->sched, c->request);
    call_abort(c->call);
}

/* Queues an event, and stops the request while its reader does not keep up. */
static void send_event(struct completion *c, int built, struct buf *b)
{
    if (!c->call)
        return;
    if (built < 0 || call_stream_put(c->call, b->data, b->len) < 0) {
        give_up(c);
        return;
    }
    if (!c->paused && call_stream_is_full(c->call)) {
        c->paused = true;
        sched_pause(c->server->sched, c->request);
    }
}

static void on_progress(struct request *r, void *arg)
{
    struct completion *c = arg;
    CLEANUP(buf_done) struct buf b = {0};
    int built;

    (void)r;
    if (!c->call || !c->params.stream || !c->params.return_progress)
        return;
    built = answer_progress(&c->answer, &b);
    send_event(c, built, &b);
}

static void on_output(struct request *r, void *arg)
{
    struct completion *c = arg;
    CLEANUP(buf_done) struct buf b = {0};
    int built;

    /* The last chunk is on_done's. */
    if (r->state == REQUEST_DONE || !c->call)
        return;
    if (c->chat && chat_answer_take(c->chat, r) < 0) {
        give_up(c);
        return;
    }
    if (!c->params.stream || !answer_has_more(&c->answer))
        return;
    built = answer_chunk(&c->answer, &b);
    send_event(c, built, &b);
}

static bool on_held(struct request *r, void *arg)
{
    return chat_answer_held(((struct completion *)arg)->chat, r);
}

/* A request that did not come to its end. */
static void finish_error(const struct request *r, struct api_error *e)
{
    if (r->finish == FINISH_CANCELLED) {
        (void)api_error_set(e, 503, "cancelled", NULL, "the request was stopped by the server");
    } else if (r->error == -ENOMEM) {
        (void)api_error_oom(e);
    } else {
        (void)api_error_set(e, 500, r->error == ERR_NONFINITE ? "non_finite" : "engine_error", NULL,
                            "the request failed: %s",
                            r->error_text.s[0] ? r->error_text.s : err_str(r->error));
    }
}

static void end_stream(struct completion *c)
{
    const struct request *r = c->request;
    CLEANUP(buf_done) struct buf b = {0};
    struct api_error e;
    int rc;

    if (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH) {
        rc = c->chat ? chat_answer_take(c->chat, r) : 0;
        if (rc >= 0)
            rc = answer_chunk(&c->answer, &b);
        if (rc >= 0 && c->params.include_usage)
            rc = answer_usage(&c->answer, &b);
        if (rc >= 0)
            rc = buf_addz(&b, "data: [DONE]\n\n");
    } else {
        /* No [DONE]: the answer is not whole. */
        finish_error(r, &e);
        rc = buf_addz(&b, "data: ");
        if (rc >= 0)
            rc = api_error_write(&e, &b);
        if (rc >= 0)
            rc = buf_addz(&b, "\n\n");
    }
    if (rc < 0 || call_stream_put(c->call, b.data, b.len) < 0)
        call_abort(c->call);
    else
        call_stream_end(c->call);
}

static void end_whole(struct completion *c)
{
    const struct request *r = c->request;
    CLEANUP(buf_done) struct buf b = {0};
    struct api_error e;

    if (r->finish != FINISH_STOP && r->finish != FINISH_LENGTH) {
        finish_error(r, &e);
        call_fail(c->call, &e);
    } else if ((c->chat && chat_answer_take(c->chat, r) < 0) || answer_whole(&c->answer, &b) < 0) {
        (void)api_error_oom(&e);
        call_fail(c->call, &e);
    } else {
        call_answer(c->call, 200, &b);
    }
}

static void on_done(struct request *r, void *arg)
{
    struct completion *c = arg;

    (void)r;
    log_done(c);
    note_diverging(c);
    c->holder = HOLDER_NONE;
    if (c->call && c->params.stream)
        end_stream(c);
    else if (c->call)
        end_whole(c);
    completion_settle(c);
}

/* The reader caught up. */
static void on_drained(void *arg)
{
    struct completion *c = arg;

    if (!c->paused)
        return;
    c->paused = false;
    if (c->holder == HOLDER_SCHED)
        sched_resume(c->server->sched, c->request);
}

static void on_gone(void *arg)
{
    struct completion *c = arg;

    c->call = NULL;
    /* What comes back from the front will not be submitted. */
    if (c->holder == HOLDER_SCHED)
        sched_cancel(c->server->sched, c->request);
    completion_settle(c);
}

/* sched_submit's refusals. */
static void submit_error(int rc, const struct err_text *text, struct api_error *e)
{
    switch (rc) {
    case -E2BIG:
        (void)api_error_set(e, 400, "context_length_exceeded", "prompt", "%s", text->s);
        break;
    case ERR_CAPACITY:
        (void)api_error_set(e, 400, "memory_exceeded", "prompt", "%s", text->s);
        break;
    case -EAGAIN:
        (void)api_error_set(e, 429, "queue_full", NULL, "%s", text->s);
        e->retry_after_s = 1;
        break;
    case -ESHUTDOWN:
        (void)api_error_set(e, 503, "stopping", NULL, "the server is stopping");
        e->retry_after_s = 1;
        break;
    case -ENOMEM:
        (void)api_error_oom(e);
        break;
    default:
        (void)api_error_set(e, 500, NULL, NULL, "%s", text->s[0] ? text->s : err_str(rc));
        break;
    }
}

static void submit(struct completion *c)
{
    struct request *r = c->request;
    struct err_text text = {{0}};
    struct api_error e;
    int rc;

    if (c->is_chat) {
        c->chat = chat_answer_new(&c->params);
        if (!c->chat) {
            (void)api_error_oom(&e);
            refuse(c, &e);
            return;
        }
    }
    r->uid = c->uid;
    r->key = c->key;
    (void)snprintf(r->http_id, sizeof r->http_id, "%s", c->call->request_id);
    (void)snprintf(r->name, sizeof r->name, "%s", c->id);
    r->observer = (struct request_observer){
        .progress = on_progress, .output = on_output, .done = on_done, .held = on_held, .arg = c};
    rc = c->server->state == SERVER_READY ? sched_submit(c->server->sched, r, &text) : -ESHUTDOWN;
    if (rc < 0) {
        submit_error(rc, &text, &e);
        refuse(c, &e);
        return;
    }
    c->holder = HOLDER_SCHED;
    c->answer = (struct answer){
        .request = r,
        .tokenizer = c->limits.tokenizer,
        .params = &c->params,
        .id = c->id,
        .model = c->server->model_id,
        .created = (int64_t)time(NULL),
        .chat = c->chat,
    };
    if (c->params.stream)
        call_stream_begin(c->call);
}

/* The loop has the job back from the front. */
static void parsed(struct front_job *j)
{
    struct completion *c = (struct completion *)j;

    c->holder = HOLDER_NONE;
    body_release(&c->charge);
    if (c->call && c->error.status)
        refuse(c, &c->error);
    else if (c->call)
        submit(c);
    completion_settle(c);
}

static void begin(struct call *call, bool is_chat)
{
    struct call_owner owner = {.gone = on_gone, .drained = on_drained};
    struct server *s = call_server(call);
    struct completion *c = calloc(1, sizeof *c);
    struct api_error e;
    uint64_t random[2];

    if (!c || getrandom(random, sizeof random, 0) != sizeof random) {
        free(c);
        (void)api_error_oom(&e);
        call_fail(call, &e);
        return;
    }
    c->job.work = work;
    c->job.done = parsed;
    c->server = s;
    c->call = call;
    c->holder = HOLDER_FRONT;
    c->uid = call->uid;
    c->key = call->key;
    c->limits.tokenizer = s->tokenizer;
    c->limits.context = engine_limits(s->engine)->context;
    c->limits.chat = s->chat;
    c->is_chat = is_chat;
    (void)snprintf(c->id, sizeof c->id, "%s-%016" PRIx64 "%016" PRIx64,
                   is_chat ? "chatcmpl" : "cmpl", random[0], random[1]);
    call_take_body(call, &c->body, &c->charge);
    owner.arg = c;
    call_set_owner(call, &owner);
    front_submit(s->front, &c->job);
}

void api_completions(struct call *call)
{
    begin(call, false);
}

void api_chat(struct call *call)
{
    begin(call, true);
}
