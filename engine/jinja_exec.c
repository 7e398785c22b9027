/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, scopes, macros. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <assert.h>
#include <errno.h>

/* What jexec returns beside 0 and errors. */
enum { FLOW_BREAK = 1, FLOW_CONTINUE = 2 };

/* --- scopes ------------------------------------------------------------------------------------
 */

int jscope_set(struct jrun *r, uint32_t name, struct jinja_value *v)
{
    struct jinja_value *s = r->scope, *old;
    uint32_t i = 0, cap;
    void *p;

    while (i < s->u.scope.n && s->u.scope.v[i].name != name)
        i++;
    if (i >= 16 && jstep(r, i / 16) < 0)
        return ERR_CAPACITY;
    if (i < s->u.scope.n) {
        old = s->u.scope.v[i].value;
        s->u.scope.v[i].value = jinja_ref(v);
        jinja_unref(old);
        return 0;
    }
    if (i == s->u.scope.cap) {
        cap = i ? i * 2 : 4;
        p = jheap_realloc(&r->heap, s->u.scope.v, i * sizeof(struct jvar),
                          cap * sizeof(struct jvar));
        if (!p)
            return jfail_nomem(r);
        s->u.scope.v = p;
        s->u.scope.cap = cap;
    }
    s->u.scope.v[i] = (struct jvar){.name = name, .value = jinja_ref(v)};
    s->u.scope.n++;
    return 0;
}

int jscope_push(struct jrun *r, struct jinja_value *parent, struct jinja_value **ret_old)
{
    struct jinja_value *s = jv_new(&r->heap, JT_SCOPE, 0);

    if (!s)
        return jfail_nomem(r);
    s->u.scope.parent = jinja_ref(parent);
    *ret_old = r->scope;
    r->scope = s;
    return 0;
}

void jscope_pop(struct jrun *r, struct jinja_value *old)
{
    jinja_unref(r->scope);
    r->scope = old;
}

/* For the next iteration: empty, and another one if a macro holds the last. */
static int scope_renew(struct jrun *r)
{
    struct jinja_value *s = r->scope, *old = NULL;
    int rc;

    if (__atomic_load_n(&s->refs, __ATOMIC_RELAXED) == 1) {
        while (s->u.scope.n > 0)
            jinja_unref(s->u.scope.v[--s->u.scope.n].value);
        return 0;
    }
    rc = jscope_push(r, s->u.scope.parent, &old);
    if (rc == 0)
        jinja_unref(old);
    return rc;
}

/* --- assigning ---------------------------------------------------------------------------------
 */

static int lookup_namespace(struct jrun *r, const struct jnode *n, struct jinja_value **ret)
{
    int rc = jeval(r, n, ret);

    if (rc == 0 && (*ret)->type != JT_NAMESPACE)
        return jfail(r, -EINVAL, "attributes can be set on namespaces only, not on %s",
                     jv_type_name(*ret));
    return rc;
}

static int assign_tuple(struct jrun *r, const struct jnode *target, struct jinja_value *v)
{
    JREF items = NULL;
    int rc = jop_items(r, v, false, &items);

    if (rc < 0)
        return rc;
    if (items->u.list.n != target->n)
        return jfail(r, -EINVAL, "%zu values for %u names", items->u.list.n, target->n);
    for (uint32_t i = 0; i < target->n && rc == 0; i++)
        rc = jassign(r, target->v[i], items->u.list.v[i]);
    return rc;
}

int jassign(struct jrun *r, const struct jnode *target, struct jinja_value *v)
{
    JREF object = NULL;
    JREF key = NULL;
    int rc;

    if (target->kind == JN_NAME)
        return jscope_set(r, target->name, v);
    if (target->kind == JN_TUPLE)
        return assign_tuple(r, target, v);
    assert(target->kind == JN_ATTR);
    rc = lookup_namespace(r, target->a, &object);
    if (rc < 0)
        return rc;
    key = jv_new_string(&r->heap, r->t->names[target->name].s, r->t->names[target->name].n, false);
    if (!key || jobject_put(object, key, v) < 0)
        return jfail_nomem(r);
    (void)jinja_ref(v);
    key = NULL;
    return 0;
}

/* --- output ------------------------------------------------------------------------------------
 */

static int print(struct jrun *r, const struct jnode *n)
{
    JREF v = NULL;
    int rc = jeval(r, n->a, &v);

    if (rc < 0)
        return rc;
    r->line = n->line;
    return jprint(r, r->out, v);
}

