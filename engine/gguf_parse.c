/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes to records.  Every read goes through one cursor that compares with what is left and never
 * adds to a position; every count is checked against the bytes that are left before memory is
 * reserved for it.  Uniqueness and overlap are found by sorting, so that no choice of names makes
 * it slow (a hash table could be fed collisions).
 *
 * Refused: big-endian files, versions other than 2 and 3, nested arrays, unknown types, tensors
 * that overlap or leave the file.
 */
#include "engine/gguf_internal.h"

#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 24,
    MIN_KV_BYTES = 13,     /* key length, type, one byte of value */
    MIN_TENSOR_BYTES = 24, /* name length, n_dims, type, offset */
    SHOWN = 120,           /* bytes of an escaped name in a message */
};

struct cursor {
    const uint8_t *base;
    size_t size;
    size_t pos; /* <= size */
};

static size_t cursor_left(const struct cursor *c)
{
    return c->size - c->pos;
}

/* The next n bytes, or NULL when fewer are left. */
static const uint8_t *cursor_take(struct cursor *c, uint64_t n)
{
    const uint8_t *p = c->base + c->pos;

    if (n > cursor_left(c))
        return NULL;
    c->pos += (size_t)n;
    return p;
}

static bool cursor_u32(struct cursor *c, uint32_t *ret)
{
    const uint8_t *p = cursor_take(c, 4);

    if (!p)
        return false;
    *ret = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return true;
}

static bool cursor_u64(struct cursor *c, uint64_t *ret)
{
    const uint8_t *p = cursor_take(c, 8);

    if (!p)
        return false;
    *ret = gguf_read_u64(p);
    return true;
}

/* A length word and that many bytes; false when the file ends before. */
static bool cursor_str(struct cursor *c, struct gguf_str *ret)
{
    const uint8_t *p;
    uint64_t n;

    if (!cursor_u64(c, &n) || n > GGUF_MAX_COUNT)
        return false;
    p = cursor_take(c, n);
    if (!p)
        return false;
    ret->s = (const char *)p;
    ret->n = (size_t)n;
    return true;
}

static const char *shown(char *out, struct gguf_str s)
{
    return err_escape(out, SHOWN, s.s, s.n);
}

static int read_header(struct gguf *g, struct cursor *c, uint64_t *ret_tensors, uint64_t *ret_kv,
                       struct err_text *e)
{
    const uint8_t *magic = cursor_take(c, 4);
    uint64_t most;

    if (g->size < HEADER_BYTES)
        return gguf_fail(g, e, ERR_DAMAGED, "%zu bytes are too few for a GGUF header (%d bytes)",
                         g->size, HEADER_BYTES);
    if (memcmp(magic, "GGUF", 4) != 0)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "not a GGUF file: it starts with %02x %02x %02x %02x, not with \"GGUF\"",
                         magic[0], magic[1], magic[2], magic[3]);
    (void)cursor_u32(c, &g->version);
    if (g->version != 0 && (g->version & 0xffff) == 0)
        return gguf_fail(g, e, ERR_UNSUPPORTED,
                         "a big-endian GGUF file; only little-endian is read");
    if (g->version != 2 && g->version != 3)
        return gguf_fail(g, e, ERR_UNSUPPORTED,
                         "GGUF version %" PRIu32 "; versions 2 and 3 are read", g->version);

    (void)cursor_u64(c, ret_tensors);
    (void)cursor_u64(c, ret_kv);
    most = cursor_left(c) / MIN_KV_BYTES;
    if (*ret_kv > GGUF_MAX_RECORDS || *ret_kv > most)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "the header counts %" PRIu64 " keys; the file has room for %" PRIu64
                         ", and at most %d are read",
                         *ret_kv, most, GGUF_MAX_RECORDS);
    most = cursor_left(c) / MIN_TENSOR_BYTES;
    if (*ret_tensors > GGUF_MAX_RECORDS || *ret_tensors > most)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "the header counts %" PRIu64 " tensors; the file has room for %" PRIu64
                         ", and at most %d are read",
                         *ret_tensors, most, GGUF_MAX_RECORDS);
    return 0;
}

static bool has_prefix(struct gguf_str s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.n >= n && memcmp(s.s, prefix, n) == 0;
}

