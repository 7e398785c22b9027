/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of one architecture: the getters of gguf.h with its prefix, and per-layer numbers. */
#include "engine/model_internal.h"

#include "util/err.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

const char *model_key(const struct model_reader *r, const char *suffix, char out[MODEL_KEY_BYTES])
{
    (void)snprintf(out, MODEL_KEY_BYTES, "%s.%s", r->m->hp.arch, suffix);
    return out;
}

int model_opt_u32(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                  uint32_t *ret)
{
    char key[MODEL_KEY_BYTES];
    uint64_t v;
    int rc = gguf_get_u64(r->g, model_key(r, suffix, key), min, max, &v, r->e);

    if (rc > 0)
        *ret = (uint32_t)v;
    return rc;
}

int model_key_missing(const struct model_reader *r, const char *suffix)
{
    char key[MODEL_KEY_BYTES];

    return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\" is missing", model_key(r, suffix, key));
}

int model_need_u32(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                   uint32_t *ret)
{
    int rc = model_opt_u32(r, suffix, min, max, ret);

    return rc == 0 ? model_key_missing(r, suffix) : rc;
}

int model_opt_f32(const struct model_reader *r, const char *suffix, float *ret)
{
    char key[MODEL_KEY_BYTES];

    return gguf_get_f32(r->g, model_key(r, suffix, key), ret, r->e);
}

/* Is entry i of a per-layer array read, given that only attention layers matter? */
static bool entry_counts(const struct model *m, uint64_t i, bool attention_only)
{
    if (i < m->hp.n_layer)
        return !attention_only || m->layers[i].kind == LAYER_ATTENTION;
    return i == m->hp.n_layer && m->hp.has_draft;
}

int model_opt_uniform(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                      bool attention_only, uint32_t *ret)
{
    char key[MODEL_KEY_BYTES];
    struct gguf_array a;
    struct err_text ignored;
    int64_t first = -1, v;

    if (gguf_get_array(r->g, model_key(r, suffix, key), &a, &ignored) <= 0)
        return model_opt_u32(r, suffix, min, max, ret);
    if (a.n < r->m->hp.n_layer)
        return gguf_fail(r->g, r->e, ERR_DAMAGED,
                         "key \"%s\": %" PRIu64 " entries, expected one for each of %" PRIu32
                         " layers",
                         key, a.n, r->m->hp.n_layer);
    for (uint64_t i = 0; i < a.n && i <= r->m->hp.n_layer; i++) {
        if (!entry_counts(r->m, i, attention_only))
            continue;
        if (!gguf_array_i64(&a, i, &v))
            return gguf_fail(r->g, r->e, ERR_DAMAGED, "key \"%s\": expected integers", key);
        if (v < (int64_t)min || v > (int64_t)max)
            return gguf_fail(r->g, r->e, ERR_DAMAGED,
                             "key \"%s\": entry %" PRIu64 " is %" PRId64 ", expected %" PRIu32
                             " to %" PRIu32,
                             key, i, v, min, max);
        if (first >= 0 && v != first)
            return gguf_fail(r->g, r->e, ERR_UNSUPPORTED,
                             "key \"%s\": entry %" PRIu64 " is %" PRId64
                             " where others are %" PRId64
                             "; layers of different widths are not supported",
                             key, i, v, first);
        first = v;
    }
    if (first < 0)
        return 0;
    *ret = (uint32_t)first;
    return 1;
}

int model_need_uniform(const struct model_reader *r, const char *suffix, uint32_t min, uint32_t max,
                       bool attention_only, uint32_t *ret)
{
    int rc = model_opt_uniform(r, suffix, min, max, attention_only, ret);

    return rc == 0 ? model_key_missing(r, suffix) : rc;
}
