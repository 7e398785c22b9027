/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/jinja.h"

#include "engine/jinja_private.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    MAX_SOURCE = 1 << 20,
    FRAMES_PER_DEPTH = 20, /* of nested nodes, for each level of calls: bounds the C stack */
};

/* --- compiling ---------------------------------------------------------------------------------
 */

/* LF line endings, without the one newline at the end. */
static char *normalise(struct jinja *t, const char *s, size_t n, size_t *ret_n)
{
    char *out = jarena(t, n + 1);
    size_t o = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\r')
            out[o++] = s[i];
        else if (i + 1 == n || s[i + 1] != '\n')
            out[o++] = '\n';
    }
    if (o > 0 && out[o - 1] == '\n')
        o--;
    *ret_n = o;
    return out;
}

static int refuse_name(const struct jname *name, const char *what, uint32_t line,
                       struct err_text *e)
{
    char shown[64];

    return err_set(e, ERR_UNSUPPORTED, "line %u: the %s '%s' is not supported", line, what,
                   err_escape(shown, sizeof(shown), name->s, name->n));
}

/* Functions and methods that nothing can provide, unless the template itself asks whether they
 * exist. */
static int check_names(const struct jinja *t, struct err_text *e)
{
    for (uint32_t i = 0; i < t->n_names; i++) {
        const struct jname *name = &t->names[i];

        if (name->called_line && !name->is_set && !name->is_asked &&
            !jfunction_find(name->s, name->n))
            return refuse_name(name, "function", name->called_line, e);
        if (name->method_line && !name->is_key &&
            !jmethod_find(name->s, name->n, JB_STRING | JB_LIST | JB_OBJECT | JB_LOOP))
            return refuse_name(name, "method", name->method_line, e);
    }
    return 0;
}

