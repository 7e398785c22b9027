/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hermes' calls: {"name": "f", "arguments": {...}} between tags.
 *
 * The outer object is read strictly, since it is text if anything is wrong before name and
 * arguments are known.  The arguments go out as they come, so only what finds their end is looked
 * at: strings and brackets.  "parameters" is another word for them; in a string, they are its
 * content; null or none are {}.  Other values there are no arguments, and the whole is text.
 */
#include "daemon/chat_output_private.h"

#include "util/utf8.h"

#include <assert.h>
#include <string.h>

/* Of functions here: the byte does not belong to a call. */
enum { NO_CALL = 1 };

int chat_json_open(struct chat_output *c)
{
    struct json_call *j = &c->json;

    buf_clear(&j->word);
    buf_clear(&j->name);
    buf_clear(&j->args);
    buf_clear(&j->closers);
    j->state = IN_KEY;
    j->has_name = j->has_args = j->begun = j->args_open = false;
    j->in_string = j->in_escape = false;
    j->escape = 0;
    j->unit = j->high = 0;
    c->state = AT_JSON;
    return 0;
}

static int put_args(struct chat_output *c, const char *s, size_t n)
{
    struct json_call *j = &c->json;
    int r;

    if (!j->has_name)
        return buf_add(&j->args, s, n);
    if (!j->begun) {
        r = chat_output_begin(c, j->name.data, j->name.len);
        if (r < 0)
            return r;
        j->begun = true;
    }
    return chat_output_emit(c, OUT_ARGUMENTS, s, n);
}

/* One byte of the arguments' text.  A control character in a string, which JSON can not have there
 * and models write all the same, is escaped. */
static int put_args_byte(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    char escaped[8];

    if (j->in_string && (unsigned char)ch < 0x20) {
        j->in_escape = false;
        return put_args(c, escaped, chat_value_escape(ch, escaped));
    }
    if (j->in_escape)
        j->in_escape = false;
    else if (j->in_string && ch == '\\')
        j->in_escape = true;
    else if (ch == '"')
        j->in_string = !j->in_string;
    return put_args(c, &ch, 1);
}

/* --- strings of the outer object -----------------------------------------------------------------
 */

/* What a string holds, unescaped. */
static int put_string(struct chat_output *c, const char *s, size_t n)
{
    struct json_call *j = &c->json;
    int r = 0;

    switch (j->target) {
    case TO_KEY:
        return buf_add(&j->word, s, n);
    case TO_NAME:
        return buf_add(&j->name, s, n);
    case TO_NOWHERE:
        return 0;
    case TO_ARGUMENTS:
        break;
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        if (!j->args_open && chat_is_space(s[i]))
            continue;
        if (!j->args_open && s[i] != '{')
            return NO_CALL;
        j->args_open = true;
        r = put_args_byte(c, s[i]);
    }
    return r;
}

static int put_code_point(struct chat_output *c, uint32_t cp)
{
    char s[4];

    return put_string(c, s, utf8_encode(cp, s));
}

/* A high surrogate that no low one follows. */
static int put_lone(struct chat_output *c)
{
    if (!c->json.high)
        return 0;
    c->json.high = 0;
    return put_code_point(c, 0xfffd);
}

/* The end of \uXXXX. */
static int put_unit(struct chat_output *c)
{
    struct json_call *j = &c->json;
    uint32_t unit = j->unit, high = j->high;
    int r;

    if (unit >= 0xdc00 && unit <= 0xdfff && high) {
        j->high = 0;
        return put_code_point(c, 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00));
    }
    r = put_lone(c);
    if (r != 0)
        return r;
    if (unit >= 0xd800 && unit <= 0xdbff) {
        j->high = unit;
        return 0;
    }
    return put_code_point(c, unit >= 0xdc00 && unit <= 0xdfff ? 0xfffd : unit);
}

/* After a backslash. */
static int put_escaped(struct chat_output *c, char ch)
{
    static const char from[] = "nrtbf\"\\/", to[] = "\n\r\t\b\f\"\\/";
    const char *p = ch ? strchr(from, ch) : NULL;
    int r = put_lone(c);

    if (r != 0)
        return r;
    if (p)
        return put_string(c, &to[p - from], 1);
    r = put_string(c, "\\", 1);
    return r != 0 ? r : put_string(c, &ch, 1);
}

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'f')
        return (ch | 0x20) - 'a' + 10;
    return -1;
}

