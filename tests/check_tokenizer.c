/* SPDX-License-Identifier: Apache-2.0 */
/* engine/tokenizer: known ids, round trips, special tokens, ends of generation. */
#include "engine/tokenizer.h"

#include "engine/gguf.h"
#include "tests/golden.h"
#include "tests/tokfix.h"
#include "util/buf.h"
#include "util/err.h"
#include "util/utf8.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tokenize_options plain = {.add_special = false, .parse_special = false};
static const struct tokenize_options parse = {.add_special = false, .parse_special = true};
static const struct tokenize_options both = {.add_special = true, .parse_special = true};

static void must_open(struct tokfix *f)
{
    struct err_text e = {{0}};

    ck_assert_msg(tokfix_open(f, &e) == 0, "%s", e.s);
}

/* The ids of a text as "1 2 3"; bytes of printable ASCII are shown as themselves, "a 2 3". */
static const char *ids_of(const struct tokenizer *t, const char *s,
                          const struct tokenize_options *o)
{
    static char out[4096];
    struct token_list l = {0};
    size_t len = 0;

    ck_assert_int_eq(tokenizer_encode(t, s, strlen(s), o, &l), 0);
    out[0] = '\0';
    for (size_t i = 0; i < l.n && len < sizeof(out) - 16; i++) {
        const char *space = i ? " " : "";

        if (l.ids[i] > ' ' && l.ids[i] < 127)
            len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%c", space, l.ids[i]);
        else
            len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%d", space, l.ids[i]);
    }
    token_list_done(&l);
    return out;
}

static void must_round_trip(const struct tokenizer *t, const char *s, size_t n,
                            const struct tokenize_options *o, const char *want, size_t n_want)
{
    struct token_list l = {0};
    struct buf b = {0};

    ck_assert_int_eq(tokenizer_encode(t, s, n, o, &l), 0);
    ck_assert_int_eq(tokenizer_decode(t, l.ids, l.n, true, &b), 0);
    ck_assert_uint_eq(b.len, n_want);
    ck_assert(n_want == 0 || memcmp(b.data, want, n_want) == 0);
    buf_done(&b);
    token_list_done(&l);
}

START_TEST(the_prompts_of_the_reference_model_get_the_reference_ids)
{
    struct err_text e = {{0}};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct golden *cases;
    size_t n_cases = golden_load("needle.jsonl", &cases), n_ends;

    ck_assert_uint_eq(n_cases, 30);
    ck_assert_msg(gguf_open(golden_path("needle-f16.gguf"), &g, &e) == 0, "%s", e.s);
    ck_assert_msg(tokenizer_new(g, &t, &e) == 0, "%s", e.s);
    for (size_t i = 0; i < n_cases; i++) {
        const char *s = cases[i].prompt_text;
        struct token_list l = {0};

        ck_assert_int_eq(tokenizer_encode(t, s, strlen(s), &parse, &l), 0);
        ck_assert_uint_eq(l.n, cases[i].prompt.n);
        ck_assert(memcmp(l.ids, cases[i].prompt.ids, l.n * sizeof(*l.ids)) == 0);
        token_list_done(&l);
        must_round_trip(t, s, strlen(s), &parse, s, strlen(s));
        must_round_trip(t, s, strlen(s), &plain, s, strlen(s));
    }
    /* <|endoftext|> by its text, <|im_end|> by both. */
    ck_assert_int_eq(tokenizer_end_ids(t, &n_ends)[0], 0);
    ck_assert_int_eq(tokenizer_end_ids(t, &n_ends)[1], 2);
    ck_assert_uint_eq(n_ends, 2);
    ck_assert_int_eq(tokenizer_eos(t), 2);
    golden_free(cases, n_cases);
    tokenizer_free(t);
    gguf_free(g);
}
END_TEST

/* --- merging --- */

START_TEST(a_merge_whose_product_is_no_token_still_leads_further)
{
    static const struct tokfix_token more[] = {{"abc", TOKEN_NORMAL}};
    static const char *const merges[] = {"a b", "ab c", "d e", "a b"};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 1, merges, 4);
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "abc", &plain), "256");
    ck_assert_str_eq(ids_of(f.tok, "abab", &plain), "a b a b");
    ck_assert_str_eq(ids_of(f.tok, "dede", &plain), "d e d e");
    tokfix_done(&f);
}
END_TEST

