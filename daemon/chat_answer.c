/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/chat_answer.h"

#include "daemon/api_parse.h"
#include "daemon/chat_output.h"
#include "daemon/json_out.h"
#include "daemon/request.h"
#include "util/buf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

struct tool_call {
    char id[32];
    struct buf name, arguments;
    size_t n_told; /* bytes of the arguments that deltas have told */
    bool told;     /* its head was */
};

struct chat_answer {
    struct chat_output *output; /* owned */
    size_t n_taken;             /* bytes of the request's text */
    bool ended, role_told, has_calls;
    struct buf content, reasoning;
    size_t n_content, n_reasoning; /* told */
    struct tool_call *calls;       /* owned, [n_calls] */
    unsigned int n_calls;
    /* Reasoning may go on until so many tokens were generated; counted from its beginning until
     * that is known. */
    uint32_t n_budget_end;
    bool budget_begun;
};

/* --- what the parser gives ---------------------------------------------------------------------
 */

static int on_reasoning(void *arg, const char *s, size_t n)
{
    return buf_add(&((struct chat_answer *)arg)->reasoning, s, n);
}

static int on_content(void *arg, const char *s, size_t n)
{
    return buf_add(&((struct chat_answer *)arg)->content, s, n);
}

static int on_call(void *arg, unsigned int i, const char *name, size_t n)
{
    struct chat_answer *c = arg;
    struct tool_call *v = reallocarray(c->calls, (size_t)i + 1, sizeof *v);
    uint64_t random = 0;

    if (!v)
        return -ENOMEM;
    c->calls = v;
    c->n_calls = i + 1;
    v[i] = (struct tool_call){.told = false};
    /* Only has to differ from others of the same conversation. */
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint64_t)(uintptr_t)v + i;
    (void)snprintf(v[i].id, sizeof v[i].id, "call_%016" PRIx64, random);
    return buf_add(&v[i].name, name, n);
}

static int on_arguments(void *arg, unsigned int i, const char *s, size_t n)
{
    return buf_add(&((struct chat_answer *)arg)->calls[i].arguments, s, n);
}

struct chat_answer *chat_answer_new(const struct completion_params *p)
{
    struct chat_answer *c = calloc(1, sizeof *c);
    const struct chat_output_options o = {
        .in_reasoning = p->in_reasoning,
        .knows_reasoning = p->knows_reasoning,
        .tools = p->tools,
    };
    const struct chat_sink sink = {on_reasoning, on_content, on_call, on_arguments, c};

    if (c)
        c->output = chat_output_new(&o, &sink);
    if (c && !c->output) {
        free(c);
        return NULL;
    }
    if (c) {
        c->n_budget_end = p->reasoning_budget;
        c->budget_begun = p->in_reasoning;
    }
    return c;
}

void chat_answer_free(struct chat_answer *c)
{
    if (!c)
        return;
    chat_output_free(c->output);
    buf_done(&c->content);
    buf_done(&c->reasoning);
    for (unsigned int i = 0; i < c->n_calls; i++) {
        buf_done(&c->calls[i].name);
        buf_done(&c->calls[i].arguments);
    }
    free(c->calls);
    free(c);
}

int chat_answer_take(struct chat_answer *c, const struct request *r)
{
    int rc = 0;

    if (r->text.len > c->n_taken)
        rc = chat_output_feed(c->output, r->text.data + c->n_taken, r->text.len - c->n_taken);
    c->n_taken = r->text.len;
    if (rc >= 0 && r->state == REQUEST_DONE && !c->ended) {
        c->ended = true;
        /* A call that the token limit cut off is closed, but was not meant to end there. */
        c->has_calls = chat_output_n_calls(c->output) > 0;
        rc = chat_output_end(c->output);
        if (r->finish == FINISH_STOP)
            c->has_calls = chat_output_n_calls(c->output) > 0;
    }
    return rc;
}

/* --- what the client gets ----------------------------------------------------------------------
 */

bool chat_answer_has_more(const struct chat_answer *c)
{
    bool more = c->content.len > c->n_content || c->reasoning.len > c->n_reasoning;

    for (unsigned int i = 0; i < c->n_calls; i++)
        more = more || !c->calls[i].told || c->calls[i].arguments.len > c->calls[i].n_told;
    return more;
}

static int put_text(struct buf *out, const char *comma, const char *name, const struct buf *b,
                    size_t from)
{
    int r = buf_addf(out, "%s\"%s\":", comma, name);

    return r < 0 ? r : json_out_string(out, b->data ? b->data + from : "", b->len - from);
}

