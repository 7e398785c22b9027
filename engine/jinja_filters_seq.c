/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of lists and objects. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdint.h>

#define FILTER(name)                                                                               \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)

static bool is_true(const struct jinja_value *v)
{
    return v && jv_truth(v);
}

static bool is_given(const struct jinja_value *v)
{
    return v && v->type != JT_NONE;
}

static int push(struct jrun *r, struct jinja_value *list, struct jinja_value *item)
{
    if (jlist_push(list, item) < 0)
        return jfail_nomem(r);
    (void)jinja_ref(item);
    return 0;
}

/* --- paths -------------------------------------------------------------------------------------
 */

int jop_path(struct jrun *r, struct jinja_value *v, struct jinja_value *path,
             struct jinja_value **ret)
{
    JREF at = jinja_ref(v);
    size_t begin = 0, end, n;
    int rc = 0;

    if (path->type != JT_STRING) {
        if (v->type == JT_UNDEFINED)
            return jfail(r, -EINVAL, "an attribute of something undefined");
        return jop_item(r, v, path, ret);
    }
    for (n = path->u.str.n; begin <= n && rc == 0; begin = end + 1) {
        struct jinja_value *next = NULL;
        JREF key = NULL;
        int64_t i = 0;
        bool is_number;

        end = jstr_find(path->u.str.s, n, begin, ".", 1);
        if (end == SIZE_MAX)
            end = n;
        if (at->type == JT_UNDEFINED)
            return jfail(r, -EINVAL, "an attribute of something undefined");
        is_number = end > begin && end - begin < 10;
        for (size_t k = begin; k < end && is_number; k++) {
            is_number = path->u.str.s[k] >= '0' && path->u.str.s[k] <= '9';
            i = i * 10 + (path->u.str.s[k] - '0');
        }
        key = is_number ? jv_new_int(&r->heap, i)
                        : jv_new_string(&r->heap, path->u.str.s + begin, end - begin, false);
        if (!key)
            return jfail_nomem(r);
        rc = jop_item(r, at, key, &next);
        if (rc == 0) {
            jinja_unref(at);
            at = next;
        }
    }
    if (rc == 0)
        *ret = TAKE(at);
    return rc;
}

/* The items of v, each replaced by its attribute when one is given. */
static int items_by(struct jrun *r, struct jinja_value *v, struct jinja_value *attribute,
                    struct jinja_value **ret)
{
    JREF items = NULL;
    JREF out = NULL;
    int rc = jop_items(r, v, false, &items);

    if (rc < 0 || !is_given(attribute)) {
        *ret = TAKE(items);
        return rc;
    }
    out = jv_new(&r->heap, JT_LIST, 0);
    if (!out || jlist_reserve(out, items->u.list.n) < 0)
        return jfail_nomem(r);
    for (size_t i = 0; i < items->u.list.n && rc == 0; i++) {
        rc = jstep(r, 1);
        if (rc == 0)
            rc = jop_path(r, items->u.list.v[i], attribute, &out->u.list.v[i]);
        out->u.list.n += rc == 0;
    }
    if (rc == 0)
        *ret = TAKE(out);
    return rc;
}

/* --- simple ones -------------------------------------------------------------------------------
 */

FILTER(f_length)
{
    uint64_t n;

    (void)a;
    if (v->type == JT_STRING) {
        int rc = jstep_bytes(r, v->u.str.n);

        if (rc < 0)
            return rc;
        n = jstr_n_chars(v->u.str.s, v->u.str.n);
    } else if (jv_is_list(v)) {
        n = v->u.list.n;
    } else if (v->type == JT_OBJECT) {
        n = v->u.obj.n;
    } else if (v->type == JT_UNDEFINED) {
        n = 0;
    } else {
        return jfail(r, -EINVAL, "%s has no length", jv_type_name(v));
    }
    *ret = jv_new_int(&r->heap, (int64_t)n);
    return *ret ? 0 : jfail_nomem(r);
}

FILTER(f_list)
{
    (void)a;
    return jop_items(r, v, true, ret);
}

FILTER(f_items)
{
    (void)a;
    if (v->type == JT_UNDEFINED)
        return jop_items(r, v, false, ret);
    if (v->type != JT_OBJECT)
        return jfail(r, -EINVAL, "%s has no items", jv_type_name(v));
    return jop_pairs(r, v, ret);
}

