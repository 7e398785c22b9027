/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. */
#include "engine/jinja_private.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* --- what all parsing uses ---------------------------------------------------------------------
 */

struct jnode *jparse_fail(struct jparser *p, int code, const char *fmt, ...)
{
    char words[384];
    va_list ap;

    if (p->err)
        return NULL;
    va_start(ap, fmt);
    (void)vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    p->err = err_set(p->e, code, "line %u: %s", p->tok->line, words);
    return NULL;
}

struct jnode *jparse_nomem(struct jparser *p)
{
    if (!p->err)
        p->err = err_set(p->e, -ENOMEM, "no memory for the template");
    return NULL;
}

struct jnode *jparse_unexpected(struct jparser *p, const char *wanted)
{
    static const char *const kinds[] = {[JK_END] = "the end of the template",
                                        [JK_TEXT] = "text",
                                        [JK_PRINT_BEGIN] = "{{",
                                        [JK_PRINT_END] = "}}",
                                        [JK_BLOCK_BEGIN] = "{%",
                                        [JK_BLOCK_END] = "%}"};
    const struct jtoken *t = p->tok;
    char shown[64];

    if (t->kind <= JK_BLOCK_END)
        return jparse_fail(p, ERR_DAMAGED, "%s expected, not %s", wanted, kinds[t->kind]);
    return jparse_fail(p, ERR_DAMAGED, "%s expected, not '%s'", wanted,
                       err_escape(shown, sizeof(shown), t->s, t->n));
}

struct jnode *jnode_new(struct jparser *p, enum jnode_kind kind, uint32_t line)
{
    struct jnode *n = p->err ? NULL : jarena(p->t, sizeof(*n));

    if (!n)
        return jparse_nomem(p);
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

int jlist_add_node(struct jparser *p, struct jlist *l, struct jnode *n)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        struct jnode **v = jarena(p->t, cap * sizeof(struct jnode *));

        if (!v) {
            (void)jparse_nomem(p);
            return -ENOMEM;
        }
        if (l->n)
            memcpy(v, l->v, l->n * sizeof(struct jnode *));
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return 0;
}

bool jtoken_is(const struct jtoken *t, uint8_t kind, const char *s)
{
    return t->kind == kind && (!s || (t->n == strlen(s) && memcmp(t->s, s, t->n) == 0));
}

bool jparse_skip(struct jparser *p, uint8_t kind, const char *s)
{
    if (p->err || !jtoken_is(p->tok, kind, s))
        return false;
    p->tok++;
    return true;
}

int jparse_expect(struct jparser *p, uint8_t kind, const char *s)
{
    char wanted[32];

    if (jparse_skip(p, kind, s))
        return 0;
    (void)snprintf(wanted, sizeof(wanted), s ? "'%s'" : "%s",
                   s                 ? s
                   : kind == JK_NAME ? "a name"
                                     : "the end of the tag");
    (void)jparse_unexpected(p, wanted);
    return p->err;
}

int jparse_name(struct jparser *p, uint32_t *ret)
{
    const struct jtoken *t = p->tok;
    int r = jparse_expect(p, JK_NAME, NULL);

    if (r < 0)
        return r;
    if (jintern(p->t, t->s, t->n, ret) < 0) {
        (void)jparse_nomem(p);
        return p->err;
    }
    return 0;
}

/* --- statements --------------------------------------------------------------------------------
 */

static struct jnode *block(struct jparser *p, const char *const *ends);

static struct jnode *end_of(struct jparser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct jnode *n = block(p, ends);

    if (n)
        p->tok++; /* its name: block() has made sure */
    return n && jparse_expect(p, JK_BLOCK_END, NULL) == 0 ? n : NULL;
}

/* Behind the head of a block statement: its body and its end. */
static struct jnode *body_to(struct jparser *p, const char *end)
{
    return jparse_expect(p, JK_BLOCK_END, NULL) == 0 ? end_of(p, end) : NULL;
}

/* a, (b, c), ns.x: what can be assigned to. */
static struct jnode *target(struct jparser *p, bool with_attr, bool with_tuple)
{
    uint32_t line = p->tok->line, name;
    struct jlist l = {0};
    struct jnode *n;

    if (p->depth > JPARSE_DEPTH)
        return jparse_fail(p, ERR_UNSUPPORTED, "nested too deeply");
    do {
        if (l.n && (jtoken_is(p->tok, JK_NAME, "in") || jtoken_is(p->tok, JK_OP, "=")))
            break;
        if (jparse_skip(p, JK_OP, "(")) {
            p->depth++;
            n = target(p, false, true);
            p->depth--;
            if (!n || jparse_expect(p, JK_OP, ")") < 0)
                return NULL;
        } else {
            if (jparse_name(p, &name) < 0)
                return NULL;
            n = jnode_new(p, JN_NAME, line);
            if (!n)
                return NULL;
            n->name = name;
            if (with_attr && l.n == 0 && jparse_skip(p, JK_OP, ".")) {
                struct jnode *attr = jnode_new(p, JN_ATTR, line);

                if (!attr || jparse_name(p, &attr->name) < 0)
                    return NULL;
                attr->a = n;
                p->t->names[attr->name].is_key = true;
                return attr;
            }
            p->t->names[name].is_set = true;
        }
        if (jlist_add_node(p, &l, n) < 0)
            return NULL;
    } while (with_tuple && jparse_skip(p, JK_OP, ","));
    if (l.n == 1 && !(with_tuple && jtoken_is(p->tok - 1, JK_OP, ",")))
        return l.v[0];
    n = jnode_new(p, JN_TUPLE, line);
    if (n) {
        n->v = l.v;
        n->n = l.n;
    }
    return n;
}

