/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing work between the members of a step, and products of many rows at once. */
#include "engine/cpu/cpu.h"

#include <assert.h>
#include <string.h>

void cpu_next(struct member *m)
{
    m->phase++;
}

void cpu_phase(struct member *m)
{
    pool_barrier(m->b->pool);
    /*
     * Every member is done with the counters of this phase and before.  The four latest are used
     * again five to eight phases from now, which is behind the next barrier, so nobody sees them
     * half reset.
     */
    if (m->i == 0)
        for (uint32_t i = 0; i < 4; i++)
            atomic_store_explicit(&m->b->counters[(m->phase - i) % N_COUNTERS].next, 0,
                                  memory_order_relaxed);
    m->phase++;
}

int cpu_take(struct member *m, uint32_t n, uint32_t grain, uint32_t *ret_begin, uint32_t *ret_end)
{
    return pool_take(&m->b->counters[m->phase % N_COUNTERS], n, grain, ret_begin, ret_end);
}

void cpu_matmul_piece(struct member *m, const struct mm_piece *p, const struct acts *a)
{
    const struct tensor *w = p->w;
    const struct matmul mm = {
        .w = (const uint8_t *)w->data + ((uint64_t)p->i_stack * w->dims[1] + p->r0) * w->row_bytes,
        .type = w->type,
        .k = (uint32_t)w->dims[0],
        .row_bytes = w->row_bytes,
        .x = a->f,
        .x_ld = a->ld,
        .xq = a->q,
        .xq_ld = a->q_ld,
        .xd = a->d,
        .xd_ld = a->d_ld,
        .xs = a->s,
        .in = p->in,
        .out = p->out,
        .n_x = p->n_x,
        .y = p->y,
        .y_ld = p->y_ld,
        .acc = p->acc,
    };

    m->b->k->matmul(&mm, 0, p->r1 - p->r0, m->own->scratch);
}

static void add_bias(const struct mm_part *part, uint32_t r0, uint32_t r1, uint32_t n_x)
{
    for (uint32_t t = 0; t < n_x; t++) {
        float *y = part->y + t * part->y_ld;

        for (uint32_t r = r0; r < r1; r++)
            y[r] += part->bias[r];
    }
}

/*
 * Rows per piece: enough pieces that nobody waits long for the last one, few enough that converting
 * a panel of weights and taking pieces cost little.  48 is a multiple of every kernel's tile.
 */
static uint32_t piece_rows(const struct backend *b, uint32_t n_rows, uint32_t n_x)
{
    uint32_t grain = n_rows / (b->n_members * 4);

    if (n_x > FEW_ROWS)
        return 48;
    grain = grain / 16 * 16;
    return grain < 16 ? 16 : grain > 128 ? 128 : grain;
}

void cpu_matmul(struct member *m, const struct mm_part *parts, uint32_t n_parts,
                const struct acts *a, const uint32_t *in, uint32_t n_x)
{
    uint32_t total = 0, begin, end;

    for (uint32_t i = 0; i < n_parts; i++)
        if (parts[i].w)
            total += (uint32_t)parts[i].w->dims[1];

    const uint32_t grain = piece_rows(m->b, total, n_x);
    while (cpu_take(m, total, grain, &begin, &end)) {
        uint32_t first = 0; /* of this part, in the joined rows */

        for (uint32_t i = 0; i < n_parts && first < end; i++) {
            const struct mm_part *part = &parts[i];
            uint32_t rows, r0, r1;

            if (!part->w)
                continue;
            rows = (uint32_t)part->w->dims[1];
            r0 = begin > first ? begin - first : 0;
            r1 = end - first < rows ? end - first : rows;
            first += rows;
            if (r0 >= r1)
                continue;
            cpu_matmul_piece(m,
                             &(struct mm_piece){.w = part->w,
                                                .r0 = r0,
                                                .r1 = r1,
                                                .in = in,
                                                .n_x = n_x,
                                                .y = part->y + r0,
                                                .y_ld = part->y_ld,
                                                .acc = part->acc},
                             a);
            if (part->bias)
                add_bias(part, r0, r1, n_x);
        }
    }
}

static void acts_row(const struct backend *b, const float *x, const float *norm, uint32_t k,
                     float *f, int8_t *q, float *d, int16_t *s)
{
    if (norm) {
        b->k->rmsnorm(x, norm, b->m->hp.rms_eps, k, f);
        x = f;
    }
    if (q)
        b->k->quantize_q8(x, k, q, d, s);
}

void cpu_acts(struct member *m, const float *x, const float *norm, uint32_t k, uint32_t n,
              bool quantise, int slot, struct acts *ret)
{
    struct backend *b = m->b;
    const bool few = n <= FEW_ROWS;
    float *f = few ? m->own->few : b->xn;
    int8_t *q = few ? m->own->few_q[slot] : b->xq[slot];
    float *d = few ? m->own->few_d[slot] : b->xd[slot];
    int16_t *s = few ? m->own->few_s[slot] : b->xs[slot];
    uint32_t begin, end;

    assert(!norm || slot == 0);
    *ret = (struct acts){
        .f = norm ? f : x, .ld = k, .q = q, .q_ld = k, .d = d, .s = s, .d_ld = k / 32};
    if (!norm && !quantise)
        return;
    if (!quantise)
        q = NULL;
    if (few) {
        for (uint32_t t = 0; t < n; t++)
            acts_row(b, x + (size_t)t * k, norm, k, f + (size_t)t * k, q ? q + (size_t)t * k : NULL,
                     d + (size_t)t * (k / 32), s + (size_t)t * 2 * (k / 32));
        return;
    }
    while (cpu_take(m, n, 4, &begin, &end))
        for (uint32_t t = begin; t < end; t++)
            acts_row(b, x + (size_t)t * k, norm, k, f + (size_t)t * k, q ? q + (size_t)t * k : NULL,
                     d + (size_t)t * (k / 32), s + (size_t)t * 2 * (k / 32));
    cpu_phase(m);
}
