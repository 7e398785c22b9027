/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of GGUF files, and whole files cut off or changed at random.  Allocation is counted
 * and made to fail: a file must never make the reader take more than it justifies.
 */
#include "engine/gguf.h"

#include "tests/ggufw.h"
#include "tests/hostile.h"
#include "tests/wrap_alloc.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

START_TEST(bad_tensor_names_are_refused)
{
    char name[65];
    CLEANUP(ggufw_done) struct ggufw w = {0};
    struct ggufw_tensor *t = hostile_add_f32(&w, "t", 1);

    memset(name, 'n', sizeof name);
    name[64] = '\0';
    ggufw_name_tensor(t, "", 0);
    hostile_refused(&w, ERR_DAMAGED, "tensor 0: a name of 0 bytes; expected 1 to 63");
    ggufw_name_tensor(t, name, 64);
    hostile_refused(&w, ERR_DAMAGED, "tensor 0: a name of 64 bytes");
    ggufw_name_tensor(t, name, 63);
    hostile_is_accepted(&w);
    ggufw_name_tensor(t, "a\0b", 3);
    hostile_refused(&w, ERR_DAMAGED, "tensor 0: a NUL byte in its name \"a\\x00b\"");
    ggufw_name_tensor(t, "u", 1);
    for (int i = 0; i < 20; i++)
        (void)hostile_add_f32(&w, name + 1 + i, 1);
    (void)hostile_add_f32(&w, "u", 1);
    hostile_refused(&w, ERR_DAMAGED, "tensor \"u\" occurs twice");
}
END_TEST

START_TEST(bad_dimensions_are_refused)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    struct ggufw_tensor *t = hostile_add_f32(&w, "t", 1);

    t->n_dims = 0;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": 0 dimensions; expected 1 to 4");
    t->n_dims = 5;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": 5 dimensions; expected 1 to 4");
    t->n_dims = UINT32_MAX;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": 4294967295 dimensions; expected 1 to 4");
    t->n_dims = 4;
    for (int d = 0; d < 4; d++) {
        static const uint64_t bad[] = {0, (UINT64_C(1) << 40) + 1, UINT64_C(1) << 63, UINT64_MAX};

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            for (int k = 0; k < 4; k++)
                t->dims[k] = 1;
            hostile_is_accepted(&w);
            t->dims[d] = bad[i];
            hostile_refused(&w, ERR_DAMAGED, "; expected 1 to 2^40");
        }
    }
    for (int k = 0; k < 4; k++)
        t->dims[k] = UINT64_C(1) << 40;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": its size does not fit 64 bits");
    t->dims[0] = t->dims[1] = UINT64_C(1) << 32;
    t->dims[2] = t->dims[3] = 1;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": its size does not fit 64 bits");
    /* 2^62 elements of a quarter of a byte: the bytes fit, the file is too short. */
    t->type = 34;
    t->dims[0] = 256;
    t->dims[1] = UINT64_C(1) << 40;
    t->dims[2] = 1 << 14;
    hostile_refused(&w, ERR_DAMAGED, "the file is cut off or damaged");
    t->dims[2] = 1 << 15;
    hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": its size does not fit 64 bits");
}
END_TEST

