/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdint.h>

#define METHOD(name)                                                                               \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)

static int push_part(struct jrun *r, struct jinja_value *list, struct jinja_value *s, size_t begin,
                     size_t end)
{
    struct jinja_value *part = NULL;
    int rc = jstep(r, 1);

    if (rc < 0)
        return rc;
    if (jstr_slice(&r->heap, s, begin, end, &part) < 0)
        return jfail_nomem(r);
    if (jlist_push(list, part) < 0) {
        jinja_unref(part);
        return jfail_nomem(r);
    }
    return 0;
}

static int split_space(struct jrun *r, struct jinja_value *s, int64_t max, struct jinja_value *list)
{
    const char *p = s->u.str.s;
    size_t n = s->u.str.n, begin = 0, end, len;
    int rc = jstep(r, n / 16);

    while (rc == 0) {
        end = n;
        jstr_strip(p, &begin, &end, NULL, 0, true, false);
        if (begin == n)
            break;
        if (max == 0)
            return push_part(r, list, s, begin, n);
        max--;
        for (end = begin; end < n; end += len) {
            size_t i = end, stop;

            len = 1;
            stop = i + (n - i < 4 ? n - i : 4);
            jstr_strip(p, &i, &stop, NULL, 0, true, false);
            if (i > end)
                break;
        }
        rc = push_part(r, list, s, begin, end);
        begin = end;
    }
    return rc;
}

static int split_by(struct jrun *r, struct jinja_value *s, const struct jinja_value *sep,
                    int64_t max, struct jinja_value *list)
{
    size_t n = s->u.str.n, begin = 0, at;
    int rc = jstep_bytes(r, n);

    if (sep->type != JT_STRING || sep->u.str.n == 0)
        return jfail(r, -EINVAL, "split by %s",
                     sep->type == JT_STRING ? "an empty string" : jv_type_name(sep));
    while (rc == 0 && max != 0) {
        at = jstr_find(s->u.str.s, n, begin, sep->u.str.s, sep->u.str.n);
        if (at == SIZE_MAX)
            break;
        rc = push_part(r, list, s, begin, at);
        begin = at + sep->u.str.n;
        max--;
    }
    return rc == 0 ? push_part(r, list, s, begin, n) : rc;
}

METHOD(m_split)
{
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    int64_t max = -1;
    int rc;

    if (!list)
        return jfail_nomem(r);
    if (a->v[1] && !jv_integer(a->v[1], &max))
        return jfail(r, -EINVAL, "%s is no count", jv_type_name(a->v[1]));
    if (a->v[0] && a->v[0]->type != JT_NONE)
        rc = split_by(r, v, a->v[0], max, list);
    else
        rc = split_space(r, v, max, list);
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}

/* From the right; the parts are found backwards. */
METHOD(m_rsplit)
{
    struct jinja_value step = {.type = JT_INT, .immortal = true, .u.i = -1};
    struct jinja_value *idx[3] = {NULL, NULL, &step};
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    const struct jinja_value *sep = a->v[0];
    int64_t max = -1;
    size_t end = v->u.str.n, at;
    int rc = 0;

    if (!list)
        return jfail_nomem(r);
    if (!sep || sep->type != JT_STRING || sep->u.str.n == 0)
        return jfail(r, -EINVAL, "rsplit needs a string to split by");
    if (a->v[1] && !jv_integer(a->v[1], &max))
        return jfail(r, -EINVAL, "%s is no count", jv_type_name(a->v[1]));
    for (at = end; rc == 0 && max != 0 && at >= sep->u.str.n;) {
        size_t from = at - sep->u.str.n;

        if (memcmp(v->u.str.s + from, sep->u.str.s, sep->u.str.n) != 0) {
            at--;
            continue;
        }
        rc = push_part(r, list, v, at, end);
        end = at = from;
        max--;
    }
    if (rc == 0)
        rc = jstep_bytes(r, v->u.str.n);
    if (rc == 0)
        rc = push_part(r, list, v, 0, end);
    return rc == 0 ? jop_slice(r, list, idx, ret) : rc;
}

