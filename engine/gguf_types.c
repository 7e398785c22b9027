/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the format: tensor types with their blocks, value types with their sizes. */
#include "engine/gguf_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct block_type {
    const char *name; /* NULL: the id is free or was removed from the format */
    uint16_t elems;
    uint16_t bytes;
};

static const struct block_type block_types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},    [42] = {"Q2_0", 64, 18},
};

static const struct block_type *block_type(uint32_t type)
{
    if (type >= sizeof block_types / sizeof *block_types || !block_types[type].name)
        return NULL;
    return &block_types[type];
}

const char *tensor_type_name(uint32_t type)
{
    const struct block_type *b = block_type(type);

    return b ? b->name : "?";
}

bool tensor_type_block(uint32_t type, uint32_t *ret_elems, uint32_t *ret_bytes)
{
    const struct block_type *b = block_type(type);

    if (!b)
        return false;
    *ret_elems = b->elems;
    *ret_bytes = b->bytes;
    return true;
}

const char *gguf_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};

    return type < sizeof names / sizeof *names ? names[type] : "?";
}

uint32_t gguf_type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    return type < sizeof bytes ? bytes[type] : 0;
}

/* Little-endian whatever the host is; compilers make one load of it. */
static uint64_t read_le(const uint8_t *p, unsigned int n)
{
    uint64_t v = 0;

    for (unsigned int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint64_t gguf_read_u64(const uint8_t *p)
{
    return read_le(p, 8);
}

bool gguf_read_int(uint32_t type, const uint8_t *p, uint64_t *ret_magnitude, bool *ret_negative)
{
    uint32_t n = gguf_type_bytes(type);
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    uint64_t v;

    if (n == 0 || type == GGUF_F32 || type == GGUF_F64)
        return false;
    v = read_le(p, n);
    *ret_negative = is_signed && (v >> (8 * n - 1)) & 1;
    if (*ret_negative) {
        if (n < 8)
            v |= ~UINT64_C(0) << (8 * n);
        v = 0 - v;
    }
    *ret_magnitude = v;
    return true;
}

bool gguf_read_float(uint32_t type, const uint8_t *p, double *ret)
{
    if (type == GGUF_F32) {
        uint32_t u = (uint32_t)read_le(p, 4);
        float f;

        memcpy(&f, &u, sizeof f);
        *ret = (double)f;
        return true;
    }
    if (type == GGUF_F64) {
        uint64_t u = read_le(p, 8);

        memcpy(ret, &u, sizeof *ret);
        return true;
    }
    return false;
}
