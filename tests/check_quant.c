/* SPDX-License-Identifier: Apache-2.0 */
/* The block formats against a block of each with its values (tests/data/quant_blocks.json). */
#include "engine/quant.h"

#include "engine/gguf.h"
#include "tests/golden.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 512, MAX_ELEMS = 256, N_IDS = 64, N_FORMATS = 16 };

static uint32_t type_by_name(const char *name)
{
    for (uint32_t t = 0; t < N_IDS; t++)
        if (strcmp(tensor_type_name(t), name) == 0)
            return t;
    return N_IDS;
}

static void check_block(uint32_t type, const char *name, const json_t *j)
{
    const char *hex = json_string_value(json_object_get(j, "hex"));
    const json_t *values = json_object_get(j, "values");
    /* The block stands behind odd bytes and twice, so that alignment and a row's second block are
     * tried. */
    uint8_t bytes[2 * MAX_BYTES + 1];
    float y[2 * MAX_ELEMS];
    const size_t n = quant_stored_bytes(type);
    const uint32_t elems = quant_stored_elems(type);

    ck_assert_uint_eq(strlen(hex), 2 * n);
    ck_assert_uint_eq(json_array_size(values), elems);
    for (size_t i = 0; i < n; i++) {
        const char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};

        bytes[1 + i] = bytes[1 + n + i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    quant_to_float(type, bytes + 1, 2 * elems, y);
    for (uint32_t i = 0; i < 2 * elems; i++) {
        float want = (float)json_number_value(json_array_get(values, i % elems));

        if (y[i] != want)
            ck_abort_msg("%s: element %u is %.9g, expected %.9g", name, i, (double)y[i],
                         (double)want);
    }
    ck_assert(quant_is_finite(type, bytes + 1));
}

START_TEST(known_blocks_have_their_values)
{
    json_t *file = json_load_file(golden_path("quant_blocks.json"), 0, NULL), *j;
    size_t i, n = 0;

    json_array_foreach(json_object_get(file, "blocks"), i, j)
    {
        const char *name = json_string_value(json_object_get(j, "type"));
        uint32_t type = type_by_name(name);

        ck_assert_uint_lt(type, N_IDS);
        if (!quant_is(type))
            continue;
        check_block(type, name, j);
        n++;
    }
    ck_assert_uint_eq(n, N_FORMATS);
    json_decref(file);
}
END_TEST

START_TEST(sizes_are_those_of_the_file_format)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < N_IDS; t++) {
        uint32_t elems, bytes;

        if (!quant_is(t))
            continue;
        n++;
        ck_assert(tensor_type_block(t, &elems, &bytes));
        ck_assert_uint_eq(quant_stored_elems(t), elems);
        ck_assert_uint_eq(quant_stored_bytes(t), bytes);
    }
    ck_assert_uint_eq(n, N_FORMATS);
    ck_assert(!quant_is(TENSOR_F32) && !quant_is(TENSOR_F16) && !quant_is(TENSOR_BF16));
}
END_TEST

START_TEST(scales_of_mxfp4_reach_from_subnormal_to_nan)
{
    for (int e = 0; e < 255; e++)
        ck_assert(quant_mxfp4_scale((uint8_t)e) == ldexpf(1, e - 128));
    ck_assert(isnan(quant_mxfp4_scale(255)));
}
END_TEST

/* The integers of every format stay where the kernels expect them (engine/cpu/quant_simd.h). */
START_TEST(random_blocks_have_integers_in_range)
{
    static const struct {
        uint32_t type;
        int lo, hi;
    } ranges[] = {
        {TENSOR_Q4_0, -8, 7},     {TENSOR_Q4_1, 0, 15},       {TENSOR_Q5_0, -16, 15},
        {TENSOR_Q5_1, 0, 31},     {TENSOR_Q2_K, 0, 3},        {TENSOR_Q3_K, -4, 3},
        {TENSOR_Q4_K, 0, 15},     {TENSOR_Q5_K, 0, 31},       {TENSOR_Q6_K, -32, 31},
        {TENSOR_IQ2_XS, -43, 43}, {TENSOR_IQ3_XXS, -62, 62},  {TENSOR_IQ3_S, -15, 15},
        {TENSOR_MXFP4, -12, 12},  {TENSOR_IQ4_NL, -127, 113}, {TENSOR_IQ4_XS, -127, 113},
    };

    for (size_t t = 0; t < sizeof ranges / sizeof *ranges; t++) {
        int lo = 127, hi = -128;

        for (int n = 0; n < 200; n++) {
            uint8_t bytes[MAX_BYTES];
            struct quant_block r;

            for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)(rand() >> 8);
            quant_read(ranges[t].type, bytes, 0, &r);
            for (int e = 0; e < QUANT_BLOCK; e++) {
                lo = r.q[e] < lo ? r.q[e] : lo;
                hi = r.q[e] > hi ? r.q[e] : hi;
            }
        }
        ck_assert_int_eq(lo, ranges[t].lo);
        ck_assert_int_eq(hi, ranges[t].hi);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("quant");
    TCase *t = tcase_create("blocks");
    SRunner *sr;
    int failed;

    tcase_add_test(t, known_blocks_have_their_values);
    tcase_add_test(t, sizes_are_those_of_the_file_format);
    tcase_add_test(t, scales_of_mxfp4_reach_from_subnormal_to_nan);
    tcase_add_test(t, random_blocks_have_integers_in_range);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
