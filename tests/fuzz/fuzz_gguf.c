/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a model file: parse, read the model, scan it, build the tokenizer.  Whatever passes
 * is touched throughout, so that a pointer outside the file shows.
 *
 * The seeds are made models without the payload of their large matrices (mkcorpus.c), so the first
 * byte of an input says how many zero bytes are to follow it.
 */
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/tokenizer.h"

#include "util/buf.h"
#include "util/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ZEROS_PER_COUNT = 512 };

static volatile uint64_t sink;

static void touch_keys(const struct gguf *g)
{
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                                       "tokenizer.ggml.token_type", "llama.attention.head_count"};
    struct gguf_array a;
    double d;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (gguf_get_array(g, keys[i], &a, NULL) <= 0)
            continue;
        for (uint64_t k = 0; k < a.n; k++) {
            if (gguf_array_is_str(&a)) {
                struct gguf_str s = gguf_array_str(&a, k);

                sink += s.n ? (unsigned char)s.s[s.n - 1] : 0;
            } else if (gguf_array_f64(&a, k, &d)) {
                sink += d > 0;
            }
        }
    }
}

static void use_tokenizer(const struct gguf *g)
{
    static const char text[] = "The <|im_start|> 12\n\xc3\xa9\xff  tie";
    const struct tokenize_options options = {.add_special = true, .parse_special = true};
    struct token_list ids = {0};
    struct buf out = {0};
    struct tokenizer *t;
    struct err_text e;

    if (tokenizer_new(g, &t, &e) < 0)
        return;
    if (tokenizer_encode(t, text, sizeof text - 1, &options, &ids) == 0 &&
        tokenizer_decode(t, ids.ids, ids.n, true, &out) == 0)
        sink += out.len;
    token_list_done(&ids);
    buf_done(&out);
    tokenizer_free(t);
}

static void use_file(const uint8_t *p, size_t n)
{
    struct err_text e;
    struct gguf *g;
    struct model *m;

    if (gguf_open_bytes(p, n, "fuzz", &g, &e) < 0)
        return;
    touch_keys(g);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        sink += ((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->n_bytes - 1];
    }
    use_tokenizer(g);
    if (model_from_gguf(g, &m, &e) < 0) {
        gguf_free(g);
        return;
    }
    (void)model_scan(m, &e);
    model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t zeros, n;
    uint8_t *file;

    if (size == 0)
        return 0;
    zeros = (size_t)data[0] * ZEROS_PER_COUNT;
    n = size - 1 + zeros;
    file = calloc(1, n ? n : 1);
    if (!file)
        return 0;
    memcpy(file, data + 1, size - 1);
    use_file(file, n);
    free(file);
    return 0;
}
