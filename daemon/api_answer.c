/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api_answer.h"

#include "daemon/chat_answer.h"
#include "daemon/json_out.h"
#include "daemon/request.h"
#include "util/buf.h"
#include "util/clock.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* JSON has no infinity; this is what others print for the logarithm of nothing. */
#define LOGPROB_OF_ZERO (-9999.0f)

static uint32_t n_prompt(const struct request *r)
{
    return (uint32_t)r->prompt.n;
}

/* Milliseconds between two times of a request, 0 when one of them never came. */
static double ms_between(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static int put_ids(struct buf *out, const char *name, const int32_t *ids, size_t n)
{
    int r = buf_addf(out, ",\"%s\":[", name);

    for (size_t i = 0; i < n && r >= 0; i++)
        r = buf_addf(out, i ? ",%" PRId32 : "%" PRId32, ids[i]);
    return r < 0 ? r : buf_addz(out, "]");
}

/* The text of a token; one that is no UTF-8 by itself as OpenAI writes it: bytes:\xe2\x82 */
static int put_piece(struct buf *out, const struct tokenizer *t, int32_t id)
{
    struct buf b = {0};
    size_t n;
    const char *s = tokenizer_piece(t, id, true, &n);
    int r;

    if (utf8_is_valid(s, n))
        return json_out_string(out, s, n);
    r = buf_addz(&b, "bytes:");
    for (size_t i = 0; i < n && r >= 0; i++)
        r = buf_addf(&b, "\\x%02x", (unsigned char)s[i]);
    if (r >= 0)
        r = json_out_string(out, b.data, b.len);
    buf_done(&b);
    return r;
}

static int put_logprob(struct buf *out, float v)
{
    return json_out_float(out, isfinite(v) ? v : LOGPROB_OF_ZERO);
}

static int put_top(struct buf *out, const struct tokenizer *t, const struct out_token *token)
{
    int r = buf_addz(out, "{");
    bool first = true;

    for (uint32_t i = 0; i < token->n_top && r >= 0; i++) {
        bool seen = false;

        /* Keys are texts, and two tokens can have the same: the likelier one stays. */
        for (uint32_t j = 0; j < i && !seen; j++) {
            size_t n, m;
            const char *a = tokenizer_piece(t, token->top[i].id, true, &n);
            const char *b = tokenizer_piece(t, token->top[j].id, true, &m);

            seen = n == m && (n == 0 || memcmp(a, b, n) == 0);
        }
        if (seen)
            continue;
        r = buf_addz(out, first ? "" : ",");
        first = false;
        if (r >= 0)
            r = put_piece(out, t, token->top[i].id);
        if (r >= 0)
            r = buf_addz(out, ":");
        if (r >= 0)
            r = put_logprob(out, token->top[i].logprob);
    }
    return r < 0 ? r : buf_addz(out, "}");
}

/* Code points before `byte` of the text, which never lies before the last one asked for. */
static size_t chars_before(struct answer_cursor *at, const struct buf *text, size_t byte)
{
    for (; at->byte < byte && at->byte < text->len; at->byte++)
        at->n_chars += ((unsigned char)text->data[at->byte] & 0xc0) != 0x80;
    return at->n_chars;
}

static int put_logprobs(struct answer *a, size_t begin, size_t end, struct buf *out)
{
    const struct request *q = a->request;
    int r = buf_addz(out, ",\"logprobs\":{\"tokens\":[");

    for (size_t i = begin; i < end && r >= 0; i++) {
        r = buf_addz(out, i > begin ? "," : "");
        if (r >= 0)
            r = put_piece(out, a->tokenizer, q->tokens[i].id);
    }
    if (r >= 0)
        r = buf_addz(out, "],\"token_logprobs\":[");
    for (size_t i = begin; i < end && r >= 0; i++) {
        r = buf_addz(out, i > begin ? "," : "");
        if (r >= 0)
            r = put_logprob(out, q->tokens[i].logprob);
    }
    if (r >= 0)
        r = buf_addz(out, q->sampling.n_top ? "],\"top_logprobs\":[" : "],\"top_logprobs\":null");
    for (size_t i = begin; i < end && r >= 0 && q->sampling.n_top; i++) {
        r = buf_addz(out, i > begin ? "," : "");
        if (r >= 0)
            r = put_top(out, a->tokenizer, &q->tokens[i]);
    }
    if (r >= 0)
        r = buf_addz(out, q->sampling.n_top ? "],\"text_offset\":[" : ",\"text_offset\":[");
    for (size_t i = begin; i < end && r >= 0; i++)
        r = buf_addf(out, i > begin ? ",%zu" : "%zu",
                     chars_before(&a->at, &q->text, q->tokens[i].text_begin));
    return r < 0 ? r : buf_addz(out, "]}");
}

/* {"token","logprob","bytes"}, not closed. */
static int put_chat_token(struct answer *a, int32_t id, float logprob, struct buf *out)
{
    size_t n;
    const char *s = tokenizer_piece(a->tokenizer, id, true, &n);
    int r = buf_addz(out, "{\"token\":");

    if (r >= 0)
        r = json_out_string(out, s, n);
    if (r >= 0)
        r = buf_addz(out, ",\"logprob\":");
    if (r >= 0)
        r = put_logprob(out, logprob);
    if (r >= 0)
        r = buf_addz(out, ",\"bytes\":[");
    for (size_t i = 0; i < n && r >= 0; i++)
        r = buf_addf(out, i ? ",%u" : "%u", (unsigned char)s[i]);
    return r < 0 ? r : buf_addz(out, "]");
}

/* As chats have them. */
static int put_chat_logprobs(struct answer *a, size_t begin, size_t end, struct buf *out)
{
    const struct request *q = a->request;
    int r = buf_addz(out, ",\"logprobs\":{\"content\":[");

    for (size_t i = begin; i < end && r >= 0; i++) {
        const struct out_token *t = &q->tokens[i];

        r = buf_addz(out, i > begin ? "," : "");
        if (r >= 0)
            r = put_chat_token(a, t->id, t->logprob, out);
        if (r >= 0)
            r = buf_addz(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < t->n_top && r >= 0; k++) {
            r = buf_addz(out, k ? "," : "");
            if (r >= 0)
                r = put_chat_token(a, t->top[k].id, t->top[k].logprob, out);
            if (r >= 0)
                r = buf_addz(out, "}");
        }
        if (r >= 0)
            r = buf_addz(out, "]}");
    }
    return r < 0 ? r : buf_addz(out, "]}");
}

static int put_finish(const struct answer *a, struct buf *out)
{
    const struct request *q = a->request;
    const char *calls = a->chat ? chat_answer_finish(a->chat) : NULL;
    int r;

    if (q->state != REQUEST_DONE)
        return buf_addz(out, ",\"finish_reason\":null");
    r = buf_addf(out, ",\"finish_reason\":\"%s\",\"stop_reason\":",
                 calls                      ? calls
                 : q->finish == FINISH_STOP ? "stop"
                                            : "length");
    if (r < 0)
        return r;
    return q->stop_word ? json_out_string(out, q->stop_word, strlen(q->stop_word))
                        : buf_addz(out, "null");
}

/* The choice with everything since the cursor, which moves to the end. */
static int put_text(struct answer *a, struct buf *out)
{
    const struct request *q = a->request;
    int r = buf_addz(out, "\"text\":");

    if (r < 0)
        return r;
    return q->text.len > a->at.text
               ? json_out_string(out, q->text.data + a->at.text, q->text.len - a->at.text)
               : buf_addz(out, "\"\"");
}

static int put_choice(struct answer *a, bool whole, struct buf *out)
{
    const struct request *q = a->request;
    const bool done = q->state == REQUEST_DONE;
    const size_t begin = a->at.token, end = done ? q->n_tokens : q->n_tokens_released;
    int r = buf_addz(out, "{\"index\":0,");

    if (r >= 0 && !a->chat)
        r = put_text(a, out);
    else if (r >= 0)
        r = whole ? chat_answer_message(a->chat, out) : chat_answer_delta(a->chat, out);
    if (r >= 0 && !a->params->logprobs)
        r = buf_addz(out, ",\"logprobs\":null");
    else if (r >= 0)
        r = a->chat ? put_chat_logprobs(a, begin, end, out) : put_logprobs(a, begin, end, out);
    if (r >= 0)
        r = put_finish(a, out);
    if (r >= 0 && a->params->return_token_ids) {
        if (!a->at.prompt_ids)
            r = put_ids(out, "prompt_token_ids", q->prompt.ids, q->prompt.n);
        a->at.prompt_ids = true;
        if (r >= 0)
            r = buf_addz(out, ",\"token_ids\":[");
        for (size_t i = begin; i < end && r >= 0; i++)
            r = buf_addf(out, i > begin ? ",%" PRId32 : "%" PRId32, q->tokens[i].id);
        if (r >= 0)
            r = buf_addz(out, "]");
    }
    a->at.text = q->text.len;
    a->at.token = end;
    return r < 0 ? r : buf_addz(out, "}");
}

static int put_choices(struct answer *a, bool whole, struct buf *out)
{
    int r = buf_addz(out, ",\"choices\":[");

    if (r >= 0)
        r = put_choice(a, whole, out);
    return r < 0 ? r : buf_addz(out, "]");
}

static int put_head(const struct answer *a, bool whole, struct buf *out)
{
    int r =
        buf_addf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", a->id,
                 !a->chat ? "text_completion"
                 : whole  ? "chat.completion"
                          : "chat.completion.chunk",
                 a->created);

    return r < 0 ? r : json_out_string(out, a->model, strlen(a->model));
}