static int end_item(struct jrun *r, struct jinja_value *v, bool is_last, struct jinja_value **ret)
{
    JREF items = NULL;
    int rc = jop_items(r, v, false, &items);
    size_t n = rc == 0 ? items->u.list.n : 0;

    if (rc == 0)
        *ret = n ? jinja_ref(items->u.list.v[is_last ? n - 1 : 0]) : &jv_undefined;
    return rc;
}

FILTER(f_first)
{
    (void)a;
    return end_item(r, v, false, ret);
}

FILTER(f_last)
{
    (void)a;
    return end_item(r, v, true, ret);
}

FILTER(f_reverse)
{
    struct jinja_value step = {.type = JT_INT, .immortal = true, .u.i = -1};
    struct jinja_value *idx[3] = {NULL, NULL, &step};
    JREF items = NULL;
    int rc;

    (void)a;
    if (v->type == JT_STRING)
        return jop_slice(r, v, idx, ret);
    rc = jop_items(r, v, false, &items);
    return rc < 0 ? rc : jop_slice(r, items, idx, ret);
}

FILTER(f_join)
{
    JREF items = NULL;
    int rc = items_by(r, v, a->v[1], &items);

    return rc < 0 ? rc : jop_join(r, items, a->v[0], ret);
}

FILTER(f_sum)
{
    JREF items = NULL;
    JREF sum = a->v[1] ? jinja_ref(a->v[1]) : jv_new_int(&r->heap, 0);
    int rc = sum ? items_by(r, v, a->v[0], &items) : jfail_nomem(r);

    for (size_t i = 0; rc == 0 && i < items->u.list.n; i++) {
        struct jinja_value *next = NULL;

        rc = jstep(r, 1);
        if (rc == 0)
            rc = jop_arith(r, JO_ADD, sum, items->u.list.v[i], &next);
        if (rc == 0) {
            jinja_unref(sum);
            sum = next;
        }
    }
    if (rc == 0)
        *ret = TAKE(sum);
    return rc;
}

/* --- order -------------------------------------------------------------------------------------
 */

/* Positions sorted by keys, stable: merging runs of 1, 2, 4, ... */
static int merge_sort(struct jrun *r, struct jinja_value **keys, size_t n, bool fold_case,
                      bool reverse, size_t *at, size_t *spare)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n;
            size_t i = lo, j = mid;

            for (size_t k = lo; k < hi; k++) {
                int c = 0, rc;

                if (i < mid && j < hi) {
                    rc = jop_order(r, keys[at[i]], keys[at[j]], fold_case, &c);
                    if (rc < 0)
                        return rc;
                    c = reverse ? -c : c;
                }
                spare[k] = j >= hi || (i < mid && c <= 0) ? at[i++] : at[j++];
            }
        }
        memcpy(at, spare, n * sizeof(*at));
    }
    return 0;
}

static int sort_by(struct jrun *r, struct jinja_value *items, struct jinja_value *keys,
                   bool fold_case, bool reverse, struct jinja_value **ret)
{
    size_t n = items->u.list.n;
    JREF out = jv_new(&r->heap, JT_LIST, 0);
    size_t *at = jheap_alloc(&r->heap, 2 * n * sizeof(*at));
    int rc = 0;

    if (!out || !at || jlist_reserve(out, n) < 0) {
        jheap_free(&r->heap, at, 2 * n * sizeof(*at));
        return jfail_nomem(r);
    }
    for (size_t i = 0; i < n; i++)
        at[i] = i;
    rc = merge_sort(r, keys->u.list.v, n, fold_case, reverse, at, at + n);
    for (size_t i = 0; i < n && rc == 0; i++)
        out->u.list.v[out->u.list.n++] = jinja_ref(items->u.list.v[at[i]]);
    jheap_free(&r->heap, at, 2 * n * sizeof(*at));
    if (rc == 0)
        *ret = TAKE(out);
    return rc;
}

/* sort(reverse, case_sensitive, attribute) */
FILTER(f_sort)
{
    JREF items = NULL;
    JREF keys = NULL;
    int rc = jop_items(r, v, false, &items);

    if (rc == 0)
        rc = items_by(r, items, a->v[2], &keys);
    return rc < 0 ? rc : sort_by(r, items, keys, !is_true(a->v[1]), is_true(a->v[0]), ret);
}

