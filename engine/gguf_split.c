/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models split into several files.  The first file has all keys; each file has its
 * own tensors.  The others' names follow from the first one's, never from what is in it.
 */
#include "engine/gguf_internal.h"

#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUFFIX_BYTES = 32 }; /* "-00001-of-00003.gguf" and some */

/* "-00002-of-00003.gguf" for i = 1 of n = 3. */
static void suffix_of(uint32_t i, uint32_t n, char out[SUFFIX_BYTES])
{
    (void)snprintf(out, SUFFIX_BYTES, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", i + 1, n);
}

/* The key of file i, which has to be there and to be `want`. */
static int must_be(const struct gguf *part, const char *key, uint64_t want, struct err_text *e)
{
    uint64_t v;
    int r = gguf_get_u64(part, key, 0, UINT16_MAX, &v, e);

    if (r < 0)
        return r;
    if (r == 0)
        return gguf_fail(part, e, ERR_DAMAGED, "key \"%s\" is missing in a part of a split model",
                         key);
    if (v != want)
        return gguf_fail(part, e, ERR_DAMAGED, "key \"%s\": found %" PRIu64 ", expected %" PRIu64,
                         key, v, want);
    return 0;
}

/* The number of files; 1 when the model is not split. */
static int count_of(const struct gguf *g, const char *path, uint32_t *ret, struct err_text *e)
{
    char suffix[SUFFIX_BYTES];
    uint64_t n = 1, no = 0;
    size_t len;
    int r;

    *ret = 1;
    r = gguf_get_u64(g, "split.count", 0, UINT16_MAX, &n, e);
    if (r <= 0 || n <= 1)
        return r < 0 ? r : 0;
    r = gguf_get_u64(g, "split.no", 0, UINT16_MAX, &no, e);
    if (r < 0)
        return r;
    if (no != 0)
        return gguf_fail(g, e, ERR_UNSUPPORTED,
                         "part %" PRIu64 " of a model split into %" PRIu64
                         " files; the first part is the one to open",
                         no + 1, n);
    if (n > GGUF_MAX_PARTS)
        return gguf_fail(g, e, ERR_UNSUPPORTED,
                         "a model split into %" PRIu64 " files; at most %d are opened", n,
                         GGUF_MAX_PARTS);
    suffix_of(0, (uint32_t)n, suffix);
    len = strlen(path);
    if (len < strlen(suffix) || strcmp(path + len - strlen(suffix), suffix) != 0)
        return gguf_fail(
            g, e, ERR_DAMAGED,
            "the first of %" PRIu64
            " files of a model; its name has to end in \"%s\" for the others to be found",
            n, suffix);
    *ret = (uint32_t)n;
    return 0;
}

/* All tensors of all files in one list; names of different files must differ. */
static int join(struct gguf *g, struct err_text *e)
{
    uint64_t n = g->n_tensors, at = g->n_tensors, want = 0;
    struct tensor *all;
    int r;

    for (uint32_t i = 0; i < g->n_parts; i++)
        n += g->parts[i]->n_tensors; /* at most 2^10 times 2^20 */
    r = gguf_get_u64(g, "split.tensors.count", 0, INT32_MAX, &want, e);
    if (r < 0)
        return r;
    if (r == 0)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"split.tensors.count\" is missing in a split model");
    if (n != want)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "its %" PRIu32 " files have %" PRIu64
                         " tensors, but the key \"split.tensors.count\" says %" PRIu64,
                         1 + g->n_parts, n, want);
    all = calloc(n ? n : 1, sizeof *all);
    free(g->by_name);
    g->by_name = calloc(n ? n : 1, sizeof *g->by_name);
    if (!all || !g->by_name) {
        free(all);
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    }
    memcpy(all, g->tensors, g->n_tensors * sizeof *all);
    for (uint32_t i = 0; i < g->n_parts; at += g->parts[i++]->n_tensors)
        memcpy(all + at, g->parts[i]->tensors, g->parts[i]->n_tensors * sizeof *all);
    free(g->tensors);
    g->tensors = all;
    g->n_tensors = n;
    for (uint64_t i = 0; i < n; i++)
        g->by_name[i] = &all[i];
    return gguf_sort_names(g, e);
}

int gguf_open_parts(struct gguf *g, const char *path, struct err_text *e)
{
    CLEANUP(free_p) char *name = NULL;
    char suffix[SUFFIX_BYTES];
    uint32_t n;
    int r;

    r = count_of(g, path, &n, e);
    if (r < 0 || n == 1)
        return r;
    name = strdup(path);
    g->parts = calloc(n - 1, sizeof *g->parts);
    if (!name || !g->parts)
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    for (uint32_t i = 1; i < n; i++) {
        struct gguf *part;

        suffix_of(i, n, suffix);
        memcpy(name + strlen(name) - strlen(suffix), suffix, strlen(suffix));
        r = gguf_open_file(name, &part, e);
        if (r < 0)
            return r;
        g->parts[g->n_parts++] = part;
        r = must_be(part, "split.no", i, e);
        if (r >= 0 && gguf_find_kv(part, "split.count", strlen("split.count")))
            r = must_be(part, "split.count", n, e);
        if (r < 0)
            return r;
    }
    return join(g, e);
}
