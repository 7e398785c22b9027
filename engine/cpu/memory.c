/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every buffer is a line in one of the lists below, which is walked twice: once to add up what it
 * would take (the plan that is charged), once to hand out places in one mapping.
 */
#include "engine/cpu/memory.h"

#include "engine/cpu/cpu.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Hands out 64-byte aligned places; base NULL only counts. */
struct carve {
    uint8_t *base;
    uint64_t used;
    bool overflow;
};

static void *place(struct carve *c, uint64_t n, uint64_t size)
{
    uint64_t bytes, at = c->used;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, (uint64_t)63, &bytes) ||
        __builtin_add_overflow(c->used, bytes & ~(uint64_t)63, &c->used))
        c->overflow = true;
    return c->base ? c->base + at : NULL;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The widest rows that some matrix multiplies. */
static uint32_t widest_input(const struct hparams *hp)
{
    uint64_t w = hp->n_embd;

    w = max_u64(w, (uint64_t)hp->n_head * hp->head_dim);
    w = max_u64(w, (uint64_t)hp->dn_v_heads * hp->dn_dim);
    w = max_u64(w, hp->n_ff);
    w = max_u64(w, hp->n_ff_expert);
    w = max_u64(w, hp->n_ff_shared);
    if (hp->has_draft)
        w = max_u64(w, 2 * (uint64_t)hp->n_embd);
    return (uint32_t)((w + 31) / 32 * 32);
}

static void carve_routing(struct carve *c, const struct hparams *hp, struct cpu_routing *rt,
                          uint64_t rows)
{
    rt->routes = place(c, rows * hp->n_expert_used, sizeof *rt->routes);
    rt->probs = place(c, rows * hp->n_expert, sizeof(float));
    rt->shared_gate = place(c, rows, sizeof(float));
    rt->active = place(c, hp->n_expert, sizeof(uint32_t));
    rt->start = place(c, hp->n_expert + 1, sizeof(uint32_t));
    rt->pair = place(c, rows * hp->n_expert_used, sizeof(uint32_t));
    rt->row = place(c, rows * hp->n_expert_used, sizeof(uint32_t));
}

/* Buffers that all members share, for max_rows rows. */
static void carve_shared(struct carve *c, struct backend *b)
{
    const struct hparams *hp = &b->m->hp;
    const uint64_t rows = b->max_rows, f = sizeof(float);
    const uint64_t head_dims = (uint64_t)hp->n_head * hp->head_dim,
                   kv = (uint64_t)hp->n_head_kv * hp->head_dim;
    const uint64_t dn = (uint64_t)hp->dn_v_heads * hp->dn_dim;
    const uint64_t pairs = rows * hp->n_expert_used;
    const uint64_t q0 = max_u64(rows * b->max_in, pairs * hp->n_ff_expert),
                   q1 = rows * hp->n_ff_shared;

    b->x = place(c, rows * hp->n_embd, f);
    b->xn = place(c, rows * hp->n_embd, f);
    b->xq[0] = place(c, q0, 1);
    b->xd[0] = place(c, q0 / 32 + rows, f);
    b->xq[1] = place(c, q1, 1);
    b->xd[1] = place(c, q1 / 32 + rows, f);
    b->xs[0] = place(c, q0 / 32 + rows, 2 * sizeof(int16_t));
    b->xs[1] = place(c, q1 / 32 + rows, 2 * sizeof(int16_t));
    b->cs = place(c, rows * hp->n_rot, f);
    b->qg = place(c, rows * 2 * head_dims, f);
    b->qc = place(c, rows * head_dims, f);
    b->kv = place(c, rows * 2 * kv, f);
    b->att = place(c, rows * max_u64(head_dims, dn), f);
    b->conv_in = place(c, rows * (hp->dn_conv_dim + dn), f);
    b->z = b->conv_in ? b->conv_in + rows * hp->dn_conv_dim : NULL;
    b->conv_out = place(c, rows * hp->dn_conv_dim, f);
    b->ab = place(c, rows * 2 * hp->dn_v_heads, f);
    b->ff = place(c, max_u64(rows * hp->n_ff, pairs * hp->n_ff_expert), f);
    b->ff_shared = place(c, rows * hp->n_ff_shared, f);
    b->hidden = place(c, rows * hp->n_embd, f);
    b->draft = place(c, hp->has_draft ? rows * 2 * hp->n_embd : 0, f);
    b->draft_x = place(c, hp->has_draft ? rows * hp->n_embd : 0, f);
    if (hp->n_expert)
        carve_routing(c, hp, &b->routing, rows);
    b->runs = place(c, b->n_seqs, sizeof *b->runs);
    b->ids = place(c, rows, sizeof *b->ids);
    b->row_run = place(c, rows, sizeof *b->row_run);
    b->logit_rows = place(c, rows, sizeof *b->logit_rows);
    b->inv_freq = place(c, hp->n_rot / 2, f);
    b->counters = place(c, N_COUNTERS, sizeof *b->counters);
}

