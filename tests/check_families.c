/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families against llama.cpp: small models of random weights, and what llama.cpp says of them
 * (tests/data/families.jsonl, made by tests/peer_logits.py in `make check-families`).
 *
 *     check_families                  compares with the goldens
 *     check_families --write FOLDER   writes the files of the models there
 *     check_families --against FILE   compares with other figures than the goldens
 *
 * Weights are F32 or F16, so that llama.cpp rounds activations to nothing coarser than F16.
 */
#include "tests/golden.h"
#include "tests/mkmodel.h"
#include "tests/runner.h"

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/sha256.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 512 };

/* llama.cpp rounds activations to F16 where weights are F16. */
#define LIMIT_F32 0.0002
#define LIMIT_F16 0.02

/* Heads in the proportions of published models, and in F16 in their size: seven queries to a key in
 * Qwen2.5-0.5B, queries wider than the model in Qwen3, a quarter of a head rotated in Qwen3-Next.
 */
static const struct {
    const char *name;
    struct mkmodel make;
} models[] = {
    {"qwen2-f32",
     {.family = "qwen2",
      .n_layer = 3,
      .n_embd = 224,
      .n_head = 14,
      .head_dim = 16,
      .n_ff = 288,
      .rope_base = 1e6f,
      .seed = 101}},
    {"qwen2-f16",
     {.family = "qwen2",
      .type = TENSOR_F16,
      .n_layer = 2,
      .n_embd = 256,
      .head_dim = 64,
      .n_ff = 160,
      .untied = true,
      .seed = 102}},
    {"qwen3moe-f32",
     {.family = "qwen3moe",
      .n_layer = 3,
      .n_embd = 96,
      .n_head = 8,
      .head_dim = 32,
      .n_expert = 16,
      .n_expert_used = 4,
      .n_ff_expert = 48,
      .untied = true,
      .rope_base = 1e6f,
      .seed = 103}},
    {"qwen3moe-f16",
     {.family = "qwen3moe",
      .type = TENSOR_F16,
      .n_embd = 128,
      .n_head = 4,
      .n_head_kv = 1,
      .head_dim = 128,
      .n_expert = 8,
      .n_ff_expert = 64,
      .seed = 104}},
    {"qwen3next-f32",
     {.family = "qwen3next",
      .n_layer = 8,
      .n_embd = 96,
      .head_dim = 64,
      .n_rot = 16,
      .dn_v_heads = 6,
      .dn_dim = 32,
      .n_expert = 16,
      .n_expert_used = 5,
      .n_ff_expert = 32,
      .n_ff_shared = 64,
      .untied = true,
      .rope_base = 1e7f,
      .seed = 105}},
    {"qwen3next-f32-joined",
     {.family = "qwen3next",
      .n_layer = 4,
      .n_embd = 64,
      .head_dim = 32,
      .n_rot = 8,
      .dn_k_heads = 4,
      .dn_v_heads = 8,
      .dn_dim = 16,
      .dn_in = true,
      .fused = true,
      .n_expert = 8,
      .n_expert_used = 3,
      .untied = true,
      .seed = 106}},
    {"qwen3next-f16",
     {.family = "qwen3next",
      .type = TENSOR_F16,
      .n_layer = 4,
      .n_embd = 128,
      .n_head_kv = 1,
      .head_dim = 256,
      .n_rot = 64,
      .dn_dim = 128,
      .seed = 107}},
    {"qwen35moe-f32",
     {.family = "qwen35moe",
      .n_embd = 96,
      .head_dim = 64,
      .n_rot = 16,
      .dn_v_heads = 6,
      .dn_dim = 32,
      .n_expert = 8,
      .n_expert_used = 3,
      .untied = true,
      .rope_base = 1e7f,
      .seed = 108}},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static const char *figures; /* NULL: the goldens */

/* One prompt: "top" has the most likely tokens at each of "positions". */
static double worst_of(struct runner *r, const json_t *j)
{
    const json_t *prompt = json_object_get(j, "prompt"), *top = json_object_get(j, "top");
    const json_t *positions = json_object_get(j, "positions");
    struct sequence *s = runner_sequence(r);
    float *logits = malloc(r->n_vocab * sizeof *logits);
    const uint32_t n = (uint32_t)json_array_size(prompt);
    int32_t ids[MAX_PROMPT];
    uint32_t at = 0;
    double worst = 0;

    ck_assert(logits && n > 0 && n <= MAX_PROMPT);
    ck_assert(json_array_size(top) > 0 && json_array_size(top) == json_array_size(positions));
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(prompt, i));
    for (size_t i = 0; i < json_array_size(top); i++) {
        const uint32_t end = 1 + (uint32_t)json_integer_value(json_array_get(positions, i));
        double d;

        ck_assert(end > at && end <= n);
        (void)runner_read(r, s, ids + at, end - at, 64, logits);
        d = golden_top_difference(logits, r->n_vocab, json_array_get(top, i));
        worst = d > worst ? d : worst;
        at = end;
    }
    free(logits);
    runner_release(r, s);
    return worst;
}

START_TEST(probabilities_are_those_of_llama_cpp)
{
    const char *name = models[_i].name;
    const double limit = models[_i].make.type == TENSOR_F32 ? LIMIT_F32 : LIMIT_F16;
    FILE *f = fopen(figures ? figures : golden_path("families.jsonl"), "r");
    CLEANUP(buf_done) struct buf file = {0};
    char *line = NULL, sha[65];
    size_t cap = 0, n_cases = 0;
    struct runner r;

    ck_assert_ptr_nonnull(f);
    mkmodel_bytes(&models[_i].make, &file);
    ck_assert_int_eq(sha256_hex(file.data, file.len, sha), 0);
    runner_open_made(&r, &models[_i].make, &(struct runner_options){.kv_type = "f32"});
    while (getline(&line, &cap, f) > 0) {
        json_t *j = json_loads(line, 0, NULL);
        double worst;

        ck_assert_ptr_nonnull(j);
        if (strcmp(json_string_value(json_object_get(j, "model")), name) != 0) {
            json_decref(j);
            continue;
        }
        ck_assert_msg(strcmp(json_string_value(json_object_get(j, "sha256")), sha) == 0,
                      "%s is not the file that llama.cpp read: `make check-families` tells whether "
                      "the new one is right, and leaves its figures in tests/families.jsonl",
                      name);
        worst = worst_of(&r, j);
        printf("%s, prompt of %zu: largest difference %.5f (limit %g)\n", name,
               json_array_size(json_object_get(j, "prompt")), worst, limit);
        ck_assert_double_le(worst, limit);
        n_cases++;
        json_decref(j);
    }
    ck_assert_uint_ge(n_cases, 2);
    runner_close(&r);
    free(line);
    (void)fclose(f);
}
END_TEST

static int write_models(const char *folder)
{
    char path[4096];

    for (int i = 0; i < N_MODELS; i++) {
        int r;

        (void)snprintf(path, sizeof path, "%s/%s.gguf", folder, models[i].name);
        r = mkmodel_write(&models[i].make, path);
        if (r < 0) {
            (void)fprintf(stderr, "check_families: %s: %s\n", path, strerror(-r));
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    Suite *s = suite_create("families");
    TCase *t = tcase_create("llama.cpp");
    SRunner *sr;
    int failed;

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_models(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--against") == 0)
        figures = argv[2];
    else if (argc > 1)
        return 2;
    tcase_add_loop_test(t, probabilities_are_those_of_llama_cpp, 0, N_MODELS);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
