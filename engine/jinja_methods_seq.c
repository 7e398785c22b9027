/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of objects, lists and loops. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdint.h>

#define METHOD(name)                                                                               \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)

/* What is to be changed belongs to this rendering: jinja_render has copied what it was given. */
static int check_own(struct jrun *r, const struct jinja_value *v)
{
    if (v->heap != &r->heap || v->type == JT_TUPLE)
        return jfail(r, -EINVAL, "%s that cannot be changed", jv_type_name(v));
    return 0;
}

static int give(struct jinja_value *v, struct jinja_value **ret)
{
    *ret = jinja_ref(v);
    return 0;
}

/* --- objects -----------------------------------------------------------------------------------
 */

METHOD(m_items)
{
    (void)a;
    return jop_pairs(r, v, ret);
}

METHOD(m_keys)
{
    (void)a;
    return jop_items(r, v, false, ret);
}

METHOD(m_values)
{
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    int rc = jstep(r, v->u.obj.n / 8);

    (void)a;
    if (rc < 0)
        return rc;
    if (!list || jlist_reserve(list, v->u.obj.n) < 0)
        return jfail_nomem(r);
    for (size_t i = 0; i < v->u.obj.n; i++)
        list->u.list.v[list->u.list.n++] = jinja_ref(v->u.obj.e[i].value);
    *ret = TAKE(list);
    return 0;
}

METHOD(m_get)
{
    struct jinja_value *found = jobject_find(v, a->v[0]);

    (void)r;
    return give(found ? found : a->v[1] ? a->v[1] : &jv_none, ret);
}

METHOD(m_pop_key)
{
    struct jinja_value *found = jobject_find(v, a->v[0]);
    size_t i = 0;
    int rc = check_own(r, v);

    if (rc == 0)
        rc = jstep(r, v->u.obj.n / 8);
    if (rc < 0)
        return rc;
    if (!found && !a->v[1])
        return jfail(r, -EINVAL, "there is no such key to pop");
    (void)give(found ? found : a->v[1], ret);
    if (!found)
        return 0;
    while (v->u.obj.e[i].value != found || !jop_equal(v->u.obj.e[i].key, a->v[0], 0))
        i++;
    jobject_remove(v, i);
    return 0;
}

