/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/golden.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "golden: %s: %s\n", name, what);
    abort();
}

const char *golden_path(const char *name)
{
    static char path[4096];
    const char *dir = getenv("SRCDIR");

    (void)snprintf(path, sizeof path, "%s/tests/data/%s", dir ? dir : ".", name);
    return path;
}

static struct token_list ids_of(const json_t *array, const char *name)
{
    struct token_list l = {0};
    size_t i;
    json_t *v;

    if (!json_is_array(array))
        die("an array of ids is missing", name);
    json_array_foreach(array, i, v) if (token_list_add(&l, (int32_t)json_integer_value(v)) < 0)
        die("no memory", name);
    return l;
}

static char *text_of(const json_t *v)
{
    return strdup(json_is_string(v) ? json_string_value(v) : "");
}

size_t golden_load(const char *name, struct golden **ret)
{
    FILE *f = fopen(golden_path(name), "r");
    struct golden *cases = NULL;
    char *line = NULL;
    size_t n = 0, cap = 0;

    if (!f)
        die("cannot be opened (is SRCDIR set?)", golden_path(name));
    while (getline(&line, &cap, f) > 0) {
        json_error_t e;
        json_t *j = json_loads(line, 0, &e);

        if (!j)
            die(e.text, name);
        cases = realloc(cases, (n + 1) * sizeof *cases);
        if (!cases)
            die("no memory", name);
        cases[n++] = (struct golden){
            .prompt_text = text_of(json_object_get(j, "prompt")),
            .text = text_of(json_object_get(j, "text")),
            .prompt = ids_of(json_object_get(j, "prompt_ids"), name),
            .greedy = ids_of(json_object_get(j, "greedy_ids"), name),
        };
        json_decref(j);
    }
    free(line);
    (void)fclose(f);
    if (n == 0)
        die("no cases", name);
    *ret = cases;
    return n;
}

void golden_free(struct golden *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(g[i].prompt_text);
        free(g[i].text);
        token_list_done(&g[i].prompt);
        token_list_done(&g[i].greedy);
    }
    free(g);
}

float *golden_npy(const char *name, size_t *ret_rows, size_t n_cols)
{
    FILE *f = fopen(golden_path(name), "rb");
    unsigned char head[10];
    long begin, end;
    size_t n;
    float *p;

    if (!f || fread(head, 1, sizeof head, f) != sizeof head ||
        memcmp(head, "\x93NUMPY\x01", 7) != 0)
        die("not a version 1 .npy file", name);
    begin = 10 + head[8] + 256 * head[9];
    (void)fseek(f, 0, SEEK_END);
    end = ftell(f);
    n = (size_t)(end - begin) / sizeof *p;
    if (n % n_cols)
        die("rows of another width", name);
    p = malloc(n * sizeof *p);
    (void)fseek(f, begin, SEEK_SET);
    if (!p || fread(p, sizeof *p, n, f) != n)
        die("cannot be read", name);
    (void)fclose(f);
    *ret_rows = n / n_cols;
    return p;
}

double golden_top_difference(const float *logits, uint32_t n_vocab, const json_t *top)
{
    double max = -INFINITY, sum = 0, worst = 0;
    size_t i;
    json_t *t;

    for (uint32_t k = 0; k < n_vocab; k++)
        max = logits[k] > max ? logits[k] : max;
    for (uint32_t k = 0; k < n_vocab; k++)
        sum += exp(logits[k] - max);
    json_array_foreach(top, i, t)
    {
        json_int_t id = json_integer_value(json_array_get(t, 0));
        double have = logits[id] - max - log(sum),
               d = fabs(have - json_number_value(json_array_get(t, 1)));

        worst = d > worst ? d : worst;
    }
    return worst;
}
