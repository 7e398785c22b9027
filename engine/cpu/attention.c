/* SPDX-License-Identifier: Apache-2.0 */
/* An attention layer, and the K/V rows of the draft layer. */
#include "engine/cpu/cpu.h"

#include <string.h>

static uint8_t *page_row_base(const struct backend *b, uint32_t row)
{
    const struct cpu_run *run = &b->runs[b->row_run[row]];
    uint32_t pos = run->pos0 + (row - run->row0);

    return (uint8_t *)(uintptr_t)run->seq->pages[pos / PAGE_TOKENS];
}

static uint32_t row_in_page(const struct backend *b, uint32_t row)
{
    const struct cpu_run *run = &b->runs[b->row_run[row]];

    return (run->pos0 + (row - run->row0)) % PAGE_TOKENS;
}

static void norm_and_rotate(const struct backend *b, const struct tensor *norm, uint32_t row,
                            float *head)
{
    const struct hparams *hp = &b->m->hp;

    if (norm)
        b->k->rmsnorm(head, tensor_f32(norm), hp->rms_eps, hp->head_dim, head);
    b->k->rope(head, hp->n_rot, hp->rope == ROPE_NEOX, b->cs + (size_t)row * hp->n_rot);
}

/* Finishes one K/V head of a row (`k` in place) and puts it into its page. */
static void store_kv(const struct backend *b, const struct tensor *k_norm, uint32_t plane,
                     uint32_t row, uint32_t head, float *k, const float *v)
{
    const struct layout *l = &b->layout;
    const uint32_t hd = l->head_dim;
    uint8_t *unit = page_row_base(b, row);
    size_t off = (size_t)row_in_page(b, row) * hd * l->elem_bytes;

    norm_and_rotate(b, k_norm, row, k);
    b->k->kv_store(k, hd, l->kv_type, unit + layout_k(l, plane, head) + off);
    b->k->kv_store(v, hd, l->kv_type, unit + layout_v(l, plane, head) + off);
}

/* Everything between the projections and the scores, for one K/V head and its group of query heads.
 */
static void prepare_head(const struct backend *b, const struct layer *l, uint32_t row,
                         uint32_t head)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t hd = hp->head_dim, group = hp->n_head / hp->n_head_kv,
                   kv_dim = hp->n_head_kv * hd;
    const size_t q_stride = (size_t)hd * (l->q_gated ? 2 : 1);
    float *kv = b->kv + (size_t)row * 2 * kv_dim + (size_t)head * hd;

    store_kv(b, l->k_norm, l->i_attn, row, head, kv, kv + kv_dim);
    for (uint32_t h = head * group; h < (head + 1) * group; h++) {
        const float *from = b->qg + (size_t)row * hp->n_head * q_stride + h * q_stride;
        float *to = b->qc + ((size_t)row * hp->n_head + h) * hd;

        memcpy(to, from, hd * sizeof *to);
        norm_and_rotate(b, l->q_norm, row, to);
    }
}

/* The output gate of one query head: the second half of its projected row. */
static void gate_heads(const struct backend *b, const struct layer *l, uint32_t row, uint32_t h0,
                       uint32_t h1)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t hd = hp->head_dim;

    if (!l->q_gated)
        return;
    for (uint32_t h = h0; h < h1; h++)
        b->k->sigmoid_mul(b->att + ((size_t)row * hp->n_head + h) * hd,
                          b->qg + ((size_t)row * hp->n_head + h) * 2 * hd + hd, hd);
}

static struct attention attention_of(const struct backend *b, const struct layer *l,
                                     const struct attn_item *it)
{
    const struct hparams *hp = &b->m->hp;
    const struct cpu_run *run = &b->runs[it->i_run];
    const uint32_t group = hp->n_head / hp->n_head_kv;
    const size_t ld = (size_t)hp->n_head * hp->head_dim;
    const size_t at = run->row0 * ld + (size_t)it->head * group * hp->head_dim;

    return (struct attention){
        .pages = run->seq->pages,
        .k_off = layout_k(&b->layout, l->i_attn, it->head),
        .v_off = layout_v(&b->layout, l->i_attn, it->head),
        .kv_type = b->layout.kv_type,
        .head_dim = hp->head_dim,
        .n_group = group,
        .pos0 = run->pos0,
        .n_rows = run->n_rows,
        .scale = hp->attn_scale,
        .q = b->qc + at,
        .q_ld = ld,
        .out = b->att + at,
        .out_ld = ld,
    };
}

