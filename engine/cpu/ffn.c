/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The feed-forward part of a layer, dense or a mixture of experts, added to the residual stream.
 *
 * A mixture sorts its rows by expert, so that each expert's weights are read once a step.  A row's
 * sum runs over its experts in the order of its slots (descending probability) and then the shared
 * expert, whoever computed them.
 */
#include "engine/cpu/cpu.h"

#include <string.h>

/* Hidden columns [r0, r1) of silu(gate x) * (up x) for the rows of one expert or of a dense layer.
 */
struct ff_piece {
    const struct tensor *gate, *up;
    uint32_t up_row; /* the first of `up`, when that is part of a matrix */
    uint32_t i_stack, r0, r1;
    const uint32_t *in; /* activation row of each, NULL: 0, 1, … */
    const uint32_t *to; /* row of y of each, NULL: 0, 1, … */
    uint32_t n_x;
    float *y;
    size_t y_ld;
};

static void gated_piece(struct member *m, const struct ff_piece *p, const struct acts *a)
{
    const uint32_t n = p->r1 - p->r0;
    float *g = m->own->gate_up, *u = g + (size_t)m->b->max_rows * FF_PIECE;
    struct mm_piece mm = {
        .w = p->gate,
        .i_stack = p->i_stack,
        .r0 = p->r0,
        .r1 = p->r1,
        .in = p->in,
        .n_x = p->n_x,
        .y = g,
        .y_ld = n,
    };

    cpu_matmul_piece(m, &mm, a);
    mm.w = p->up;
    mm.r0 += p->up_row;
    mm.r1 += p->up_row;
    mm.y = u;
    cpu_matmul_piece(m, &mm, a);
    for (uint32_t t = 0; t < p->n_x; t++)
        m->b->k->silu_mul(g + (size_t)t * n, u + (size_t)t * n, n,
                          p->y + (p->to ? p->to[t] : t) * p->y_ld + p->r0);
}

static uint32_t ff_piece_cols(uint32_t n_x)
{
    return n_x <= FEW_ROWS ? 32 : FF_PIECE;
}

static void dense(struct member *m, const struct layer *l)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const uint32_t n_ff = (uint32_t)l->ffn_gate->dims[1];
    struct acts a;
    uint32_t begin, end;

    cpu_acts(m, b->x, tensor_f32(l->ffn_norm), hp->n_embd, b->n_rows,
             is_quant(l->ffn_gate) || is_quant(l->ffn_up), 0, &a);
    while (cpu_take(m, n_ff, ff_piece_cols(b->n_rows), &begin, &end))
        gated_piece(m,
                    &(struct ff_piece){.gate = l->ffn_gate,
                                       .up = l->ffn_up,
                                       .r0 = begin,
                                       .r1 = end,
                                       .n_x = b->n_rows,
                                       .y = b->ff,
                                       .y_ld = n_ff},
                    &a);
    cpu_phase(m);
    cpu_acts(m, b->ff, NULL, n_ff, b->n_rows, is_quant(l->ffn_down), 0, &a);
    cpu_matmul(m, &(struct mm_part){.w = l->ffn_down, .y = b->x, .y_ld = hp->n_embd, .acc = true},
               1, &a, NULL, b->n_rows);
    cpu_phase(m);
}

/* Softmax over all experts, the best n_used (lower index first among equals), renormalised. */
static void route_row(const struct backend *b, float *p, struct cpu_route *routes)
{
    const struct hparams *hp = &b->m->hp;
    const float least = 6.103515625e-5f;
    float sum = 0;

    b->k->softmax(p, hp->n_expert);
    for (uint32_t s = 0; s < hp->n_expert_used; s++) {
        uint32_t best = 0;

        for (uint32_t e = 1; e < hp->n_expert; e++)
            if (p[e] > p[best])
                best = e;
        routes[s] = (struct cpu_route){best, p[best]};
        sum += p[best];
        p[best] = -1; /* below every probability */
    }
    if (!(sum > least))
        sum = least;
    for (uint32_t s = 0; s < hp->n_expert_used; s++)
        routes[s].weight = routes[s].weight / sum * hp->expert_scale;
}

