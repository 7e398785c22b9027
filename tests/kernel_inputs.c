/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernel_inputs.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/cpu/kernels.h"
#include "engine/gguf.h"
#include "engine/quant.h"

void rng_init(struct rng *r, uint64_t seed)
{
    r->s = seed * 0x9e3779b97f4a7c15ULL + 1;
    (void)rng_next(r);
}

uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi)
{
    return lo + rng_below(r, hi - lo + 1);
}

void rng_order(struct rng *r, uint32_t *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rng_below(r, i), t = p[i - 1];

        p[i - 1] = p[j];
        p[j] = t;
    }
}

float rng_normal(struct rng *r)
{
    float sum = 0;

    for (int i = 0; i < 6; i++)
        sum += (float)(rng_next(r) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.4142135f;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static float wild(struct rng *r)
{
    float sign = rng_below(r, 2) ? 1.0f : -1.0f;

    switch (rng_below(r, 12)) {
    case 0:
        return 0.0f * sign;
    case 1:
        return sign * float_of(1 + rng_below(r, 1 << 23)); /* subnormal */
    case 2:
        return sign * 0x1p-126f * (1 + rng_normal(r));
    case 3:
        return sign * 0x1p60f * rng_normal(r);
    case 4:
        return sign * 65504.0f * (1 + 0.001f * rng_normal(r)); /* where half precision ends */
    case 5:
        return sign * 90.0f * (1 + 0.2f * rng_normal(r)); /* where exp ends */
    case 6:
        return sign * 0x1p-24f * rng_normal(r); /* subnormal halves */
    default:
        return rng_normal(r);
    }
}

void fill(struct rng *r, enum kinds kind, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = kind == KIND_NORMAL ? rng_normal(r) : wild(r);
    if (kind != KIND_BROKEN || n == 0)
        return;
    for (uint32_t i = rng_range(r, 1, 3); i > 0; i--) {
        float *bad = &x[rng_below(r, (uint32_t)n)];

        *bad = rng_below(r, 2) ? NAN : rng_below(r, 2) ? INFINITY : -INFINITY;
    }
}

const uint32_t weight_types[N_WEIGHT_TYPES] = {
    TENSOR_F32,    TENSOR_F16,   TENSOR_BF16,    TENSOR_Q8_0,   TENSOR_Q4_0,
    TENSOR_Q4_1,   TENSOR_Q5_0,  TENSOR_Q5_1,    TENSOR_IQ4_NL, TENSOR_MXFP4,
    TENSOR_Q2_K,   TENSOR_Q3_K,  TENSOR_Q4_K,    TENSOR_Q5_K,   TENSOR_Q6_K,
    TENSOR_IQ4_XS, TENSOR_IQ3_S, TENSOR_IQ3_XXS, TENSOR_IQ2_XS,
};

enum { MAX_MAPS = 256, GUARD = 4096 };

static struct {
    void *p;
    size_t n;
} maps[MAX_MAPS];
static unsigned int n_maps;

void *guarded(size_t n)
{
    size_t room = (n + GUARD - 1) / GUARD * GUARD + GUARD;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_uint_lt(n_maps, MAX_MAPS);
    ck_assert_int_eq(mprotect(p + room - GUARD, GUARD, PROT_NONE), 0);
    maps[n_maps].p = p;
    maps[n_maps++].n = room;
    return p + room - GUARD - n;
}

float *guarded_floats(size_t n)
{
    return guarded(n * sizeof(float));
}

void guarded_free_all(void)
{
    for (; n_maps > 0; n_maps--)
        (void)munmap(maps[n_maps - 1].p, maps[n_maps - 1].n);
}

uint64_t weight_row_bytes(uint32_t type, uint32_t k)
{
    uint32_t elems, bytes;

    ck_assert(tensor_type_block(type, &elems, &bytes));
    return (uint64_t)k / elems * bytes;
}

static void put_u16(uint8_t *p, uint16_t u)
{
    memcpy(p, &u, sizeof(u));
}

static uint16_t random_scale(struct rng *r, enum kinds kind)
{
    float d = kind == KIND_NORMAL ? 0.01f * rng_normal(r) : wild(r);

    if (kind != KIND_BROKEN && fabsf(d) > 60000.0f)
        d = 1.0f;
    return float_to_half(d);
}

/* Any bytes, with more of the largest and least than chance would give; and a scale to the taste.
 */
static void fill_block(struct rng *r, enum kinds kind, uint32_t type, uint8_t *w)
{
    const uint32_t d = quant_scale_at(type);

    for (uint32_t i = 0, ones = rng_below(r, 16); i < quant_stored_bytes(type); i++)
        w[i] = ones == 0         ? 0xff
               : ones == 1       ? 0
               : rng_below(r, 8) ? (uint8_t)rng_next(r)
               : rng_below(r, 2) ? 0x80
                                 : 0x7f;
    if (type == TENSOR_MXFP4) {
        w[0] = (uint8_t)(kind == KIND_NORMAL ? rng_range(r, 118, 130)
                         : kind == KIND_WILD ? rng_below(r, 255)
                                             : rng_below(r, 256));
        return;
    }
    put_u16(w + d, random_scale(r, kind));
    if (quant_has_min(type))
        put_u16(w + d + 2, random_scale(r, kind));
}

void fill_weights(struct rng *r, enum kinds kind, uint32_t type, uint32_t k, uint32_t n_rows,
                  uint8_t *w)
{
    for (uint32_t row = 0; row < n_rows; row++, w += weight_row_bytes(type, k)) {
        if (quant_is(type)) {
            for (uint32_t i = 0; i < k / quant_stored_elems(type); i++)
                fill_block(r, kind, type, w + (size_t)i * quant_stored_bytes(type));
            continue;
        }
        for (uint32_t i = 0; i < k; i++) {
            float f;

            fill(r, rng_below(r, 50) ? (kind == KIND_BROKEN ? KIND_WILD : kind) : kind, &f, 1);
            if (type == TENSOR_F32)
                memcpy(w + 4 * i, &f, 4);
            else if (type == TENSOR_BF16)
                put_u16(w + 2 * i, float_to_bf16(f));
            else
                put_u16(w + 2 * i,
                        float_to_half(kind != KIND_BROKEN && fabsf(f) > 60000.0f ? 1.0f : f));
        }
    }
}

const char *differ(const float *a, const float *b, size_t n)
{
    static char text[160];

    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(a[i])) == 0 || (isnan(a[i]) && isnan(b[i])))
            continue;
        (void)snprintf(text, sizeof(text), "element %zu: %a against %a", i, (double)a[i],
                       (double)b[i]);
        return text;
    }
    return NULL;
}

uint32_t vector_versions(const struct kernels *ret[4])
{
    static const char *const names[] = {"avx2", "avx512"};
    static bool told;
    uint32_t n = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct kernels *k = kernels_get(names[i]);

        if (k)
            ret[n++] = k;
        else if (!told)
            printf("skipped: %s, which this processor or build does not have\n", names[i]);
    }
    told = true;
    return n;
}
