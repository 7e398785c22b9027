/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a chat becomes the text of a prompt.
 *
 *     bench_text [--rounds N]
 *
 * Prints rows of the CSV of bench_engine, without its header, and on standard error what is slower
 * than it should be: 10 MB/s of prompt text on one core.  "ceiling" is that target.
 */
#include "engine/jinja.h"
#include "util/clock.h"
#include "util/err.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 1000, N_MESSAGES = 200, MESSAGE_BYTES = 10 << 10 };

static const double target_mb_s = 10;

static const struct {
    const char *name, *source;
} templates[] = {
    {"chatml", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
               "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
               "{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    /* What templates that part thinking from answers do with each message. */
    {"chatml_cut",
     "{% macro text(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ p.text }}"
     "{% endfor %}{% endif %}{% endmacro %}{% for m in messages %}{% set c = text(m.content)|trim "
     "%}"
     "{% if m.role == 'assistant' and '</think>' in c %}"
     "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
     "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"},
    {"tojson", "{{ messages|tojson }}"},
};

static void *must(void *p)
{
    if (!p) {
        (void)fprintf(stderr, "bench_text: no memory\n");
        exit(EXIT_FAILURE);
    }
    return p;
}

static void set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    if (jinja_object_set(o, key, strlen(key), false, v) < 0)
        (void)must(NULL);
}

/* Words, some of them not ASCII, with quotes and line ends. */
static struct jinja_value *chat(void)
{
    static const char words[] = "the quick \"brown\" fox jumps over \xc3\xa9t\xc3\xa9 again,\n";
    struct jinja_value *globals = must(jinja_object()), *messages = must(jinja_list());
    char *text = must(malloc(MESSAGE_BYTES));

    for (size_t i = 0; i < MESSAGE_BYTES; i++)
        text[i] = words[i % (sizeof words - 1)];
    for (int i = 0; i < N_MESSAGES; i++) {
        struct jinja_value *m = must(jinja_object());

        set(m, "role", i % 2 ? jinja_string("assistant", 9, true) : jinja_string("user", 4, true));
        set(m, "content", jinja_string(text, MESSAGE_BYTES, true));
        if (jinja_list_add(messages, m) < 0)
            (void)must(NULL);
    }
    set(globals, "messages", messages);
    set(globals, "add_generation_prompt", jinja_bool(true));
    free(text);
    return globals;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

static void row(const char *name, double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, descending);
    printf("text,%s,1,-,%u,MB/s,%.4f,%.4f,%.4f,1.00,target,%.4f,%.3f\n", name, n, v[n / 2],
           v[n - 1], v[0], target_mb_s, v[n / 2] / target_mb_s);
    if (v[n / 2] < target_mb_s)
        (void)fprintf(stderr, "bench: MISSED: template %s renders %.1f MB/s, the target is %.0f\n",
                      name, v[n / 2], target_mb_s);
}

static void bench(const char *name, const char *source, struct jinja_value *globals, uint32_t n)
{
    double v[MAX_ROUNDS];
    struct err_text e = {""};
    struct jinja *t = NULL;
    int r = jinja_compile(source, strlen(source), &t, &e);

    for (uint32_t i = 0; i < n && r == 0; i++) {
        struct jinja_output out = {0};
        uint64_t t0 = clock_ns();

        r = jinja_render(t, globals, NULL, &out, &e);
        v[i] = (double)out.text.len / 1e6 / ((double)(clock_ns() - t0) * 1e-9);
        jinja_output_done(&out);
    }
    jinja_free(t);
    if (r < 0) {
        (void)fprintf(stderr, "bench_text: %s: %s\n", name, e.s);
        exit(EXIT_FAILURE);
    }
    row(name, v, n);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    struct jinja_value *globals;
    long n = 5;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'r')
            n = strtol(optarg, NULL, 10);
        if (c != 'r' || n < 1 || n > MAX_ROUNDS) {
            (void)fprintf(stderr, "usage: bench_text [--rounds N]\n");
            return EXIT_FAILURE;
        }
    }
    globals = chat();
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
        bench(templates[i].name, templates[i].source, globals, (uint32_t)n);
    jinja_unref(globals);
    return EXIT_SUCCESS;
}
