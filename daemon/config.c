/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON is read by jansson, which does not say where a value stood; a small scan of the same bytes
 * gives the line of every top-level key.  It runs only on text that jansson accepted, so it may
 * assume well-formed JSON; still, it never leaves the bytes it is given.
 */
#include "daemon/config.h"

#include "daemon/options.h"
#include "daemon/small_file.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

/* Deeper than any value that could be meant; keeps the JSON reader's recursion small. */
enum { CONFIG_MAX_DEPTH = 32 };

struct scan {
    const char *s;
    size_t n, at;
    unsigned int line;
    unsigned int depth;
};

/* Passes a string whose opening quote is at `at`. */
static void scan_string(struct scan *c)
{
    for (c->at++; c->at < c->n && c->s[c->at] != '"'; c->at++) {
        if (c->s[c->at] == '\n')
            c->line++;
        if (c->s[c->at] == '\\' && c->at + 1 < c->n)
            c->at++;
    }
    if (c->at < c->n)
        c->at++;
}

/* Passes one byte outside of strings. */
static void scan_byte(struct scan *c)
{
    char b = c->s[c->at++];

    if (b == '\n')
        c->line++;
    else if (b == '{' || b == '[')
        c->depth++;
    else if ((b == '}' || b == ']') && c->depth > 0)
        c->depth--;
}

/* Moves to the next key of the outermost object.  True with its line. */
static bool scan_next_key(struct scan *c, unsigned int *ret_line)
{
    while (c->at < c->n) {
        unsigned int line = c->line;
        struct scan ahead;

        if (c->s[c->at] != '"') {
            scan_byte(c);
            continue;
        }
        scan_string(c);
        if (c->depth != 1)
            continue;
        ahead = *c;
        while (ahead.at < ahead.n && strchr(" \t\r\n", ahead.s[ahead.at]))
            ahead.at++;
        if (ahead.at < ahead.n && ahead.s[ahead.at] == ':') {
            *ret_line = line;
            return true;
        }
    }
    return false;
}

/* The line where nesting goes past the limit, or 0.  Runs before the parser, on any bytes. */
static unsigned int too_deep_at(const char *s, size_t n)
{
    struct scan c = {.s = s, .n = n, .line = 1};

    while (c.at < n) {
        if (s[c.at] == '"')
            scan_string(&c);
        else
            scan_byte(&c);
        if (c.depth > CONFIG_MAX_DEPTH)
            return c.line;
    }
    return 0;
}

static struct option_value value_of(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_NULL:
        return (struct option_value){.kind = VALUE_NULL};
    case JSON_TRUE:
    case JSON_FALSE:
        return (struct option_value){.kind = VALUE_BOOL, .b = json_is_true(j)};
    case JSON_INTEGER:
        return (struct option_value){.kind = VALUE_INT, .i = json_integer_value(j)};
    case JSON_REAL:
        return (struct option_value){.kind = VALUE_REAL, .d = json_real_value(j)};
    case JSON_STRING:
        return (struct option_value){.kind = VALUE_TEXT, .s = json_string_value(j)};
    case JSON_ARRAY:
        return (struct option_value){.kind = VALUE_OTHER, .s = "an array"};
    case JSON_OBJECT:
        break;
    }
    return (struct option_value){.kind = VALUE_OTHER, .s = "an object"};
}

/* A list of texts as the text that the command line takes.  0 with *ret in `room`, 1: no such list.
 */
static int join(const json_t *list, struct buf *room, struct option_value *ret)
{
    const json_t *item;
    size_t i;
    int r = buf_addz(room, "");

    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item))
            return 1;
        if (r >= 0)
            r = buf_addf(room, i ? ",%s" : "%s", json_string_value(item));
    }
    *ret = (struct option_value){.kind = VALUE_TEXT, .s = room->data};
    return r;
}