METHOD(m_update)
{
    int rc = check_own(r, v);

    if (rc < 0)
        return rc;
    if (a->n_pos > 1 || (a->n_pos == 1 && a->v[0]->type != JT_OBJECT))
        return jfail(r, -EINVAL, "update needs an object");
    for (size_t i = 0; a->n_pos && i < a->v[0]->u.obj.n; i++) {
        struct jentry e = a->v[0]->u.obj.e[i];

        (void)jinja_ref(e.key);
        (void)jinja_ref(e.value);
        if (jobject_put(v, e.key, e.value) < 0) {
            jinja_unref(e.key);
            jinja_unref(e.value);
            return jfail_nomem(r);
        }
    }
    for (uint32_t i = a->n_pos; i < a->n; i++) {
        const struct jname *name = &r->t->names[a->names[i - a->n_pos]];
        JREF key = jv_new_string(&r->heap, name->s, name->n, false);

        if (!key || jobject_put(v, key, a->v[i]) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(a->v[i]);
        key = NULL;
    }
    *ret = &jv_none;
    return 0;
}

METHOD(m_setdefault)
{
    struct jinja_value *found = jobject_find(v, a->v[0]), *value = a->v[1] ? a->v[1] : &jv_none;
    int rc = check_own(r, v);

    if (rc < 0)
        return rc;
    if (!found) {
        if (!jv_can_be_key(a->v[0]))
            return jfail(r, -EINVAL, "%s cannot be a key", jv_type_name(a->v[0]));
        if (jobject_put(v, a->v[0], value) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(a->v[0]);
        (void)jinja_ref(value);
        found = value;
    }
    return give(found, ret);
}

/* --- lists -------------------------------------------------------------------------------------
 */

static int insert(struct jrun *r, struct jinja_value *v, size_t at, struct jinja_value *item)
{
    int rc = check_own(r, v);

    if (rc == 0)
        rc = jstep(r, (v->u.list.n - at) / 8);
    if (rc < 0)
        return rc;
    if (jlist_push(v, item) < 0)
        return jfail_nomem(r);
    (void)jinja_ref(item);
    memmove(v->u.list.v + at + 1, v->u.list.v + at,
            (v->u.list.n - 1 - at) * sizeof(struct jinja_value *));
    v->u.list.v[at] = item;
    return 0;
}

METHOD(m_append)
{
    *ret = &jv_none;
    return insert(r, v, v->u.list.n, a->v[0]);
}

METHOD(m_insert)
{
    int64_t at, n = (int64_t)v->u.list.n;

    if (!jv_integer(a->v[0], &at))
        return jfail(r, -EINVAL, "%s is no position", jv_type_name(a->v[0]));
    if (at < 0)
        at = at < -n ? 0 : at + n;
    *ret = &jv_none;
    return insert(r, v, (size_t)(at > n ? n : at), a->v[1]);
}

METHOD(m_extend)
{
    JREF items = NULL;
    int rc = jop_items(r, a->v[0], true, &items);

    for (size_t i = 0; rc == 0 && i < items->u.list.n; i++) {
        rc = jstep(r, 1);
        if (rc == 0)
            rc = insert(r, v, v->u.list.n, items->u.list.v[i]);
    }
    *ret = &jv_none;
    return rc;
}

METHOD(m_pop_item)
{
    int64_t at = -1, n = (int64_t)v->u.list.n;
    int rc = check_own(r, v);

    if (rc == 0)
        rc = jstep(r, v->u.list.n / 8);
    if (rc < 0)
        return rc;
    if (a->v[0] && !jv_integer(a->v[0], &at))
        return jfail(r, -EINVAL, "%s is no position", jv_type_name(a->v[0]));
    if (at < 0 && at >= -n)
        at += n;
    if (at < 0 || at >= n)
        return jfail(r, -EINVAL, "there is no such item to pop");
    *ret = v->u.list.v[at];
    memmove(v->u.list.v + at, v->u.list.v + at + 1,
            (size_t)(n - at - 1) * sizeof(struct jinja_value *));
    v->u.list.n--;
    return 0;
}

static int count_equal(struct jrun *r, const struct jinja_value *v, struct jinja_value *what,
                       bool stop, size_t *ret_at, size_t *ret_n)
{
    int rc = 0;

    *ret_n = 0;
    for (size_t i = 0; i < v->u.list.n && rc == 0; i++) {
        bool is_equal = false;

        rc = jstep(r, 1);
        if (rc == 0)
            rc = jop_compare(r, JO_EQ, v->u.list.v[i], what, &is_equal);
        if (rc == 0 && is_equal) {
            *ret_at = i;
            ++*ret_n;
            if (stop)
                break;
        }
    }
    return rc;
}

METHOD(m_index)
{
    size_t at = 0, n = 0;
    int rc = count_equal(r, v, a->v[0], true, &at, &n);

    if (rc < 0)
        return rc;
    if (n == 0)
        return jfail(r, -EINVAL, "there is no such item");
    *ret = jv_new_int(&r->heap, (int64_t)at);
    return *ret ? 0 : jfail_nomem(r);
}

METHOD(m_count)
{
    size_t at = 0, n = 0;
    int rc = count_equal(r, v, a->v[0], false, &at, &n);

    if (rc < 0)
        return rc;
    *ret = jv_new_int(&r->heap, (int64_t)n);
    return *ret ? 0 : jfail_nomem(r);
}

/* --- loops -------------------------------------------------------------------------------------
 */

METHOD(m_cycle)
{
    if (a->n == 0)
        return jfail(r, -EINVAL, "cycle needs an argument");
    return give(a->v[v->u.loop.i % a->n], ret);
}

const struct jbuiltin jmethods_seq[] = {
    {"append", m_append, 1, 1, JB_LIST | JB_CHANGES, {"item"}},
    {"count", m_count, 1, 1, JB_LIST, {"value"}},
    {"cycle", m_cycle, 0, 0, JB_LOOP | JB_RAW, {NULL}},
    {"extend", m_extend, 1, 1, JB_LIST | JB_CHANGES, {"iterable"}},
    {"get", m_get, 1, 2, JB_OBJECT, {"key", "default"}},
    {"index", m_index, 1, 1, JB_LIST, {"value"}},
    {"insert", m_insert, 2, 2, JB_LIST | JB_CHANGES, {"index", "item"}},
    {"items", m_items, 0, 0, JB_OBJECT, {NULL}},
    {"keys", m_keys, 0, 0, JB_OBJECT, {NULL}},
    {"pop", m_pop_item, 0, 1, JB_LIST | JB_CHANGES, {"index"}},
    {"pop", m_pop_key, 1, 2, JB_OBJECT | JB_CHANGES, {"key", "default"}},
    {"setdefault", m_setdefault, 1, 2, JB_OBJECT | JB_CHANGES, {"key", "default"}},
    {"update", m_update, 0, 0, JB_OBJECT | JB_RAW | JB_CHANGES, {NULL}},
    {"values", m_values, 0, 0, JB_OBJECT, {NULL}},
    {NULL, NULL, 0, 0, 0, {NULL}},
};
