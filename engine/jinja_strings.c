/* SPDX-License-Identifier: Apache-2.0 */
/* What filters and methods of strings have in common: joining, replacing, trimming, formats. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

int jout_end(struct jrun *r, struct jout *out, int rc, struct jinja_value **ret)
{
    if (rc == 0 && jout_take(out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(out);
    return rc;
}

static int add_part(struct jrun *r, struct jout *o, const struct jinja_value *s, size_t begin,
                    size_t end)
{
    int rc = jout_slice(o, s, begin, end);

    return rc < 0 ? jfail_code(r, rc) : 0;
}

int jop_trim(struct jrun *r, struct jinja_value *s, struct jinja_value *chars, bool left,
             bool right, struct jinja_value **ret)
{
    size_t begin = 0, end = s->u.str.n;
    const char *set = NULL;
    size_t n_set = 0;
    int rc;

    if (chars && chars->type == JT_STRING) {
        set = chars->u.str.s;
        n_set = chars->u.str.n;
    } else if (chars && chars->type != JT_NONE) {
        return jfail(r, -EINVAL, "%s is no set of characters", jv_type_name(chars));
    }
    jstr_strip(s->u.str.s, &begin, &end, set, n_set, left, right);
    rc = jstep(r, (s->u.str.n - (end - begin)) * (n_set + 1) / 64);
    if (rc < 0)
        return rc;
    return jstr_slice(&r->heap, s, begin, end, ret) < 0 ? jfail_nomem(r) : 0;
}

int jop_replace(struct jrun *r, struct jinja_value *s, struct jinja_value *old,
                struct jinja_value *with, int64_t count, struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    size_t n = s->u.str.n, pos = 0, at;
    int rc = jstep_bytes(r, n);

    if (old->type != JT_STRING || with->type != JT_STRING)
        return jfail(r, -EINVAL, "%s cannot be replaced by %s", jv_type_name(old),
                     jv_type_name(with));
    at = rc == 0 && count ? jstr_find(s->u.str.s, n, 0, old->u.str.s, old->u.str.n) : SIZE_MAX;
    if (rc == 0 && at == SIZE_MAX) {
        *ret = jinja_ref(s);
        return 0;
    }
    while (rc == 0 && at != SIZE_MAX && count != 0) {
        size_t step = old->u.str.n;

        count--;
        rc = jstep(r, 1 + with->u.str.n / 64);
        if (rc == 0)
            rc = add_part(r, &out, s, pos, at);
        if (rc == 0)
            rc = add_part(r, &out, with, 0, with->u.str.n);
        pos = at + step;
        if (step > 0) {
            at = jstr_find(s->u.str.s, n, pos, old->u.str.s, step);
        } else { /* before every character, and at the end */
            at = pos < n ? pos + jstr_offset(s->u.str.s + pos, n - pos, 1) : SIZE_MAX;
        }
    }
    if (rc == 0)
        rc = add_part(r, &out, s, pos, n);
    return jout_end(r, &out, rc, ret);
}

int jop_join(struct jrun *r, struct jinja_value *items, struct jinja_value *sep,
             struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    int rc = 0;

    for (size_t i = 0; i < items->u.list.n && rc == 0; i++) {
        if (i > 0 && sep)
            rc = jprint(r, &out, sep);
        if (rc == 0)
            rc = jprint(r, &out, items->u.list.v[i]);
    }
    return jout_end(r, &out, rc, ret);
}

int jop_pair(struct jrun *r, struct jinja_value *a, struct jinja_value *b, struct jinja_value **ret)
{
    struct jinja_value *t = jv_new(&r->heap, JT_TUPLE, 0);

    if (!t || jlist_reserve(t, 2) < 0) {
        jinja_unref(t);
        return jfail_nomem(r);
    }
    t->u.list.v[t->u.list.n++] = jinja_ref(a);
    t->u.list.v[t->u.list.n++] = jinja_ref(b);
    *ret = t;
    return 0;
}

