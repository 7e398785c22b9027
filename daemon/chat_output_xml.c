/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen's calls: <function=NAME><parameter=KEY>VALUE</parameter>…</function>.
 *
 * The arguments are an object that is written as the parameters come, and that is always closed.
 * Nothing is escaped in a value: it ends at a </parameter> that the right thing follows, which is
 * why everything from there on is held.
 */
#include "daemon/chat_output_private.h"

#include <string.h>

static int emit(struct chat_output *c, const char *s)
{
    return chat_output_emit(c, OUT_ARGUMENTS, s, strlen(s));
}

static int emit_escaped(struct chat_output *c, const char *s, size_t n)
{
    char escaped[8];
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = chat_output_emit(c, OUT_ARGUMENTS, escaped, chat_value_escape(s[i], escaped));
    return r;
}

static void trim(struct buf *b)
{
    size_t n = 0;

    while (b->len > 0 && chat_is_space(b->data[b->len - 1]))
        b->data[--b->len] = '\0';
    while (n < b->len && chat_is_space(b->data[n]))
        n++;
    buf_consume(b, n);
}

/* --- a value -------------------------------------------------------------------------------------
 */

static int value_begins(struct chat_output *c)
{
    struct xml_call *x = &c->xml;
    int r;

    x->types = chat_value_types(x->properties, x->name.data);
    x->at_first = true;
    x->newline = false;
    buf_clear(&x->value);
    if (x->types == TYPE_STRING)
        x->how = VALUE_STREAMED;
    else if (x->types == (TYPE_STRING | TYPE_NULL))
        x->how = VALUE_NULLISH;
    else
        x->how = VALUE_HELD;

    r = emit(c, x->has_parameter ? ", \"" : "\"");
    x->has_parameter = true;
    if (r == 0)
        r = emit_escaped(c, x->name.data, x->name.len);
    if (r == 0)
        r = emit(c, x->how == VALUE_STREAMED ? "\": \"" : "\": ");
    c->xml.state = IN_TEXT;
    return r;
}

/* Whether it may still become "null", in any case. */
static bool is_nullish(const struct buf *value)
{
    for (size_t i = 0; i < value->len; i++)
        if (i >= 4 || (value->data[i] | 0x20) != "null"[i])
            return false;
    return true;
}

static int value_byte(struct chat_output *c, char ch)
{
    struct xml_call *x = &c->xml;
    int r;

    if (x->how == VALUE_STREAMED)
        return emit_escaped(c, &ch, 1);
    r = buf_add(&x->value, &ch, 1);
    if (r < 0 || x->how == VALUE_HELD || is_nullish(&x->value))
        return r;
    x->how = VALUE_STREAMED;
    r = emit(c, "\"");
    return r < 0 ? r : emit_escaped(c, x->value.data, x->value.len);
}

/* Without one newline at its beginning and one at its end. */
static int value_put(struct chat_output *c, const char *s, size_t n)
{
    struct xml_call *x = &c->xml;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        bool at_first = x->at_first;

        x->at_first = false;
        if (at_first && s[i] == '\n')
            continue;
        if (x->newline)
            r = value_byte(c, '\n');
        x->newline = s[i] == '\n';
        if (r == 0 && !x->newline)
            r = value_byte(c, s[i]);
    }
    return r;
}

static int value_ends(struct chat_output *c)
{
    struct xml_call *x = &c->xml;

    buf_clear(&c->raw);
    c->xml.state = IN_BODY;
    if (x->how == VALUE_STREAMED)
        return emit(c, "\"");
    /* Since the key nothing but arguments went out. */
    return chat_value_write(&c->out, x->types, x->value.data, x->value.len);
}

/* What looked like the end of the value is part of it. */
static int value_goes_on(struct chat_output *c, char ch)
{
    int r = value_put(c, c->raw.data, c->raw.len);

    buf_clear(&c->raw);
    c->xml.state = IN_TEXT;
    return r < 0 ? r : chat_output_again(c, ch);
}

/* --- the states ----------------------------------------------------------------------------------
 */

int chat_xml_open(struct chat_output *c)
{
    buf_clear(&c->xml.name);
    c->xml.state = IN_FUNCTION;
    c->state = AT_XML;
    return buf_addz(&c->raw, chat_output_marker(MARK_FUNCTION));
}

static bool ends_name(const struct xml_call *x, char ch)
{
    return ch == '\n' || ch == '<' || x->name.len == XML_NAME_MAX;
}

static int in_function(struct chat_output *c, char ch)
{
    struct xml_call *x = &c->xml;
    int r;

    if (ch == '>') {
        trim(&x->name);
        if (x->name.len > 0) {
            x->properties = chat_value_properties(c->tools, x->name.data);
            x->has_parameter = false;
            c->xml.state = IN_BODY;
            r = chat_output_begin(c, x->name.data, x->name.len);
            return r < 0 ? r : emit(c, "{");
        }
    }
    if (ch == '>' || ends_name(x, ch)) {
        r = chat_output_give_back(c);
        return r < 0 ? r : chat_output_again(c, ch);
    }
    r = buf_add(&x->name, &ch, 1);
    return r < 0 ? r : buf_add(&c->raw, &ch, 1);
}

