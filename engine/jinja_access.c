/* SPDX-License-Identifier: Apache-2.0 */
/* a.b, a[b], a[b:c:d], and the items of what can be iterated. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdint.h>

/* --- attributes and items ----------------------------------------------------------------------
 */

static int loop_item(struct jrun *r, const struct jinja_value *loop, size_t i,
                     struct jinja_value **ret)
{
    const struct jinja_value *items = loop->u.loop.items;

    (void)r;
    *ret = i < items->u.list.n ? jinja_ref(items->u.list.v[i]) : &jv_undefined;
    return 0;
}

static int loop_attr(struct jrun *r, const struct jinja_value *loop, const char *s, size_t n,
                     struct jinja_value **ret)
{
    static const char *const names[] = {"index",  "index0",   "revindex", "revindex0",
                                        "length", "depth",    "depth0",   "first",
                                        "last",   "previtem", "nextitem"};
    int64_t i = (int64_t)loop->u.loop.i, total = (int64_t)loop->u.loop.items->u.list.n;
    int64_t depth = (int64_t)loop->u.loop.depth;
    const int64_t numbers[] = {i + 1, i, total - i, total - i - 1, total, 1, 0};
    size_t k = 0;

    (void)depth; /* only recursive loops have more than one level */
    while (k < sizeof(names) / sizeof(names[0]) &&
           (strlen(names[k]) != n || memcmp(names[k], s, n) != 0))
        k++;
    if (k < 7) {
        *ret = jv_new_int(&r->heap, numbers[k]);
        return *ret ? 0 : jfail_nomem(r);
    }
    if (k == 7 || k == 8) {
        *ret = jv_of_bool(k == 7 ? i == 0 : i + 1 == total);
        return 0;
    }
    if (k == 9 || k == 10)
        return loop_item(r, loop, k == 9 ? loop->u.loop.i - 1 : loop->u.loop.i + 1, ret);
    *ret = &jv_undefined;
    return 0;
}

static uint8_t methods_of(const struct jinja_value *v)
{
    switch (v->type) {
    case JT_STRING:
        return JB_STRING;
    case JT_LIST:
    case JT_TUPLE:
        return JB_LIST;
    case JT_OBJECT:
        return JB_OBJECT;
    case JT_LOOP:
        return JB_LOOP;
    default:
        return 0;
    }
}

int jop_attr(struct jrun *r, struct jinja_value *v, uint32_t name, struct jinja_value **ret)
{
    const struct jname *text = &r->t->names[name];
    const struct jbuiltin *fn = jmethod_find(text->s, text->n, methods_of(v));
    struct jinja_value *m;

    if (fn) {
        m = jv_new(&r->heap, JT_METHOD, 0);
        if (!m)
            return jfail_nomem(r);
        m->u.method.self = jinja_ref(v);
        m->u.method.fn = fn;
        *ret = m;
        return 0;
    }
    if (v->type == JT_OBJECT || v->type == JT_NAMESPACE) {
        m = jobject_find_text(v, text->s, text->n);
        *ret = m ? jinja_ref(m) : &jv_undefined;
        return 0;
    }
    if (v->type == JT_LOOP)
        return loop_attr(r, v, text->s, text->n, ret);
    *ret = &jv_undefined;
    return 0;
}

static int string_item(struct jrun *r, struct jinja_value *v, int64_t i, struct jinja_value **ret)
{
    const struct jstr *s = &v->u.str;
    size_t at, len = 0;
    int rc = jstep_bytes(r, s->n);

    if (rc < 0)
        return rc;
    if (i < 0)
        i += (int64_t)jstr_n_chars(s->s, s->n);
    at = i < 0 ? s->n : jstr_offset(s->s, s->n, (size_t)i);
    if (at >= s->n) {
        *ret = &jv_undefined;
        return 0;
    }
    (void)utf8_decode(s->s + at, s->n - at, &len);
    return jstr_slice(&r->heap, v, at, at + len, ret) < 0 ? jfail_nomem(r) : 0;
}

int jop_item(struct jrun *r, struct jinja_value *v, struct jinja_value *key,
             struct jinja_value **ret)
{
    struct jinja_value *found = NULL;
    int64_t i;

    if (v->type == JT_OBJECT || v->type == JT_NAMESPACE) {
        found = jobject_find(v, key);
    } else if (v->type == JT_STRING && jv_integer(key, &i)) {
        return string_item(r, v, i, ret);
    } else if (jv_is_list(v) && jv_integer(key, &i)) {
        if (i < 0)
            i += (int64_t)v->u.list.n;
        if (i >= 0 && (uint64_t)i < v->u.list.n)
            found = v->u.list.v[i];
    } else if (v->type == JT_LOOP && key->type == JT_STRING) {
        return loop_attr(r, v, key->u.str.s, key->u.str.n, ret);
    }
    *ret = found ? jinja_ref(found) : &jv_undefined;
    return 0;
}

/* --- slices ------------------------------------------------------------------------------------
 */

struct range {
    int64_t start, stop, step;
    size_t n;
};

static int bound(struct jrun *r, const struct jinja_value *v, int64_t *ret)
{
    if (!v || v->type == JT_NONE)
        return 0;
    if (!jv_integer(v, ret))
        return jfail(r, -EINVAL, "a slice by %s", jv_type_name(v));
    return 1;
}

/* Python's rules for n items. */
static int resolve(struct jrun *r, struct jinja_value *const idx[3], size_t n_items,
                   struct range *ret)
{
    int64_t n = (int64_t)n_items, lo, hi, v[2];
    int rc;