START_TEST(every_type_of_the_format_has_its_size_and_no_other_id_passes)
{
    /* Id, elements, bytes. */
    static const uint16_t known[][3] = {
        {0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
        {7, 32, 24},    {8, 32, 34},    {9, 32, 36},    {10, 256, 84},  {11, 256, 110},
        {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {15, 256, 292}, {16, 256, 66},
        {17, 256, 74},  {18, 256, 98},  {19, 256, 50},  {20, 32, 18},   {21, 256, 110},
        {22, 256, 82},  {23, 256, 136}, {24, 1, 1},     {25, 1, 2},     {26, 1, 4},
        {27, 1, 8},     {28, 1, 8},     {29, 256, 56},  {30, 1, 2},     {34, 256, 54},
        {35, 256, 66},  {39, 32, 17},   {40, 64, 36},   {41, 128, 18},  {42, 64, 18},
    };
    size_t k = 0;

    for (uint32_t id = 0; id < 100; id++) {
        CLEANUP(ggufw_done) struct ggufw w = {0};
        CLEANUP(free_p) void *copy = NULL;
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        uint64_t dims[2] = {512, 3};
        uint32_t elems = 0, bytes = 0;

        if (k == sizeof known / sizeof *known || known[k][0] != id) {
            (void)ggufw_tensor(&w, "t", id, 2, dims, NULL, 1 << 14);
            hostile_refused(&w, ERR_UNSUPPORTED, "is not in the format");
            ck_assert(!tensor_type_block(id, &elems, &bytes));
            ck_assert_str_eq(tensor_type_name(id), "?");
            continue;
        }
        ck_assert(tensor_type_block(id, &elems, &bytes));
        ck_assert_uint_eq(elems, known[k][1]);
        ck_assert_uint_eq(bytes, known[k][2]);
        ck_assert_str_ne(tensor_type_name(id), "?");
        (void)ggufw_tensor(&w, "t", id, 2, dims, NULL, 512 / elems * bytes * 3);
        g = hostile_accepted(&w, &copy);
        ck_assert_uint_eq(gguf_tensor_at(g, 0)->row_bytes, 512 / elems * bytes);
        if (elems > 1) {
            w.tensors[0].dims[0] = 512 - elems / 2;
            hostile_refused(&w, ERR_DAMAGED, "needs a multiple of");
        }
        k++;
    }
    ck_assert_uint_eq(k, sizeof known / sizeof *known);
}
END_TEST

START_TEST(a_tensor_outside_the_data_section_is_refused)
{
    static const uint64_t bad[] = {64, 96, 1 << 20, UINT64_C(1) << 63, UINT64_MAX - 31};
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    struct ggufw_tensor *t;

    (void)hostile_add_f32(&w, "s", 1);
    t = hostile_add_f32(&w, "t", 3);
    t->force_offset = true;
    t->offset = 32;
    hostile_is_accepted(&w);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t->offset = bad[i];
        hostile_refused(&w, ERR_DAMAGED, "tensor \"t\": 12 bytes at offset ");
    }
    for (uint64_t o = 33; o < 64; o++) {
        t->offset = o;
        hostile_refused(&w, ERR_DAMAGED, "is not a multiple of the alignment 32");
    }
    /* The padding after the last tensor may be missing, its last byte may not. */
    t->offset = 32;
    ggufw_bytes(&w, &b);
    hostile_bytes_refused(b.data, b.len - 21, ERR_DAMAGED, "the file is cut off or damaged");
    b.len -= 20;
    {
        CLEANUP(free_p) void *copy = NULL;
        CLEANUP(gguf_freep) struct gguf *g = NULL;

        ck_assert_int_eq(hostile_open_exact(b.data, b.len, &g, &copy, NULL), 0);
    }
    w.no_data = true;
    hostile_refused(&w, ERR_DAMAGED,
                    "tensor \"s\": 4 bytes at offset 0, but the data section has 0 bytes");
}
END_TEST

START_TEST(overlapping_tensors_are_refused_and_gaps_and_order_are_not)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};

    (void)hostile_add_f32(&w, "a", 16);
    (void)hostile_add_f32(&w, "b", 16);
    (void)hostile_add_f32(&w, "c", 8);
    hostile_is_accepted(&w);
    for (size_t i = 0; i < 3; i++)
        w.tensors[i].force_offset = true;
    w.tensors[0].offset = 64;
    w.tensors[1].offset = 0;
    w.tensors[2].offset = 128;
    hostile_is_accepted(&w);
    w.tensors[0].offset = 32;
    hostile_refused(&w, ERR_DAMAGED, "tensors \"b\" and \"a\" overlap");
    w.tensors[0].offset = 0;
    hostile_refused(&w, ERR_DAMAGED, " overlap");
    w.tensors[0].offset = 96;
    hostile_refused(&w, ERR_DAMAGED, "tensors \"a\" and \"c\" overlap");
}
END_TEST

