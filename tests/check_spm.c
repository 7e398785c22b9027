/* SPDX-License-Identifier: Apache-2.0 */
/* engine/tok_spm and what the tokenizer makes of it, on small vocabularies. */
#include "daemon/request.h"
#include "engine/tok_spm.h"
#include "engine/tokenizer.h"
#include "tests/tokfix.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/utf8.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "\xE2\x96\x81" /* U+2581 */

enum { FIRST = TOKFIX_BYTE + 256 };

static const struct tokenize_options plain = {.add_special = false, .parse_special = false};
static const struct tokenize_options parse = {.add_special = false, .parse_special = true};
static const struct tokenize_options both = {.add_special = true, .parse_special = true};

static const struct tokfix_piece words[] = {
    {SPACE, TOKEN_NORMAL, -20},        {"h", TOKEN_NORMAL, -21},  {"e", TOKEN_NORMAL, -22},
    {"l", TOKEN_NORMAL, -23},          {"o", TOKEN_NORMAL, -24},  {"el", TOKEN_NORMAL, -3},
    {"lo", TOKEN_NORMAL, -1},          {"hel", TOKEN_NORMAL, -4}, {"hello", TOKEN_NORMAL, -5},
    {SPACE "hello", TOKEN_NORMAL, -6}, {"</", TOKEN_NORMAL, -7},  {"s>", TOKEN_NORMAL, -8},
    {SPACE SPACE, TOKEN_NORMAL, -9},   {"<|x|>", TOKEN_USER, 0},  {"a b", TOKEN_NORMAL, 0},
    {"\xC3\xA9", TOKEN_NORMAL, -30},   {"<", TOKEN_NORMAL, -31},  {"/", TOKEN_NORMAL, -32},
    {"s", TOKEN_NORMAL, -33},          {">", TOKEN_NORMAL, -34},  {"un", TOKEN_UNUSED, 0},
    {" <c>", TOKEN_CONTROL, 0},
};
enum { N_WORDS = sizeof(words) / sizeof(words[0]) };

/* Tokens as text: "[hello][<0xC3>]". */
static const char *shown(const struct token_list *l, const struct tokfix_piece *pieces)
{
    static char out[4096];
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < l->n && len < sizeof(out) - 64; i++) {
        int32_t id = l->ids[i];

        if (id >= FIRST)
            len += (size_t)snprintf(out + len, sizeof(out) - len, "[%s]", pieces[id - FIRST].text);
        else if (id >= TOKFIX_BYTE)
            len += (size_t)snprintf(out + len, sizeof(out) - len, "[%02X]",
                                    (unsigned int)(id - TOKFIX_BYTE));
        else
            len += (size_t)snprintf(out + len, sizeof(out) - len, "[#%d]", id);
    }
    return out;
}

static void must_open(struct tokfix *f)
{
    struct err_text e = {{0}};

    ck_assert_msg(tokfix_open(f, &e) == 0, "%s", e.s);
}

static void must_encode(const struct tokenizer *t, const char *s, size_t n,
                        const struct tokenize_options *o, const char *want)
{
    CLEANUP(token_list_done) struct token_list l = {0};

    ck_assert_int_eq(tokenizer_encode(t, s, n, o, &l), 0);
    ck_assert_str_eq(shown(&l, words), want);
}

static void must_be(const struct tokenizer *t, const char *s, const char *want)
{
    must_encode(t, s, strlen(s), &plain, want);
}

static void must_come_back(const struct tokenizer *t, const char *s, const char *want)
{
    CLEANUP(token_list_done) struct token_list l = {0};
    CLEANUP(buf_done) struct buf b = {0};

    ck_assert_int_eq(tokenizer_encode(t, s, strlen(s), &parse, &l), 0);
    ck_assert_int_eq(tokenizer_decode(t, l.ids, l.n, true, &b), 0);
    ck_assert_str_eq(b.data ? b.data : "", want);
}

