/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the engine reads and generates, beside what the machine can do at all.
 *
 *     bench_engine [--threads N] [--rounds N] [--isa NAME] [--work NAME] MODEL.gguf ...
 *     bench_engine --turns [--threads N] [--isa NAME] MODEL.gguf
 *
 * The first prints CSV (bench/compare.py reads it): the median, worst and best of the rounds in
 * tokens per second; the rate at which the processors were ours (1 when nobody else wanted them);
 * the ceiling in tokens per second that reading or arithmetic puts there, which of them, and the
 * median's share of it.  A core that does both at once reaches 1; AVX2 cannot come near for Q8_0,
 * where sums of bytes have to be widened and scaled between the products.
 *
 * The second obeys another program (bench/peer_turns.py) that lets us take turns with it: a work's
 * name a line on standard input runs one round, and one line with its seconds answers.
 */
#include "bench/ceilings.h"
#include "bench/workload.h"
#include "engine/cpu/pool.h"
#include "engine/engine.h"
#include "util/err.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROUNDS = 1000,
    MAX_THREADS = 1024,
};

struct settings {
    uint32_t n_threads, n_rounds;
    const char *isa, *only;
    bool turns;
};

static int fail(const char *what, int code, const struct err_text *e)
{
    (void)fprintf(stderr, "bench_engine: %s: %s (%s)\n", what, e->s, err_str(code));
    return code;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* The file's name without folders and ending. */
static void short_name(const char *path, char *ret, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');

    (void)snprintf(ret, size, "%.*s", (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
}

/* Seconds that a round takes at least, and what is the narrowest. */
static double least_s(const struct work_need *need, struct pool *p, const struct ceilings *c,
                      const char **ret_bound)
{
    /* More than any cache, but no more than a machine can spare: weights beyond that read alike. */
    const double most = 256 << 20;
    const double speed = ceiling_reading(p, (size_t)(need->weights < most ? need->weights : most));
    const double reading = speed > 0 ? need->bytes / speed : 0;
    const double adding = (c->flops > 0 ? need->flops / c->flops : 0) +
                          (c->q8_ops > 0 ? need->q8_ops / c->q8_ops : 0);

    *ret_bound = reading >= adding ? "reading" : need->q8_ops > need->flops ? c->q8_name : "fma";
    return reading >= adding ? reading : adding;
}

static int bench_work(struct workload *wl, const char *name, const struct work *w,
                      const struct settings *s, struct pool *p, const struct ceilings *c)
{
    double speeds[MAX_ROUNDS], busy = 0, least;
    struct err_text e = {""};
    struct work_time t;
    struct work_need need;
    const char *bound;
    const uint32_t n = s->n_rounds;

    /* One round to warm up: pages of the file, the pool, branch predictors. */
    for (uint32_t i = 0; i <= n; i++) {
        int r = workload_round(wl, w, &t, &e);

        if (r < 0)
            return fail(w->name, r, &e);
        if (i == 0)
            continue;
        speeds[i - 1] = work_tokens(w) / t.wall_s;
        busy += t.cpu_s / (t.wall_s * s->n_threads) / n;
    }
    qsort(speeds, n, sizeof speeds[0], descending);
    work_need(wl->model, w, &need);
    least = least_s(&need, p, c, &bound);
    printf("%s,%s,%u,%s,%u,tokens/s,%.2f,%.2f,%.2f,%.2f,%s,%.1f,%.3f\n", name, w->name,
           s->n_threads, engine_isa(wl->engine), n, speeds[n / 2], speeds[n - 1], speeds[0], busy,
           bound, work_tokens(w) / least, speeds[n / 2] * least / work_tokens(w));
    (void)fflush(stdout);
    return 0;
}

static int bench_model(const char *path, const struct settings *s, struct pool *p)
{
    struct err_text e = {""};
    struct ceilings c;
    struct workload wl;
    char name[128];
    int r = workload_open(&wl, path, s->n_threads, s->isa, &e);

    if (r < 0)
        return fail(path, r, &e);
    ceilings_measure(p, engine_isa(wl.engine), &c);
    short_name(path, name, sizeof name);
    (void)fprintf(stderr,
                  "%s: %u threads, %s; ceilings: fma %.1f GFLOP/s, %s %.1f Gop/s, reading of 256 "
                  "MiB %.2f GB/s\n",
                  name, s->n_threads, engine_isa(wl.engine), c.flops * 1e-9, c.q8_name,
                  c.q8_ops * 1e-9, ceiling_reading(p, 256 << 20) * 1e-9);
    for (size_t i = 0; i < n_works && r == 0; i++)
        if (!s->only || strcmp(s->only, works[i].name) == 0)
            r = bench_work(&wl, name, &works[i], s, p, &c);
    workload_close(&wl);
    return r;
}

static int take_turns(const char *path, const struct settings *s)
{
    struct err_text e = {""};
    struct workload wl;
    char line[128];
    int r = workload_open(&wl, path, s->n_threads, s->isa, &e);

    if (r < 0)
        return fail(path, r, &e);
    printf("ready %s\n", engine_isa(wl.engine));
    (void)fflush(stdout);
    while (r == 0 && fgets(line, sizeof line, stdin)) {
        const struct work *w;
        struct work_time t;

        line[strcspn(line, "\n")] = '\0';
        w = work_find(line);
        if (!w) {
            r = fail(line, -EINVAL, &(struct err_text){"no such work"});
            break;
        }
        r = workload_round(&wl, w, &t, &e);
        if (r < 0)
            (void)fail(w->name, r, &e);
        else
            printf("%.9f %u %.9f %.9f\n", t.wall_s, work_tokens(w), t.run_s, t.cpu_s);
        (void)fflush(stdout);
    }
    workload_close(&wl);
    return r;
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

static int parse(int argc, char **argv, struct settings *ret)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'}, {"rounds", required_argument, NULL, 'r'},
        {"isa", required_argument, NULL, 'i'},     {"work", required_argument, NULL, 'w'},
        {"turns", no_argument, NULL, 'T'},         {NULL, 0, NULL, 0},
    };
    struct settings s = {.n_threads = 2, .n_rounds = 5};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 't' && number(optarg, MAX_THREADS, &s.n_threads))
            continue;
        if (c == 'r' && number(optarg, MAX_ROUNDS, &s.n_rounds))
            continue;
        if (c == 'i')
            s.isa = optarg;
        else if (c == 'w' && work_find(optarg))
            s.only = optarg;
        else if (c == 'T')
            s.turns = true;
        else
            return -EINVAL;
    }
    if (optind == argc || (s.turns && optind + 1 != argc))
        return -EINVAL;
    *ret = s;
    return 0;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct pool *p;
    int r = parse(argc, argv, &s);

    if (r < 0) {
        (void)fprintf(stderr, "usage: bench_engine [--threads N] [--rounds N] [--isa NAME] "
                              "[--work NAME] MODEL...\n       bench_engine --turns "
                              "[--threads N] [--isa NAME] MODEL\nworks:");
        for (size_t i = 0; i < n_works; i++)
            (void)fprintf(stderr, " %s", works[i].name);
        (void)fprintf(stderr, "\n");
        return EXIT_FAILURE;
    }
    if (s.turns)
        return take_turns(argv[optind], &s) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;

    r = pool_new(s.n_threads, &p);
    if (r < 0) {
        (void)fail("threads of the ceilings", r, &(struct err_text){""});
        return EXIT_FAILURE;
    }
    printf("file,row,threads,isa,rounds,unit,median,worst,best,busy,bound,ceiling,share\n");
    for (int i = optind; i < argc && r == 0; i++)
        r = bench_model(argv[i], &s, p);
    pool_free(p);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
