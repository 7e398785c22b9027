/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--check`: are the weights numbers?  A NaN or infinity in a file would come out as a failed
 * request much later, without a hint at the tensor.
 */
#include "engine/model_internal.h"

#include "util/err.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    Q8_0_BYTES = 34, /* a half-precision scale and 32 integers */
    NAME_BYTES = 256,
};

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

/* One value of `step` bytes at p: are all bits of its exponent set? */
static bool is_odd(uint32_t type, const uint8_t *p)
{
    if (type == TENSOR_F32)
        return (load_u32(p) & 0x7f800000) == 0x7f800000;
    if (type == TENSOR_BF16)
        return (load_u16(p) & 0x7f80) == 0x7f80;
    return (load_u16(p) & 0x7c00) == 0x7c00; /* F16, and the scale of Q8_0 */
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

static int scan_tensor(const struct tensor *t, void *arg)
{
    const struct scan *s = arg;
    const uint8_t *p = t->data;
    uint32_t elems, step;

    if (!tensor_type_block(t->type, &elems, &step))
        return 0;
    for (uint64_t at = 0; at < t->n_bytes; at += step)
        if (is_odd(t->type, p + at))
            return fail(s, t, at / step * elems,
                        t->type == TENSOR_Q8_0 ? "has a scale that is not finite"
                                               : "is not finite");
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