int jexec_capture(struct jrun *r, const struct jnode *body, struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap}, *old = r->out;
    int rc;

    r->out = &out;
    rc = jexec(r, body);
    r->out = old;
    if (rc >= 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

/* {% set x %}..., {% filter f %}... */
static int capture(struct jrun *r, const struct jnode *n)
{
    JREF v = NULL;
    struct jinja_value *old = NULL;
    uint32_t loops = r->loops;
    int rc, flow;

    rc = jscope_push(r, r->scope, &old);
    if (rc < 0)
        return rc;
    flow = jexec_capture(r, n->b, &v);
    jscope_pop(r, old);
    r->loops = loops;
    if (flow != 0) {
        /* A break out of the block: what it wrote is lost, as with any loop left early. */
        return flow;
    }
    if (n->c) {
        /* The filters stand around a constant without a value: that is what was captured. */
        JREF filtered = NULL;
        struct jinja_value *outer = r->captured;

        r->captured = v;
        rc = jeval(r, n->c, &filtered);
        r->captured = outer;
        if (rc < 0)
            return rc;
        jinja_unref(v);
        v = TAKE(filtered);
    }
    return n->a ? jassign(r, n->a, v) : jprint(r, r->out, v);
}

/* --- blocks ------------------------------------------------------------------------------------
 */

static int exec_if(struct jrun *r, const struct jnode *n)
{
    for (uint32_t i = 0; i < n->n; i += 2) {
        JREF cond = NULL;
        int rc = jeval(r, n->v[i], &cond);

        if (rc < 0)
            return rc;
        if (jv_truth(cond))
            return jexec(r, n->v[i + 1]);
    }
    return n->a ? jexec(r, n->a) : 0;
}

static int exec_scoped(struct jrun *r, const struct jnode *body)
{
    struct jinja_value *old = NULL;
    int rc = jscope_push(r, r->scope, &old);

    if (rc < 0)
        return rc;
    rc = jexec(r, body);
    jscope_pop(r, old);
    return rc;
}

/* The items that the loop's own `if` keeps. */
static int keep(struct jrun *r, const struct jnode *n, struct jinja_value **items)
{
    JREF kept = jv_new(&r->heap, JT_LIST, 0);
    struct jinja_value *all = *items;
    int rc = 0;

    if (!kept)
        return jfail_nomem(r);
    for (size_t i = 0; i < all->u.list.n; i++) {
        JREF cond = NULL;

        rc = scope_renew(r);
        if (rc == 0)
            rc = jassign(r, n->a, all->u.list.v[i]);
        if (rc == 0)
            rc = jeval(r, n->c, &cond);
        if (rc < 0)
            return rc;
        if (!jv_truth(cond))
            continue;
        if (jlist_push(kept, all->u.list.v[i]) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(all->u.list.v[i]);
    }
    *items = TAKE(kept);
    jinja_unref(all);
    return 0;
}

static int iterate(struct jrun *r, const struct jnode *n, struct jinja_value **items)
{
    JREF loop = NULL;
    int rc = 0;

    if (n->c) {
        rc = keep(r, n, items);
        if (rc < 0)
            return rc;
    }
    loop = jv_new(&r->heap, JT_LOOP, 0);
    if (!loop)
        return jfail_nomem(r);
    loop->u.loop.items = jinja_ref(*items);
    loop->u.loop.depth = r->loops;
    for (size_t i = 0; i < (*items)->u.list.n; i++) {
        r->line = n->line;
        rc = jstep(r, 1);
        if (rc == 0)
            rc = scope_renew(r);
        loop->u.loop.i = i;
        if (rc == 0)
            rc = jscope_set(r, r->t->name_loop, loop);
        if (rc == 0)
            rc = jassign(r, n->a, (*items)->u.list.v[i]);
        if (rc == 0)
            rc = jexec(r, n->v[0]);
        if (rc == FLOW_BREAK)
            return 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int exec_for(struct jrun *r, const struct jnode *n)
{
    JREF of = NULL;
    JREF items = NULL;
    struct jinja_value *old = NULL;
    int rc = jeval(r, n->b, &of);

    r->line = n->line;
    if (rc == 0)
        rc = jop_items(r, of, r->t->changes_values, &items);
    if (rc < 0)
        return rc;
    rc = jscope_push(r, r->scope, &old);
    if (rc < 0)
        return rc;
    r->loops++;
    rc = iterate(r, n, &items);
    r->loops--;
    jscope_pop(r, old);
    if (rc == 0 && items->u.list.n == 0 && n->v[1])
        rc = exec_scoped(r, n->v[1]);
    return rc;
}

static int define_macro(struct jrun *r, const struct jnode *n)
{
    JREF m = jv_new(&r->heap, JT_MACRO, 0);

    if (!m)
        return jfail_nomem(r);
    m->u.macro.def = n;
    m->u.macro.scope = jinja_ref(r->scope);
    return jscope_set(r, n->name, m);
}

static int set(struct jrun *r, const struct jnode *n)
{
    JREF v = NULL;
    int rc = jeval(r, n->b, &v);

    if (rc < 0)
        return rc;
    r->line = n->line;
    return jassign(r, n->a, v);
}

static int exec_one(struct jrun *r, const struct jnode *n)
{
    int rc = 0;

    switch (n->kind) {
    case JN_TEXT:
        rc = jprint(r, r->out, n->value);
        return rc;
    case JN_PRINT:
        return print(r, n);
    case JN_BLOCK:
        for (uint32_t i = 0; i < n->n && rc == 0; i++)
            rc = jexec(r, n->v[i]);
        return rc;
    case JN_SCOPE:
        return exec_scoped(r, n->a);
    case JN_IF:
        return exec_if(r, n);
    case JN_FOR:
        return exec_for(r, n);
    case JN_SET:
        return set(r, n);
    case JN_CAPTURE:
        return capture(r, n);
    case JN_MACRO:
        return define_macro(r, n);
    case JN_BREAK:
        return FLOW_BREAK;
    default:
        assert(n->kind == JN_CONTINUE);
        return FLOW_CONTINUE;
    }
}

int jexec(struct jrun *r, const struct jnode *n)
{
    int rc;

    r->line = n->line;
    rc = jstep(r, 1);
    if (rc < 0)
        return rc;
    if (r->frames >= r->max_frames)
        return jfail(r, ERR_CAPACITY, "nested too deeply");
    r->frames++;
    rc = exec_one(r, n);
    r->frames--;
    return rc;
}

/* --- macros ------------------------------------------------------------------------------------
 */

/* In the macro's scope: its parameters, then the defaults of those that are missing. */
static int bind(struct jrun *r, const struct jnode *m, const struct jargs *a)
{
    const struct jname *names = r->t->names;
    int rc = 0;

    if (a->n_pos > m->n)
        return jfail(r, -EINVAL, "macro '%s' takes %u arguments, not %u", names[m->name].s, m->n,
                     a->n_pos);
    for (uint32_t i = 0; i < a->n_pos && rc == 0; i++)
        rc = jscope_set(r, m->names[i], a->v[i]);
    for (uint32_t k = a->n_pos; k < a->n && rc == 0; k++) {
        uint32_t name = a->names[k - a->n_pos], i = 0;

        while (i < m->n && m->names[i] != name)
            i++;
        if (i == m->n || i < a->n_pos)
            return jfail(r, -EINVAL, "macro '%s' does not take '%s' here", names[m->name].s,
                         names[name].s);
        rc = jscope_set(r, name, a->v[k]);
    }
    for (uint32_t i = a->n_pos; i < m->n && rc == 0; i++) {
        JREF v = NULL;
        bool is_given = false;

        for (uint32_t k = a->n_pos; k < a->n; k++)
            is_given |= a->names[k - a->n_pos] == m->names[i];
        if (is_given)
            continue;
        if (m->v[i])
            rc = jeval(r, m->v[i], &v);
        if (rc == 0)
            rc = jscope_set(r, m->names[i], v ? v : &jv_undefined);
    }
    return rc;
}

int jcall_macro(struct jrun *r, struct jinja_value *fn, const struct jargs *args,
                struct jinja_value **ret)
{
    const struct jnode *m = fn->u.macro.def;
    struct jinja_value *old = NULL;
    uint32_t loops = r->loops;
    int rc;

    if (r->calls >= r->lim.depth)
        return jfail(r, ERR_CAPACITY, "macros call each other deeper than %u", r->lim.depth);
    rc = jscope_push(r, fn->u.macro.scope, &old);
    if (rc < 0)
        return rc;
    r->calls++;
    r->loops = 0;
    rc = bind(r, m, args);
    if (rc == 0)
        rc = jexec_capture(r, m->a, ret);
    r->loops = loops;
    r->calls--;
    jscope_pop(r, old);
    return rc;
}
