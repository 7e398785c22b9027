/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_pretok.h"

#include <string.h>

static const struct pretok_rule rules[] = {
    {"default", PRETOK_DEFAULT, false, false},

    {"gpt-2", PRETOK_GPT2, false, false},
    {"gpt2", PRETOK_GPT2, false, false},
    {"phi-2", PRETOK_GPT2, false, false},
    {"jina-es", PRETOK_GPT2, false, false},
    {"jina-de", PRETOK_GPT2, false, false},
    {"jina-v2-es", PRETOK_GPT2, false, false},
    {"jina-v2-de", PRETOK_GPT2, false, false},
    {"jina-v1-en", PRETOK_GPT2, false, false},
    {"jina-v2-code", PRETOK_GPT2, false, false},
    {"roberta-bpe", PRETOK_GPT2, false, false},
    {"gigachat", PRETOK_GPT2, false, false},
    {"a.x-4.0", PRETOK_GPT2, false, false},
    {"mellum", PRETOK_GPT2, false, false},
    {"modern-bert", PRETOK_GPT2, false, false},
    {"mpt", PRETOK_GPT2, false, false},
    {"olmo", PRETOK_GPT2, false, false},
    {"jais", PRETOK_GPT2, false, false},
    {"trillion", PRETOK_GPT2, false, false},
    {"granite-docling", PRETOK_GPT2, false, false},
    {"exaone4", PRETOK_GPT2, false, false},

    {"smollm", PRETOK_SMOLLM, false, false},
    {"starcoder", PRETOK_SMOLLM, false, false},
    {"refact", PRETOK_SMOLLM, false, false},
    {"command-r", PRETOK_SMOLLM, false, false},
    {"codeshell", PRETOK_SMOLLM, false, false},
    {"exaone", PRETOK_SMOLLM, false, false},
    {"minerva-7b", PRETOK_SMOLLM, false, false},

    {"llama-bpe", PRETOK_LLAMA3, true, true},
    {"llama3", PRETOK_LLAMA3, true, true},
    {"llama-v3", PRETOK_LLAMA3, true, true},
    {"falcon3", PRETOK_LLAMA3, true, true},
    {"falcon-h1", PRETOK_LLAMA3, true, true},
    {"pixtral", PRETOK_LLAMA3, true, true},
    {"midm-2.0", PRETOK_LLAMA3, true, true},
    {"lfm2", PRETOK_LLAMA3, true, true},
    {"jina-v5-nano", PRETOK_LLAMA3, true, true},
    {"dbrx", PRETOK_LLAMA3, false, false},
    {"smaug-bpe", PRETOK_LLAMA3, false, false},
    {"glm4", PRETOK_LLAMA3, false, false},
    {"chatglm-bpe", PRETOK_LLAMA3, false, false},

    {"qwen2", PRETOK_QWEN2, false, false},
    {"deepseek-r1-qwen", PRETOK_QWEN2, false, false},
    {"kormo", PRETOK_QWEN2, false, false},
    {"f2llmv2", PRETOK_QWEN2, false, false},
    {"megrez", PRETOK_QWEN2, false, false},
    {"stablelm2", PRETOK_QWEN2, false, false},
    {"hunyuan", PRETOK_QWEN2, false, false},
    {"solar-open", PRETOK_QWEN2, false, false},
    {"grok-2", PRETOK_QWEN2, false, false},
    /* Written differently, the same cuts. */
    {"bailingmoe", PRETOK_QWEN2, false, false},
    {"bailingmoe2", PRETOK_QWEN2, false, false},
    {"llada-moe", PRETOK_QWEN2, false, false},

    {"qwen35", PRETOK_QWEN35, false, false},

    {"seed-coder", PRETOK_SEED_CODER, false, false},

    {"falcon", PRETOK_FALCON, false, false},

    {"deepseek-coder", PRETOK_DEEPSEEK_CODER, false, false},

    {"deepseek-llm", PRETOK_DEEPSEEK_LLM, false, false},

    {"deepseek-v3", PRETOK_DEEPSEEK_V3, false, false},
    {"hunyuan-dense", PRETOK_DEEPSEEK_V3, false, false},
    {"joyai-llm", PRETOK_DEEPSEEK_V3, false, false},

    {"tekken", PRETOK_TEKKEN, true, true},

    {"gpt-4o", PRETOK_GPT4O, false, false},
    {"llama4", PRETOK_GPT4O, false, false},
    {"kanana2", PRETOK_GPT4O, false, false},
    {"minimax-m2", PRETOK_GPT4O, false, false},

    {"tiny_aya", PRETOK_TINY_AYA, false, false},

    {"poro-chat", PRETOK_PORO, false, false},
    {"bloom", PRETOK_PORO, false, false},
    {"gpt3-finnish", PRETOK_PORO, false, false},

    {"viking", PRETOK_VIKING, false, false},

    {"superbpe", PRETOK_SUPERBPE, false, false},
};

static scan_fn *const lists[PRETOK_N][PRETOK_MAX_SCANS + 1] = {
    [PRETOK_GPT2] = {scan_gpt2},
    [PRETOK_DEFAULT] = {scan_default_marks, scan_gpt2, scan_numbers, scan_three_digits},
    [PRETOK_SMOLLM] = {scan_each_number, scan_gpt2},
    [PRETOK_LLAMA3] = {scan_llama3},
    [PRETOK_QWEN2] = {scan_qwen2},
    [PRETOK_QWEN35] = {scan_qwen35},
    [PRETOK_SEED_CODER] = {scan_seed_coder},
    [PRETOK_FALCON] = {scan_falcon_marks, scan_gpt2, scan_three_digits},
    [PRETOK_DEEPSEEK_CODER] = {scan_each_newline, scan_spaced_letters, scan_spaced_marks,
                               scan_asian, scan_each_number},
    [PRETOK_DEEPSEEK_LLM] = {scan_each_newline, scan_spaced_cased, scan_spaced_ascii,
                             scan_last_spaces, scan_asian, scan_numbers},
    [PRETOK_DEEPSEEK_V3] = {scan_numbers_by_three, scan_han_kana, scan_deepseek_v3},
    [PRETOK_TEKKEN] = {scan_tekken},
    [PRETOK_GPT4O] = {scan_gpt4o},
    [PRETOK_TINY_AYA] = {scan_tiny_aya, scan_gpt4o},
    [PRETOK_PORO] = {scan_poro},
    [PRETOK_VIKING] = {scan_poro, scan_each_number},
    [PRETOK_SUPERBPE] = {scan_numbers, scan_superbpe},
};

const struct pretok_rule *pretok_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strlen(rules[i].name) == n && memcmp(rules[i].name, name, n) == 0)
            return &rules[i];
    return NULL;
}

void pretok_init(struct pretok_scan *p, enum pretok_kind kind, const char *s, size_t n)
{
    *p = (struct pretok_scan){.scans = lists[kind], .text = {.s = s, .n = n}};
}

size_t pretok_next(struct pretok_scan *p)
{
    size_t end = p->text.n;

    for (size_t k = 0; p->scans[k]; k++) {
        if (p->ends[k] <= p->pos)
            p->ends[k] = p->scans[k](&p->text, end, p->pos);
        end = p->ends[k];
    }
    return p->pos = end;
}
