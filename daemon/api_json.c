/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api_json.h"

#include "daemon/api_error.h"
#include "util/buf.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bodies whose memory is worth a walk over the heap. */
#define LARGE_BODY_BYTES ((size_t)1 << 20)

/* An object or array that the walk is inside of. */
struct level {
    const char *key; /* of an object: the last one that was seen */
    size_t key_len;
    size_t i_item; /* of an array */
    bool is_array;
    bool want_key; /* the next string is a key */
};

/*
 * A walk over the bytes before jansson sees them: it bounds what the parser's recursion and memory
 * can reach, and finds numbers that jansson would refuse without saying where.  It need not notice
 * bad syntax; what it skips wrongly is not JSON, and jansson says so.
 */
struct scan {
    const char *s;
    size_t n, i;
    unsigned int depth;
    size_t n_values;
    struct level at[API_JSON_MAX_DEPTH + 1]; /* [1..depth] */
};

/*
 * Where we are, down to `depth`: "tools[0].function.x".  Its end is cut off where there is no room.
 */
static const char *scan_path(const struct scan *sc, unsigned int depth, char *room, size_t size)
{
    size_t n = 0;

    room[0] = '\0';
    for (unsigned int d = 1; d <= depth && n < size - 1; d++) {
        const struct level *l = &sc->at[d];
        char key[48];

        if (l->is_array)
            n += (size_t)snprintf(room + n, size - n, "[%zu]", l->i_item);
        else
            n += (size_t)snprintf(room + n, size - n, "%s%s", n ? "." : "",
                                  err_escape(key, sizeof key, l->key ? l->key : "", l->key_len));
    }
    return room;
}

static void scan_string(struct scan *sc)
{
    struct level *l = &sc->at[sc->depth];
    size_t begin = ++sc->i;

    while (sc->i < sc->n && sc->s[sc->i] != '"')
        sc->i += sc->s[sc->i] == '\\' ? 2 : 1;
    if (sc->i > sc->n)
        sc->i = sc->n;
    if (l->want_key) {
        l->key = sc->s + begin;
        l->key_len = sc->i - begin;
        l->want_key = false;
    }
    sc->i++;
}

static int scan_number(struct scan *sc, struct api_error *e)
{
    const char *begin = sc->s + sc->i;
    size_t len = strspn(begin, "-+0123456789.eE"); /* the body is followed by a NUL */
    bool integer = !memchr(begin, '.', len) && !memchr(begin, 'e', len) && !memchr(begin, 'E', len);
    char path[64], number[48];

    sc->i += len;
    errno = 0;
    if (integer) {
        (void)strtoll(begin, NULL, 10);
        if (errno != ERANGE)
            return 0;
    } else if (!isinf(strtod(begin, NULL))) {
        return 0;
    }
    (void)scan_path(sc, sc->depth, path, sizeof path);
    return api_bad_field(e, path, "%s holds the number %s%s, which does not fit %s", path,
                         err_escape(number, sizeof number, begin, len > 40 ? 40 : len),
                         len > 40 ? "..." : "",
                         integer ? "a 64-bit integer (-9223372036854775808 to 9223372036854775807)"
                                 : "a double-precision number");
}

static int scan_body(const char *s, size_t n, struct api_error *e)
{
    struct scan sc = {.s = s, .n = n};
    char path[64];
    int r;

    while (sc.i < n) {
        char c = s[sc.i];

        if (c == '{' || c == '[') {
            if (sc.depth == API_JSON_MAX_DEPTH)
                return api_error_set(e, 400, "invalid_json", scan_path(&sc, 1, path, sizeof path),
                                     "the body is nested deeper than %d levels",
                                     API_JSON_MAX_DEPTH);
            sc.at[++sc.depth] = (struct level){.is_array = c == '[', .want_key = c == '{'};
            sc.n_values++;
        } else if ((c == '}' || c == ']') && sc.depth > 0) {
            sc.depth--;
        } else if (c == ',') {
            sc.at[sc.depth].want_key = sc.depth > 0 && !sc.at[sc.depth].is_array;
            sc.at[sc.depth].i_item++;
            sc.n_values++;
        } else if (c == '"') {
            scan_string(&sc);
            continue;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            r = scan_number(&sc, e);
            if (r < 0)
                return r;
            continue;
        }
        if (sc.n_values > API_JSON_MAX_VALUES)
            return api_bad_field(e, scan_path(&sc, 1, path, sizeof path),
                                 "%s: the body holds more than %d values", path,
                                 API_JSON_MAX_VALUES);
        sc.i++;
    }
    return 0;
}

void api_json_body_done(struct buf *body)
{
    const bool large = body->len > LARGE_BODY_BYTES;

    buf_done(body);
    if (large)
        (void)malloc_trim(0);
}

