/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of /v1/completions: what they say about the cache, and where their prompt's messages
 * begin. */
#include "daemon/api_error.h"
#include "daemon/api_parse.h"
#include "daemon/request.h"
#include "tests/fake_tokenizer.h"
#include "util/buf.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 16, VOCAB = 5 };

static const struct fake_piece pieces[VOCAB] = {
    {"<|end|>", 7}, {"a", 1}, {"b", 1}, {"<|system|>", 10}, {"<|user|>", 8}};
static struct tokenizer *tokenizer;

static struct request *request;
static struct api_error error;

static void set_up(void)
{
    tokenizer = fake_tokenizer_new(pieces, VOCAB);
}

static void tear_down(void)
{
    request = request_unref(request);
    tokenizer_free(tokenizer);
}

/* `fields` beside a prompt of 6 tokens, whose second message is at 2 and the third at 4. */
static int parse(const char *fields)
{
    struct completion_limits limits = {.tokenizer = tokenizer, .context = CONTEXT};
    struct completion_params params;
    struct buf b = {0};
    int r;

    ck_assert_int_eq(buf_addf(&b, "{\"prompt\":\"<|system|>a<|user|>b<|user|>a\"%s%s}",
                              *fields ? "," : "", fields),
                     0);
    request = request_unref(request);
    error = (struct api_error){0};
    r = completion_parse(b.data, b.len, &limits, &params, &request, &error);
    buf_done(&b);
    return r;
}

static void must_parse(const char *fields)
{
    int r = parse(fields);

    ck_assert_msg(r == 0, "%s: %s", fields, error.message);
    ck_assert_uint_eq(request->prompt.n, 6);
}

START_TEST(without_a_word_a_prompt_is_shared_with_all_of_the_same_user)
{
    must_parse("");
    ck_assert(!request->no_cache && !request->cache_salt);
    must_parse("\"cache_prompt\":null,\"cache_salt\":null,\"cache_root\":null");
    ck_assert(!request->no_cache && !request->cache_salt);
    must_parse("\"cache_prompt\":true,\"cache_salt\":\"\"");
    ck_assert(!request->no_cache && !request->cache_salt);
}
END_TEST

START_TEST(cache_prompt_and_cache_salt_arrive_where_they_belong)
{
    must_parse("\"cache_prompt\":false,\"cache_salt\":\"caf\\u00e9\"");
    ck_assert(request->no_cache);
    ck_assert_str_eq(request->cache_salt, "caf\u00e9");
}
END_TEST

START_TEST(a_salt_has_at_most_256_bytes)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addf(&b, "\"cache_salt\":\"%0*d\"", COMPLETION_MAX_SALT_BYTES, 7), 0);
    must_parse(b.data);
    ck_assert_uint_eq(strlen(request->cache_salt), COMPLETION_MAX_SALT_BYTES);
    buf_clear(&b);
    ck_assert_int_eq(buf_addf(&b, "\"cache_salt\":\"%0*d\"", COMPLETION_MAX_SALT_BYTES + 1, 7), 0);
    ck_assert_int_lt(parse(b.data), 0);
    ck_assert_str_eq(error.param, "cache_salt");
    ck_assert_ptr_nonnull(strstr(error.message, "has 257 bytes; it may have 256"));
    buf_done(&b);
}
END_TEST

START_TEST(boundaries_are_the_prompts_and_the_root_the_clients_if_it_says_so)
{
    static const struct {
        const char *fields;
        uint32_t root;
    } cases[] = {
        {"", 2},
        {"\"cache_root\":null", 2},
        {"\"cache_root\":6", 6},
        {"\"cache_root\":3.0", 3},
        {"\"cache_root\":0", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        must_parse(cases[i].fields);
        ck_assert_msg(request->bounds.root == cases[i].root, "%s", cases[i].fields);
        ck_assert_uint_eq(request->bounds.turn, 4);
    }
}
END_TEST

static const struct {
    const char *fields, *param, *words;
} bad[] = {
    {"\"cache_prompt\":3", "cache_prompt", "cache_prompt is 3; it must be true or false"},
    {"\"cache_salt\":5", "cache_salt", "cache_salt is 5; it must be a string"},
    {"\"cache_salt\":\"a\\u0000b\"", "cache_salt", "cache_salt has 3 bytes with a NUL"},
    {"\"cache_root\":\"1\"", "cache_root", "a string"},
    {"\"cache_root\":0.5", "cache_root", "0.5"},
    {"\"cache_root\":-1", "cache_root", "cache_root is -1"},
    {"\"cache_root\":7", "cache_root", "cache_root is 7; it must be an integer from 0 to 6"},
};

START_TEST(a_bad_field_is_refused_by_name)
{
    ck_assert_int_lt(parse(bad[_i].fields), 0);
    ck_assert_int_eq(error.status, 400);
    ck_assert_str_eq(error.param, bad[_i].param);
    ck_assert_msg(strstr(error.message, bad[_i].words) != NULL, "%s", error.message);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_cache");
    TCase *t = tcase_create("api_cache");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, without_a_word_a_prompt_is_shared_with_all_of_the_same_user);
    tcase_add_test(t, cache_prompt_and_cache_salt_arrive_where_they_belong);
    tcase_add_test(t, a_salt_has_at_most_256_bytes);
    tcase_add_test(t, boundaries_are_the_prompts_and_the_root_the_clients_if_it_says_so);
    tcase_add_loop_test(t, a_bad_field_is_refused_by_name, 0, (int)(sizeof bad / sizeof bad[0]));
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