static int put_call_delta(struct tool_call *t, unsigned int i, struct buf *out)
{
    int r = buf_addf(out, "{\"index\":%u", i);

    if (r >= 0 && !t->told) {
        r = buf_addf(out, ",\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", t->id);
        if (r >= 0)
            r = json_out_string(out, t->name.data ? t->name.data : "", t->name.len);
        if (r >= 0)
            r = put_text(out, ",", "arguments", &t->arguments, 0);
    } else if (r >= 0) {
        r = buf_addz(out, ",\"function\":{");
        if (r >= 0)
            r = put_text(out, "", "arguments", &t->arguments, t->n_told);
    }
    t->told = true;
    t->n_told = t->arguments.len;
    return r < 0 ? r : buf_addz(out, "}}");
}

static int put_call_deltas(struct chat_answer *c, const char *comma, struct buf *out)
{
    bool any = false;
    int r = 0;

    for (unsigned int i = 0; i < c->n_calls && r >= 0; i++) {
        struct tool_call *t = &c->calls[i];

        if (t->told && t->arguments.len == t->n_told)
            continue;
        r = any ? buf_addz(out, ",") : buf_addf(out, "%s\"tool_calls\":[", comma);
        any = true;
        if (r >= 0)
            r = put_call_delta(t, i, out);
    }
    return r < 0 || !any ? r : buf_addz(out, "]");
}

int chat_answer_delta(struct chat_answer *c, struct buf *out)
{
    const char *comma = "";
    int r = buf_addz(out, "\"delta\":{");

    if (r >= 0 && !c->role_told) {
        r = buf_addz(out, "\"role\":\"assistant\"");
        c->role_told = true;
        comma = ",";
    }
    if (r >= 0 && c->reasoning.len > c->n_reasoning) {
        r = put_text(out, comma, "reasoning_content", &c->reasoning, c->n_reasoning);
        c->n_reasoning = c->reasoning.len;
        comma = ",";
    }
    if (r >= 0 && c->content.len > c->n_content) {
        r = put_text(out, comma, "content", &c->content, c->n_content);
        c->n_content = c->content.len;
        comma = ",";
    }
    if (r >= 0)
        r = put_call_deltas(c, comma, out);
    return r < 0 ? r : buf_addz(out, "}");
}

static int put_calls(const struct chat_answer *c, struct buf *out)
{
    int r = buf_addz(out, ",\"tool_calls\":[");

    for (unsigned int i = 0; i < c->n_calls && r >= 0; i++) {
        const struct tool_call *t = &c->calls[i];

        r = buf_addf(out,
                     "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", i ? "," : "",
                     t->id);
        if (r >= 0)
            r = json_out_string(out, t->name.data ? t->name.data : "", t->name.len);
        if (r >= 0)
            r = put_text(out, ",", "arguments", &t->arguments, 0);
        if (r >= 0)
            r = buf_addz(out, "}}");
    }
    return r < 0 ? r : buf_addz(out, "]");
}

int chat_answer_message(const struct chat_answer *c, struct buf *out)
{
    int r = buf_addz(out, "\"message\":{\"role\":\"assistant\"");

    if (r >= 0)
        r = c->content.len == 0 && c->n_calls > 0 ? buf_addz(out, ",\"content\":null")
                                                  : put_text(out, ",", "content", &c->content, 0);
    if (r >= 0 && c->reasoning.len > 0)
        r = put_text(out, ",", "reasoning_content", &c->reasoning, 0);
    if (r >= 0 && c->n_calls > 0)
        r = put_calls(c, out);
    return r < 0 ? r : buf_addz(out, "}");
}

const char *chat_answer_finish(const struct chat_answer *c)
{
    return c->has_calls ? "tool_calls" : NULL;
}

bool chat_answer_in_reasoning(const struct chat_answer *c)
{
    return chat_output_in_reasoning(c->output);
}

bool chat_answer_held(struct chat_answer *c, struct request *r)
{
    r->n_hold = r->n_generated + 1;
    /* A failure comes back when the output is taken, and ends the request there. */
    if (chat_answer_take(c, r) < 0 || r->held.len > 0 || r->utf8.n_held > 0 ||
        chat_output_is_unsettled(c->output))
        return false;
    if (chat_output_in_reasoning(c->output) && !c->budget_begun) {
        c->budget_begun = true; /* the model opened it itself, with this token */
        c->n_budget_end = r->n_generated + c->n_budget_end;
    }
    if (chat_output_in_reasoning(c->output) && r->n_generated < c->n_budget_end) {
        r->n_hold = c->n_budget_end;
        return false;
    }
    r->n_hold = UINT32_MAX;
    return chat_output_in_reasoning(c->output);
}
