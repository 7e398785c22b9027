/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gated DeltaNet layer: convolution and delta rule as plain recurrences over the rows of each
 * run, in reading too.
 *
 * The work is shared by key head: a key head, its value heads, and their channels of the
 * convolution depend on nothing else, so one member takes all of them from the first row to the
 * last.
 */
#include "engine/cpu/cpu.h"

#include <string.h>

/* Where the rows of a run lie, for a step and for a replay of saved rows. */
struct dn_rows {
    bool by_key;          /* conv_in and z are what dn_in gave; ld_in and ld_z are its rows */
    const float *conv_in; /* [n][channels] */
    size_t ld_in, ld_z;
    const float *ab; /* [n][2*Hv], see head_alpha */
    float *conv_out; /* [n][channels] */
    const float *z;  /* [n][Hv*dv] */
    float *out;      /* [n][Hv*dv] */
    uint32_t n;
    uint32_t pos0;
    const struct step_capture *caps;
    uint32_t n_caps;
};

/* Floats saved for each DeltaNet layer of a tentative entry. */
static size_t saved_floats(const struct hparams *hp)
{
    return (size_t)ENGINE_TENTATIVE_ROWS * (hp->dn_conv_dim + 2 * (size_t)hp->dn_v_heads);
}

size_t cpu_replay_floats(const struct model *m)
{
    return m->n_dn * saved_floats(&m->hp) + (size_t)ENGINE_TENTATIVE_ROWS * m->hp.n_embd;
}

static uint32_t values_per_key(const struct hparams *hp)
{
    return hp->dn_v_heads / hp->dn_k_heads;
}

/* The i-th value head of key head kh. */
static uint32_t value_head(const struct hparams *hp, uint32_t kh, uint32_t i)
{
    return hp->dn_grouped ? kh * values_per_key(hp) + i : kh + i * hp->dn_k_heads;
}

/* The channel ranges of key head kh: its query, its key, and its value heads. */
static uint32_t head_channels(const struct hparams *hp, uint32_t kh, uint32_t i)
{
    const uint32_t dim = hp->dn_dim;

    if (i == 0)
        return kh * dim;
    if (i == 1)
        return (hp->dn_k_heads + kh) * dim;
    return (2 * hp->dn_k_heads + value_head(hp, kh, i - 2)) * dim;
}

/* Where a projected row has range i; behind the last one come the gates of the values. */
static uint32_t head_in(const struct hparams *hp, bool by_key, uint32_t kh, uint32_t i)
{
    return by_key ? (kh * (2 + 2 * values_per_key(hp)) + i) * hp->dn_dim : head_channels(hp, kh, i);
}

/* Where a row of `ab` has the two numbers of the i-th value head of kh. */
static uint32_t head_alpha(const struct hparams *hp, const struct layer *l, uint32_t kh, uint32_t i)
{
    return l->dn_ba ? (2 * kh + 1) * values_per_key(hp) + i : value_head(hp, kh, i);
}
static uint32_t head_beta(const struct hparams *hp, const struct layer *l, uint32_t kh, uint32_t i)
{
    return l->dn_ba ? 2 * kh * values_per_key(hp) + i : hp->dn_v_heads + value_head(hp, kh, i);
}

/* Copies this key head's part of the state after `pos` tokens into a checkpoint. */
static void capture_head(const struct backend *b, const struct layer *l, uint32_t kh,
                         const float *conv, const float *state, const uint32_t *units)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t dim = hp->dn_dim, r = values_per_key(hp);
    const size_t sq = (size_t)dim * dim;

    for (uint32_t t = 0; t + 1 < hp->dn_conv; t++)
        for (uint32_t i = 0; i < 2 + r; i++) {
            size_t at = (size_t)t * hp->dn_conv_dim + head_channels(hp, kh, i);

            cpu_checkpoint_write(b, units, (layout_conv(&b->layout, l->i_dn) + at) * sizeof(float),
                                 conv + at, dim * sizeof(float));
        }
    for (uint32_t i = 0; i < r; i++) {
        size_t at = value_head(hp, kh, i) * sq;

        cpu_checkpoint_write(b, units, (layout_state(&b->layout, l->i_dn) + at) * sizeof(float),
                             state + at, sq * sizeof(float));
    }
}