/* A file with something of everything. */
static void build_mixed(struct ggufw *w)
{
    const char *const strs[] = {"one", "", "three", "four"};
    const uint64_t dims[3] = {32, 2, 3};

    ggufw_str(w, "general.architecture", "llama");
    ggufw_u32(w, "general.alignment", 16);
    ggufw_strs(w, "strings", strs, 4);
    ggufw_array(w, "floats", GGUFW_F32, 3, "abcdefghijkl", 12);
    ggufw_array(w, "none", GGUFW_STR, 0, "", 0);
    ggufw_bool(w, "flag", true);
    w->alignment = 16;
    (void)hostile_add_f32(w, "t", 9);
    (void)ggufw_tensor(w, "q", TENSOR_Q8_0, 3, dims, NULL, 34 * 6);
    (void)ggufw_tensor(w, "h", TENSOR_F16, 2, dims, NULL, 128);
}

START_TEST(a_file_cut_off_anywhere_is_refused)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};

    build_mixed(&w);
    hostile_is_accepted(&w);
    ggufw_bytes(&w, &b);
    for (size_t n = 0; n < b.len; n++)
        hostile_bytes_refused(b.data, n, ERR_DAMAGED, "");
}
END_TEST

START_TEST(changed_bytes_are_refused_with_a_reason_or_give_a_sound_file)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    unsigned int seed = (unsigned int)_i;

    build_mixed(&w);
    ggufw_bytes(&w, &b);
    for (int round = 0; round < 500; round++) {
        CLEANUP(free_p) void *copy = NULL;
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct err_text e = {{0}};
        char old[4];
        size_t at[4], n = 1 + (size_t)rand_r(&seed) % 4, before;
        unsigned int sum = 0;

        for (size_t k = 0; k < n; k++) {
            at[k] = (size_t)rand_r(&seed) % b.len;
            old[k] = b.data[at[k]];
            b.data[at[k]] = rand_r(&seed) % 3 ? (char)rand_r(&seed) : (char)(old[k] ^ 1);
        }
        before = wrap_alloc_total();
        if (hostile_open_exact(b.data, b.len, &g, &copy, &e) < 0)
            ck_assert_msg(strlen(e.s) > 10, "no reason: %s", e.s);
        /* The copy of the file, and what the reader may need for it. */
        ck_assert_uint_le(wrap_alloc_total() - before, b.len + 6 * b.len + 1024);
        for (uint64_t i = 0; g && i < gguf_n_tensors(g); i++) {
            const struct tensor *t = gguf_tensor_at(g, i);

            for (uint64_t k = 0; k < t->n_bytes; k++)
                sum += ((const unsigned char *)t->data)[k];
        }
        ck_assert_uint_ge(sum, 0);
        while (n-- > 0)
            b.data[at[n]] = old[n];
    }
}
END_TEST

START_TEST(running_out_of_memory_is_an_ordinary_error)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};
    struct gguf *g = NULL;
    int r = -1, n = 0;

    build_mixed(&w);
    ggufw_bytes(&w, &b);
    for (; r < 0; n++) {
        struct err_text e = {{0}};

        wrap_alloc_fail_after(n);
        r = gguf_open_bytes(b.data, b.len, "file", &g, &e);
        wrap_alloc_fail_after(-1);
        ck_assert_int_lt(n, 100);
        if (r < 0) {
            ck_assert_int_eq(r, -ENOMEM);
            ck_assert_ptr_null(g);
            ck_assert_ptr_nonnull(strstr(e.s, "out of memory"));
        }
    }
    ck_assert_int_gt(n, 5);
    gguf_free(g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_tensors");
    TCase *t = tcase_create("gguf_tensors");
    SRunner *runner;
    int failed;

    tcase_add_test(t, bad_tensor_names_are_refused);
    tcase_add_test(t, bad_dimensions_are_refused);
    tcase_add_test(t, every_type_of_the_format_has_its_size_and_no_other_id_passes);
    tcase_add_test(t, a_tensor_outside_the_data_section_is_refused);
    tcase_add_test(t, overlapping_tensors_are_refused_and_gaps_and_order_are_not);
    tcase_add_test(t, a_file_cut_off_anywhere_is_refused);
    tcase_add_loop_test(t, changed_bytes_are_refused_with_a_reason_or_give_a_sound_file, 0, 16);
    tcase_add_test(t, running_out_of_memory_is_an_ordinary_error);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
