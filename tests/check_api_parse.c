/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of /v1/completions: what is read from the good, and what the bad are refused for. */
#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/api_parse.h"
#include "daemon/request.h"
#include "tests/fake_tokenizer.h"
#include "util/buf.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 16, VOCAB = 5 };

static const struct fake_piece pieces[VOCAB] = {
    {"<|end|>", 7}, {"a", 1}, {"b", 1}, {"\0", 1}, {"ab", 2}};
static struct tokenizer *tokenizer;

static struct request *request;
static struct completion_params params;
static struct api_error error;

static void setup(void)
{
    tokenizer = fake_tokenizer_new(pieces, VOCAB);
}

static void teardown(void)
{
    request = request_unref(request);
    tokenizer_free(tokenizer);
}

/* In an allocation of its own size, so that a sanitizer sees a byte too many. */
static int parse_n(const char *body, size_t n)
{
    struct completion_limits limits = {.tokenizer = tokenizer, .context = CONTEXT};
    char *copy = malloc(n + 1);
    int r;

    memcpy(copy, body, n);
    copy[n] = '\0';
    request = request_unref(request);
    error = (struct api_error){0};
    r = completion_parse(copy, n, &limits, &params, &request, &error);
    free(copy);
    ck_assert_int_eq(r == 0, request != NULL);
    ck_assert_int_eq(r == 0, error.status == 0);
    return r;
}

/* `fields` beside a good prompt. */
static int parse_fields(const char *fields)
{
    struct buf b = {0};
    int r;

    ck_assert_int_eq(buf_addf(&b, "{\"prompt\":\"ab\"%s%s}", *fields ? "," : "", fields), 0);
    r = parse_n(b.data, b.len);
    buf_done(&b);
    return r;
}

/* `what`, n times.  (libcheck writes to a file with every assertion: one is enough.) */
static void add_many(struct buf *b, const char *what, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n; i++)
        r |= buf_addz(b, what);
    ck_assert_int_eq(r, 0);
}

static void must_parse(const char *fields)
{
    int r = parse_fields(fields);

    ck_assert_msg(r == 0, "%s: %s", fields, error.message);
}

START_TEST(absent_fields_and_null_have_the_defaults)
{
    static const char *const bodies[] = {
        "",
        "\"max_tokens\":null,\"temperature\":null,\"top_p\":null,\"seed\":null,\"stop\":null,"
        "\"stream\":null,"
        "\"logprobs\":null,\"logit_bias\":null,\"stream_options\":null,\"n\":null,\"suffix\":null,"
        "\"echo\":null,"
        "\"response_format\":null,\"model\":null,\"cache_prompt\":null,\"cache_salt\":null,"
        "\"cache_root\":null,\"prompt_logprobs\":null",
    };

    for (size_t i = 0; i < 2; i++) {
        must_parse(bodies[i]);
        ck_assert_uint_eq(request->max_tokens, UINT32_MAX);
        ck_assert(request->sampling.temperature == 1.0f);
        ck_assert(request->sampling.top_p == 1.0f);
        ck_assert(request->sampling.min_p == 0.0f);
        ck_assert_int_eq(request->sampling.top_k, 0);
        ck_assert(request->sampling.repeat_penalty == 1.0f);
        ck_assert_uint_eq(request->sampling.n_bias, 0);
        ck_assert_uint_eq(request->n_stop, 0);
        ck_assert(!request->ignore_eos && !request->sampling.logprob);
        ck_assert(!params.stream && !params.include_usage && !params.return_token_ids);
        ck_assert_uint_eq(request->prompt.n, 1);
        ck_assert_int_eq(request->prompt.ids[0], 4);
        ck_assert(!request->no_cache && !request->cache_salt && request->bounds.root == 0);
    }
}
END_TEST

START_TEST(two_requests_without_a_seed_have_different_ones)
{
    uint64_t first;

    must_parse("");
    first = request->sampling.seed;
    must_parse("\"seed\":-1");
    ck_assert(request->sampling.seed != first);
    must_parse("\"seed\":9223372036854775807");
    ck_assert_uint_eq(request->sampling.seed, INT64_MAX);
    must_parse("\"seed\":0");
    ck_assert_uint_eq(request->sampling.seed, 0);
}
END_TEST

