/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_special.h"

#include "engine/tok_bpe.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* By text, then by id. */
static int compare(const void *pa, const void *pb, void *arg)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    size_t n_a, n_b;
    const char *s_a = bpe_bytes(arg, a, &n_a), *s_b = bpe_bytes(arg, b, &n_b);
    int c = memcmp(s_a, s_b, n_a < n_b ? n_a : n_b);

    if (c)
        return c;
    if (n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return a < b ? -1 : a > b;
}

static bool same_text(const struct bpe *b, uint32_t i, uint32_t j)
{
    size_t n_i, n_j;
    const char *s_i = bpe_bytes(b, i, &n_i), *s_j = bpe_bytes(b, j, &n_j);

    return n_i == n_j && memcmp(s_i, s_j, n_i) == 0;
}

int special_set_init(struct special_set *s, const struct bpe *b, const uint8_t *kinds,
                     unsigned int kind_mask)
{
    uint32_t n = 0, n_unique = 0;
    size_t len;

    *s = (struct special_set){.bpe = b};
    for (uint32_t i = 0; i < b->n_vocab; i++)
        n += kind_mask >> kinds[i] & 1;
    if (n == 0)
        return 0;
    s->ids = malloc(n * sizeof(*s->ids));
    if (!s->ids)
        return -ENOMEM;
    n = 0;
    for (uint32_t i = 0; i < b->n_vocab; i++) {
        const char *text = bpe_bytes(b, i, &len);

        /* A text that is no UTF-8 could cut a character of the input in two. */
        if ((kind_mask >> kinds[i] & 1) && len && utf8_is_valid(text, len))
            s->ids[n++] = i;
    }
    qsort_r(s->ids, n, sizeof(*s->ids), compare, (void *)b);

    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || !same_text(b, s->ids[n_unique - 1], s->ids[i]))
            s->ids[n_unique++] = s->ids[i];
    s->n = n_unique;
    for (uint32_t i = 0, c = 0; c <= 256; c++) {
        while (i < s->n && (unsigned char)*bpe_bytes(b, s->ids[i], &len) < c)
            i++;
        s->first[c] = i;
    }
    return 0;
}

void special_set_done(struct special_set *s)
{
    free(s->ids);
    *s = (struct special_set){0};
}

size_t special_set_skip(const struct special_set *s, const char *text, size_t n)
{
    size_t i = 0;

    if (s->n == 0)
        return n;
    while (i < n && s->first[(unsigned char)text[i]] == s->first[(unsigned char)text[i] + 1])
        i++;
    return i;
}

/*
 * The first of ids[lo..hi) whose byte at `depth` is at least c.  All of them agree before `depth`
 * and are longer than it.
 */
