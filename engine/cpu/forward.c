/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step: which rows run, the layers in order, then logits and samples.
 *
 *   plan (one thread)   entries -> runs of rows; skipped entries drop out; pieces of attention
 *   embed               x = token rows; rope tables
 *   layers              attention or DeltaNet, then the feed-forward part, each adds to x
 *   head                hidden = norm(x); logits of the rows that want them; samples
 *   draft               K/V rows of the draft layer from (hidden before, token)
 *   settle (one thread) positions, histories, last hidden rows, captures of those
 */
#include "engine/cpu/cpu.h"

#include "util/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 1 when the entry has rows to run; otherwise its status says why not. */
static int begin_entry(struct backend *b, struct step_entry *en, struct cpu_seq *s)
{
    /* Both halves of a sequence append the pages, run or not. */
    for (uint32_t i = 0; i < en->n_units; i++)
        s->pages[s->n_pages++] = b->units + (size_t)en->units[i] * b->layout.unit_bytes;

    en->status = 0;
    if (atomic_load_explicit(&en->seq->cancelled, memory_order_relaxed))
        en->status = -ECANCELED;
    else if (s->spoilt)
        en->status = ERR_NONFINITE;
    else if (!en->ids && s->ended)
        en->status = ERR_ENDED;
    return en->status == 0;
}

static void plan_runs(struct backend *b)
{
    b->n_rows = b->n_runs = b->n_logits = 0;
    for (uint32_t i = 0; i < b->step->n_entries; i++) {
        struct step_entry *en = &b->step->entries[i];
        struct cpu_seq *s = &b->seqs[en->seq->index];
        struct cpu_run *run = &b->runs[b->n_runs];

        if (!begin_entry(b, en, s))
            continue;
        *run = (struct cpu_run){
            .entry = en,
            .seq = s,
            .row0 = b->n_rows,
            .n_rows = en->n_rows,
            .pos0 = s->pos,
            .i_logit = b->n_logits,
        };
        for (uint32_t t = 0; t < en->n_rows; t++) {
            b->ids[b->n_rows + t] = en->ids ? en->ids[t] : s->last;
            b->row_run[b->n_rows + t] = b->n_runs;
            s->tokens[s->pos + t] = b->ids[b->n_rows + t];
            if (t + en->n_logits >= en->n_rows)
                b->logit_rows[b->n_logits++] = b->n_rows + t;
        }
        if (en->tentative && b->layout.checkpoint_bytes)
            memcpy(s->base, s->state, b->layout.checkpoint_bytes);
        b->n_rows += en->n_rows;
        b->n_runs++;
    }
}

static int grow(void *pp, size_t *cap, size_t need, size_t elem)
{
    void *p;

    if (need <= *cap)
        return 0;
    p = realloc(*(void **)pp, need * elem);
    if (!p)
        return -ENOMEM;
    *(void **)pp = p;
    *cap = need;
    return 0;
}

/* Splits of the keys that a run's last row sees. */
static uint32_t run_splits(const struct cpu_run *run)
{
    return (run->pos0 + run->n_rows + ATTN_SPLIT_KEYS - 1) / ATTN_SPLIT_KEYS;
}

/* Decode rows with more than one split share their splits; everything else goes by tiles of rows.
 */