START_TEST(a_piece_that_is_a_token_needs_no_merges_in_the_llama3_family_only)
{
    static const struct tokfix_token more[] = {{"word", TOKEN_NORMAL}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 1, NULL, 0);
    ggufw_str(&f.w, "tokenizer.ggml.pre", "llama-bpe");
    ggufw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "word words", &both), "256 32 w o r d s");
    ggufw_str(&f.w, "tokenizer.ggml.pre", "qwen2");
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "word", &both), "w o r d");
    tokfix_done(&f);
}
END_TEST

/* --- round trips --- */

static void repaired(const char *s, size_t n, struct buf *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        char c[4];

        ck_assert_int_eq(buf_add(out, c, utf8_encode(utf8_decode(s + i, n - i, &len), c)), 0);
    }
}

/* _i is the seed. */
START_TEST(any_text_comes_back_and_bytes_that_are_none_as_the_replacement)
{
    static const char *const pre[] = {"default", "gpt-2", "smollm", "llama3", "qwen2", "qwen35"};
    static const struct tokfix_token more[] = {{"ab", TOKEN_NORMAL},
                                               {"\xC4\xA0t", TOKEN_NORMAL},
                                               {"<|x|>", TOKEN_CONTROL},
                                               {"<u>", TOKEN_USER}};
    static const char *const merges[] = {"a b", "\xC4\xA0 t"};
    static const char *const bits[] = {"ab",
                                       " t",
                                       "<|x|>",
                                       "<u>",
                                       "<|x|",
                                       "12345",
                                       "\n\n ",
                                       "'ll",
                                       "\xC3\xA9",
                                       "\xE4\xB8\xAD",
                                       "\xF0\x9F\x98\x80",
                                       "\xCC\x81",
                                       "\xE3\x80\x80",
                                       "\xC2\xA0",
                                       "\xEF\xBF\xBD",
                                       "\xE2\x82",
                                       "\xFF",
                                       "\x80"};
    unsigned int seed = (unsigned int)_i;
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 4, merges, 2);
    ggufw_str(&f.w, "tokenizer.ggml.pre", pre[_i % 6]);
    ggufw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    must_open(&f);
    for (int round = 0; round < 100; round++) {
        struct buf s = {0}, want = {0};
        int n = rand_r(&seed) % 40;

        for (int i = 0; i < n; i++) {
            char any = (char)(rand_r(&seed) % 128);

            if (rand_r(&seed) % 3)
                ck_assert_int_eq(
                    buf_addz(&s, bits[(size_t)rand_r(&seed) % (sizeof(bits) / sizeof(bits[0]))]),
                    0);
            else
                ck_assert_int_eq(buf_add(&s, &any, 1), 0);
        }
        ck_assert_int_eq(buf_reserve(&s, 1), 0);
        repaired(s.data, s.len, &want);
        must_round_trip(f.tok, s.data, s.len, &plain, want.data, want.len);
        must_round_trip(f.tok, s.data, s.len, &parse, want.data, want.len);
        buf_done(&s);
        buf_done(&want);
    }
    tokfix_done(&f);
}
END_TEST

START_TEST(the_empty_text_has_no_ids)
{
    struct tokfix f = {0};
    struct token_list l = {0};

    tokfix_bytes(&f, NULL, 0, NULL, 0);
    must_open(&f);
    ck_assert_int_eq(tokenizer_encode(f.tok, NULL, 0, &parse, &l), 0);
    ck_assert_uint_eq(l.n, 0);
    tokfix_done(&f);
}
END_TEST

/* --- special tokens --- */