static struct jnode *parse_for(struct jparser *p, uint32_t line)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct jnode *n = jnode_new(p, JN_FOR, line);
    struct jlist l = {0};

    if (!n)
        return NULL;
    n->a = target(p, false, true);
    if (!n->a || jparse_expect(p, JK_NAME, "in") < 0)
        return NULL;
    n->b = jparse_tuple(p, false);
    if (n->b && jparse_skip(p, JK_NAME, "if"))
        n->c = jparse_expr(p, true);
    if (jtoken_is(p->tok, JK_NAME, "recursive"))
        return jparse_fail(p, ERR_UNSUPPORTED, "recursive loops are not supported");
    if (p->err || jparse_expect(p, JK_BLOCK_END, NULL) < 0)
        return NULL;
    p->loops++;
    (void)jlist_add_node(p, &l, block(p, ends));
    p->loops--;
    if (p->err)
        return NULL;
    if (jparse_skip(p, JK_NAME, "else")) {
        (void)jlist_add_node(p, &l, body_to(p, "endfor"));
    } else {
        p->tok++;
        (void)jlist_add_node(p, &l, NULL);
        (void)jparse_expect(p, JK_BLOCK_END, NULL);
    }
    n->v = l.v;
    n->n = l.n;
    return p->err ? NULL : n;
}

static struct jnode *parse_if(struct jparser *p, uint32_t line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnode *n = jnode_new(p, JN_IF, line);
    struct jlist l = {0};

    if (!n)
        return NULL;
    do {
        (void)jlist_add_node(p, &l, jparse_tuple(p, false));
        if (p->err || jparse_expect(p, JK_BLOCK_END, NULL) < 0)
            return NULL;
        (void)jlist_add_node(p, &l, block(p, ends));
    } while (jparse_skip(p, JK_NAME, "elif"));
    if (jparse_skip(p, JK_NAME, "else")) {
        n->a = body_to(p, "endif");
    } else if (!p->err) {
        p->tok++;
        (void)jparse_expect(p, JK_BLOCK_END, NULL);
    }
    n->v = l.v;
    n->n = l.n;
    return p->err ? NULL : n;
}

static struct jnode *filters(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JN_CONST, p->tok->line);

    return n ? jparse_filter(p, n) : NULL;
}

static struct jnode *parse_set(struct jparser *p, uint32_t line)
{
    struct jnode *n = jnode_new(p, JN_SET, line);

    if (!n)
        return NULL;
    n->a = target(p, true, true);
    if (!n->a)
        return NULL;
    if (jparse_skip(p, JK_OP, "=")) {
        n->b = jparse_tuple(p, true);
        return n->b && jparse_expect(p, JK_BLOCK_END, NULL) == 0 ? n : NULL;
    }
    if (n->a->kind == JN_TUPLE)
        return jparse_unexpected(p, "'='");
    n->kind = JN_CAPTURE;
    if (jtoken_is(p->tok, JK_OP, "|"))
        n->c = filters(p);
    n->b = p->err ? NULL : body_to(p, "endset");
    return n->b ? n : NULL;
}

static struct jnode *parse_filter_block(struct jparser *p, uint32_t line)
{
    struct jnode *n = jnode_new(p, JN_CAPTURE, line);

    if (!n)
        return NULL;
    /* {% filter upper %}: as if a | stood before the name. */
    n->c = filters(p);
    n->b = n->c ? body_to(p, "endfilter") : NULL;
    return n->b ? n : NULL;
}

static struct jnode *parse_macro(struct jparser *p, uint32_t line)
{
    struct jnode *n = jnode_new(p, JN_MACRO, line), *value;
    struct jlist l = {0};
    uint32_t names[64], loops = p->loops;
    uint32_t *copy;

