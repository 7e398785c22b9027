/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of real models against what jinja2 made of them (tests/data/chat_render.json).  They
 * are fetched (tests/data/fetch-templates), or taken from the folder that STRATA_TEMPLATES names;
 * without network the test is skipped.
 */
#include "engine/jinja.h"

#include "tests/fetched.h"
#include "tests/golden.h"
#include "tests/jinja_values.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/sha256.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_RENDERINGS = 80, N_TEMPLATES = 10 };

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
    CLEANUP(buf_done) struct buf source = {0};
    struct jinja_limits limits = {.now = day()};
    struct jinja_output out = {0};
    struct err_text e = {""};
    struct jinja_value *globals = jinja_from_json(variables);
    struct jinja *t = NULL;
    char hex[65] = "";
    int r, failed;

    jinja_set_text(globals, "bos_token", "<BOS>");
    jinja_set_text(globals, "eos_token", "<EOS>");
    jinja_set(globals, "add_generation_prompt", jinja_bool(true));
    r = fetched_read(&source, "%s", name);
    if (r == 0)
        r = jinja_compile(source.data, source.len, &t, &e);
    if (r == 0)
        r = jinja_render(t, globals, &limits, &out, &e);
    if (r == 0)
        r = sha256_hex(out.text.data, out.text.len, hex);
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
    CLEANUP(buf_done) struct buf source = {0};
    char hex[65] = "";

    if (fetched_read(&source, "%s", name) == 0 && sha256_hex(source.data, source.len, hex) == 0 &&
        strcmp(hex, json_string_value(json_object_get(result, "template_sha256"))) == 0)
        return 0;
    (void)fprintf(stderr, "%s is not the template that was rendered\n", name);
    return 1;
}

int main(void)
{
    json_t *file = json_load_file(golden_path("chat_render.json"), 0, NULL), *v;
    int failed = fetched_folder("check_jinja_templates"), n_renderings = 0, n_templates = 0;
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