START_TEST(every_field_arrives_where_it_belongs)
{
    must_parse(
        "\"max_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":40,\"min_p\":0.125,"
        "\"seed\":-5,\"presence_penalty\":-2,\"frequency_penalty\":1.5,\"repeat_penalty\":1.25,"
        "\"repeat_last_n\":-1,\"logprobs\":3,\"ignore_eos\":true,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"return_token_ids\":true,"
        "\"return_progress\":true,\"model\":\"any\",\"user\":\"x\",\"nobody_knows_this\":[1,{}]");
    ck_assert_uint_eq(request->max_tokens, 7);
    ck_assert(request->sampling.temperature == 0.5f);
    ck_assert(request->sampling.top_p == 0.25f);
    ck_assert_int_eq(request->sampling.top_k, 40);
    ck_assert(request->sampling.min_p == 0.125f);
    ck_assert_uint_eq(request->sampling.seed, (uint64_t)-5);
    ck_assert(request->sampling.presence_penalty == -2.0f);
    ck_assert(request->sampling.frequency_penalty == 1.5f);
    ck_assert(request->sampling.repeat_penalty == 1.25f);
    ck_assert_int_eq(request->sampling.penalty_last_n, -1);
    ck_assert(request->sampling.logprob && params.logprobs);
    ck_assert_uint_eq(request->sampling.n_top, 3);
    ck_assert(request->ignore_eos && params.stream && params.include_usage);
    ck_assert(params.return_token_ids && params.return_progress);
}
END_TEST

START_TEST(aliases_and_llama_servers_words_are_understood)
{
    must_parse("\"n_predict\":9");
    ck_assert_uint_eq(request->max_tokens, 9);
    must_parse("\"n_predict\":9,\"max_tokens\":3");
    ck_assert_uint_eq(request->max_tokens, 3);
    must_parse("\"n_predict\":-1");
    ck_assert_uint_eq(request->max_tokens, UINT32_MAX);
    must_parse("\"max_tokens\":20.0");
    ck_assert_uint_eq(request->max_tokens, 20);
    must_parse("\"max_tokens\":1000000000000");
    ck_assert_uint_eq(request->max_tokens, UINT32_MAX);
    must_parse("\"repetition_penalty\":1.5");
    ck_assert(request->sampling.repeat_penalty == 1.5f);
    must_parse("\"logprobs\":false");
    ck_assert(!request->sampling.logprob);
    must_parse("\"logprobs\":0");
    ck_assert(request->sampling.logprob && request->sampling.n_top == 0);
    must_parse("\"temperature\":1e-9");
    ck_assert(request->sampling.temperature == 0.0f);
}
END_TEST

START_TEST(a_bias_is_an_object_or_pairs_and_minus_100_bans)
{
    must_parse("\"logit_bias\":{\"1\":2.5,\"4\":-100}");
    ck_assert_uint_eq(request->sampling.n_bias, 2);
    ck_assert_ptr_eq(request->sampling.bias, request->bias);
    for (size_t i = 0; i < 2; i++) {
        const struct logit_bias *b = &request->bias[i];

        ck_assert(b->id == 1 ? b->bias == 2.5f : b->id == 4 && isinf(b->bias) && b->bias < 0);
    }
    must_parse("\"logit_bias\":[[3,100],[2,false]]");
    ck_assert_uint_eq(request->sampling.n_bias, 2);
    ck_assert(request->bias[0].id == 3 && request->bias[0].bias == 100.0f);
    ck_assert(request->bias[1].id == 2 && isinf(request->bias[1].bias));
    /* One token is left: one is banned twice; -99 is no ban. */
    must_parse("\"logit_bias\":[[0,false],[1,-100],[2,-100],[3,-100],[3,-100]]");
    must_parse("\"logit_bias\":[[0,-99],[1,-100],[2,-100],[3,-100],[4,-100]]");
    must_parse("\"logit_bias\":{}");
    must_parse("\"logit_bias\":[]");
    ck_assert_uint_eq(request->sampling.n_bias, 0);
}
END_TEST