int jop_pairs(struct jrun *r, struct jinja_value *object, struct jinja_value **ret)
{
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    int rc = jstep(r, object->u.obj.n);

    if (rc < 0)
        return rc;
    if (!list || jlist_reserve(list, object->u.obj.n) < 0)
        return jfail_nomem(r);
    for (size_t i = 0; i < object->u.obj.n; i++) {
        const struct jentry *e = &object->u.obj.e[i];

        rc = jop_pair(r, e->key, e->value, &list->u.list.v[i]);
        if (rc < 0)
            return rc;
        list->u.list.n++;
    }
    *ret = TAKE(list);
    return 0;
}

/* --- '%s' % x ----------------------------------------------------------------------------------
 */

struct spec {
    char flags[6];
    int width, precision; /* -1: none */
    char kind;
    size_t n; /* bytes of the specification, the % included */
};

/* At the % of s[0..n). */
static bool parse_spec(const char *s, size_t n, struct spec *ret)
{
    size_t i = 1, n_flags = 0;

    *ret = (struct spec){.precision = -1};
    while (i < n && s[i] && strchr("-+ 0#", s[i]) && n_flags < 5)
        ret->flags[n_flags++] = s[i++];
    for (; i < n && s[i] >= '0' && s[i] <= '9' && ret->width < 1000; i++)
        ret->width = ret->width * 10 + (s[i] - '0');
    if (i < n && s[i] == '.') {
        ret->precision = 0;
        for (i++; i < n && s[i] >= '0' && s[i] <= '9' && ret->precision < 100; i++)
            ret->precision = ret->precision * 10 + (s[i] - '0');
    }
    if (i >= n || !s[i] || !strchr("srdiuxXofFeEgG%", s[i]) || ret->width > 1000 ||
        ret->precision > 100)
        return false;
    ret->kind = s[i];
    ret->n = i + 1;
    return true;
}

static int print_spec_number(struct jrun *r, struct jout *o, const struct spec *s,
                             const struct jinja_value *v)
{
    char fmt[24], text[1600];
    int64_t i;
    double d = 0;
    int n;

    if (!jv_double(v, &d))
        return jfail(r, -EINVAL, "%%%c needs a number, not %s", s->kind, jv_type_name(v));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (strchr("diuxXo", s->kind)) {
        if (!jv_integer(v, &i)) {
            if (!(d > -9e18 && d < 9e18))
                return jfail(r, -EINVAL, "a number too large for %%%c", s->kind);
            i = (int64_t)d;
        }
        (void)snprintf(fmt, sizeof(fmt), "%%%s*.*%s%c", s->flags, "ll",
                       s->kind == 'i' || s->kind == 'u' ? 'd' : s->kind);
        n = snprintf(text, sizeof(text), fmt, s->width, s->precision, (long long)i);
    } else {
        (void)snprintf(fmt, sizeof(fmt), "%%%s*.*%c", s->flags, s->kind);
        n = snprintf(text, sizeof(text), fmt, s->width, s->precision, d);
    }
#pragma GCC diagnostic pop
    if (n < 0 ||
        jout_add(o, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, false) < 0)
        return jfail_nomem(r);
    return 0;
}

static int print_spec_text(struct jrun *r, struct jout *o, const struct spec *s,
                           struct jinja_value *v)
{
    struct jout out = {.heap = &r->heap};
    JREF text = NULL;
    bool to_left = strchr(s->flags, '-') != NULL;
    size_t n, n_chars;
    int rc = s->kind == 'r' ? jprint_repr(r, &out, v) : jprint(r, &out, v);

    if (rc == 0 && s->kind == 'r' && v->type == JT_UNDEFINED)
        rc = 0;
    rc = jout_end(r, &out, rc, &text);
    if (rc < 0)
        return rc;
    n = text->u.str.n;
    if (s->precision >= 0)
        n = jstr_offset(text->u.str.s, n, (size_t)s->precision);
    n_chars = jstr_n_chars(text->u.str.s, n);
    for (size_t i = n_chars; !to_left && i < (size_t)s->width && rc == 0; i++)
        rc = jout_add(o, " ", 1, false);
    if (rc == 0)
        rc = jout_slice(o, text, 0, n);
    for (size_t i = n_chars; to_left && i < (size_t)s->width && rc == 0; i++)
        rc = jout_add(o, " ", 1, false);
    return rc < 0 ? jfail_code(r, rc) : 0;
}