/* The i-th value head of kh. */
static void delta_head(const struct backend *b, const struct layer *l, uint32_t kh, uint32_t i,
                       const struct dn_rows *rows, uint32_t t0, uint32_t t1, float *state)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t dim = hp->dn_dim, h = value_head(hp, kh, i);
    const size_t ch = hp->dn_conv_dim, zd = (size_t)hp->dn_v_heads * dim;
    const uint32_t z = rows->by_key ? head_in(hp, true, kh, 2 + values_per_key(hp) + i) : h * dim;
    const float *c = rows->conv_out + t0 * ch, *ab = rows->ab + (size_t)t0 * 2 * hp->dn_v_heads;

    b->k->delta_rows(&(struct delta){
        .dim = dim,
        .n_rows = t1 - t0,
        .state = state + (size_t)h * dim * dim,
        .q = c + head_channels(hp, kh, 0),
        .k = c + head_channels(hp, kh, 1),
        .v = c + head_channels(hp, kh, 2 + i),
        .z = rows->z + t0 * rows->ld_z + z,
        .ld_qkv = ch,
        .ld_z = rows->ld_z,
        .a = ab + head_alpha(hp, l, kh, i),
        .b = ab + head_beta(hp, l, kh, i),
        .ld_ab = 2 * (size_t)hp->dn_v_heads,
        .a_coef = tensor_f32(l->dn_a)[h],
        .dt = tensor_f32(l->dn_dt)[h],
        .norm = tensor_f32(l->dn_norm),
        .eps = hp->rms_eps,
        .o = rows->out + t0 * zd + (size_t)h * dim,
        .ld_o = zd,
    });
}

/* All rows of one key head, stopping at each capture. */
static void run_head(const struct backend *b, const struct layer *l, float *seq_state, uint32_t kh,
                     const struct dn_rows *rows)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t r = values_per_key(hp);
    float *conv = seq_state + layout_conv(&b->layout, l->i_dn);
    float *state = seq_state + layout_state(&b->layout, l->i_dn);
    uint32_t t0 = 0;

    for (uint32_t i_cap = 0; t0 < rows->n; i_cap++) {
        const bool stop = i_cap < rows->n_caps;
        const uint32_t t1 = stop ? rows->caps[i_cap].pos - rows->pos0 : rows->n;

        for (uint32_t i = 0; i < 2 + r; i++) {
            const size_t c0 = head_channels(hp, kh, i);

            b->k->conv_silu(rows->conv_in + t0 * rows->ld_in + head_in(hp, rows->by_key, kh, i),
                            rows->ld_in, t1 - t0, tensor_f32(l->dn_conv) + c0 * hp->dn_conv,
                            hp->dn_conv, conv + c0, hp->dn_conv_dim, 0, hp->dn_dim,
                            rows->conv_out + (size_t)t0 * hp->dn_conv_dim + c0, hp->dn_conv_dim);
        }
        for (uint32_t i = 0; i < r; i++)
            delta_head(b, l, kh, i, rows, t0, t1, state);
        if (stop)
            capture_head(b, l, kh, conv, state, rows->caps[i_cap].units);
        t0 = t1;
    }
}

/* Keeps what a commit of fewer rows will need, for this key head: channels in their own order. */
static void save_rows(const struct backend *b, const struct layer *l, const struct cpu_run *run,
                      const struct dn_rows *rows, uint32_t kh)
{
    const struct hparams *hp = &b->m->hp;
    const uint32_t r = values_per_key(hp), abd = 2 * hp->dn_v_heads;
    float *conv = run->seq->rows + l->i_dn * saved_floats(hp);
    float *ab = conv + (size_t)ENGINE_TENTATIVE_ROWS * hp->dn_conv_dim;

    for (uint32_t t = 0; t < run->n_rows; t++) {
        const float *from = rows->ab + (size_t)t * abd;
        float *to = ab + (size_t)t * abd;

        for (uint32_t i = 0; i < 2 + r; i++)
            memcpy(conv + (size_t)t * hp->dn_conv_dim + head_channels(hp, kh, i),
                   rows->conv_in + t * rows->ld_in + head_in(hp, rows->by_key, kh, i),
                   hp->dn_dim * sizeof *conv);
        for (uint32_t i = 0; i < r; i++) {
            const uint32_t at[] = {head_alpha(hp, l, kh, i), head_beta(hp, l, kh, i)};

            to[at[0]] = from[at[0]];
            to[at[1]] = from[at[1]];
        }
    }
}