static void sort_by_expert(const struct backend *b, struct cpu_routing *rt)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t n = b->n_rows, used = hp->n_expert_used;

    memset(rt->start, 0, (hp->n_expert + 1) * sizeof *rt->start);
    for (uint32_t i = 0; i < n * used; i++)
        rt->start[rt->routes[i].expert + 1]++;
    rt->n_active = 0;
    for (uint32_t e = 0; e < hp->n_expert; e++) {
        if (rt->start[e + 1])
            rt->active[rt->n_active++] = e;
        rt->start[e + 1] += rt->start[e];
    }
    for (uint32_t row = 0; row < n; row++)
        for (uint32_t s = 0; s < used; s++) {
            uint32_t at = rt->start[rt->routes[row * used + s].expert]++;

            rt->pair[at] = s * n + row;
            rt->row[at] = row;
        }
    for (uint32_t e = hp->n_expert; e > 0; e--)
        rt->start[e] = rt->start[e - 1];
    rt->start[0] = 0;
}

/* sigmoid(w . x) of the shared expert, or 1 when the family has no such gate. */
static float shared_gate(const struct backend *b, const struct layer *l, const float *x,
                         void *scratch)
{
    float g = 1, y;

    if (!l->shared_router)
        return 1;
    b->k->matmul(&(struct matmul){.w = l->shared_router->data,
                                  .type = l->shared_router->type,
                                  .k = (uint32_t)l->shared_router->dims[0],
                                  .row_bytes = l->shared_router->row_bytes,
                                  .x = x,
                                  .x_ld = 0,
                                  .n_x = 1,
                                  .y = &y,
                                  .y_ld = 1},
                 0, 1, scratch);
    b->k->sigmoid_mul(&g, &y, 1);
    return g;
}

static void route_rows(struct member *m, const struct layer *l, struct cpu_routing *rt,
                       const struct acts *a, uint32_t begin, uint32_t end)
{
    const struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;

    for (uint32_t row = begin; row < end; row++) {
        route_row(b, rt->probs + (size_t)row * hp->n_expert,
                  rt->routes + (size_t)row * hp->n_expert_used);
        if (l->gate_shared)
            rt->shared_gate[row] = shared_gate(b, l, a->f + row * a->ld, m->own->scratch);
    }
}

/* The routing of this step's rows: everybody's own when that is less work than meeting. */
static struct cpu_routing *route(struct member *m, const struct layer *l, const struct acts *a)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const bool own =
        b->n_rows <= FEW_ROWS && (uint64_t)b->n_rows * hp->n_expert * hp->n_embd <= 65536;
    struct cpu_routing *rt = own ? &m->own->routing : &b->routing;
    uint32_t begin, end;

    if (own) {
        cpu_matmul_piece(m,
                         &(struct mm_piece){.w = l->router,
                                            .r1 = hp->n_expert,
                                            .n_x = b->n_rows,
                                            .y = rt->probs,
                                            .y_ld = hp->n_expert},
                         a);
        route_rows(m, l, rt, a, 0, b->n_rows);
        sort_by_expert(b, rt);
        return rt;
    }
    cpu_matmul(m, &(struct mm_part){.w = l->router, .y = rt->probs, .y_ld = hp->n_expert}, 1, a,
               NULL, b->n_rows);
    cpu_phase(m);
    while (cpu_take(m, b->n_rows, 8, &begin, &end))
        route_rows(m, l, rt, a, begin, end);
    cpu_phase(m);
    if (m->i == 0)
        sort_by_expert(b, rt);
    cpu_phase(m);
    return rt;
}

/* Columns [c0, c1) of the output: every expert's down projection into `mix`, then each row's sum in
 * its own order. */
