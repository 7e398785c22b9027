/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and calling what the interpreter brings along; the global functions. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <time.h>

enum { MAX_RANGE = 100000 };

/* --- finding and binding -----------------------------------------------------------------------
 */

const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

const struct jbuiltin *jfilter_find(const char *name, size_t n)
{
    const struct jbuiltin *b = jbuiltin_find(jfilters_text, name, n);

    return b ? b : jbuiltin_find(jfilters_seq, name, n);
}

const struct jbuiltin *jtest_find(const char *name, size_t n)
{
    return jbuiltin_find(jtests, name, n);
}

const struct jbuiltin *jmethod_find(const char *name, size_t n, uint8_t of)
{
    const struct jbuiltin *const tables[] = {jmethods_text, jmethods_seq};

    for (int i = 0; i < 2 && of; i++)
        for (const struct jbuiltin *b = tables[i]; b->name; b++)
            if ((b->flags & of) && strlen(b->name) == n && memcmp(b->name, name, n) == 0)
                return b;
    return NULL;
}

static int find_param(const struct jbuiltin *b, const struct jname *name)
{
    for (int i = 0; i < b->n_max; i++)
        if (strlen(b->params[i]) == name->n && memcmp(b->params[i], name->s, name->n) == 0)
            return i;
    return -1;
}

/* map('upper'), select('string'), selectattr('x', 'string'): what they name exists. */
static int check_named(const struct jbuiltin *b, const struct jnode *call, struct err_text *e)
{
    bool is_map = strcmp(b->name, "map") == 0;
    uint32_t at = strstr(b->name, "attr") != NULL;
    const struct jinja_value *v;
    char shown[64];

    if (!is_map && strncmp(b->name, "select", 6) != 0 && strncmp(b->name, "reject", 6) != 0)
        return 0;
    if (call->n_pos <= at || call->v[at]->kind != JN_CONST)
        return 0;
    v = call->v[at]->value;
    if (v->type == JT_STRING &&
        (is_map ? jfilter_find(v->u.str.s, v->u.str.n) : jtest_find(v->u.str.s, v->u.str.n)))
        return 0;
    return err_set(e, ERR_UNSUPPORTED, "line %u: the %s '%s' is not supported", call->line,
                   is_map ? "filter" : "test",
                   v->type == JT_STRING ? err_escape(shown, sizeof(shown), v->u.str.s, v->u.str.n)
                                        : jv_type_name(v));
}

int jbuiltin_check(const struct jinja *t, const struct jbuiltin *b, const struct jnode *call,
                   struct err_text *e, const char *what)
{
    if (b->flags & JB_RAW)
        return check_named(b, call, e);
    if (call->n > b->n_max || call->n_pos > b->n_max)
        return err_set(e, ERR_UNSUPPORTED, "line %u: the %s '%s' takes at most %u arguments",
                       call->line, what, b->name, b->n_max);
    for (uint32_t i = call->n_pos; i < call->n; i++) {
        const struct jname *name = &t->names[call->names[i - call->n_pos]];

        if (find_param(b, name) < 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "line %u: the argument '%.64s' of the %s '%s' is not supported",
                           call->line, name->s, what, b->name);
    }
    return 0;
}

int jbuiltin_call(struct jrun *r, const struct jbuiltin *b, struct jinja_value *self,
                  const struct jargs *args, struct jinja_value **ret)
{
    struct jinja_value *v[JMAX_PARAMS] = {NULL};
    struct jargs bound = {.v = v, .n = b->n_max, .n_pos = b->n_max};

    if (b->flags & JB_RAW)
        return b->fn(r, self, args, ret);
    if (args->n_pos > b->n_max)
        return jfail(r, -EINVAL, "'%s' takes at most %u arguments", b->name, b->n_max);
    for (uint32_t i = 0; i < args->n_pos; i++)
        v[i] = args->v[i];
    for (uint32_t i = args->n_pos; i < args->n; i++) {
        const struct jname *name = &r->t->names[args->names[i - args->n_pos]];
        int at = find_param(b, name);

        if (at < 0 || v[at])
            return jfail(r, -EINVAL, "'%s' does not take '%.64s' here", b->name, name->s);
        v[at] = args->v[i];
    }
    for (uint32_t i = 0; i < b->n_min; i++)
        if (!v[i])
            return jfail(r, -EINVAL, "'%s' needs its argument '%s'", b->name, b->params[i]);
    return b->fn(r, self, &bound, ret);
}

/* --- functions ---------------------------------------------------------------------------------
 */

/* namespace(a=1), dict({...}, a=1) */
static int make_object(struct jrun *r, const struct jargs *a, enum jinja_type type,
                       struct jinja_value **ret)
{
    JREF o = jv_new(&r->heap, type, 0);