static int read_str_array(struct gguf *g, struct cursor *c, struct gguf_kv *kv, struct err_text *e)
{
    char k[SHOWN];
    size_t start = c->pos;

    if (kv->n > cursor_left(c) / 8)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": %" PRIu64 " strings, but %zu bytes are left in the file",
                         shown(k, kv->key), kv->n, cursor_left(c));
    /* 8 bytes for each string, which takes at least 8 in the file. */
    kv->offsets = malloc(kv->n ? kv->n * sizeof *kv->offsets : 1);
    if (!kv->offsets)
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    for (uint64_t i = 0; i < kv->n; i++) {
        struct gguf_str s;

        kv->offsets[i] = c->pos - start;
        if (!cursor_str(c, &s))
            return gguf_fail(g, e, ERR_DAMAGED,
                             "key \"%s\": string %" PRIu64 " of %" PRIu64 " runs past the end",
                             shown(k, kv->key), i, kv->n);
        if (s.n > GGUF_MAX_TOKEN)
            return gguf_fail(g, e, ERR_DAMAGED,
                             "key \"%s\": string %" PRIu64 " has %zu bytes; at most %d are read",
                             shown(k, kv->key), i, s.n, GGUF_MAX_TOKEN);
    }
    return 0;
}

static int read_array(struct gguf *g, struct cursor *c, struct gguf_kv *kv, struct err_text *e)
{
    char k[SHOWN];
    uint32_t size;

    if (!cursor_u32(c, &kv->elem_type) || !cursor_u64(c, &kv->n))
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": the file ends in its array header",
                         shown(k, kv->key));
    if (kv->elem_type > GGUF_F64 || kv->elem_type == GGUF_ARRAY)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": array of value type %" PRIu32
                         "; expected 0 to 12, and no array in an array",
                         shown(k, kv->key), kv->elem_type);
    if (kv->n > GGUF_MAX_COUNT)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": an array of %" PRIu64 " elements; at most %d are read",
                         shown(k, kv->key), kv->n, GGUF_MAX_COUNT);
    kv->p = c->base + c->pos;
    if (kv->elem_type == GGUF_STR)
        return read_str_array(g, c, kv, e);

    size = gguf_type_bytes(kv->elem_type);
    if (kv->n > cursor_left(c) / size)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": %" PRIu64
                         " elements of %s, but %zu bytes are left in the file",
                         shown(k, kv->key), kv->n, gguf_type_name(kv->elem_type), cursor_left(c));
    (void)cursor_take(c, kv->n * size);
    return 0;
}

static int read_value(struct gguf *g, struct cursor *c, struct gguf_kv *kv, struct err_text *e)
{
    char k[SHOWN];
    struct gguf_str s;

    if (kv->type > GGUF_F64)
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": value type %" PRIu32 "; expected 0 to 12",
                         shown(k, kv->key), kv->type);
    if (kv->type == GGUF_ARRAY)
        return read_array(g, c, kv, e);

    kv->elem_type = kv->type;
    kv->n = 1;
    kv->p = c->base + c->pos;
    if (kv->type == GGUF_STR) {
        if (!cursor_str(c, &s))
            return gguf_fail(g, e, ERR_DAMAGED,
                             "key \"%s\": its string runs past the end of the file",
                             shown(k, kv->key));
        if (s.n > GGUF_MAX_TEMPLATE && has_prefix(kv->key, "tokenizer.chat_template"))
            return gguf_fail(g, e, ERR_DAMAGED,
                             "key \"%s\": a chat template of %zu bytes; at most %d are read",
                             shown(k, kv->key), s.n, GGUF_MAX_TEMPLATE);
        return 0;
    }
    if (!cursor_take(c, gguf_type_bytes(kv->type)))
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": its %s runs past the end of the file",
                         shown(k, kv->key), gguf_type_name(kv->type));
    return 0;
}

static int kv_cmp(const void *a, const void *b)
{
    return gguf_str_cmp(((const struct gguf_kv *)a)->key, ((const struct gguf_kv *)b)->key);
}

static int read_keys(struct gguf *g, struct cursor *c, uint64_t n, struct err_text *e)
{
    char k[SHOWN];
    int r;

    g->kv = calloc(n ? n : 1, sizeof *g->kv);
    if (!g->kv)
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_kv *kv = &g->kv[i];

        /* Counted first: gguf_free then releases what a failing value has already allocated. */
        g->n_kv = i + 1;
        if (!cursor_str(c, &kv->key))
            return gguf_fail(
                g, e, ERR_DAMAGED,
                "key %" PRIu64 " of %" PRIu64 ": its name runs past the end of the file", i, n);
        if (kv->key.n == 0 || kv->key.n > GGUF_MAX_KEY)
            return gguf_fail(g, e, ERR_DAMAGED,
                             "key %" PRIu64 ": a name of %zu bytes; expected 1 to %d", i, kv->key.n,
                             GGUF_MAX_KEY);
        if (memchr(kv->key.s, 0, kv->key.n))
            return gguf_fail(g, e, ERR_DAMAGED, "key %" PRIu64 ": a NUL byte in its name \"%s\"", i,
                             shown(k, kv->key));
        if (!cursor_u32(c, &kv->type))
            return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": the file ends before its value",
                             shown(k, kv->key));
        r = read_value(g, c, kv, e);
        if (r < 0)
            return r;
    }

    qsort(g->kv, g->n_kv, sizeof *g->kv, kv_cmp);
    for (uint64_t i = 1; i < g->n_kv; i++)
        if (gguf_str_cmp(g->kv[i - 1].key, g->kv[i].key) == 0)
            return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\" occurs twice", shown(k, g->kv[i].key));
    return 0;
}

