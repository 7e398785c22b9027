/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic, comparison, access, slices. */
#include "engine/jinja_private.h"

#include "util/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>

/* How deep comparing goes before it gives up and calls them different. */
enum { MAX_COMPARE = 200 };

/* --- arithmetic --------------------------------------------------------------------------------
 */

static int overflow(struct jrun *r)
{
    return jfail(r, -EINVAL, "an integer beyond 64 bits");
}

static int int_power(struct jrun *r, int64_t a, int64_t b, int64_t *ret)
{
    int64_t v = 1;

    /* Anything but -1, 0 and 1 is out of range after 63 rounds. */
    if (b > 63 && (a == 0 || a == 1 || a == -1)) {
        *ret = a == -1 && b % 2 == 0 ? 1 : a;
        return 0;
    }
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(v, a, &v))
            return overflow(r);
    *ret = v;
    return 0;
}

static int int_arith(struct jrun *r, enum jop op, int64_t a, int64_t b, int64_t *ret)
{
    bool is_over = false;

    switch ((int)op) {
    case JO_ADD:
        is_over = __builtin_add_overflow(a, b, ret);
        break;
    case JO_SUB:
        is_over = __builtin_sub_overflow(a, b, ret);
        break;
    case JO_MUL:
        is_over = __builtin_mul_overflow(a, b, ret);
        break;
    case JO_POW:
        return int_power(r, a, b, ret);
    default: /* // and %: towards minus infinity */
        if (b == 0)
            return jfail(r, -EINVAL, "division by zero");
        if (b == -1) { /* INT64_MIN / -1 traps */
            if (op == JO_MOD)
                *ret = 0;
            else
                is_over = __builtin_sub_overflow(0, a, ret);
        } else if (op == JO_FLOORDIV) {
            *ret = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        } else {
            *ret = a % b;
            if (*ret != 0 && (*ret < 0) != (b < 0))
                *ret += b;
        }
        break;
    }
    return is_over ? overflow(r) : 0;
}

static int float_arith(struct jrun *r, enum jop op, double a, double b, double *ret)
{
    if (b == 0 && (op == JO_DIV || op == JO_FLOORDIV || op == JO_MOD))
        return jfail(r, -EINVAL, "division by zero");
    switch ((int)op) {
    case JO_ADD:
        *ret = a + b;
        break;
    case JO_SUB:
        *ret = a - b;
        break;
    case JO_MUL:
        *ret = a * b;
        break;
    case JO_DIV:
        *ret = a / b;
        break;
    case JO_FLOORDIV:
        *ret = floor(a / b);
        break;
    case JO_MOD:
        *ret = fmod(a, b);
        if (*ret != 0 && (*ret < 0) != (b < 0))
            *ret += b;
        break;
    default:
        *ret = pow(a, b);
        break;
    }
    return 0;
}

static int numbers(struct jrun *r, enum jop op, struct jinja_value *a, struct jinja_value *b,
                   struct jinja_value **ret)
{
    int64_t i, j, k = 0;
    double x, y, z = 0;
    int rc;

    if (jv_integer(a, &i) && jv_integer(b, &j) && op != JO_DIV && !(op == JO_POW && j < 0)) {
        rc = int_arith(r, op, i, j, &k);
        if (rc < 0)
            return rc;
        *ret = jv_new_int(&r->heap, k);
        return *ret ? 0 : jfail_nomem(r);
    }
    if (!jv_double(a, &x) || !jv_double(b, &y))
        return overflow(r);
    rc = float_arith(r, op, x, y, &z);
    if (rc < 0)
        return rc;
    *ret = jv_new_float(&r->heap, z);
    return *ret ? 0 : jfail_nomem(r);
}