static int plan_attention(struct backend *b)
{
    const struct hparams *hp = &b->m->hp;
    const size_t group = hp->n_head / hp->n_head_kv, one = ATTN_PARTIAL_FLOATS(hp->head_dim);
    size_t n_items = 0, n_partials = 0, cap = b->cap_items;
    int r;

    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct cpu_run *run = &b->runs[i];
        uint32_t n_splits = run_splits(run);

        if (run->n_rows == 1 && n_splits > 1) {
            n_items += (size_t)n_splits * hp->n_head_kv;
            n_partials += (size_t)n_splits * hp->n_head_kv * group * one;
        } else {
            n_items +=
                (size_t)((run->n_rows + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS) * hp->n_head_kv;
        }
    }
    r = grow(&b->items, &cap, n_items, sizeof *b->items);
    if (r < 0)
        return r;
    b->cap_items = (uint32_t)cap;
    r = grow(&b->partials, &b->partials_cap, n_partials, sizeof *b->partials);
    if (r < 0)
        return r;

    b->n_items = 0;
    n_partials = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        uint32_t n_splits = run_splits(&b->runs[i]);

        if (b->runs[i].n_rows > 1 || n_splits < 2)
            continue;
        for (uint32_t head = 0; head < hp->n_head_kv; head++)
            for (uint32_t k = 0; k < n_splits; k++) {
                b->items[b->n_items++] = (struct attn_item){
                    .i_run = i,
                    .head = head,
                    .r1 = 1,
                    .i_split = (int32_t)k,
                    .n_splits = n_splits,
                    .partial = n_partials,
                };
                n_partials += group * one;
            }
    }
    b->n_split_items = b->n_items;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct cpu_run *run = &b->runs[i];

        if (run->n_rows == 1 && run_splits(run) > 1)
            continue;
        for (uint32_t r0 = 0; r0 < run->n_rows; r0 += ATTN_TILE_ROWS)
            for (uint32_t head = 0; head < hp->n_head_kv; head++)
                b->items[b->n_items++] = (struct attn_item){
                    .i_run = i,
                    .head = head,
                    .r0 = r0,
                    .r1 = r0 + ATTN_TILE_ROWS < run->n_rows ? r0 + ATTN_TILE_ROWS : run->n_rows,
                    .i_split = -1,
                };
    }
    return 0;
}

static void embed(struct member *m)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const struct tensor *w = b->m->token_embd;
    uint32_t begin, end;

    while (cpu_take(m, b->n_rows, 4, &begin, &end))
        for (uint32_t row = begin; row < end; row++) {
            const struct cpu_run *run = &b->runs[b->row_run[row]];

            b->k->to_float((const uint8_t *)w->data + (uint64_t)b->ids[row] * w->row_bytes, w->type,
                           hp->n_embd, b->x + (size_t)row * hp->n_embd);
            rope_table(run->pos0 + (row - run->row0), b->inv_freq, hp->n_rot,
                       b->cs + (size_t)row * hp->n_rot);
        }
    cpu_phase(m);
}

/* hidden = norm(x) for every row that something needs; every member's own copy when rows are few.
 */
static const float *final_norm(struct member *m)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    const bool few = b->n_rows <= FEW_ROWS;
    const float *norm = tensor_f32(b->m->output_norm);
    float *hidden = few ? m->own->hidden : b->hidden;
    uint32_t begin, end;

    if (few) {
        for (uint32_t row = 0; row < b->n_rows; row++)
            b->k->rmsnorm(b->x + (size_t)row * hp->n_embd, norm, hp->rms_eps, hp->n_embd,
                          hidden + (size_t)row * hp->n_embd);
        return hidden;
    }
    while (cpu_take(m, b->n_rows, 4, &begin, &end))
        for (uint32_t row = begin; row < end; row++)
            b->k->rmsnorm(b->x + (size_t)row * hp->n_embd, norm, hp->rms_eps, hp->n_embd,
                          hidden + (size_t)row * hp->n_embd);
    cpu_phase(m);
    return hidden;
}

static void sample_row(struct member *m, uint32_t i_logit)
{
    struct backend *b = m->b;
    const uint32_t n_vocab = b->m->hp.n_vocab, row = b->logit_rows[i_logit];
    struct cpu_run *run = &b->runs[b->row_run[row]];
    struct step_entry *en = run->entry;
    float *logits = b->logits + (size_t)i_logit * n_vocab;
    const uint32_t i = i_logit - run->i_logit, n_history = run->pos0 + (row - run->row0) + 1;
    int r;

    if (en->logits)
        memcpy(en->logits + (size_t)i * n_vocab, logits, n_vocab * sizeof *logits);
    r = sampler_pick(en->sampling, run->seq->tokens, n_history, logits, n_vocab, m->own->pick,
                     &en->samples[i]);
    if (r < 0)
        en->status = r;
}

/* Rows of one run are sampled by one member, so that its status has one writer. */
static void head(struct member *m, const float *hidden)
{
    struct backend *b = m->b;
    const struct hparams *hp = &b->m->hp;
    struct acts a;
    uint32_t i, end;

    if (b->n_logits == 0)
        return;
    cpu_acts(m, hidden, NULL, hp->n_embd, b->n_rows, is_quant(b->m->output), 0, &a);
    cpu_matmul(m, &(struct mm_part){.w = b->m->output, .y = b->logits, .y_ld = hp->n_vocab}, 1, &a,
               b->logit_rows, b->n_logits);
    cpu_phase(m);
    while (cpu_take(m, b->n_runs, 1, &i, &end))
        for (uint32_t k = 0; k < b->runs[i].entry->n_logits; k++)
            sample_row(m, b->runs[i].i_logit + k);
    /* The draft rows that follow share their work anew; nobody reads samples before the step is
     * over. */
    cpu_next(m);
}