int jformat_percent(struct jrun *r, struct jinja_value *fmt, const struct jargs *a,
                    struct jinja_value **ret)
{
    const struct jstr *f = &fmt->u.str;
    struct jout out = {.heap = &r->heap};
    struct spec s;
    uint32_t used = 0;
    int rc = 0;

    if (a->n != a->n_pos)
        return jfail(r, -EINVAL, "a format by names is not supported");
    for (size_t pos = 0; pos < f->n && rc == 0;) {
        size_t at = jstr_find(f->s, f->n, pos, "%", 1);

        rc = jstep(r, 1);
        if (rc == 0)
            rc = add_part(r, &out, fmt, pos, at == SIZE_MAX ? f->n : at);
        if (rc < 0 || at == SIZE_MAX)
            break;
        if (!parse_spec(f->s + at, f->n - at, &s))
            rc = jfail(r, -EINVAL, "a format that is not supported");
        else if (s.kind == '%')
            rc = add_part(r, &out, fmt, at, at + 1);
        else if (used == a->n)
            rc = jfail(r, -EINVAL, "a format of more than %u values", a->n);
        else if (s.kind == 's' || s.kind == 'r')
            rc = print_spec_text(r, &out, &s, a->v[used++]);
        else
            rc = print_spec_number(r, &out, &s, a->v[used++]);
        pos = at + s.n;
    }
    if (rc == 0 && used < a->n)
        rc = jfail(r, -EINVAL, "a format of fewer than %u values", a->n);
    return jout_end(r, &out, rc, ret);
}

/* --- '{}'.format(x) ----------------------------------------------------------------------------
 */

/* The value that s[0..n), what stands between the braces, means; borrowed, NULL with the reason. */
static struct jinja_value *field(struct jrun *r, const char *s, size_t n, const struct jargs *a,
                                 uint32_t *next)
{
    uint32_t i = 0;
    size_t k = 0;

    if (n == 0)
        i = (*next)++;
    for (; k < n && k < 4 && s[k] >= '0' && s[k] <= '9'; k++)
        i = i * 10 + (uint32_t)(s[k] - '0');
    if (k == n && i < a->n_pos)
        return a->v[i];
    for (uint32_t j = a->n_pos; j < a->n && n; j++) {
        const struct jname *name = &r->t->names[a->names[j - a->n_pos]];

        if (name->n == n && memcmp(name->s, s, n) == 0)
            return a->v[j];
    }
    (void)jfail(r, -EINVAL, "a format of something that is not given, or not supported");
    return NULL;
}

int jformat_braces(struct jrun *r, struct jinja_value *fmt, const struct jargs *a,
                   struct jinja_value **ret)
{
    const struct jstr *f = &fmt->u.str;
    struct jout out = {.heap = &r->heap};
    uint32_t next = 0;
    int rc = 0;

    for (size_t pos = 0, i = 0; i <= f->n && rc == 0; i++) {
        struct jinja_value *v;
        size_t end;

        if (i < f->n && f->s[i] != '{' && f->s[i] != '}')
            continue;
        rc = jstep(r, 1);
        if (rc == 0)
            rc = add_part(r, &out, fmt, pos, i);
        pos = i;
        if (rc < 0 || i == f->n)
            break;
        if (i + 1 < f->n && f->s[i + 1] == f->s[i]) {
            pos = ++i; /* the second of {{ is text */
            continue;
        }
        end = f->s[i] == '{' ? jstr_find(f->s, f->n, i, "}", 1) : SIZE_MAX;
        if (end == SIZE_MAX) {
            rc = jfail(r, -EINVAL, "a format with a brace alone");
            break;
        }
        v = field(r, f->s + i + 1, end - i - 1, a, &next);
        rc = v ? jprint(r, &out, v) : -EINVAL;
        i = end;
        pos = end + 1;
    }
    return jout_end(r, &out, rc, ret);
}