static int put_usage(const struct request *q, struct buf *out)
{
    return buf_addf(
        out,
        ",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
        ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32 "}}",
        n_prompt(q), q->n_generated, (uint64_t)n_prompt(q) + q->n_generated, q->n_cached);
}

/* llama-server's: how many, how long, and the two quotients, of reading and of generating. */
static int put_timing(struct buf *out, const char *what, uint32_t n, double ms)
{
    int r = buf_addf(out, ",\"%s_n\":%" PRIu32 ",\"%s_ms\":", what, n, what);

    if (r >= 0)
        r = json_out_fixed(out, ms);
    if (r >= 0)
        r = buf_addf(out, ",\"%s_per_token_ms\":", what);
    if (r >= 0)
        r = json_out_fixed(out, per(ms, n));
    if (r >= 0)
        r = buf_addf(out, ",\"%s_per_second\":", what);
    return r < 0 ? r : json_out_fixed(out, per(n * 1e3, ms));
}

static int put_timings(const struct request *q, struct buf *out)
{
    int r = buf_addf(out, ",\"timings\":{\"cache_n\":%" PRIu32, q->n_cached);

    if (r >= 0)
        r = put_timing(out, "prompt", n_prompt(q) - q->n_cached,
                       ms_between(q->t_start, q->t_prompt_done));
    if (r >= 0)
        r = put_timing(out, "predicted", q->n_generated, ms_between(q->t_prompt_done, q->t_last));
    return r < 0 ? r : buf_addz(out, "}");
}