static void run_member(void *arg, uint32_t i)
{
    struct backend *b = arg;
    struct member m = {.b = b, .own = &b->members[i], .i = i};
    const float *hidden;

    embed(&m);
    for (uint32_t il = 0; il < b->m->hp.n_layer; il++) {
        const struct layer *l = &b->m->layers[il];

        if (l->kind == LAYER_ATTENTION)
            cpu_attention_layer(&m, l);
        else
            cpu_deltanet_layer(&m, l);
        cpu_ffn(&m, l);
        if (i == 0)
            engine_tick(b->engine);
    }
    if (b->n_logits == 0 && !b->m->hp.has_draft)
        return;
    hidden = final_norm(&m);
    head(&m, hidden);
    if (b->m->hp.has_draft)
        cpu_draft_rows(&m, hidden);
    /* With few rows nobody wrote the shared copy yet; settle() reads it. */
    if (i == 0 && b->n_rows <= FEW_ROWS)
        memcpy(b->hidden, hidden, (size_t)b->n_rows * b->m->hp.n_embd * sizeof *hidden);
}

static void settle_run(struct backend *b, struct cpu_run *run)
{
    struct step_entry *en = run->entry;
    struct cpu_seq *s = run->seq;
    const struct hparams *hp = &b->m->hp;
    const size_t row_bytes = hp->n_embd * sizeof(float);
    const float *hidden = b->hidden + (size_t)run->row0 * hp->n_embd;

    if (b->layout.hidden_floats) {
        memcpy(s->state + layout_hidden(&b->layout),
               hidden + (size_t)(run->n_rows - 1) * hp->n_embd, row_bytes);
        for (uint32_t i = 0; i < en->n_captures; i++)
            cpu_checkpoint_write(
                b, en->captures[i].units, layout_hidden(&b->layout) * sizeof(float),
                hidden + (size_t)(en->captures[i].pos - run->pos0 - 1) * hp->n_embd, row_bytes);
        if (en->tentative)
            memcpy(s->rows + (cpu_replay_floats(b->m) - (size_t)ENGINE_TENTATIVE_ROWS * hp->n_embd),
                   hidden, run->n_rows * row_bytes);
    }
    s->pos += run->n_rows;
    s->ended = false;
    if (en->status < 0)
        s->spoilt = true;
    if (en->n_logits && en->status == 0) {
        s->last = en->samples[en->n_logits - 1].id;
        s->ended = en->samples[en->n_logits - 1].end;
    }
    s->n_tentative = en->tentative ? run->n_rows : 0;
    s->n_tent_logits = en->n_logits;
    for (uint32_t i = 0; en->tentative && i < en->n_logits; i++) {
        s->tent_samples[i] = en->samples[i].id;
        s->tent_ends[i] = en->samples[i].end;
    }
}

int cpu_forward(struct backend *b)
{
    size_t n;
    int r;

    plan_runs(b);
    if (b->n_runs == 0)
        return 0;
    r = plan_attention(b);
    n = (size_t)b->n_logits * b->m->hp.n_vocab;
    if (r >= 0 && n > b->logits_cap) {
        free(b->logits);
        b->logits_cap = 0;
        b->logits = aligned_alloc(64, (n * sizeof *b->logits + 63) & ~(size_t)63);
        if (b->logits)
            b->logits_cap = n;
        else
            r = -ENOMEM;
    }
    if (r < 0) {
        /* The histories were written, but no position moved: the rows never were. */
        for (uint32_t i = 0; i < b->n_runs; i++)
            b->runs[i].entry->status = r;
        return r;
    }
    for (uint32_t i = 0; i < N_COUNTERS; i++)
        atomic_store_explicit(&b->counters[i].next, 0, memory_order_relaxed);
    pool_run(b->pool, run_member, b);
    for (uint32_t i = 0; i < b->n_runs; i++)
        settle_run(b, &b->runs[i]);
    return 0;
}