METHOD(m_splitlines)
{
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    size_t n = v->u.str.n, begin = 0;
    int rc = list ? jstep_bytes(r, n) : jfail_nomem(r);

    (void)a;
    while (rc == 0 && begin < n) {
        size_t at = jstr_find(v->u.str.s, n, begin, "\n", 1), end = at == SIZE_MAX ? n : at;

        if (at != SIZE_MAX && end > begin && v->u.str.s[end - 1] == '\r')
            end--;
        rc = push_part(r, list, v, begin, end);
        begin = at == SIZE_MAX ? n : at + 1;
    }
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}

METHOD(m_strip)
{
    return jop_trim(r, v, a->v[0], true, true, ret);
}

METHOD(m_lstrip)
{
    return jop_trim(r, v, a->v[0], true, false, ret);
}

METHOD(m_rstrip)
{
    return jop_trim(r, v, a->v[0], false, true, ret);
}

/* With one string, or any of a tuple. */
static int has_end(struct jrun *r, const struct jinja_value *v, const struct jinja_value *what,
                   bool at_end, struct jinja_value **ret)
{
    struct jinja_value *const one[] = {(struct jinja_value *)what};
    bool is_tuple = what->type == JT_TUPLE, holds = false;
    size_t n = is_tuple ? what->u.list.n : 1;
    int rc = jstep(r, n);

    for (size_t i = 0; i < n && rc == 0 && !holds; i++) {
        const struct jinja_value *w = is_tuple ? what->u.list.v[i] : one[0];

        if (w->type != JT_STRING)
            return jfail(r, -EINVAL, "%s cannot be the %s of a string", jv_type_name(w),
                         at_end ? "end" : "beginning");
        holds =
            w->u.str.n <= v->u.str.n && memcmp(v->u.str.s + (at_end ? v->u.str.n - w->u.str.n : 0),
                                               w->u.str.s, w->u.str.n) == 0;
    }
    if (rc == 0)
        *ret = jv_of_bool(holds);
    return rc;
}

METHOD(m_startswith)
{
    return has_end(r, v, a->v[0], false, ret);
}

METHOD(m_endswith)
{
    return has_end(r, v, a->v[0], true, ret);
}

METHOD(m_removeprefix)
{
    struct jinja_value *holds = NULL;
    int rc = a->v[0]->type == JT_STRING ? has_end(r, v, a->v[0], false, &holds)
                                        : jfail(r, -EINVAL, "no prefix");

    if (rc < 0)
        return rc;
    rc = jstr_slice(&r->heap, v, holds == &jv_true ? a->v[0]->u.str.n : 0, v->u.str.n, ret);
    return rc < 0 ? jfail_nomem(r) : 0;
}

METHOD(m_removesuffix)
{
    struct jinja_value *holds = NULL;
    int rc = a->v[0]->type == JT_STRING ? has_end(r, v, a->v[0], true, &holds)
                                        : jfail(r, -EINVAL, "no suffix");

    if (rc < 0)
        return rc;
    rc = jstr_slice(&r->heap, v, 0, v->u.str.n - (holds == &jv_true ? a->v[0]->u.str.n : 0), ret);
    return rc < 0 ? jfail_nomem(r) : 0;
}

METHOD(m_replace)
{
    int64_t count = -1;

    if (a->v[2] && !jv_integer(a->v[2], &count))
        return jfail(r, -EINVAL, "%s is no count", jv_type_name(a->v[2]));
    return jop_replace(r, v, a->v[0], a->v[1], count, ret);
}

METHOD(m_upper)
{
    (void)a;
    return jcase_convert(r, v, JC_UPPER, ret);
}

METHOD(m_lower)
{
    (void)a;
    return jcase_convert(r, v, JC_LOWER, ret);
}

