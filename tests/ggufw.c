/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ggufw.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A host that runs the tests is little-endian: values go out as they lie in memory. */
static void put(struct buf *b, const void *p, size_t n)
{
    if (buf_add(b, p, n) < 0)
        abort();
}

static void put_u32(struct buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void pad(struct buf *b, size_t from, size_t alignment)
{
    while ((b->len - from) % alignment != 0)
        put(b, "", 1);
}

static bool is_name(const struct buf *b, const char *name)
{
    return b->len == strlen(name) && memcmp(b->data, name, b->len) == 0;
}

static void key_done(struct ggufw_key *k)
{
    buf_done(&k->name);
    buf_done(&k->value);
}

static void tensor_done(struct ggufw_tensor *t)
{
    buf_done(&t->name);
    buf_done(&t->data);
}

void ggufw_done(struct ggufw *w)
{
    for (size_t i = 0; i < w->n_keys; i++)
        key_done(&w->keys[i]);
    for (size_t i = 0; i < w->n_tensors; i++)
        tensor_done(&w->tensors[i]);
    free(w->keys);
    free(w->tensors);
    *w = (struct ggufw){0};
}

void ggufw_add(struct ggufw *w, const char *key, size_t key_n, uint32_t type, const void *value,
               size_t n)
{
    struct ggufw_key *k;

    w->keys = reallocarray(w->keys, w->n_keys + 1, sizeof *w->keys);
    if (!w->keys)
        abort();
    k = &w->keys[w->n_keys++];
    *k = (struct ggufw_key){.type = type};
    put(&k->name, key, key_n);
    put(&k->value, value, n);
}

void ggufw_put(struct ggufw *w, const char *key, uint32_t type, const void *value, size_t n)
{
    for (size_t i = 0; i < w->n_keys; i++) {
        struct ggufw_key *k = &w->keys[i];

        if (is_name(&k->name, key)) {
            k->type = type;
            buf_clear(&k->value);
            put(&k->value, value, n);
            return;
        }
    }
    ggufw_add(w, key, strlen(key), type, value, n);
}

void ggufw_drop(struct ggufw *w, const char *key)
{
    for (size_t i = 0; i < w->n_keys; i++) {
        if (is_name(&w->keys[i].name, key)) {
            key_done(&w->keys[i]);
            w->n_keys--;
            memmove(&w->keys[i], &w->keys[i + 1], (w->n_keys - i) * sizeof *w->keys);
            return;
        }
    }
}

void ggufw_u32(struct ggufw *w, const char *key, uint32_t v)
{
    ggufw_put(w, key, GGUFW_U32, &v, sizeof v);
}

void ggufw_i32(struct ggufw *w, const char *key, int32_t v)
{
    ggufw_put(w, key, GGUFW_I32, &v, sizeof v);
}

void ggufw_u64(struct ggufw *w, const char *key, uint64_t v)
{
    ggufw_put(w, key, GGUFW_U64, &v, sizeof v);
}

void ggufw_f32(struct ggufw *w, const char *key, float v)
{
    ggufw_put(w, key, GGUFW_F32, &v, sizeof v);
}

void ggufw_bool(struct ggufw *w, const char *key, bool v)
{
    ggufw_put(w, key, GGUFW_BOOL, v ? "\1" : "\0", 1);
}

static void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

void ggufw_str(struct ggufw *w, const char *key, const char *v)
{
    CLEANUP(buf_done) struct buf b = {0};

    put_str(&b, v);
    ggufw_put(w, key, GGUFW_STR, b.data, b.len);
}

void ggufw_array(struct ggufw *w, const char *key, uint32_t elem_type, uint64_t n,
                 const void *payload, size_t payload_n)
{
    CLEANUP(buf_done) struct buf b = {0};

    put_u32(&b, elem_type);
    put_u64(&b, n);
    put(&b, payload, payload_n);
    ggufw_put(w, key, GGUFW_ARRAY, b.data, b.len);
}

void ggufw_strs(struct ggufw *w, const char *key, const char *const *s, size_t n)
{
    CLEANUP(buf_done) struct buf b = {0};

    for (size_t i = 0; i < n; i++)
        put_str(&b, s[i]);
    ggufw_array(w, key, GGUFW_STR, n, b.data, b.len);
}

struct ggufw_tensor *ggufw_tensor(struct ggufw *w, const char *name, uint32_t type, uint32_t n_dims,
                                  const uint64_t *dims, const void *data, size_t n)
{
    struct ggufw_tensor *t;

    w->tensors = reallocarray(w->tensors, w->n_tensors + 1, sizeof *w->tensors);
    if (!w->tensors)
        abort();
    t = &w->tensors[w->n_tensors++];
    *t = (struct ggufw_tensor){.type = type, .n_dims = n_dims};
    memcpy(t->dims, dims, n_dims * sizeof *dims);
    put(&t->name, name, strlen(name));
    if (data)
        put(&t->data, data, n);
    while (!data && t->data.len < n)
        put(&t->data, "", 1);
    return t;
}

struct ggufw_tensor *ggufw_find(struct ggufw *w, const char *name)
{
    for (size_t i = 0; i < w->n_tensors; i++)
        if (is_name(&w->tensors[i].name, name))
            return &w->tensors[i];
    return NULL;
}

void ggufw_drop_tensor(struct ggufw *w, const char *name)
{
    struct ggufw_tensor *t = ggufw_find(w, name);

    if (!t)
        return;
    tensor_done(t);
    w->n_tensors--;
    memmove(t, t + 1, (size_t)(&w->tensors[w->n_tensors] - t) * sizeof *t);
}

void ggufw_name_tensor(struct ggufw_tensor *t, const char *name, size_t n)
{
    buf_clear(&t->name);
    put(&t->name, name, n);
}

void ggufw_bytes(const struct ggufw *w, struct buf *out)
{
    size_t alignment = w->alignment ? w->alignment : 32, start = out->len;
    uint64_t offset = 0;

    put(out, "GGUF", 4);
    put_u32(out, w->version ? w->version : 3);
    put_u64(out, w->force_counts ? w->claim_tensors : w->n_tensors);
    put_u64(out, w->force_counts ? w->claim_keys : w->n_keys);
    for (size_t i = 0; i < w->n_keys; i++) {
        const struct ggufw_key *k = &w->keys[i];

        put_u64(out, k->name.len);
        put(out, k->name.data, k->name.len);
        put_u32(out, k->type);
        put(out, k->value.data, k->value.len);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct ggufw_tensor *t = &w->tensors[i];

        put_u64(out, t->name.len);
        put(out, t->name.data, t->name.len);
        put_u32(out, t->n_dims);
        put(out, t->dims, (t->n_dims < 8 ? t->n_dims : 8) * sizeof *t->dims);
        put_u32(out, t->type);
        put_u64(out, t->force_offset ? t->offset : offset);
        offset += (t->data.len + alignment - 1) / alignment * alignment;
    }
    if (w->n_tensors == 0 || w->no_data)
        return;
    pad(out, start, alignment);
    for (size_t i = 0; i < w->n_tensors; i++) {
        put(out, w->tensors[i].data.data, w->tensors[i].data.len);
        pad(out, start, alignment);
    }
}

int ggufw_write(const struct ggufw *w, const char *path)
{
    CLEANUP(buf_done) struct buf b = {0};
    FILE *f;
    int r = 0;

    ggufw_bytes(w, &b);
    f = fopen(path, "wbe");
    if (!f)
        return -errno;
    if (fwrite(b.data, 1, b.len, f) != b.len)
        r = -EIO;
    if (fclose(f) != 0 && r == 0)
        r = -errno;
    return r;
}
