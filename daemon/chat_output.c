/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/chat_output.h"

#include "daemon/chat_output_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* None has a '<' but its first byte: a prefix that fails holds no other marker's beginning. */
static const struct {
    const char *s;
    size_t n;
} markers[N_MARKERS] = {
#define MARKER(s)                                                                                  \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }
    [MARK_THINK] = MARKER("<think>"),         [MARK_THINK_END] = MARKER("</think>"),
    [MARK_CALL] = MARKER("<tool_call>"),      [MARK_CALL_END] = MARKER("</tool_call>"),
    [MARK_FUNCTION] = MARKER("<function="),   [MARK_FUNCTION_END] = MARKER("</function>"),
    [MARK_PARAMETER] = MARKER("<parameter="), [MARK_PARAMETER_END] = MARKER("</parameter>"),
#undef MARKER
};

const char *chat_output_marker(enum marker m)
{
    return markers[m].s;
}

int chat_output_match(struct chat_output *c, char ch, unsigned int set)
{
    size_t n = c->n_tag;

    if (n == 0 && ch != '<')
        return MATCH_NONE;
    for (int m = 0; m < N_MARKERS; m++) {
        if (!(set & SET(m)) || markers[m].n <= n || markers[m].s[n] != ch ||
            memcmp(markers[m].s, c->tag, n) != 0)
            continue;
        if (n + 1 == markers[m].n) {
            c->n_tag = 0;
            return m;
        }
        c->tag[c->n_tag++] = ch;
        return MATCH_PART;
    }
    return MATCH_NONE;
}

/* --- what goes out -------------------------------------------------------------------------------
 */

static int flush(struct chat_output *c)
{
    int r = 0;

    if (c->out.len == 0)
        return 0;
    switch (c->out_kind) {
    case OUT_REASONING:
        r = c->sink.reasoning(c->sink.arg, c->out.data, c->out.len);
        break;
    case OUT_CONTENT:
        r = c->sink.content(c->sink.arg, c->out.data, c->out.len);
        break;
    case OUT_ARGUMENTS:
        r = c->sink.arguments(c->sink.arg, c->n_begun - 1, c->out.data, c->out.len);
        break;
    }
    buf_clear(&c->out);
    return r < 0 ? r : 0;
}

int chat_output_emit(struct chat_output *c, enum out_kind kind, const char *s, size_t n)
{
    int r;

    if (n == 0)
        return 0;
    if (kind != c->out_kind) {
        r = flush(c);
        if (r < 0)
            return r;
        c->out_kind = kind;
    }
    return buf_add(&c->out, s, n);
}

static int emit_text(struct chat_output *c, const char *s, size_t n)
{
    if (n > 0 && !c->reasoning)
        c->any_content = true;
    return chat_output_emit(c, c->reasoning ? OUT_REASONING : OUT_CONTENT, s, n);
}

int chat_output_text(struct chat_output *c, const char *s, size_t n)
{
    size_t n_solid;
    int r;

    while (c->skip_newlines && n > 0) {
        if (*s == '\n' || *s == '\r')
            s++, n--;
        else
            c->skip_newlines = false;
    }
    if (n == 0)
        return 0;
    /* Without tools nothing that follows content takes its whitespace away. */
    if (!c->reasoning && !c->tools)
        return emit_text(c, s, n);

    n_solid = n;
    while (n_solid > 0 && chat_is_space(s[n_solid - 1]))
        n_solid--;
    if (n_solid > 0) {
        r = emit_text(c, c->space.data, c->space.len);
        if (r == 0)
            r = emit_text(c, s, n_solid);
        if (r < 0)
            return r;
        buf_clear(&c->space);
        c->after_call = false;
    }
    return buf_add(&c->space, s + n_solid, n - n_solid);
}

int chat_output_give_back(struct chat_output *c)
{
    int r = chat_output_text(c, c->raw.data, c->raw.len);

    buf_clear(&c->raw);
    c->state = AT_TEXT;
    return r;
}

int chat_output_begin(struct chat_output *c, const char *name, size_t n)
{
    int r = flush(c);
    if (r < 0)
        return r;

    buf_clear(&c->space);
    buf_clear(&c->raw);
    c->reasoning = false;
    c->skip_newlines = false;
    r = c->sink.call(c->sink.arg, c->n_begun, name, n);
    c->n_begun++;
    return r < 0 ? r : 0;
}

void chat_output_complete(struct chat_output *c, bool json)
{
    c->n_complete++;
    c->state = AT_TAIL;
    c->tail_json = json;
    c->after_call = true;
    c->skip_newlines = !c->any_content;
    buf_clear(&c->raw);
}

void chat_output_closed(struct chat_output *c)
{
    c->state = AT_TEXT;
    buf_clear(&c->raw);
}

/* --- the machine ---------------------------------------------------------------------------------
 */

int chat_output_again(struct chat_output *c, char ch)
{
    char tag[sizeof c->tag];
    size_t n = c->n_tag;
    int r;

    memcpy(tag, c->tag, n);
    c->n_tag = 0;
    for (size_t i = 0; i < n; i++) {
        r = chat_output_step(c, tag[i]);
        if (r < 0)
            return r;
    }
    return chat_output_step(c, ch);
}

static int at_start(struct chat_output *c, char ch)
{
    int r;

    if (c->n_tag == 0 && chat_is_space(ch))
        return buf_add(&c->raw, &ch, 1);

    r = chat_output_match(c, ch, SET(MARK_THINK));
    if (r == MATCH_PART)
        return 0;
    if (r == MARK_THINK) {
        buf_clear(&c->raw);
        c->reasoning = c->skip_newlines = true;
        c->state = AT_TEXT;
        return 0;
    }
    r = chat_output_give_back(c);
    return r < 0 ? r : chat_output_again(c, ch);
}