START_TEST(stop_is_a_string_or_an_array_of_strings)
{
    must_parse("\"stop\":\"x\\u00e9\"");
    ck_assert_uint_eq(request->n_stop, 1);
    ck_assert_str_eq(request->stop[0], "x\u00e9");
    must_parse("\"stop\":[\"a\",\"bc\",\"d\",\"e\",\"f\"]");
    ck_assert_uint_eq(request->n_stop, 5);
    ck_assert_str_eq(request->stop[1], "bc");
    must_parse("\"stop\":[]");
    ck_assert_uint_eq(request->n_stop, 0);
}
END_TEST

/* The ids of a prompt as JSON. */
static void check_prompt(const char *prompt, size_t n, const int32_t *ids)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addf(&b, "{\"prompt\":%s}", prompt), 0);
    ck_assert_msg(parse_n(b.data, b.len) == 0, "%s: %s", prompt, error.message);
    ck_assert_uint_eq(request->prompt.n, n);
    ck_assert_mem_eq(request->prompt.ids, ids, n * sizeof *ids);
    buf_done(&b);
}

START_TEST(a_prompt_is_text_ids_or_one_of_them_in_an_array)
{
    check_prompt("\"aab\"", 2, (int32_t[]){1, 4});
    check_prompt("\"a\\u0000b\"", 3, (int32_t[]){1, 3, 2});
    check_prompt("[\"ab\"]", 1, (int32_t[]){4});
    check_prompt("[1,0,4.0]", 3, (int32_t[]){1, 0, 4});
    check_prompt("[[2,2]]", 2, (int32_t[]){2, 2});
    check_prompt("\"a<|end|>\"", 2, (int32_t[]){1, 0});
    check_prompt("\"a<|end|>\",\"parse_special\":false", 1, (int32_t[]){1});
}
END_TEST

/* A body, the status, the field, and words of the message. */
struct bad {
    const char *fields;
    const char *param; /* NULL: null */
    const char *words;
};

