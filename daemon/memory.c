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

/* The first number of a small file, or UINT64_MAX ("max", absent, unreadable). */
static uint64_t read_number(const char *root, const char *path)
{
    char full[4096];
    unsigned long long v;
    FILE *f;
    int n = snprintf(full, sizeof full, "%s%s", root, path);

    if (n < 0 || (size_t)n >= sizeof full)
        return UINT64_MAX;
    f = fopen(full, "re");
    if (!f)
        return UINT64_MAX;
    n = fscanf(f, "%llu", &v);
    (void)fclose(f);
    return n == 1 ? v : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t mem_available(const char *root)
{
    uint64_t ret = UINT64_MAX;
    char full[4096], line[256];
    unsigned long long kib;
    FILE *f;

    (void)snprintf(full, sizeof full, "%s/proc/meminfo", root);
    f = fopen(full, "re");
    if (!f)
        return ret;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            ret = kib * 1024;
    (void)fclose(f);
    return ret;
}

/* What one hierarchy leaves: the least of limit - use over our group (`path`, "/a/b") and all above
 * it. */
static uint64_t cgroup_left(const char *root, const char *mount, const char *path,
                            const char *limit, const char *use)
{
    char group[2048], file[4096];
    uint64_t ret = UINT64_MAX;

    (void)snprintf(group, sizeof group, "%s", path);
    for (;;) {
        uint64_t max, used;
        char *slash;

        (void)snprintf(file, sizeof file, "%s%s/%s", mount, group, limit);
        max = read_number(root, file);
        (void)snprintf(file, sizeof file, "%s%s/%s", mount, group, use);
        used = read_number(root, file);
        if (max != UINT64_MAX && used != UINT64_MAX)
            ret = least(ret, max > used ? max - used : 0);
        slash = strrchr(group, '/');
        if (!slash)
            return ret;
        *slash = '\0';
    }
}

uint64_t memory_available(const char *root)
{
    uint64_t ret = mem_available(root);
    char full[4096], line[2048];
    FILE *f;

    (void)snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    f = fopen(full, "re");
    if (!f)
        return ret;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            ret = least(
                ret, cgroup_left(root, "/sys/fs/cgroup", line + 3, "memory.max", "memory.current"));
        else if (strstr(line, ":memory:/"))
            ret =
                least(ret, cgroup_left(root, "/sys/fs/cgroup/memory", strstr(line, ":memory:/") + 8,
                                       "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
    (void)fclose(f);
    return ret;
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
             pool = plan->unit_bytes * plan->n_units;

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
    print_bytes(f, "together", plan->weight_bytes + pool + sequences + plan->workspace_bytes);
    (void)fputc('\n', f);
    if (available != UINT64_MAX) {
        print_bytes(f, "free", available);
        (void)fputc('\n', f);
    }
}
