/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/memory.h"

#include "daemon/options.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const uint64_t MIB = 1024 * 1024;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int memory_plan(const struct model *m, const struct options *o, uint64_t available,
                struct engine_options *ret, struct engine_plan *ret_plan, struct err_text *e)
{
    struct engine_options eo = {
        .kv_type = o->kv_type,
        .n_threads = o->threads,
        .n_sequences = o->parallel,
        .context = o->context,
        .pool_bytes = UINT64_MAX / 2,
    };
    struct engine_plan plan;
    uint64_t pages, wanted, spare;
    int r;

    /* The first plan says how large a unit is, the second one what the pool becomes. */
    r = engine_plan(m, &eo, &plan, e);
    if (r < 0)
        return r;
    if (o->vram_mib > 0) {
        eo.pool_bytes = o->vram_mib * MIB;
    } else {
        pages = (uint64_t)engine_pages(plan.context) * o->parallel;
        if (__builtin_mul_overflow(pages, plan.unit_bytes, &wanted))
            wanted = UINT64_MAX;
        spare = available == UINT64_MAX         ? wanted
                : available > plan.weight_bytes ? (available - plan.weight_bytes) / 2
                                                : 0;
        eo.pool_bytes = least(wanted, spare);
        if (eo.pool_bytes < plan.unit_bytes)
            return err_set(e, -ENOMEM,
                           "%" PRIu64 " MiB of memory are free, the weights take %" PRIu64
                           " MiB and one page %" PRIu64
                           " KiB; vram_mib can ask for a pool all the same",
                           available / MIB, plan.weight_bytes / MIB, plan.unit_bytes / 1024);
    }
    r = engine_plan(m, &eo, &plan, e);
    if (r < 0)
        return r;
    *ret = eo;
    *ret_plan = plan;
    return 0;
}

/* What is certainly taken besides the ram tier. */
static uint64_t taken_bytes(const struct options *o, const struct engine_plan *plan,
                            uint64_t pool_bytes)
{
    return plan->weight_bytes + plan->workspace_bytes + pool_bytes +
           plan->sequence_bytes * o->parallel;
}

uint64_t memory_ram_budget(const struct options *o, uint64_t available,
                           const struct engine_plan *plan, uint64_t pool_bytes)
{
    uint64_t taken = taken_bytes(o, plan, pool_bytes);

    if (!o->cache)
        return 0;
    if (o->conversation_cache_mib != OPTION_DECIDE)
        return o->conversation_cache_mib * MIB;
    /* Nobody says what is free: as much again as the pool is at least of the right size. */
    if (available == UINT64_MAX)
        return pool_bytes;
    return available > taken ? (available - taken) / 4 : 0;
}

static void print_bytes(FILE *f, const char *label, uint64_t bytes)
{
    if (bytes >= 10 * MIB)
        (void)fprintf(f, "%-18s%10" PRIu64 " MiB", label, (bytes + MIB / 2) / MIB);
    else
        (void)fprintf(f, "%-18s%10" PRIu64 " KiB", label, (bytes + 512) / 1024);
}

void memory_print(FILE *f, const struct model *m, const struct options *o, uint64_t available,
                  const struct engine_options *eo, const struct engine_plan *plan)
{
    uint64_t sequences = plan->sequence_bytes * eo->n_sequences,
             pool = plan->unit_bytes * plan->n_units,
             ram = memory_ram_budget(o, available, plan, pool);

    (void)fprintf(f, "model             %s\n", gguf_name(m->gguf));
    (void)fprintf(f,
                  "family            %s: %u layers (%u attention, %u linear attention), width %u, "
                  "vocabulary %u%s\n",
                  m->hp.arch, m->hp.n_layer, m->n_attn, m->n_dn, m->hp.n_embd, m->hp.n_vocab,
                  m->hp.has_draft ? ", draft block" : "");
    (void)fprintf(f, "context           %10u tokens (the file's: %u)\n", plan->context,
                  m->hp.n_context);
    print_bytes(f, "weights", plan->weight_bytes);
    (void)fputs("  mapped from the file\n", f);
    print_bytes(f, "pool", pool);
    (void)fprintf(f, "  %u pages of %d tokens, %" PRIu64 " KiB each (%s)\n", plan->n_units,
                  ENGINE_PAGE_TOKENS, plan->unit_bytes / 1024, o->kv_type);
    print_bytes(f, "sequences", sequences);
    (void)fprintf(f, "  %u of them, %" PRIu64 " KiB each\n", eo->n_sequences,
                  plan->sequence_bytes / 1024);
    print_bytes(f, "workspace", plan->workspace_bytes);
    (void)fputc('\n', f);
    print_bytes(f, "checkpoint", plan->checkpoint_bytes);
    (void)fprintf(f, "  in %u pages of the pool\n", plan->checkpoint_units);
    print_bytes(f, "conversations", ram);
    (void)fprintf(f, "  %" PRIu64 " pages beside the pool%s\n", ram / plan->unit_bytes,
                  o->cache ? "" : " (cache is false)");
    print_bytes(f, "together", taken_bytes(o, plan, pool) + ram);
    (void)fputc('\n', f);
    if (available != UINT64_MAX) {
        print_bytes(f, "free", available);
        (void)fputc('\n', f);
    }
}