START_TEST(the_highest_score_joins_first_and_what_has_no_token_becomes_bytes)
{
    struct tokfix f = {0};

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    /* "lo" comes first, so that "hel" and "lo" meet. */
    must_be(f.tok, "hello", "[" SPACE "hello]");
    must_be(f.tok, "ehello", "[" SPACE "][e][hello]");
    must_be(f.tok, "hell", "[" SPACE "][hel][l]");
    must_be(f.tok, "hello hello", "[" SPACE "hello][" SPACE "hello]");
    must_be(f.tok, "hello  hello", "[" SPACE "hello][" SPACE "][" SPACE "hello]");
    must_be(f.tok, "  o", "[" SPACE SPACE "][" SPACE "][o]");
    must_be(f.tok, "x\xC3\xA9\xE4\xB8\xAD", "[" SPACE "][78][\xC3\xA9][E4][B8][AD]");
    must_be(f.tok, "\n", "[" SPACE "][0A]");
    must_be(f.tok, "o" SPACE "hello", "[" SPACE "][o][" SPACE "hello]");
    must_be(f.tok, "", "");
    /* A byte that is no text reads as U+FFFD. */
    must_be(f.tok, "o\xFF", "[" SPACE "][o][EF][BF][BD]");
    /* Neither tokens with a space of their own nor unused ones can be made of text. */
    must_be(f.tok, "a b", "[" SPACE "][61][" SPACE "][62]");
    must_be(f.tok, "un", "[" SPACE "][75][6E]");
    tokfix_done(&f);
}
END_TEST

START_TEST(a_space_comes_in_front_of_text_and_goes_again)
{
    struct tokfix f = {0};
    size_t n;

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    must_encode(f.tok, "hello</s>hello<|x|>o", 20, &both,
                "[#1][" SPACE "hello][#2][" SPACE "hello][<|x|>][" SPACE "][o]");
    must_come_back(f.tok, "hello</s>hello<|x|>o", "hello</s>hello<|x|>o");
    must_come_back(f.tok, " hello</s> hello  ", " hello</s> hello  ");
    must_come_back(f.tok, "  <s>", "  <s>");
    must_come_back(f.tok, "<s></s>", "<s></s>");
    /* Only what was text had a space put before it. */
    must_come_back(f.tok, " <c> <c>o", " <c> <c>o");
    must_come_back(f.tok, "o\xC3\xA9\xE4\xB8\xAD\n" SPACE, "o\xC3\xA9\xE4\xB8\xAD\n ");

    ck_assert(memcmp(tokenizer_piece_after(f.tok, -1, FIRST + 9, false, &n), "hello", 5) == 0);
    ck_assert_uint_eq(n, 5);
    (void)tokenizer_piece_after(f.tok, FIRST + 13, FIRST + 9, false, &n);
    ck_assert_uint_eq(n, 5);
    (void)tokenizer_piece_after(f.tok, 2, FIRST + 9, false, &n);
    ck_assert_uint_eq(n, 5);
    (void)tokenizer_piece_after(f.tok, FIRST + 4, FIRST + 9, false, &n);
    ck_assert_uint_eq(n, 6);
    (void)tokenizer_piece_after(f.tok, 2, FIRST + 4, false, &n);
    ck_assert_uint_eq(n, 1);
    (void)tokenizer_piece_after(f.tok, -1, 1, false, &n);
    ck_assert_uint_eq(n, 0);

    ggufw_bool(&f.w, "tokenizer.ggml.add_space_prefix", false);
    must_open(&f);
    must_be(f.tok, "hello hello", "[hello][" SPACE "hello]");
    must_come_back(f.tok, " hello</s> hello  ", " hello</s> hello  ");
    (void)tokenizer_piece_after(f.tok, -1, FIRST + 9, false, &n);
    ck_assert_uint_eq(n, 6);
    tokfix_done(&f);
}
END_TEST

START_TEST(text_never_becomes_a_control_token_unless_it_may)
{
    static const char text[] = "o</s>o</s>";
    static const struct text_span data[] = {{1, 3}};
    const struct tokenize_options marked = {.parse_special = true, .data = data, .n_data = 1};
    struct tokfix f = {0};

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    /* "</" and "s>" are neighbours, and their joined text is a token: of the wrong kind. */
    must_encode(f.tok, text, 10, &plain, "[" SPACE "][o][</][s>][o][</][s>]");
    must_encode(f.tok, text, 10, &parse, "[" SPACE "][o][#2][" SPACE "][o][#2]");
    must_encode(f.tok, text, 10, &marked, "[" SPACE "][o][</][s>][o][#2]");
    tokfix_done(&f);
}
END_TEST

