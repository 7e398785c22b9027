/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round cannot do without, whoever runs it: the bytes of every weight that a step uses, read
 * once; keys, values and recurrent state; and the arithmetic of the products and of attention.
 * Norms, activations and sampling are left out: they are small.
 */
#include "bench/workload.h"

#include "engine/model.h"
#include "engine/quant.h"

#include <math.h>

struct sum {
    struct work_need *need;
    double n_rows; /* rows of one step */
    double n_steps;
};

static void add_matrix(struct sum *s, const struct tensor *t, double n_rows)
{
    double ops;

    if (!t)
        return;
    ops = 2.0 * (double)t->dims[0] * (double)t->dims[1] * n_rows * s->n_steps;
    if (quant_is(t->type))
        s->need->q8_ops += ops;
    else
        s->need->flops += ops;
    s->need->weights += (double)t->n_bytes;
}

/* n_used of the stacked matrices for each row; as many as chance would choose are read. */
static void add_experts(struct sum *s, const struct tensor *t, uint32_t n_used)
{
    struct work_need *need = s->need;
    double n = t ? (double)t->dims[2] : 0, bytes, before;

    if (!t)
        return;
    before = need->weights;
    add_matrix(s, t, s->n_rows * n_used);
    bytes = (double)t->n_bytes * (1.0 - pow(1.0 - n_used / n, s->n_rows));
    need->weights = before + bytes;
}

static void add_layer(struct sum *s, const struct model *m, const struct layer *l, double n_keys,
                      double n_pairs)
{
    const struct hparams *hp = &m->hp;
    const struct tensor *matrices[] = {
        l->wq,      l->wk,       l->wv,     l->wo,          l->dn_qkv,    l->dn_gate,
        l->dn_beta, l->dn_alpha, l->dn_in,  l->dn_ba,       l->dn_out,    l->ffn_gate,
        l->ffn_up,  l->ffn_down, l->router, l->gate_shared, l->up_shared, l->down_shared,
    };

    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        add_matrix(s, matrices[i], s->n_rows);
    add_experts(s, l->gate_exps, hp->n_expert_used);
    add_experts(s, l->up_exps, hp->n_expert_used);
    add_experts(s, l->gate_up_exps, hp->n_expert_used);
    add_experts(s, l->down_exps, hp->n_expert_used);

    if (l->kind == LAYER_ATTENTION) {
        s->need->bytes += n_keys * hp->n_head_kv * hp->head_dim * 2 * 2; /* f16 */
        s->need->flops += n_pairs * hp->n_head * hp->head_dim * 4;
    } else {
        const double state = (double)hp->dn_v_heads * hp->dn_dim * hp->dn_dim;
        const double n_seq = s->n_steps > 1 ? s->n_rows : 1;

        s->need->bytes += state * sizeof(float) * 2 * n_seq * s->n_steps;
        s->need->flops += state * 7 * s->n_rows * s->n_steps;
    }
}

void work_need(const struct model *m, const struct work *w, struct work_need *ret)
{
    const double n = w->context;
    struct sum s = {.need = ret, .n_steps = w->n_steps ? w->n_steps : 1};
    double n_pairs, n_keys; /* query rows times the keys they see; keys read from memory */

    *ret = (struct work_need){0};
    s.n_rows = w->n_steps ? w->n_sequences : w->context;
    n_pairs = w->n_steps ? (n + 0.5 * w->n_steps) * w->n_steps * w->n_sequences : n * (n + 1) / 2;
    n_keys = w->n_steps ? n_pairs : n;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        add_layer(&s, m, &m->layers[i], n_keys, n_pairs);
    add_matrix(&s, m->output, w->n_steps ? s.n_rows : 1);
    if (m->hp.has_draft) {
        add_matrix(&s, m->draft.proj, s.n_rows);
        add_matrix(&s, m->draft.layer.wk, s.n_rows);
        add_matrix(&s, m->draft.layer.wv, s.n_rows);
    }
    ret->bytes += ret->weights * s.n_steps;
}
