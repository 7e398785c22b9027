/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the template interpreter share: values, strings with marks, the compiled tree,
 * a rendering.
 *
 *     source -> jinja_lex.c -> tokens -> jinja_parse*.c -> nodes -> jinja_exec.c, jinja_eval.c
 *
 * Functions return 0 or a negative code and, where they have a run, have put the reason with its
 * line into the run's err_text.  `ret` values are owned by the caller, arguments borrowed.
 */
#ifndef ENGINE_JINJA_PRIVATE_H
#define ENGINE_JINJA_PRIVATE_H

#include "engine/jinja.h"

#include "util/err.h"

#include <string.h>

/* --- memory ------------------------------------------------------------------------------------
 * What a rendering allocates is charged to its heap; NULL is the heap of values that a caller makes
 * and of compiled templates, and not counted. */
struct jinja_heap {
    uint64_t used, limit;
    bool over;               /* an allocation was refused for the limit, not for lack of memory */
    struct jinja_value *all; /* what can be part of a cycle: broken up at the end */
};

void *jheap_alloc(struct jinja_heap *h, size_t n);
/* Grows or shrinks; NULL leaves p as it was. */
void *jheap_realloc(struct jinja_heap *h, void *p, size_t old, size_t n);
void jheap_free(struct jinja_heap *h, void *p, size_t n);

/* --- values ------------------------------------------------------------------------------------
 */
enum jinja_type {
    JT_UNDEFINED,
    JT_NONE,
    JT_BOOL,
    JT_INT,
    JT_FLOAT,
    JT_BIG, /* a number as text, in u.str */
    JT_STRING,
    JT_LIST,
    JT_TUPLE,
    JT_OBJECT,
    JT_NAMESPACE,
    JT_LOOP,
    JT_MACRO,
    JT_METHOD,   /* bound to its object */
    JT_FUNCTION, /* a global */
    JT_SCOPE,    /* variables of a block; never seen by a template */
};

/* Which bytes of a string are data. */
enum jinja_marks { JM_PLAIN, JM_DATA, JM_MIXED };

struct jstr {
    const char *s; /* behind the value, or in `owner` */
    size_t n;
    struct jinja_value *owner; /* a reference, NULL when the bytes are its own */
    struct jinja_span *runs;   /* owned, JM_MIXED only: ascending, not touching */
    size_t n_runs;
};

struct jentry {
    struct jinja_value *key, *value;
    uint64_t hash;
};

struct jobject {
    struct jentry *e; /* owned, in order */
    size_t n, cap;
    uint32_t *index; /* owned; position + 1 by hash, NULL for few entries */
    size_t n_index;  /* a power of two */
};

struct jvar {
    uint32_t name;
    struct jinja_value *value;
};

struct jinja_value {
    uint8_t type;
    uint8_t marks;   /* strings */
    bool immortal;   /* not counted: constants of a template, shared by threads */
    bool linked;     /* in heap->all */
    uint32_t refs;   /* atomic */
    size_t n_inline; /* bytes allocated behind it */
    struct jinja_heap *heap;
    struct jinja_value *prev, *next;
    union {
        bool b;
        int64_t i;
        double f;
        struct jstr str;
        struct {
            struct jinja_value **v; /* owned */
            size_t n, cap;
        } list;
        struct jobject obj;
        struct {
            struct jinja_value *items; /* a list */
            size_t i;
            uint32_t depth;
        } loop;
        struct {
            const struct jnode *def;
            struct jinja_value *scope;
        } macro;
        struct {
            struct jinja_value *self;
            const struct jbuiltin *fn;
        } method;
        struct {
            struct jvar *v; /* owned */
            uint32_t n, cap;
            struct jinja_value *parent;
        } scope;
    } u;
};

extern struct jinja_value jv_undefined, jv_none, jv_true, jv_false;

struct jinja_value *jv_new(struct jinja_heap *h, enum jinja_type type, size_t n_inline);
struct jinja_value *jv_new_int(struct jinja_heap *h, int64_t i);
struct jinja_value *jv_new_float(struct jinja_heap *h, double d);
struct jinja_value *jv_new_string(struct jinja_heap *h, const char *s, size_t n, bool is_data);
static inline struct jinja_value *jv_of_bool(bool b)
{
    return b ? &jv_true : &jv_false;
}
/* The items are taken over by neither of these when they fail. */
int jlist_reserve(struct jinja_value *list, size_t n);
int jlist_push(struct jinja_value *list, struct jinja_value *item);
int jobject_put(struct jinja_value *object, struct jinja_value *key, struct jinja_value *value);
/* Borrowed; NULL when absent or not a possible key. */
struct jinja_value *jobject_find(const struct jinja_value *o, const struct jinja_value *key);
struct jinja_value *jobject_find_text(const struct jinja_value *o, const char *s, size_t n);
/* Removes entry i. */
void jobject_remove(struct jinja_value *o, size_t i);
bool jv_can_be_key(const struct jinja_value *v);
/* At the end of a rendering: nothing of the heap holds anything any more. */
void jheap_break_cycles(struct jinja_heap *h);