START_TEST(the_longest_token_bounds_how_few_a_text_becomes)
{
    CLEANUP(token_list_done) struct token_list l = {0};
    struct tokfix f = {0};

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    ck_assert_uint_eq(tokenizer_longest(f.tok), 3 * strlen(" hello"));
    ck_assert_int_eq(tokenizer_encode(f.tok, SPACE SPACE SPACE, 9, &plain, &l), 0);
    ck_assert_uint_ge(l.n * tokenizer_longest(f.tok), 9);
    tokfix_done(&f);
}
END_TEST

START_TEST(begin_and_end_have_the_defaults_of_such_files)
{
    struct tokfix f = {0};
    size_t n;

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    ck_assert_int_eq(tokenizer_bos(f.tok), 1);
    ck_assert_int_eq(tokenizer_eos(f.tok), 2);
    ck_assert_int_eq(tokenizer_end_ids(f.tok, &n)[0], 2);
    ck_assert_uint_eq(n, 1);
    must_encode(f.tok, "o", 1, &both, "[#1][" SPACE "][o]");
    ggufw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    ggufw_bool(&f.w, "tokenizer.ggml.add_eos_token", true);
    must_open(&f);
    must_encode(f.tok, "o", 1, &both, "[" SPACE "][o][#2]");
    tokfix_done(&f);
}
END_TEST

START_TEST(without_byte_tokens_the_unknown_token_stands_for_a_byte)
{
    static const char *const texts[] = {"?", SPACE, "a", "?2"};
    static const int32_t kinds[] = {TOKEN_UNKNOWN, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL};
    static const float scores[] = {0, -1, -2, -3};
    CLEANUP(token_list_done) struct token_list l = {0};
    struct tokfix f = {0};

    ggufw_str(&f.w, "tokenizer.ggml.model", "llama");
    ggufw_strs(&f.w, "tokenizer.ggml.tokens", texts, 4);
    ggufw_array(&f.w, "tokenizer.ggml.token_type", GGUFW_I32, 4, kinds, sizeof(kinds));
    ggufw_array(&f.w, "tokenizer.ggml.scores", GGUFW_F32, 4, scores, sizeof(scores));
    must_open(&f);
    ck_assert_int_eq(tokenizer_encode(f.tok, "a\xC3\xA9?", 4, &plain, &l), 0);
    ck_assert_uint_eq(l.n, 5);
    ck_assert_int_eq(l.ids[0], 1);
    ck_assert_int_eq(l.ids[1], 2);
    for (int i = 2; i < 5; i++)
        ck_assert_int_eq(l.ids[i], 0);
    tokfix_done(&f);
}
END_TEST

/* The streamed text of [hello][hello] behind a prompt that ends with `last`. */
static void must_stream(const struct tokenizer *t, int32_t last, const char *want)
{
    struct request *r = request_new();

    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(token_list_add(&r->prompt, last), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = FIRST + 9}), 0);
    ck_assert_int_eq(request_end_text(r), 0);
    ck_assert_str_eq(r->text.data, want);
    (void)request_unref(r);
}

START_TEST(an_answer_begins_without_a_space_only_behind_a_special_token)
{
    struct tokfix f = {0};

    tokfix_spm(&f, words, N_WORDS);
    must_open(&f);
    must_stream(f.tok, 2, "hello hello");
    must_stream(f.tok, FIRST + 13, "hello hello");
    must_stream(f.tok, FIRST + 4, " hello hello");
    tokfix_done(&f);
}
END_TEST

/* --- against the definition --- */

enum { MAX_TEXT = 300, N_RANDOM = 60 };

struct plain_spm {
    char text[N_RANDOM][32]; /* with spaces; "" for one that a text cannot become */
    float score[N_RANDOM];
};

static int plain_find(const struct plain_spm *p, const char *s, size_t n)
{
    for (int i = 0; i < N_RANDOM; i++)
        if (n && strlen(p->text[i]) == n && memcmp(p->text[i], s, n) == 0)
            return i;
    return -1;
}

