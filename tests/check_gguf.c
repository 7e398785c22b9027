/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header and the keys of GGUF files: right ones, and every rule of the format broken on
 * purpose, with the words that the error must have.
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

START_TEST(keys_and_tensors_of_a_good_file_are_found)
{
    CLEANUP(ggufw_done) struct ggufw w = {.version = _i == 0 ? 2 : 3};
    CLEANUP(free_p) void *copy = NULL;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    const uint64_t dims[3] = {64, 3, 2};
    const char *const strs[] = {"a", "", "ccc"};
    const struct tensor *t;
    struct gguf_array a;
    struct gguf_str s;
    uint64_t v;

    ggufw_u32(&w, "z", 5);
    ggufw_str(&w, "a", "hello");
    ggufw_strs(&w, "list", strs, 3);
    (void)ggufw_tensor(&w, "two", TENSOR_Q8_0, 3, dims, NULL, 2 * 34 * 6);
    (void)hostile_add_f32(&w, "one", 5);
    g = hostile_accepted(&w, &copy);

    ck_assert_int_eq(gguf_get_u64(g, "z", 0, 9, &v, NULL), 1);
    ck_assert_uint_eq(v, 5);
    ck_assert_int_eq(gguf_get_str(g, "a", &s, NULL), 1);
    ck_assert(s.n == 5 && memcmp(s.s, "hello", 5) == 0);
    ck_assert_int_eq(gguf_get_array(g, "list", &a, NULL), 1);
    ck_assert_uint_eq(a.n, 3);
    for (uint64_t i = 0; i < 3; i++) {
        s = gguf_array_str(&a, i);
        ck_assert(s.n == strlen(strs[i]) && memcmp(s.s, strs[i], s.n) == 0);
    }
    ck_assert_uint_eq(gguf_n_tensors(g), 2);
    t = gguf_tensor_at(g, 0);
    ck_assert_ptr_eq(t, gguf_find(g, "two"));
    ck_assert_uint_eq(t->row_bytes, 68);
    ck_assert_uint_eq(t->n_bytes, 408);
    ck_assert_uint_eq(t->dims[3], 1);
    ck_assert_uint_eq(((const char *)gguf_find(g, "one")->data - (const char *)t->data), 416);
    ck_assert_ptr_null(gguf_find(g, "three"));
    ck_assert_ptr_null(gguf_find(g, ""));
}
END_TEST

START_TEST(a_file_without_keys_or_tensors_is_well_formed)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};

    hostile_is_accepted(&w);
    ggufw_u32(&w, "only.a.key", 1);
    hostile_is_accepted(&w);
}
END_TEST

START_TEST(fewer_bytes_than_a_header_are_refused)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};

    ggufw_bytes(&w, &b);
    ck_assert_uint_eq(b.len, 24);
    for (size_t n = 0; n < 24; n++)
        hostile_bytes_refused(b.data, n, ERR_DAMAGED, "too few for a GGUF header");
}
END_TEST

START_TEST(another_magic_version_or_byte_order_is_refused)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(buf_done) struct buf b = {0};

    ggufw_bytes(&w, &b);
    b.data[3] = 'f';
    hostile_bytes_refused(b.data, b.len, ERR_DAMAGED,
                          "not a GGUF file: it starts with 47 47 55 66");
    b.data[3] = 'F';
    memcpy(b.data + 4, "\0\0\0\3", 4);
    hostile_bytes_refused(b.data, b.len, ERR_UNSUPPORTED, "big-endian");
    memcpy(b.data + 4, "\0\0\0\0", 4);
    hostile_bytes_refused(b.data, b.len, ERR_UNSUPPORTED,
                          "GGUF version 0; versions 2 and 3 are read");
    b.data[4] = 1;
    hostile_bytes_refused(b.data, b.len, ERR_UNSUPPORTED, "GGUF version 1;");
    b.data[4] = 4;
    hostile_bytes_refused(b.data, b.len, ERR_UNSUPPORTED, "GGUF version 4;");
}
END_TEST

START_TEST(counts_that_the_file_has_no_room_for_are_refused_before_memory_is_taken)
{
    static const uint64_t counts[] = {3, 1 << 20, (1 << 20) + 1, UINT64_C(1) << 63, UINT64_MAX};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        CLEANUP(ggufw_done) struct ggufw w = {.force_counts = true};
        size_t before;

        ggufw_u32(&w, "key", 1);
        w.claim_keys = counts[i];
        before = wrap_alloc_total();
        hostile_refused(&w, ERR_DAMAGED, "keys; the file has room for 1,");
        w.claim_keys = 1;
        w.claim_tensors = counts[i];
        hostile_refused(&w, ERR_DAMAGED, "tensors; ");
        /* Both files, their copies and what the writer needed. */
        ck_assert_uint_le(wrap_alloc_total() - before, 4096);
    }
}
END_TEST

