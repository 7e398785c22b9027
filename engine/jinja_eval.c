/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions: names, access, calls, filters, tests, logic. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <assert.h>
#include <errno.h>

/* The arguments of a call, evaluated. */
struct evaluated {
    struct jinja_heap *heap;
    struct jargs a;
    struct jinja_value *few[6];
    size_t n_many; /* of a.v when it is allocated */
};

static void evaluated_done(struct evaluated *x)
{
    for (uint32_t i = 0; i < x->a.n; i++)
        jinja_unref(x->a.v[i]);
    if (x->n_many)
        jheap_free(x->heap, x->a.v, x->n_many * sizeof(struct jinja_value *));
}

static int eval_arguments(struct jrun *r, const struct jnode *n, struct evaluated *x)
{
    int rc = 0;

    x->heap = &r->heap;
    x->a = (struct jargs){.v = x->few, .n_pos = n->n_pos, .names = n->names};
    if (n->n > sizeof(x->few) / sizeof(x->few[0])) {
        x->a.v = jheap_alloc(&r->heap, n->n * sizeof(struct jinja_value *));
        if (!x->a.v)
            return jfail_nomem(r);
        x->n_many = n->n;
    }
    for (uint32_t i = 0; i < n->n && rc == 0; i++) {
        rc = jeval(r, n->v[i], &x->a.v[i]);
        if (rc == 0)
            x->a.n++;
    }
    return rc;
}

/* --- names and what hangs on them --------------------------------------------------------------
 */

static int eval_name(struct jrun *r, uint32_t name, struct jinja_value **ret)
{
    const struct jname *text = &r->t->names[name];
    struct jinja_value *v;
    const struct jbuiltin *fn;
    uint64_t n = 0;

    for (struct jinja_value *s = r->scope; s; s = s->u.scope.parent) {
        for (uint32_t i = 0; i < s->u.scope.n; i++) {
            if (s->u.scope.v[i].name == name) {
                *ret = jinja_ref(s->u.scope.v[i].value);
                return n + i >= 16 ? jstep(r, (n + i) / 16) : 0;
            }
        }
        n += s->u.scope.n + 1;
    }
    v = jobject_find_text(r->globals, text->s, text->n);
    if (v) {
        *ret = jinja_ref(v);
        return 0;
    }
    fn = jfunction_find(text->s, text->n);
    if (fn) {
        v = jv_new(&r->heap, JT_FUNCTION, 0);
        if (!v)
            return jfail_nomem(r);
        v->u.method.fn = fn;
        *ret = v;
        return 0;
    }
    *ret = &jv_undefined;
    return n >= 16 ? jstep(r, n / 16) : 0;
}

/* The words for a fault on something undefined: its name as it stands in the template. */
static int fail_undefined(struct jrun *r, const struct jnode *n)
{
    const struct jname *name =
        n->kind == JN_NAME || n->kind == JN_ATTR ? &r->t->names[n->name] : NULL;

    r->line = n->line;
    if (!name)
        return jfail(r, -EINVAL, "a value is undefined");
    return jfail(r, -EINVAL,
                 n->kind == JN_NAME ? "'%s' is undefined" : "attribute '%s' is undefined", name->s);
}

static int eval_attr(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF of = NULL;
    int rc = jeval(r, n->a, &of);

    if (rc < 0)
        return rc;
    if (of->type == JT_UNDEFINED)
        return fail_undefined(r, n->a);
    r->line = n->line;
    return jop_attr(r, of, n->name, ret);
}

static int eval_item(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF of = NULL;
    JREF key = NULL;
    int rc = jeval(r, n->a, &of);

    if (rc == 0)
        rc = jeval(r, n->b, &key);
    if (rc < 0)
        return rc;
    if (of->type == JT_UNDEFINED)
        return fail_undefined(r, n->a);
    r->line = n->line;
    return jop_item(r, of, key, ret);
}

