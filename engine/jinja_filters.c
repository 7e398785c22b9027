/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of text and numbers. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"
#include "util/text.h"
#include "util/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name)                                                                               \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)

static bool is_true(const struct jinja_value *v)
{
    return v && jv_truth(v);
}

/* --- text --------------------------------------------------------------------------------------
 */

FILTER(f_string)
{
    (void)a;
    return jprint_value(r, v, ret);
}

FILTER(f_trim)
{
    JREF s = NULL;
    int rc = jprint_value(r, v, &s);

    return rc < 0 ? rc : jop_trim(r, s, a->v[0], true, true, ret);
}

static int change_case(struct jrun *r, struct jinja_value *v, enum jcase how,
                       struct jinja_value **ret)
{
    JREF s = NULL;
    int rc = jprint_value(r, v, &s);

    return rc < 0 ? rc : jcase_convert(r, s, how, ret);
}

FILTER(f_upper)
{
    (void)a;
    return change_case(r, v, JC_UPPER, ret);
}

FILTER(f_lower)
{
    (void)a;
    return change_case(r, v, JC_LOWER, ret);
}

FILTER(f_capitalize)
{
    (void)a;
    return change_case(r, v, JC_CAPITALIZE, ret);
}

FILTER(f_title)
{
    (void)a;
    return change_case(r, v, JC_WORDS, ret);
}

FILTER(f_replace)
{
    JREF s = NULL;
    JREF old = NULL;
    JREF with = NULL;
    int64_t count = -1;
    int rc = jprint_value(r, v, &s);

    if (rc == 0)
        rc = jprint_value(r, a->v[0], &old);
    if (rc == 0)
        rc = jprint_value(r, a->v[1], &with);
    if (rc < 0)
        return rc;
    if (a->v[2] && a->v[2]->type != JT_NONE && !jv_integer(a->v[2], &count))
        return jfail(r, -EINVAL, "%s is no count", jv_type_name(a->v[2]));
    return jop_replace(r, s, old, with, count, ret);
}

FILTER(f_format)
{
    JREF s = NULL;
    int rc = jprint_value(r, v, &s);

    return rc < 0 ? rc : jformat_percent(r, s, a, ret);
}

/* The line break at s[i], as str.splitlines has them: its bytes, or 0. */
static size_t line_break(const char *s, size_t n, size_t i)
{
    unsigned char c = (unsigned char)s[i];
    size_t len;
    uint32_t cp;

    if (c == '\r' && i + 1 < n && s[i + 1] == '\n')
        return 2;
    if ((c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e))
        return 1;
    if (c != 0xc2 && c != 0xe2)
        return 0;
    cp = utf8_decode(s + i, n - i, &len);
    return cp == 0x85 || cp == 0x2028 || cp == 0x2029 ? len : 0;
}

FILTER(f_indent)
{
    struct jout out = {.heap = &r->heap};
    JREF s = NULL;
    JREF by = NULL;
    int64_t width = 4;
    bool first = is_true(a->v[1]), blank = is_true(a->v[2]);
    int rc = jprint_value(r, v, &s);

    if (rc < 0)
        return rc;
    if (a->v[0] && a->v[0]->type == JT_STRING) {
        by = jinja_ref(a->v[0]);
    } else {
        char spaces[256];

        if (a->v[0] && !jv_integer(a->v[0], &width))
            return jfail(r, -EINVAL, "%s is no width", jv_type_name(a->v[0]));
        if (width > (int64_t)sizeof(spaces))
            return jfail(r, -EINVAL, "an indentation of more than %zu", sizeof(spaces));
        memset(spaces, ' ', sizeof(spaces));
        by = jv_new_string(&r->heap, spaces, width > 0 ? (size_t)width : 0, false);
        if (!by)
            return jfail_nomem(r);
    }
    rc = jstep(r, s->u.str.n / 16);
    for (size_t begin = 0, i = 0, n = s->u.str.n, len; i <= n && rc == 0; i++) {
        len = i < n ? line_break(s->u.str.s, n, i) : 0;
        if (i < n && len == 0)
            continue;
        if (begin > 0 && jout_add(&out, "\n", 1, s->marks != JM_PLAIN) < 0)
            rc = jfail_nomem(r);
        if (rc == 0 && (begin > 0 ? blank || i > begin : first))
            rc = jprint(r, &out, by);
        if (rc == 0 && jout_slice(&out, s, begin, i) < 0)
            rc = jfail_nomem(r);
        if (i == n)
            break;
        i += len - 1;
        begin = i + 1;
    }
    return jout_end(r, &out, rc, ret);
}