START_TEST(special_tokens_are_found_as_their_kind_allows)
{
    static const struct tokfix_token more[] = {
        {"<|c|>", TOKEN_CONTROL}, {"<u>", TOKEN_USER},    {"<unk>", TOKEN_UNKNOWN},
        {"<n>", TOKEN_UNUSED},    {"<u><u>", TOKEN_USER}, {"<u><|c|>", TOKEN_CONTROL}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 6, NULL, 0);
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "<|c|><u>", &parse), "256 257");
    ck_assert_str_eq(ids_of(f.tok, "<|c|><u>", &plain), "< | c | > 257");
    ck_assert_str_eq(ids_of(f.tok, "<unk>", &parse), "258");
    ck_assert_str_eq(ids_of(f.tok, "<unk>", &plain), "< u n k >");
    ck_assert_str_eq(ids_of(f.tok, "<n>", &parse), "< n >");
    /* The longest one wins; what is left of a beginning is text. */
    ck_assert_str_eq(ids_of(f.tok, "<u><u><u>", &parse), "260 257");
    ck_assert_str_eq(ids_of(f.tok, "<u><|c|>", &parse), "261");
    ck_assert_str_eq(ids_of(f.tok, "<u><|c|", &parse), "257 < | c |");
    ck_assert_str_eq(ids_of(f.tok, "a<u><u", &plain), "a 257 < u");

    ck_assert_int_eq(tokenizer_find_special(f.tok, "<u>"), 257);
    ck_assert_int_eq(tokenizer_find_special(f.tok, "<|c|>"), 256);
    ck_assert_int_eq(tokenizer_find_special(f.tok, "<unk>"), -1);
    ck_assert_int_eq(tokenizer_find_special(f.tok, "<u"), -1);
    ck_assert_int_eq(tokenizer_find_special(f.tok, "<u>x"), -1);
    ck_assert_int_eq(tokenizer_find_special(f.tok, ""), -1);
    ck_assert_int_eq(tokenizer_find_special(f.tok, "a"), -1);
    tokfix_done(&f);
}
END_TEST

START_TEST(pieces_are_bytes_and_hidden_kinds_show_only_when_asked)
{
    static const struct tokfix_token more[] = {{"<|c|>", TOKEN_CONTROL},
                                               {"\xC4\xA0user", TOKEN_USER},
                                               {"\xC4\xA0norm\xC3\xA9", TOKEN_NORMAL},
                                               {"<0x0A>", TOKEN_BYTE},
                                               {"[PAD1]", TOKEN_UNUSED},
                                               {"\xE4\xB8\xAD", TOKEN_NORMAL},
                                               {"bad\xFFutf", TOKEN_NORMAL},
                                               {"", TOKEN_NORMAL}};
    static const struct {
        int32_t id;
        const char *shown, *special;
    } want[] = {{'a', "a", "a"},
                {0, "", ""}, /* one NUL byte */
                {0xE9, "\xE9", "\xE9"},
                {256, "", "<|c|>"},
                {257, "\xC4\xA0user", "\xC4\xA0user"},
                {258, " norm\xE9", " norm\xE9"},
                {259, "\n", "\n"},
                {260, "", "[PAD1]"},
                {261, "\xE4\xB8\xAD", "\xE4\xB8\xAD"},
                {262, "bad\xFFutf", "bad\xFFutf"},
                {263, "", ""},
                {264, "", ""},
                {-1, "", ""},
                {INT32_MIN, "", ""}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 8, NULL, 0);
    must_open(&f);
    ck_assert_uint_eq(tokenizer_n_vocab(f.tok), 264);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        for (int special = 0; special < 2; special++) {
            const char *text = special ? want[i].special : want[i].shown, *got;
            size_t n;

            got = tokenizer_piece(f.tok, want[i].id, special, &n);
            ck_assert_uint_eq(n, want[i].id == 0 ? 1 : strlen(text));
            ck_assert(memcmp(got, text, n) == 0);
        }
    }
    ck_assert_int_eq(tokenizer_kind(f.tok, 256), TOKEN_CONTROL);
    ck_assert_int_eq(tokenizer_kind(f.tok, 264), TOKEN_UNUSED);
    tokfix_done(&f);
}
END_TEST

START_TEST(begin_and_end_are_added_as_file_and_family_say)
{
    static const struct tokfix_token more[] = {{"<s>", TOKEN_CONTROL}, {"</s>", TOKEN_CONTROL}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 2, NULL, 0);
    ggufw_u32(&f.w, "tokenizer.ggml.bos_token_id", 256);
    ggufw_u32(&f.w, "tokenizer.ggml.eos_token_id", 257);
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "a", &both), "a");

    ggufw_str(&f.w, "tokenizer.ggml.pre", "llama-bpe");
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "a", &both), "256 a");
    ck_assert_str_eq(ids_of(f.tok, "a", &parse), "a");

    ggufw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    ggufw_bool(&f.w, "tokenizer.ggml.add_eos_token", true);
    must_open(&f);
    ck_assert_str_eq(ids_of(f.tok, "a", &both), "a 257");
    tokfix_done(&f);
}
END_TEST