static void run_item(struct member *m, const struct layer *l, const struct attn_item *it)
{
    struct backend *b = m->b;
    const struct cpu_run *run = &b->runs[it->i_run];
    const uint32_t group = b->m->hp.n_head / b->m->hp.n_head_kv;
    const struct attention a = attention_of(b, l, it);

    if (it->i_split >= 0) {
        b->k->attention_split(&a, it->r0, (uint32_t)it->i_split, b->partials + it->partial,
                              m->own->scratch);
        return;
    }
    b->k->attention(&a, it->r0, it->r1, m->own->scratch);
    for (uint32_t r = it->r0; r < it->r1; r++)
        gate_heads(b, l, run->row0 + r, it->head * group, (it->head + 1) * group);
}

/* Items of single splits: the first of each row and head folds all of them. */
static void fold_splits(struct member *m, const struct layer *l)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const uint32_t group = hp->n_head / hp->n_head_kv;
    const size_t one = ATTN_PARTIAL_FLOATS(hp->head_dim);
    uint32_t i, end;

    while (cpu_take(m, b->n_split_items, 1, &i, &end)) {
        const struct attn_item *it = &b->items[i];
        uint32_t row = b->runs[it->i_run].row0 + it->r0;

        if (it->i_split != 0)
            continue;
        for (uint32_t g = 0; g < group; g++)
            b->k->attention_fold(
                b->partials + it->partial + g * one, group * one, it->n_splits, hp->head_dim,
                b->att + ((size_t)row * hp->n_head + it->head * group + g) * hp->head_dim);
        gate_heads(b, l, row, it->head * group, (it->head + 1) * group);
    }
    cpu_phase(m);
}

void cpu_attention_layer(struct member *m, const struct layer *l)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const uint32_t kv_dim = hp->n_head_kv * hp->head_dim;
    const size_t q_dim = (size_t)hp->n_head * hp->head_dim * (l->q_gated ? 2 : 1);
    /* Nobody else needs what an item prepares when it holds all rows of its run and one member does
     * it whole. */
    const bool prepare_inside = b->n_rows <= FEW_ROWS && b->n_split_items == 0;
    struct acts a;
    uint32_t begin, end;

    cpu_acts(m, b->x, tensor_f32(l->attn_norm), hp->n_embd, b->n_rows,
             is_quant(l->wq) || is_quant(l->wk) || is_quant(l->wv), 0, &a);
    cpu_matmul(
        m,
        (struct mm_part[]){
            {.w = l->wq, .bias = l->bq ? tensor_f32(l->bq) : NULL, .y = b->qg, .y_ld = q_dim},
            {.w = l->wk,
             .bias = l->bk ? tensor_f32(l->bk) : NULL,
             .y = b->kv,
             .y_ld = 2 * (size_t)kv_dim},
            {.w = l->wv,
             .bias = l->bv ? tensor_f32(l->bv) : NULL,
             .y = b->kv + kv_dim,
             .y_ld = 2 * (size_t)kv_dim},
        },
        3, &a, NULL, b->n_rows);
    cpu_phase(m);

    if (!prepare_inside) {
        while (cpu_take(m, b->n_rows * hp->n_head_kv, 4, &begin, &end))
            for (uint32_t i = begin; i < end; i++)
                prepare_head(b, l, i / hp->n_head_kv, i % hp->n_head_kv);
        cpu_phase(m);
    }
    while (cpu_take(m, b->n_items, 1, &begin, &end)) {
        const struct attn_item *it = &b->items[begin];

        for (uint32_t r = it->r0; prepare_inside && r < it->r1; r++)
            prepare_head(b, l, b->runs[it->i_run].row0 + r, it->head);
        run_item(m, l, it);
    }
    cpu_phase(m);
    if (b->n_split_items)
        fold_splits(m, l);

    cpu_acts(m, b->att, NULL, hp->n_head * hp->head_dim, b->n_rows, is_quant(l->wo), 0, &a);
    cpu_matmul(m,
               &(struct mm_part){.w = l->wo,
                                 .bias = l->bo ? tensor_f32(l->bo) : NULL,
                                 .y = b->x,
                                 .y_ld = hp->n_embd,
                                 .acc = true},
               1, &a, NULL, b->n_rows);
    cpu_phase(m);
}