static const struct bad bad_fields[] = {
    /* types */
    {"\"stream\":1", "stream", "stream is 1; it must be true or false"},
    {"\"stream\":\"true\"", "stream", "a string"},
    {"\"temperature\":\"hot\"", "temperature",
     "temperature is a string; it must be a number from 0 to 100"},
    {"\"temperature\":true", "temperature", "true"},
    {"\"max_tokens\":[]", "max_tokens", "an array"},
    {"\"max_tokens\":1.5", "max_tokens", "max_tokens is 1.5; it must be an integer"},
    {"\"logprobs\":true", "logprobs", "logprobs is true; it must be an integer from 0 to 20"},
    {"\"stream_options\":true", "stream_options", "must be an object"},
    {"\"stream_options\":{\"include_usage\":1}", "include_usage", "true or false"},
    {"\"stop\":5", "stop", "a string or an array of strings"},
    {"\"stop\":[\"a\",5]", "stop", "stop holds 5"},
    {"\"stop\":[null]", "stop", "null"},
    {"\"model\":5", "model", "model is 5; it must be a string"},
    {"\"ignore_eos\":0", "ignore_eos", "true or false"},
    {"\"seed\":\"5\"", "seed", "a string"},
    {"\"seed\":0.5", "seed", "0.5"},
    {"\"return_token_ids\":{}", "return_token_ids", "an object"},
    {"\"return_progress\":\"\"", "return_progress", "a string"},
    {"\"cache_prompt\":3", "cache_prompt", "3"},
    {"\"add_special\":3", "add_special", "3"},
    /* ranges */
    {"\"temperature\":-0.1", "temperature", "-0.1"},
    {"\"temperature\":1e300", "temperature", "1e+300"},
    {"\"top_p\":1.01", "top_p", "0 to 1"},
    {"\"top_k\":-2", "top_k", "top_k is -2"},
    {"\"top_k\":3000000000", "top_k", "3000000000"},
    {"\"min_p\":-1", "min_p", "-1"},
    {"\"presence_penalty\":2.5", "presence_penalty", "-2 to 2"},
    {"\"frequency_penalty\":-3", "frequency_penalty", "-2 to 2"},
    {"\"repeat_penalty\":0", "repeat_penalty", "0.01 to 100"},
    {"\"repetition_penalty\":0", "repetition_penalty", "0.01 to 100"},
    {"\"repeat_last_n\":-2", "repeat_last_n", "-2"},
    {"\"max_tokens\":0", "max_tokens", "at least 1"},
    {"\"n_predict\":0", "n_predict", "at least 1"},
    {"\"max_tokens\":-2", "max_tokens", "-2"},
    {"\"logprobs\":21", "logprobs", "0 to 20"},
    {"\"logprobs\":-1", "logprobs", "0 to 20"},
    {"\"stop\":\"\"", "stop", "0 bytes"},
    {"\"stop\":[\"a\",\"\"]", "stop", "0 bytes"},
    {"\"stop\":\"a\\u0000b\"", "stop", "NUL"},
    /* numbers that nothing holds, by the field they are in */
    {"\"seed\":18446744073709551616", "seed", "seed holds the number 18446744073709551616"},
    {"\"max_tokens\":-99999999999999999999999", "max_tokens", "64-bit"},
    {"\"temperature\":1e999", "temperature", "double"},
    {"\"logit_bias\":{\"1\":1e999}", "logit_bias.1", "1e999"},
    {"\"x\":[[{\"y\":99999999999999999999}]]", "x[0][0].y", "99999999999999999999"},
    {"\"logit_bias\":{\"5\":1e400}", "logit_bias.5", "does not fit a double-precision number"},
    {"\"logit_bias\":[[1,2],[3,-1e999]]", "logit_bias[1][1]", "-1e999"},
    {"\"tools\":[{\"a\":[1,{}]},{\"function\":{\"p\":[],\"x\":-9223372036854775809}}]",
     "tools[1].function.x", "64-bit"},
    {"\"chat_template_kwargs\":{\"m\":{\"q\":1},\"n\":1E+400}", "chat_template_kwargs.n", "1E+400"},
    {"\"a\":\"{\\\"b\\\":[\",\"c\":18446744073709551616", "c", "64-bit"},
    {"\"stop\":[\"x\",9223372036854775808]", "stop[1]", "64-bit"},
    /* logit_bias */
    {"\"logit_bias\":5", "logit_bias", "must be an object"},
    {"\"logit_bias\":{\"x\":1}", "logit_bias", "key \"x\""},
    {"\"logit_bias\":{\"-1\":1}", "logit_bias", "key \"-1\""},
    {"\"logit_bias\":{\"5\":1}", "logit_bias", "ids are 0 to 4"},
    {"\"logit_bias\":{\"99999999999999999999\":1}", "logit_bias", "keys must be"},
    {"\"logit_bias\":{\"1\":101}", "logit_bias", "-100 to 100"},
    {"\"logit_bias\":{\"1\":true}", "logit_bias", "true"},
    {"\"logit_bias\":{\"1\":null}", "logit_bias", "null"},
    {"\"logit_bias\":[[0,-100],[1,-100],[2,false],[3,-100],[4,-100]]", "logit_bias",
     "bans every token"},
    {"\"ignore_eos\":true,\"logit_bias\":[[1,-100],[2,-100],[3,-100],[4,-100]]", "logit_bias",
     "with ignore_eos bans every token"},
    {"\"logit_bias\":[5]", "logit_bias", "logit_bias[0]"},
    {"\"logit_bias\":[[1,1],[1]]", "logit_bias", "logit_bias[1]"},
    {"\"logit_bias\":[[\"a\",1]]", "logit_bias", "logit_bias[0]"},
    {"\"logit_bias\":[[1,1],[1,1],[1,1],[1,1],[1,1],[1,1]]", "logit_bias", "6 entries"},
    /* known, and not honoured */
    {"\"n\":2", "n", "n is 2; it is not supported, it must be 1"},
    {"\"n\":\"1\"", "n", "must be 1"},
    {"\"best_of\":4", "best_of", "must be 1"},
    {"\"suffix\":\"x\"", "suffix", "not supported"},
    {"\"echo\":true", "echo", "must be false"},
    {"\"response_format\":{\"type\":\"json_object\"}", "response_format", "not supported"},
    {"\"response_format\":5", "response_format", "not supported"},
    {"\"grammar\":\"root ::= x\"", "grammar", "not supported"},
    {"\"json_schema\":{\"type\":\"string\"}", "json_schema", "not supported"},
    {"\"images\":[\"x\"]", "images", "not supported"},
    {"\"lora\":[{\"id\":0}]", "lora", "not supported"},
    {"\"tools\":[{}]", "tools", "not supported"},
    {"\"messages\":[]", "messages", "prompt"},
    {"\"mirostat\":2", "mirostat", "must be 0"},
    {"\"typical_p\":0.5", "typical_p", "must be 1"},
    {"\"stop_token_ids\":[1]", "stop_token_ids", "not supported"},
    {"\"min_tokens\":3", "min_tokens", "must be 0"},
};

