/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--check`: are the weights numbers?  A NaN or infinity in a file would come out as a failed
 * request much later, without a hint at the tensor.
 */
#include "engine/model_internal.h"
#include "engine/quant.h"

#include "util/err.h"

#include <endian.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    NAME_BYTES = 256,
    CHUNK = 256, /* values looked at before asking: a fixed count, which compilers vectorise */
};

/* A value is not finite when all bits of its exponent are set. */
enum {
    EXP_F16 = 0x7c00,
    EXP_BF16 = 0x7f80,
};
#define EXP_F32 UINT32_C(0x7f800000)

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

/* Is one of the next CHUNK values not finite? */
static bool chunk_u16(const uint8_t *p, uint16_t exp)
{
    uint16_t bad = 0;

    for (size_t i = 0; i < CHUNK; i++)
        bad |= (uint16_t)((load_u16(p + 2 * i) & exp) == exp);
    return bad != 0;
}

static bool chunk_u32(const uint8_t *p, uint32_t exp)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < CHUNK; i++)
        bad |= (uint32_t)((load_u32(p + 4 * i) & exp) == exp);
    return bad != 0;
}

/* One value of the float types. */
static bool is_bad(uint32_t type, const uint8_t *p)
{
    if (type == TENSOR_F32)
        return (load_u32(p) & EXP_F32) == EXP_F32;
    if (type == TENSOR_BF16)
        return (load_u16(p) & EXP_BF16) == EXP_BF16;
    return (load_u16(p) & EXP_F16) == EXP_F16;
}

/* Whether the chunk at p is worth a closer look. */
static bool is_chunk_bad(uint32_t type, const uint8_t *p)
{
    if (type == TENSOR_F32)
        return chunk_u32(p, EXP_F32);
    return chunk_u16(p, type == TENSOR_BF16 ? EXP_BF16 : EXP_F16);
}

struct scan {
    const struct model *m;
    struct err_text *e;
};

static int fail(const struct scan *s, const struct tensor *t, uint64_t i, const char *what)
{
    char name[NAME_BYTES];

    return gguf_fail(s->m->gguf, s->e, ERR_DAMAGED, "tensor \"%s\": element %" PRIu64 " %s",
                     err_escape(name, sizeof name, t->name.s, t->name.n), i, what);
}

/* Blocks: their scales alone can be at fault. */
static int scan_blocks(const struct scan *s, const struct tensor *t)
{
    const uint32_t elems = quant_stored_elems(t->type), bytes = quant_stored_bytes(t->type);
    const uint8_t *p = t->data;

    for (uint64_t i = 0; i < t->n_bytes / bytes; i++)
        if (!quant_is_finite(t->type, p + i * bytes))
            return fail(s, t, i * elems, "has a scale that is not finite");
    return 0;
}

static int scan_tensor(const struct tensor *t, void *arg)
{
    const struct scan *s = arg;
    const uint8_t *p = t->data;
    uint32_t elems, step;

    if (quant_is(t->type))
        return scan_blocks(s, t);
    if (!tensor_type_block(t->type, &elems, &step))
        return 0;
    for (uint64_t at = 0, left; at < t->n_bytes; at += left) {
        left = t->n_bytes - at;
        if (left > (uint64_t)CHUNK * step) {
            left = (uint64_t)CHUNK * step;
            if (!is_chunk_bad(t->type, p + at))
                continue;
        }
        for (uint64_t k = 0; k < left; k += step)
            if (is_bad(t->type, p + at + k))
                return fail(s, t, (at + k) / step * elems, "is not finite");
    }
    return 0;
}

int model_scan(const struct model *m, struct err_text *e)
{
    struct scan s = {.m = m, .e = e};
    int r = model_each_tensor(m, scan_tensor, &s);

    /* A decay above 1 makes the state grow without end: exp(a * softplus()) needs a <= 0. */
    for (uint32_t i = 0; r >= 0 && i < m->hp.n_layer; i++) {
        const struct tensor *t = m->layers[i].dn_a;

        for (uint64_t k = 0; t && r >= 0 && k < t->dims[0]; k++) {
            uint32_t u = load_u32((const uint8_t *)t->data + 4 * k);

            if (!(u >> 31) && u != 0)
                r = fail(&s, t, k, "is positive, expected -exp(A)");
        }
    }
    return r;
}