static int string_ends(struct chat_output *c)
{
    struct json_call *j = &c->json;
    int r = put_lone(c);

    if (r != 0)
        return r;
    j->state = j->target == TO_KEY ? IN_COLON : IN_AFTER;
    switch (j->target) {
    case TO_NAME:
        if (j->name.len == 0)
            return NO_CALL;
        j->has_name = true;
        if (j->args.len > 0)
            r = put_args(c, j->args.data, j->args.len);
        buf_clear(&j->args);
        break;
    case TO_ARGUMENTS:
        if (!j->args_open)
            r = put_args(c, "{}", 2);
        j->has_args = true;
        break;
    case TO_KEY:
    case TO_NOWHERE:
        break;
    }
    return r;
}

static int in_string(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    int r, digit;

    if (j->escape == 1) {
        j->escape = 0;
        if (ch != 'u')
            return put_escaped(c, ch);
        j->escape = 2;
        j->unit = 0;
        return 0;
    }
    if (j->escape > 1) {
        digit = hex_digit(ch);
        if (digit >= 0) {
            j->unit = j->unit * 16 + (uint32_t)digit;
            j->escape = j->escape == 5 ? 0 : (uint8_t)(j->escape + 1);
            return j->escape ? 0 : put_unit(c);
        }
        j->escape = 0;
        r = put_lone(c);
        if (r == 0)
            r = put_code_point(c, 0xfffd);
        if (r != 0)
            return r;
    }
    if (ch == '\\') {
        j->escape = 1;
        return 0;
    }
    if (ch == '"')
        return string_ends(c);
    /* A quote that is missing must not make the rest of the answer part of a name. */
    if ((unsigned char)ch < 0x20 && (j->target == TO_KEY || j->target == TO_NAME))
        return NO_CALL;
    r = put_lone(c);
    return r != 0 ? r : put_string(c, &ch, 1);
}

/* --- other values --------------------------------------------------------------------------------
 */

/* </tool_call> where only a bracket can be missing. */
static int cut_by_tag(struct chat_output *c)
{
    struct json_call *j = &c->json;
    int r = 0;

    if (!j->begun) /* raw has the tag too */
        return chat_output_give_back(c);
    if (!j->has_args)
        for (size_t i = j->closers.len; i > 0 && r == 0; i--)
            r = put_args(c, &j->closers.data[i - 1], 1);
    chat_output_complete(c, true);
    chat_output_closed(c);
    return r;
}

static int in_nest(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    bool is_args = j->target == TO_ARGUMENTS, was_string = j->in_string;
    int r = 0;

    if (!was_string) {
        int m = chat_output_match(c, ch, SET(MARK_CALL_END));

        if (m == MATCH_PART)
            return 0;
        if (m == MARK_CALL_END)
            return cut_by_tag(c);
        if (c->n_tag > 0) { /* it has no quote and no bracket */
            if (is_args)
                r = put_args(c, c->tag, c->n_tag);
            c->n_tag = 0;
            return r < 0 ? r : in_nest(c, ch);
        }
    }
    if (is_args)
        r = put_args_byte(c, ch);
    else if (j->in_escape)
        j->in_escape = false;
    else if (j->in_string && ch == '\\')
        j->in_escape = true;
    else if (ch == '"')
        j->in_string = !j->in_string;
    if (r < 0 || was_string)
        return r;

    if (ch == '{' || ch == '[')
        return buf_add(&j->closers, ch == '{' ? "}" : "]", 1);
    if (ch == '}' || ch == ']') {
        j->closers.len--;
        if (j->closers.len == 0) {
            j->has_args |= is_args;
            j->state = IN_AFTER;
        }
    }
    return 0;
}