START_TEST(a_bad_field_is_refused_with_its_name_what_was_found_and_what_is_allowed)
{
    const struct bad *b = &bad_fields[_i];

    ck_assert_int_lt(parse_fields(b->fields), 0);
    ck_assert_int_eq(error.status, 400);
    ck_assert_str_eq(error.param, b->param);
    ck_assert_msg(strstr(error.message, b->words) != NULL, "%s: %s", b->fields, error.message);
}
END_TEST

static const struct bad bad_bodies[] = {
    {"", NULL, "empty"},
    {" ", NULL, "not valid JSON"},
    {"{", NULL, "line 1"},
    {"{\"prompt\":\"a\"", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\"}}", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\",}", NULL, "not valid JSON"},
    {"{\"prompt\":'a'}", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\nb\"}", NULL, "not valid JSON"},
    {"{\"prompt\":\"\\ud800\"}", NULL, "not valid JSON"},
    {"{\"prompt\":\"\\x\"}", NULL, "not valid JSON"},
    {"{\"prompt\":0x10}", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\",\"seed\":01}", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\",\"seed\":NaN}", NULL, "not valid JSON"},
    {"[]", NULL, "the body is an array; a JSON object was expected"},
    {"null", NULL, "the body is null"},
    {"5", NULL, "the body is 5"},
    {"\"x\"", NULL, "the body is a string"},
    {"{\"prompt\":\"\xff\"}", NULL, "UTF-8"},
    {"{\"prompt\":\"\xed\xa0\x80\"}", NULL, "UTF-8"},
    {"\xef\xbb\xbf{\"prompt\":\"a\"}", NULL, "not valid JSON"},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", "prompt", "twice"},
    {"{\"prompt\":\"a\",\"x\":{\"y\":1,\"y\":2}}", "y", "twice"},
    {"{}", "prompt", "missing"},
    {"{\"prompt\":null}", "prompt", "missing"},
    {"{\"prompt\":5}", "prompt", "prompt is 5"},
    {"{\"prompt\":{}}", "prompt", "an object"},
    {"{\"prompt\":\"\"}", "prompt", "empty"},
    {"{\"prompt\":[]}", "prompt", "empty"},
    {"{\"prompt\":[\"\"]}", "prompt", "empty"},
    {"{\"prompt\":[[]]}", "prompt", "empty"},
    {"{\"prompt\":[\"a\",\"b\"]}", "prompt", "2 prompts"},
    {"{\"prompt\":[[1],[2],[3]]}", "prompt", "3 prompts"},
    {"{\"prompt\":[1,\"a\"]}", "prompt",
     "prompt[1] is a string; it must be a token id from 0 to 4"},
    {"{\"prompt\":[[\"a\"]]}", "prompt", "prompt[0] is a string"},
    {"{\"prompt\":[5]}", "prompt", "prompt[0] is 5; it must be a token id from 0 to 4"},
    {"{\"prompt\":[1,-1]}", "prompt", "prompt[1] is -1"},
    {"{\"prompt\":[1.5]}", "prompt", "1.5"},
    {"{\"prompt\":[4294967297]}", "prompt", "4294967297"},
    {"{\"prompt\":[true]}", "prompt", "true"},
    {"{\"prompt\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "prompt",
     "16 tokens, but the context holds 16"},
    {"{\"prompt\":\"aaaaaaaaaaaaaaaaaaaaa\"}", "prompt", "21 tokens, but the context holds 16"},
};

