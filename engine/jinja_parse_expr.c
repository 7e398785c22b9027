/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions.  From low to high: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary
 * minus, then .a [b] (c), then filters and tests. */
#include "engine/jinja_private.h"

#include "util/buf.h"
#include "util/cleanup.h"

#include <errno.h>

static bool enter(struct jparser *p)
{
    if (++p->depth <= JPARSE_DEPTH)
        return true;
    (void)jparse_fail(p, ERR_UNSUPPORTED, "nested too deeply");
    return false;
}

/* --- behind a primary --------------------------------------------------------------------------
 */

/* Behind "(": into v, n, n_pos, names of `call`. */
static int arguments(struct jparser *p, struct jnode *call)
{
    struct jlist l = {0};
    uint32_t names[64], n_names = 0, *copy;

    while (!jparse_skip(p, JK_OP, ")")) {
        if (p->err || (l.n > 0 && jparse_expect(p, JK_OP, ",") < 0))
            return p->err;
        if (jparse_skip(p, JK_OP, ")"))
            break;
        if (jparse_is(p, "*") || jparse_is(p, "**")) {
            (void)jparse_fail(p, ERR_UNSUPPORTED, "arguments with * are not supported");
            return p->err;
        }
        if (p->tok->kind == JK_NAME && jtoken_is(p->tok + 1, JK_OP, "=")) {
            if (n_names == 64)
                (void)jparse_fail(p, ERR_UNSUPPORTED, "too many arguments by name");
            else if (jparse_name(p, &names[n_names]) == 0)
                p->t->names[names[n_names++]].is_key = true;
            p->tok++;
        } else if (n_names > 0) {
            (void)jparse_unexpected(p, "an argument by name");
        }
        (void)jlist_add_node(p, &l, p->err ? NULL : jparse_expr(p, true));
    }
    if (p->err)
        return p->err;
    copy = jarena(p->t, (n_names + 1) * sizeof(*copy));
    if (!copy) {
        (void)jparse_nomem(p);
        return p->err;
    }
    memcpy(copy, names, n_names * sizeof(*copy));
    call->v = l.v;
    call->n = l.n;
    call->n_pos = l.n - n_names;
    call->names = copy;
    return 0;
}

static struct jnode *parse_call(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JN_CALL, p->tok->line);
    struct jname *name = of->kind == JN_NAME || of->kind == JN_ATTR ? &p->t->names[of->name] : NULL;

    if (!n)
        return NULL;
    n->a = of;
    if (name && of->kind == JN_NAME && !name->called_line)
        name->called_line = n->line;
    if (name && of->kind == JN_ATTR && !name->method_line)
        name->method_line = n->line;
    p->tok++;
    return arguments(p, n) == 0 ? n : NULL;
}

static struct jnode *subscript(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JN_ITEM, p->tok->line);
    struct jlist l = {0};

    if (!n)
        return NULL;
    n->a = of;
    p->tok++;
    if (!jparse_is(p, ":"))
        n->b = jparse_expr(p, true);
    if (jparse_is(p, ",") && !p->err)
        return jparse_fail(p, ERR_UNSUPPORTED, "a tuple as subscript is not supported");
    if (jparse_is(p, ":")) {
        n->kind = JN_SLICE;
        (void)jlist_add_node(p, &l, n->b);
        while (l.n < 3 && jparse_skip(p, JK_OP, ":")) {
            bool is_empty = jparse_is(p, ":") || jparse_is(p, "]");

            (void)jlist_add_node(p, &l, is_empty ? NULL : jparse_expr(p, true));
        }
        while (l.n < 3 && !p->err)
            (void)jlist_add_node(p, &l, NULL);
        n->v = l.v;
        n->n = l.n;
    }
    return jparse_expect(p, JK_OP, "]") == 0 ? n : NULL;
}

static struct jnode *attribute(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jnode_new(p, JN_ATTR, p->tok->line);

    if (!n)
        return NULL;
    p->tok++;
    n->a = of;
    if (p->tok->kind == JK_INT) {
        n->kind = JN_ITEM;
        n->b = jparse_number(p);
        return n->b ? n : NULL;
    }
    if (jtoken_is(p->tok, JK_NAME, NULL) && jmethod_find(p->tok->s, p->tok->n, JB_CHANGES))
        p->t->changes_values = true;
    return jparse_name(p, &n->name) == 0 ? n : NULL;
}