static int function_ends(struct chat_output *c)
{
    chat_output_complete(c, false);
    return emit(c, "}");
}

/* Text between parameters is nobody's: dropped, so that what follows is still seen. */
static int in_body(struct chat_output *c, char ch)
{
    int m, r;

    m = chat_output_match(c, ch,
                          SET(MARK_PARAMETER) | SET(MARK_FUNCTION_END) | SET(MARK_CALL_END) |
                              SET(MARK_CALL) | SET(MARK_FUNCTION));
    switch (m) {
    case MATCH_PART:
        return 0;
    case MARK_PARAMETER:
        buf_clear(&c->xml.name);
        c->xml.state = IN_PARAMETER;
        return 0;
    case MARK_FUNCTION_END:
        return function_ends(c);
    case MARK_CALL_END:
        r = function_ends(c);
        chat_output_closed(c);
        return r;
    case MARK_CALL: /* the next call: this one was left open */
        r = function_ends(c);
        c->state = AT_OPEN;
        return r < 0 ? r : buf_addz(&c->raw, chat_output_marker(MARK_CALL));
    case MARK_FUNCTION:
        r = function_ends(c);
        return r < 0 ? r : chat_xml_open(c);
    default:
        break;
    }
    if (c->n_tag == 0)
        return 0;
    c->n_tag = 0;
    return in_body(c, ch);
}

static int in_parameter(struct chat_output *c, char ch)
{
    struct xml_call *x = &c->xml;

    if (ch == '>') {
        trim(&x->name);
        if (x->name.len > 0)
            return value_begins(c);
    }
    if (ch == '>' || ends_name(x, ch)) {
        c->xml.state = IN_BODY;
        return in_body(c, ch);
    }
    return buf_add(&x->name, &ch, 1);
}

static int in_text(struct chat_output *c, char ch)
{
    int m = chat_output_match(c, ch, SET(MARK_PARAMETER_END) | SET(MARK_FUNCTION_END));
    int r;

    switch (m) {
    case MATCH_PART:
        return 0;
    case MARK_PARAMETER_END:
    case MARK_FUNCTION_END:
        c->xml.state = m == MARK_PARAMETER_END ? IN_TEXT_END : IN_TEXT_FUNC;
        return buf_addz(&c->raw, chat_output_marker((enum marker)m));
    default:
        break;
    }
    if (c->n_tag == 0)
        return value_put(c, &ch, 1);
    r = value_put(c, c->tag, c->n_tag);
    c->n_tag = 0;
    return r < 0 ? r : in_text(c, ch);
}

static int in_text_end(struct chat_output *c, char ch)
{
    int m =
        chat_output_match(c, ch, SET(MARK_PARAMETER) | SET(MARK_FUNCTION_END) | SET(MARK_CALL_END));
    int r;

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NONE)
        return value_goes_on(c, ch);
    r = value_ends(c);
    if (r < 0)
        return r;
    switch (m) {
    case MARK_PARAMETER:
        buf_clear(&c->xml.name);
        c->xml.state = IN_PARAMETER;
        return 0;
    case MARK_FUNCTION_END:
        return function_ends(c);
    default:
        r = function_ends(c);
        chat_output_closed(c);
        return r;
    }
}

static int in_text_func(struct chat_output *c, char ch)
{
    int m = chat_output_match(c, ch, SET(MARK_CALL_END));

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NONE)
        return value_goes_on(c, ch);
    c->xml.state = IN_TEXT_CALL;
    return buf_addz(&c->raw, chat_output_marker(MARK_CALL_END));
}

int chat_xml_step(struct chat_output *c, char ch)
{
    switch (c->xml.state) {
    case IN_FUNCTION:
        return in_function(c, ch);
    case IN_BODY:
        return in_body(c, ch);
    case IN_PARAMETER:
        return in_parameter(c, ch);
    case IN_TEXT:
        return in_text(c, ch);
    case IN_TEXT_END:
    case IN_TEXT_FUNC:
    case IN_TEXT_CALL:
        break;
    }
    if (c->n_tag == 0 && chat_is_space(ch))
        return buf_add(&c->raw, &ch, 1);
    if (c->xml.state == IN_TEXT_END)
        return in_text_end(c, ch);
    return c->xml.state == IN_TEXT_FUNC ? in_text_func(c, ch) : value_goes_on(c, ch);
}

int chat_xml_end(struct chat_output *c)
{
    int r = 0;

    if (c->xml.state == IN_FUNCTION)
        return chat_output_give_back(c);
    if (c->xml.state == IN_TEXT)
        r = value_put(c, c->tag, c->n_tag);
    if (r == 0 && c->xml.state != IN_BODY && c->xml.state != IN_PARAMETER)
        r = value_ends(c);
    if (r == 0)
        r = function_ends(c);
    c->n_tag = 0;
    chat_output_closed(c);
    return r;
}