static void mix_columns(struct member *m, const struct layer *l, const struct cpu_routing *rt,
                        const struct acts *routed, const struct acts *shared, uint32_t c0,
                        uint32_t c1)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const uint32_t n = b->n_rows, used = hp->n_expert_used, w = c1 - c0;
    float *mix = m->own->mix, *mix_shared = mix + (size_t)used * n * MIX_COLS;

    for (uint32_t i = 0; i < rt->n_active; i++) {
        const uint32_t e = rt->active[i], at = rt->start[e];

        cpu_matmul_piece(m,
                         &(struct mm_piece){.w = l->down_exps,
                                            .i_stack = e,
                                            .r0 = c0,
                                            .r1 = c1,
                                            .in = rt->pair + at,
                                            .out = rt->pair + at,
                                            .n_x = rt->start[e + 1] - at,
                                            .y = mix,
                                            .y_ld = MIX_COLS},
                         routed);
    }
    if (l->gate_shared)
        cpu_matmul_piece(m,
                         &(struct mm_piece){.w = l->down_shared,
                                            .r0 = c0,
                                            .r1 = c1,
                                            .n_x = n,
                                            .y = mix_shared,
                                            .y_ld = MIX_COLS},
                         shared);
    for (uint32_t row = 0; row < n; row++) {
        float *sum = mix + (size_t)row * MIX_COLS; /* slot 0 of this row */

        b->k->scale(sum, rt->routes[row * used].weight, w);
        for (uint32_t s = 1; s < used; s++)
            b->k->axpy(sum, rt->routes[row * used + s].weight,
                       mix + ((size_t)s * n + row) * MIX_COLS, w);
        if (l->gate_shared)
            b->k->axpy(sum, rt->shared_gate[row], mix_shared + (size_t)row * MIX_COLS, w);
        b->k->add(b->x + (size_t)row * hp->n_embd + c0, sum, w);
    }
}

static void mixture(struct member *m, const struct layer *l)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const uint32_t n = b->n_rows, cols = ff_piece_cols(n);
    const uint32_t n_ff = hp->n_ff_expert, n_shared = l->gate_shared ? hp->n_ff_shared : 0;
    const uint32_t per_expert = (n_ff + cols - 1) / cols, per_shared = (n_shared + cols - 1) / cols;
    const struct tensor *gate = l->gate_up_exps ? l->gate_up_exps : l->gate_exps,
                        *up = l->gate_up_exps ? l->gate_up_exps : l->up_exps;
    const struct cpu_routing *rt;
    struct acts a, routed, shared = {0};
    uint32_t i, end;

    cpu_acts(m, b->x, tensor_f32(l->ffn_norm), hp->n_embd, n,
             is_quant(l->router) || is_quant(gate) || is_quant(up) || is_quant(l->gate_shared) ||
                 is_quant(l->up_shared),
             0, &a);
    rt = route(m, l, &a);

    while (cpu_take(m, rt->n_active * per_expert + per_shared, 1, &i, &end)) {
        struct ff_piece p = {.n_x = n};

        if (i < per_shared) {
            p.gate = l->gate_shared;
            p.up = l->up_shared;
            p.r0 = i * cols;
            p.r1 = p.r0 + cols < n_shared ? p.r0 + cols : n_shared;
            p.y = b->ff_shared;
            p.y_ld = n_shared;
        } else {
            const uint32_t e = rt->active[(i - per_shared) / per_expert], at = rt->start[e];

            p.gate = gate;
            p.up = up;
            p.up_row = l->gate_up_exps ? n_ff : 0;
            p.i_stack = e;
            p.r0 = (i - per_shared) % per_expert * cols;
            p.r1 = p.r0 + cols < n_ff ? p.r0 + cols : n_ff;
            p.in = rt->row + at;
            p.to = rt->pair + at;
            p.n_x = rt->start[e + 1] - at;
            p.y = b->ff;
            p.y_ld = n_ff;
        }
        gated_piece(m, &p, &a);
    }
    cpu_phase(m);

    cpu_acts(m, b->ff, NULL, n_ff, n * hp->n_expert_used, is_quant(l->down_exps), 0, &routed);
    if (n_shared)
        cpu_acts(m, b->ff_shared, NULL, n_shared, n, is_quant(l->down_shared), 1, &shared);
    while (cpu_take(m, hp->n_embd, n <= FEW_ROWS ? 32 : MIX_COLS, &i, &end))
        mix_columns(m, l, rt, &routed, &shared, i, end);
    cpu_phase(m);
}

void cpu_ffn(struct member *m, const struct layer *l)
{
    if (l->router)
        mixture(m, l);
    else
        dense(m, l);
}