/* --- JSON --------------------------------------------------------------------------------------
 */

static int separators(struct jrun *r, const struct jinja_value *v, struct jjson *how, bool *is_data)
{
    const struct jinja_value *item, *key;

    if (!v || v->type == JT_NONE)
        return 0;
    if (!jv_is_list(v) || v->u.list.n != 2 || v->u.list.v[0]->type != JT_STRING ||
        v->u.list.v[1]->type != JT_STRING)
        return jfail(r, -EINVAL, "separators are two strings");
    item = v->u.list.v[0];
    key = v->u.list.v[1];
    *is_data |= item->marks != JM_PLAIN || key->marks != JM_PLAIN;
    how->item_sep = item->u.str.s;
    how->n_item_sep = item->u.str.n;
    how->key_sep = key->u.str.s;
    how->n_key_sep = key->u.str.n;
    return 0;
}

/* The order of the parameters is Hugging Face's: tojson(x, ensure_ascii, indent, ...). */
FILTER(f_tojson)
{
    struct jjson how = {.item_sep = ", ", .n_item_sep = 2, .key_sep = ": ", .n_key_sep = 2};
    struct jout out = {.heap = &r->heap};
    struct jinja_value *indent = a->v[1];
    char spaces[64];
    int64_t width;
    int rc;

    how.ensure_ascii = is_true(a->v[0]);
    how.sort_keys = is_true(a->v[3]);
    /* tojson(2), as Jinja's own has it */
    if (!indent && a->v[0] && a->v[0]->type == JT_INT)
        indent = a->v[0];
    if (indent && indent->type == JT_STRING) {
        out.all_data = indent->marks != JM_PLAIN;
        how.indent = indent->u.str.s;
        how.n_indent = indent->u.str.n;
    } else if (indent && indent->type != JT_NONE) {
        if (!jv_integer(indent, &width) || width > (int64_t)sizeof(spaces))
            return jfail(r, -EINVAL, "an indentation that is not supported");
        memset(spaces, ' ', sizeof(spaces));
        how.indent = spaces;
        how.n_indent = width > 0 ? (size_t)width : 0;
    }
    if (how.indent)
        how.n_item_sep = 1;
    rc = separators(r, a->v[2], &how, &out.all_data);
    if (rc == 0)
        rc = jprint_json(r, &out, v, &how);
    return jout_end(r, &out, rc, ret);
}

FILTER(f_from_json)
{
    (void)a;
    if (v->type != JT_STRING)
        return jfail(r, -EINVAL, "%s is no JSON text", jv_type_name(v));
    return jparse_json(r, v, ret);
}

/* --- numbers -----------------------------------------------------------------------------------
 */

static int give_int(struct jrun *r, int64_t i, struct jinja_value **ret)
{
    *ret = jv_new_int(&r->heap, i);
    return *ret ? 0 : jfail_nomem(r);
}

static int give_float(struct jrun *r, double d, struct jinja_value **ret)
{
    *ret = jv_new_float(&r->heap, d);
    return *ret ? 0 : jfail_nomem(r);
}

/* A string without white space around it, NUL-terminated; false when it is too long for a number.
 */
static bool number_text(const struct jinja_value *v, char *out, size_t size)
{
    size_t begin = 0, end = v->u.str.n;

    jstr_strip(v->u.str.s, &begin, &end, NULL, 0, true, true);
    if (end - begin >= size || memchr(v->u.str.s + begin, '\0', end - begin))
        return false;
    memcpy(out, v->u.str.s + begin, end - begin);
    out[end - begin] = '\0';
    return true;
}

static bool to_int(const struct jinja_value *v, int base, int64_t *ret)
{
    char text[128], *end;
    double d;

    if (jv_integer(v, ret))
        return true;
    if (v->type == JT_STRING) {
        if (!number_text(v, text, sizeof(text)) || !text[0])
            return false;
        errno = 0;
        *ret = strtoll(text, &end, base);
        if (errno == 0 && *end == '\0' && (base != 10 || text[1] != 'x'))
            return true;
        if (text_f64(text, &d) < 0)
            return false;
    } else if (v->type == JT_FLOAT) {
        d = v->u.f;
    } else {
        return false;
    }
    if (!(d > -9.2e18 && d < 9.2e18))
        return false;
    *ret = (int64_t)d;
    return true;
}

