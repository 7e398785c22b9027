/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of a parameter's text: what the tool's schema allows decides. */
#include "daemon/chat_output_private.h"

#include "util/err.h"

#include <errno.h>
#include <string.h>

/* A schema is the client's: so deep, and so many parts of it, are looked at for one value. */
enum { SCHEMA_DEPTH = 8, SCHEMA_PARTS = 256 };

/* --- types ---------------------------------------------------------------------------------------
 */

const json_t *chat_value_properties(const json_t *tools, const char *function)
{
    const json_t *tool, *f;
    const char *name;
    size_t i;

    json_array_foreach((json_t *)tools, i, tool)
    {
        f = json_object_get(tool, "function");
        name = json_string_value(json_object_get(f, "name"));
        if (name && strcmp(name, function) == 0)
            return json_object_get(json_object_get(f, "parameters"), "properties");
    }
    return NULL;
}

static unsigned int type_named(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned int type;
    } types[] = {
        {"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN},  {"integer", TYPE_INTEGER},
        {"number", TYPE_NUMBER}, {"object", TYPE_STRUCTURE}, {"array", TYPE_STRUCTURE},
        {"string", TYPE_STRING},
    };

    for (size_t i = 0; json_is_string(name) && i < sizeof types / sizeof *types; i++)
        if (strcmp(json_string_value(name), types[i].name) == 0)
            return types[i].type;
    return 0;
}

static bool is_enum_of_strings(const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum"), *v;
    size_t i;

    json_array_foreach((json_t *)values, i, v)
    {
        if (!json_is_string(v))
            return false;
    }
    return json_array_size(values) > 0;
}

static unsigned int collect(const json_t *schema, unsigned int depth, unsigned int *n_left)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *part;
    unsigned int types = type_named(type);
    size_t i;

    if (depth == 0 || *n_left == 0)
        return 0;
    --*n_left;
    if (is_enum_of_strings(schema))
        return TYPE_STRING;
    json_array_foreach((json_t *)type, i, part)
    {
        types |= type_named(part);
    }
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        json_array_foreach(json_object_get(schema, choices[k]), i, part)
        {
            types |= collect(part, depth - 1, n_left);
            if (*n_left == 0)
                break;
        }
    }
    return types;
}

unsigned int chat_value_types(const json_t *properties, const char *key)
{
    unsigned int n_left = SCHEMA_PARTS;
    unsigned int types = collect(json_object_get(properties, key), SCHEMA_DEPTH, &n_left);

    return types ? types : TYPE_NULL | TYPE_STRING;
}

/* --- scalars -------------------------------------------------------------------------------------
 */