METHOD(m_capitalize)
{
    (void)a;
    return jcase_convert(r, v, JC_CAPITALIZE, ret);
}

METHOD(m_title)
{
    (void)a;
    return jcase_convert(r, v, JC_TITLE, ret);
}

METHOD(m_join)
{
    JREF items = NULL;
    int rc = jop_items(r, a->v[0], false, &items);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < items->u.list.n; i++)
        if (items->u.list.v[i]->type != JT_STRING)
            return jfail(r, -EINVAL, "%s cannot be joined", jv_type_name(items->u.list.v[i]));
    return jop_join(r, items, v, ret);
}

METHOD(m_format)
{
    return jformat_braces(r, v, a, ret);
}

static int needle(struct jrun *r, struct jinja_value *v, const struct jinja_value *what)
{
    if (what->type != JT_STRING)
        return jfail(r, -EINVAL, "%s cannot be in a string", jv_type_name(what));
    return jstep_bytes(r, v->u.str.n);
}

METHOD(m_find)
{
    size_t at = 0, next;
    int rc = needle(r, v, a->v[0]);

    if (rc < 0)
        return rc;
    at = jstr_find(v->u.str.s, v->u.str.n, 0, a->v[0]->u.str.s, a->v[0]->u.str.n);
    next = at == SIZE_MAX ? 0 : jstr_n_chars(v->u.str.s, at);
    *ret = jv_new_int(&r->heap, at == SIZE_MAX ? -1 : (int64_t)next);
    return *ret ? 0 : jfail_nomem(r);
}

METHOD(m_count)
{
    size_t at = 0, n = 0, len;
    int rc = needle(r, v, a->v[0]);

    if (rc < 0)
        return rc;
    len = a->v[0]->u.str.n;
    if (len == 0)
        n = jstr_n_chars(v->u.str.s, v->u.str.n) + 1;
    while (len && (at = jstr_find(v->u.str.s, v->u.str.n, at, a->v[0]->u.str.s, len)) != SIZE_MAX) {
        n++;
        at += len;
    }
    *ret = jv_new_int(&r->heap, (int64_t)n);
    return *ret ? 0 : jfail_nomem(r);
}

const struct jbuiltin jmethods_text[] = {
    {"capitalize", m_capitalize, 0, 0, JB_STRING, {NULL}},
    {"count", m_count, 1, 1, JB_STRING, {"sub"}},
    {"endswith", m_endswith, 1, 1, JB_STRING, {"suffix"}},
    {"find", m_find, 1, 1, JB_STRING, {"sub"}},
    {"format", m_format, 0, 0, JB_STRING | JB_RAW, {NULL}},
    {"join", m_join, 1, 1, JB_STRING, {"iterable"}},
    {"lower", m_lower, 0, 0, JB_STRING, {NULL}},
    {"lstrip", m_lstrip, 0, 1, JB_STRING, {"chars"}},
    {"removeprefix", m_removeprefix, 1, 1, JB_STRING, {"prefix"}},
    {"removesuffix", m_removesuffix, 1, 1, JB_STRING, {"suffix"}},
    {"replace", m_replace, 2, 3, JB_STRING, {"old", "new", "count"}},
    {"rsplit", m_rsplit, 0, 2, JB_STRING, {"sep", "maxsplit"}},
    {"rstrip", m_rstrip, 0, 1, JB_STRING, {"chars"}},
    {"split", m_split, 0, 2, JB_STRING, {"sep", "maxsplit"}},
    {"splitlines", m_splitlines, 0, 0, JB_STRING, {NULL}},
    {"startswith", m_startswith, 1, 1, JB_STRING, {"prefix"}},
    {"strip", m_strip, 0, 1, JB_STRING, {"chars"}},
    {"title", m_title, 0, 0, JB_STRING, {NULL}},
    {"upper", m_upper, 0, 0, JB_STRING, {NULL}},
    {NULL, NULL, 0, 0, 0, {NULL}},
};