    ret->step = 1;
    rc = bound(r, idx[2], &ret->step);
    if (rc < 0)
        return rc;
    if (ret->step == 0)
        return jfail(r, -EINVAL, "a slice by steps of zero");
    lo = ret->step > 0 ? 0 : -1;
    hi = ret->step > 0 ? n : n - 1;
    v[0] = ret->step > 0 ? lo : hi;
    v[1] = ret->step > 0 ? hi : lo;
    for (int k = 0; k < 2; k++) {
        int64_t given = 0;

        rc = bound(r, idx[k], &given);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (given < 0)
            given = given < -n ? lo : given + n;
        v[k] = given < lo ? lo : given > hi ? hi : given;
    }
    ret->start = v[0];
    ret->stop = v[1];
    ret->n = 0;
    if (ret->step > 0 && ret->stop > ret->start)
        ret->n = (size_t)((uint64_t)(ret->stop - ret->start - 1) / (uint64_t)ret->step + 1);
    if (ret->step < 0 && ret->stop < ret->start)
        ret->n = (size_t)((uint64_t)(ret->start - ret->stop - 1) / (0 - (uint64_t)ret->step) + 1);
    return 0;
}

static int slice_string(struct jrun *r, struct jinja_value *v, struct jinja_value *const idx[3],
                        struct jinja_value **ret)
{
    const struct jstr *s = &v->u.str;
    struct jout out = {.heap = &r->heap};
    JREF chars = NULL;
    struct range g;
    size_t begin;
    int rc = jstep_bytes(r, s->n);

    if (rc == 0)
        rc = resolve(r, idx, jstr_n_chars(s->s, s->n), &g);
    if (rc < 0)
        return rc;
    if (g.step == 1) {
        begin = jstr_offset(s->s, s->n, (size_t)g.start);
        return jstr_slice(&r->heap, v, begin, begin + jstr_offset(s->s + begin, s->n - begin, g.n),
                          ret) < 0
                   ? jfail_nomem(r)
                   : 0;
    }
    rc = jop_items(r, v, false, &chars);
    for (size_t i = 0; i < g.n && rc == 0; i++) {
        const struct jinja_value *c = chars->u.list.v[g.start + (int64_t)i * g.step];

        if (jout_slice(&out, c, 0, c->u.str.n) < 0)
            rc = jfail_nomem(r);
    }
    if (rc == 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

int jop_slice(struct jrun *r, struct jinja_value *v, struct jinja_value *const idx[3],
              struct jinja_value **ret)
{
    JREF list = NULL;
    struct range g;
    int rc;

    if (v->type == JT_STRING)
        return slice_string(r, v, idx, ret);
    if (!jv_is_list(v))
        return jfail(r, -EINVAL, "%s has no slices", jv_type_name(v));
    rc = resolve(r, idx, v->u.list.n, &g);
    if (rc == 0)
        rc = jstep(r, g.n / 8);
    if (rc < 0)
        return rc;
    list = jv_new(&r->heap, v->type, 0);
    if (!list || jlist_reserve(list, g.n) < 0)
        return jfail_nomem(r);
    for (size_t i = 0; i < g.n; i++)
        list->u.list.v[list->u.list.n++] = jinja_ref(v->u.list.v[g.start + (int64_t)i * g.step]);
    *ret = TAKE(list);
    return 0;
}

/* --- items -------------------------------------------------------------------------------------
 */

static int add_chars(struct jrun *r, struct jinja_value *str, struct jinja_value *list)
{
    const struct jstr *s = &str->u.str;
    size_t len;

    for (size_t i = 0; i < s->n; i += len) {
        struct jinja_value *c = NULL;
        int rc = jstep(r, 1);

        if (rc < 0)
            return rc;
        (void)utf8_decode(s->s + i, s->n - i, &len);
        if (jstr_slice(&r->heap, str, i, i + len, &c) < 0)
            return jfail_nomem(r);
        if (jlist_push(list, c) < 0) {
            jinja_unref(c);
            return jfail_nomem(r);
        }
    }
    return 0;
}

int jop_items(struct jrun *r, struct jinja_value *v, bool copy, struct jinja_value **ret)
{
    JREF list = NULL;
    int rc = 0;

    if (jv_is_list(v) && !copy) {
        *ret = jinja_ref(v);
        return 0;
    }
    list = jv_new(&r->heap, JT_LIST, 0);
    if (!list)
        return jfail_nomem(r);
    switch (v->type) {
    case JT_UNDEFINED:
        break;
    case JT_LIST:
    case JT_TUPLE:
        if (jlist_reserve(list, v->u.list.n) < 0)
            return jfail_nomem(r);
        for (size_t i = 0; i < v->u.list.n; i++)
            list->u.list.v[list->u.list.n++] = jinja_ref(v->u.list.v[i]);
        rc = jstep(r, v->u.list.n / 8);
        break;
    case JT_OBJECT:
        if (jlist_reserve(list, v->u.obj.n) < 0)
            return jfail_nomem(r);
        for (size_t i = 0; i < v->u.obj.n; i++)
            list->u.list.v[list->u.list.n++] = jinja_ref(v->u.obj.e[i].key);
        rc = jstep(r, v->u.obj.n / 8);
        break;
    case JT_STRING:
        rc = add_chars(r, v, list);
        break;
    default:
        return jfail(r, -EINVAL, "%s cannot be iterated", jv_type_name(v));
    }
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}
