/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the GGUF reader share: gguf.c (life time, look-up), gguf_parse.c (bytes to
 * records), gguf_split.c (models of several files), gguf_get.c (typed access to keys), gguf_types.c
 * (tables).  Nobody else includes this.
 */
#ifndef ENGINE_GGUF_INTERNAL_H
#define ENGINE_GGUF_INTERNAL_H

#include "engine/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value type ids of the format. */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STR = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

enum {
    GGUF_MAX_KEY = 65535,        /* bytes; the format's rule */
    GGUF_MAX_TENSOR_NAME = 63,   /* bytes; the reference's rule */
    GGUF_MAX_TOKEN = 64 << 10,   /* bytes of one string in an array */
    GGUF_MAX_TEMPLATE = 1 << 20, /* bytes of a chat template */
    GGUF_MAX_RECORDS = 1 << 20,  /* keys, tensors */
    GGUF_MAX_COUNT = 1 << 30,    /* bytes of a string, elements of an array */
    GGUF_DEFAULT_ALIGNMENT = 32,
    GGUF_MIN_ALIGNMENT = 8,
    GGUF_MAX_ALIGNMENT = 1 << 20,
    GGUF_MAX_PARTS = 1024, /* files of a split model */
    GGUF_NAME_SHOWN = 100, /* bytes of the file's path that messages show: the last ones */
};
#define GGUF_MAX_DIM (UINT64_C(1) << 40)

/* One key.  A scalar is an array of one element as far as `p` and `n` go. */
struct gguf_kv {
    struct gguf_str key;
    uint32_t type;      /* enum gguf_type */
    uint32_t elem_type; /* of an array; else == type */
    uint64_t n;         /* elements; 1 for a scalar */
    const uint8_t *p;   /* first element, in the file */
    uint64_t *offsets;  /* owned; string arrays: where element i's length word starts, from p */
};

struct gguf {
    char name[4 * GGUF_NAME_SHOWN + 4]; /* escaped, which can make four bytes of one */
    const uint8_t *base;                /* the file's bytes */
    size_t size;
    int fd; /* owned: holds the shared lock; -1 for bytes in memory */
    bool mapped;
    uint32_t version;
    uint64_t alignment;

    struct gguf_kv *kv; /* owned, [n_kv], sorted by key */
    uint64_t n_kv;
    struct tensor *tensors;        /* owned, [n_tensors], file order */
    const struct tensor **by_name; /* owned, [n_tensors], sorted by name */
    uint64_t n_tensors;

    struct gguf **parts; /* owned, [n_parts]: the further files of a split model, whose tensors are
                            listed above too */
    uint32_t n_parts;
};

/* One file, whatever its keys say about others. */
int gguf_open_file(const char *path, struct gguf **ret, struct err_text *e);
/* Opens the other files of a split model that `g` at `path` is the first of, and joins them. */
int gguf_open_parts(struct gguf *g, const char *path, struct err_text *e);
/* Sorts by_name; a name that occurs twice is an error. */
int gguf_sort_names(struct gguf *g, struct err_text *e);

/* Fills everything from base and size.  0 or negative with `e` filled; gguf_free cleans up both. */
int gguf_parse(struct gguf *g, struct err_text *e);

/* NULL when absent. */
const struct gguf_kv *gguf_find_kv(const struct gguf *g, const char *key, size_t n);

/* memcmp order, shorter first: the order of `kv` and `by_name`. */
int gguf_str_cmp(struct gguf_str a, struct gguf_str b);

/* "u32", "string", …; "?" for an id the format does not have. */
const char *gguf_type_name(uint32_t type);
/* Bytes of one element; 0 for strings, arrays and unknown ids. */
uint32_t gguf_type_bytes(uint32_t type);

/* One numeric element at `p`, little-endian; false when the type is not an integer or bool (a
 * float). */
bool gguf_read_int(uint32_t type, const uint8_t *p, uint64_t *ret_magnitude, bool *ret_negative);
bool gguf_read_float(uint32_t type, const uint8_t *p, double *ret);
uint64_t gguf_read_u64(const uint8_t *p);

#endif