static inline bool jv_is_number(const struct jinja_value *v)
{
    return v->type == JT_BOOL || v->type == JT_INT || v->type == JT_FLOAT || v->type == JT_BIG;
}
static inline bool jv_is_list(const struct jinja_value *v)
{
    return v->type == JT_LIST || v->type == JT_TUPLE;
}
static inline bool jv_is_object(const struct jinja_value *v)
{
    return v->type == JT_OBJECT;
}
static inline bool jstr_equal(const struct jinja_value *v, const char *s, size_t n)
{
    return v->u.str.n == n && memcmp(v->u.str.s, s, n) == 0;
}
bool jv_truth(const struct jinja_value *v);
/* Its number as a double; false when it has none. */
bool jv_double(const struct jinja_value *v, double *ret);
/* Bool or int; false otherwise. */
bool jv_integer(const struct jinja_value *v, int64_t *ret);
const char *jv_type_name(const struct jinja_value *v);

/* --- text being written -------------------------------------------------------------------------
 * Bytes and which of them are data.  After a failure it only waits to be freed. */
struct jout {
    struct jinja_heap *heap;
    char *s;
    size_t n, cap;
    size_t limit; /* 0: only the heap's */
    struct jinja_span *spans;
    size_t n_spans, cap_spans;
    bool all_data; /* whatever is added counts as data */
};

void jout_done(struct jout *o);
int jout_add(struct jout *o, const char *s, size_t n, bool is_data);
/* Bytes [begin, end) of a string with their marks. */
int jout_slice(struct jout *o, const struct jinja_value *str, size_t begin, size_t end);
/* A string value of what was written; `o` is empty then. */
int jout_take(struct jout *o, struct jinja_value **ret);

/* The run of equal marks at `pos` of a string: ends at *ret_end (at most `end`). */
bool jstr_run(const struct jinja_value *str, size_t pos, size_t end, size_t *ret_end);
/* A part of a string that shares its bytes. */
int jstr_slice(struct jinja_heap *h, struct jinja_value *str, size_t begin, size_t end,
               struct jinja_value **ret);
size_t jstr_n_chars(const char *s, size_t n);
/* Bytes of the first `n_chars` characters. */
size_t jstr_offset(const char *s, size_t n, size_t n_chars);
bool jstr_is_space(uint32_t cp);
/* Narrows [*begin, *end) by white space, or by the characters of chars[0..n_chars) when not NULL.
 */
void jstr_strip(const char *s, size_t *begin, size_t *end, const char *chars, size_t n_chars,
                bool left, bool right);
/* Where `what` begins in s[from..n), or SIZE_MAX. */
size_t jstr_find(const char *s, size_t n, size_t from, const char *what, size_t n_what);

/* --- the compiled tree --------------------------------------------------------------------------
 */
enum jnode_kind {
    /* expressions */
    JN_CONST,   /* value */
    JN_NAME,    /* name */
    JN_ATTR,    /* a.name */
    JN_ITEM,    /* a[b] */
    JN_SLICE,   /* a[v0:v1:v2], each may be NULL */
    JN_CALL,    /* a(v...), the last n - n_pos by names */
    JN_FILTER,  /* a|fn(v...) */
    JN_TEST,    /* a is fn(v...), negated with op */
    JN_ARITH,   /* v0 ops0 v1 ops1 v2, left to right */
    JN_CONCAT,  /* v0 ~ v1 ~ ... */
    JN_AND,     /* v0 and v1 ... */
    JN_OR,      /* v0 or v1 ... */
    JN_NOT,     /* not a */
    JN_NEGATE,  /* -a, or +a with op */
    JN_COMPARE, /* v0 ops0 v1 ops1 v2 */
    JN_COND,    /* a if b else c (may be NULL) */
    JN_LIST,    /* [v...] */
    JN_TUPLE,
    JN_DICT, /* {v0: v1, ...} */
    /* statements */
    JN_TEXT,    /* value */
    JN_PRINT,   /* a */
    JN_BLOCK,   /* v..., in the scope it stands in */
    JN_SCOPE,   /* a, in a scope of its own */
    JN_IF,      /* v0 then v1, v2 then v3, ..., else a (may be NULL) */
    JN_FOR,     /* a = targets, b = of what, c = condition or NULL, v0 = body, v1 = else or NULL */
    JN_SET,     /* a = target, b = value */
    JN_CAPTURE, /* a = target (NULL: print it), b = body, c = filters around JN_CONST or NULL */
    JN_MACRO,   /* name, names = parameters, v = defaults (or NULL), a = body */
    JN_BREAK,
    JN_CONTINUE,
};

