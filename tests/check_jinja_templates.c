/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of real models against what jinja2 made of them (tests/data/chat_render.json).  They
 * are fetched (tests/data/fetch-templates), or taken from the folder that STRATA_TEMPLATES names;
 * without network the test is skipped.
 */
#include "engine/jinja.h"

#include "tests/golden.h"
#include "tests/jinja_values.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/sha256.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { SKIPPED = 77, N_RENDERINGS = 80, N_TEMPLATES = 10 };

static char folder[4096];

/* 0, or the exit status of the program. */
static int fetch(void)
{
    const char *given = getenv("STRATA_TEMPLATES"), *build = getenv("BUILDDIR");
    char command[9000];
    int status;

    if (given) {
        (void)snprintf(folder, sizeof(folder), "%s", given);
        return 0;
    }
    (void)snprintf(folder, sizeof(folder), "%s/tests/templates", build ? build : ".");
    (void)snprintf(command, sizeof(command), "python3 '%s' '%s'", golden_path("fetch-templates"),
                   folder);
    status = system(command);
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 1)
        return EXIT_FAILURE; /* came, but is not what it should be */
    (void)fprintf(stderr, "check_jinja_templates: SKIPPED: the templates could not be fetched\n");
    return SKIPPED;
}

static char *load(const char *name, size_t *ret_n)
{
    char path[8192], *text = NULL;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "re");
    if (!f)
        return NULL;
    text = malloc(1 << 20);
    if (text)
        *ret_n = fread(text, 1, 1 << 20, f);
    (void)fclose(f);
    return text;
}

static int64_t day(void)
{
    struct tm tm = {.tm_year = 126, .tm_mday = 2, .tm_hour = 12, .tm_isdst = -1};

    return (int64_t)mktime(&tm);
}

/* One line of the file: 0 when the rendering is as it should be. */
static int check_rendering(const json_t *result, const json_t *variables)
{
    const char *name = json_string_value(json_object_get(result, "template"));
    const char *want = json_string_value(json_object_get(result, "sha256"));
    CLEANUP(free_p) char *source = NULL;
    struct jinja_limits limits = {.now = day()};
    struct jinja_output out = {0};
    struct err_text e = {""};
    struct jinja_value *globals = jinja_from_json(variables);
    struct jinja *t = NULL;
    char hex[65] = "";
    size_t n = 0;
    int r, failed;

    source = load(name, &n);
    jinja_set_text(globals, "bos_token", "<BOS>");
    jinja_set_text(globals, "eos_token", "<EOS>");
    jinja_set(globals, "add_generation_prompt", jinja_bool(true));
    r = source ? jinja_compile(source, n, &t, &e) : -ENOENT;
    if (r == 0)
        r = jinja_render(t, globals, &limits, &out, &e);
    if (r == 0)
        sha256_hex(out.text.data, out.text.len, hex);
    failed = want ? r < 0 || strcmp(hex, want) != 0 : r != -EINVAL;
    if (failed)
        (void)fprintf(stderr, "%s, %s: %s\n", name,
                      json_string_value(json_object_get(result, "case")),
                      r == 0 ? out.text.data : e.s);
    jinja_output_done(&out);
    jinja_unref(globals);
    jinja_free(t);
    return failed;
}

static int check_source(const json_t *result)
{
    const char *name = json_string_value(json_object_get(result, "template"));
    CLEANUP(free_p) char *source = NULL;
    size_t n = 0;
    char hex[65] = "";

    source = load(name, &n);
    if (source)
        sha256_hex(source, n, hex);
    if (strcmp(hex, json_string_value(json_object_get(result, "template_sha256"))) == 0)
        return 0;
    (void)fprintf(stderr, "%s is not the template that was rendered\n", name);
    return 1;
}

int main(void)
{
    json_t *file = json_load_file(golden_path("chat_render.json"), 0, NULL), *v;
    int failed = fetch(), n_renderings = 0, n_templates = 0;
    size_t i;

    if (failed) {
        json_decref(file);
        return failed;
    }
    if (!file)
        return EXIT_FAILURE;
    json_array_foreach(json_object_get(file, "results"), i, v)
    {
        const char *name = json_string_value(json_object_get(v, "case"));

        if (name) {
            n_renderings++;
            failed += check_rendering(v, json_object_get(json_object_get(file, "cases"), name));
        } else {
            n_templates++;
            failed += check_source(v);
        }
    }
    json_decref(file);
    (void)printf("%d renderings of %d templates, %d wrong\n", n_renderings, n_templates, failed);
    if (n_renderings != N_RENDERINGS || n_templates != N_TEMPLATES)
        failed++;
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
