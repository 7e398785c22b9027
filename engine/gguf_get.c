/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to the keys of a GGUF file. */
#include "engine/gguf_internal.h"

#include "util/err.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const struct gguf_kv *find(const struct gguf *g, const char *key)
{
    return gguf_find_kv(g, key, strlen(key));
}

static int wrong_type(const struct gguf *g, const char *key, const struct gguf_kv *kv,
                      const char *expected, struct err_text *e)
{
    if (kv->type == GGUF_ARRAY)
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": found an array of %s, expected %s", key,
                         gguf_type_name(kv->elem_type), expected);
    return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": found %s, expected %s", key,
                     gguf_type_name(kv->type), expected);
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                 struct err_text *e)
{
    const struct gguf_kv *kv = find(g, key);
    bool negative;
    uint64_t v;

    if (!kv)
        return 0;
    if (kv->type == GGUF_BOOL || !gguf_read_int(kv->type, kv->p, &v, &negative))
        return wrong_type(g, key, kv, "an integer", e);
    if (negative || v < min || v > max)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": found %s%" PRIu64 ", expected %" PRIu64 " to %" PRIu64, key,
                         negative ? "-" : "", v, min, max);
    *ret = v;
    return 1;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *ret, struct err_text *e)
{
    const struct gguf_kv *kv = find(g, key);
    double v;

    if (!kv)
        return 0;
    if (!gguf_read_float(kv->type, kv->p, &v))
        return wrong_type(g, key, kv, "f32 or f64", e);
    /* An f64 may be finite and still not fit: compare after the conversion's range, not before. */
    if (!isfinite(v) || !isfinite((float)v))
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": found %g, expected a finite f32", key, v);
    *ret = (float)v;
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *ret, struct err_text *e)
{
    const struct gguf_kv *kv = find(g, key);
    bool negative;
    uint64_t v;

    if (!kv)
        return 0;
    if (!gguf_read_int(kv->type, kv->p, &v, &negative))
        return wrong_type(g, key, kv, "bool", e);
    if (negative || v > 1)
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": found %s%" PRIu64 ", expected 0 or 1", key,
                         negative ? "-" : "", v);
    *ret = v == 1;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *ret, struct err_text *e)
{
    const struct gguf_kv *kv = find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_STR)
        return wrong_type(g, key, kv, "a string", e);
    ret->n = (size_t)gguf_read_u64(kv->p);
    ret->s = (const char *)kv->p + 8;
    return 1;
}

int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *ret,
                   struct err_text *e)
{
    const struct gguf_kv *kv = find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, key, kv, "an array", e);
    ret->elem_type = kv->elem_type;
    ret->n = kv->n;
    ret->opaque = kv;
    return 1;
}

int gguf_array_is_str(const struct gguf_array *a)
{
    return a->elem_type == GGUF_STR;
}

struct gguf_str gguf_array_str(const struct gguf_array *a, uint64_t i)
{
    const struct gguf_kv *kv = a->opaque;
    const uint8_t *p;

    assert(i < a->n && a->elem_type == GGUF_STR);
    p = kv->p + kv->offsets[i];
    return (struct gguf_str){.s = (const char *)p + 8, .n = (size_t)gguf_read_u64(p)};
}

bool gguf_array_i64(const struct gguf_array *a, uint64_t i, int64_t *ret)
{
    const struct gguf_kv *kv = a->opaque;
    bool negative;
    uint64_t v;

    assert(i < a->n);
    if (!gguf_read_int(a->elem_type, kv->p + i * gguf_type_bytes(a->elem_type), &v, &negative))
        return false;
    /* A u64 beyond i64 is as good as the largest: every caller has a far smaller range. */
    if (negative)
        *ret = v > INT64_MAX ? INT64_MIN : -(int64_t)v;
    else
        *ret = v > INT64_MAX ? INT64_MAX : (int64_t)v;
    return true;
}

bool gguf_array_f64(const struct gguf_array *a, uint64_t i, double *ret)
{
    const struct gguf_kv *kv = a->opaque;
    int64_t v;

    assert(i < a->n);
    if (gguf_read_float(a->elem_type, kv->p + i * gguf_type_bytes(a->elem_type), ret))
        return true;
    if (!gguf_array_i64(a, i, &v))
        return false;
    *ret = (double)v;
    return true;
}
