/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers from arrays that nobody should have written, and from too little memory. */
#include "engine/tokenizer.h"

#include "engine/gguf.h"
#include "tests/tokfix.h"
#include "tests/wrap_alloc.h"
#include "util/buf.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenize_options plain = {.add_special = false, .parse_special = false};
static const struct tokenize_options parse = {.add_special = false, .parse_special = true};

static const struct tokfix_token more[] = {{"ab", TOKEN_NORMAL}, {"<|c|>", TOKEN_CONTROL}};
static const char *const merges[] = {"a b"};

static void good(struct tokfix *f)
{
    tokfix_bytes(f, more, 2, merges, 1);
}

static void strings(struct tokfix *f, const char *key, const char *const *s, size_t n)
{
    ggufw_strs(&f->w, key, s, n);
}

#define STRINGS(f, key, ...)                                                                       \
    strings(f, key, (const char *const[]){__VA_ARGS__},                                            \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void no_model(struct tokfix *f)
{
    ggufw_drop(&f->w, "tokenizer.ggml.model");
}

static void odd_model(struct tokfix *f)
{
    ggufw_str(&f->w, "tokenizer.ggml.model", "\"\n\x1b[31m");
}

static void model_is_a_number(struct tokfix *f)
{
    ggufw_u32(&f->w, "tokenizer.ggml.model", 2);
}

static void unknown_pre(struct tokfix *f)
{
    ggufw_str(&f->w, "tokenizer.ggml.pre", "qwen99");
}

static void spm_without_scores(struct tokfix *f)
{
    ggufw_str(&f->w, "tokenizer.ggml.model", "llama");
}

static void spm_with_one_score(struct tokfix *f)
{
    spm_without_scores(f);
    ggufw_array(&f->w, "tokenizer.ggml.scores", GGUFW_F32, 1, "1234", 4);
}

static void spm_with_words_as_scores(struct tokfix *f)
{
    spm_without_scores(f);
    STRINGS(f, "tokenizer.ggml.tokens", "a", "b");
    ggufw_drop(&f->w, "tokenizer.ggml.token_type");
    STRINGS(f, "tokenizer.ggml.scores", "high", "low");
}

static void no_tokens(struct tokfix *f)
{
    ggufw_drop(&f->w, "tokenizer.ggml.tokens");
}

static void empty_tokens(struct tokfix *f)
{
    ggufw_array(&f->w, "tokenizer.ggml.tokens", GGUFW_STR, 0, "", 0);
}

static void tokens_are_numbers(struct tokfix *f)
{
    ggufw_array(&f->w, "tokenizer.ggml.tokens", GGUFW_U32, 2, "12345678", 8);
}

static void tokens_is_a_string(struct tokfix *f)
{
    ggufw_str(&f->w, "tokenizer.ggml.tokens", "abc");
}

static void short_types(struct tokfix *f)
{
    ggufw_array(&f->w, "tokenizer.ggml.token_type", GGUFW_I32, 1, "\1\0\0\0", 4);
}

static void types_are_strings(struct tokfix *f)
{
    STRINGS(f, "tokenizer.ggml.tokens", "a", "b");
    STRINGS(f, "tokenizer.ggml.token_type", "1", "2");
}

static void long_special(struct tokfix *f)
{
    static char s[1026];
    static const int32_t kinds[] = {1, 4};

    memset(s, 'a', sizeof(s) - 1);
    STRINGS(f, "tokenizer.ggml.tokens", "x", s);
    ggufw_array(&f->w, "tokenizer.ggml.token_type", GGUFW_I32, 2, kinds, sizeof(kinds));
}

static void merges_are_numbers(struct tokfix *f)
{
    ggufw_array(&f->w, "tokenizer.ggml.merges", GGUFW_U32, 1, "1234", 4);
}

static void merge_without_space(struct tokfix *f)
{
    STRINGS(f, "tokenizer.ggml.merges", "a b", "ab");
}

static void merge_without_left(struct tokfix *f)
{
    STRINGS(f, "tokenizer.ggml.merges", " b");
}

static void merge_without_right(struct tokfix *f)
{
    STRINGS(f, "tokenizer.ggml.merges", "a ");
}

static void empty_merge(struct tokfix *f)
{
    STRINGS(f, "tokenizer.ggml.merges", "");
}

static void add_bos_is_a_string(struct tokfix *f)
{
    ggufw_str(&f->w, "tokenizer.ggml.add_bos_token", "yes");
}

static const struct {
    void (*spoil)(struct tokfix *f);
    int code; /* 0: any error, the key reader's choice */
    const char *words[2];
} faults[] = {
    {no_model, ERR_DAMAGED, {"tokenizer.ggml.model", "missing"}},
    {odd_model, ERR_UNSUPPORTED, {"\\x1b", "SentencePiece"}},
    {model_is_a_number, 0, {"tokenizer.ggml.model", ""}},
    {unknown_pre, ERR_UNSUPPORTED, {"tokenizer.ggml.pre", "\"qwen99\""}},
    {spm_without_scores, ERR_DAMAGED, {"tokenizer.ggml.scores", "missing"}},
    {spm_with_one_score, ERR_DAMAGED, {"tokenizer.ggml.scores", "1 elements for 258"}},
    {spm_with_words_as_scores, ERR_DAMAGED, {"tokenizer.ggml.scores", "numbers"}},
    {no_tokens, ERR_DAMAGED, {"tokenizer.ggml.tokens", "missing"}},
    {empty_tokens, ERR_DAMAGED, {"tokenizer.ggml.tokens", "0 elements"}},
    {tokens_are_numbers, ERR_DAMAGED, {"tokenizer.ggml.tokens", "strings"}},
    {tokens_is_a_string, 0, {"tokenizer.ggml.tokens", ""}},
    {short_types, ERR_DAMAGED, {"tokenizer.ggml.token_type", "1 elements for 258"}},
    {types_are_strings, ERR_DAMAGED, {"tokenizer.ggml.token_type", "numbers"}},
    {long_special, ERR_DAMAGED, {"token 1 has 1025 bytes", "1024"}},
    {merges_are_numbers, ERR_DAMAGED, {"tokenizer.ggml.merges", "strings"}},
    {merge_without_space, ERR_DAMAGED, {"tokenizer.ggml.merges", "merge 1 "}},
    {merge_without_left, ERR_DAMAGED, {"tokenizer.ggml.merges", "merge 0 "}},
    {merge_without_right, ERR_DAMAGED, {"tokenizer.ggml.merges", "merge 0 "}},
    {empty_merge, ERR_DAMAGED, {"tokenizer.ggml.merges", "merge 0 "}},
    {add_bos_is_a_string, 0, {"tokenizer.ggml.add_bos_token", ""}},
};

/* _i is the fault. */
START_TEST(a_contradiction_is_refused_by_name)
{
    struct tokfix f = {0};
    struct err_text e = {{0}};
    int r;

    good(&f);
    ck_assert_int_eq(tokfix_open(&f, &e), 0);
    faults[_i].spoil(&f);
    r = tokfix_open(&f, &e);
    ck_assert_int_lt(r, 0);
    ck_assert(faults[_i].code == 0 || r == faults[_i].code);
    ck_assert_ptr_null(f.tok);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(strstr(e.s, faults[_i].words[k]), "\"%s\" lacks \"%s\"", e.s,
                      faults[_i].words[k]);
    ck_assert_ptr_nonnull(strstr(e.s, "fixture"));
    /* And without anybody who wants the words. */
    ck_assert_int_eq(tokfix_open(&f, NULL), r);
    tokfix_done(&f);
}
END_TEST

static void must_encode(const struct tokenizer *t, const char *s, const struct tokenize_options *o,
                        size_t n, ...)
{
    struct token_list l = {0};
    va_list ap;

    ck_assert_int_eq(tokenizer_encode(t, s, strlen(s), o, &l), 0);
    ck_assert_uint_eq(l.n, n);
    va_start(ap, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(l.ids[i], va_arg(ap, int));
    va_end(ap);
    token_list_done(&l);
}

START_TEST(of_equal_tokens_and_equal_merges_the_first_counts)
{
    static const int32_t kinds[] = {1, 1, 1, 1, 3, 3, 1};
    struct tokfix f = {0};

    good(&f);
    STRINGS(&f, "tokenizer.ggml.tokens", "a", "b", "ab", "ab", "<c>", "<c>", "b");
    ggufw_array(&f.w, "tokenizer.ggml.token_type", GGUFW_I32, 7, kinds, sizeof(kinds));
    STRINGS(&f, "tokenizer.ggml.merges", "a b", "b a", "a b");
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    /* With the later rank, "b a" would win in "aba" too late to matter and in "bab" not at all. */
    must_encode(f.tok, "abab<c>b", &parse, 4, 2, 2, 4, 1);
    must_encode(f.tok, "bab", &plain, 2, 1, 2);
    tokfix_done(&f);
}
END_TEST

START_TEST(bytes_without_a_token_are_dropped)
{
    struct tokfix f = {0};

    good(&f);
    ggufw_drop(&f.w, "tokenizer.ggml.token_type");
    STRINGS(&f, "tokenizer.ggml.tokens", "a", "b");
    STRINGS(&f, "tokenizer.ggml.merges", "x y", "xy a", "a b");
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    must_encode(f.tok, "xyab\xC3\xA9 ", &plain, 2, 0, 1);
    must_encode(f.tok, "ab", &plain, 2, 0, 1);
    must_encode(f.tok, "zzz", &plain, 0);
    tokfix_done(&f);
}
END_TEST

START_TEST(merges_outside_the_byte_alphabet_never_apply)
{
    struct tokfix f = {0};

    good(&f);
    /* U+4E2D stands for no byte; a second space is no byte either. */
    STRINGS(&f, "tokenizer.ggml.merges", "\xE4\xB8\xAD a", "a b c", "\xFF b", "a b");
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    must_encode(f.tok,
                "\xE4\xB8\xAD"
                "ab",
                &plain, 4, 0xE4, 0xB8, 0xAD, 256);
    tokfix_done(&f);
}
END_TEST

START_TEST(kinds_and_ids_that_do_not_exist_are_ignored)
{
    static const int32_t kinds[] = {0, -1, 7, INT32_MAX};
    struct tokfix f = {0};
    size_t n;

    good(&f);
    STRINGS(&f, "tokenizer.ggml.tokens", "a", "b", "c", "d");
    ggufw_array(&f.w, "tokenizer.ggml.token_type", GGUFW_I32, 4, kinds, sizeof(kinds));
    ggufw_u32(&f.w, "tokenizer.ggml.bos_token_id", 4);
    ggufw_i32(&f.w, "tokenizer.ggml.eos_token_id", -1);
    ggufw_str(&f.w, "tokenizer.ggml.eot_token_id", "3");
    ggufw_bool(&f.w, "tokenizer.ggml.add_bos_token", true);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(tokenizer_kind(f.tok, i), TOKEN_NORMAL);
    ck_assert_int_eq(tokenizer_bos(f.tok), -1);
    ck_assert_int_eq(tokenizer_eos(f.tok), -1);
    (void)tokenizer_end_ids(f.tok, &n);
    ck_assert_uint_eq(n, 0);
    must_encode(f.tok, "abcd",
                &(struct tokenize_options){.add_special = true, .parse_special = true}, 4, 0, 1, 2,
                3);
    tokfix_done(&f);
}
END_TEST

START_TEST(without_keys_id_11_begins_and_ends_only_as_a_control_token)
{
    static int32_t kinds[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct tokfix f = {0};

    good(&f);
    STRINGS(&f, "tokenizer.ggml.tokens", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
            "l");
    ggufw_array(&f.w, "tokenizer.ggml.token_type", GGUFW_I32, 12, kinds, sizeof(kinds));
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_int_eq(tokenizer_eos(f.tok), -1);
    kinds[11] = TOKEN_CONTROL;
    ggufw_array(&f.w, "tokenizer.ggml.token_type", GGUFW_I32, 12, kinds, sizeof(kinds));
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_int_eq(tokenizer_eos(f.tok), 11);
    ck_assert_int_eq(tokenizer_bos(f.tok), 11);
    tokfix_done(&f);
}
END_TEST

START_TEST(the_vocabulary_takes_memory_in_proportion_to_the_file)
{
    struct tokfix f = {0};
    struct tokenizer *t = NULL;
    size_t before;

    good(&f);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    before = wrap_alloc_total();
    ck_assert_int_eq(tokenizer_new(f.gguf, &t, NULL), 0);
    /* 512 KiB are the table of pairs of bytes. */
    ck_assert_uint_lt(wrap_alloc_total() - before, (576 << 10) + 16 * f.file.len);
    tokenizer_free(t);
    tokfix_done(&f);
}
END_TEST

/* _i: byte-level BPE, or SentencePiece. */
static void good_of(int i, struct tokfix *f)
{
    static const struct tokfix_piece pieces[] = {
        {"ab", TOKEN_NORMAL, -1}, {"abba", TOKEN_NORMAL, -2}, {"<|c|>", TOKEN_CONTROL, 0}};

    if (i == 0)
        good(f);
    else
        tokfix_spm(f, pieces, 3);
}

START_TEST(every_allocation_may_fail_while_opening)
{
    struct tokfix f = {0};
    struct tokenizer *t = NULL;
    int r = -ENOMEM;
    long n;

    good_of(_i, &f);
    /* Private symbols make the tables grow. */
    if (_i == 0)
        STRINGS(&f, "tokenizer.ggml.merges", "x y", "xy z", "p q", "pq r", "pqr s", "a b");
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    for (n = 0; r < 0; n++) {
        struct err_text e = {{0}};

        wrap_alloc_fail_after(n);
        r = tokenizer_new(f.gguf, &t, &e);
        wrap_alloc_fail_after(-1);
        ck_assert(r == 0 || (r == -ENOMEM && !t && e.s[0]));
    }
    ck_assert_int_gt(n, 6);
    tokenizer_free(t);
    tokfix_done(&f);
}
END_TEST

START_TEST(every_allocation_may_fail_while_encoding)
{
    struct tokfix f = {0};
    struct token_list l = {0};
    struct buf text = {0};
    int r = -ENOMEM;
    long n;

    good_of(_i, &f);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    /* Long pieces, special tokens, and a byte that has to be replaced. */
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(buf_addz(&text, i % 50 ? "ab" : "<|c|> \xFF"), 0);
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(buf_addz(&text, "ba"), 0);
    ck_assert_int_eq(token_list_add(&l, 7), 0);
    for (n = 0; r < 0; n++) {
        wrap_alloc_fail_after(n);
        r = tokenizer_encode(f.tok, text.data, text.len, &parse, &l);
        wrap_alloc_fail_after(-1);
        ck_assert(r == 0 || (r == -ENOMEM && l.n == 1 && l.ids[0] == 7));
    }
    ck_assert_int_gt(n, 5);
    ck_assert_uint_gt(l.n, 600);
    buf_done(&text);
    token_list_done(&l);
    tokfix_done(&f);
}
END_TEST

START_TEST(a_text_too_long_to_number_is_refused)
{
    struct tokfix f = {0};
    struct token_list l = {0};

    good(&f);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_int_eq(tokenizer_encode(f.tok, "", ((size_t)1 << 30) + 1, &plain, &l), -E2BIG);
    ck_assert_uint_eq(l.n, 0);
    tokfix_done(&f);
}
END_TEST

START_TEST(a_file_that_names_no_pretokenizer_is_doubted)
{
    struct tokfix f = {0};

    tokfix_bytes(&f, NULL, 0, NULL, 0);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_ptr_nonnull(strstr(tokenizer_doubt(f.tok), "tokenizer.ggml.pre"));
    ggufw_str(&f.w, "tokenizer.ggml.pre", "default");
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_ptr_null(tokenizer_doubt(f.tok));
    tokfix_done(&f);
    tokfix_spm(&f, NULL, 0);
    ck_assert_int_eq(tokfix_open(&f, NULL), 0);
    ck_assert_ptr_null(tokenizer_doubt(f.tok));
    tokfix_done(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tok_load");
    TCase *t = tcase_create("tok_load");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, a_contradiction_is_refused_by_name, 0,
                        sizeof(faults) / sizeof(faults[0]));
    tcase_add_test(t, of_equal_tokens_and_equal_merges_the_first_counts);
    tcase_add_test(t, bytes_without_a_token_are_dropped);
    tcase_add_test(t, merges_outside_the_byte_alphabet_never_apply);
    tcase_add_test(t, kinds_and_ids_that_do_not_exist_are_ignored);
    tcase_add_test(t, without_keys_id_11_begins_and_ends_only_as_a_control_token);
    tcase_add_test(t, the_vocabulary_takes_memory_in_proportion_to_the_file);
    tcase_add_loop_test(t, every_allocation_may_fail_while_opening, 0, 2);
    tcase_add_loop_test(t, every_allocation_may_fail_while_encoding, 0, 2);
    tcase_add_test(t, a_text_too_long_to_number_is_refused);
    tcase_add_test(t, a_file_that_names_no_pretokenizer_is_doubted);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
