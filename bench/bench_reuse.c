/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reuse saves a request, and what sharing saves in memory: engine, cache and scheduler as the
 * daemon joins them, without its sockets.
 *
 *     bench_reuse [--threads N] [--rounds N] [--only mount|agents] MODEL.gguf ...
 *
 * Prints rows of the CSV of bench_engine, without its header.  For each length N that the context
 * holds, a prompt whose first N tokens are stored up to a turn checkpoint, and 40 more:
 *
 *     mount_vram_N, mount_ram_N   from sched_submit to its source being in place
 *     load_ram_N                  the copy from ram, beside memcpy
 *     first_cold_N, _vram_N, _ram_N    from sched_submit to the first token
 *     gain_vram_N, gain_ram_N     first_cold over it
 *
 * and then sixteen agents behind one root of 40,000 tokens, each with 600 of its own and 20
 * generated:
 *
 *     agents_vram, agents_ram     units in use, in per cent of root, deltas in whole pages and the
 *                                 checkpoints that design section 5 asks for; target 105
 */
#include "bench/stack.h"
#include "cache/arena.h"
#include "cache/cache.h"
#include "daemon/decisions.h"
#include "daemon/sched.h"
#include "engine/engine.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROUNDS = 1000,
    MAX_THREADS = 1024,
    MORE = 40, /* tokens behind what is stored */
    N_AGENTS = 16,
    ROOT = 40000,
    DELTA = 600,
    OPENER = 3, /* of the delta: what opens the answer, behind the turn checkpoint */
    ANSWER = 20,
    CHECKPOINT_EVERY = 8192, /* the daemon's default */
    WARM_UP = 512,
    MOST_S = 120, /* that reading a prompt may take at the speed of the warming up */
    COPIES = 5,
    COPY_LEAST = 64 << 20,
    /* Of each tier, so that nothing is evicted: twice what the agents leave, with three checkpoints
     * each of up to 12 units (the needle's has 5). */
    N_UNITS = 2 * (ROOT / CACHE_PAGE + N_AGENTS * (DELTA / CACHE_PAGE + 2 + 3 * 12)),
};

/* Most per cent of what sixteen agents have to hold. */
#define AGENTS_TARGET 105.0

static const uint32_t lengths[] = {1024, 4096, 16384};

struct settings {
    uint32_t n_threads, n_rounds;
    const char *only;
};

struct bench {
    struct stack s;
    char name[128];
    uint32_t n_threads, n_rounds;
    uint32_t seed; /* of the next prompt */
    double tokens_per_s;
};