enum jop {
    JO_ADD,
    JO_SUB,
    JO_MUL,
    JO_DIV,
    JO_FLOORDIV,
    JO_MOD,
    JO_POW,
    JO_EQ,
    JO_NE,
    JO_LT,
    JO_LE,
    JO_GT,
    JO_GE,
    JO_IN,
    JO_NOT_IN,
};

struct jnode {
    uint8_t kind;
    uint8_t op;
    uint32_t line;
    uint32_t name;
    uint32_t n, n_pos;
    struct jnode *a, *b, *c;
    struct jnode **v;      /* [n] */
    uint8_t *ops;          /* [n - 1] */
    const uint32_t *names; /* arguments: [n - n_pos]; macros: [n] */
    struct jinja_value *value;
    const struct jbuiltin *fn;
};

struct jname {
    const char *s;
    uint32_t n;
    bool is_set;          /* by set, for, macro */
    bool is_asked;        /* `is defined` and the like */
    bool is_key;          /* of a namespace, an object literal or `set a.name` */
    uint32_t called_line; /* 0: never, as name() */
    uint32_t method_line; /* as a.name() */
};

struct jchunk;

struct jinja {
    struct jchunk *chunks; /* nodes, names, text */
    struct jname *names;   /* owned */
    uint32_t n_names, cap_names;
    uint32_t *index; /* owned, of names, by hash */
    uint32_t n_index;
    struct jinja_value **consts; /* owned */
    size_t n_consts, cap_consts;
    struct jnode *root;
    uint32_t name_loop;
    bool changes_values; /* has append, pop, ...: values are copied before it renders */
};

/* --- tokens -------------------------------------------------------------------------------------
 */
enum jtoken_kind {
    JK_END,
    JK_TEXT,
    JK_PRINT_BEGIN,
    JK_PRINT_END,
    JK_BLOCK_BEGIN,
    JK_BLOCK_END,
    JK_NAME,
    JK_STRING, /* with its quotes */
    JK_INT,
    JK_FLOAT,
    JK_OP, /* one or two characters, in s */
};

struct jtoken {
    uint8_t kind;
    uint32_t line;
    uint32_t n;
    const char *s;
};

struct jtokens {
    struct jtoken *t; /* owned, the last is JK_END */
    size_t n, cap;
};

/* `source` must stay. It has been normalised: UTF-8, LF, no final newline. */
int jlex(const char *source, size_t n, struct jtokens *ret, struct err_text *e);
void jtokens_done(struct jtokens *t);

/* --- parsing ------------------------------------------------------------------------------------
 */
enum { JPARSE_DEPTH = 200 };

struct jparser {
    struct jinja *t;
    struct jtoken *tok; /* the next one */
    struct err_text *e;
    uint32_t depth;
    uint32_t loops; /* that we are inside of, for break */
    int err;        /* the first failure; nodes are NULL from then on */
};

struct jlist { /* of nodes while they are gathered */
    struct jnode **v;
    uint32_t n, cap;
};

void *jarena(struct jinja *t, size_t n); /* zeroed */
int jintern(struct jinja *t, const char *s, size_t n, uint32_t *ret);
/* Takes the value over, as an immortal one; NULL when there is no memory (or v is NULL). */
struct jinja_value *jconst(struct jinja *t, struct jinja_value *v);