static size_t scratch_bytes(const struct backend *b)
{
    const struct hparams *hp = &b->m->hp;
    size_t a = b->k->matmul_scratch(b->max_in);
    size_t t = b->k->attention_scratch(hp->head_dim, hp->n_head / hp->n_head_kv, ATTN_TILE_ROWS);

    return a > t ? a : t;
}

static void carve_member(struct carve *c, const struct backend *b, struct cpu_member *m)
{
    const struct hparams *hp = &b->m->hp;
    const uint64_t f = sizeof(float);

    m->scratch = place(c, scratch_bytes(b), 1);
    m->few = place(c, (uint64_t)FEW_ROWS * b->max_in, f);
    for (int i = 0; i < 2; i++) {
        m->few_q[i] = place(c, (uint64_t)FEW_ROWS * b->max_in, 1);
        m->few_d[i] = place(c, (uint64_t)FEW_ROWS * b->max_in / 32, f);
        m->few_s[i] = place(c, (uint64_t)FEW_ROWS * b->max_in / 32, 2 * sizeof(int16_t));
    }
    m->hidden = place(c, (uint64_t)FEW_ROWS * hp->n_embd, f);
    m->pairs = place(c, (uint64_t)FEW_ROWS * 2 * hp->n_embd, f);
    m->gate_up = place(c, 2 * (uint64_t)b->max_rows * FF_PIECE, f);
    if (hp->n_expert) {
        m->mix = place(c, ((uint64_t)hp->n_expert_used + 1) * b->max_rows * MIX_COLS, f);
        carve_routing(c, hp, &m->routing, FEW_ROWS);
    }
    m->pick = place(c, sampler_scratch_bytes(hp->n_vocab), 1);
}

static void carve_sequence(struct carve *c, const struct backend *b, struct cpu_seq *s)
{
    s->pages = place(c, b->context / ENGINE_PAGE_TOKENS + 1, sizeof *s->pages);
    s->tokens = place(c, b->context, sizeof *s->tokens);
    s->state = place(c, b->layout.checkpoint_bytes, 1);
    s->base = place(c, b->layout.checkpoint_bytes, 1);
    s->rows = place(c, b->layout.checkpoint_bytes ? cpu_replay_floats(b->m) : 0, sizeof(float));
}

static uint32_t default_threads(void)
{
    cpu_set_t set;
    int n;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    n = CPU_COUNT(&set);
    return n < 1 ? 1 : (uint32_t)n;
}

/* What the lists need to know: everything but memory. */
static int describe(struct backend *b, const struct model *m, const struct engine_options *o,
                    const struct layout *l, const struct engine_plan *p, struct err_text *e)
{
    const struct kernels *k = kernels_get(o->isa);

    if (!k)
        return err_set(e, ERR_UNSUPPORTED, "this processor or build has no \"%s\" kernels", o->isa);
    *b = (struct backend){
        .m = m,
        .layout = *l,
        .k = k,
        .n_members = o->n_threads ? o->n_threads : default_threads(),
        .n_seqs = o->n_sequences,
        .max_rows = p->max_rows,
        .context = p->context,
        .max_in = widest_input(&m->hp),
    };
    if (b->n_members > 1024)
        return err_set(e, -EINVAL, "%u threads, at most 1024", b->n_members);
    if (b->max_rows > 1u << 16)
        return err_set(e, -EINVAL, "max_rows %u, at most %u", b->max_rows, 1u << 16);
    return 0;
}

static int measure(struct backend *b, struct carve *shared, struct carve *one_seq,
                   struct err_text *e)
{
    struct cpu_member member;
    struct cpu_seq seq;

