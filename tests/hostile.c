/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/hostile.h"

#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

int hostile_open_exact(const void *p, size_t n, struct gguf **ret, void **ret_copy,
                       struct err_text *e)
{
    *ret_copy = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(*ret_copy);
    memcpy(*ret_copy, n ? p : "", n);
    return gguf_open_bytes(*ret_copy, n, "file", ret, e);
}

void hostile_bytes_refused(const void *p, size_t n, int code, const char *words)
{
    struct gguf *const untouched = (struct gguf *)&hostile_open_exact, *g = untouched;
    CLEANUP(free_p) void *copy = NULL;
    struct err_text e = {{0}};
    int r = hostile_open_exact(p, n, &g, &copy, &e);

    ck_assert_msg(r == code, "%s: %d (%s), expected %d", words, r, e.s, code);
    ck_assert_msg(strstr(e.s, words) != NULL, "\"%s\" is not in \"%s\"", words, e.s);
    ck_assert_msg(strncmp(e.s, "file: ", 6) == 0, "\"%s\" does not name the file", e.s);
    ck_assert_ptr_eq(g, untouched);
}

void hostile_refused(const struct ggufw *w, int code, const char *words)
{
    CLEANUP(buf_done) struct buf b = {0};

    ggufw_bytes(w, &b);
    hostile_bytes_refused(b.data, b.len, code, words);
}

struct gguf *hostile_accepted(const struct ggufw *w, void **ret_copy)
{
    CLEANUP(buf_done) struct buf b = {0};
    struct gguf *g = NULL;
    struct err_text e = {{0}};
    int r;

    ggufw_bytes(w, &b);
    r = hostile_open_exact(b.data, b.len, &g, ret_copy, &e);
    ck_assert_msg(r == 0, "%d: %s", r, e.s);
    return g;
}

void hostile_is_accepted(const struct ggufw *w)
{
    CLEANUP(free_p) void *copy = NULL;

    gguf_free(hostile_accepted(w, &copy));
}

struct ggufw_tensor *hostile_add_f32(struct ggufw *w, const char *name, uint64_t n)
{
    return ggufw_tensor(w, name, TENSOR_F32, 1, &n, NULL, n * 4);
}

int hostile_open_model(const struct ggufw *w, struct buf *b, struct model **ret, struct err_text *e)
{
    struct gguf *g = NULL;
    int r;

    ggufw_bytes(w, b);
    r = gguf_open_bytes(b->data, b->len, "file", &g, e);
    if (r < 0)
        return r;
    r = model_from_gguf(g, ret, e);
    if (r < 0)
        gguf_free(g);
    return r;
}

struct model *hostile_accepted_model(const struct ggufw *w, struct buf *b)
{
    struct model *m = NULL;
    struct err_text e = {{0}};
    int r = hostile_open_model(w, b, &m, &e);

    ck_assert_msg(r == 0, "%d: %s", r, e.s);
    return m;
}