FILTER(f_int)
{
    int64_t i, base = 10;

    if (v->type == JT_BIG) {
        *ret = jinja_ref(v);
        return 0;
    }
    if (a->v[1] && (!jv_integer(a->v[1], &base) || base < 2 || base > 36))
        return jfail(r, -EINVAL, "a base that is not supported");
    if (to_int(v, (int)base, &i))
        return give_int(r, i, ret);
    if (a->v[0]) {
        *ret = jinja_ref(a->v[0]);
        return 0;
    }
    return give_int(r, 0, ret);
}

FILTER(f_float)
{
    char text[128];
    double d;

    if (jv_double(v, &d))
        return give_float(r, d, ret);
    if ((v->type == JT_STRING || v->type == JT_BIG) && number_text(v, text, sizeof(text)) &&
        text_f64(text, &d) == 0)
        return give_float(r, d, ret);
    if (a->v[0]) {
        *ret = jinja_ref(a->v[0]);
        return 0;
    }
    return give_float(r, 0, ret);
}

FILTER(f_abs)
{
    int64_t i;

    (void)a;
    if (v->type == JT_FLOAT)
        return give_float(r, fabs(v->u.f), ret);
    if (!jv_integer(v, &i) || i == INT64_MIN)
        return jfail(r, -EINVAL, "%s has no absolute value", jv_type_name(v));
    return give_int(r, i < 0 ? -i : i, ret);
}

FILTER(f_round)
{
    int64_t digits = 0, i;
    char text[400];
    double d, unit;
    const struct jinja_value *how = a->v[1];

    if (a->v[0] && (!jv_integer(a->v[0], &digits) || digits < -15 || digits > 15))
        return jfail(r, -EINVAL, "a precision that is not supported");
    if (!jv_double(v, &d))
        return jfail(r, -EINVAL, "%s cannot be rounded", jv_type_name(v));
    unit = pow(10, (double)digits);
    if (how && how->type == JT_STRING && jstr_equal(how, "ceil", 4))
        return give_float(r, ceil(d * unit) / unit, ret);
    if (how && how->type == JT_STRING && jstr_equal(how, "floor", 5))
        return give_float(r, floor(d * unit) / unit, ret);
    if (how && (how->type != JT_STRING || !jstr_equal(how, "common", 6)))
        return jfail(r, -EINVAL, "a way of rounding that is not supported");
    if (jv_integer(v, &i) && digits >= 0)
        return give_int(r, i, ret);
    if (digits < 0 || !isfinite(d))
        return give_float(r, isfinite(d) ? rint(d * unit) / unit : d, ret);
    /* By its decimal digits, as Python does: 2.675 is below 2.675. */
    (void)snprintf(text, sizeof(text), "%.*f", (int)digits, d);
    return give_float(r, strtod(text, NULL), ret);
}

FILTER(f_default)
{
    bool is_missing = v->type == JT_UNDEFINED || (is_true(a->v[1]) && !jv_truth(v));

    if (!is_missing)
        *ret = jinja_ref(v);
    else if (a->v[0])
        *ret = jinja_ref(a->v[0]);
    else
        *ret = jv_new_string(&r->heap, "", 0, false);
    return *ret ? 0 : jfail_nomem(r);
}

FILTER(f_safe)
{
    (void)r;
    (void)a;
    *ret = jinja_ref(v);
    return 0;
}

const struct jbuiltin jfilters_text[] = {
    {"abs", f_abs, 0, 0, 0, {NULL}},
    {"capitalize", f_capitalize, 0, 0, 0, {NULL}},
    {"d", f_default, 0, 2, 0, {"default_value", "boolean"}},
    {"default", f_default, 0, 2, 0, {"default_value", "boolean"}},
    {"float", f_float, 0, 1, 0, {"default"}},
    {"format", f_format, 0, 0, JB_RAW, {NULL}},
    {"from_json", f_from_json, 0, 0, 0, {NULL}},
    {"indent", f_indent, 0, 3, 0, {"width", "first", "blank"}},
    {"int", f_int, 0, 2, 0, {"default", "base"}},
    {"lower", f_lower, 0, 0, 0, {NULL}},
    {"replace", f_replace, 2, 3, 0, {"old", "new", "count"}},
    {"round", f_round, 0, 2, 0, {"precision", "method"}},
    {"safe", f_safe, 0, 0, 0, {NULL}},
    {"string", f_string, 0, 0, 0, {NULL}},
    {"title", f_title, 0, 0, 0, {NULL}},
    {"tojson", f_tojson, 0, 4, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", f_trim, 0, 1, 0, {"chars"}},
    {"upper", f_upper, 0, 0, 0, {NULL}},
    {NULL, NULL, 0, 0, 0, {NULL}},
};
