/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/layout.h"

#include "engine/model.h"
#include "util/err.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t elem_bytes;
} kv_types[KV_N] = {
    [KV_F16] = {"f16", 2},
    [KV_BF16] = {"bf16", 2},
    [KV_F32] = {"f32", 4},
};

static int find_kv_type(const char *name, enum kv_type *ret)
{
    for (int i = 0; i < KV_N; i++)
        if (strcmp(name, kv_types[i].name) == 0) {
            *ret = (enum kv_type)i;
            return 0;
        }
    return ERR_UNSUPPORTED;
}

int layout_init(struct layout *l, const struct model *m, const char *kv_type, struct err_text *e)
{
    const struct hparams *hp = &m->hp;
    struct layout t = {0};
    uint64_t planes, bytes, floats;

    if (find_kv_type(kv_type ? kv_type : "f16", &t.kv_type) < 0)
        return err_set(e, ERR_UNSUPPORTED, "kv_type %s is not supported: expected f16, bf16 or f32",
                       kv_type);
    t.elem_bytes = kv_types[t.kv_type].elem_bytes;
    t.n_planes = m->n_attn + (hp->has_draft ? 1 : 0);
    t.n_head_kv = hp->n_head_kv;
    t.head_dim = hp->head_dim;
    t.head_bytes = (size_t)PAGE_TOKENS * hp->head_dim * t.elem_bytes;

    planes = (uint64_t)t.n_planes * 2 * hp->n_head_kv;
    if (__builtin_mul_overflow(planes, (uint64_t)t.head_bytes, &bytes) || bytes > (1u << 30))
        return err_set(e, ERR_UNSUPPORTED, "one page of %d tokens would take more than 1 GiB",
                       PAGE_TOKENS);
    t.unit_bytes = bytes;

    t.n_dn = m->n_dn;
    if (m->n_dn) {
        t.conv_floats = (hp->dn_conv - 1) * hp->dn_conv_dim;
        if (__builtin_mul_overflow(hp->dn_v_heads * hp->dn_dim, hp->dn_dim, &t.state_floats))
            return err_set(e, ERR_UNSUPPORTED, "the recurrent state of one layer is too large");
    }
    t.hidden_floats = hp->has_draft ? hp->n_embd : 0;
    floats = (uint64_t)t.n_dn * ((uint64_t)t.conv_floats + t.state_floats) + t.hidden_floats;
    t.checkpoint_bytes = floats * sizeof(float);
    /* A file with no attention layer at all has no page to measure by; no family we load is one. */
    if (t.unit_bytes == 0)
        return err_set(e, ERR_UNSUPPORTED, "a model without attention layers is not supported");
    if (t.checkpoint_bytes / t.unit_bytes > 65536)
        return err_set(e, ERR_UNSUPPORTED, "a checkpoint would take more than 65536 units");
    t.checkpoint_units = (uint32_t)((t.checkpoint_bytes + t.unit_bytes - 1) / t.unit_bytes);
    *l = t;
    return 0;
}

void layout_zero_tail(const struct layout *l, uint8_t *unit, uint32_t n_tokens)
{
    const size_t row = (size_t)l->head_dim * l->elem_bytes;

    /* K and V heads of all planes are alike: runs of 64 rows. */
    for (size_t i = 0; i < (size_t)l->n_planes * 2 * l->n_head_kv; i++)
        memset(unit + i * l->head_bytes + n_tokens * row, 0, (PAGE_TOKENS - n_tokens) * row);
}