static uint32_t lower_bound(const struct special_set *s, uint32_t lo, uint32_t hi, size_t depth,
                            unsigned int c)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        size_t len;

        if ((unsigned char)bpe_bytes(s->bpe, s->ids[mid], &len)[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t special_set_match(const struct special_set *s, const char *text, size_t n, size_t *ret_len)
{
    uint32_t lo, hi;
    int32_t found = -1;

    if (n == 0)
        return -1;
    lo = s->first[(unsigned char)text[0]];
    hi = s->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        unsigned int c;
        size_t len;

        /* A text that ends here sorts before those that go on. */
        (void)bpe_bytes(s->bpe, s->ids[lo], &len);
        if (len == depth) {
            found = (int32_t)s->ids[lo++];
            *ret_len = len;
        }
        if (depth == n)
            break;
        c = (unsigned char)text[depth];
        lo = lower_bound(s, lo, hi, depth, c);
        hi = lower_bound(s, lo, hi, depth, c + 1);
    }
    return found;
}

static const struct {
    const char *text;
    enum special_role role;
} names[] = {
    {"<|eot_id|>", ROLE_END},
    {"<|im_end|>", ROLE_END},
    {"<|end|>", ROLE_END},
    {"<|return|>", ROLE_END},
    {"<|call|>", ROLE_END},
    {"<|flush|>", ROLE_END},
    {"<|calls|>", ROLE_END},
    {"<end_of_turn>", ROLE_END},
    {"<|endoftext|>", ROLE_END},
    {"</s>", ROLE_END},
    {"<|eom_id|>", ROLE_END},
    {"<EOT>", ROLE_END},
    {"_<EOT>", ROLE_END},
    {"[EOT]", ROLE_END},
    {"[EOS]", ROLE_END},
    {"<|end_of_text|>", ROLE_END},
    {"<end_of_utterance>", ROLE_END},
    {"<｜end▁of▁sentence｜>", ROLE_END},
    {"<eos>", ROLE_END},
    {"<turn|>", ROLE_END},
    {"<|tool_response>", ROLE_END},
    {"[e~[", ROLE_END},
    {"<|fim_prefix|>", ROLE_FIM_PREFIX},
    {"<fim-prefix>", ROLE_FIM_PREFIX},
    {"<fim_prefix>", ROLE_FIM_PREFIX},
    {"<｜fim▁begin｜>", ROLE_FIM_PREFIX},
    {"<PRE>", ROLE_FIM_PREFIX},
    {"▁<PRE>", ROLE_FIM_PREFIX},
    {"<|code_prefix|>", ROLE_FIM_PREFIX},
    {"<|prefix|>", ROLE_FIM_PREFIX},
    {"<|fim_suffix|>", ROLE_FIM_SUFFIX},
    {"<fim-suffix>", ROLE_FIM_SUFFIX},
    {"<fim_suffix>", ROLE_FIM_SUFFIX},
    {"<｜fim▁hole｜>", ROLE_FIM_SUFFIX},
    {"<SUF>", ROLE_FIM_SUFFIX},
    {"▁<SUF>", ROLE_FIM_SUFFIX},
    {"<|code_suffix|>", ROLE_FIM_SUFFIX},
    {"<|suffix|>", ROLE_FIM_SUFFIX},
    {"<|fim_middle|>", ROLE_FIM_MIDDLE},
    {"<fim-middle>", ROLE_FIM_MIDDLE},
    {"<fim_middle>", ROLE_FIM_MIDDLE},
    {"<｜fim▁end｜>", ROLE_FIM_MIDDLE},
    {"<MID>", ROLE_FIM_MIDDLE},
    {"▁<MID>", ROLE_FIM_MIDDLE},
    {"<|code_middle|>", ROLE_FIM_MIDDLE},
    {"<|middle|>", ROLE_FIM_MIDDLE},
    {"<|fim_pad|>", ROLE_FIM_PAD},
    {"<fim-pad>", ROLE_FIM_PAD},
    {"<fim_pad>", ROLE_FIM_PAD},
    {"<PAD>", ROLE_FIM_PAD},
    {"[PAD]", ROLE_FIM_PAD},
    {"<|fim_repo|>", ROLE_FIM_REPO},
    {"<|repo_name|>", ROLE_FIM_REPO},
    {"<fim-repo>", ROLE_FIM_REPO},
    {"<REPO>", ROLE_FIM_REPO},
    {"<reponame>", ROLE_FIM_REPO},
    {"<|file_sep|>", ROLE_FIM_SEPARATOR},
    {"<|channel|>", ROLE_SHOWN},
    {"<|message|>", ROLE_SHOWN},
    {"<|start|>", ROLE_SHOWN},
    {"<|constrain|>", ROLE_SHOWN},
};

_Static_assert(sizeof(names) / sizeof(names[0]) == SPECIAL_N_NAMES, "callers keep an id for each");

const char *special_name(size_t i, enum special_role *ret_role)
{
    if (i >= SPECIAL_N_NAMES)
        return NULL;
    *ret_role = names[i].role;
    return names[i].text;
}

int special_name_find(const char *s, size_t n)
{
    /* "▁" begins with E2; nearly every token of a vocabulary is told apart here. */
    if (n < 4 || !strchr("<[_\xE2", *s))
        return -1;
    for (int i = 0; i < SPECIAL_N_NAMES; i++)
        if (strlen(names[i].text) == n && memcmp(names[i].text, s, n) == 0)
            return i;
    return -1;
}