static int set_key(struct options *o, const char *name, unsigned int line, const char *key,
                   const json_t *value, struct err_text *e)
{
    const struct option_spec *spec = options_find(key), *near;
    struct option_value v = value_of(value);
    CLEANUP(buf_done) struct buf room = {0};
    struct err_text why;
    char shown[128];
    int r;

    if (spec && (spec->flags & OPTION_IS_LIST) && json_is_array(value)) {
        r = join(value, &room, &v);
        if (r < 0)
            return err_set(e, r, "out of memory");
    }
    if (spec && !(spec->flags & OPTION_ARGV_ONLY)) {
        r = options_set(o, spec, &v, &why);
        return r < 0 ? err_set(e, r, "%s:%u: \"%s\": %s", name, line, key, why.s) : 0;
    }
    if (spec)
        return err_set(e, -EINVAL, "%s:%u: \"%s\" is an option of the command line, not a key",
                       name, line, key);
    err_escape(shown, sizeof shown, key, strlen(key));
    near = options_nearest(key);
    if (near && !(near->flags & OPTION_ARGV_ONLY))
        return err_set(e, -EINVAL, "%s:%u: unknown key \"%s\"; did you mean \"%s\"?", name, line,
                       shown, near->name);
    return err_set(e, -EINVAL, "%s:%u: unknown key \"%s\"; strata.json(5) lists the keys", name,
                   line, shown);
}

/* A whole set of values takes the place of another, or is dropped: no refusal leaves half a file
 * applied. */
static int copy_options(struct options *to, const struct options *from)
{
    const struct option_spec *spec;

    *to = *from;
    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        char **s;

        if (spec->type != OPTION_STRING)
            continue;
        s = (char **)(void *)((char *)to + spec->offset);
        if (!*s)
            continue;
        *s = strdup(*s);
        if (!*s) {
            /* What follows still belongs to `from`. */
            for (i++; (spec = options_spec(i)) != NULL; i++)
                if (spec->type == OPTION_STRING)
                    *(char **)(void *)((char *)to + spec->offset) = NULL;
            options_done(to);
            return -ENOMEM;
        }
    }
    return 0;
}

int config_read_bytes(struct options *o, const char *name, const char *s, size_t n,
                      struct err_text *e)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    struct scan c = {.s = s, .n = n, .line = 1};
    struct options next;
    json_error_t je;
    const char *key;
    json_t *value;
    unsigned int line;
    int r;

    if (n > CONFIG_MAX_BYTES)
        return err_set(e, ERR_CAPACITY, "%s: larger than %d bytes", name, CONFIG_MAX_BYTES);
    line = too_deep_at(s, n);
    if (line)
        return err_set(e, -EINVAL, "%s:%u: nested more than %d deep", name, line, CONFIG_MAX_DEPTH);
    root = json_loadb(s, n, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        char shown[200];

        if (json_error_code(&je) == json_error_out_of_memory)
            return err_set(e, -ENOMEM, "%s: out of memory", name);
        return err_set(e, -EINVAL, "%s:%d: %s", name, je.line > 0 ? je.line : 1,
                       err_escape(shown, sizeof shown, je.text, strlen(je.text)));
    }
    if (!json_is_object(root))
        return err_set(e, -EINVAL, "%s:1: expected an object", name);

    r = copy_options(&next, o);
    if (r < 0)
        return err_set(e, r, "out of memory");
    /* jansson keeps the order of the keys, so the n-th key of the scan is the n-th of the object.
     */
    json_object_foreach(root, key, value)
    {
        if (!scan_next_key(&c, &line))
            line = c.line;
        r = set_key(&next, name, line, key, value, e);
        if (r < 0) {
            options_done(&next);
            return r;
        }
    }
    options_done(o);
    *o = next;
    return 0;
}

int config_read(struct options *o, const char *path, struct err_text *e)
{
    CLEANUP(buf_done) struct buf text = {.limit = CONFIG_MAX_BYTES};
    char shown[256];
    int r;

    r = small_file_read(path, &text, NULL, e);
    if (r < 0)
        return r;
    err_escape(shown, sizeof shown, path, strlen(path));
    return config_read_bytes(o, shown, text.data ? text.data : "", text.len, e);
}