static int concat(struct jrun *r, struct jinja_value *a, struct jinja_value *b,
                  struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    struct jinja_value *v;
    int rc = jstep_bytes(r, a->u.str.n + b->u.str.n);

    if (rc < 0)
        return rc;
    if (a->u.str.n == 0 || b->u.str.n == 0) {
        *ret = jinja_ref(a->u.str.n ? a : b);
        return 0;
    }
    if (a->marks == b->marks && a->marks != JM_MIXED) { /* one copy less than below */
        v = jv_new(&r->heap, JT_STRING, a->u.str.n + b->u.str.n);
        if (!v)
            return jfail_nomem(r);
        memcpy(v + 1, a->u.str.s, a->u.str.n);
        memcpy((char *)(v + 1) + a->u.str.n, b->u.str.s, b->u.str.n);
        v->u.str.s = (const char *)(v + 1);
        v->u.str.n = a->u.str.n + b->u.str.n;
        v->marks = a->marks;
        *ret = v;
        return 0;
    }
    if (jout_slice(&out, a, 0, a->u.str.n) < 0 || jout_slice(&out, b, 0, b->u.str.n) < 0 ||
        jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

static int append_items(struct jrun *r, struct jinja_value *list, const struct jinja_value *from)
{
    size_t n = from->u.list.n;

    if (jlist_reserve(list, n) < 0)
        return jfail_nomem(r);
    for (size_t i = 0; i < n; i++)
        list->u.list.v[list->u.list.n++] = jinja_ref(from->u.list.v[i]);
    return jstep(r, n / 8);
}

static int add_lists(struct jrun *r, struct jinja_value *a, struct jinja_value *b,
                     struct jinja_value **ret)
{
    JREF list = jv_new(&r->heap, a->type, 0);
    int rc;

    if (!list)
        return jfail_nomem(r);
    rc = append_items(r, list, a);
    if (rc == 0)
        rc = append_items(r, list, b);
    if (rc == 0)
        *ret = TAKE(list);
    return rc;
}

/* 'ab' * 2, [1] * 2 */
static int repeat(struct jrun *r, struct jinja_value *v, int64_t n, struct jinja_value **ret)
{
    struct jout out = {.heap = &r->heap};
    JREF list = NULL;
    int rc = 0;

    if (v->type != JT_STRING) {
        list = jv_new(&r->heap, v->type, 0);
        if (!list)
            return jfail_nomem(r);
        for (int64_t i = 0; i < n && rc == 0; i++) {
            rc = jstep(r, 1);
            if (rc == 0)
                rc = append_items(r, list, v);
        }
        if (rc == 0)
            *ret = TAKE(list);
        return rc;
    }
    for (int64_t i = 0; i < n && rc == 0 && v->u.str.n; i++) {
        rc = jstep(r, 1 + v->u.str.n / 64);
        if (rc == 0 && jout_slice(&out, v, 0, v->u.str.n) < 0)
            rc = jfail_nomem(r);
    }
    if (rc == 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}

int jop_arith(struct jrun *r, enum jop op, struct jinja_value *a, struct jinja_value *b,
              struct jinja_value **ret)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    int64_t n;

    if (jv_is_number(a) && jv_is_number(b))
        return numbers(r, op, a, b, ret);
    if (op == JO_ADD && a->type == JT_STRING && b->type == JT_STRING)
        return concat(r, a, b, ret);
    if (op == JO_ADD && jv_is_list(a) && a->type == b->type)
        return add_lists(r, a, b, ret);
    if (op == JO_MUL && (a->type == JT_STRING || jv_is_list(a)) && jv_integer(b, &n))
        return repeat(r, a, n, ret);
    if (op == JO_MUL && (b->type == JT_STRING || jv_is_list(b)) && jv_integer(a, &n))
        return repeat(r, b, n, ret);
    if (op == JO_MOD && a->type == JT_STRING) {
        struct jinja_value *one = b;
        struct jargs args = {.v = &one, .n = 1, .n_pos = 1};

        if (b->type == JT_TUPLE) {
            args.v = b->u.list.v;
            args.n = args.n_pos = (uint32_t)b->u.list.n;
        }
        return jformat_percent(r, a, &args, ret);
    }
    return jfail(r, -EINVAL, "%s %s %s is not possible", jv_type_name(a), signs[op],
                 jv_type_name(b));
}

/* --- comparison --------------------------------------------------------------------------------
 */

static bool equal_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t i, j;
    double x, y;

    if (jv_integer(a, &i) && jv_integer(b, &j))
        return i == j;
    if (a->type == JT_BIG || b->type == JT_BIG)
        return a->type == b->type && jstr_equal(a, b->u.str.s, b->u.str.n);
    return jv_double(a, &x) && jv_double(b, &y) && x == y;
}

bool jop_equal(const struct jinja_value *a, const struct jinja_value *b, uint32_t depth)
{
    if (a == b)
        return true;
    if (jv_is_number(a) && jv_is_number(b))
        return equal_numbers(a, b);
    if (a->type != b->type || depth > MAX_COMPARE)
        return false;
    switch (a->type) {
    case JT_UNDEFINED:
    case JT_NONE:
        return true;
    case JT_STRING:
        return jstr_equal(a, b->u.str.s, b->u.str.n);
    case JT_LIST:
    case JT_TUPLE:
        if (a->u.list.n != b->u.list.n)
            return false;
        for (size_t i = 0; i < a->u.list.n; i++)
            if (!jop_equal(a->u.list.v[i], b->u.list.v[i], depth + 1))
                return false;
        return true;
    case JT_OBJECT:
        if (a->u.obj.n != b->u.obj.n)
            return false;
        for (size_t i = 0; i < a->u.obj.n; i++) {
            const struct jinja_value *v = jobject_find(b, a->u.obj.e[i].key);

            if (!v || !jop_equal(a->u.obj.e[i].value, v, depth + 1))
                return false;
        }
        return true;
    default:
        return false;
    }
}

/* Charges for what comparing with `v` may cost: its size, also where parts of it are shared. */
static int charge(struct jrun *r, const struct jinja_value *v, uint32_t depth)
{
    int rc = jstep(r, 1 + (v->type == JT_STRING ? v->u.str.n / 64 : 0));

    if (depth > MAX_COMPARE)
        return rc;
    for (size_t i = 0; jv_is_list(v) && i < v->u.list.n && rc == 0; i++)
        rc = charge(r, v->u.list.v[i], depth + 1);
    for (size_t i = 0; jv_is_object(v) && i < v->u.obj.n && rc == 0; i++)
        rc = charge(r, v->u.obj.e[i].value, depth + 1);
    return rc;
}

static int equal(struct jrun *r, const struct jinja_value *a, const struct jinja_value *b,
                 bool *ret)
{
    int rc = 0;

    if (a->type == b->type && (jv_is_list(a) || jv_is_object(a)))
        rc = charge(r, a, 0);
    if (rc == 0)
        *ret = jop_equal(a, b, 0);
    return rc;
}

static int fold(char c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : (unsigned char)c;
}

/* Bytewise order of UTF-8 is that of the characters; case is folded for ASCII only. */
static int order_text(const struct jinja_value *a, const struct jinja_value *b, bool fold_case)
{
    size_t n = a->u.str.n < b->u.str.n ? a->u.str.n : b->u.str.n;
    int c = 0;

    if (!fold_case) {
        c = n ? memcmp(a->u.str.s, b->u.str.s, n) : 0;
    } else {
        for (size_t i = 0; i < n && c == 0; i++)
            c = fold(a->u.str.s[i]) - fold(b->u.str.s[i]);
    }
    if (c != 0)
        return c < 0 ? -1 : 1;
    return a->u.str.n < b->u.str.n ? -1 : a->u.str.n > b->u.str.n;
}

int jop_order(struct jrun *r, struct jinja_value *a, struct jinja_value *b, bool fold_case,
              int *ret)
{
    int64_t i, j;
    double x, y;
    int rc = jstep(r, 1);

    if (rc < 0)
        return rc;
    if (jv_integer(a, &i) && jv_integer(b, &j)) {
        *ret = i < j ? -1 : i > j;
    } else if (jv_double(a, &x) && jv_double(b, &y)) {
        *ret = x < y ? -1 : x > y;
    } else if (a->type == JT_STRING && b->type == JT_STRING) {
        *ret = order_text(a, b, fold_case);
    } else if (jv_is_list(a) && a->type == b->type) {
        size_t n = a->u.list.n < b->u.list.n ? a->u.list.n : b->u.list.n, at = 0;
        bool is_equal = true;

        while (at < n && is_equal) {
            rc = equal(r, a->u.list.v[at], b->u.list.v[at], &is_equal);
            if (rc < 0)
                return rc;
            at += is_equal;
        }
        if (at < n) {
            if (r->frames >= r->max_frames)
                return jfail(r, ERR_CAPACITY, "nested too deeply");
            r->frames++;
            rc = jop_order(r, a->u.list.v[at], b->u.list.v[at], fold_case, ret);
            r->frames--;
            return rc;
        }
        *ret = a->u.list.n < b->u.list.n ? -1 : a->u.list.n > b->u.list.n;
    } else {
        return jfail(r, -EINVAL, "%s and %s have no order", jv_type_name(a), jv_type_name(b));
    }
    return 0;
}

static int contains(struct jrun *r, struct jinja_value *what, struct jinja_value *in, bool *ret)
{
    int rc = 0;

    *ret = false;
    if (in->type == JT_STRING) {
        if (what->type != JT_STRING)
            return jfail(r, -EINVAL, "%s cannot be in a string", jv_type_name(what));
        *ret = jstr_find(in->u.str.s, in->u.str.n, 0, what->u.str.s, what->u.str.n) != SIZE_MAX;
        return jstep_bytes(r, in->u.str.n);
    }
    if (jv_is_list(in)) {
        for (size_t i = 0; i < in->u.list.n && rc == 0 && !*ret; i++)
            rc = equal(r, in->u.list.v[i], what, ret);
        return rc < 0 ? rc : jstep(r, in->u.list.n / 8);
    }
    if (in->type == JT_OBJECT) {
        *ret = jobject_find(in, what) != NULL;
        return 0;
    }
    if (in->type == JT_UNDEFINED)
        return 0;
    return jfail(r, -EINVAL, "nothing can be in %s", jv_type_name(in));
}

int jop_compare(struct jrun *r, enum jop op, struct jinja_value *a, struct jinja_value *b,
                bool *ret)
{
    int c = 0, rc;

    switch ((int)op) {
    case JO_EQ:
    case JO_NE:
        rc = equal(r, a, b, ret);
        *ret = *ret == (op == JO_EQ);
        return rc;
    case JO_IN:
    case JO_NOT_IN:
        rc = contains(r, a, b, ret);
        *ret = *ret == (op == JO_IN);
        return rc;
    default:
        rc = jop_order(r, a, b, false, &c);
        *ret = op == JO_LT ? c < 0 : op == JO_LE ? c <= 0 : op == JO_GT ? c > 0 : c >= 0;
        return rc;
    }
}
