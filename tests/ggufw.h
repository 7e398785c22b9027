/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes GGUF files for tests, right ones and wrong ones.
 *
 * Records are kept until ggufw_bytes, so a test can take a good file and change what it wants:
 * replace or drop a key, edit a tensor's description, force counts, offsets and the version.
 * Nothing is checked.  Out of memory aborts.
 */
#ifndef TESTS_GGUFW_H
#define TESTS_GGUFW_H

#include "util/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value types of the format. */
enum {
    GGUFW_U8,
    GGUFW_I8,
    GGUFW_U16,
    GGUFW_I16,
    GGUFW_U32,
    GGUFW_I32,
    GGUFW_F32,
    GGUFW_BOOL,
    GGUFW_STR,
    GGUFW_ARRAY,
    GGUFW_U64,
    GGUFW_I64,
    GGUFW_F64,
};

struct ggufw_key {
    struct buf name;
    uint32_t type;
    struct buf value; /* as it stands in the file after the type */
};

struct ggufw_tensor {
    struct buf name;
    uint32_t n_dims;
    uint64_t dims[8];
    uint32_t type;
    struct buf data;
    bool force_offset; /* else the next free aligned place */
    uint64_t offset;
};

struct ggufw {
    struct ggufw_key *keys; /* owned */
    size_t n_keys;
    struct ggufw_tensor *tensors; /* owned */
    size_t n_tensors;
    uint32_t version;   /* 0: 3 */
    uint32_t alignment; /* of offsets and the data section; 0: 32.  Writes no key. */
    bool force_counts;  /* the header claims these */
    uint64_t claim_keys, claim_tensors;
    bool no_data; /* the file ends after the descriptions */
};

void ggufw_done(struct ggufw *w);

/* Replaces the key, or appends it; `value` as it stands in the file after the type. */
void ggufw_put(struct ggufw *w, const char *key, uint32_t type, const void *value, size_t n);
/* Appends whatever is there already. */
void ggufw_add(struct ggufw *w, const char *key, size_t key_n, uint32_t type, const void *value,
               size_t n);
void ggufw_drop(struct ggufw *w, const char *key);

void ggufw_u32(struct ggufw *w, const char *key, uint32_t v);
void ggufw_i32(struct ggufw *w, const char *key, int32_t v);
void ggufw_u64(struct ggufw *w, const char *key, uint64_t v);
void ggufw_f32(struct ggufw *w, const char *key, float v);
void ggufw_bool(struct ggufw *w, const char *key, bool v);
void ggufw_str(struct ggufw *w, const char *key, const char *v);
/* `payload` are the n elements packed back to back. */
void ggufw_array(struct ggufw *w, const char *key, uint32_t elem_type, uint64_t n,
                 const void *payload, size_t payload_n);
void ggufw_strs(struct ggufw *w, const char *key, const char *const *s, size_t n);

/* `data` NULL: n zero bytes.  The pointer lives until the next tensor is added. */
struct ggufw_tensor *ggufw_tensor(struct ggufw *w, const char *name, uint32_t type, uint32_t n_dims,
                                  const uint64_t *dims, const void *data, size_t n);
/* NULL when absent. */
struct ggufw_tensor *ggufw_find(struct ggufw *w, const char *name);
void ggufw_drop_tensor(struct ggufw *w, const char *name);
void ggufw_name_tensor(struct ggufw_tensor *t, const char *name, size_t n);

/* Appends the file to `out`. */
void ggufw_bytes(const struct ggufw *w, struct buf *out);
/* 0 or a negative errno. */
int ggufw_write(const struct ggufw *w, const char *path);

#endif
