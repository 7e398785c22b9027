/* SPDX-License-Identifier: Apache-2.0 */
/* Literals, names, and what stands in brackets. */
#include "engine/jinja_private.h"

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/text.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>

/* --- literals ----------------------------------------------------------------------------------
 */

static struct jnode *constant(struct jparser *p, uint32_t line, struct jinja_value *v)
{
    struct jnode *n = jnode_new(p, JN_CONST, line);

    v = jconst(p->t, v);
    if (!n || !v)
        return jparse_nomem(p);
    n->value = v;
    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* \xHH, \uHHHH, \UHHHHHHHH and octal: how much of s[0..n) behind the backslash; 0 when it is none
 * of these. */
static size_t numeric_escape(const char *s, size_t n, uint32_t *ret_cp)
{
    size_t want = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, i;
    uint32_t cp = 0;

    if (want == 0) {
        for (i = 0; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
            cp = cp * 8 + (uint32_t)(s[i] - '0');
        *ret_cp = cp;
        return i;
    }
    if (n < want + 1)
        return 0;
    for (i = 1; i <= want; i++) {
        if (hex_digit(s[i]) < 0)
            return 0;
        cp = cp * 16 + (uint32_t)hex_digit(s[i]);
    }
    *ret_cp = cp;
    return want + 1;
}

static int unescape(struct jparser *p, const char *s, size_t n, struct buf *out)
{
    static const char from[] = "\\'\"abfnrtv\n", to[] = "\\'\"\a\b\f\n\r\t\v";
    char utf8[4];

    for (size_t i = 0; i < n;) {
        const char *back = memchr(s + i, '\\', n - i), *simple;
        size_t plain = back ? (size_t)(back - s) - i : n - i, len;
        uint32_t cp = 0;

        if (buf_add(out, s + i, plain) < 0)
            return -ENOMEM;
        i += plain;
        if (i >= n)
            break;
        i++; /* the backslash: the lexer has seen something behind it */
        simple = s[i] ? strchr(from, s[i]) : NULL;
        len = numeric_escape(s + i, n - i, &cp);
        if (simple) {
            /* A line that ends with a backslash goes on. */
            if (*simple != '\n' && buf_add(out, to + (simple - from), 1) < 0)
                return -ENOMEM;
            i++;
        } else if (len > 0) {
            if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
                (void)jparse_fail(p, ERR_UNSUPPORTED, "\\%.*s is not a character", (int)len, s + i);
                return p->err;
            }
            if (buf_add(out, utf8, utf8_encode(cp, utf8)) < 0)
                return -ENOMEM;
            i += len;
        } else if (buf_add(out, "\\", 1) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* One string, or several side by side. */
static struct jnode *string(struct jparser *p)
{
    CLEANUP(buf_done) struct buf b = {0};
    uint32_t line = p->tok->line;

    for (; p->tok->kind == JK_STRING; p->tok++) {
        if (unescape(p, p->tok->s + 1, p->tok->n - 2, &b) < 0)
            return jparse_nomem(p);
    }
    return constant(p, line, jinja_string(b.data, b.len, false));
}

struct jnode *jparse_number(struct jparser *p)
{
    const struct jtoken *t = p->tok++;
    CLEANUP(buf_done) struct buf b = {0};
    char *end;
    double d;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->s[i] != '_' && buf_add(&b, t->s + i, 1) < 0)
            return jparse_nomem(p);
    if (t->kind == JK_FLOAT) {
        if (text_f64(b.data, &d) < 0) {
            p->tok--;
            return jparse_fail(p, ERR_UNSUPPORTED, "the number %s is too large", b.data);
        }
        return constant(p, t->line, jinja_float(d));
    }
    if (b.len > 2 && (b.data[1] | 0x20) >= 'a') {
        int base = (b.data[1] | 0x20) == 'x' ? 16 : (b.data[1] | 0x20) == 'o' ? 8 : 2;
        long long v;

        errno = 0;
        v = strtoll(b.data + 2, &end, base);
        if (errno || *end) {
            p->tok--;
            return jparse_fail(p, ERR_UNSUPPORTED, "the number %s is not one", b.data);
        }
        return constant(p, t->line, jinja_int(v));
    }
    errno = 0;
    {
        long long v = strtoll(b.data, &end, 10);

        if (errno == 0)
            return constant(p, t->line, jinja_int(v));
    }
    return constant(p, t->line, jinja_number_text(b.data, b.len));
}

static struct jnode *dict(struct jparser *p, uint32_t line)
{
    struct jnode *n = jnode_new(p, JN_DICT, line), *key;
    struct jlist l = {0};

    while (!p->err && !jparse_skip(p, JK_OP, "}")) {
        if (l.n > 0 && jparse_expect(p, JK_OP, ",") < 0)
            return NULL;
        if (jparse_skip(p, JK_OP, "}"))
            break;
        key = jparse_expr(p, true);
        if (!key || jparse_expect(p, JK_OP, ":") < 0)
            return NULL;
        if (key->kind == JN_CONST && key->value->type == JT_STRING) {
            uint32_t name;

            if (jintern(p->t, key->value->u.str.s, key->value->u.str.n, &name) < 0)
                return jparse_nomem(p);
            p->t->names[name].is_key = true;
        }
        (void)jlist_add_node(p, &l, key);
        (void)jlist_add_node(p, &l, jparse_expr(p, true));
    }
    if (p->err)
        return NULL;
    n->v = l.v;
    n->n = l.n;
    return n;
}

static struct jnode *list(struct jparser *p, uint32_t line)
{
    struct jnode *n = jnode_new(p, JN_LIST, line);
    struct jlist l = {0};

    while (!p->err && !jparse_skip(p, JK_OP, "]")) {
        if (l.n > 0 && jparse_expect(p, JK_OP, ",") < 0)
            return NULL;
        if (jparse_skip(p, JK_OP, "]"))
            break;
        (void)jlist_add_node(p, &l, jparse_expr(p, true));
    }
    if (p->err)
        return NULL;
    n->v = l.v;
    n->n = l.n;
    return n;
}

/* Whether what comes next cannot begin an expression: the end of a tuple. */
static bool tuple_ends(const struct jparser *p)
{
    return p->tok->kind == JK_PRINT_END || p->tok->kind == JK_BLOCK_END || jparse_is(p, ")") ||
           jparse_is(p, "=") || jtoken_is(p->tok, JK_NAME, "in");
}

struct jnode *jparse_tuple(struct jparser *p, bool with_cond)
{
    uint32_t line = p->tok->line;
    struct jnode *first = jparse_expr(p, with_cond), *n;
    struct jlist l = {0};

    if (!first || !jparse_is(p, ","))
        return first;
    (void)jlist_add_node(p, &l, first);
    while (jparse_skip(p, JK_OP, ",") && !tuple_ends(p))
        (void)jlist_add_node(p, &l, jparse_expr(p, with_cond));
    n = jnode_new(p, JN_TUPLE, line);
    if (!n)
        return NULL;
    n->v = l.v;
    n->n = l.n;
    return n;
}

static struct jnode *name_or_word(struct jparser *p)
{
    static const struct {
        const char *word;
        struct jinja_value *value;
    } words[] = {{"true", &jv_true},   {"True", &jv_true}, {"false", &jv_false},
                 {"False", &jv_false}, {"none", &jv_none}, {"None", &jv_none}};
    struct jnode *n;
    uint32_t name, line = p->tok->line;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (jparse_skip(p, JK_NAME, words[i].word))
            return constant(p, line, words[i].value);
    if (jtoken_is(p->tok, JK_NAME, "varargs") || jtoken_is(p->tok, JK_NAME, "kwargs") ||
        jtoken_is(p->tok, JK_NAME, "caller"))
        return jparse_fail(p, ERR_UNSUPPORTED, "'%.*s' is not supported", (int)p->tok->n,
                           p->tok->s);
    n = jnode_new(p, JN_NAME, line);
    if (!n || jparse_name(p, &name) < 0)
        return NULL;
    n->name = name;
    return n;
}

struct jnode *jparse_primary(struct jparser *p)
{
    uint32_t line = p->tok->line;
    struct jnode *n;

    switch (p->tok->kind) {
    case JK_NAME:
        return name_or_word(p);
    case JK_STRING:
        return string(p);
    case JK_INT:
    case JK_FLOAT:
        return jparse_number(p);
    default:
        break;
    }
    if (jparse_skip(p, JK_OP, "(")) {
        if (jparse_skip(p, JK_OP, ")"))
            return jnode_new(p, JN_TUPLE, line);
        n = jparse_tuple(p, true);
        return n && jparse_expect(p, JK_OP, ")") == 0 ? n : NULL;
    }
    if (jparse_skip(p, JK_OP, "["))
        return list(p, line);
    if (jparse_skip(p, JK_OP, "{"))
        return dict(p, line);
    return jparse_unexpected(p, "an expression");
}