START_TEST(a_bad_body_is_refused_in_words)
{
    const struct bad *b = &bad_bodies[_i];

    ck_assert_int_lt(parse_n(b->fields, strlen(b->fields)), 0);
    ck_assert_int_eq(error.status, 400);
    ck_assert_str_eq(error.param, b->param ? b->param : "");
    ck_assert_msg(strstr(error.message, b->words) != NULL, "%s: %s", b->fields, error.message);
}
END_TEST

START_TEST(a_nul_in_the_body_is_not_the_end_of_it)
{
    ck_assert_int_lt(parse_n("{\"prompt\":\"a\"}\0x", 16), 0);
    ck_assert_int_lt(parse_n("{\"prompt\":\"a\0b\"}", 16), 0);
    ck_assert_int_lt(parse_n("\0", 1), 0);
}
END_TEST

START_TEST(a_prompt_as_long_as_the_context_is_too_long_and_one_less_is_not)
{
    ck_assert_int_eq(parse_n("{\"prompt\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", 42), 0);
    ck_assert_uint_eq(request->prompt.n, CONTEXT - 1);
    ck_assert_int_lt(parse_n("{\"prompt\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", 44), 0);
    ck_assert_str_eq(error.code, "context_length_exceeded");
}
END_TEST

START_TEST(a_text_that_cannot_fit_is_refused_without_making_tokens_of_it)
{
    struct buf b = {0};

    add_many(&b, "{\"prompt\":\"", 1);
    add_many(&b, "ab", 1 << 20);
    add_many(&b, "\"}", 1);
    ck_assert_int_lt(parse_n(b.data, b.len), 0);
    ck_assert_str_eq(error.code, "context_length_exceeded");
    /* The longest piece has 7 bytes. */
    ck_assert_ptr_nonnull(
        strstr(error.message, "at least 299594 tokens, but the context holds 16"));
    buf_done(&b);
}
END_TEST

START_TEST(known_fields_whose_value_asks_for_nothing_are_accepted)
{
    must_parse(
        "\"n\":1,\"best_of\":1.0,\"suffix\":\"\",\"echo\":false,\"response_format\":{\"type\":"
        "\"text\"},"
        "\"tools\":[],\"lora\":[],\"grammar\":\"\",\"mirostat\":0,\"typical_p\":1.0,"
        "\"dry_multiplier\":0,\"xtc_probability\":0.0,\"min_tokens\":0,\"cache_prompt\":true");
}
END_TEST

/* n levels of arrays in an unknown field. */
static int parse_nested(size_t n, const char *open, const char *close)
{
    struct buf b = {0};
    int r;

    ck_assert_int_eq(buf_addz(&b, "{\"prompt\":\"a\",\"x\":"), 0);
    add_many(&b, open, n);
    add_many(&b, "1", 1);
    add_many(&b, close, n);
    ck_assert_int_eq(buf_addz(&b, "}"), 0);
    r = parse_n(b.data, b.len);
    buf_done(&b);
    return r;
}