    if (!n || jparse_name(p, &n->name) < 0 || jparse_expect(p, JK_OP, "(") < 0)
        return NULL;
    p->t->names[n->name].is_set = true;
    while (!jtoken_is(p->tok, JK_OP, ")")) {
        if (l.n > 0 && jparse_expect(p, JK_OP, ",") < 0)
            return NULL;
        if (l.n == 64)
            return jparse_fail(p, ERR_UNSUPPORTED, "a macro of more than 64 parameters");
        if (jparse_name(p, &names[l.n]) < 0)
            return NULL;
        p->t->names[names[l.n]].is_set = true;
        value = jparse_skip(p, JK_OP, "=") ? jparse_expr(p, true) : NULL;
        if (p->err || jlist_add_node(p, &l, value) < 0)
            return NULL;
    }
    p->tok++;
    copy = jarena(p->t, (l.n + 1) * sizeof(*copy));
    if (!copy)
        return jparse_nomem(p);
    memcpy(copy, names, l.n * sizeof(*copy));
    n->names = copy;
    n->v = l.v;
    n->n = l.n;
    p->loops = 0;
    n->a = body_to(p, "endmacro");
    p->loops = loops;
    return n->a ? n : NULL;
}

static struct jnode *statement(struct jparser *p)
{
    const struct jtoken *t = p->tok;
    char shown[64];
    uint32_t line = t->line;
    struct jnode *n;

    if (t->kind != JK_NAME)
        return jparse_unexpected(p, "a statement");
    p->tok++;
    if (jtoken_is(t, JK_NAME, "for"))
        return parse_for(p, line);
    if (jtoken_is(t, JK_NAME, "if"))
        return parse_if(p, line);
    if (jtoken_is(t, JK_NAME, "set"))
        return parse_set(p, line);
    if (jtoken_is(t, JK_NAME, "macro"))
        return parse_macro(p, line);
    if (jtoken_is(t, JK_NAME, "filter"))
        return parse_filter_block(p, line);
    if (jtoken_is(t, JK_NAME, "generation")) {
        uint32_t loops = p->loops;

        n = jnode_new(p, JN_SCOPE, line);
        p->loops = 0;
        if (n)
            n->a = body_to(p, "endgeneration");
        p->loops = loops;
        return n && n->a ? n : NULL;
    }
    if (jtoken_is(t, JK_NAME, "break") || jtoken_is(t, JK_NAME, "continue")) {
        bool is_break = t->n == 5;

        p->tok--;
        if (p->loops == 0)
            return jparse_fail(p, ERR_DAMAGED, "%s outside of a loop",
                               is_break ? "break" : "continue");
        p->tok++;
        n = jnode_new(p, is_break ? JN_BREAK : JN_CONTINUE, line);
        return n && jparse_expect(p, JK_BLOCK_END, NULL) == 0 ? n : NULL;
    }
    p->tok--;
    (void)err_escape(shown, sizeof(shown), t->s, t->n);
    if (t->n > 3 && memcmp(t->s, "end", 3) == 0)
        return jparse_fail(p, ERR_DAMAGED, "'%s' without its beginning", shown);
    if (jtoken_is(t, JK_NAME, "else") || jtoken_is(t, JK_NAME, "elif"))
        return jparse_fail(p, ERR_DAMAGED, "'%s' without its beginning", shown);
    return jparse_fail(p, ERR_UNSUPPORTED, "the statement '%s' is not supported", shown);
}

static struct jnode *text(struct jparser *p)
{
    const struct jtoken *t = p->tok++;
    struct jnode *n = jnode_new(p, JN_TEXT, t->line);

    if (!n)
        return NULL;
    n->value = jconst(p->t, jinja_string(t->s, t->n, false));
    return n->value ? n : jparse_nomem(p);
}

/* Statements up to a tag whose name is in `ends` (NULL: the template's end); the name is next. */
static struct jnode *block(struct jparser *p, const char *const *ends)
{
    struct jnode *n = jnode_new(p, JN_BLOCK, p->tok->line), *s;
    struct jlist l = {0};
    uint32_t opened = p->tok->line;

    if (++p->depth > JPARSE_DEPTH)
        return jparse_fail(p, ERR_UNSUPPORTED, "blocks are nested too deeply");
    while (!p->err) {
        if (p->tok->kind == JK_END) {
            if (ends)
                return jparse_fail(p, ERR_DAMAGED, "the template ends without the %s of line %u",
                                   ends[0][0] == 'e' && ends[0][1] == 'l' ? "end" : ends[0],
                                   opened);
            break;
        }
        if (p->tok->kind == JK_TEXT) {
            s = text(p);
        } else if (jparse_skip(p, JK_PRINT_BEGIN, NULL)) {
            s = jnode_new(p, JN_PRINT, p->tok->line);
            if (s)
                s->a = jparse_tuple(p, true);
            if (!p->err && !jparse_skip(p, JK_PRINT_END, NULL))
                (void)jparse_unexpected(p, "'}}'");
        } else {
            assert(p->tok->kind == JK_BLOCK_BEGIN);
            p->tok++;
            for (const char *const *e = ends; e && *e; e++)
                if (jtoken_is(p->tok, JK_NAME, *e))
                    goto out;
            s = statement(p);
        }
        if (!p->err)
            (void)jlist_add_node(p, &l, s);
    }
out:
    p->depth--;
    if (p->err)
        return NULL;
    n->v = l.v;
    n->n = l.n;
    return n;
}

struct jnode *jparse_template(struct jparser *p)
{
    return block(p, NULL);
}
