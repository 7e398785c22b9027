/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a chat becomes the text of a prompt, and that text tokens.
 *
 *     bench_text [--rounds N] [--template FILE]... [--vocabulary FILE]... [TEXT...]
 *
 * The chat is made of the TEXT files, or of a few words; 2.6 MB in messages of 500 bytes, and four
 * that have half of it.  Prints rows of the CSV of bench_engine, without its header, and on
 * standard error what is slower than it should be: 10 MB/s of prompt text on one core.  "ceiling"
 * is that target.
 */
#include "engine/gguf.h"
#include "engine/jinja.h"
#include "engine/tokenizer.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/utf8.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 1000, MAX_FILES = 16, CHAT_BYTES = 2600000, SMALL_BYTES = 500, N_LARGE = 4 };

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

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_text: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "re");
    char room[4096];
    size_t n;

    if (!f)
        die(path, "cannot be read");
    while ((n = fread(room, 1, sizeof room, f)) > 0)
        if (buf_add(out, room, n) < 0)
            (void)must(NULL);
    (void)fclose(f);
}

/* What all is made of: the files, or words, some of them not ASCII, with quotes and line ends. */
static void read_texts(char *const *files, int n, struct buf *out)
{
    for (int i = 0; i < n; i++)
        read_file(files[i], out);
    if (out->len == 0 &&
        buf_addz(out, "the quick \"brown\" fox jumps over \xc3\xa9t\xc3\xa9 again,\n") < 0)
        (void)must(NULL);
    for (size_t once = out->len; out->len < CHAT_BYTES;)
        if (buf_reserve(out, once) < 0 || buf_add(out, out->data, once) < 0)
            (void)must(NULL);
    out->len = CHAT_BYTES;
}

static void add_message(struct jinja_value *messages, size_t i, const char *text, size_t n)
{
    struct jinja_value *m = must(jinja_object());

    set(m, "role", i % 2 ? jinja_string("assistant", 9, true) : jinja_string("user", 4, true));
    set(m, "content", jinja_string(text, n, true));
    if (jinja_list_add(messages, m) < 0)
        (void)must(NULL);
}

static struct jinja_value *chat(const struct buf *text)
{
    struct jinja_value *globals = must(jinja_object()), *messages = must(jinja_list());
    const size_t half = CHAT_BYTES / 2, large = half / N_LARGE;
    size_t i = 0, at = 0;

    while (at + large <= CHAT_BYTES) {
        size_t want = at + SMALL_BYTES <= half ? SMALL_BYTES : large;
        /* Whole characters. */
        size_t n = utf8_valid_run(text->data + at, want);

        add_message(messages, i++, text->data + at, n);
        at += n ? n : want;
    }
    set(globals, "messages", messages);
    set(globals, "bos_token", jinja_string("<s>", 3, false));
    set(globals, "eos_token", jinja_string("</s>", 4, false));
    set(globals, "add_generation_prompt", jinja_bool(true));
    return globals;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

static void row(const char *what, const char *name, double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, descending);
    printf("text,%s,1,-,%u,MB/s,%.4f,%.4f,%.4f,1.00,target,%.4f,%.3f\n", name, n, v[n / 2],
           v[n - 1], v[0], target_mb_s, v[n / 2] / target_mb_s);
    if (v[n / 2] < target_mb_s)
        (void)fprintf(stderr, "bench: MISSED: %s %s: %.1f MB/s, the target is %.0f\n", what, name,
                      v[n / 2], target_mb_s);
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The last rendering goes to *ret, the caller's to free. */
static void bench_template(const char *name, const char *source, struct jinja_value *globals,
                           uint32_t n, struct jinja_output *ret)
{
    double v[MAX_ROUNDS];
    struct err_text e = {""};
    struct jinja *t = NULL;
    int r = jinja_compile(source, strlen(source), &t, &e);

    for (uint32_t i = 0; i < n && r == 0; i++) {
        uint64_t t0;

        jinja_output_done(ret);
        *ret = (struct jinja_output){0};
        t0 = clock_ns();
        r = jinja_render(t, globals, NULL, ret, &e);
        v[i] = (double)ret->text.len / 1e6 / ((double)(clock_ns() - t0) * 1e-9);
    }
    jinja_free(t);
    if (r < 0)
        die(name, e.s);
    row("template", name, v, n);
}

/* `o` is a chat in ChatML, so special tokens are looked for, and data is told from template. */
static void bench_vocabulary(const char *path, const struct jinja_output *o, uint32_t n)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(free_p) struct text_span *data = must(calloc(o->n_spans + 1, sizeof *data));
    const struct tokenize_options how = {.parse_special = true, .data = data, .n_data = o->n_spans};
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    double v[MAX_ROUNDS];

    for (size_t i = 0; i < o->n_spans; i++)
        data[i] = (struct text_span){o->spans[i].begin, o->spans[i].end};
    if (gguf_open(path, &g, &e) < 0 || tokenizer_new(g, &t, &e) < 0)
        die("vocabulary", e.s); /* which names the file */
    for (uint32_t i = 0; i < n; i++) {
        struct token_list l = {0};
        uint64_t t0 = clock_ns();

        if (tokenizer_encode(t, o->text.data, o->text.len, &how, &l) < 0)
            (void)must(NULL);
        v[i] = (double)o->text.len / 1e6 / ((double)(clock_ns() - t0) * 1e-9);
        token_list_done(&l);
    }
    tokenizer_free(t);
    row("tokenizer", base(path), v, n);
}

struct files {
    const char *paths[MAX_FILES];
    int n;
};

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"template", required_argument, NULL, 't'},
                                            {"vocabulary", required_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    struct files templates_given = {.n = 0}, vocabularies = {.n = 0};
    CLEANUP(buf_done) struct buf text = {0};
    struct jinja_output chatml = {0}, other = {0};
    struct jinja_value *globals;
    long n = 5;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        struct files *f = c == 't' ? &templates_given : &vocabularies;

        if (c == 'r')
            n = strtol(optarg, NULL, 10);
        if (c == '?' || n < 1 || n > MAX_ROUNDS || f->n == MAX_FILES) {
            (void)fprintf(stderr, "usage: bench_text [--rounds N] [--template FILE]... "
                                  "[--vocabulary FILE]... [TEXT...]\n");
            return EXIT_FAILURE;
        }
        if (c != 'r')
            f->paths[f->n++] = optarg;
    }
    read_texts(argv + optind, argc - optind, &text);
    globals = chat(&text);
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
        bench_template(templates[i].name, templates[i].source, globals, (uint32_t)n,
                       i ? &other : &chatml);
    for (int i = 0; i < templates_given.n; i++) {
        CLEANUP(buf_done) struct buf source = {0};

        read_file(templates_given.paths[i], &source);
        bench_template(base(templates_given.paths[i]), source.data, globals, (uint32_t)n, &other);
    }
    for (int i = 0; i < vocabularies.n; i++)
        bench_vocabulary(vocabularies.paths[i], &chatml, (uint32_t)n);
    jinja_output_done(&chatml);
    jinja_output_done(&other);
    jinja_unref(globals);
    return EXIT_SUCCESS;
}