static int eval_slice(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    struct jinja_value *idx[3] = {NULL, NULL, NULL};
    JREF of = NULL;
    int rc = jeval(r, n->a, &of);

    for (int i = 0; i < 3 && rc == 0; i++)
        if (n->v[i])
            rc = jeval(r, n->v[i], &idx[i]);
    r->line = n->line;
    if (rc == 0)
        rc = of->type == JT_UNDEFINED ? fail_undefined(r, n->a) : jop_slice(r, of, idx, ret);
    for (int i = 0; i < 3; i++)
        jinja_unref(idx[i]);
    return rc;
}

int jcall(struct jrun *r, struct jinja_value *fn, const struct jargs *args,
          struct jinja_value **ret)
{
    if (fn->type == JT_MACRO)
        return jcall_macro(r, fn, args, ret);
    if (fn->type == JT_METHOD || fn->type == JT_FUNCTION)
        return jbuiltin_call(r, fn->u.method.fn, fn->u.method.self, args, ret);
    return jfail(r, -EINVAL, "%s cannot be called", jv_type_name(fn));
}

static int eval_call(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    CLEANUP(evaluated_done) struct evaluated x = {0};
    JREF fn = NULL;
    int rc = jeval(r, n->a, &fn);

    if (rc < 0)
        return rc;
    if (fn->type == JT_UNDEFINED)
        return fail_undefined(r, n->a);
    rc = eval_arguments(r, n, &x);
    if (rc < 0)
        return rc;
    r->line = n->line;
    return jcall(r, fn, &x.a, ret);
}

static int eval_builtin(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    CLEANUP(evaluated_done) struct evaluated x = {0};
    JREF of = NULL;
    JREF result = NULL;
    int rc = jeval(r, n->a, &of);

    if (rc == 0)
        rc = eval_arguments(r, n, &x);
    r->line = n->line;
    if (rc == 0)
        rc = jbuiltin_call(r, n->fn, of, &x.a, &result);
    if (rc < 0)
        return rc;
    if (n->kind == JN_TEST && n->op)
        *ret = jv_of_bool(!jv_truth(result));
    else
        *ret = TAKE(result);
    return 0;
}

/* --- operators ---------------------------------------------------------------------------------
 */

static int eval_arith(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF sum = NULL;
    int rc = jeval(r, n->v[0], &sum);

    for (uint32_t i = 1; i < n->n && rc == 0; i++) {
        JREF next = NULL;
        struct jinja_value *result = NULL;

        rc = jeval(r, n->v[i], &next);
        if (rc < 0)
            break;
        r->line = n->v[i]->line;
        if (sum->type == JT_UNDEFINED)
            return fail_undefined(r, n->v[i - 1]);
        if (next->type == JT_UNDEFINED)
            return fail_undefined(r, n->v[i]);
        rc = jop_arith(r, (enum jop)n->ops[i - 1], sum, next, &result);
        if (rc == 0) {
            jinja_unref(sum);
            sum = result;
        }
    }
    if (rc == 0)
        *ret = TAKE(sum);
    return rc;
}