int answer_whole(struct answer *a, struct buf *out)
{
    int r = put_head(a, true, out);

    if (r >= 0)
        r = put_choices(a, true, out);
    if (r >= 0)
        r = put_usage(a->request, out);
    if (r >= 0)
        r = put_timings(a->request, out);
    return r < 0 ? r : buf_addz(out, "}\n");
}

bool answer_has_more(const struct answer *a)
{
    const struct request *q = a->request;

    return (a->chat ? chat_answer_has_more(a->chat) : q->text.len > a->at.text) ||
           ((a->params->return_token_ids || a->params->logprobs) &&
            q->n_tokens_released > a->at.token);
}

static int put_event_head(const struct answer *a, struct buf *out)
{
    int r = buf_addz(out, "data: ");

    return r < 0 ? r : put_head(a, false, out);
}

int answer_chunk(struct answer *a, struct buf *out)
{
    int r = put_event_head(a, out);

    if (r >= 0)
        r = put_choices(a, false, out);
    if (r >= 0 && a->params->include_usage)
        r = buf_addz(out, ",\"usage\":null");
    if (r >= 0 && a->request->state == REQUEST_DONE)
        r = put_timings(a->request, out);
    return r < 0 ? r : buf_addz(out, "}\n\n");
}

int answer_progress(const struct answer *a, struct buf *out)
{
    const struct request *q = a->request;
    int r = put_event_head(a, out);

    if (r >= 0)
        r = buf_addf(out,
                     ",\"choices\":[{\"index\":0,%s,\"logprobs\":null,"
                     "\"finish_reason\":null}],\"prompt_progress\":{\"total\":%" PRIu32
                     ",\"cache\":%" PRIu32 ",\"processed\":%" PRIu32 ",\"time_ms\":%.0f",
                     a->chat ? "\"delta\":{}" : "\"text\":\"\"", n_prompt(q), q->n_cached,
                     q->n_read, q->t_start ? clock_ms_since(q->t_start) : 0);
    if (r >= 0)
        r = buf_addz(out, a->params->include_usage ? "},\"usage\":null}\n\n" : "}}\n\n");
    return r;
}

int answer_usage(const struct answer *a, struct buf *out)
{
    int r = put_event_head(a, out);

    if (r >= 0)
        r = buf_addz(out, ",\"choices\":[]");
    if (r >= 0)
        r = put_usage(a->request, out);
    if (r >= 0)
        r = put_timings(a->request, out);
    return r < 0 ? r : buf_addz(out, "}\n\n");
}