static int at_text(struct chat_output *c, char ch)
{
    unsigned int set = 0;
    int r;

    if (c->reasoning)
        set |= SET(MARK_THINK_END);
    if (c->tools)
        set |= c->reasoning ? SET(MARK_CALL) : SET(MARK_CALL) | SET(MARK_FUNCTION);
    r = chat_output_match(c, ch, set);
    switch (r) {
    case MATCH_PART:
        return 0;
    case MARK_THINK_END:
        buf_clear(&c->space);
        c->reasoning = false;
        c->skip_newlines = true;
        return 0;
    case MARK_CALL:
        c->state = AT_OPEN;
        return buf_addz(&c->raw, chat_output_marker(MARK_CALL));
    case MARK_FUNCTION:
        return chat_xml_open(c);
    default:
        break;
    }
    if (c->n_tag == 0)
        return chat_output_text(c, &ch, 1);
    r = chat_output_text(c, c->tag, c->n_tag);
    c->n_tag = 0;
    return r < 0 ? r : at_text(c, ch);
}

static int at_open(struct chat_output *c, char ch)
{
    int r;

    if (c->n_tag == 0 && (chat_is_space(ch) || ch == '{')) {
        r = buf_add(&c->raw, &ch, 1);
        return r < 0 || ch != '{' ? r : chat_json_open(c);
    }
    r = chat_output_match(c, ch, SET(MARK_FUNCTION));
    if (r == MATCH_PART)
        return 0;
    if (r == MARK_FUNCTION)
        return chat_xml_open(c);
    r = chat_output_give_back(c);
    return r < 0 ? r : chat_output_again(c, ch);
}

static int at_tail(struct chat_output *c, char ch)
{
    int r;

    if (c->n_tag == 0 && chat_is_space(ch))
        return buf_add(&c->raw, &ch, 1);
    if (c->n_tag == 0 && c->tail_json && ch == '}')
        return 0; /* one brace too many is a common slip */

    r = chat_output_match(c, ch, SET(MARK_CALL_END));
    if (r == MATCH_PART)
        return 0;
    if (r == MARK_CALL_END) {
        chat_output_closed(c);
        return 0;
    }
    r = chat_output_give_back(c);
    return r < 0 ? r : chat_output_again(c, ch);
}

int chat_output_step(struct chat_output *c, char ch)
{
    switch (c->state) {
    case AT_START:
        return at_start(c, ch);
    case AT_TEXT:
        return at_text(c, ch);
    case AT_OPEN:
        return at_open(c, ch);
    case AT_JSON:
        return chat_json_step(c, ch);
    case AT_XML:
        return chat_xml_step(c, ch);
    case AT_TAIL:
        break;
    }
    return at_tail(c, ch);
}

int chat_output_feed(struct chat_output *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n && c->failed == 0; i++)
        c->failed = chat_output_step(c, s[i]);
    if (c->failed == 0)
        c->failed = flush(c);
    return c->failed;
}

static int settle(struct chat_output *c)
{
    int r = 0;

    switch (c->state) {
    case AT_TEXT:
        break;
    case AT_TAIL: /* a </tool_call> that is cut off is no text either */
        c->n_tag = 0;
        chat_output_closed(c);
        break;
    case AT_START:
    case AT_OPEN:
        r = chat_output_give_back(c);
        break;
    case AT_JSON:
        r = chat_json_end(c);
        break;
    case AT_XML:
        r = chat_xml_end(c);
        break;
    }
    if (r == 0 && c->n_tag > 0) {
        r = chat_output_text(c, c->tag, c->n_tag);
        c->n_tag = 0;
    }
    /* Nothing followed: whitespace after reasoning or a call means nothing. */
    if (r == 0 && !c->reasoning && !c->after_call)
        r = emit_text(c, c->space.data, c->space.len);
    buf_clear(&c->space);
    return r < 0 ? r : flush(c);
}

int chat_output_end(struct chat_output *c)
{
    if (c->failed == 0)
        c->failed = settle(c);
    return c->failed;
}

/* --- life ----------------------------------------------------------------------------------------
 */

struct chat_output *chat_output_new(const struct chat_output_options *o,
                                    const struct chat_sink *sink)
{
    struct chat_output *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;

    c->sink = *sink;
    c->tools = json_array_size(o->tools) > 0 ? o->tools : NULL;
    c->reasoning = c->skip_newlines = o->in_reasoning;
    c->state = o->in_reasoning || o->knows_reasoning ? AT_START : AT_TEXT;
    return c;
}

void chat_output_free(struct chat_output *c)
{
    if (!c)
        return;
    buf_done(&c->space);
    buf_done(&c->raw);
    buf_done(&c->json.word);
    buf_done(&c->json.name);
    buf_done(&c->json.args);
    buf_done(&c->json.closers);
    buf_done(&c->xml.name);
    buf_done(&c->xml.value);
    buf_done(&c->out);
    free(c);
}

unsigned int chat_output_n_calls(const struct chat_output *c)
{
    return c->n_complete;
}

bool chat_output_in_reasoning(const struct chat_output *c)
{
    return c->reasoning && (c->state == AT_START || c->state == AT_TEXT);
}

bool chat_output_is_unsettled(const struct chat_output *c)
{
    /* A call has not begun while its text may be given back to the reasoning. */
    return c->n_tag > 0 ||
           (c->state == AT_START ? !c->reasoning : c->reasoning && c->state != AT_TEXT);
}
