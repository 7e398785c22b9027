/* SPDX-License-Identifier: Apache-2.0 */
/* x is ... */
#include "engine/jinja_private.h"

#include <errno.h>

#define TEST(name, condition)                                                                      \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)                                                      \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)a;                                                                                   \
        *ret = jv_of_bool(condition);                                                              \
        return 0;                                                                                  \
    }

TEST(t_defined, v->type != JT_UNDEFINED)
TEST(t_undefined, v->type == JT_UNDEFINED)
TEST(t_none, v->type == JT_NONE)
TEST(t_string, v->type == JT_STRING)
TEST(t_number, jv_is_number(v))
TEST(t_integer, v->type == JT_INT || v->type == JT_BIG)
TEST(t_float, v->type == JT_FLOAT)
TEST(t_boolean, v->type == JT_BOOL)
TEST(t_true, v->type == JT_BOOL && v->u.b)
TEST(t_false, v->type == JT_BOOL && !v->u.b)
TEST(t_mapping, v->type == JT_OBJECT)
TEST(t_iterable,
     v->type == JT_UNDEFINED || v->type == JT_STRING || jv_is_list(v) || v->type == JT_OBJECT)
TEST(t_callable, v->type == JT_UNDEFINED || v->type == JT_MACRO || v->type == JT_METHOD ||
                     v->type == JT_FUNCTION)
/* For what has no identity of its own here: equal and of one type. */
TEST(t_sameas, v == a->v[0] || (v->type == a->v[0]->type && !jv_is_list(v) && !jv_is_object(v) &&
                                jop_equal(v, a->v[0], 0)))

static int compare(struct jrun *r, enum jop op, struct jinja_value *v, const struct jargs *a,
                   struct jinja_value **ret)
{
    bool holds = false;
    int rc = jop_compare(r, op, v, a->v[0], &holds);

    if (rc == 0)
        *ret = jv_of_bool(holds);
    return rc;
}

#define COMPARE(name, op)                                                                          \
    static int name(struct jrun *r, struct jinja_value *v, const struct jargs *a,                  \
                    struct jinja_value **ret)                                                      \
    {                                                                                              \
        return compare(r, op, v, a, ret);                                                          \
    }

COMPARE(t_eq, JO_EQ)
COMPARE(t_ne, JO_NE)
COMPARE(t_lt, JO_LT)
COMPARE(t_le, JO_LE)
COMPARE(t_gt, JO_GT)
COMPARE(t_ge, JO_GE)
COMPARE(t_in, JO_IN)

static int divides(struct jrun *r, struct jinja_value *v, struct jinja_value *by, int64_t rest,
                   struct jinja_value **ret)
{
    struct jinja_value *left = NULL;
    int64_t i = 0;
    int rc;

    if (!jv_is_number(v) || !jv_is_number(by))
        return jfail(r, -EINVAL, "%s cannot be divided by %s", jv_type_name(v), jv_type_name(by));
    rc = jop_arith(r, JO_MOD, v, by, &left);
    if (rc < 0)
        return rc;
    *ret = jv_of_bool(left->type == JT_FLOAT ? left->u.f == (double)rest
                                             : jv_integer(left, &i) && i == rest);
    jinja_unref(left);
    return 0;
}

static int t_divisibleby(struct jrun *r, struct jinja_value *v, const struct jargs *a,
                         struct jinja_value **ret)
{
    return divides(r, v, a->v[0], 0, ret);
}

static int t_even(struct jrun *r, struct jinja_value *v, const struct jargs *a,
                  struct jinja_value **ret)
{
    struct jinja_value two = {.type = JT_INT, .immortal = true, .u.i = 2};

    (void)a;
    return divides(r, v, &two, 0, ret);
}

static int t_odd(struct jrun *r, struct jinja_value *v, const struct jargs *a,
                 struct jinja_value **ret)
{
    struct jinja_value two = {.type = JT_INT, .immortal = true, .u.i = 2};

    (void)a;
    return divides(r, v, &two, 1, ret);
}

static int is_case(struct jrun *r, struct jinja_value *v, enum jcase how, struct jinja_value **ret)
{
    struct jinja_value *text = NULL, *same = NULL, *other = NULL;
    int rc = jprint_value(r, v, &text);

    if (rc == 0)
        rc = jcase_convert(r, text, how, &same);
    if (rc == 0)
        rc = jcase_convert(r, text, how == JC_UPPER ? JC_LOWER : JC_UPPER, &other);
    /* As Python's islower: at least one letter that has a case. */
    if (rc == 0)
        *ret = jv_of_bool(jop_equal(text, same, 0) && !jop_equal(text, other, 0));
    jinja_unref(text);
    jinja_unref(same);
    jinja_unref(other);
    return rc;
}

static int t_lower(struct jrun *r, struct jinja_value *v, const struct jargs *a,
                   struct jinja_value **ret)
{
    (void)a;
    return is_case(r, v, JC_LOWER, ret);
}

static int t_upper(struct jrun *r, struct jinja_value *v, const struct jargs *a,
                   struct jinja_value **ret)
{
    (void)a;
    return is_case(r, v, JC_UPPER, ret);
}

#define PLAIN(name, fn)                                                                            \
    {                                                                                              \
        name, fn, 0, 0, 0,                                                                         \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
#define OTHER(name, fn)                                                                            \
    {                                                                                              \
        name, fn, 1, 1, 0,                                                                         \
        {                                                                                          \
            "other"                                                                                \
        }                                                                                          \
    }

const struct jbuiltin jtests[] = {
    PLAIN("defined", t_defined),
    PLAIN("undefined", t_undefined),
    PLAIN("none", t_none),
    PLAIN("string", t_string),
    PLAIN("number", t_number),
    PLAIN("integer", t_integer),
    PLAIN("float", t_float),
    PLAIN("boolean", t_boolean),
    PLAIN("true", t_true),
    PLAIN("false", t_false),
    PLAIN("mapping", t_mapping),
    PLAIN("iterable", t_iterable),
    PLAIN("sequence", t_iterable),
    PLAIN("callable", t_callable),
    PLAIN("even", t_even),
    PLAIN("odd", t_odd),
    PLAIN("lower", t_lower),
    PLAIN("upper", t_upper),
    OTHER("divisibleby", t_divisibleby),
    OTHER("sameas", t_sameas),
    OTHER("in", t_in),
    OTHER("eq", t_eq),
    OTHER("equalto", t_eq),
    OTHER("==", t_eq),
    OTHER("ne", t_ne),
    OTHER("!=", t_ne),
    OTHER("lt", t_lt),
    OTHER("lessthan", t_lt),
    OTHER("<", t_lt),
    OTHER("le", t_le),
    OTHER("<=", t_le),
    OTHER("gt", t_gt),
    OTHER("greaterthan", t_gt),
    OTHER(">", t_gt),
    OTHER("ge", t_ge),
    OTHER(">=", t_ge),
    PLAIN(NULL, NULL),
};