START_TEST(nesting_is_bounded)
{
    ck_assert_int_eq(parse_nested(API_JSON_MAX_DEPTH - 1, "[", "]"), 0);
    ck_assert_int_lt(parse_nested(API_JSON_MAX_DEPTH, "[", "]"), 0);
    ck_assert_ptr_nonnull(strstr(error.message, "nested deeper than 100"));
    ck_assert_str_eq(error.param, "x");
    ck_assert_int_lt(parse_nested(1000000, "[", ""), 0);
    ck_assert_int_lt(parse_nested(100000, "{\"a\":", "}"), 0);
    ck_assert_ptr_nonnull(strstr(error.message, "nested deeper"));
}
END_TEST

START_TEST(the_number_of_values_is_bounded)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addz(&b, "{\"prompt\":[1"), 0);
    add_many(&b, ",1", API_JSON_MAX_VALUES);
    ck_assert_int_eq(buf_addz(&b, "]}"), 0);
    ck_assert_int_lt(parse_n(b.data, b.len), 0);
    ck_assert_str_eq(error.param, "prompt");
    ck_assert_ptr_nonnull(strstr(error.message, "values"));
    buf_done(&b);
}
END_TEST

START_TEST(the_limits_of_stop_are_kept)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addz(&b, "\"stop\":[\"a\""), 0);
    add_many(&b, ",\"b\"", COMPLETION_MAX_STOP - 1);
    ck_assert_int_eq(buf_addz(&b, "]"), 0);
    must_parse(b.data);
    b.len--;
    ck_assert_int_eq(buf_addz(&b, ",\"c\"]"), 0);
    ck_assert_int_lt(parse_fields(b.data), 0);
    ck_assert_ptr_nonnull(strstr(error.message, "at most 64"));
    buf_clear(&b);
    ck_assert_int_eq(buf_addf(&b, "\"stop\":\"%*s\"", COMPLETION_MAX_STOP_BYTES + 1, "x"), 0);
    ck_assert_int_lt(parse_fields(b.data), 0);
    ck_assert_str_eq(error.param, "stop");
    buf_done(&b);
}
END_TEST

START_TEST(an_error_is_written_as_openais_object)
{
    struct buf b = {0};

    ck_assert_int_lt(parse_fields("\"n\":2"), 0);
    ck_assert_int_eq(api_error_write(&error, &b), 0);
    ck_assert_str_eq(
        b.data,
        "{\"error\":{\"message\":\"n is 2; it is not supported, it must be 1\","
        "\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":\"unsupported_parameter\"}}");
    buf_done(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_parse");
    TCase *t = tcase_create("api_parse");
    SRunner *sr;
    int n;

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, absent_fields_and_null_have_the_defaults);
    tcase_add_test(t, two_requests_without_a_seed_have_different_ones);
    tcase_add_test(t, every_field_arrives_where_it_belongs);
    tcase_add_test(t, aliases_and_llama_servers_words_are_understood);
    tcase_add_test(t, a_bias_is_an_object_or_pairs_and_minus_100_bans);
    tcase_add_test(t, stop_is_a_string_or_an_array_of_strings);
    tcase_add_test(t, a_prompt_is_text_ids_or_one_of_them_in_an_array);
    tcase_add_loop_test(t, a_bad_field_is_refused_with_its_name_what_was_found_and_what_is_allowed,
                        0, (int)(sizeof bad_fields / sizeof bad_fields[0]));
    tcase_add_loop_test(t, a_bad_body_is_refused_in_words, 0,
                        (int)(sizeof bad_bodies / sizeof bad_bodies[0]));
    tcase_add_test(t, a_nul_in_the_body_is_not_the_end_of_it);
    tcase_add_test(t, a_prompt_as_long_as_the_context_is_too_long_and_one_less_is_not);
    tcase_add_test(t, a_text_that_cannot_fit_is_refused_without_making_tokens_of_it);
    tcase_add_test(t, known_fields_whose_value_asks_for_nothing_are_accepted);
    tcase_add_test(t, nesting_is_bounded);
    tcase_add_test(t, the_number_of_values_is_bounded);
    tcase_add_test(t, the_limits_of_stop_are_kept);
    tcase_add_test(t, an_error_is_written_as_openais_object);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    n = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
