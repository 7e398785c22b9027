/* SPDX-License-Identifier: Apache-2.0 */
/* The filter from_json: JSON text to values.  When anything of the text is data, every string is.
 */
#include "engine/jinja_private.h"

#include "util/cleanup.h"
#include "util/text.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

struct reader {
    struct jrun *r;
    const char *s;
    size_t n, pos;
    bool is_data;
    uint32_t depth;
};

static int value(struct reader *x, struct jinja_value **ret);

static int bad(struct reader *x)
{
    return jfail(x->r, -EINVAL, "no JSON at byte %zu", x->pos);
}

static void space(struct reader *x)
{
    while (x->pos < x->n && x->s[x->pos] && strchr(" \t\r\n", x->s[x->pos]))
        x->pos++;
}

static bool skip(struct reader *x, const char *what)
{
    size_t n = strlen(what);

    if (x->n - x->pos < n || memcmp(x->s + x->pos, what, n) != 0)
        return false;
    x->pos += n;
    return true;
}

static bool hex4(struct reader *x, uint32_t *ret)
{
    uint32_t v = 0;

    if (x->n - x->pos < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = x->s[x->pos++];
        int d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : -1;

        if (d < 0)
            return false;
        v = v * 16 + (uint32_t)d;
    }
    *ret = v;
    return true;
}

/* Behind a backslash. */
static int escape(struct reader *x, struct jout *o)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *simple;
    char c, utf8[4];
    uint32_t cp, low;

    if (x->pos >= x->n)
        return bad(x);
    c = x->s[x->pos++];
    simple = c ? strchr(from, c) : NULL;
    if (simple)
        return jout_add(o, to + (simple - from), 1, x->is_data) < 0 ? jfail_nomem(x->r) : 0;
    if (c != 'u' || !hex4(x, &cp))
        return bad(x);
    if (cp >= 0xd800 && cp < 0xdc00 && skip(x, "\\u")) {
        if (!hex4(x, &low) || low < 0xdc00 || low > 0xdfff)
            return bad(x);
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    }
    if (cp >= 0xd800 && cp <= 0xdfff)
        cp = 0xfffd;
    return jout_add(o, utf8, utf8_encode(cp, utf8), x->is_data) < 0 ? jfail_nomem(x->r) : 0;
}

static int string(struct reader *x, struct jinja_value **ret)
{
    struct jout out = {.heap = &x->r->heap};
    size_t begin;
    int rc = 0;

    if (!skip(x, "\""))
        return bad(x);
    while (rc == 0) {
        begin = x->pos;
        while (x->pos < x->n && x->s[x->pos] != '"' && x->s[x->pos] != '\\' &&
               (unsigned char)x->s[x->pos] >= 0x20)
            x->pos++;
        rc = jstep_bytes(x->r, x->pos - begin);
        if (rc == 0 && jout_add(&out, x->s + begin, x->pos - begin, x->is_data) < 0)
            rc = jfail_nomem(x->r);
        if (rc < 0 || skip(x, "\""))
            break;
        rc = skip(x, "\\") ? escape(x, &out) : bad(x);
    }
    return jout_end(x->r, &out, rc, ret);
}

static int number(struct reader *x, struct jinja_value **ret)
{
    size_t begin = x->pos, n;
    bool is_int = true;
    char text[400], *end;
    long long i;
    double d;

    for (; x->pos < x->n && x->s[x->pos] && strchr("+-0123456789.eE", x->s[x->pos]); x->pos++)
        is_int &= x->s[x->pos] == '-' || (x->s[x->pos] >= '0' && x->s[x->pos] <= '9');
    n = x->pos - begin;
    if (n == 0 || n >= sizeof(text))
        return bad(x);
    memcpy(text, x->s + begin, n);
    text[n] = '\0';
    if (text_f64(text, &d) < 0)
        return bad(x);
    errno = 0;
    i = strtoll(text, &end, 10);
    if (!is_int) {
        *ret = jv_new_float(&x->r->heap, d);
    } else if (errno == 0) {
        *ret = jv_new_int(&x->r->heap, i);
    } else {
        *ret = jv_new_string(&x->r->heap, text, n, false);
        if (*ret)
            (*ret)->type = JT_BIG;
    }
    return *ret ? 0 : jfail_nomem(x->r);
}

static int list(struct reader *x, struct jinja_value **ret)
{
    JREF out = jv_new(&x->r->heap, JT_LIST, 0);

    if (!out)
        return jfail_nomem(x->r);
    space(x);
    if (skip(x, "]")) {
        *ret = TAKE(out);
        return 0;
    }
    for (;;) {
        JREF item = NULL;
        int rc = value(x, &item);

        if (rc < 0)
            return rc;
        if (jlist_push(out, item) < 0)
            return jfail_nomem(x->r);
        item = NULL;
        if (skip(x, "]"))
            break;
        if (!skip(x, ","))
            return bad(x);
    }
    *ret = TAKE(out);
    return 0;
}

static int object(struct reader *x, struct jinja_value **ret)
{
    JREF out = jv_new(&x->r->heap, JT_OBJECT, 0);

    if (!out)
        return jfail_nomem(x->r);
    space(x);
    if (skip(x, "}")) {
        *ret = TAKE(out);
        return 0;
    }
    for (;;) {
        JREF key = NULL;
        JREF item = NULL;
        int rc;

        space(x);
        rc = string(x, &key);
        space(x);
        if (rc == 0 && !skip(x, ":"))
            rc = bad(x);
        if (rc == 0)
            rc = value(x, &item);
        if (rc < 0)
            return rc;
        if (jobject_put(out, key, item) < 0)
            return jfail_nomem(x->r);
        key = item = NULL;
        if (skip(x, "}"))
            break;
        if (!skip(x, ","))
            return bad(x);
    }
    *ret = TAKE(out);
    return 0;
}

/* With the white space around it. */
static int value(struct reader *x, struct jinja_value **ret)
{
    int rc = jstep(x->r, 1);

    if (rc < 0)
        return rc;
    if (++x->depth > x->r->lim.depth)
        return jfail(x->r, ERR_CAPACITY, "values are nested deeper than %u", x->r->lim.depth);
    space(x);
    if (skip(x, "{"))
        rc = object(x, ret);
    else if (skip(x, "["))
        rc = list(x, ret);
    else if (x->pos < x->n && x->s[x->pos] == '"')
        rc = string(x, ret);
    else if (skip(x, "null"))
        *ret = &jv_none;
    else if (skip(x, "true"))
        *ret = &jv_true;
    else if (skip(x, "false"))
        *ret = &jv_false;
    else
        rc = number(x, ret);
    x->depth--;
    if (rc == 0)
        space(x);
    return rc;
}

int jparse_json(struct jrun *r, const struct jinja_value *text, struct jinja_value **ret)
{
    struct reader x = {
        .r = r, .s = text->u.str.s, .n = text->u.str.n, .is_data = text->marks != JM_PLAIN};
    JREF v = NULL;
    int rc = value(&x, &v);

    if (rc < 0)
        return rc;
    if (x.pos != x.n)
        return bad(&x);
    *ret = TAKE(v);
    return 0;
}