static bool is_word(char ch)
{
    return (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || ch == '-' ||
           ch == '+' || ch == '.';
}

static int after_value(struct chat_output *c, char ch);

static int in_scalar(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    int r = 0;

    if (is_word(ch))
        return j->target == TO_ARGUMENTS ? buf_add(&j->word, &ch, 1) : 0;

    j->state = IN_AFTER;
    if (j->target == TO_ARGUMENTS) {
        if (j->word.len != 4 || memcmp(j->word.data, "null", 4) != 0)
            return NO_CALL;
        r = put_args(c, "{}", 2);
        j->has_args = true;
    }
    return r != 0 ? r : after_value(c, ch);
}

/* --- the outer object ----------------------------------------------------------------------------
 */

static bool word_is(const struct buf *word, const char *s)
{
    return word->len == strlen(s) && memcmp(word->data, s, word->len) == 0;
}

static int before_value(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    bool is_args = word_is(&j->word, "arguments") || word_is(&j->word, "parameters");

    if (chat_is_space(ch))
        return 0;
    j->in_string = j->in_escape = false;
    /* The first of two counts. */
    if (is_args && !j->has_args)
        j->target = TO_ARGUMENTS;
    else if (!j->has_name && ch == '"' && word_is(&j->word, "name"))
        j->target = TO_NAME;
    else
        j->target = TO_NOWHERE;

    if (ch == '"') {
        j->state = IN_STRING;
        return 0;
    }
    if (ch == '{' || (ch == '[' && j->target == TO_NOWHERE)) {
        j->state = IN_NEST;
        return in_nest(c, ch);
    }
    if (!is_word(ch))
        return NO_CALL;
    buf_clear(&j->word);
    j->state = IN_SCALAR;
    return in_scalar(c, ch);
}

static int object_ends(struct chat_output *c)
{
    struct json_call *j = &c->json;
    int r = 0;

    if (!j->has_name) /* raw has the brace too */
        return chat_output_give_back(c);
    if (!j->begun)
        r = put_args(c, "{}", 2);
    chat_output_complete(c, true);
    return r;
}

static int before_key(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;

    if (chat_is_space(ch))
        return 0;
    if (ch == '}')
        return object_ends(c);
    if (ch != '"')
        return NO_CALL;
    buf_clear(&j->word);
    j->target = TO_KEY;
    j->state = IN_STRING;
    return 0;
}

static int after_value(struct chat_output *c, char ch)
{
    if (ch == ',') {
        c->json.state = IN_KEY;
        return 0;
    }
    return before_key(c, ch); /* a comma that is missing is no reason to lose the arguments */
}

static int step(struct chat_output *c, char ch)
{
    switch (c->json.state) {
    case IN_KEY:
        return before_key(c, ch);
    case IN_COLON:
        if (ch == ':')
            c->json.state = IN_VALUE;
        return ch == ':' || chat_is_space(ch) ? 0 : NO_CALL;
    case IN_VALUE:
        return before_value(c, ch);
    case IN_STRING:
        return in_string(c, ch);
    case IN_NEST:
        return in_nest(c, ch);
    case IN_SCALAR:
        return in_scalar(c, ch);
    case IN_AFTER:
        return after_value(c, ch);
    }
    return NO_CALL;
}

int chat_json_step(struct chat_output *c, char ch)
{
    struct json_call *j = &c->json;
    int r = 0;

    if (!j->begun)
        r = buf_add(&c->raw, &ch, 1);
    if (r == 0)
        r = step(c, ch);
    if (r != NO_CALL)
        return r;

    /* Whatever is wrong behind the arguments, they are known. */
    if (j->begun) {
        assert(j->has_args);
        chat_output_complete(c, true);
    } else {
        c->raw.len--;
        r = chat_output_give_back(c);
        if (r < 0)
            return r;
    }
    return chat_output_again(c, ch);
}

int chat_json_end(struct chat_output *c)
{
    struct json_call *j = &c->json;
    int r = 0;

    if (!j->begun) {
        c->n_tag = 0; /* raw has it */
        return chat_output_give_back(c);
    }
    if (j->has_args)
        chat_output_complete(c, true);
    else if (c->n_tag > 0)
        r = put_args(c, c->tag, c->n_tag);
    c->n_tag = 0;
    c->state = AT_TEXT;
    buf_clear(&c->raw);
    return r;
}