size_t chat_value_escape(char ch, char to[8])
{
    static const char from[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf", hex[] = "0123456789abcdef";
    const char *p = ch ? strchr(from, ch) : NULL;

    if (p) {
        to[0] = '\\';
        to[1] = letter[p - from];
        return 2;
    }
    if ((unsigned char)ch < 0x20) {
        memcpy(to, "\\u00", 4);
        to[4] = hex[ch >> 4];
        to[5] = hex[ch & 15];
        return 6;
    }
    to[0] = ch;
    return 1;
}

static size_t count_digits(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

/* The length of the JSON number that s begins with; 0: none. */
static size_t number_length(const char *s, size_t n, bool *ret_integer)
{
    size_t i = n > 0 && s[0] == '-', n_digits = count_digits(s + i, n - i), at;

    *ret_integer = true;
    if (n_digits == 0)
        return 0;
    i += s[i] == '0' ? 1 : n_digits;
    if (i + 1 < n && s[i] == '.' && (n_digits = count_digits(s + i + 1, n - i - 1)) > 0) {
        i += 1 + n_digits;
        *ret_integer = false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        at = i + 1;
        at += at < n && (s[at] == '+' || s[at] == '-');
        n_digits = count_digits(s + at, n - at);
        if (n_digits > 0) {
            i = at + n_digits;
            *ret_integer = false;
        }
    }
    return i;
}

static bool is_number(const char *s, size_t n, bool *ret_integer)
{
    return n > 0 && number_length(s, n, ret_integer) == n;
}

/* In any case; word is in small letters. */
static bool is_word(const char *s, size_t n, const char *word)
{
    if (n != strlen(word))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((s[i] | 0x20) != word[i])
            return false;
    return true;
}

static int write_string(struct buf *out, const char *s, size_t n)
{
    char escaped[8];
    int r = buf_add(out, "\"", 1);

    for (size_t i = 0; i < n && r == 0; i++)
        r = buf_add(out, escaped, chat_value_escape(s[i], escaped));
    return r < 0 ? r : buf_add(out, "\"", 1);
}

int chat_value_write(struct buf *out, unsigned int types, const char *text, size_t n_text)
{
    const char *s = text;
    size_t n = n_text;
    bool integer;
    int r;

    /* A string that streams is not trimmed either: only what can be another type is. */
    if (types & ~(unsigned int)(TYPE_NULL | TYPE_STRING)) {
        while (n > 0 && chat_is_space(s[n - 1]))
            n--;
        while (n > 0 && chat_is_space(*s))
            s++, n--;
    }
    if ((types & TYPE_NULL) && is_word(s, n, "null"))
        return buf_addz(out, "null");
    if ((types & TYPE_BOOLEAN) && is_word(s, n, "true"))
        return buf_addz(out, "true");
    if ((types & TYPE_BOOLEAN) && is_word(s, n, "false"))
        return buf_addz(out, "false");
    /* Its own digits: they may be more than a double or 64 bits hold. */
    if ((types & (TYPE_INTEGER | TYPE_NUMBER)) && is_number(s, n, &integer) &&
        (integer || (types & TYPE_NUMBER)))
        return buf_add(out, s, n);
    if ((types & TYPE_STRUCTURE) && n > 0 && (*s == '{' || *s == '[')) {
        r = chat_value_structure(out, s, n);
        if (r != -EINVAL)
            return r;
    }
    return write_string(out, text, n_text);
}

/* --- objects and arrays --------------------------------------------------------------------------
 */

/* Most open brackets: deeper ones are no value that a tool expects. */
enum { NEST_MAX = 256 };

struct reader {
    const char *s;
    size_t n, i;
    struct buf *out;
    char closers[NEST_MAX];
    size_t depth;
};

static size_t count_hex(const char *s, size_t n, size_t most)
{
    size_t i = 0;

    while (i < n && i < most && s[i] && strchr("0123456789abcdefABCDEF", s[i]))
        i++;
    return i;
}

/* After a backslash. */
static int copy_escape(struct reader *r)
{
    const char *s = r->s + r->i;
    size_t n = r->n - r->i;
    int e;

    if (n == 0)
        return -EINVAL;
    if (*s == '\'') {
        r->i++;
        return buf_add(r->out, "'", 1);
    }
    if (*s == 'x' && count_hex(s + 1, n - 1, 2) == 2) {
        r->i += 3;
        e = buf_addz(r->out, "\\u00");
        return e < 0 ? e : buf_add(r->out, s + 1, 2);
    }
    if (*s && (strchr("\"\\/bfnrt", *s) || (*s == 'u' && count_hex(s + 1, n - 1, 4) == 4))) {
        r->i++;
        e = buf_add(r->out, "\\", 1);
        return e < 0 ? e : buf_add(r->out, s, 1);
    }
    return buf_addz(r->out, "\\\\"); /* the backslash itself, as Python has it */
}

static int copy_string(struct reader *r)
{
    char quote = r->s[r->i++], escaped[8];
    int e = buf_add(r->out, "\"", 1);

    while (e == 0 && r->i < r->n) {
        char ch = r->s[r->i++];

        if (ch == quote)
            return buf_add(r->out, "\"", 1);
        if (ch == '\\')
            e = copy_escape(r);
        else
            e = buf_add(r->out, escaped, chat_value_escape(ch, escaped));
    }
    return e < 0 ? e : -EINVAL;
}

static int copy_scalar(struct reader *r)
{
    static const struct {
        const char *s, *json;
    } words[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                 {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *s = r->s + r->i;
    size_t n = r->n - r->i, len;
    bool integer;

    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        len = strlen(words[k].s);
        if (n >= len && memcmp(s, words[k].s, len) == 0) {
            r->i += len;
            return buf_addz(r->out, words[k].json);
        }
    }
    len = number_length(s, n, &integer);
    r->i += len;
    return len ? buf_add(r->out, s, len) : -EINVAL;
}

/* Copies whitespace; whether something follows. */
static bool skip_space(struct reader *r, int *ret)
{
    size_t from = r->i;

    while (r->i < r->n && strchr(" \t\r\n", r->s[r->i]) && r->s[r->i])
        r->i++;
    *ret = buf_add(r->out, r->s + from, r->i - from);
    return *ret == 0 && r->i < r->n;
}

static int open_nest(struct reader *r, char ch)
{
    if (r->depth == NEST_MAX)
        return -EINVAL;
    r->closers[r->depth++] = ch == '{' ? '}' : ']';
    r->i++;
    return buf_add(r->out, &ch, 1);
}

static int close_nest(struct reader *r, char ch)
{
    if (ch != r->closers[r->depth - 1])
        return -EINVAL;
    r->depth--;
    r->i++;
    return buf_add(r->out, &ch, 1);
}

/* A key and its colon, up to the value. */
static int copy_key(struct reader *r)
{
    int e;

    if (r->s[r->i] != '"' && r->s[r->i] != '\'')
        return -EINVAL;
    e = copy_string(r);
    if (e < 0)
        return e;
    if (!skip_space(r, &e))
        return e < 0 ? e : -EINVAL;
    if (r->s[r->i++] != ':')
        return -EINVAL;
    e = buf_add(r->out, ":", 1);
    if (e < 0)
        return e;
    return skip_space(r, &e) ? 0 : e < 0 ? e : -EINVAL;
}

/* A member or element, or the end that may stand in its place. */
static int copy_item(struct reader *r, bool *ret_closed)
{
    char ch = r->s[r->i];
    int e = 0;

    *ret_closed = ch == r->closers[r->depth - 1];
    if (*ret_closed)
        return close_nest(r, ch);
    if (r->closers[r->depth - 1] == '}')
        e = copy_key(r);
    if (e < 0)
        return e;
    ch = r->s[r->i];
    if (ch == '{' || ch == '[')
        return open_nest(r, ch);
    return ch == '"' || ch == '\'' ? copy_string(r) : copy_scalar(r);
}

static int copy_structure(struct reader *r)
{
    size_t comma = 0, depth; /* of the comma that an item must follow; 0: none */
    bool after = false, closed;
    int e = open_nest(r, r->s[r->i]);

    while (e == 0 && r->depth > 0) {
        if (!skip_space(r, &e))
            return e < 0 ? e : -EINVAL;
        depth = r->depth;
        if (!after) {
            e = copy_item(r, &closed);
            if (e == 0 && closed && comma) { /* the comma at the end */
                memmove(r->out->data + comma, r->out->data + comma + 1, r->out->len - comma);
                r->out->len--;
            }
            after = r->depth <= depth; /* not when it has opened one */
            comma = 0;
        } else if (r->s[r->i] == ',') {
            comma = r->out->len;
            r->i++;
            e = buf_add(r->out, ",", 1);
            after = false;
        } else {
            e = close_nest(r, r->s[r->i]);
        }
    }
    return e;
}

int chat_value_structure(struct buf *out, const char *s, size_t n)
{
    struct reader r = {.s = s, .n = n, .out = out};
    size_t before = out->len;
    int e = copy_structure(&r);

    if (e == 0 && r.i < n)
        e = -EINVAL;
    if (e < 0) {
        out->len = before;
        if (out->data)
            out->data[before] = '\0';
    }
    return e;
}