static int eval_concat(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    int rc = 0;

    for (uint32_t i = 0; i < n->n && rc == 0; i++) {
        JREF v = NULL;

        rc = jeval(r, n->v[i], &v);
        if (rc == 0)
            rc = jprint(r, &out, v);
    }
    if (rc == 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

static int eval_logic(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    for (uint32_t i = 0;; i++) {
        JREF v = NULL;
        int rc = jeval(r, n->v[i], &v);

        if (rc < 0)
            return rc;
        if (i + 1 == n->n || jv_truth(v) == (n->kind == JN_OR)) {
            *ret = TAKE(v);
            return 0;
        }
    }
}

static int eval_negate(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF v = NULL;
    int64_t i;
    int rc = jeval(r, n->a, &v);

    if (rc < 0)
        return rc;
    if (v->type == JT_UNDEFINED)
        return fail_undefined(r, n->a);
    r->line = n->line;
    if (v->type == JT_FLOAT)
        *ret = jv_new_float(&r->heap, n->op ? v->u.f : -v->u.f);
    else if (jv_integer(v, &i) && i != INT64_MIN)
        *ret = jv_new_int(&r->heap, n->op ? i : -i);
    else
        return jfail(r, -EINVAL, "%s has no negative", jv_type_name(v));
    return *ret ? 0 : jfail_nomem(r);
}

static int eval_compare(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF left = NULL;
    bool holds = true;
    int rc = jeval(r, n->v[0], &left);

    for (uint32_t i = 1; i < n->n && rc == 0 && holds; i++) {
        JREF right = NULL;

        rc = jeval(r, n->v[i], &right);
        if (rc < 0)
            break;
        r->line = n->line;
        rc = jop_compare(r, (enum jop)n->ops[i - 1], left, right, &holds);
        jinja_unref(left);
        left = TAKE(right);
    }
    if (rc == 0)
        *ret = jv_of_bool(holds);
    return rc;
}

static int eval_cond(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF cond = NULL;
    int rc = jeval(r, n->b, &cond);

    if (rc < 0)
        return rc;
    if (jv_truth(cond))
        return jeval(r, n->a, ret);
    if (n->c)
        return jeval(r, n->c, ret);
    *ret = &jv_undefined;
    return 0;
}

static int eval_list(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF list = jv_new(&r->heap, n->kind == JN_LIST ? JT_LIST : JT_TUPLE, 0);
    int rc = 0;

    if (!list || (n->n && jlist_reserve(list, n->n) < 0))
        return jfail_nomem(r);
    for (uint32_t i = 0; i < n->n && rc == 0; i++) {
        rc = jeval(r, n->v[i], &list->u.list.v[i]);
        if (rc == 0)
            list->u.list.n++;
    }
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}

static int eval_dict(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF object = jv_new(&r->heap, JT_OBJECT, 0);

    if (!object)
        return jfail_nomem(r);
    for (uint32_t i = 0; i < n->n; i += 2) {
        JREF key = NULL;
        JREF value = NULL;
        int rc = jeval(r, n->v[i], &key);

        if (rc == 0)
            rc = jeval(r, n->v[i + 1], &value);
        if (rc < 0)
            return rc;
        if (!jv_can_be_key(key))
            return jfail(r, -EINVAL, "%s cannot be a key", jv_type_name(key));
        if (jobject_put(object, key, value) < 0)
            return jfail_nomem(r);
        key = value = NULL;
    }
    *ret = TAKE(object);
    return 0;
}

static int eval_not(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    JREF v = NULL;
    int rc = jeval(r, n->a, &v);

    if (rc == 0)
        *ret = jv_of_bool(!jv_truth(v));
    return rc;
}

static int eval_one(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    switch (n->kind) {
    case JN_CONST:
        *ret = jinja_ref(n->value ? n->value : r->captured);
        return 0;
    case JN_NAME:
        return eval_name(r, n->name, ret);
    case JN_ATTR:
        return eval_attr(r, n, ret);
    case JN_ITEM:
        return eval_item(r, n, ret);
    case JN_SLICE:
        return eval_slice(r, n, ret);
    case JN_CALL:
        return eval_call(r, n, ret);
    case JN_FILTER:
    case JN_TEST:
        return eval_builtin(r, n, ret);
    case JN_ARITH:
        return eval_arith(r, n, ret);
    case JN_CONCAT:
        return eval_concat(r, n, ret);
    case JN_AND:
    case JN_OR:
        return eval_logic(r, n, ret);
    case JN_NOT:
        return eval_not(r, n, ret);
    case JN_NEGATE:
        return eval_negate(r, n, ret);
    case JN_COMPARE:
        return eval_compare(r, n, ret);
    case JN_COND:
        return eval_cond(r, n, ret);
    case JN_LIST:
    case JN_TUPLE:
        return eval_list(r, n, ret);
    default:
        assert(n->kind == JN_DICT);
        return eval_dict(r, n, ret);
    }
}

int jeval(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    int rc;

    r->line = n->line;
    rc = jstep(r, 1);
    if (rc < 0)
        return rc;
    if (r->frames >= r->max_frames)
        return jfail(r, ERR_CAPACITY, "nested too deeply");
    r->frames++;
    rc = eval_one(r, n, ret);
    r->frames--;
    return rc;
}
