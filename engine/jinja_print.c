/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: what {{ }} prints, Python's repr, JSON.
 *
 * A list or an object in which anything is data is data as a whole when it is printed.
 */
#include "engine/jinja_private.h"

#include "engine/tok_unicode.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int jv_has_data(struct jrun *r, const struct jinja_value *v, uint32_t depth, bool *ret)
{
    int rc = jstep(r, 1);

    *ret = false;
    if (depth > r->lim.depth)
        return jfail(r, ERR_CAPACITY, "values are nested deeper than %u", r->lim.depth);
    if (v->type == JT_STRING)
        *ret = v->marks != JM_PLAIN;
    for (size_t i = 0; jv_is_list(v) && i < v->u.list.n && rc == 0 && !*ret; i++)
        rc = jv_has_data(r, v->u.list.v[i], depth + 1, ret);
    if (v->type == JT_OBJECT || v->type == JT_NAMESPACE) {
        for (size_t i = 0; i < v->u.obj.n && rc == 0 && !*ret; i++) {
            rc = jv_has_data(r, v->u.obj.e[i].key, depth + 1, ret);
            if (rc == 0 && !*ret)
                rc = jv_has_data(r, v->u.obj.e[i].value, depth + 1, ret);
        }
    }
    return rc;
}

static int add(struct jrun *r, struct jout *o, const char *s, size_t n)
{
    int rc = jout_add(o, s, n, false);

    return rc < 0 ? jfail_code(r, rc) : 0;
}

static int addz(struct jrun *r, struct jout *o, const char *s)
{
    return add(r, o, s, strlen(s));
}

/* --- numbers -----------------------------------------------------------------------------------
 */

