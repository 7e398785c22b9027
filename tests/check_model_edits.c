/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of changes to good models.  Each must be refused with the right words, or, where it says
 * nothing that matters, accepted.
 */
#include "engine/model.h"

#include "tests/hostile.h"
#include "tests/mkmodel.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One change to a good model. */
enum change { DROP, U32, I32, F32, STR, BOOL, ARRAY, DROP_TENSOR, DIM, TYPE, ADD_TENSOR };

struct edit {
    const char *family;
    enum change change;
    const char *name;
    double value;     /* of a key, a type, or a length */
    unsigned int dim; /* whose length; or the array's length */
    const char *text; /* STR */
    int code;         /* 0: still accepted */
    const char *words;
};

#define L "llama"
#define Q "qwen35"
#define X "qwen35moe"
#define M "qwen3moe"
#define N "qwen3next"
static const struct edit edits[] = {
    /* What kind of file. */
    {L, DROP, "general.architecture", .code = ERR_DAMAGED,
     .words = "key \"general.architecture\" is missing"},
    {L, STR, "general.architecture", .text = "gem\nma3", .code = ERR_UNSUPPORTED,
     .words = "architecture \"gem\\x0ama3\" is not supported; llama, qwen2, qwen3, qwen3moe, "
              "qwen3next, qwen35 and qwen35moe are"},
    {L, STR, "general.architecture", .text = "qwen2vl", .code = ERR_UNSUPPORTED,
     .words = "\"qwen2vl\" is not supported"},
    {L, STR, "general.architecture", .text = "qwen", .code = ERR_UNSUPPORTED,
     .words = "\"qwen\" is not supported"},
    {L, STR, "general.architecture", .text = "", .code = ERR_UNSUPPORTED,
     .words = "architecture \"\" is not supported"},
    {L, U32, "general.architecture", .value = 1, .code = ERR_DAMAGED, .words = "expected a string"},
    {L, STR, "general.type", .text = "adapter", .code = ERR_UNSUPPORTED,
     .words = "general.type is \"adapter\", expected \"model\""},
    {L, DROP, "general.type", .code = 0},
    {L, U32, "split.count", .value = 1},
    {L, U32, "split.count", .value = 3, .code = ERR_UNSUPPORTED,
     .words = "one part of a model split into 3 files"},
    {L, U32, "general.quantization_version", .value = 1, .code = ERR_UNSUPPORTED,
     .words = "quantization_version\": found 1, expected 2"},

    /* Sizes. */
    {L, DROP, "llama.block_count", .code = ERR_DAMAGED,
     .words = "key \"llama.block_count\" is missing"},
    {L, U32, "llama.block_count", .value = 0, .code = ERR_DAMAGED,
     .words = "found 0, expected 1 to 1024"},
    {L, U32, "llama.block_count", .value = 1025, .code = ERR_DAMAGED,
     .words = "found 1025, expected 1 to 1024"},
    {L, U32, "llama.block_count", .value = 3, .code = ERR_DAMAGED,
     .words = "tensor \"blk.2.attn_norm.weight\" is missing"},
    {L, I32, "llama.block_count", .value = -1, .code = ERR_DAMAGED,
     .words = "found -1, expected 1 to"},
    {L, I32, "llama.block_count", .value = 2},
    {L, F32, "llama.block_count", .value = 2, .code = ERR_DAMAGED,
     .words = "found f32, expected an integer"},
    {L, DROP, "llama.embedding_length", .code = ERR_DAMAGED, .words = "is missing"},
    {L, U32, "llama.embedding_length", .value = 131073, .code = ERR_DAMAGED,
     .words = "expected 1 to 131072"},
    {L, U32, "llama.embedding_length", .value = 96, .code = ERR_DAMAGED,
     .words = "tensor \"token_embd.weight\": shape [64, 320], expected [96, 320]"},
    {L, DROP, "llama.context_length", .code = ERR_DAMAGED, .words = "is missing"},
    {L, U32, "llama.context_length", .value = 16777217, .code = ERR_DAMAGED,
     .words = "expected 1 to 16777216"},
    {L, U32, "llama.context_length", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 16777216"},
    {L, DROP, "tokenizer.ggml.tokens", .code = ERR_DAMAGED,
     .words = "key \"tokenizer.ggml.tokens\" is missing"},
    {L, STR, "tokenizer.ggml.tokens", .text = "a", .code = ERR_DAMAGED,
     .words = "found string, expected an array"},
    {L, ARRAY, "tokenizer.ggml.tokens", .value = 3, .dim = 320, .code = ERR_DAMAGED,
     .words = "expected 1 to 2097152 strings"},
    {L, DIM, "token_embd.weight", .value = 319, .dim = 1, .code = ERR_DAMAGED,
     .words = "tensor \"token_embd.weight\": shape [64, 319], expected [64, 320]"},

    /* Attention. */
    {L, DROP, "llama.attention.head_count", .code = ERR_DAMAGED, .words = "is missing"},
    {L, U32, "llama.attention.head_count", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 1024"},
    {L, U32, "llama.attention.head_count", .value = 1025, .code = ERR_DAMAGED,
     .words = "expected 1 to 1024"},
    {L, U32, "llama.attention.head_count", .value = 8, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_q.weight\": shape [64, 64], expected [64, 128]"},
    {L, ARRAY, "llama.attention.head_count", .value = 4, .dim = 2},
    {L, ARRAY, "llama.attention.head_count", .value = 4, .dim = 9},
    {L, ARRAY, "llama.attention.head_count", .value = 4, .dim = 1, .code = ERR_DAMAGED,
     .words = "1 entries, expected one for each of 2 layers"},
    {L, U32, "llama.attention.head_count_kv", .value = 3, .code = ERR_DAMAGED,
     .words = "key \"llama.attention.head_count_kv\": 3 does not divide the 4 heads"},
    {L, U32, "llama.attention.head_count_kv", .value = 8, .code = ERR_DAMAGED,
     .words = "does not divide"},
    {L, DROP, "llama.attention.head_count_kv", .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_k.weight\": shape [64, 32], expected [64, 64]"},
    {L, DROP, "llama.attention.key_length", .code = 0},
    {L, U32, "llama.attention.key_length", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 4096"},
    {L, U32, "llama.attention.value_length", .value = 32, .code = ERR_UNSUPPORTED,
     .words = "value heads of 32 beside key heads of 16 are not supported"},
    {L, DROP, "llama.attention.value_length", .code = 0},
    {L, DROP, "llama.attention.layer_norm_rms_epsilon", .code = ERR_DAMAGED, .words = "is missing"},
    {L, F32, "llama.attention.layer_norm_rms_epsilon", .value = 0, .code = ERR_DAMAGED,
     .words = "expected between 0 and 1"},
    {L, F32, "llama.attention.layer_norm_rms_epsilon", .value = 1, .code = ERR_DAMAGED,
     .words = "expected between 0 and 1"},
    {L, F32, "llama.attention.scale", .value = -1, .code = ERR_DAMAGED,
     .words = "expected more than 0"},
    {L, F32, "llama.attention.scale", .value = 0.5},

    /* Rotation. */
    {L, U32, "llama.rope.dimension_count", .value = 8, .code = ERR_DAMAGED,
     .words = "found 8, expected an even number equal to the head's 16"},
    {"qwen3", U32, "qwen3.rope.dimension_count", .value = 8},
    {"qwen3", U32, "qwen3.rope.dimension_count", .value = 7, .code = ERR_DAMAGED,
     .words = "found 7, expected an even number up to the head's 16"},
    {"qwen3", U32, "qwen3.rope.dimension_count", .value = 18, .code = ERR_DAMAGED,
     .words = "up to the head's 16"},
    {"qwen3", U32, "qwen3.rope.dimension_count", .value = 0, .code = ERR_DAMAGED,
     .words = "found 0"},
    {L, DROP, "llama.rope.dimension_count", .code = 0},
    {L, DROP, "llama.rope.freq_base", .code = 0},
    {L, F32, "llama.rope.freq_base", .value = 0, .code = ERR_DAMAGED,
     .words = "expected more than 0"},
    {L, F32, "llama.rope.freq_base", .value = INFINITY, .code = ERR_DAMAGED,
     .words = "expected a finite f32"},
    {L, STR, "llama.rope.scaling.type", .text = "none"},
    {L, STR, "llama.rope.scaling.type", .text = "linear"},
    {L, STR, "llama.rope.scaling.type", .text = "yarn", .code = ERR_UNSUPPORTED,
     .words = "key \"llama.rope.scaling.type\": \"yarn\" is not supported; none and linear are"},
    {L, STR, "llama.rope.scaling.type", .text = "longrope", .code = ERR_UNSUPPORTED,
     .words = "\"longrope\" is not"},
    {L, F32, "llama.rope.scaling.factor", .value = 0},
    {L, F32, "llama.rope.scaling.factor", .value = 4},
    {L, F32, "llama.rope.scaling.factor", .value = -4, .code = ERR_DAMAGED,
     .words = "expected more than 0"},
    {L, F32, "llama.rope.scaling.factor", .value = 1e-45, .code = ERR_DAMAGED,
     .words = "expected more than 0"},
    {L, F32, "llama.rope.scaling.attn_factor", .value = 1.5, .code = ERR_UNSUPPORTED,
     .words = "1.5 is not supported"},
    {Q, ARRAY, "qwen35.rope.dimension_sections", .value = 1, .dim = 4, .code = ERR_UNSUPPORTED,
     .words = "pair 3 rotates by the fourth stream"},
    {Q, ARRAY, "qwen35.rope.dimension_sections", .value = 0, .dim = 4, .code = ERR_DAMAGED,
     .words = "not all zero"},
    {Q, ARRAY, "qwen35.rope.dimension_sections", .value = 2, .dim = 3},
    {Q, ARRAY, "qwen35.rope.dimension_sections", .value = 2, .dim = 5, .code = ERR_DAMAGED,
     .words = "expected 3 or 4"},
    {Q, DROP, "qwen35.rope.dimension_sections", .code = 0},

    /* Other graphs. */
    {L, F32, "llama.final_logit_softcapping", .value = 30, .code = ERR_UNSUPPORTED,
     .words = "key \"llama.final_logit_softcapping\": 30 is not supported"},
    {L, F32, "llama.final_logit_softcapping", .value = 0},
    {L, F32, "llama.logit_scale", .value = 0.5, .code = ERR_UNSUPPORTED,
     .words = "0.5 is not supported"},
    {L, F32, "llama.logit_scale", .value = 1},
    {L, BOOL, "llama.attention.causal", .value = 0, .code = ERR_UNSUPPORTED,
     .words = "false is not supported"},
    {L, BOOL, "llama.attention.causal", .value = 1},
    {L, U32, "llama.attention.sliding_window", .value = 512, .code = ERR_UNSUPPORTED,
     .words = "a window of 512 tokens is not supported"},
    {L, U32, "llama.attention.sliding_window", .value = 2048},
    {L, U32, "llama.expert_count", .value = 8, .code = ERR_UNSUPPORTED,
     .words = "a mixture of 8 experts is not supported in llama"},
    {L, U32, "llama.expert_count", .value = 0},
    {X, U32, "qwen35moe.expert_gating_func", .value = 2, .code = ERR_UNSUPPORTED,
     .words = "2 is not supported"},
    {X, U32, "qwen35moe.expert_group_count", .value = 8, .code = ERR_UNSUPPORTED,
     .words = "8 is not supported"},
    {X, BOOL, "qwen35moe.expert_weights_norm", .value = 0, .code = ERR_UNSUPPORTED,
     .words = "false is not supported"},

    /* Feed-forward. */
    {L, DROP, "llama.feed_forward_length", .code = ERR_DAMAGED, .words = "is missing"},
    {L, ARRAY, "llama.feed_forward_length", .value = 96, .dim = 2},
    {L, U32, "llama.feed_forward_length", .value = 95, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.ffn_gate.weight\": shape [64, 96], expected [64, 95]"},
    {X, DROP, "qwen35moe.expert_count", .code = ERR_DAMAGED, .words = "is missing"},
    {X, U32, "qwen35moe.expert_count", .value = 4097, .code = ERR_DAMAGED,
     .words = "expected 1 to 4096"},
    {X, U32, "qwen35moe.expert_used_count", .value = 5, .code = ERR_DAMAGED,
     .words = "found 5, expected 1 to 4"},
    {X, U32, "qwen35moe.expert_used_count", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 4"},
    {X, DROP, "qwen35moe.expert_feed_forward_length", .code = ERR_DAMAGED,
     .words = "key \"qwen35moe.expert_feed_forward_length\" is missing"},
    {X, F32, "qwen35moe.expert_weights_scale", .value = 2.5},

    /* DeltaNet. */
    {Q, DROP, "qwen35.full_attention_interval", .code = 0},
    {Q, U32, "qwen35.full_attention_interval", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 1024"},
    {Q, U32, "qwen35.full_attention_interval", .value = 5, .code = ERR_UNSUPPORTED,
     .words = "none of 4 layers has full attention"},
    {Q, U32, "qwen35.full_attention_interval", .value = 2, .code = ERR_DAMAGED,
     .words = "tensor \"blk.1.attn_q.weight\" is missing"},
    {Q, ARRAY, "qwen35.attention.recurrent_layers", .value = 1, .dim = 4, .code = ERR_UNSUPPORTED,
     .words = "none of 4 layers has full attention"},
    {Q, ARRAY, "qwen35.attention.recurrent_layers", .value = 0, .dim = 4, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_q.weight\" is missing"},
    {Q, ARRAY, "qwen35.attention.recurrent_layers", .value = 2, .dim = 4, .code = ERR_DAMAGED,
     .words = "entry 0 is not a flag"},
    {Q, ARRAY, "qwen35.attention.recurrent_layers", .value = 1, .dim = 3, .code = ERR_DAMAGED,
     .words = "3 entries, expected one for each of 4 layers"},
    {Q, DROP, "qwen35.ssm.conv_kernel", .code = ERR_DAMAGED, .words = "is missing"},
    {Q, U32, "qwen35.ssm.conv_kernel", .value = 9, .code = ERR_DAMAGED,
     .words = "found 9, expected 2 to 8"},
    {Q, U32, "qwen35.ssm.conv_kernel", .value = 1, .code = ERR_DAMAGED,
     .words = "found 1, expected 2 to 8"},
    {Q, U32, "qwen35.ssm.conv_kernel", .value = 3, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.ssm_conv1d.weight\": shape [4, 128], expected [3, 128]"},
    {Q, U32, "qwen35.ssm.group_count", .value = 3, .code = ERR_DAMAGED,
     .words = "found 4, expected a multiple of the 3 key heads"},
    {Q, U32, "qwen35.ssm.time_step_rank", .value = 0, .code = ERR_DAMAGED,
     .words = "expected 1 to 1024"},
    {Q, U32, "qwen35.ssm.inner_size", .value = 65, .code = ERR_DAMAGED,
     .words = "found 65, expected a multiple of the 4 value heads"},
    {Q, U32, "qwen35.ssm.inner_size", .value = 128, .code = ERR_UNSUPPORTED,
     .words = "value heads of 32 beside key heads of 16"},
    {Q, U32, "qwen35.nextn_predict_layers", .value = 1, .code = ERR_UNSUPPORTED,
     .words = "none of 3 layers has full attention"},
    {Q, U32, "qwen35.nextn_predict_layers", .value = 0},
    {Q, U32, "qwen35.nextn_predict_layers", .value = 2, .code = ERR_UNSUPPORTED,
     .words = "key \"qwen35.nextn_predict_layers\": 2 draft blocks are not supported"},
    {L, U32, "llama.nextn_predict_layers", .value = 1, .code = ERR_UNSUPPORTED,
     .words = "1 draft blocks are not supported in llama"},

    /* Tensors. */
    {L, DROP_TENSOR, "token_embd.weight", .code = ERR_DAMAGED,
     .words = "\"token_embd.weight\" is missing"},
    {L, DROP_TENSOR, "output_norm.weight", .code = ERR_DAMAGED, .words = "is missing"},
    {L, DROP_TENSOR, "blk.1.ffn_down.weight", .code = ERR_DAMAGED,
     .words = "\"blk.1.ffn_down.weight\" is missing"},
    {Q, DROP_TENSOR, "blk.2.ssm_a", .code = ERR_DAMAGED,
     .words = "tensor \"blk.2.ssm_a\" is missing"},
    {"qwen3", DROP_TENSOR, "blk.0.attn_k_norm.weight", .code = ERR_DAMAGED, .words = "is missing"},
    {"qwen2", DROP_TENSOR, "blk.0.attn_k.bias", .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_k.bias\" is missing"},
    {M, DROP_TENSOR, "blk.1.ffn_gate_inp.weight", .code = ERR_DAMAGED, .words = "is missing"},
    {M, U32, "qwen3moe.expert_shared_feed_forward_length", .value = 8, .code = ERR_DAMAGED,
     .words = "key \"qwen3moe.expert_shared_feed_forward_length\": found 8, expected 0"},
    {N, DROP_TENSOR, "blk.0.ssm_ba.weight", .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.ssm_ba.weight\" is missing"},
    {N, DROP_TENSOR, "blk.0.attn_gate.weight", .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_gate.weight\" is missing"},
    {N, DIM, "blk.0.ssm_ba.weight", .value = 4, .dim = 1, .code = ERR_DAMAGED,
     .words = "shape [64, 4], expected [64, 8]"},
    {N, ADD_TENSOR, "blk.0.ssm_in.weight", .value = TENSOR_F32, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.ssm_in.weight\": shape [32], expected [64, 192]"},
    {X, DROP_TENSOR, "blk.0.ffn_up_shexp.weight", .code = ERR_DAMAGED, .words = "is missing"},
    {L, DIM, "blk.0.attn_norm.weight", .value = 63, .dim = 0, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.attn_norm.weight\": shape [63], expected [64]"},
    {X, DIM, "blk.0.ffn_up_exps.weight", .value = 3, .dim = 2, .code = ERR_DAMAGED,
     .words = "shape [64, 32, 3], expected [64, 32, 4]"},
    {L, TYPE, "blk.1.attn_output.weight", .value = 9, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.1.attn_output.weight\": weights of type Q8_1 are not supported"},
    {L, TYPE, "blk.1.attn_output.weight", .value = TENSOR_Q4_0},
    {L, TYPE, "token_embd.weight", .value = 24, .code = ERR_UNSUPPORTED,
     .words = "weights of type I8 are not"},
    {L, TYPE, "blk.1.attn_output.weight", .value = TENSOR_F16},
    {L, TYPE, "blk.0.attn_norm.weight", .value = TENSOR_F16, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.0.attn_norm.weight\": type F16, expected F32"},
    {Q, TYPE, "blk.0.ssm_conv1d.weight", .value = TENSOR_F16, .code = ERR_UNSUPPORTED,
     .words = "type F16, expected F32"},
    {Q, TYPE, "blk.0.ssm_a", .value = TENSOR_BF16, .code = ERR_UNSUPPORTED,
     .words = "type BF16, expected F32"},
    {X, TYPE, "blk.0.ffn_gate_inp_shexp.weight", .value = TENSOR_F16, .code = ERR_UNSUPPORTED,
     .words = "expected F32"},
    {X, TYPE, "blk.0.ffn_gate_inp.weight", .value = TENSOR_F16},
    {L, ADD_TENSOR, "v.patch_embd.weight", .value = TENSOR_Q4_0},
    {L, ADD_TENSOR, "blk.1.ffn_gate.bias", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.1.ffn_gate.bias\" is not supported"},
    /* Nothing in a layer goes unread: it would be another model's layer. */
    {L, ADD_TENSOR, "blk.1.attn_q_norm.weight", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.1.attn_q_norm.weight\" is not supported"},
    {L, ADD_TENSOR, "blk.0.made_up.weight", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.0.made_up.weight\" is not supported"},
    {M, ADD_TENSOR, "blk.0.ffn_up_shexp.weight", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "tensor \"blk.0.ffn_up_shexp.weight\" is not supported"},
    {L, ADD_TENSOR, "blk.0.attn_rot_embd.weight", .value = TENSOR_F32},
    {L, ADD_TENSOR, "blk.99.attn_q_norm.weight", .value = TENSOR_F32},
    {L, ADD_TENSOR, "output.bias", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "\"output.bias\" is not"},
    {L, ADD_TENSOR, "rope_factors_long.weight", .value = TENSOR_F32, .code = ERR_UNSUPPORTED,
     .words = "is not supported"},
    {L, ADD_TENSOR, "rope_freqs.weight", .value = TENSOR_F32, .code = ERR_DAMAGED,
     .words = "tensor \"rope_freqs.weight\": shape [32], expected [8]"},
    {X, ADD_TENSOR, "blk.0.ffn_gate_up_exps.weight", .value = TENSOR_F32, .code = ERR_DAMAGED,
     .words = "tensor \"blk.0.ffn_gate_up_exps.weight\": shape [32], expected [64, 64, 4]"},
};
#undef L
#undef Q
#undef X
#undef M
#undef N

static void apply(struct ggufw *w, const struct edit *c)
{
    const uint64_t len = 32;
    uint32_t array[512];
    struct ggufw_tensor *t = NULL;

    if (c->change == DIM || c->change == TYPE) {
        t = ggufw_find(w, c->name);
        ck_assert_msg(t != NULL, "no tensor %s", c->name);
    }
    switch (c->change) {
    case DROP:
        ggufw_drop(w, c->name);
        break;
    case U32:
        ggufw_u32(w, c->name, (uint32_t)c->value);
        break;
    case I32:
        ggufw_i32(w, c->name, (int32_t)c->value);
        break;
    case F32:
        ggufw_f32(w, c->name, (float)c->value);
        break;
    case STR:
        ggufw_str(w, c->name, c->text);
        break;
    case BOOL:
        ggufw_bool(w, c->name, c->value > 0);
        break;
    case ARRAY:
        ck_assert_uint_le(c->dim, 512);
        for (unsigned int i = 0; i < c->dim; i++)
            array[i] = (uint32_t)c->value;
        ggufw_array(w, c->name, GGUFW_U32, c->dim, array, c->dim * sizeof *array);
        break;
    case DROP_TENSOR:
        ggufw_drop_tensor(w, c->name);
        break;
    case DIM:
        t->dims[c->dim] = (uint64_t)c->value;
        break;
    case TYPE:
        t->type = (uint32_t)c->value;
        break;
    case ADD_TENSOR:
        (void)ggufw_tensor(w, c->name, (uint32_t)c->value, 1, &len, NULL, 128);
        break;
    }
}

START_TEST(a_changed_model_is_refused_by_the_name_of_what_is_wrong)
{
    const struct edit *c = &edits[_i];
    const struct mkmodel o = {.family = c->family};
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(model_freep) struct model *m = NULL;
    struct err_text e = {{0}};
    int r;

    mkmodel_build(&o, &w);
    apply(&w, c);
    r = hostile_open_model(&w, &b, &m, &e);
    ck_assert_msg(r == c->code, "%s %s: %d \"%s\", expected %d", c->family, c->name, r, e.s,
                  c->code);
    if (c->code < 0)
        ck_assert_msg(strstr(e.s, c->words) && strncmp(e.s, "file: ", 6) == 0,
                      "\"%s\" is not in \"%s\"", c->words, e.s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model_edits");
    TCase *t = tcase_create("model_edits");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, a_changed_model_is_refused_by_the_name_of_what_is_wrong, 0,
                        (int)(sizeof edits / sizeof *edits));
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