START_TEST(more_keys_or_tensors_than_a_million_are_refused)
{
    CLEANUP(buf_done) struct buf b = {0};
    CLEANUP(ggufw_done) struct ggufw w = {.force_counts = true};
    const size_t size = (size_t)25 << 20;

    w.claim_keys = (1 << 20) + 1;
    ggufw_bytes(&w, &b);
    ck_assert_int_eq(buf_reserve(&b, size), 0);
    memset(b.data + b.len, 0, size - b.len);
    hostile_bytes_refused(b.data, size, ERR_DAMAGED, "at most 1048576 are read");
    memset(b.data + 16, 0, 8);
    memcpy(b.data + 8, &w.claim_keys, 8);
    hostile_bytes_refused(b.data, size, ERR_DAMAGED, "at most 1048576 are read");
}
END_TEST

START_TEST(bad_key_names_are_refused)
{
    CLEANUP(free_p) char *longest = malloc(65536);
    CLEANUP(ggufw_done) struct ggufw w = {0}, w2 = {0}, w3 = {0}, w4 = {0}, w5 = {0}, w6 = {0};

    ck_assert_ptr_nonnull(longest);
    memset(longest, 'k', 65536);
    ggufw_add(&w, "", 0, GGUFW_BOOL, "\1", 1);
    hostile_refused(&w, ERR_DAMAGED, "key 0: a name of 0 bytes; expected 1 to 65535");
    ggufw_add(&w2, longest, 65536, GGUFW_BOOL, "\1", 1);
    hostile_refused(&w2, ERR_DAMAGED, "key 0: a name of 65536 bytes");
    ggufw_add(&w3, longest, 65535, GGUFW_BOOL, "\1", 1);
    hostile_is_accepted(&w3);
    ggufw_add(&w4, "a\0b", 3, GGUFW_BOOL, "\1", 1);
    hostile_refused(&w4, ERR_DAMAGED, "a NUL byte in its name \"a\\x00b\"");
    for (int i = 0; i < 40; i++)
        ggufw_add(&w5, i == 33 ? "key7" : longest + i, i == 33 ? 4 : 9 + (size_t)i, GGUFW_BOOL,
                  "\1", 1);
    hostile_is_accepted(&w5);
    ggufw_add(&w5, "key7", 4, GGUFW_U8, "\1", 1);
    hostile_refused(&w5, ERR_DAMAGED, "key \"key7\" occurs twice");
    ggufw_add(&w6, "\n\"\xff", 3, 77, "", 0);
    hostile_refused(&w6, ERR_DAMAGED, "key \"\\x0a\\x22\\xff\": value type 77");
}
END_TEST

START_TEST(bad_value_types_are_refused)
{
    CLEANUP(ggufw_done) struct ggufw w = {0}, w2 = {0}, w3 = {0};

    ggufw_put(&w, "k", 13, "\0\0\0\0\0\0\0\0", 8);
    hostile_refused(&w, ERR_DAMAGED, "key \"k\": value type 13; expected 0 to 12");
    ggufw_array(&w2, "k", GGUFW_ARRAY, 0, "", 0);
    hostile_refused(&w2, ERR_DAMAGED, "key \"k\": array of value type 9;");
    ggufw_array(&w3, "k", 13, 0, "", 0);
    hostile_refused(&w3, ERR_DAMAGED, "key \"k\": array of value type 13;");
}
END_TEST