    carve_shared(shared, b);
    for (uint32_t i = 0; i < b->n_members; i++)
        carve_member(shared, b, &member);
    carve_sequence(one_seq, b, &seq);
    if (shared->overflow || one_seq->overflow || shared->used > 1ull << 46 ||
        one_seq->used > 1ull << 46)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's shapes need more memory than can be addressed");
    return 0;
}

int cpu_memory_plan(const struct model *m, const struct engine_options *o, const struct layout *l,
                    struct engine_plan *p, struct err_text *e)
{
    struct carve shared = {0}, one_seq = {0};
    struct backend b = {0};
    int r;

    r = describe(&b, m, o, l, p, e);
    if (r < 0)
        return r;
    r = measure(&b, &shared, &one_seq, e);
    if (r < 0)
        return r;
    p->sequence_bytes = one_seq.used;
    /* Rows that want logits are few: one per sequence. */
    p->workspace_bytes = shared.used + (uint64_t)o->n_sequences * m->hp.n_vocab * sizeof(float);
    return 0;
}

/* Private, zeroed, huge pages where there are any; untouched parts cost nothing. */
static void *map_bytes(uint64_t n)
{
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, n, MADV_HUGEPAGE);
    /* Prompts pass through here: not into a core file. */
    (void)madvise(p, n, MADV_DONTDUMP);
    return p;
}

/* Inverse frequencies in double, rounded once. */
static void fill_inv_freq(struct backend *b)
{
    const struct hparams *hp = &b->m->hp;

    for (uint32_t p = 0; p < hp->n_rot / 2; p++) {
        double f = pow(hp->rope_base, -2.0 * p / hp->n_rot) * hp->rope_freq_scale;

        if (b->m->rope_freqs)
            f /= tensor_f32(b->m->rope_freqs)[p];
        b->inv_freq[p] = (float)f;
    }
}

static void cpu_memory_closep(struct backend **b)
{
    cpu_memory_close(*b);
}

int cpu_memory_open(struct engine *engine, const struct model *m, const struct engine_options *o,
                    const struct layout *l, const struct engine_plan *p, struct backend **ret,
                    struct err_text *e)
{
    CLEANUP(cpu_memory_closep) struct backend *b = NULL;
    struct carve shared = {0}, one_seq = {0};
    struct backend t = {0};
    int r;

    r = describe(&t, m, o, l, p, e);
    if (r < 0)
        return r;
    r = measure(&t, &shared, &one_seq, e);
    if (r < 0)
        return r;
    b = malloc(sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = t;
    b->engine = engine;

    b->members = calloc(b->n_members, sizeof *b->members);
    b->seqs = calloc(b->n_seqs, sizeof *b->seqs);
    b->arena_bytes = shared.used + one_seq.used * b->n_seqs;
    b->arena = map_bytes(b->arena_bytes);
    b->units_bytes = (size_t)p->n_units * l->unit_bytes;
    b->units = map_bytes(b->units_bytes);
    if (!b->members || !b->seqs || !b->arena || !b->units)
        return err_set(e, -ENOMEM, "no memory for %llu MiB of buffers and a pool of %llu MiB",
                       (unsigned long long)(b->arena_bytes >> 20),
                       (unsigned long long)(b->units_bytes >> 20));

    shared = (struct carve){.base = b->arena};
    carve_shared(&shared, b);
    for (uint32_t i = 0; i < b->n_members; i++)
        carve_member(&shared, b, &b->members[i]);
    for (uint32_t i = 0; i < b->n_seqs; i++)
        carve_sequence(&shared, b, &b->seqs[i]);
    fill_inv_freq(b);

    r = pool_new(b->n_members, &b->pool);
    if (r < 0)
        return err_set(e, r, "cannot start %u threads: %s", b->n_members, err_str(r));
    *ret = TAKE(b);
    return 0;
}

void cpu_memory_close(struct backend *b)
{
    if (!b)
        return;
    pool_free(b->pool);
    if (b->arena)
        (void)munmap(b->arena, b->arena_bytes);
    if (b->units)
        (void)munmap(b->units, b->units_bytes);
    free(b->logits);
    free(b->partials);
    free(b->items);
    free(b->members);
    free(b->seqs);
    free(b);
}