static struct jnode *postfix(struct jparser *p, struct jnode *n)
{
    while (n && !p->err) {
        if (jparse_is(p, "."))
            n = attribute(p, n);
        else if (jparse_is(p, "["))
            n = subscript(p, n);
        else if (jparse_is(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jnode *call_builtin(struct jparser *p, enum jnode_kind kind, struct jnode *of)
{
    const struct jtoken *t = p->tok;
    struct jnode *n = jnode_new(p, kind, t->line);
    const char *what = kind == JN_TEST ? "test" : "filter";
    char shown[64];

    if (!n || jparse_expect(p, JK_NAME, NULL) < 0)
        return NULL;
    n->a = of;
    n->fn = kind == JN_TEST ? jtest_find(t->s, t->n) : jfilter_find(t->s, t->n);
    if (!n->fn) {
        p->tok--;
        return jparse_fail(p, ERR_UNSUPPORTED, "the %s '%s' is not supported", what,
                           err_escape(shown, sizeof(shown), t->s, t->n));
    }
    return n;
}

static int check(struct jparser *p, const struct jnode *n, const char *what)
{
    if (!p->err)
        p->err = jbuiltin_check(p->t, n->fn, n, p->e, what);
    return p->err;
}

struct jnode *jparse_filter(struct jparser *p, struct jnode *n)
{
    (void)jparse_skip(p, JK_OP, "|");
    do {
        n = call_builtin(p, JN_FILTER, n);
        if (n && jparse_skip(p, JK_OP, "("))
            (void)arguments(p, n);
        if (!n || check(p, n, "filter") < 0)
            return NULL;
    } while (jparse_skip(p, JK_OP, "|"));
    return n;
}

/* What can follow `is test` as its argument without parentheses. */
static bool begins_argument(const struct jparser *p)
{
    static const char *const not [] = {"else", "or", "and", "if", "in", "not", "is"};

    if (p->tok->kind == JK_NAME) {
        for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
            if (jtoken_is(p->tok, JK_NAME, not [i]))
                return false;
        return true;
    }
    return p->tok->kind == JK_STRING || p->tok->kind == JK_INT || p->tok->kind == JK_FLOAT ||
           jparse_is(p, "[") || jparse_is(p, "{");
}

/* Behind `is`. */
static struct jnode *parse_test(struct jparser *p, struct jnode *of)
{
    bool negated = jparse_skip(p, JK_NAME, "not");
    struct jnode *n = call_builtin(p, JN_TEST, of);
    struct jlist l = {0};

    if (!n)
        return NULL;
    n->op = negated;
    if (of->kind == JN_NAME)
        p->t->names[of->name].is_asked = true;
    if (jparse_skip(p, JK_OP, "(")) {
        (void)arguments(p, n);
    } else if (n->fn->n_max > 0 && begins_argument(p)) {
        struct jnode *arg = jparse_primary(p);

        (void)jlist_add_node(p, &l, arg ? postfix(p, arg) : NULL);
        n->v = l.v;
        n->n = n->n_pos = l.n;
    }
    return check(p, n, "test") < 0 ? NULL : n;
}

static struct jnode *filters_and_tests(struct jparser *p, struct jnode *n)
{
    while (n && !p->err) {
        if (jparse_is(p, "|"))
            n = jparse_filter(p, n);
        else if (jparse_skip(p, JK_NAME, "is"))
            n = parse_test(p, n);
        else if (jparse_is(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* --- operators ---------------------------------------------------------------------------------
 */

static struct jnode *unary(struct jparser *p, bool with_filter)
{
    struct jnode *n;

    if (p->err || !enter(p))
        return NULL;
    if (jparse_is(p, "-") || jparse_is(p, "+")) {
        n = jnode_new(p, JN_NEGATE, p->tok->line);
        if (!n)
            return NULL;
        n->op = jparse_is(p, "+");
        p->tok++;
        n->a = unary(p, false);
    } else {
        n = jparse_primary(p);
    }
    n = postfix(p, n);
    if (with_filter)
        n = filters_and_tests(p, n);
    p->depth--;
    return p->err ? NULL : n;
}

enum level { L_ADD, L_CONCAT, L_MUL, L_POW, L_UNARY };

static bool level_op(const struct jparser *p, enum level level, uint8_t *ret_op)
{
    static const struct {
        uint8_t level, op;
        const char *s;
    } ops[] = {{L_ADD, JO_ADD, "+"},       {L_ADD, JO_SUB, "-"}, {L_CONCAT, 0, "~"},
               {L_MUL, JO_MUL, "*"},       {L_MUL, JO_DIV, "/"}, {L_MUL, JO_MOD, "%"},
               {L_MUL, JO_FLOORDIV, "//"}, {L_POW, JO_POW, "**"}};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i].level == level && jparse_is(p, ops[i].s)) {
            *ret_op = ops[i].op;
            return true;
        }
    }
    return false;
}

/* Chains of one kind; `next` parses their members. */
static struct jnode *chain(struct jparser *p, enum jnode_kind kind, struct jlist *l,
                           const struct buf *ops, uint32_t line)
{
    struct jnode *n;

    if (p->err || l->n == 1)
        return p->err ? NULL : l->v[0];
    n = jnode_new(p, kind, line);
    if (!n)
        return NULL;
    n->v = l->v;
    n->n = l->n;
    if (ops->len) {
        n->ops = jarena(p->t, ops->len);
        if (!n->ops)
            return jparse_nomem(p);
        memcpy(n->ops, ops->data, ops->len);
    }
    return n;
}

static struct jnode *binary(struct jparser *p, enum level level)
{
    CLEANUP(buf_done) struct buf ops = {0};
    struct jlist l = {0};
    uint32_t line = p->tok->line;
    uint8_t op;

    if (level == L_UNARY)
        return unary(p, true);
    (void)jlist_add_node(p, &l, binary(p, level + 1));
    while (!p->err && level_op(p, level, &op)) {
        p->tok++;
        if (buf_add(&ops, &op, 1) < 0)
            return jparse_nomem(p);
        (void)jlist_add_node(p, &l, binary(p, level + 1));
    }
    return chain(p, level == L_CONCAT ? JN_CONCAT : JN_ARITH, &l, &ops, line);
}

static bool compare_op(struct jparser *p, uint8_t *ret_op)
{
    static const char words[][3] = {"==", "!=", "<", "<=", ">", ">="};

    for (uint8_t i = 0; i < 6; i++) {
        if (jparse_skip(p, JK_OP, words[i])) {
            *ret_op = (uint8_t)(JO_EQ + i);
            return true;
        }
    }
    *ret_op = JO_IN;
    if (jparse_skip(p, JK_NAME, "in"))
        return true;
    *ret_op = JO_NOT_IN;
    if (jtoken_is(p->tok, JK_NAME, "not") && jtoken_is(p->tok + 1, JK_NAME, "in")) {
        p->tok += 2;
        return true;
    }
    return false;
}

static struct jnode *compare(struct jparser *p)
{
    CLEANUP(buf_done) struct buf ops = {0};
    struct jlist l = {0};
    uint32_t line = p->tok->line;
    uint8_t op;

    (void)jlist_add_node(p, &l, binary(p, L_ADD));
    while (!p->err && compare_op(p, &op)) {
        if (buf_add(&ops, &op, 1) < 0)
            return jparse_nomem(p);
        (void)jlist_add_node(p, &l, binary(p, L_ADD));
    }
    return chain(p, JN_COMPARE, &l, &ops, line);
}

static struct jnode *parse_not(struct jparser *p)
{
    struct jnode *n;

    if (!jtoken_is(p->tok, JK_NAME, "not"))
        return compare(p);
    n = jnode_new(p, JN_NOT, p->tok->line);
    if (!n || !enter(p))
        return NULL;
    p->tok++;
    n->a = parse_not(p);
    p->depth--;
    return n->a ? n : NULL;
}

static struct jnode *logic(struct jparser *p, bool is_or)
{
    static const struct buf none = {0};
    struct jlist l = {0};
    uint32_t line = p->tok->line;

    do
        (void)jlist_add_node(p, &l, is_or ? logic(p, false) : parse_not(p));
    while (jparse_skip(p, JK_NAME, is_or ? "or" : "and"));
    return chain(p, is_or ? JN_OR : JN_AND, &l, &none, line);
}

struct jnode *jparse_expr(struct jparser *p, bool with_cond)
{
    uint32_t line = p->tok->line;
    struct jnode *n, *cond;

    if (p->err || !enter(p))
        return NULL;
    n = logic(p, true);
    while (with_cond && jparse_skip(p, JK_NAME, "if")) {
        cond = jnode_new(p, JN_COND, line);
        if (!cond)
            return NULL;
        cond->a = n;
        cond->b = logic(p, true);
        if (jparse_skip(p, JK_NAME, "else"))
            cond->c = jparse_expr(p, true);
        n = cond;
    }
    p->depth--;
    return p->err ? NULL : n;
}