START_TEST(arrays_longer_than_the_file_are_refused)
{
    static const struct {
        uint32_t type;
        uint64_t n;
        const char *words;
    } cases[] = {
        {GGUFW_U8, 9, "9 elements of u8, but 8 bytes are left"},
        {GGUFW_U16, 5, "5 elements of u16, but 8"},
        {GGUFW_F32, 3, "3 elements of f32, but 8"},
        {GGUFW_F64, 2, "2 elements of f64, but 8"},
        {GGUFW_STR, 2, "2 strings, but 8 bytes are left"},
        {GGUFW_U8, UINT64_MAX, "at most 1073741824 are read"},
        {GGUFW_U64, UINT64_C(1) << 61, "at most 1073741824 are read"},
        {GGUFW_STR, UINT64_C(1) << 61, "at most 1073741824 are read"},
        {GGUFW_U64, 1 << 30, "1073741824 elements of u64, but 8"},
        {GGUFW_STR, 1 << 30, "1073741824 strings, but 8"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(ggufw_done) struct ggufw w = {0};

        ggufw_array(&w, "k", cases[i].type, cases[i].n, "\0\0\0\0\0\0\0", 8);
        hostile_refused(&w, ERR_DAMAGED, cases[i].words);
    }
}
END_TEST

START_TEST(strings_longer_than_the_file_are_refused)
{
    static const uint64_t lengths[] = {1, 1 << 20, UINT64_C(1) << 31, INT64_MAX, UINT64_MAX};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        CLEANUP(ggufw_done) struct ggufw w = {0}, w2 = {0}, w3 = {0};
        CLEANUP(buf_done) struct buf b = {0};

        ggufw_put(&w, "k", GGUFW_STR, &lengths[i], 8);
        hostile_refused(&w, ERR_DAMAGED, "key \"k\": its string runs past the end");
        ggufw_array(&w2, "k", GGUFW_STR, 1, &lengths[i], 8);
        hostile_refused(&w2, ERR_DAMAGED, "key \"k\": string 0 of 1 runs past the end");
        ggufw_u32(&w3, "k", 0);
        ggufw_bytes(&w3, &b);
        memcpy(b.data + 24, &lengths[i], 8);
        if (lengths[i] > 1)
            hostile_bytes_refused(b.data, b.len, ERR_DAMAGED,
                                  "key 0 of 1: its name runs past the end");
    }
}
END_TEST

START_TEST(overlong_tokens_and_templates_are_refused)
{
    const size_t most_token = 64 << 10, most_template = 1 << 20;
    CLEANUP(free_p) char *text = malloc(most_template + 2);
    CLEANUP(ggufw_done) struct ggufw w = {0};
    const char *const strs[1] = {text};

    ck_assert_ptr_nonnull(text);
    memset(text, 'x', most_template + 1);
    text[most_template + 1] = '\0';
    ggufw_str(&w, "some.other.key", text);
    hostile_is_accepted(&w);
    ggufw_str(&w, "tokenizer.chat_template.rag", text);
    hostile_refused(
        &w, ERR_DAMAGED,
        "key \"tokenizer.chat_template.rag\": a chat template of 1048577 bytes; at most "
        "1048576");
    text[most_template] = '\0';
    ggufw_str(&w, "tokenizer.chat_template.rag", text);
    hostile_is_accepted(&w);
    text[most_token + 1] = '\0';
    ggufw_strs(&w, "tokens", strs, 1);
    hostile_refused(&w, ERR_DAMAGED, "key \"tokens\": string 0 has 65537 bytes; at most 65536");
    text[most_token] = '\0';
    ggufw_strs(&w, "tokens", strs, 1);
    hostile_is_accepted(&w);
}
END_TEST

START_TEST(alignment_is_a_u32_power_of_two_from_8_to_a_mebibyte)
{
    static const uint32_t bad[] = {0, 1, 4, 24, 33, 1 << 21, 1u << 31, UINT32_MAX};
    static const uint32_t good[] = {8, 16, 64, 4096, 1 << 20};
    CLEANUP(ggufw_done) struct ggufw w = {0};

    (void)hostile_add_f32(&w, "t", 1);
    (void)hostile_add_f32(&w, "u", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ggufw_u32(&w, "general.alignment", bad[i]);
        hostile_refused(&w, ERR_DAMAGED, "expected a power of two from 8 to 1048576");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ggufw_u32(&w, "general.alignment", good[i]);
        w.alignment = good[i];
        hostile_is_accepted(&w);
    }
    ggufw_i32(&w, "general.alignment", 32);
    hostile_refused(&w, ERR_DAMAGED, "key \"general.alignment\": found i32, expected u32");
    ggufw_array(&w, "general.alignment", GGUFW_U32, 1, "\x20\0\0", 4);
    hostile_refused(&w, ERR_DAMAGED, "found array, expected u32");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf");
    TCase *t = tcase_create("gguf");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, keys_and_tensors_of_a_good_file_are_found, 0, 2);
    tcase_add_test(t, a_file_without_keys_or_tensors_is_well_formed);
    tcase_add_test(t, fewer_bytes_than_a_header_are_refused);
    tcase_add_test(t, another_magic_version_or_byte_order_is_refused);
    tcase_add_test(t, counts_that_the_file_has_no_room_for_are_refused_before_memory_is_taken);
    tcase_add_test(t, more_keys_or_tensors_than_a_million_are_refused);
    tcase_add_test(t, bad_key_names_are_refused);
    tcase_add_test(t, bad_value_types_are_refused);
    tcase_add_test(t, arrays_longer_than_the_file_are_refused);
    tcase_add_test(t, strings_longer_than_the_file_are_refused);
    tcase_add_test(t, overlong_tokens_and_templates_are_refused);
    tcase_add_test(t, alignment_is_a_u32_power_of_two_from_8_to_a_mebibyte);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