/* As the definition says, looking at every pair each time. */
static void plain_encode(const struct plain_spm *p, const char *s, size_t n, struct token_list *out)
{
    size_t at[MAX_TEXT * 4 + 2], n_at = 0, len;

    for (size_t i = 0; i < n; i += len) {
        at[n_at++] = i;
        (void)utf8_decode(s + i, n - i, &len);
    }
    at[n_at] = n;
    for (;;) {
        size_t best = n_at;
        float score = 0;

        for (size_t i = 0; i + 1 < n_at; i++) {
            int id = plain_find(p, s + at[i], at[i + 2] - at[i]);

            if (id >= 0 && (best == n_at || p->score[id] > score)) {
                best = i;
                score = p->score[id];
            }
        }
        if (best == n_at)
            break;
        n_at--;
        for (size_t i = best + 1; i <= n_at; i++)
            at[i] = at[i + 1];
    }
    for (size_t i = 0; i < n_at; i++) {
        int id = plain_find(p, s + at[i], at[i + 1] - at[i]);

        if (id >= 0)
            ck_assert_int_eq(token_list_add(out, FIRST + id), 0);
        for (size_t k = at[i]; k < at[i + 1] && id < 0; k++)
            ck_assert_int_eq(token_list_add(out, TOKFIX_BYTE + (unsigned char)s[k]), 0);
    }
}

static size_t random_text(unsigned int *seed, size_t max, char *s)
{
    static const char *const chars[] = {"a", "b", "b", "\xC3\xA9", " ", " ", "c", "\xE4\xB8\xAD"};
    size_t n = 0, want = 1 + (size_t)rand_r(seed) % max;

    for (size_t i = 0; i < want; i++) {
        const char *c = chars[rand_r(seed) % 8];

        memcpy(s + n, c, strlen(c));
        n += strlen(c);
    }
    s[n] = '\0';
    return n;
}

/* _i is the seed. */
START_TEST(random_vocabularies_give_what_the_definition_gives)
{
    unsigned int seed = (unsigned int)_i;
    struct tokfix_piece pieces[N_RANDOM];
    char stored[N_RANDOM][64];
    struct plain_spm p = {0};
    struct tokfix f = {0};

    for (int i = 0; i < N_RANDOM; i++) {
        char s[64];
        size_t n = random_text(&seed, i < 8 ? 1 : 4, s), len = 0;

        /* Few scores, so that many are equal; the first of equal texts counts. */
        pieces[i] = (struct tokfix_piece){stored[i], TOKEN_NORMAL, (float)(rand_r(&seed) % 12)};
        for (size_t k = 0; k < n; k++)
            len += (size_t)snprintf(stored[i] + len, sizeof(stored[i]) - len,
                                    s[k] == ' ' ? "%s" : "%.1s", s[k] == ' ' ? SPACE : s + k);
        if (plain_find(&p, s, n) < 0)
            memcpy(p.text[i], s, n + 1);
        p.score[i] = pieces[i].score;
    }
    tokfix_spm(&f, pieces, N_RANDOM);
    ggufw_bool(&f.w, "tokenizer.ggml.add_space_prefix", false);
    must_open(&f);
    for (int round = 0; round < 60; round++) {
        CLEANUP(token_list_done) struct token_list want = {0}, got = {0};
        char s[MAX_TEXT * 4];
        size_t n = random_text(&seed, round % 3 ? 20 : MAX_TEXT, s);

        plain_encode(&p, s, n, &want);
        ck_assert_int_eq(tokenizer_encode(f.tok, s, n, &plain, &got), 0);
        ck_assert_uint_eq(got.n, want.n);
        ck_assert(memcmp(got.ids, want.ids, want.n * sizeof(*want.ids)) == 0);
    }
    tokfix_done(&f);
}
END_TEST

/* With time that grows with the square this would take hours. */
START_TEST(a_long_word_is_merged_in_less_than_quadratic_time)
{
    static const struct tokfix_piece runs[] = {{"aa", TOKEN_NORMAL, -1}, {"aaaa", TOKEN_NORMAL, -2},
                                               {"a", TOKEN_NORMAL, -3},  {SPACE, TOKEN_NORMAL, -4},
                                               {"ab", TOKEN_NORMAL, -1}, {"ba", TOKEN_NORMAL, -1}};
    CLEANUP(token_list_done) struct token_list l = {0};
    const size_t n = 1 << 20;
    CLEANUP(free_p) char *s = malloc(n);
    struct tokfix f = {0};

    ck_assert_ptr_nonnull(s);
    memset(s, 'a', n);
    tokfix_spm(&f, runs, 6);
    must_open(&f);
    ck_assert_int_eq(tokenizer_encode(f.tok, s, n, &plain, &l), 0);
    ck_assert_uint_eq(l.n, n / 4 + 1);
    tokfix_done(&f);
}
END_TEST