static const char *ends_of(const struct tokenizer *t)
{
    static char out[256];
    size_t n, len = 0;
    const int32_t *ids = tokenizer_end_ids(t, &n);

    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, sizeof(out) - len, i ? " %d" : "%d", ids[i]);
    return out;
}

START_TEST(generations_end_on_keys_and_on_known_spellings)
{
    static const struct tokfix_token more[] = {
        {"<|im_end|>", TOKEN_NORMAL},   {"<|endoftext|>", TOKEN_USER}, {"<|fim_pad|>", TOKEN_USER},
        {"<|fim_prefix|>", TOKEN_USER}, {"<|end|>", TOKEN_CONTROL},    {"<|call|>", TOKEN_CONTROL},
        {"<|channel|>", TOKEN_CONTROL}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 7, NULL, 0);
    ggufw_u32(&f.w, "tokenizer.ggml.eos_token_id", 'e');
    ggufw_u32(&f.w, "tokenizer.ggml.eot_token_id", 4000000000u);
    must_open(&f);
    ck_assert_str_eq(ends_of(f.tok), "101 256 257 258 260 261");
    /* Found by spelling, so hidden and not found in plain text. */
    ck_assert_int_eq(tokenizer_kind(f.tok, 256), TOKEN_CONTROL);
    ck_assert_int_eq(tokenizer_kind(f.tok, 259), TOKEN_CONTROL);
    ck_assert_str_eq(ids_of(f.tok, "<|im_end|>", &parse), "256");
    ck_assert_str_eq(ids_of(f.tok, "<|fim_pad|>", &plain), "< | f i m _ p a d | >");
    ck_assert_int_eq(tokenizer_kind(f.tok, 262), TOKEN_CONTROL);
    /* A key decides before a spelling does. */
    ggufw_u32(&f.w, "tokenizer.ggml.fim_pre_token_id", 'p');
    ggufw_u32(&f.w, "tokenizer.ggml.fim_pad_token_id", 'q');
    must_open(&f);
    ck_assert_int_eq(tokenizer_kind(f.tok, 259), TOKEN_USER);
    ck_assert_str_eq(ends_of(f.tok), "101 113 256 257 260 261");
    tokfix_done(&f);
}
END_TEST

START_TEST(the_end_of_a_message_part_does_not_end_a_generation)
{
    static const struct tokfix_token more[] = {{"<|end|>", TOKEN_CONTROL},
                                               {"<|return|>", TOKEN_CONTROL},
                                               {"<|call|>", TOKEN_CONTROL},
                                               {"<|channel|>", TOKEN_CONTROL}};
    struct tokfix f = {0};

    tokfix_bytes(&f, more, 4, NULL, 0);
    must_open(&f);
    ck_assert_str_eq(ends_of(f.tok), "257 258");
    ck_assert_int_eq(tokenizer_kind(f.tok, 259), TOKEN_USER);
    tokfix_done(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *t = tcase_create("tokenizer");
    SRunner *runner;
    int failed;

    tcase_add_test(t, the_prompts_of_the_reference_model_get_the_reference_ids);
    tcase_add_test(t, a_merge_whose_product_is_no_token_still_leads_further);
    tcase_add_test(t, a_piece_that_is_a_token_needs_no_merges_in_the_llama3_family_only);
    tcase_add_loop_test(t, any_text_comes_back_and_bytes_that_are_none_as_the_replacement, 0, 24);
    tcase_add_test(t, the_empty_text_has_no_ids);
    tcase_add_test(t, special_tokens_are_found_as_their_kind_allows);
    tcase_add_test(t, pieces_are_bytes_and_hidden_kinds_show_only_when_asked);
    tcase_add_test(t, begin_and_end_are_added_as_file_and_family_say);
    tcase_add_test(t, generations_end_on_keys_and_on_known_spellings);
    tcase_add_test(t, the_end_of_a_message_part_does_not_end_a_generation);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