/* dictsort(case_sensitive, by, reverse) */
FILTER(f_dictsort)
{
    JREF pairs = NULL;
    JREF keys = NULL;
    bool by_value = a->v[1] && a->v[1]->type == JT_STRING && jstr_equal(a->v[1], "value", 5);
    struct jinja_value which = {.type = JT_INT, .immortal = true, .u.i = by_value};
    int rc;

    if (v->type != JT_OBJECT)
        return jfail(r, -EINVAL, "%s is no object", jv_type_name(v));
    rc = jop_pairs(r, v, &pairs);
    if (rc == 0)
        rc = items_by(r, pairs, &which, &keys);
    return rc < 0 ? rc : sort_by(r, pairs, keys, !is_true(a->v[0]), is_true(a->v[2]), ret);
}

static int extreme(struct jrun *r, struct jinja_value *v, const struct jargs *a, int sign,
                   struct jinja_value **ret)
{
    JREF items = NULL;
    JREF keys = NULL;
    size_t best = 0;
    int rc = jop_items(r, v, false, &items);

    if (rc == 0)
        rc = items_by(r, items, a->v[1], &keys);
    for (size_t i = 1; rc == 0 && i < keys->u.list.n; i++) {
        int c = 0;

        rc = jop_order(r, keys->u.list.v[i], keys->u.list.v[best], !is_true(a->v[0]), &c);
        if (c == sign)
            best = i;
    }
    if (rc == 0)
        *ret = items->u.list.n ? jinja_ref(items->u.list.v[best]) : &jv_undefined;
    return rc;
}

FILTER(f_min)
{
    return extreme(r, v, a, -1, ret);
}

FILTER(f_max)
{
    return extreme(r, v, a, 1, ret);
}

/* unique(case_sensitive, attribute) */
FILTER(f_unique)
{
    JREF items = NULL;
    JREF keys = NULL;
    JREF seen = jv_new(&r->heap, JT_LIST, 0);
    JREF out = jv_new(&r->heap, JT_LIST, 0);
    int rc = seen && out ? jop_items(r, v, false, &items) : jfail_nomem(r);

    if (rc == 0)
        rc = items_by(r, items, a->v[1], &keys);
    for (size_t i = 0; rc == 0 && i < items->u.list.n; i++) {
        JREF key = jinja_ref(keys->u.list.v[i]);
        bool is_known = false;

        if (key->type == JT_STRING && !is_true(a->v[0])) {
            struct jinja_value *lower = NULL;

            rc = jcase_convert(r, key, JC_LOWER, &lower);
            if (rc == 0) {
                jinja_unref(key);
                key = lower;
            }
        }
        if (rc == 0)
            rc = jop_compare(r, JO_IN, key, seen, &is_known);
        if (rc == 0 && !is_known)
            rc = push(r, seen, key);
        if (rc == 0 && !is_known)
            rc = push(r, out, items->u.list.v[i]);
    }
    if (rc == 0)
        *ret = TAKE(out);
    return rc;
}

/* What map, select and their like go through: nothing of whatever is false, none included. */
static int items_if_true(struct jrun *r, struct jinja_value *v, struct jinja_value **ret)
{
    return jop_items(r, jv_truth(v) ? v : &jv_undefined, false, ret);
}

/* --- map, select -------------------------------------------------------------------------------
 */

static struct jinja_value *by_name(struct jrun *r, const struct jargs *a, const char *name)
{
    for (uint32_t i = a->n_pos; i < a->n; i++)
        if (strcmp(r->t->names[a->names[i - a->n_pos]].s, name) == 0)
            return a->v[i];
    return NULL;
}

static int rest_of(struct jrun *r, const struct jargs *a, uint32_t from, bool is_filter,
                   const struct jbuiltin **ret_fn, struct jargs *ret_rest)
{
    const struct jinja_value *name = a->v[from];
    char shown[64];

    if (name->type != JT_STRING)
        return jfail(r, -EINVAL, "%s is no name of a %s", jv_type_name(name),
                     is_filter ? "filter" : "test");
    *ret_fn = is_filter ? jfilter_find(name->u.str.s, name->u.str.n)
                        : jtest_find(name->u.str.s, name->u.str.n);
    if (!*ret_fn)
        return jfail(r, -EINVAL, "the %s '%s' is not supported", is_filter ? "filter" : "test",
                     err_escape(shown, sizeof(shown), name->u.str.s, name->u.str.n));
    *ret_rest = *a;
    ret_rest->v += from + 1;
    ret_rest->n -= from + 1;
    ret_rest->n_pos -= from + 1;
    return 0;
}