static int read_alignment(struct gguf *g, struct err_text *e)
{
    const char *key = "general.alignment";
    const struct gguf_kv *kv = gguf_find_kv(g, key, strlen(key));
    bool negative;

    g->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!kv)
        return 0;
    if (kv->type != GGUF_U32)
        return gguf_fail(g, e, ERR_DAMAGED, "key \"%s\": found %s, expected u32", key,
                         gguf_type_name(kv->type));
    (void)gguf_read_int(kv->type, kv->p, &g->alignment, &negative);
    if (g->alignment < GGUF_MIN_ALIGNMENT || g->alignment > GGUF_MAX_ALIGNMENT ||
        (g->alignment & (g->alignment - 1)) != 0)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "key \"%s\": found %" PRIu64 ", expected a power of two from %d to %d",
                         key, g->alignment, GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
    return 0;
}

/* Row and total size from dims and type. */
static int size_tensor(const struct gguf *g, struct tensor *t, struct err_text *e)
{
    char k[SHOWN];
    uint32_t elems, bytes;
    uint64_t n = t->dims[0];

    if (!tensor_type_block(t->type, &elems, &bytes))
        return gguf_fail(g, e, ERR_UNSUPPORTED,
                         "tensor \"%s\": type id %" PRIu32 " is not in the format",
                         shown(k, t->name), t->type);
    if (t->dims[0] % elems != 0)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "tensor \"%s\": rows of %" PRIu64
                         " elements; %s needs a multiple of %" PRIu32,
                         shown(k, t->name), t->dims[0], tensor_type_name(t->type), elems);

    /* 2^40 * 292 fits; the rest is checked.  The element count is the reference's 2^63 rule. */
    t->row_bytes = t->dims[0] / elems * bytes;
    t->n_bytes = t->row_bytes;
    for (int d = 1; d < 4; d++)
        if (__builtin_mul_overflow(t->n_bytes, t->dims[d], &t->n_bytes) ||
            __builtin_mul_overflow(n, t->dims[d], &n) || n > INT64_MAX)
            return gguf_fail(g, e, ERR_DAMAGED, "tensor \"%s\": its size does not fit 64 bits",
                             shown(k, t->name));
    return 0;
}

/* ret_offset: from the start of the data section, whose place is not known yet. */
static int read_tensor(struct gguf *g, struct cursor *c, uint64_t i, struct tensor *t,
                       uint64_t *ret_offset, struct err_text *e)
{
    char k[SHOWN];

    if (!cursor_str(c, &t->name))
        return gguf_fail(g, e, ERR_DAMAGED,
                         "tensor %" PRIu64 ": its name runs past the end of the file", i);
    if (t->name.n == 0 || t->name.n > GGUF_MAX_TENSOR_NAME)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "tensor %" PRIu64 ": a name of %zu bytes; expected 1 to %d", i, t->name.n,
                         GGUF_MAX_TENSOR_NAME);
    if (memchr(t->name.s, 0, t->name.n))
        return gguf_fail(g, e, ERR_DAMAGED, "tensor %" PRIu64 ": a NUL byte in its name \"%s\"", i,
                         shown(k, t->name));
    if (!cursor_u32(c, &t->n_dims))
        return gguf_fail(g, e, ERR_DAMAGED, "tensor \"%s\": the file ends in its description",
                         shown(k, t->name));
    if (t->n_dims < 1 || t->n_dims > 4)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "tensor \"%s\": %" PRIu32 " dimensions; expected 1 to 4",
                         shown(k, t->name), t->n_dims);
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims)
            continue;
        if (!cursor_u64(c, &t->dims[d]))
            return gguf_fail(g, e, ERR_DAMAGED, "tensor \"%s\": the file ends in its description",
                             shown(k, t->name));
        if (t->dims[d] < 1 || t->dims[d] > GGUF_MAX_DIM)
            return gguf_fail(g, e, ERR_DAMAGED,
                             "tensor \"%s\": dimension %" PRIu32 " is %" PRIu64
                             "; expected 1 to 2^40",
                             shown(k, t->name), d, t->dims[d]);
    }
    if (!cursor_u32(c, &t->type) || !cursor_u64(c, ret_offset))
        return gguf_fail(g, e, ERR_DAMAGED, "tensor \"%s\": the file ends in its description",
                         shown(k, t->name));
    if (*ret_offset % g->alignment != 0)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "tensor \"%s\": offset %" PRIu64
                         " is not a multiple of the alignment %" PRIu64,
                         shown(k, t->name), *ret_offset, g->alignment);
    return size_tensor(g, t, e);
}