void cpu_deltanet_layer(struct member *m, const struct layer *l)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const size_t ch = hp->dn_conv_dim, zd = (size_t)hp->dn_v_heads * hp->dn_dim,
                 abd = 2 * (size_t)hp->dn_v_heads;
    const size_t ld_in = l->dn_in ? ch + zd : ch, ld_z = l->dn_in ? ch + zd : zd;
    const float *z = l->dn_in ? b->conv_in : b->z;
    struct acts a;
    uint32_t i, end;

    cpu_acts(m, b->x, tensor_f32(l->attn_norm), hp->n_embd, b->n_rows,
             is_quant(l->dn_in) || is_quant(l->dn_qkv) || is_quant(l->dn_gate) ||
                 is_quant(l->dn_ba) || is_quant(l->dn_alpha) || is_quant(l->dn_beta),
             0, &a);
    cpu_matmul(m,
               (struct mm_part[]){
                   {.w = l->dn_in, .y = b->conv_in, .y_ld = ld_in},
                   {.w = l->dn_ba, .y = b->ab, .y_ld = abd},
                   {.w = l->dn_qkv, .y = b->conv_in, .y_ld = ch},
                   {.w = l->dn_gate, .y = b->z, .y_ld = zd},
                   {.w = l->dn_alpha, .y = b->ab, .y_ld = abd},
                   {.w = l->dn_beta, .y = b->ab + hp->dn_v_heads, .y_ld = abd},
               },
               6, &a, NULL, b->n_rows);
    cpu_phase(m);

    while (cpu_take(m, b->n_runs * hp->dn_k_heads, 1, &i, &end)) {
        const struct cpu_run *run = &b->runs[i / hp->dn_k_heads];
        const uint32_t kh = i % hp->dn_k_heads;
        const struct dn_rows rows = {
            .by_key = l->dn_in != NULL,
            .conv_in = b->conv_in + run->row0 * ld_in,
            .ld_in = ld_in,
            .ld_z = ld_z,
            .ab = b->ab + run->row0 * abd,
            .conv_out = b->conv_out + run->row0 * ch,
            .z = z + run->row0 * ld_z,
            .out = b->att + run->row0 * zd,
            .n = run->n_rows,
            .pos0 = run->pos0,
            .caps = run->entry->captures,
            .n_caps = run->entry->n_captures,
        };

        if (run->entry->tentative)
            save_rows(b, l, run, &rows, kh);
        run_head(b, l, run->seq->state, kh, &rows);
    }
    cpu_phase(m);

    cpu_acts(m, b->att, NULL, (uint32_t)zd, b->n_rows, is_quant(l->dn_out), 0, &a);
    cpu_matmul(m, &(struct mm_part){.w = l->dn_out, .y = b->x, .y_ld = hp->n_embd, .acc = true}, 1,
               &a, NULL, b->n_rows);
    cpu_phase(m);
}

/*
 * A recurrence cannot be cut back, but it can be run again: the saved inputs of the accepted rows
 * give the same bits. The outputs were used when the rows ran; here they go into the buffers of a
 * step, which is not running.
 */
void cpu_replay(struct backend *b, struct cpu_seq *s, uint32_t n_rows,
                const struct step_capture *caps, uint32_t n_caps)
{
    const struct hparams *hp = &b->m->hp;
    const float *hidden = s->rows + b->m->n_dn * saved_floats(hp);

    memcpy(s->state, s->base, b->layout.checkpoint_bytes);
    for (uint32_t i = 0; i < hp->n_layer && n_rows; i++) {
        const struct layer *l = &b->m->layers[i];
        const float *conv = s->rows + l->i_dn * saved_floats(hp);

        if (l->kind != LAYER_DELTANET)
            continue;
        for (uint32_t kh = 0; kh < hp->dn_k_heads; kh++)
            run_head(b, l, s->state, kh,
                     &(struct dn_rows){
                         .conv_in = conv,
                         .ld_in = hp->dn_conv_dim,
                         .ld_z = (size_t)hp->dn_v_heads * hp->dn_dim,
                         .ab = conv + (size_t)ENGINE_TENTATIVE_ROWS * hp->dn_conv_dim,
                         .conv_out = b->conv_out,
                         .z = b->z,
                         .out = b->att,
                         .n = n_rows,
                         .pos0 = s->pos,
                         .caps = caps,
                         .n_caps = n_caps,
                     });
    }
    if (b->layout.hidden_floats == 0)
        return;
    if (n_rows)
        memcpy(s->state + layout_hidden(&b->layout), hidden + (size_t)(n_rows - 1) * hp->n_embd,
               hp->n_embd * sizeof(float));
    for (uint32_t i = 0; i < n_caps; i++)
        cpu_checkpoint_write(b, caps[i].units, layout_hidden(&b->layout) * sizeof(float),
                             hidden + (size_t)(caps[i].pos - s->pos - 1) * hp->n_embd,
                             hp->n_embd * sizeof(float));
}