/* The pair of a row: normed embedding of its token, then the normed hidden row before it. */
static void draft_pair(const struct backend *b, uint32_t row, const float *hidden, float *pair)
{
    const struct hparams *hp = &b->m->hp;
    const struct draft *d = &b->m->draft;
    const struct tensor *embd = b->m->token_embd;
    const struct cpu_run *run = &b->runs[b->row_run[row]];
    const float *before = row > run->row0 ? hidden + (size_t)(row - 1) * hp->n_embd
                                          : run->seq->state + layout_hidden(&b->layout);

    b->k->to_float((const uint8_t *)embd->data + (uint64_t)b->ids[row] * embd->row_bytes,
                   embd->type, hp->n_embd, pair);
    b->k->rmsnorm(pair, tensor_f32(d->embed_norm), hp->rms_eps, hp->n_embd, pair);
    b->k->rmsnorm(before, tensor_f32(d->hidden_norm), hp->rms_eps, hp->n_embd, pair + hp->n_embd);
}

void cpu_draft_rows(struct member *m, const float *hidden)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const struct draft *d = &b->m->draft;
    const bool few = b->n_rows <= FEW_ROWS;
    const uint32_t kv_dim = hp->n_head_kv * hp->head_dim, plane = b->layout.n_planes - 1;
    float *pairs = few ? m->own->pairs : b->draft;
    struct acts a;
    uint32_t begin, end;

    if (few) {
        for (uint32_t row = 0; row < b->n_rows; row++)
            draft_pair(b, row, hidden, pairs + (size_t)row * 2 * hp->n_embd);
    } else {
        while (cpu_take(m, b->n_rows, 4, &begin, &end))
            for (uint32_t row = begin; row < end; row++)
                draft_pair(b, row, hidden, pairs + (size_t)row * 2 * hp->n_embd);
        cpu_phase(m);
    }
    cpu_acts(m, pairs, NULL, 2 * hp->n_embd, b->n_rows, is_quant(d->proj), 0, &a);
    cpu_matmul(m, &(struct mm_part){.w = d->proj, .y = b->draft_x, .y_ld = hp->n_embd}, 1, &a, NULL,
               b->n_rows);
    cpu_phase(m);

    cpu_acts(m, b->draft_x, tensor_f32(d->layer.attn_norm), hp->n_embd, b->n_rows,
             is_quant(d->layer.wk) || is_quant(d->layer.wv), 0, &a);
    cpu_matmul(m,
               (struct mm_part[]){
                   {.w = d->layer.wk, .y = b->kv, .y_ld = 2 * (size_t)kv_dim},
                   {.w = d->layer.wv, .y = b->kv + kv_dim, .y_ld = 2 * (size_t)kv_dim},
               },
               2, &a, NULL, b->n_rows);
    cpu_phase(m);

    while (cpu_take(m, b->n_rows, 4, &begin, &end))
        for (uint32_t row = begin; row < end; row++) {
            const struct cpu_run *run = &b->runs[b->row_run[row]];
            float *kv = b->kv + (size_t)row * 2 * kv_dim;

            /* Nothing stands before the first token: its row is zero, and attention masks it. */
            if (run->pos0 + (row - run->row0) == 0)
                memset(kv, 0, 2 * (size_t)kv_dim * sizeof *kv);
            for (uint32_t h = 0; h < hp->n_head_kv; h++)
                store_kv(b, d->layer.k_norm, plane, row, h, kv + (size_t)h * hp->head_dim,
                         kv + kv_dim + (size_t)h * hp->head_dim);
        }
    cpu_phase(m);
}