/* Always NULL. */
struct jnode *jparse_fail(struct jparser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct jnode *jparse_nomem(struct jparser *p);
struct jnode *jparse_unexpected(struct jparser *p, const char *wanted);
struct jnode *jnode_new(struct jparser *p, enum jnode_kind kind, uint32_t line);
int jlist_add_node(struct jparser *p, struct jlist *l, struct jnode *n);
bool jtoken_is(const struct jtoken *t, uint8_t kind, const char *s);
static inline bool jparse_is(const struct jparser *p, const char *op)
{
    return jtoken_is(p->tok, JK_OP, op);
}
bool jparse_skip(struct jparser *p, uint8_t kind, const char *s);
int jparse_expect(struct jparser *p, uint8_t kind, const char *s);
int jparse_name(struct jparser *p, uint32_t *ret);
struct jnode *jparse_expr(struct jparser *p, bool with_cond);
struct jnode *jparse_primary(struct jparser *p);
struct jnode *jparse_number(struct jparser *p); /* an int or a float token */
/* One expression, or a tuple of several without parentheses. */
struct jnode *jparse_tuple(struct jparser *p, bool with_cond);
/* |filter(...)... after `n`; the caller has seen the first `|` when `n` is what a block captured.
 */
struct jnode *jparse_filter(struct jparser *p, struct jnode *n);
struct jnode *jparse_template(struct jparser *p);

/* --- rendering ----------------------------------------------------------------------------------
 */
struct jrun {
    const struct jinja *t;
    struct jinja_heap heap;
    struct jinja_limits lim;
    uint64_t steps;
    uint32_t calls, frames, max_frames, loops;
    uint32_t line; /* of what is being evaluated */
    struct jinja_value *globals;
    struct jinja_value *scope; /* a reference to the innermost */
    struct jout *out;          /* borrowed */
    /* Borrowed: what the filters of a block are applied to (a JN_CONST without a value). */
    struct jinja_value *captured;
    struct err_text *e;
};

int jfail(struct jrun *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The code for an allocation that failed, or of text that grew too large. */
int jfail_nomem(struct jrun *r);
int jfail_code(struct jrun *r, int code);
/* Charges n units of work. */
int jstep(struct jrun *r, uint64_t n);
/* Of `n` bytes that are copied or searched. */
static inline int jstep_bytes(struct jrun *r, uint64_t n)
{
    return jstep(r, n / 64);
}

int jeval(struct jrun *r, const struct jnode *n, struct jinja_value **ret);
int jexec(struct jrun *r, const struct jnode *n);
/* With output into a string, in a new scope inside `parent`. */
int jexec_capture(struct jrun *r, const struct jnode *body, struct jinja_value **ret);
int jscope_set(struct jrun *r, uint32_t name,
               struct jinja_value *v); /* takes a reference of its own */
int jscope_push(struct jrun *r, struct jinja_value *parent, struct jinja_value **ret_old);
void jscope_pop(struct jrun *r, struct jinja_value *old);
int jassign(struct jrun *r, const struct jnode *target, struct jinja_value *v);

/* Arguments of a call: positions first, then those by name. */
struct jargs {
    struct jinja_value **v;
    uint32_t n, n_pos;
    const uint32_t *names;
};
int jcall(struct jrun *r, struct jinja_value *fn, const struct jargs *args,
          struct jinja_value **ret);
int jcall_macro(struct jrun *r, struct jinja_value *fn, const struct jargs *args,
                struct jinja_value **ret);

enum { JMAX_PARAMS = 5 };

struct jbuiltin {
    const char *name;
    /* `self`: what is filtered, tested, or whose method it is.  `a`: bound parameters (NULL when
     * absent), or those of JB_RAW as they came. */
    int (*fn)(struct jrun *r, struct jinja_value *self, const struct jargs *a,
              struct jinja_value **ret);
    uint8_t n_min, n_max;
    uint8_t flags;
    const char *params[JMAX_PARAMS];
};
enum {
    JB_RAW = 1,      /* any number of arguments, not bound */
    JB_STRING = 2,   /* methods: of strings, */
    JB_LIST = 4,     /* lists, */
    JB_OBJECT = 8,   /* objects */
    JB_CHANGES = 16, /* what it is called on */
    JB_LOOP = 32,
};
const struct jbuiltin *jfilter_find(const char *name, size_t n);
const struct jbuiltin *jtest_find(const char *name, size_t n);
const struct jbuiltin *jmethod_find(const char *name, size_t n, uint8_t of);
const struct jbuiltin *jfunction_find(const char *name, size_t n);
/* Checks what can be checked before running: numbers and names of arguments. */
int jbuiltin_check(const struct jinja *t, const struct jbuiltin *b, const struct jnode *call,
                   struct err_text *e, const char *what);
int jbuiltin_call(struct jrun *r, const struct jbuiltin *b, struct jinja_value *self,
                  const struct jargs *args, struct jinja_value **ret);
/* Tables end with a NULL name. */
extern const struct jbuiltin jfilters_text[], jfilters_seq[], jtests[], jmethods_text[],
    jmethods_seq[];
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, const char *name, size_t n);
/* '%s' % ..., and '{}'.format(...): the first of *args are the values. */
int jformat_percent(struct jrun *r, struct jinja_value *fmt, const struct jargs *a,
                    struct jinja_value **ret);
int jformat_braces(struct jrun *r, struct jinja_value *fmt, const struct jargs *a,
                   struct jinja_value **ret);
/* Ends what a function wrote into `out`: a string value, or the reason of its failure. */
int jout_end(struct jrun *r, struct jout *out, int rc, struct jinja_value **ret);
/* v by a path such as `a.b` or a number; borrowed arguments. */
int jop_path(struct jrun *r, struct jinja_value *v, struct jinja_value *path,
             struct jinja_value **ret);
/* Pairs of an object as a list of tuples. */
int jop_pairs(struct jrun *r, struct jinja_value *object, struct jinja_value **ret);
int jop_replace(struct jrun *r, struct jinja_value *s, struct jinja_value *old,
                struct jinja_value *with, int64_t count, struct jinja_value **ret);
int jop_join(struct jrun *r, struct jinja_value *items, struct jinja_value *sep,
             struct jinja_value **ret);
int jop_trim(struct jrun *r, struct jinja_value *s, struct jinja_value *chars, bool left,
             bool right, struct jinja_value **ret);
/* The tuple (a, b); references of its own. */
int jop_pair(struct jrun *r, struct jinja_value *a, struct jinja_value *b,
             struct jinja_value **ret);

/* Operations (jinja_ops.c). */
int jop_arith(struct jrun *r, enum jop op, struct jinja_value *a, struct jinja_value *b,
              struct jinja_value **ret);
int jop_compare(struct jrun *r, enum jop op, struct jinja_value *a, struct jinja_value *b,
                bool *ret);
/* -1, 0, 1 in *ret; -EINVAL for what has no order. */
int jop_order(struct jrun *r, struct jinja_value *a, struct jinja_value *b, bool fold_case,
              int *ret);
bool jop_equal(const struct jinja_value *a, const struct jinja_value *b, uint32_t depth);
int jop_slice(struct jrun *r, struct jinja_value *v, struct jinja_value *const idx[3],
              struct jinja_value **ret);
int jop_attr(struct jrun *r, struct jinja_value *v, uint32_t name, struct jinja_value **ret);
int jop_item(struct jrun *r, struct jinja_value *v, struct jinja_value *key,
             struct jinja_value **ret);
/* The items of whatever can be iterated, as a list; `copy` when it may change meanwhile. */
int jop_items(struct jrun *r, struct jinja_value *v, bool copy, struct jinja_value **ret);

/* Printing (jinja_print.c). */
int jv_has_data(struct jrun *r, const struct jinja_value *v, uint32_t depth, bool *ret);
int jprint(struct jrun *r, struct jout *o, struct jinja_value *v);
int jprint_repr(struct jrun *r, struct jout *o, struct jinja_value *v);
/* As a string value (the same one, if it is one). */
int jprint_value(struct jrun *r, struct jinja_value *v, struct jinja_value **ret);
/* As Python's repr() has it; `buf` takes 32 bytes. */
size_t jprint_float(double d, char *buf);
struct jjson {
    const char *item_sep, *key_sep; /* not NUL-terminated by need: */
    size_t n_item_sep, n_key_sep;
    const char *indent; /* NULL: on one line */
    size_t n_indent;
    bool ensure_ascii, sort_keys;
};
int jprint_json(struct jrun *r, struct jout *o, struct jinja_value *v, const struct jjson *how);
int jparse_json(struct jrun *r, const struct jinja_value *text, struct jinja_value **ret);

/* Case (jinja_case.c). */
enum jcase {
    JC_UPPER,
    JC_LOWER,
    JC_CAPITALIZE,
    JC_TITLE, /* the method: words begin behind whatever is no letter */
    JC_WORDS, /* the filter title: behind white space and - ( { [ < */
};
int jcase_convert(struct jrun *r, struct jinja_value *str, enum jcase how,
                  struct jinja_value **ret);

static inline void jv_unref_p(struct jinja_value **p)
{
    jinja_unref(*p);
}
#define JREF CLEANUP(jv_unref_p) struct jinja_value *

#endif
