/* SPDX-License-Identifier: Apache-2.0 */
/* Life time of a GGUF file and look-up in it; gguf_parse.c reads, gguf_get.c hands out keys. */
#include "engine/gguf.h"

#include "engine/gguf_internal.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int gguf_new(const char *name, struct gguf **ret, struct err_text *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    size_t n = strlen(name);

    if (!g)
        return err_set(e, -ENOMEM, "out of memory");
    g->fd = -1;
    /* Messages are short, and of a long path the end says more than the start. */
    if (n > GGUF_NAME_SHOWN) {
        name += n - GGUF_NAME_SHOWN;
        n = GGUF_NAME_SHOWN;
        (void)memcpy(g->name, "...", 3);
    }
    (void)err_escape(g->name + strlen(g->name), sizeof g->name - strlen(g->name), name, n);
    *ret = g;
    return 0;
}

int gguf_open_file(const char *path, struct gguf **ret, struct err_text *e)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct stat st;
    void *p;
    int r;

    r = gguf_new(path, &g, e);
    if (r < 0)
        return r;

    /* Without O_NONBLOCK a FIFO would hold us until somebody writes to it. */
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (g->fd < 0)
        return gguf_fail(g, e, -errno, "cannot open: %s", err_str(-errno));
    /* A file system without locks is no reason to refuse; a writer at work is. */
    if (flock(g->fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return gguf_fail(g, e, -EBUSY, "another process has locked the file for writing");
    if (fstat(g->fd, &st) < 0)
        return gguf_fail(g, e, -errno, "cannot stat: %s", err_str(-errno));
    if (!S_ISREG(st.st_mode))
        return gguf_fail(g, e, -EINVAL, "not a regular file");
    if (st.st_size == 0)
        return gguf_fail(g, e, ERR_DAMAGED, "the file is empty");
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return gguf_fail(g, e, -EFBIG, "the file does not fit the address space");

    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, g->fd, 0);
    if (p == MAP_FAILED)
        return gguf_fail(g, e, -errno, "cannot map: %s", err_str(-errno));
    g->base = p;
    g->size = (size_t)st.st_size;
    g->mapped = true;

    r = gguf_parse(g, e);
    if (r < 0)
        return r;
    *ret = TAKE(g);
    return 0;
}

int gguf_open(const char *path, struct gguf **ret, struct err_text *e)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    int r;

    r = gguf_open_file(path, &g, e);
    if (r < 0)
        return r;
    r = gguf_open_parts(g, path, e);
    if (r < 0)
        return r;
    *ret = TAKE(g);
    return 0;
}

int gguf_open_bytes(const void *p, size_t n, const char *name, struct gguf **ret,
                    struct err_text *e)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    int r;

    r = gguf_new(name, &g, e);
    if (r < 0)
        return r;
    g->base = p;
    g->size = n;
    r = gguf_parse(g, e);
    if (r < 0)
        return r;
    *ret = TAKE(g);
    return 0;
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    for (uint64_t i = 0; i < g->n_kv; i++)
        free(g->kv[i].offsets);
    free(g->kv);
    free(g->by_name);
    free(g->tensors);
    for (uint32_t i = 0; i < g->n_parts; i++)
        gguf_free(g->parts[i]);
    free(g->parts);
    if (g->mapped)
        (void)munmap((void *)(uintptr_t)g->base, g->size);
    if (g->fd >= 0)
        (void)close(g->fd);
    free(g);
}

const char *gguf_name(const struct gguf *g)
{
    return g->name;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = g->size;

    for (uint32_t i = 0; i < g->n_parts; i++)
        n += g->parts[i]->size;
    return n;
}

uint32_t gguf_n_files(const struct gguf *g)
{
    return 1 + g->n_parts;
}

int gguf_fail(const struct gguf *g, struct err_text *e, int code, const char *fmt, ...)
{
    char text[sizeof e->s];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, code, "%s: %s", g->name, text);
}

int gguf_str_cmp(struct gguf_str a, struct gguf_str b)
{
    int r = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n);

    return r != 0 ? r : (a.n > b.n) - (a.n < b.n);
}

const struct gguf_kv *gguf_find_kv(const struct gguf *g, const char *key, size_t n)
{
    struct gguf_str want = {key, n};
    uint64_t lo = 0, hi = g->n_kv;

    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int r = gguf_str_cmp(g->kv[mid].key, want);

        if (r == 0)
            return &g->kv[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

uint64_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

const struct tensor *gguf_find(const struct gguf *g, const char *name)
{
    struct gguf_str want = {name, strlen(name)};
    uint64_t lo = 0, hi = g->n_tensors;

    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int r = gguf_str_cmp(g->by_name[mid]->name, want);

        if (r == 0)
            return g->by_name[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