int jinja_compile(const char *source, size_t n, struct jinja **ret, struct err_text *e)
{
    CLEANUP(jtokens_done) struct jtokens tokens = {0};
    struct jinja *t;
    struct jparser p;
    char *text;
    int r;

    if (n > MAX_SOURCE)
        return err_set(e, ERR_UNSUPPORTED, "a template of more than %d bytes", MAX_SOURCE);
    if (!utf8_is_valid(source, n))
        return err_set(e, ERR_DAMAGED, "the template is not UTF-8");
    t = calloc(1, sizeof(*t));
    text = t ? normalise(t, source, n, &n) : NULL;
    if (!text || jintern(t, "loop", 4, &t->name_loop) < 0) {
        jinja_free(t);
        return err_set(e, -ENOMEM, "no memory for the template");
    }
    r = jlex(text, n, &tokens, e);
    if (r == 0) {
        p = (struct jparser){.t = t, .tok = tokens.t, .e = e};
        t->root = jparse_template(&p);
        r = p.err;
    }
    if (r == 0)
        r = check_names(t, e);
    if (r < 0) {
        jinja_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

/* --- a rendering -------------------------------------------------------------------------------
 */

int jfail(struct jrun *r, int code, const char *fmt, ...)
{
    char words[400];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    return err_set(r->e, code, "line %u: %s", r->line, words);
}

int jfail_nomem(struct jrun *r)
{
    if (r->heap.over)
        return jfail(r, ERR_CAPACITY, "the template needs more than %llu bytes of memory",
                     (unsigned long long)r->lim.bytes);
    return jfail(r, -ENOMEM, "no memory");
}

int jfail_code(struct jrun *r, int code)
{
    if (code == ERR_CAPACITY)
        return jfail(r, code, "more than %llu bytes of output",
                     (unsigned long long)r->lim.output_bytes);
    return jfail_nomem(r);
}

int jstep(struct jrun *r, uint64_t n)
{
    r->steps += n;
    if (r->steps > r->lim.steps)
        return jfail(r, ERR_CAPACITY, "the template takes more than %llu steps",
                     (unsigned long long)r->lim.steps);
    return 0;
}

/* What a template changes is its own: lists and objects are copied, strings are shared. */
static int copy_value(struct jrun *r, struct jinja_value *v, uint32_t depth,
                      struct jinja_value **ret)
{
    JREF out = NULL;
    int rc = jstep(r, 1);

    if (rc < 0)
        return rc;
    if (v->type != JT_LIST && v->type != JT_OBJECT) {
        *ret = jinja_ref(v);
        return 0;
    }
    if (depth > r->lim.depth)
        return jfail(r, ERR_CAPACITY, "values are nested deeper than %u", r->lim.depth);
    out = jv_new(&r->heap, v->type, 0);
    if (!out)
        return jfail_nomem(r);
    for (size_t i = 0; v->type == JT_LIST && i < v->u.list.n; i++) {
        JREF item = NULL;

        rc = copy_value(r, v->u.list.v[i], depth + 1, &item);
        if (rc < 0)
            return rc;
        if (jlist_push(out, item) < 0)
            return jfail_nomem(r);
        item = NULL;
    }
    for (size_t i = 0; v->type == JT_OBJECT && i < v->u.obj.n; i++) {
        JREF item = NULL;

        rc = copy_value(r, v->u.obj.e[i].value, depth + 1, &item);
        if (rc < 0)
            return rc;
        if (jobject_put(out, v->u.obj.e[i].key, item) < 0)
            return jfail_nomem(r);
        (void)jinja_ref(v->u.obj.e[i].key);
        item = NULL;
    }
    *ret = TAKE(out);
    return 0;
}

static void apply_defaults(struct jinja_limits *l, const struct jinja_limits *given)
{
    static const struct jinja_limits defaults = {
        .steps = 20000000, .bytes = 256 << 20, .depth = 100, .output_bytes = 64 << 20};

    *l = given ? *given : defaults;
    if (!l->steps)
        l->steps = defaults.steps;
    if (!l->bytes)
        l->bytes = defaults.bytes;
    if (!l->depth)
        l->depth = defaults.depth;
    if (!l->output_bytes)
        l->output_bytes = defaults.output_bytes;
    if (!l->now)
        l->now = (int64_t)time(NULL);
}

static int run(struct jrun *r, struct jinja_value *globals)
{
    JREF scope = jv_new(&r->heap, JT_SCOPE, 0);
    JREF own = NULL;
    int rc;

    if (!scope)
        return jfail_nomem(r);
    if (r->t->changes_values) {
        rc = copy_value(r, globals, 0, &own);
        if (rc < 0)
            return rc;
    }
    r->globals = own ? own : globals;
    r->scope = scope;
    rc = jexec(r, r->t->root);
    return rc < 0 ? rc : 0;
}

int jinja_render(const struct jinja *t, struct jinja_value *globals, const struct jinja_limits *l,
                 struct jinja_output *ret, struct err_text *e)
{
    struct jrun r = {.t = t, .e = e, .line = 1};
    struct jout out = {.heap = &r.heap};
    int rc;

    apply_defaults(&r.lim, l);
    r.heap.limit = r.lim.bytes;
    r.max_frames =
        r.lim.depth > UINT32_MAX / FRAMES_PER_DEPTH ? UINT32_MAX : r.lim.depth * FRAMES_PER_DEPTH;
    out.limit = r.lim.output_bytes;
    r.out = &out;
    rc = run(&r, globals);
    jheap_break_cycles(&r.heap);
    if (rc == 0) {
        char *end = realloc(out.s, out.n + 1); /* buf's NUL */

        if (end) {
            end[out.n] = '\0';
            ret->text = (struct buf){.data = end, .len = out.n, .cap = out.n + 1};
            ret->spans = TAKE(out.spans);
            ret->n_spans = out.n_spans;
            return 0;
        }
        rc = err_set(e, -ENOMEM, "no memory");
    }
    jout_done(&out);
    return rc;
}

void jinja_output_done(struct jinja_output *o)
{
    buf_done(&o->text);
    free(o->spans);
    o->spans = NULL;
    o->n_spans = 0;
}

/* --- probing -----------------------------------------------------------------------------------
 */

static const char probe_text[] = "strata-probe-7f3a";

static struct jinja_value *text(const char *s)
{
    return jinja_string(s, strlen(s), false);
}

static int set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    return jinja_object_set(o, key, strlen(key), false, v);
}

/* One user message whose content is one part; behind a system message, if wanted. */
static int probe_globals(bool with_system, struct jinja_value **ret)
{
    JREF globals = jinja_object();
    JREF messages = jinja_list();
    struct jinja_value *message, *part, *parts;
    int r = globals && messages ? 0 : -ENOMEM;

    for (int i = with_system ? 0 : 1; i < 2 && r == 0; i++) {
        part = jinja_object();
        parts = jinja_list();
        message = jinja_object();
        r = part && parts && message ? 0 : -ENOMEM;
        if (r == 0 && (set(part, "type", text("text")) < 0 ||
                       set(part, "text", text(i ? probe_text : "system")) < 0))
            r = -ENOMEM;
        if (r == 0)
            r = jinja_list_add(parts, TAKE(part));
        if (r == 0)
            r = set(message, "role", text(i ? "user" : "system"));
        if (r == 0)
            r = set(message, "content", TAKE(parts));
        if (r == 0)
            r = jinja_list_add(messages, TAKE(message));
        jinja_unref(part);
        jinja_unref(parts);
        jinja_unref(message);
    }
    if (r < 0 || set(globals, "messages", TAKE(messages)) < 0 ||
        set(globals, "add_generation_prompt", jinja_bool(true)) < 0 ||
        set(globals, "bos_token", text("")) < 0 || set(globals, "eos_token", text("")) < 0)
        return -ENOMEM;
    *ret = TAKE(globals);
    return 0;
}

static void output_done_p(struct jinja_output *o)
{
    jinja_output_done(o);
}

int jinja_takes_parts(const struct jinja *t)
{
    static const struct jinja_limits limits = {.steps = 1000000, .bytes = 32 << 20, .now = 1};

    for (int with_system = 0; with_system < 2; with_system++) {
        CLEANUP(output_done_p) struct jinja_output out = {0};
        JREF globals = NULL;
        int r = probe_globals(with_system, &globals);

        if (r == 0)
            r = jinja_render(t, globals, &limits, &out, NULL);
        if (r == -ENOMEM)
            return r;
        /* A list printed as it is shows its quotes. */
        if (r == 0 && strstr(out.text.data, probe_text))
            return strstr(out.text.data, "'type'") || strstr(out.text.data, "\"type\"") ? 0 : 1;
    }
    return 0;
}
