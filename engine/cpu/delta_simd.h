/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gated delta rule.  The columns j of the state do not touch each other, so a band of columns
 * stays in the first cache while several tokens pass over it; a token's second sweep (update,
 * output) and the next one's first (decay, prediction) are one walk.
 */
#ifndef ENGINE_CPU_DELTA_SIMD_H
#define ENGINE_CPU_DELTA_SIMD_H

#include "engine/cpu/rows_simd.h"

enum {
    DELTA_DIM = 256,  /* largest head; others take the plain version */
    DELTA_CHUNK = 16, /* tokens that pass over a band of columns together */
    DELTA_VECTORS = 4,
};

/* What the band walks need of a few tokens. */
struct delta_chunk {
    uint32_t n;
    float alpha[DELTA_CHUNK], beta[DELTA_CHUNK];
    float k[DELTA_CHUNK][DELTA_DIM], q[DELTA_CHUNK][DELTA_DIM]; /* normalised */
};

static void l2_normalise(const float *x, uint32_t n_all, float *y)
{
    vf norm = vf_set1(sqrtf(dot_f32(x, x, n_all) + 1e-6f));

    EACH_VECTOR(n_all, vf_store(y + i, vf_div(vf_load(x + i, n), norm), n));
}

/* n_v vectors of columns from j on (each with n columns) through the tokens of a chunk. */
static ALWAYS_INLINE void delta_band(const uint32_t n_v, const struct delta *d,
                                     const struct delta_chunk *c, uint32_t row0, uint32_t j,
                                     uint32_t n)
{
    float *state = d->state + j;
    vf p[DELTA_VECTORS], o[DELTA_VECTORS], e[DELTA_VECTORS], root = vf_set1(sqrtf((float)d->dim));

    UNROLLED (v, n_v)
        p[v] = vf_zero();
    for (uint32_t i = 0; i < d->dim; i++) {
        float *s = state + (size_t)i * d->dim;

        UNROLLED (v, n_v) {
            vf x = vf_mul(vf_set1(c->alpha[0]), vf_load(s + v * VF, n));

            p[v] = vf_fma(vf_set1(c->k[0][i]), x, p[v]);
            vf_store(s + v * VF, x, n);
        }
    }
    for (uint32_t t = 0; t < c->n; t++) {
        const float *value = d->v + (row0 + t) * d->ld_qkv + j;
        float *out = d->o + (row0 + t) * d->ld_o + j;
        bool more = t + 1 < c->n;

        UNROLLED (v, n_v) {
            e[v] = vf_mul(vf_set1(c->beta[t]), vf_sub(vf_load(value + v * VF, n), p[v]));
            o[v] = vf_zero();
            p[v] = vf_zero();
        }
        if (more) {
            vf alpha = vf_set1(c->alpha[t + 1]);

            for (uint32_t i = 0; i < d->dim; i++) {
                float *s = state + (size_t)i * d->dim;
                vf k = vf_set1(c->k[t][i]), q = vf_set1(c->q[t][i]),
                   k_next = vf_set1(c->k[t + 1][i]);

                UNROLLED (v, n_v) {
                    vf x = vf_fma(k, e[v], vf_load(s + v * VF, n));

                    o[v] = vf_fma(q, x, o[v]);
                    x = vf_mul(alpha, x);
                    p[v] = vf_fma(k_next, x, p[v]);
                    vf_store(s + v * VF, x, n);
                }
            }
        } else {
            for (uint32_t i = 0; i < d->dim; i++) {
                float *s = state + (size_t)i * d->dim;

                UNROLLED (v, n_v) {
                    vf x = vf_fma(vf_set1(c->k[t][i]), e[v], vf_load(s + v * VF, n));

                    o[v] = vf_fma(vf_set1(c->q[t][i]), x, o[v]);
                    vf_store(s + v * VF, x, n);
                }
            }
        }
        UNROLLED (v, n_v)
            vf_store(out + v * VF, vf_div(o[v], root), n);
    }
}

static void delta_chunk(const struct delta *d, uint32_t row0, uint32_t n_rows)
{
    struct delta_chunk c;
    uint32_t j = 0;

    c.n = n_rows;
    for (uint32_t t = 0; t < n_rows; t++) {
        size_t row = row0 + t;

        l2_normalise(d->q + row * d->ld_qkv, d->dim, c.q[t]);
        l2_normalise(d->k + row * d->ld_qkv, d->dim, c.k[t]);
        c.beta[t] = vm_sigmoid(d->b[row * d->ld_ab]);
        c.alpha[t] = vm_exp(d->a_coef * vm_softplus(d->a[row * d->ld_ab] + d->dt));
    }
    for (; j + DELTA_VECTORS * VF <= d->dim; j += DELTA_VECTORS * VF)
        delta_band(DELTA_VECTORS, d, &c, row0, j, VF);
    for (; j + VF <= d->dim; j += VF)
        delta_band(1, d, &c, row0, j, VF);
    if (j < d->dim)
        delta_band(1, d, &c, row0, j, d->dim - j);
    for (uint32_t t = 0; t < n_rows; t++) {
        float *o = d->o + (row0 + t) * d->ld_o;
        const float *z = d->z + (row0 + t) * d->ld_z;

        simd_rmsnorm(o, d->norm, d->eps, d->dim, o);
        EACH_VECTOR(d->dim,
                    vf_store(o + i, vf_mul(vf_load(o + i, n), vf_silu(vf_load(z + i, n))), n));
    }
}

static void simd_delta_rows(const struct delta *d)
{
    if (d->dim > DELTA_DIM) {
        kernels_c.delta_rows(d);
        return;
    }
    for (uint32_t r = 0; r < d->n_rows; r += DELTA_CHUNK)
        delta_chunk(d, r, d->n_rows - r < DELTA_CHUNK ? d->n_rows - r : DELTA_CHUNK);
}

#endif