static int fail(const char *what, int code, const struct err_text *e)
{
    (void)fprintf(stderr, "bench_reuse: %s: %s (%s)\n", what, e->s, err_str(code));
    return code;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The file's name without folders and ending. */
static void short_name(const char *path, char *ret, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');

    (void)snprintf(ret, size, "%.*s", (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
}

/* bound NULL: there is nothing to set beside it.  Sorts `v`; its median. */
static double row(const struct bench *b, const char *row_name, uint32_t length, const char *unit,
                  double *v, const char *bound, double ceiling)
{
    const bool more_is_better = strcmp(unit, "GB/s") == 0 || strcmp(unit, "x") == 0;
    const uint32_t n = b->n_rounds;
    char at[16] = "";
    double median;

    qsort(v, n, sizeof *v, ascending);
    median = v[n / 2];
    if (length > 0)
        (void)snprintf(at, sizeof at, "_%u", length);
    printf("%s,%s%s,%u,%s,%u,%s,%.4f,%.4f,%.4f,,", b->name, row_name, at, b->n_threads,
           engine_isa(b->s.engine), n, unit, median, v[more_is_better ? 0 : n - 1],
           v[more_is_better ? n - 1 : 0]);
    if (bound)
        printf("%s,%.4f,%.3f\n", bound, ceiling, median / ceiling);
    else
        printf(",,\n");
    (void)fflush(stdout);
    return median;
}

/* --- requests ----------------------------------------------------------------------------------
 */

static int add_ids(struct request *r, uint32_t seed, uint32_t n_vocab, uint32_t n)
{
    uint32_t x = seed * 2654435761U + 12345;
    int rc = 0;

    for (uint32_t i = 0; i < n && rc == 0; i++) {
        x = x * 1664525U + 1013904223U;
        rc = token_list_add(&r->prompt, (int32_t)((x >> 8) % n_vocab));
    }
    return rc;
}

/* Tokens of two seeds; NULL when memory is out. */
static struct request *new_request(const struct stack *s, uint32_t seed, uint32_t n,
                                   uint32_t more_seed, uint32_t n_more, uint32_t n_answer)
{
    struct request *r = request_new();

    if (!r)
        return NULL;
    r->max_tokens = n_answer;
    r->ignore_eos = true;
    if (add_ids(r, seed, s->n_vocab, n) < 0 || add_ids(r, more_seed, s->n_vocab, n_more) < 0)
        return request_unref(r);
    return r;
}

struct timing {
    double mounted_ms, load_ms, first_s;
    uint64_t bytes_loaded;
};

/* The prefix of `seed`, then tokens nobody has read; `n_reused` and `from_ram` are what has to
 * become of it. */
static int ask(struct bench *b, uint32_t seed, uint32_t length, uint32_t n_reused, bool from_ram,
               struct timing *ret, struct err_text *e)
{
    struct request *r = new_request(&b->s, seed, length, ++b->seed, MORE, 1);
    int rc;

    if (!r)
        return err_set(e, -ENOMEM, "no memory for a prompt");
    r->bounds.turn = length;
    rc = stack_run(&b->s, &r, 1, &ret->mounted_ms, e);
    if (rc == 0) {
        const struct decision *x = r->decision;

        ret->first_s = (double)(r->t_first - r->t_submit) * 1e-9;
        ret->load_ms = x->load_ms;
        ret->bytes_loaded = x->bytes_loaded;
        if (x->n_reused != n_reused || (x->bytes_loaded > 0) != from_ram)
            rc = err_set(e, -EINVAL, "%u of %u tokens reused, %llu bytes copied: %s, %s",
                         x->n_reused, length, (unsigned long long)x->bytes_loaded,
                         source_str(x->source), decision_why_str(x->why));
    }
    (void)request_unref(r);
    return rc;
}

/* --- mounts ------------------------------------------------------------------------------------
 */

/* What this machine copies from memory, not from its caches, however little is asked for; the best
 * of a few. */
static double copy_gb_s(size_t n_loaded)
{
    const size_t n = n_loaded > COPY_LEAST ? n_loaded : COPY_LEAST;
    char *from = malloc(n), *to = malloc(n);
    double best = 0;

    for (int i = 0; i <= COPIES && from && to; i++) {
        uint64_t begin;
        double speed;

        memset(from, i, n);
        begin = clock_ns();
        memcpy(to, from, n);
        __asm__ volatile("" : : "r"(to) : "memory");
        speed = (double)n / (double)(clock_ns() - begin);
        /* The first one gets the pages. */
        best = i > 0 && speed > best ? speed : best;
    }
    free(from);
    free(to);
    return best;
}

enum { COLD, VRAM, RAM, N_FROM };

static int mount_round(struct bench *b, uint32_t length, struct timing t[N_FROM],
                       struct err_text *e)
{
    const uint32_t seed = ++b->seed;
    int r = ask(b, seed, length, 0, false, &t[COLD], e);

    /* Its copies to ram would be in the way of what is measured next. */
    if (r == 0)
        r = stack_settle(&b->s, e);
    if (r == 0)
        r = ask(b, seed, length, length, false, &t[VRAM], e);
    if (r == 0)
        r = stack_settle(&b->s, e);
    if (r == 0)
        r = stack_demote(&b->s, e);
    if (r == 0)
        r = ask(b, seed, length, length, true, &t[RAM], e);
    return r == 0 ? stack_forget(&b->s, e) : r;
}

static int bench_mounts(struct bench *b, uint32_t length, struct err_text *e)
{
    static double mount[N_FROM][MAX_ROUNDS], first[N_FROM][MAX_ROUNDS], gain[N_FROM][MAX_ROUNDS],
        load[MAX_ROUNDS];
    struct timing t[N_FROM];

    for (uint32_t i = 0; i < b->n_rounds; i++) {
        int r = mount_round(b, length, t, e);

        if (r < 0)
            return r;
        for (int k = 0; k < N_FROM; k++) {
            mount[k][i] = t[k].mounted_ms;
            first[k][i] = t[k].first_s;
            gain[k][i] = t[COLD].first_s / t[k].first_s;
        }
        load[i] = (double)t[RAM].bytes_loaded / (t[RAM].load_ms * 1e6);
    }
    (void)row(b, "mount_vram", length, "ms", mount[VRAM], NULL, 0);
    (void)row(b, "mount_ram", length, "ms", mount[RAM], NULL, 0);
    (void)row(b, "load_ram", length, "GB/s", load, "memcpy", copy_gb_s(t[RAM].bytes_loaded));
    (void)row(b, "first_cold", length, "s", first[COLD], NULL, 0);
    (void)row(b, "first_vram", length, "s", first[VRAM], NULL, 0);
    (void)row(b, "first_ram", length, "s", first[RAM], NULL, 0);
    (void)row(b, "gain_vram", length, "x", gain[VRAM], NULL, 0);
    (void)row(b, "gain_ram", length, "x", gain[RAM], NULL, 0);
    return 0;
}

/* --- agents ------------------------------------------------------------------------------------
 */

/* The root's pages and checkpoints once, and each agent's pages behind it, its turn and its end.
 * The last token that is sampled is not read. */
static uint32_t agents_need(const struct stack *s)
{
    const uint32_t end = ROOT + DELTA + ANSWER - 1;
    const uint32_t root = ROOT / CACHE_PAGE + (1 + ROOT / CHECKPOINT_EVERY) * s->checkpoint_units;
    const uint32_t each = engine_pages(end) - ROOT / CACHE_PAGE + 2 * s->checkpoint_units;

    return root + N_AGENTS * each;
}

static void agents_row(struct bench *b, const char *name, uint32_t n_units)
{
    const uint32_t need = agents_need(&b->s), rounds = b->n_rounds;
    const double mib = (double)b->s.unit_bytes / (1 << 20);
    double percent = 100.0 * n_units / need;

    b->n_rounds = 1;
    (void)row(b, name, 0, "%", &percent, "target", AGENTS_TARGET);
    b->n_rounds = rounds;
    (void)fprintf(stderr, "%s: %s: %u units (%.1f MiB) in use, %u needed\n", b->name, name, n_units,
                  n_units * mib, need);
    if (percent > AGENTS_TARGET)
        (void)fprintf(stderr, "bench: MISSED: %s %s are %.2f %%, the target is %.0f\n", b->name,
                      name, percent, AGENTS_TARGET);
}

static int check_agents(const struct stack *s, struct request **r, struct err_text *e)
{
    struct cache_stats st;
    uint32_t n_cold = 0;

    for (uint32_t i = 0; i < N_AGENTS; i++) {
        const struct decision *x = r[i]->decision;

        n_cold += x->n_reused == 0;
        if (x->n_generated != ANSWER || x->n_kept != ROOT + DELTA + ANSWER - 1 ||
            (x->n_reused != 0 && x->n_reused != ROOT))
            return err_set(e, -EINVAL, "agent %u reused %u, generated %u and kept %u tokens", i,
                           x->n_reused, x->n_generated, x->n_kept);
    }
    cache_stats(s->cache, &st);
    if (n_cold != 1 || st.n_parked != N_AGENTS || st.n_roots != 1 || st.refused > 0)
        return err_set(e, -EINVAL, "%u agents read the root; %u are parked, %u roots, %llu refused",
                       n_cold, st.n_parked, st.n_roots, (unsigned long long)st.refused);
    return 0;
}

static int bench_agents(struct bench *b, struct err_text *e)
{
    struct request *r[N_AGENTS] = {NULL};
    const uint32_t seed = ++b->seed;
    struct cache_stats st;
    struct sched_totals t;
    int rc = 0;

    for (uint32_t i = 0; i < N_AGENTS && rc == 0; i++) {
        r[i] = new_request(&b->s, seed, ROOT, ++b->seed, DELTA, ANSWER);
        if (!r[i]) {
            rc = err_set(e, -ENOMEM, "no memory for a prompt");
            continue;
        }
        r[i]->root_asked = true;
        r[i]->bounds.root = ROOT;
        r[i]->bounds.turn = r[i]->bounds.query = ROOT + DELTA - OPENER;
    }
    if (rc == 0)
        rc = stack_run(&b->s, r, N_AGENTS, NULL, e);
    if (rc == 0)
        rc = stack_settle(&b->s, e);
    if (rc == 0)
        rc = check_agents(&b->s, r, e);
    if (rc == 0) {
        /* What the tiers have given out, and not what the cache says of it. */
        cache_stats(b->s.cache, &st);
        sched_totals(b->s.sched, &t);
        agents_row(b, "agents_vram", t.units_used);
        agents_row(b, "agents_ram", arena_n_used(b->s.arena));
        if (t.units_used != st.tier[CACHE_VRAM].units_held ||
            arena_n_used(b->s.arena) != st.tier[CACHE_RAM].units_held)
            (void)fprintf(stderr,
                          "bench: MISSED: %s: the cache counts %u units in vram, %u in ram\n",
                          b->name, st.tier[CACHE_VRAM].units_held, st.tier[CACHE_RAM].units_held);
    }
    for (uint32_t i = 0; i < N_AGENTS; i++)
        (void)request_unref(r[i]);
    return rc < 0 ? rc : stack_forget(&b->s, e);
}

/* --- the rest ----------------------------------------------------------------------------------
 */

static bool wants(const struct settings *s, const char *what)
{
    return !s->only || strcmp(s->only, what) == 0;
}

/* Whether it fits, in tokens and in time. */
static bool is_possible(const struct bench *b, const char *what, uint32_t n_sequence,
                        uint32_t n_to_read)
{
    const double seconds = n_to_read / b->tokens_per_s;

    if (n_sequence > b->s.context)
        (void)fprintf(stderr, "bench: SKIPPED: %s of %s: its context is %u tokens\n", what, b->name,
                      b->s.context);
    else if (seconds > MOST_S)
        (void)fprintf(stderr, "bench: SKIPPED: %s of %s: %u tokens would take %.0f s to read\n",
                      what, b->name, n_to_read, seconds);
    return n_sequence <= b->s.context && seconds <= MOST_S;
}

/* Warms up, and lets the scheduler learn how fast it reads. */
static int warm_up(struct bench *b, struct err_text *e)
{
    struct timing t;
    int r = ask(b, ++b->seed, WARM_UP, 0, false, &t, e);

    if (r < 0)
        return r;
    b->tokens_per_s = (WARM_UP + MORE) / t.first_s;
    return stack_forget(&b->s, e);
}

static int bench_model(const char *path, const struct settings *s)
{
    const uint32_t n_agent = ROOT + DELTA + ANSWER;
    struct bench b = {.n_threads = s->n_threads, .n_rounds = s->n_rounds};
    struct err_text e = {""};
    int r = stack_open(&b.s, path, s->n_threads, n_agent, N_UNITS, CHECKPOINT_EVERY, &e);

    if (r < 0)
        return fail(path, r, &e);
    short_name(path, b.name, sizeof b.name);
    (void)fprintf(stderr, "%s: units of %.1f KiB, %u a checkpoint, context %u\n", b.name,
                  (double)b.s.unit_bytes / 1024, b.s.checkpoint_units, b.s.context);
    r = warm_up(&b, &e);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && r == 0 && wants(s, "mount"); i++) {
        char what[32];

        (void)snprintf(what, sizeof what, "%u tokens", lengths[i]);
        if (is_possible(&b, what, lengths[i] + MORE + 1, lengths[i]))
            r = bench_mounts(&b, lengths[i], &e);
    }
    if (r == 0 && wants(s, "agents") &&
        is_possible(&b, "the agents", n_agent, ROOT + N_AGENTS * DELTA))
        r = bench_agents(&b, &e);
    stack_close(&b.s);
    return r < 0 ? fail(path, r, &e) : 0;
}

static bool number(const char *text, uint32_t max, uint32_t *ret)
{
    char *end;
    unsigned long n;

    errno = 0;
    n = strtoul(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > max)
        return false;
    *ret = (uint32_t)n;
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"only", required_argument, NULL, 'o'},
                                            {NULL, 0, NULL, 0}};
    struct settings s = {.n_threads = 2, .n_rounds = 3};
    bool ok = true;
    int c, r = 0;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'o')
            s.only = optarg;
        ok = ok && ((c == 't' && number(optarg, MAX_THREADS, &s.n_threads)) ||
                    (c == 'r' && number(optarg, MAX_ROUNDS, &s.n_rounds)) ||
                    (c == 'o' && (strcmp(optarg, "mount") == 0 || strcmp(optarg, "agents") == 0)));
    }
    if (!ok || optind == argc) {
        (void)fprintf(stderr, "usage: bench_reuse [--threads N] [--rounds N] "
                              "[--only mount|agents] MODEL.gguf ...\n");
        return EXIT_FAILURE;
    }
    for (int i = optind; i < argc && r == 0; i++)
        r = bench_model(argv[i], &s);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
