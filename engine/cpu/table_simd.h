/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of one vector version.  Included last by its .c file, which defines SIMD_NAME and
 * SIMD_TABLE.
 */
#ifndef ENGINE_CPU_TABLE_SIMD_H
#define ENGINE_CPU_TABLE_SIMD_H

#include "engine/cpu/attention_simd.h"
#include "engine/cpu/delta_simd.h"
#include "engine/cpu/matmul_simd.h"
#include "engine/cpu/quant_simd.h"
#include "engine/cpu/rows_simd.h"

static size_t simd_matmul_scratch(uint32_t k)
{
    size_t f = float_panel_bytes(k), q = packed_scratch(k);

    return ((f > q ? f : q) + 63) & ~(size_t)63;
}

static void simd_matmul(const struct matmul *m, uint32_t r0, uint32_t r1, void *scratch)
{
    if (quant_is(m->type))
        matmul_quant(m, r0, r1, scratch);
    else
        matmul_float(m, r0, r1, scratch);
}

const struct kernels SIMD_TABLE = {
    .name = SIMD_NAME,
    .matmul_scratch = simd_matmul_scratch,
    .matmul = simd_matmul,
    .quantize_q8 = simd_quantize_q8,
    .to_float = simd_to_float,
    .rmsnorm = simd_rmsnorm,
    .add = simd_add,
    .axpy = simd_axpy,
    .scale = simd_scale,
    .silu_mul = simd_silu_mul,
    .sigmoid_mul = simd_sigmoid_mul,
    .softmax = simd_softmax,
    .rope = simd_rope,
    .kv_store = simd_kv_store,
    .attention_scratch = simd_attention_scratch,
    .attention = simd_attention,
    .attention_split = simd_attention_split,
    .attention_fold = simd_attention_fold,
    .conv_silu = simd_conv_silu,
    .delta_rows = simd_delta_rows,
    .all_finite = simd_all_finite,
};

#endif
