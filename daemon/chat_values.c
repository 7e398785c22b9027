/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/chat_values.h"

#include "engine/jinja.h"
#include "util/buf.h"
#include "util/cleanup.h"

#include <stdlib.h>
#include <string.h>

static struct jinja_value *list_value(const json_t *j)
{
    struct jinja_value *list = jinja_list();

    for (size_t i = 0; list && i < json_array_size(j); i++)
        if (jinja_list_add(list, chat_value(json_array_get(j, i))) < 0) {
            jinja_unref(list);
            return NULL;
        }
    return list;
}

static int set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    return jinja_object_set(o, key, strlen(key), true, v);
}

static struct jinja_value *object_value(const json_t *j)
{
    struct jinja_value *o = jinja_object();

    for (void *i = json_object_iter((json_t *)j); o && i; i = json_object_iter_next((json_t *)j, i))
        if (set(o, json_object_iter_key(i), chat_value(json_object_iter_value(i))) < 0) {
            jinja_unref(o);
            return NULL;
        }
    return o;
}

struct jinja_value *chat_value(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return object_value(j);
    case JSON_ARRAY:
        return list_value(j);
    case JSON_STRING:
        return jinja_string(json_string_value(j), json_string_length(j), true);
    case JSON_INTEGER:
        return jinja_int(json_integer_value(j));
    case JSON_REAL:
        return jinja_float(json_real_value(j));
    case JSON_TRUE:
        return jinja_bool(true);
    case JSON_FALSE:
        return jinja_bool(false);
    case JSON_NULL:
        return jinja_none();
    }
    return NULL;
}

/* --- stamps ------------------------------------------------------------------------------------
 */

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Makes the word at s constant; its length. */
static size_t still(char *s, size_t n)
{
    size_t i = 0;

    while (i < n && is_word(s[i]))
        s[i++] = '0';
    return i;
}

/* The fourth part of cc_version=a.b.c.build. */
static void still_build(char *s, size_t n)
{
    unsigned int dots = 0;

    for (size_t i = 0; i < n && (is_word(s[i]) || s[i] == '.'); i++)
        if (s[i] == '.' && ++dots == 3) {
            (void)still(s + i + 1, n - i - 1);
            return;
        }
}

bool chat_still_stamps(char *s, size_t n)
{
    static const char header[] = "x-anthropic-billing-header:", sum[] = "cch=",
                      version[] = "cc_version=";
    char *at = memmem(s, n < 4096 ? n : 4096, header, sizeof header - 1), *p, *end;

    if (!at)
        return false;
    end = memchr(at, '\n', n - (size_t)(at - s));
    n = end ? (size_t)(end - at) : n - (size_t)(at - s);
    p = memmem(at, n, sum, sizeof sum - 1);
    if (p)
        (void)still(p + sizeof sum - 1, n - (size_t)(p + sizeof sum - 1 - at));
    p = memmem(at, n, version, sizeof version - 1);
    if (p)
        still_build(p + sizeof version - 1, n - (size_t)(p + sizeof version - 1 - at));
    return true;
}

/* --- messages ----------------------------------------------------------------------------------
 */

static bool is_blank(const json_t *string)
{
    return json_is_string(string) &&
           strspn(json_string_value(string), " \t\r\n") == json_string_length(string);
}

const json_t *chat_last_text(const json_t *content)
{
    if (json_is_string(content))
        return is_blank(content) ? NULL : content;
    for (size_t i = json_array_size(content); i-- > 0;) {
        const json_t *t = json_object_get(json_array_get(content, i), "text");

        if (json_is_string(t) && !is_blank(t))
            return t;
    }
    return NULL;
}

/* Text, with the stamps of a system message made constant. */
static struct jinja_value *text_value(const char *s, size_t n, bool is_system)
{
    CLEANUP(free_p) char *copy = NULL;

    if (!is_system)
        return jinja_string(s, n, true);
    copy = malloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    (void)chat_still_stamps(copy, n);
    return jinja_string(copy, n, true);
}

/* Parts that were all found to be text. */
static struct jinja_value *joined(const json_t *parts, bool is_system)
{
    CLEANUP(buf_done) struct buf b = {0};

    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *t = json_object_get(json_array_get(parts, i), "text");

        if (buf_add(&b, json_string_value(t), json_string_length(t)) < 0)
            return NULL;
    }
    return text_value(b.data ? b.data : "", b.len, is_system);
}

static struct jinja_value *content_value(const json_t *j, bool parts, bool is_system)
{
    if (json_is_string(j))
        return text_value(json_string_value(j), json_string_length(j), is_system);
    if (json_is_array(j) && !parts)
        return joined(j, is_system);
    return chat_value(j);
}

/* {"id", "type", "function": {"name", "arguments": "{…}"}} */
static struct jinja_value *call_value(const json_t *call)
{
    CLEANUP(json_decrefp) json_t *copy = json_deep_copy(call);
    json_t *function = copy ? json_object_get(copy, "function") : NULL, *text, *arguments = NULL;

    if (!copy)
        return NULL;
    text = json_object_get(function, "arguments");
    if (!text || json_is_null(text) || is_blank(text))
        arguments = json_object();
    else if (json_is_string(text))
        arguments = json_loadb(json_string_value(text), json_string_length(text),
                               JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    /* What is no JSON stays as it was written. */
    if (arguments && json_object_set_new(function, "arguments", arguments) < 0)
        return NULL;
    return chat_value(copy);
}

static struct jinja_value *calls_value(const json_t *calls)
{
    struct jinja_value *list = jinja_list();

    for (size_t i = 0; list && i < json_array_size(calls); i++)
        if (jinja_list_add(list, call_value(json_array_get(calls, i))) < 0) {
            jinja_unref(list);
            return NULL;
        }
    return list;
}

static struct jinja_value *field_value(const char *key, const json_t *v, bool parts, bool is_system)
{
    /* One of five words that we know; some templates make the name of a token of it: <|user|>. */
    if (strcmp(key, "role") == 0 && json_is_string(v))
        return jinja_string(json_string_value(v), strlen(json_string_value(v)), false);
    if (strcmp(key, "content") == 0)
        return content_value(v, parts, is_system);
    if (strcmp(key, "tool_calls") == 0 && json_is_array(v))
        return calls_value(v);
    return chat_value(v);
}

struct jinja_value *chat_message_value(const json_t *message, bool parts)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const bool is_system = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    json_t *m = (json_t *)message;
    struct jinja_value *o = jinja_object();

    for (void *i = json_object_iter(m); o && i; i = json_object_iter_next(m, i)) {
        const char *key = json_object_iter_key(i);

        if (set(o, key, field_value(key, json_object_iter_value(i), parts, is_system)) < 0) {
            jinja_unref(o);
            return NULL;
        }
    }
    return o;
}
