/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it a model that we run?
 *
 * Refused by name: other architectures, other kinds of file, a part of a split model alone, and
 * keys that would change the result while the graph does not honour them, unless their value is the
 * neutral one.  A model that runs must run right.
 */
#include "engine/model_internal.h"

#include "util/err.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    QUANTIZATION_VERSION = 2, /* of the block layouts */
    SHOWN = 120,              /* bytes of an escaped string in a message */
};

static const struct family families[] = {
    {"llama", ROPE_NORM, .qk_norm = false},
    {"qwen2", ROPE_NEOX, .qkv_bias = true},
    {"qwen3", ROPE_NEOX, .qk_norm = true},
    {"qwen3moe", ROPE_NEOX, .qk_norm = true, .mixture = true},
    {"qwen3next", ROPE_NEOX, .qk_norm = true, .hybrid = true, .grouped = true, .mixture = true,
     .shared = true},
    {"qwen35", ROPE_NEOX, .qk_norm = true, .hybrid = true},
    {"qwen35moe", ROPE_NEOX, .qk_norm = true, .hybrid = true, .mixture = true, .shared = true},
};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* "a, b and c". */
static const char *family_names(char out[SHOWN])
{
    int at = 0;

    for (size_t i = 0; i < N_FAMILIES && at < SHOWN; i++)
        at += snprintf(out + at, SHOWN - (size_t)at, "%s%s",
                       i == 0               ? ""
                       : i + 1 < N_FAMILIES ? ", "
                                            : " and ",
                       families[i].name);
    return out;
}

/* What kind of file it is; fills hp.arch. */
int model_read_family(const struct model_reader *r, const struct family **ret)
{
    char shown[SHOWN], names[SHOWN];
    struct gguf_str s;
    uint64_t v;
    int rc;

    rc = gguf_get_u64(r->g, "split.count", 0, UINT16_MAX, &v, r->e);
    if (rc < 0)
        return rc;
    if (rc > 0 && v > 1 && v != gguf_n_files(r->g))
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "one part of a model split into %" PRIu64 " files", v);

    rc = gguf_get_str(r->g, "general.type", &s, r->e);
    if (rc < 0)
        return rc;
    if (rc > 0 && (s.n != 5 || memcmp(s.s, "model", 5) != 0))
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED, "general.type is \"%s\", expected \"model\"",
                         err_escape(shown, sizeof shown, s.s, s.n));

    rc = gguf_get_u64(r->g, "general.quantization_version", 0, UINT32_MAX, &v, r->e);
    if (rc < 0)
        return rc;
    if (rc > 0 && v != QUANTIZATION_VERSION)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"general.quantization_version\": found %" PRIu64 ", expected %d", v,
                         QUANTIZATION_VERSION);

    rc = gguf_get_str(r->g, "general.architecture", &s, r->e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"general.architecture\" is missing");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];

        if (s.n == strlen(f->name) && memcmp(s.s, f->name, s.n) == 0) {
            (void)snprintf(r->m->hp.arch, sizeof r->m->hp.arch, "%s", f->name);
            *ret = f;
            return 0;
        }
    }
    return gguf_fail(r->g, r->e, ERR_UNSUPPORTED, "architecture \"%s\" is not supported; %s are",
                     err_escape(shown, sizeof shown, s.s, s.n), family_names(names));
}

/* Keys of other graphs, with the values under which they change nothing. */
int model_refuse_other_graphs(const struct model_reader *r)
{
    static const struct {
        const char *suffix;
        float neutral, also;
    } floats[] = {
        {"attn_logit_softcapping", 0, 0},
        {"final_logit_softcapping", 0, 0},
        {"logit_scale", 0, 1},
        {"embedding_scale", 0, 1},
        {"residual_scale", 0, 1},
        {"attention.clamp_kqv", 0, 0},
        {"attention.max_alibi_bias", 0, 0},
        {"rope.scaling.attn_factor", 1, 1},
        {"rope.scaling.yarn_ext_factor", 0, 0},
        {"rope.scaling.yarn_attn_factor", 1, 1},
        {"attention.temperature_scale", 0, 0},
    };
    static const struct {
        const char *suffix;
        uint32_t most;
    } ints[] = {
        {"expert_gating_func", 1}, /* 1: softmax */
        {"expert_group_count", 1},        {"expert_group_used_count", 1},
        {"leading_dense_block_count", 0}, {"moe_every_n_layers", 1},
        {"interleave_moe_layer_step", 1},
    };
    static const struct {
        const char *suffix;
        bool neutral;
    } flags[] = {
        {"attention.causal", true},
        {"use_parallel_residual", false},
        {"expert_weights_norm", true},
    };
    char key[MODEL_KEY_BYTES];
    uint32_t v;
    float f;
    bool b;
    int rc;

    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        rc = model_opt_f32(r, floats[i].suffix, &f);
        if (rc < 0)
            return rc;
        if (rc > 0 && f != floats[i].neutral && f != floats[i].also)
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED, "key \"%s\": %g is not supported",
                             model_key(r, floats[i].suffix, key), (double)f);
    }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        rc = model_opt_u32(r, ints[i].suffix, 0, UINT32_MAX, &v);
        if (rc < 0)
            return rc;
        if (rc > 0 && v > ints[i].most)
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                             "key \"%s\": %" PRIu32 " is not supported",
                             model_key(r, ints[i].suffix, key), v);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        rc = gguf_get_bool(r->g, model_key(r, flags[i].suffix, key), &b, r->e);
        if (rc < 0)
            return rc;
        if (rc > 0 && b != flags[i].neutral)
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED, "key \"%s\": %s is not supported", key,
                             b ? "true" : "false");
    }
    /* A window as wide as the context masks nothing. */
    rc = model_opt_u32(r, "attention.sliding_window", 0, UINT32_MAX, &v);
    if (rc > 0 && v > 0 && v < r->m->hp.n_context)
        return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                         "key \"%s\": a window of %" PRIu32 " tokens is not supported",
                         model_key(r, "attention.sliding_window", key), v);
    return rc < 0 ? rc : 0;
}