/* jansson says: duplicate object key near '"name"'. */
static int twice_error(struct api_error *e, const char *text)
{
    char key[48];
    const char *begin = strstr(text, "'\"");
    const char *end = begin ? strrchr(text, '"') : NULL;

    begin = begin ? begin + 2 : text;
    (void)err_escape(key, sizeof key, begin, end > begin ? (size_t)(end - begin) : 0);
    return api_error_set(e, 400, "invalid_json", key,
                         "the body has the key \"%s\" twice in one object", key);
}

/* jansson quotes the body after " near '": nobody needs it, and it may end inside a character. */
static int syntax_error(struct api_error *e, const json_error_t *je)
{
    char text[JSON_ERROR_TEXT_LENGTH], safe[2 * JSON_ERROR_TEXT_LENGTH];
    char *near;

    if (json_error_code(je) == json_error_out_of_memory)
        return api_error_oom(e);
    if (json_error_code(je) == json_error_duplicate_key)
        return twice_error(e, je->text);
    (void)snprintf(text, sizeof text, "%s", je->text);
    near = strstr(text, " near ");
    if (near)
        *near = '\0';
    return api_error_set(e, 400, "invalid_json", NULL,
                         "the body is not valid JSON: %s at line %d, column %d",
                         err_escape(safe, sizeof safe, text, strlen(text)), je->line, je->column);
}

int api_json_read(const char *s, size_t n, json_t **ret, struct api_error *e)
{
    char room[64];
    json_error_t je;
    json_t *j;
    int r;

    if (n == 0)
        return api_error_set(e, 400, "invalid_json", NULL,
                             "the body is empty; a JSON object was expected");
    if (!utf8_is_valid(s, n))
        return api_error_set(e, 400, "invalid_json", NULL, "the body is not valid UTF-8");
    r = scan_body(s, n, e);
    if (r < 0)
        return r;
    j = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (!j)
        return syntax_error(e, &je);
    if (!json_is_object(j)) {
        (void)api_error_set(e, 400, "invalid_json", NULL,
                            "the body is %s; a JSON object was expected",
                            api_json_describe(j, room, sizeof room));
        json_decref(j);
        return -EINVAL;
    }
    *ret = j;
    return 0;
}

const char *api_json_describe(const json_t *j, char *room, size_t size)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        (void)snprintf(room, size, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
        return room;
    case JSON_REAL:
        (void)snprintf(room, size, "%.15g", json_real_value(j));
        return room;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

int api_get(const json_t *o, const char *name, const json_t **ret)
{
    const json_t *j = json_object_get(o, name);

    if (!j || json_is_null(j))
        return 0;
    *ret = j;
    return 1;
}

int api_get_bool(const json_t *o, const char *name, bool *ret, struct api_error *e)
{
    const json_t *j;
    char room[64];

    if (!api_get(o, name, &j))
        return 0;
    if (!json_is_boolean(j))
        return api_bad_field(e, name, "%s is %s; it must be true or false", name,
                             api_json_describe(j, room, sizeof room));
    *ret = json_is_true(j);
    return 1;
}

bool api_json_int(const json_t *j, int64_t *ret)
{
    if (json_is_integer(j)) {
        *ret = json_integer_value(j);
        return true;
    }
    if (json_is_real(j)) {
        double d = json_real_value(j);

        /* 2^63 is the first double that does not fit. */
        if (d != floor(d) || d < -0x1p63 || d >= 0x1p63)
            return false;
        *ret = (int64_t)d;
        return true;
    }
    return false;
}

int api_get_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *ret,
                struct api_error *e)
{
    const json_t *j;
    char room[64];
    int64_t v;

    if (!api_get(o, name, &j))
        return 0;
    if (!api_json_int(j, &v) || v < min || v > max)
        return api_bad_field(e, name,
                             "%s is %s; it must be an integer from %" PRId64 " to %" PRId64, name,
                             api_json_describe(j, room, sizeof room), min, max);
    *ret = v;
    return 1;
}

int api_get_double(const json_t *o, const char *name, double min, double max, double *ret,
                   struct api_error *e)
{
    const json_t *j;
    char room[64];

    if (!api_get(o, name, &j))
        return 0;
    /* Written so that it would refuse a NaN too. */
    if (!json_is_number(j) || !(json_number_value(j) >= min && json_number_value(j) <= max))
        return api_bad_field(e, name, "%s is %s; it must be a number from %g to %g", name,
                             api_json_describe(j, room, sizeof room), min, max);
    *ret = json_number_value(j);
    return 1;
}

int api_get_string(const json_t *o, const char *name, const char **ret, size_t *ret_n,
                   struct api_error *e)
{
    const json_t *j;
    char room[64];

    if (!api_get(o, name, &j))
        return 0;
    if (!json_is_string(j))
        return api_bad_field(e, name, "%s is %s; it must be a string", name,
                             api_json_describe(j, room, sizeof room));
    *ret = json_string_value(j);
    *ret_n = json_string_length(j);
    return 1;
}
