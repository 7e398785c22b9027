/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vocabularies of real models against llama.cpp's own texts and ids.  They are fetched
 * (tests/data/fetch-templates), or taken from the folder that STRATA_TEMPLATES names; without
 * network the test is skipped.
 */
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "tests/fetched.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int n_texts;
} vocabularies[] = {
    {"command-r", 47}, {"deepseek-coder", 47}, {"deepseek-llm", 47}, {"falcon", 47}, {"gpt-2", 47},
    {"llama-bpe", 47}, {"llama-spm", 47},      {"mpt", 47},          {"phi-3", 47},  {"qwen2", 47},
    {"qwen35", 51},    {"refact", 47},         {"starcoder", 47},
};

/* Ids as the .out file has them, some with a space in front: "1 2 3". */
static int put_ids(const struct token_list *l, struct buf *out)
{
    int r = 0;

    for (size_t i = 0; i < l->n && r >= 0; i++)
        r = buf_addf(out, i ? " %d" : "%d", l->ids[i]);
    return r;
}

/* One text: 0 when its ids are `want`, and its text comes back. */
static int check_text(const char *name, const struct tokenizer *t, const char *s, size_t n,
                      const char *want, size_t n_want)
{
    static const struct tokenize_options plain = {.add_special = false, .parse_special = false};
    CLEANUP(token_list_done) struct token_list l = {0};
    CLEANUP(buf_done) struct buf ids = {0}, back = {0};
    int failed = tokenizer_encode(t, s, n, &plain, &l) < 0 || put_ids(&l, &ids) < 0 ||
                 tokenizer_decode(t, l.ids, l.n, true, &back) < 0;

    for (; n_want && *want == ' '; want++)
        n_want--;
    while (n_want && want[n_want - 1] == ' ')
        n_want--;
    if (!failed && (ids.len != n_want || (n_want && memcmp(ids.data, want, n_want) != 0)))
        failed = 1;
    if (failed)
        (void)fprintf(stderr, "%s: \"%.*s\" gives %s, expected %.*s\n", name, (int)n, s,
                      ids.data ? ids.data : "", (int)n_want, want);
    if (!failed && (back.len != n || (n && memcmp(back.data, s, n) != 0))) {
        (void)fprintf(stderr, "%s: \"%.*s\" comes back as \"%s\"\n", name, (int)n, s,
                      back.data ? back.data : "");
        failed = 1;
    }
    return failed;
}

/* Counts what differs; *ret_n counts the texts. */
static int check_vocabulary(const char *name, int *ret_n)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    CLEANUP(buf_done) struct buf path = {0}, inp = {0}, out = {0};
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_text e = {{0}};
    int failed = 0;

    if (fetched_read(&inp, "ggml-vocab-%s.gguf.inp", name) < 0 ||
        fetched_read(&out, "ggml-vocab-%s.gguf.out", name) < 0 ||
        fetched_path(&path, "ggml-vocab-%s.gguf", name) < 0 || gguf_open(path.data, &g, &e) < 0 ||
        tokenizer_new(g, &t, &e) < 0) {
        (void)fprintf(stderr, "%s: cannot be opened: %s\n", name, e.s);
        return 1;
    }
    for (const char *s = inp.data, *w = out.data, *end, *line; s; *ret_n += 1) {
        end = strstr(s, separator);
        line = strchrnul(w, '\n');
        failed +=
            check_text(name, t, s, end ? (size_t)(end - s) : strlen(s), w, (size_t)(line - w));
        w = *line ? line + 1 : line;
        s = end ? end + sizeof(separator) - 1 : NULL;
    }
    tokenizer_free(t);
    return failed;
}

int main(void)
{
    int failed = fetched_folder("check_vocabularies");

    if (failed)
        return failed;
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
        int n = 0, bad = check_vocabulary(vocabularies[i].name, &n);

        (void)printf("%s: %d texts, %d wrong\n", vocabularies[i].name, n, bad);
        failed += bad + (n != vocabularies[i].n_texts);
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
