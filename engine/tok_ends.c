/* SPDX-License-Identifier: Apache-2.0 */
/* Where texts begin and generations end: by keys of the file, and by how tokens are spelt. */
#include "engine/gguf.h"
#include "engine/tok_internal.h"
#include "util/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The id at `tokenizer.ggml.<key>_token_id`: 1 when the key is there, with -1 for an id that no
 * token has. */
static int special_id(const struct gguf *g, const struct tokenizer *t, const char *key,
                      int32_t *ret)
{
    char full[64];
    uint64_t v;
    int r;

    (void)snprintf(full, sizeof(full), "tokenizer.ggml.%s_token_id", key);
    r = gguf_get_u64(g, full, 0, t->bpe.n_vocab - 1, &v, NULL);
    if (r == 0)
        return 0;
    *ret = r < 0 ? -1 : (int32_t)v;
    return 1;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return x < y ? -1 : x > y;
}

/* The first token whose spelling has this role, or -1. */
static int32_t named_role(const struct tok_named *named, enum special_role role)
{
    enum special_role r;

    for (size_t i = 0; special_name(i, &r); i++)
        if (r == role && named->ids[i] >= 0)
            return named->ids[i];
    return -1;
}

static bool has_name(const struct tok_named *named, const char *text)
{
    int i = special_name_find(text, strlen(text));

    return i >= 0 && named->ids[i] >= 0;
}

/* Ends of generation, and kinds corrected by spelling. */
int tok_load_ends(const struct gguf *g, struct tokenizer *t, const struct tok_named *named,
                  struct err_text *e)
{
    static const char *const end_keys[] = {"eos", "eot", "eom"};
    static const struct {
        enum special_role role;
        const char *key, *old_key;
    } fim[] = {
        {ROLE_FIM_PREFIX, "fim_pre", "prefix"}, {ROLE_FIM_SUFFIX, "fim_suf", "suffix"},
        {ROLE_FIM_MIDDLE, "fim_mid", "middle"}, {ROLE_FIM_PAD, "fim_pad", NULL},
        {ROLE_FIM_REPO, "fim_rep", NULL},       {ROLE_FIM_SEPARATOR, "fim_sep", NULL},
    };
    /* In these formats <|end|> closes a part of a message and the answer goes on. */
    bool parts = (has_name(named, "<|return|>") && has_name(named, "<|call|>")) ||
                 (has_name(named, "<|calls|>") && has_name(named, "<|flush|>"));
    int32_t part_end = parts ? named->ids[special_name_find("<|end|>", 7)] : -1;
    int32_t ids[SPECIAL_N_NAMES + 16], id;
    enum special_role role;
    size_t n = 0;

    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]); i++)
        if (special_id(g, t, end_keys[i], &id) && id >= 0)
            ids[n++] = id;
    if (t->eos >= 0)
        ids[n++] = t->eos;
    for (size_t i = 0; i < sizeof(fim) / sizeof(fim[0]); i++) {
        if (!special_id(g, t, fim[i].key, &id) &&
            !(fim[i].old_key && special_id(g, t, fim[i].old_key, &id))) {
            id = named_role(named, fim[i].role);
            if (id >= 0)
                t->kinds[id] = TOKEN_CONTROL;
        }
        if (id >= 0 && fim[i].role >= ROLE_FIM_PAD)
            ids[n++] = id;
    }
    for (size_t i = 0; special_name(i, &role); i++) {
        if (named->ids[i] < 0)
            continue;
        if (role == ROLE_END) {
            t->kinds[named->ids[i]] = TOKEN_CONTROL;
            ids[n++] = named->ids[i];
        } else if (role == ROLE_SHOWN && parts) {
            t->kinds[named->ids[i]] = TOKEN_USER;
        }
    }

    qsort(ids, n, sizeof(ids[0]), compare_ids);
    t->end_ids = malloc(n * sizeof(ids[0]) + 1);
    if (!t->end_ids)
        return err_set(e, -ENOMEM, "%s: tokenizer: %s", gguf_name(g), err_str(-ENOMEM));
    for (size_t i = 0; i < n; i++)
        if (ids[i] != part_end && (i == 0 || ids[i] != ids[i - 1]))
            t->end_ids[t->n_end_ids++] = ids[i];
    return 0;
}

/* The format's default for files without the key; there it is a control token or means nothing. */
static int32_t control_or_none(const struct tokenizer *t, int32_t id)
{
    return tokenizer_kind(t, id) == TOKEN_CONTROL ? id : -1;
}

int tok_load_bos_eos(const struct gguf *g, struct tokenizer *t, struct err_text *e)
{
    int32_t unknown = 0;
    int r;

    t->bos = control_or_none(t, t->rule ? 11 : 1);
    t->eos = control_or_none(t, t->rule ? 11 : 2);
    (void)special_id(g, t, "bos", &t->bos);
    (void)special_id(g, t, "eos", &t->eos);
    t->add_bos = !t->rule || t->rule->add_bos;
    if (!t->rule) {
        (void)special_id(g, t, "unknown", &unknown);
        for (int i = 0; i < 256; i++)
            if (t->bpe.byte_id[i] < 0)
                t->bpe.byte_id[i] = unknown;
        t->add_space_prefix = true;
        r = gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, e);
        if (r < 0)
            return r;
    }
    r = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, e);
    if (r < 0)
        return r;
    r = gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, e);
    return r < 0 ? r : 0;
}