/* Turns offsets into pointers, once all descriptions are read and the data section's place is
 * known. */
static int place_tensors(struct gguf *g, const struct cursor *c, const uint64_t *offsets,
                         struct err_text *e)
{
    char k[SHOWN];
    /* c->pos and the alignment are far below 2^63: no overflow. */
    uint64_t start = (c->pos + g->alignment - 1) / g->alignment * g->alignment;
    uint64_t room = start <= g->size ? g->size - start : 0;

    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensors[i];

        if (offsets[i] > room || t->n_bytes > room - offsets[i])
            return gguf_fail(g, e, ERR_DAMAGED,
                             "tensor \"%s\": %" PRIu64 " bytes at offset %" PRIu64
                             ", but the data section has %" PRIu64
                             " bytes: the file is cut off or damaged",
                             shown(k, t->name), t->n_bytes, offsets[i], room);
        t->data = g->base + start + offsets[i];
    }
    return 0;
}

static int tensor_name_cmp(const void *a, const void *b)
{
    return gguf_str_cmp((*(const struct tensor *const *)a)->name,
                        (*(const struct tensor *const *)b)->name);
}

static int tensor_place_cmp(const void *a, const void *b)
{
    const uint8_t *pa = (*(const struct tensor *const *)a)->data;
    const uint8_t *pb = (*(const struct tensor *const *)b)->data;

    return (pa > pb) - (pa < pb);
}

int gguf_sort_names(struct gguf *g, struct err_text *e)
{
    char k[SHOWN];

    qsort(g->by_name, g->n_tensors, sizeof *g->by_name, tensor_name_cmp);
    for (uint64_t i = 1; i < g->n_tensors; i++)
        if (gguf_str_cmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return gguf_fail(g, e, ERR_DAMAGED, "tensor \"%s\" occurs twice",
                             shown(k, g->by_name[i]->name));
    return 0;
}

/* Leaves by_name sorted by name. */
static int check_tensors(struct gguf *g, struct err_text *e)
{
    char k[SHOWN], k2[SHOWN];

    g->by_name = calloc(g->n_tensors ? g->n_tensors : 1, sizeof *g->by_name);
    if (!g->by_name)
        return gguf_fail(g, e, -ENOMEM, "out of memory");
    for (uint64_t i = 0; i < g->n_tensors; i++)
        g->by_name[i] = &g->tensors[i];

    qsort(g->by_name, g->n_tensors, sizeof *g->by_name, tensor_place_cmp);
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const struct tensor *a = g->by_name[i - 1], *b = g->by_name[i];

        if (a->n_bytes > (uint64_t)((const uint8_t *)b->data - (const uint8_t *)a->data))
            return gguf_fail(g, e, ERR_DAMAGED, "tensors \"%s\" and \"%s\" overlap",
                             shown(k, a->name), shown(k2, b->name));
    }
    return gguf_sort_names(g, e);
}

static int read_tensors(struct gguf *g, struct cursor *c, uint64_t n, struct err_text *e)
{
    uint64_t most = cursor_left(c) / MIN_TENSOR_BYTES;
    uint64_t *offsets;
    int r = 0;

    if (n > most)
        return gguf_fail(g, e, ERR_DAMAGED,
                         "the header counts %" PRIu64
                         " tensors; after the keys there is room for %" PRIu64,
                         n, most);
    g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
    offsets = calloc(n ? n : 1, sizeof *offsets);
    if (!g->tensors || !offsets)
        r = gguf_fail(g, e, -ENOMEM, "out of memory");
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = read_tensor(g, c, i, &g->tensors[i], &offsets[i], e);
    if (r == 0) {
        g->n_tensors = n;
        r = place_tensors(g, c, offsets, e);
    }
    free(offsets);
    return r < 0 ? r : check_tensors(g, e);
}

int gguf_parse(struct gguf *g, struct err_text *e)
{
    struct cursor c = {.base = g->base, .size = g->size};
    uint64_t n_tensors = 0, n_kv = 0;
    int r;

    r = read_header(g, &c, &n_tensors, &n_kv, e);
    if (r < 0)
        return r;
    r = read_keys(g, &c, n_kv, e);
    if (r < 0)
        return r;
    r = read_alignment(g, e);
    if (r < 0)
        return r;
    return read_tensors(g, &c, n_tensors, e);
}