FILTER(f_map)
{
    JREF items = NULL;
    JREF out = jv_new(&r->heap, JT_LIST, 0);
    struct jinja_value *attribute = by_name(r, a, "attribute"),
                       *fallback = by_name(r, a, "default");
    const struct jbuiltin *fn = NULL;
    struct jargs rest = {0};
    int rc = out ? items_if_true(r, v, &items) : jfail_nomem(r);

    if (rc == 0 && !attribute)
        rc = a->n_pos ? rest_of(r, a, 0, true, &fn, &rest)
                      : jfail(r, -EINVAL, "map needs a filter or an attribute");
    for (size_t i = 0; rc == 0 && i < items->u.list.n; i++) {
        JREF item = NULL;

        rc = jstep(r, 1);
        if (rc == 0 && fn)
            rc = jbuiltin_call(r, fn, items->u.list.v[i], &rest, &item);
        else if (rc == 0)
            rc = jop_path(r, items->u.list.v[i], attribute, &item);
        if (rc == 0)
            rc = push(r, out, item->type == JT_UNDEFINED && fallback ? fallback : item);
    }
    if (rc == 0)
        *ret = TAKE(out);
    return rc;
}

/* Those for which the test (or truth) is as `wanted`; of an attribute, when there is one. */
static int choose(struct jrun *r, struct jinja_value *v, const struct jargs *a, bool by_attribute,
                  bool wanted, struct jinja_value **ret)
{
    JREF items = NULL;
    JREF out = jv_new(&r->heap, JT_LIST, 0);
    const struct jbuiltin *fn = NULL;
    struct jargs rest = {0};
    int rc = out ? items_if_true(r, v, &items) : jfail_nomem(r);

    if (rc == 0 && by_attribute && a->n_pos == 0)
        rc = jfail(r, -EINVAL, "the name of an attribute is missing");
    if (rc == 0 && a->n_pos > by_attribute)
        rc = rest_of(r, a, by_attribute, false, &fn, &rest);
    for (size_t i = 0; rc == 0 && i < items->u.list.n; i++) {
        JREF of = NULL;
        JREF holds = NULL;

        rc = jstep(r, 1);
        if (rc == 0 && by_attribute)
            rc = jop_path(r, items->u.list.v[i], a->v[0], &of);
        else
            of = jinja_ref(items->u.list.v[i]);
        if (rc == 0 && fn)
            rc = jbuiltin_call(r, fn, of, &rest, &holds);
        if (rc == 0 && jv_truth(fn ? holds : of) == wanted)
            rc = push(r, out, items->u.list.v[i]);
    }
    if (rc == 0)
        *ret = TAKE(out);
    return rc;
}

FILTER(f_select)
{
    return choose(r, v, a, false, true, ret);
}

FILTER(f_reject)
{
    return choose(r, v, a, false, false, ret);
}

FILTER(f_selectattr)
{
    return choose(r, v, a, true, true, ret);
}

FILTER(f_rejectattr)
{
    return choose(r, v, a, true, false, ret);
}

const struct jbuiltin jfilters_seq[] = {
    {"count", f_length, 0, 0, 0, {NULL}},
    {"dictsort", f_dictsort, 0, 3, 0, {"case_sensitive", "by", "reverse"}},
    {"first", f_first, 0, 0, 0, {NULL}},
    {"items", f_items, 0, 0, 0, {NULL}},
    {"join", f_join, 0, 2, 0, {"d", "attribute"}},
    {"last", f_last, 0, 0, 0, {NULL}},
    {"length", f_length, 0, 0, 0, {NULL}},
    {"list", f_list, 0, 0, 0, {NULL}},
    {"map", f_map, 0, 0, JB_RAW, {NULL}},
    {"max", f_max, 0, 2, 0, {"case_sensitive", "attribute"}},
    {"min", f_min, 0, 2, 0, {"case_sensitive", "attribute"}},
    {"reject", f_reject, 0, 0, JB_RAW, {NULL}},
    {"rejectattr", f_rejectattr, 0, 0, JB_RAW, {NULL}},
    {"reverse", f_reverse, 0, 0, 0, {NULL}},
    {"select", f_select, 0, 0, JB_RAW, {NULL}},
    {"selectattr", f_selectattr, 0, 0, JB_RAW, {NULL}},
    {"sort", f_sort, 0, 3, 0, {"reverse", "case_sensitive", "attribute"}},
    {"sum", f_sum, 0, 2, 0, {"attribute", "start"}},
    {"unique", f_unique, 0, 2, 0, {"case_sensitive", "attribute"}},
    {NULL, NULL, 0, 0, 0, {NULL}},
};