/* Whatever the locale's decimal point is, only the digits of these are used. */
static size_t shortest_digits(double d, char *digits, int *ret_exponent)
{
    char text[40];
    size_t n = 0;

    for (int precision = 0; precision < 17; precision++) {
        (void)snprintf(text, sizeof(text), "%.*e", precision, d);
        if (strtod(text, NULL) == d)
            break;
    }
    for (const char *s = text; *s && *s != 'e'; s++)
        if (*s >= '0' && *s <= '9')
            digits[n++] = *s;
    *ret_exponent = atoi(strchr(text, 'e') + 1);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t jprint_float(double d, char *buf)
{
    char digits[24], *p = buf;
    size_t n;
    int exponent;

    if (!isfinite(d)) {
        (void)strcpy(buf, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return strlen(buf);
    }
    if (signbit(d)) {
        *p++ = '-';
        d = -d;
    }
    n = shortest_digits(d, digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        *p++ = digits[0];
        if (n > 1)
            *p++ = '.';
        memcpy(p, digits + 1, n - 1);
        p += n - 1;
        p += sprintf(p, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        p += sprintf(p, "0.%.*s", -exponent - 1, "0000");
        memcpy(p, digits, n);
        p += n;
    } else {
        for (int i = 0; i <= exponent; i++)
            *p++ = (size_t)i < n ? digits[i] : '0';
        *p++ = '.';
        if (n > (size_t)exponent + 1) {
            memcpy(p, digits + exponent + 1, n - (size_t)exponent - 1);
            p += n - (size_t)exponent - 1;
        } else {
            *p++ = '0';
        }
    }
    *p = '\0';
    return (size_t)(p - buf);
}

static int print_number(struct jrun *r, struct jout *o, const struct jinja_value *v)
{
    char text[40];

    if (v->type == JT_BIG)
        return add(r, o, v->u.str.s, v->u.str.n);
    if (v->type == JT_INT)
        (void)snprintf(text, sizeof(text), "%" PRId64, v->u.i);
    else
        (void)jprint_float(v->u.f, text);
    return addz(r, o, text);
}

/* --- as Python shows it ------------------------------------------------------------------------
 */

static bool is_printable(uint32_t cp)
{
    enum unicode_class c = unicode_class_of(cp);

    return cp == ' ' || (c != UNICODE_OTHER && c != UNICODE_SPACE);
}

static int repr_string(struct jrun *r, struct jout *o, const struct jinja_value *v)
{
    const struct jstr *s = &v->u.str;
    char quote = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n) ? '"' : '\'', esc[16];
    size_t len, from = 0;
    int rc = jstep(r, s->n / 8);

    if (rc == 0)
        rc = add(r, o, &quote, 1);
    for (size_t i = 0; i < s->n && rc == 0; i += len) {
        uint32_t cp = utf8_decode(s->s + i, s->n - i, &len);

        if (cp == '\\' || cp == (unsigned char)quote)
            (void)snprintf(esc, sizeof(esc), "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            (void)snprintf(esc, sizeof(esc), "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (is_printable(cp))
            continue;
        else
            (void)snprintf(esc, sizeof(esc),
                           cp < 0x100     ? "\\x%02x"
                           : cp < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                           cp);
        rc = add(r, o, s->s + from, i - from);
        from = i + len;
        if (rc == 0)
            rc = addz(r, o, esc);
    }
    if (rc == 0)
        rc = add(r, o, s->s + from, s->n - from);
    return rc == 0 ? add(r, o, &quote, 1) : rc;
}

static int repr(struct jrun *r, struct jout *o, const struct jinja_value *v, uint32_t depth)
{
    int rc = jstep(r, 1);

    if (rc < 0)
        return rc;
    if (depth > r->lim.depth)
        return jfail(r, ERR_CAPACITY, "values are nested deeper than %u", r->lim.depth);
    switch (v->type) {
    case JT_UNDEFINED:
        return depth ? addz(r, o, "Undefined") : 0;
    case JT_NONE:
        return addz(r, o, "None");
    case JT_BOOL:
        return addz(r, o, v->u.b ? "True" : "False");
    case JT_INT:
    case JT_FLOAT:
    case JT_BIG:
        return print_number(r, o, v);
    case JT_STRING:
        return repr_string(r, o, v);
    case JT_LIST:
    case JT_TUPLE:
        rc = addz(r, o, v->type == JT_LIST ? "[" : "(");
        for (size_t i = 0; i < v->u.list.n && rc == 0; i++) {
            if (i > 0)
                rc = addz(r, o, ", ");
            if (rc == 0)
                rc = repr(r, o, v->u.list.v[i], depth + 1);
        }
        if (rc == 0)
            rc = addz(r, o, v->type == JT_LIST ? "]" : v->u.list.n == 1 ? ",)" : ")");
        return rc;
    case JT_OBJECT:
        rc = addz(r, o, "{");
        for (size_t i = 0; i < v->u.obj.n && rc == 0; i++) {
            if (i > 0)
                rc = addz(r, o, ", ");
            if (rc == 0)
                rc = repr(r, o, v->u.obj.e[i].key, depth + 1);
            if (rc == 0)
                rc = addz(r, o, ": ");
            if (rc == 0)
                rc = repr(r, o, v->u.obj.e[i].value, depth + 1);
        }
        return rc == 0 ? addz(r, o, "}") : rc;
    default:
        return jfail(r, -EINVAL, "%s cannot be printed", jv_type_name(v));
    }
}

int jprint_repr(struct jrun *r, struct jout *o, struct jinja_value *v)
{
    bool has_data = false, outer = o->all_data;
    int rc = jv_has_data(r, v, 0, &has_data);

    if (rc < 0)
        return rc;
    o->all_data = outer || has_data;
    rc = repr(r, o, v, 0);
    o->all_data = outer;
    return rc;
}

int jprint(struct jrun *r, struct jout *o, struct jinja_value *v)
{
    int rc;

    if (v->type != JT_STRING)
        return jprint_repr(r, o, v);
    rc = jstep_bytes(r, v->u.str.n);
    if (rc < 0)
        return rc;
    rc = jout_slice(o, v, 0, v->u.str.n);
    return rc < 0 ? jfail_code(r, rc) : 0;
}

int jprint_value(struct jrun *r, struct jinja_value *v, struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    int rc;

    if (v->type == JT_STRING) {
        *ret = jinja_ref(v);
        return 0;
    }
    rc = jprint(r, &out, v);
    if (rc == 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

/* --- JSON --------------------------------------------------------------------------------------
 */

struct json {
    struct jrun *r;
    struct jout *o;
    const struct jjson *how;
};

static int json_string(struct json *j, const struct jinja_value *v)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const struct jstr *s = &v->u.str;
    char esc[16];
    size_t len, start = 0;
    int rc = jstep(j->r, s->n / 16);

    if (rc == 0)
        rc = addz(j->r, j->o, "\"");
    for (size_t i = 0; i < s->n && rc == 0; i += len) {
        unsigned char c = (unsigned char)s->s[i];
        uint32_t cp = c;
        const char *simple;

        len = 1;
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !j->how->ensure_ascii))
            continue;
        if (c >= 0x80)
            cp = utf8_decode(s->s + i, s->n - i, &len);
        simple = c ? strchr(from, c) : NULL;
        if (simple)
            memcpy(esc, (char[]){'\\', to[simple - from], '\0'}, 3);
        else if (cp < 0x10000)
            (void)snprintf(esc, sizeof(esc), "\\u%04x", cp);
        else
            (void)snprintf(esc, sizeof(esc), "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                           0xdc00 + ((cp - 0x10000) & 0x3ff));
        rc = add(j->r, j->o, s->s + start, i - start);
        start = i + len;
        if (rc == 0)
            rc = addz(j->r, j->o, esc);
    }
    if (rc == 0)
        rc = add(j->r, j->o, s->s + start, s->n - start);
    return rc == 0 ? addz(j->r, j->o, "\"") : rc;
}

static int json_scalar(struct json *j, const struct jinja_value *v)
{
    switch (v->type) {
    case JT_NONE:
        return addz(j->r, j->o, "null");
    case JT_BOOL:
        return addz(j->r, j->o, v->u.b ? "true" : "false");
    case JT_FLOAT:
        if (!isfinite(v->u.f))
            return addz(j->r, j->o, isnan(v->u.f) ? "NaN" : v->u.f < 0 ? "-Infinity" : "Infinity");
        return print_number(j->r, j->o, v);
    case JT_INT:
    case JT_BIG:
        return print_number(j->r, j->o, v);
    case JT_STRING:
        return json_string(j, v);
    default:
        return jfail(j->r, -EINVAL, "%s cannot be written as JSON", jv_type_name(v));
    }
}

static int json_key(struct json *j, const struct jinja_value *key)
{
    int rc;

    if (key->type == JT_STRING)
        return json_string(j, key);
    rc = addz(j->r, j->o, "\"");
    if (rc == 0)
        rc = json_scalar(j, key);
    return rc == 0 ? addz(j->r, j->o, "\"") : rc;
}

static int json_newline(struct json *j, uint32_t depth)
{
    int rc;

    if (!j->how->indent)
        return 0;
    rc = addz(j->r, j->o, "\n");
    for (uint32_t i = 0; i < depth && rc == 0; i++)
        rc = add(j->r, j->o, j->how->indent, j->how->n_indent);
    return rc;
}

static int json_separator(struct json *j, size_t i, uint32_t depth)
{
    int rc = i > 0 ? add(j->r, j->o, j->how->item_sep, j->how->n_item_sep) : 0;

    return rc == 0 ? json_newline(j, depth) : rc;
}

static int json_value(struct json *j, struct jinja_value *v, uint32_t depth);

static int json_list(struct json *j, struct jinja_value *v, uint32_t depth)
{
    int rc = addz(j->r, j->o, "[");

    for (size_t i = 0; i < v->u.list.n && rc == 0; i++) {
        rc = json_separator(j, i, depth + 1);
        if (rc == 0)
            rc = json_value(j, v->u.list.v[i], depth + 1);
    }
    if (rc == 0 && v->u.list.n)
        rc = json_newline(j, depth);
    return rc == 0 ? addz(j->r, j->o, "]") : rc;
}

static int json_object(struct json *j, struct jinja_value *v, uint32_t depth)
{
    JREF sorted = NULL;
    const struct jentry *e = v->u.obj.e;
    int rc;

    if (j->how->sort_keys) {
        const struct jbuiltin *dictsort = jfilter_find("dictsort", 8);
        struct jinja_value *case_sensitive[1] = {&jv_true};
        struct jargs args = {.v = case_sensitive, .n = 1, .n_pos = 1};

        rc = jbuiltin_call(j->r, dictsort, v, &args, &sorted);
        if (rc < 0)
            return rc;
    }
    rc = addz(j->r, j->o, "{");
    for (size_t i = 0; i < v->u.obj.n && rc == 0; i++) {
        struct jinja_value **pair = sorted ? sorted->u.list.v[i]->u.list.v : NULL;

        rc = json_separator(j, i, depth + 1);
        if (rc == 0)
            rc = json_key(j, pair ? pair[0] : e[i].key);
        if (rc == 0)
            rc = add(j->r, j->o, j->how->key_sep, j->how->n_key_sep);
        if (rc == 0)
            rc = json_value(j, pair ? pair[1] : e[i].value, depth + 1);
    }
    if (rc == 0 && v->u.obj.n)
        rc = json_newline(j, depth);
    return rc == 0 ? addz(j->r, j->o, "}") : rc;
}

static int json_value(struct json *j, struct jinja_value *v, uint32_t depth)
{
    int rc = jstep(j->r, 1);

    if (rc < 0)
        return rc;
    if (depth > j->r->lim.depth)
        return jfail(j->r, ERR_CAPACITY, "values are nested deeper than %u", j->r->lim.depth);
    if (jv_is_list(v))
        return json_list(j, v, depth);
    if (v->type == JT_OBJECT)
        return json_object(j, v, depth);
    return json_scalar(j, v);
}

int jprint_json(struct jrun *r, struct jout *o, struct jinja_value *v, const struct jjson *how)
{
    struct json j = {.r = r, .o = o, .how = how};
    bool has_data = false, outer = o->all_data;
    int rc = jv_has_data(r, v, 0, &has_data);

    if (rc < 0)
        return rc;
    o->all_data = outer || has_data;
    rc = json_value(&j, v, 0);
    o->all_data = outer;
    return rc;
}