    if (!o)
        return jfail_nomem(r);
    if (a->n_pos > 1 || (a->n_pos == 1 && a->v[0]->type != JT_OBJECT))
        return jfail(r, -EINVAL, "an object or arguments by name expected");
    for (size_t i = 0; a->n_pos && i < a->v[0]->u.obj.n; i++) {
        const struct jentry *e = &a->v[0]->u.obj.e[i];

        if (jobject_put(o, e->key, e->value) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(e->key);
        (void)jinja_ref(e->value);
    }
    for (uint32_t i = a->n_pos; i < a->n; i++) {
        const struct jname *name = &r->t->names[a->names[i - a->n_pos]];
        JREF key = jv_new_string(&r->heap, name->s, name->n, false);

        if (!key || jobject_put(o, key, a->v[i]) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(a->v[i]);
        key = NULL;
    }
    *ret = TAKE(o);
    return 0;
}

static int f_namespace(struct jrun *r, struct jinja_value *self, const struct jargs *a,
                       struct jinja_value **ret)
{
    (void)self;
    return make_object(r, a, JT_NAMESPACE, ret);
}

static int f_dict(struct jrun *r, struct jinja_value *self, const struct jargs *a,
                  struct jinja_value **ret)
{
    (void)self;
    return make_object(r, a, JT_OBJECT, ret);
}

static int f_range(struct jrun *r, struct jinja_value *self, const struct jargs *a,
                   struct jinja_value **ret)
{
    JREF list = jv_new(&r->heap, JT_LIST, 0);
    int64_t v[3] = {0, 0, 1}, at;
    int rc = 0;

    (void)self;
    if (!list)
        return jfail_nomem(r);
    for (int i = 0; i < 3; i++)
        if (a->v[i] && !jv_integer(a->v[i], &v[i]))
            return jfail(r, -EINVAL, "a range by %s", jv_type_name(a->v[i]));
    if (!a->v[1]) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return jfail(r, -EINVAL, "a range by steps of zero");
    at = v[0];
    while (rc == 0 && (v[2] > 0 ? at < v[1] : at > v[1])) {
        JREF item = jv_new_int(&r->heap, at);

        if (list->u.list.n == MAX_RANGE)
            return jfail(r, ERR_CAPACITY, "a range of more than %d numbers", MAX_RANGE);
        if (!item || jlist_push(list, item) < 0)
            return jfail_nomem(r);
        item = NULL;
        rc = jstep(r, 1);
        if (__builtin_add_overflow(at, v[2], &at))
            break;
    }
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}

static int f_raise(struct jrun *r, struct jinja_value *self, const struct jargs *a,
                   struct jinja_value **ret)
{
    JREF text = NULL;
    char words[352];
    size_t last = 0; /* where the last character begins */
    size_t n = 0;
    int rc = a->v[0] ? jprint_value(r, a->v[0], &text) : 0;

    (void)self;
    (void)ret;
    if (rc < 0)
        return rc;
    for (size_t i = 0; text && i < text->u.str.n && n + 1 < sizeof(words); i++) {
        unsigned char c = (unsigned char)text->u.str.s[i];

        if ((c & 0xc0) != 0x80)
            last = n;
        words[n++] = (char)(c < 0x20 || c == 0x7f ? ' ' : c);
    }
    if (text && n < text->u.str.n) /* cut off, maybe in the middle of a character */
        n = last;
    words[n] = '\0';
    return jfail(r, -EINVAL, "the template refuses: %s", words);
}

static int f_strftime_now(struct jrun *r, struct jinja_value *self, const struct jargs *a,
                          struct jinja_value **ret)
{
    time_t now = (time_t)r->lim.now;
    char fmt[128], text[256];
    struct tm tm;
    size_t n;

    (void)self;
    if (a->v[0]->type != JT_STRING || a->v[0]->u.str.n >= sizeof(fmt))
        return jfail(r, -EINVAL, "not a format of a time");
    memcpy(fmt, a->v[0]->u.str.s, a->v[0]->u.str.n);
    fmt[a->v[0]->u.str.n] = '\0';
    if (!localtime_r(&now, &tm))
        return jfail(r, -EINVAL, "no such time");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = strftime(text, sizeof(text), fmt, &tm);
#pragma GCC diagnostic pop
    *ret = jv_new_string(&r->heap, text, n, a->v[0]->marks != JM_PLAIN);
    return *ret ? 0 : jfail_nomem(r);
}

static const struct jbuiltin functions[] = {
    {"namespace", f_namespace, 0, 0, JB_RAW, {NULL}},
    {"dict", f_dict, 0, 0, JB_RAW, {NULL}},
    {"range", f_range, 1, 3, 0, {"start", "stop", "step"}},
    {"raise_exception", f_raise, 0, 1, 0, {"message"}},
    {"strftime_now", f_strftime_now, 1, 1, 0, {"format"}},
    {NULL, NULL, 0, 0, 0, {NULL}},
};

const struct jbuiltin *jfunction_find(const char *name, size_t n)
{
    return jbuiltin_find(functions, name, n);
}
