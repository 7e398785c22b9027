/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file (version 2 or 3, little-endian), mapped read-only.
 *
 * The file is untrusted: nothing in it can crash, hang or make us allocate more than the file's
 * own size justifies.  Everything is checked at open (header, keys, types, tensor shapes, ranges,
 * overlaps), so that the accessors cannot fail on content.  Errors name the file and the key or
 * tensor, what was found and what was expected.
 *
 * Immutable after gguf_open; any thread may read.  All pointers handed out live until gguf_free.
 * The mapping stays valid only while nobody truncates the file (SIGBUS otherwise): a shared lock
 * is taken so that a well-behaved writer does not.
 */
#ifndef ENGINE_GGUF_H
#define ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err_text;
struct gguf;

/* The ids of the format itself; ids not listed are refused. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ2_XS = 17,
    TENSOR_IQ3_XXS = 18,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ3_S = 21,
    TENSOR_IQ4_XS = 23,
    TENSOR_BF16 = 30,
    TENSOR_MXFP4 = 39,
    /* … gguf_types.c knows the block sizes of every id of the format, also of those no kernel
     * reads. */
};

/* A string of the file: not NUL-terminated, may hold any byte. */
struct gguf_str {
    const char *s;
    size_t n;
};

struct tensor {
    struct gguf_str name;
    const void *data; /* borrowed from the mapping; aligned to 8 or more when that is */
    uint32_t type;    /* enum tensor_type */
    uint32_t n_dims;
    uint64_t dims[4];   /* dims[0] runs fastest; missing ones are 1 */
    uint64_t row_bytes; /* of dims[0] elements */
    uint64_t n_bytes;
};

/*
 * Maps and checks `path`, and when it is the first file of a split model
 * (PREFIX-00001-of-0000N.gguf with the key split.count) the others beside it: their tensors are
 * found like its own, the keys are the first file's.  0, or negative with `e` filled and *ret
 * untouched.
 */
int gguf_open(const char *path, struct gguf **ret, struct err_text *e);

/* The same on bytes in memory (tests, fuzzing); `p` is borrowed until gguf_free. */
int gguf_open_bytes(const void *p, size_t n, const char *name, struct gguf **ret,
                    struct err_text *e);

/* NULL is fine. */
void gguf_free(struct gguf *g);

/* For CLEANUP. */
static inline void gguf_freep(struct gguf **g)
{
    gguf_free(*g);
}

const char *gguf_name(const struct gguf *g); /* as given to open; for messages escaped and cut */

/*
 * Fills `e` with the file's name, ": " and the text, and returns `code`.  Untrusted strings in the
 * arguments must have been through err_escape.
 */
int gguf_fail(const struct gguf *g, struct err_text *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
uint64_t gguf_file_bytes(const struct gguf *g); /* of all files */
uint32_t gguf_n_files(const struct gguf *g);    /* 1 unless the model is split */

/*
 * Keys.  Each returns 1 with *ret set, 0 when the key is absent (*ret untouched), or negative with
 * `e` naming key, type found and type or range expected.  Integers of any width and sign are
 * accepted when the value lies in [min, max]; f32 and f64 for floats; bool or integer 0/1 for
 * flags.
 */
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                 struct err_text *e);
int gguf_get_f32(const struct gguf *g, const char *key, float *ret, struct err_text *e);
int gguf_get_bool(const struct gguf *g, const char *key, bool *ret, struct err_text *e);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *ret, struct err_text *e);

/* An array key: length, then elements by index (i < length, checked by assert: the caller's bug).
 */
struct gguf_array {
    uint32_t elem_type; /* GGUF value type id: 4 u32, 5 i32, 6 f32, 7 bool, 8 string, ... */
    uint64_t n;
    const void *opaque; /* position in the file and, for strings, an index made at open */
};
int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *ret,
                   struct err_text *e);
int gguf_array_is_str(const struct gguf_array *a);
struct gguf_str gguf_array_str(const struct gguf_array *a, uint64_t i);
/* Numeric elements converted; false when the element type is not numeric. */
bool gguf_array_i64(const struct gguf_array *a, uint64_t i, int64_t *ret);
bool gguf_array_f64(const struct gguf_array *a, uint64_t i, double *ret);

/* Tensors, in file order, those of the first file first. */
uint64_t gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);
/* By name; NULL when absent. */
const struct tensor *gguf_find(const struct gguf *g, const char *name);

/* "F16", "Q4_K", …; "?" for an id the format does not have. */
const char *tensor_type_name(uint32_t type);
/* Elements and bytes of one block; false for an unknown id. */
bool tensor_type_block(uint32_t type, uint32_t *ret_elems, uint32_t *ret_bytes);

#endif
