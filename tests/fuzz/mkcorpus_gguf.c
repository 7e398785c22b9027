/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of fuzz_gguf into a folder: a small model of each family whose payloads are
 * left out, with the leading byte that asks for as many zeros.
 *
 * usage: mkcorpus_gguf FOLDER
 */
#include "engine/gguf.h"
#include "tests/mkmodel.h"

#include "util/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ZEROS_PER_COUNT = 512 }; /* of fuzz_gguf.c */

static int write_seed(const char *folder, const char *name, const struct mkmodel *o)
{
    struct ggufw w = {0};
    struct buf b = {0}, whole = {0};
    char path[4096];
    size_t counts;
    FILE *f;
    int failed;

    mkmodel_build(o, &w);
    ggufw_bytes(&w, &whole);
    w.no_data = true;
    ggufw_bytes(&w, &b);
    counts = (whole.len - b.len + ZEROS_PER_COUNT - 1) / ZEROS_PER_COUNT;
    if (counts > 255) {
        fprintf(stderr, "%s: %zu counts of zeros do not fit a byte\n", name, counts);
        exit(1);
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "wbe");
    if (!f) {
        perror(path);
        exit(1);
    }
    failed = fputc((int)counts, f) == EOF || fwrite(b.data, 1, b.len, f) != b.len;
    failed |= fclose(f) != 0;
    buf_done(&b);
    buf_done(&whole);
    ggufw_done(&w);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct mkmodel o;
    } seeds[] = {
        {"llama", {.family = "llama", .untied = true}},
        {"qwen3", {.family = "qwen3", .bias = true}},
        {"qwen35", {.family = "qwen35", .draft = true, .n_layer = 2, .interval = 2}},
        {"llama_mix",
         {.family = "llama",
          .mix = {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_IQ4_NL, TENSOR_MXFP4},
          .n_mix = 6}},
        {"qwen3_k",
         {.family = "qwen3",
          .mix = {TENSOR_Q2_K, TENSOR_Q3_K, TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_IQ4_XS,
                  TENSOR_IQ3_S, TENSOR_IQ2_XS},
          .n_mix = 8,
          .n_layer = 1,
          .n_embd = 256}},
        {"qwen2", {.family = "qwen2", .n_layer = 1}},
        {"qwen3moe", {.family = "qwen3moe", .n_layer = 1}},
        {"qwen3next", {.family = "qwen3next", .n_layer = 2, .interval = 2}},
        {"qwen3next_joined",
         {.family = "qwen3next", .n_layer = 2, .interval = 2, .dn_in = true, .fused = true}},
        {"qwen35moe", {.family = "qwen35moe", .draft = true, .n_layer = 2, .interval = 2}},
    };
    int failed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 1;
    }
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct mkmodel o = seeds[i].o;

        if (!o.n_embd)
            o.n_embd = 32;
        o.n_ff = 32;
        o.head_dim = 8;
        o.dn_dim = 8;
        o.n_vocab = MKMODEL_MIN_VOCAB;
        if (!o.n_mix)
            o.type = TENSOR_Q8_0;
        failed |= write_seed(argv[1], seeds[i].name, &o);
    }
    return failed;
}