START_TEST(the_longest_text_that_merging_makes_has_a_limit)
{
    enum { N_PIECES = 12, N_TEXT = SPM_MAX_BYTES + 1 };
    char texts[N_PIECES][N_TEXT + 1] = {{0}};
    struct tokfix_piece pieces[N_PIECES];
    CLEANUP(token_list_done) struct token_list l = {0};
    struct tokfix f = {0};

    /* a, aa, aaaa, ... the limit, and one a more. */
    for (int i = 0; i < N_PIECES; i++) {
        memset(texts[i], 'a', i < N_PIECES - 1 ? (size_t)1 << i : N_TEXT);
        pieces[i] = (struct tokfix_piece){texts[i], TOKEN_NORMAL, (float)i};
    }
    tokfix_spm(&f, pieces, N_PIECES);
    ggufw_bool(&f.w, "tokenizer.ggml.add_space_prefix", false);
    must_open(&f);
    ck_assert_int_eq(tokenizer_encode(f.tok, texts[N_PIECES - 1], N_TEXT, &plain, &l), 0);
    ck_assert_uint_eq(l.n, 2);
    ck_assert_int_eq(l.ids[0], FIRST + N_PIECES - 2);
    ck_assert_int_eq(l.ids[1], FIRST);
    tokfix_done(&f);
}
END_TEST

/* A text of n bytes can be parted in n - 1 ways, so the file is small beside what it asks for. */
START_TEST(a_vocabulary_of_too_many_ways_to_join_is_refused)
{
    enum { MOST = 260, N_PIECES = (MOST + 1) * (MOST + 1) - 1, BYTES = 2 * MOST + 1 };
    CLEANUP(free_p) struct tokfix_piece *pieces = calloc(N_PIECES, sizeof(*pieces));
    CLEANUP(free_p) char *texts = calloc(N_PIECES, BYTES);
    struct err_text e = {{0}};
    struct tokfix f = {0};

    ck_assert(pieces && texts);
    /* a^i b^j: whatever part of one is another. */
    for (size_t k = 0; k < N_PIECES; k++) {
        char *s = texts + k * BYTES;
        size_t n_a = (k + 1) / (MOST + 1), n_b = (k + 1) % (MOST + 1);

        memset(s, 'a', n_a);
        memset(s + n_a, 'b', n_b);
        pieces[k] = (struct tokfix_piece){s, TOKEN_NORMAL, 0};
    }
    tokfix_spm(&f, pieces, N_PIECES);
    ck_assert_int_eq(tokfix_open(&f, &e), ERR_CAPACITY);
    ck_assert_msg(strstr(e.s, "tokenizer.ggml.tokens") && strstr(e.s, "16777216"), "%s", e.s);
    tokfix_done(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("spm");
    TCase *t = tcase_create("spm");
    SRunner *runner;
    int failed;

    tcase_add_test(t, the_highest_score_joins_first_and_what_has_no_token_becomes_bytes);
    tcase_add_test(t, a_space_comes_in_front_of_text_and_goes_again);
    tcase_add_test(t, an_answer_begins_without_a_space_only_behind_a_special_token);
    tcase_add_test(t, text_never_becomes_a_control_token_unless_it_may);
    tcase_add_test(t, the_longest_token_bounds_how_few_a_text_becomes);
    tcase_add_test(t, begin_and_end_have_the_defaults_of_such_files);
    tcase_add_test(t, without_byte_tokens_the_unknown_token_stands_for_a_byte);
    tcase_add_loop_test(t, random_vocabularies_give_what_the_definition_gives, 0, 50);
    tcase_add_test(t, a_long_word_is_merged_in_less_than_quadratic_time);
    tcase_add_test(t, the_longest_text_that_merging_makes_has_a_limit);
    tcase_add_test(t, a_vocabulary_of_too_many_ways_to_join_is_refused);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
