/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions: whole and streamed, and what is refused by name. */
#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/api_parse.h"
#include "daemon/chat_template.h"
#include "tests/http_world.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char source[] =
    "{%- for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{%- if tools %}(tools){% endif %}{% if kind is defined %}<{{ kind }}>{% endif %}"
    "{%- if add_generation_prompt %}[assistant:{% endif %}";

static struct world *chat_world(void)
{
    struct world *w = world_new();

    ck_assert_int_eq(
        chat_template_make(source, sizeof source - 1, w->server.tokenizer, &w->server.chat), 0);
    ck_assert_ptr_null(chat_template_fault(w->server.chat));
    return w;
}

static json_t *choice_of(const struct response *r, json_t **ret_whole)
{
    *ret_whole = json_loadb(r->body.data, r->body.len, 0, NULL);
    ck_assert_ptr_nonnull(*ret_whole);
    return json_array_get(json_object_get(*ret_whole, "choices"), 0);
}

static void expect_content(struct world *w, const char *fields, const char *rendered)
{
    struct client *c = client_new(w);
    struct response r;
    char body[1024], want[11];
    json_t *o, *choice;

    (void)snprintf(body, sizeof body, "{%s,\"max_tokens\":10}", fields);
    client_post(c, "/v1/chat/completions", body);
    client_wait(w, c, &r);
    ck_assert_msg(r.status == 200, "%s", r.body.data);
    choice = choice_of(&r, &o);
    world_expect(w, rendered, 10, want);
    ck_assert_str_eq(
        json_string_value(json_object_get(json_object_get(choice, "message"), "content")), want);
    ck_assert_str_eq(json_string_value(json_object_get(o, "object")), "chat.completion");
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(o, "usage"), "prompt_tokens")),
        (json_int_t)strlen(rendered));
    json_decref(o);
    response_done(&r);
}

static void expect_prompt(struct world *w, const char *fields, int status, const char *answer)
{
    struct client *c = client_new(w);
    char body[1024];

    (void)snprintf(body, sizeof body, "{%s}", fields);
    client_post(c, "/apply-template", body);
    client_expect(w, c, status, answer);
}

/* The prompts of messages_are_rendered_by_the_models_template. */
START_TEST(a_chat_is_rendered_without_running_it)
{
    struct world *w = chat_world();

    expect_prompt(w, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]", 200,
                  "{\"prompt\":\"[user:hi][assistant:\"}\n");
    expect_prompt(w,
                  "\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},{\"role\":\"user\","
                  "\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
                  "\"b\"}]}],\"chat_template_kwargs\":{\"kind\":\"k\"}",
                  200, "{\"prompt\":\"[system:S][user:ab]<k>[assistant:\"}\n");
    expect_prompt(w,
                  "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":"
                  "\"function\",\"function\":{\"name\":\"f\"}}]",
                  200, "[user:x](tools)[assistant:");
    expect_prompt(w,
                  "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                  "\"add_generation_prompt\":false",
                  200, "{\"prompt\":\"[user:x]\"}");
    /* '!' is 3, '[' 61, ']' 63, ':' 28. */
    expect_prompt(w,
                  "\"messages\":[{\"role\":\"user\",\"content\":\"!\"}],"
                  "\"add_generation_prompt\":false,\"return_token_ids\":true",
                  200, "{\"prompt\":\"[user:!]\",\"tokens\":[61,87,85,71,84,28,3,63]}\n");
    /* What a chat refuses, and no more. */
    expect_prompt(w, "\"messages\":[]", 400, "messages is empty");
    expect_prompt(w, "", 400, "messages is missing");
    expect_prompt(w, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":7", 400,
                  "\"param\":\"tools\"");
    expect_prompt(w, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":-5", 200,
                  NULL);
    expect_prompt(w, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"return_token_ids\":1",
                  400, "\"param\":\"return_token_ids\"");
    chat_template_free(w->server.chat);
    w->server.chat = NULL;
    expect_prompt(w, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]", 400,
                  "no_chat_template");
    world_free(w);
}
END_TEST

START_TEST(messages_are_rendered_by_the_models_template)
{
    struct world *w = chat_world();

    expect_content(w, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                   "[user:hi][assistant:");
    expect_content(w,
                   "\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},{\"role\":\"user\","
                   "\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
                   "\"b\"}]}],\"chat_template_kwargs\":{\"kind\":\"k\"}",
                   "[system:S][user:ab]<k>[assistant:");
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":"
                   "\"function\",\"function\":{\"name\":\"f\"}}]",
                   "[user:x](tools)[assistant:");
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"none\","
                   "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
                   "[user:x][assistant:");
    /* An answer that was begun. */
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                   "\"content\":\"It is\"}]",
                   "[user:x][assistant:It is");
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                   "\"content\":[{\"type\":\"text\",\"text\":\"It\"},{\"type\":\"text\",\"text\":"
                   "\" is\"}]}]",
                   "[user:x][assistant:It is");
    /* One without a word is none. */
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                   "\"content\":\"\"}]",
                   "[user:x][assistant:");
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\"}]",
                   "[user:x][assistant:");
    expect_content(w,
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                   "\"content\":\"\"}],\"continue_final_message\":false",
                   "[user:x][assistant:][assistant:");
    world_free(w);
}
END_TEST

/* The deltas' content, joined. */
static void stream_content(const char *body, struct buf *out)
{
    for (const char *p = body; (p = strstr(p, "data: {")); p++) {
        const char *end = strstr(p, "\n\n");
        json_t *o = json_loadb(p + 6, (size_t)(end - p - 6), 0, NULL), *choice;
        const char *s;

        ck_assert_ptr_nonnull(o);
        ck_assert_str_eq(json_string_value(json_object_get(o, "object")), "chat.completion.chunk");
        choice = json_array_get(json_object_get(o, "choices"), 0);
        s = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
        if (s)
            ck_assert_int_eq(buf_addz(out, s), 0);
        json_decref(o);
    }
}

START_TEST(a_stream_is_the_whole_answer_in_deltas)
{
    struct world *w = chat_world();
    struct client *c = client_new(w);
    struct buf text = {0};
    struct response r;
    char want[31];
    const char *role;

    client_post(c, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":30,"
                "\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    stream_content(r.body.data, &text);
    world_expect(w, "[user:hello][assistant:", 30, want);
    ck_assert_str_eq(text.data, want);
    role = strstr(r.body.data, "\"role\":\"assistant\"");
    ck_assert_ptr_nonnull(role);
    ck_assert_ptr_null(strstr(role + 1, "\"role\":"));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"finish_reason\":\"length\""));
    ck_assert_ptr_nonnull(strstr(r.body.data, "\"choices\":[],\"usage\":{"));
    ck_assert_str_eq(r.body.data + r.body.len - 14, "data: [DONE]\n\n");
    buf_done(&text);
    response_done(&r);
    world_free(w);
}
END_TEST

START_TEST(logprobs_are_as_chats_have_them)
{
    struct world *w = chat_world();
    struct client *c = client_new(w);
    struct response r;
    json_t *o, *first;

    client_post(c, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":3,"
                "\"logprobs\":true,\"top_logprobs\":2}");
    client_wait(w, c, &r);
    ck_assert_int_eq(r.status, 200);
    first = json_array_get(
        json_object_get(json_object_get(choice_of(&r, &o), "logprobs"), "content"), 0);
    ck_assert(json_is_string(json_object_get(first, "token")));
    ck_assert(json_is_number(json_object_get(first, "logprob")));
    ck_assert_uint_eq(json_array_size(json_object_get(first, "bytes")), 1);
    ck_assert(json_is_array(json_object_get(first, "top_logprobs")));
    json_decref(o);
    response_done(&r);
    world_free(w);
}
END_TEST

static const char thinking_source[] =
    "{%- for m in messages %}[{{ m.content }}]{% endfor %}"
    "{%- if enable_thinking is defined and not enable_thinking %}(none){% endif %}<think>";

/* One answer to "hi"; `stops` and others in `fields`, the rest of the body's object. */
static json_t *think(struct world *w, const char *fields, json_t **ret_message)
{
    struct client *c = client_new(w);
    struct response r;
    char body[512];
    json_t *o, *choice;

    (void)snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],%s}",
                   fields);
    client_post(c, "/v1/chat/completions", body);
    client_wait(w, c, &r);
    ck_assert_msg(r.status == 200, "%s", r.body.data);
    choice = choice_of(&r, &o);
    *ret_message = json_object_get(choice, "message");
    response_done(&r);
    return o;
}

static void expect_field(const json_t *message, const char *name, const char *want)
{
    const char *s = json_string_value(json_object_get(message, name));

    ck_assert_msg(s && strcmp(s, want) == 0, "%s: %s, not %s", name, s ? s : "absent", want);
}

static json_int_t usage_of(const json_t *answer, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(answer, "usage"), name));
}

/* The fake tokenizer knows no newlines: what ends thinking is the tag's eight letters. */
START_TEST(thinking_ends_at_its_budget_in_one_pass)
{
    struct world *w = world_new();
    char thought[6], rest[8], prompt[64];
    uint64_t n_steps;
    json_t *o, *m;

    ck_assert_int_eq(chat_template_make(thinking_source, sizeof thinking_source - 1,
                                        w->server.tokenizer, &w->server.chat),
                     0);
    world_expect(w, "[hi]<think>", 5, thought);
    (void)snprintf(prompt, sizeof prompt, "[hi]<think>%s</think>", thought);
    world_expect(w, prompt, 7, rest);

    n_steps = fake_engine_log(w->server.engine)->n_steps;
    o = think(w, "\"reasoning_budget_tokens\":5,\"max_tokens\":20", &m);
    expect_field(m, "reasoning_content", thought);
    expect_field(m, "content", rest);
    /* The prompt, four tokens, what ends it together with the fifth, six tokens. */
    ck_assert_uint_eq(fake_engine_log(w->server.engine)->n_steps - n_steps, 12);
    ck_assert_int_eq(usage_of(o, "prompt_tokens"), 11);
    ck_assert_int_eq(usage_of(o, "completion_tokens"), 20);
    json_decref(o);

    /* No room to say anything after the end: the thinking goes on. */
    o = think(w, "\"reasoning_budget_tokens\":5,\"max_tokens\":13", &m);
    ck_assert_uint_eq(json_string_length(json_object_get(m, "reasoning_content")), 13);
    json_decref(o);

    /* What may still be part of a stop string is settled first. */
    (void)snprintf(prompt, sizeof prompt,
                   "\"reasoning_budget_tokens\":4,\"max_tokens\":20,\"stop\":\"%c%c~\"", thought[3],
                   thought[4]);
    world_expect(w, "[hi]<think>", 5, thought);
    o = think(w, prompt, &m);
    ck_assert_int_eq(
        strncmp(json_string_value(json_object_get(m, "reasoning_content")), thought, 5), 0);
    json_decref(o);
    world_free(w);
}
END_TEST

START_TEST(a_budget_of_nothing_is_no_thinking)
{
    struct world *w = world_new();
    char rest[8];
    json_t *o, *m;

    ck_assert_int_eq(chat_template_make(thinking_source, sizeof thinking_source - 1,
                                        w->server.tokenizer, &w->server.chat),
                     0);
    world_expect(w, "[hi](none)<think></think>", 7, rest);
    o = think(w, "\"reasoning_budget_tokens\":0,\"max_tokens\":7", &m);
    ck_assert_ptr_null(json_object_get(m, "reasoning_content"));
    expect_field(m, "content", rest);
    json_decref(o);
    world_free(w);
}
END_TEST

START_TEST(what_chats_cannot_do_is_refused_by_name)
{
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
    static const struct {
        const char *body, *words;
    } cases[] = {
        {"{}", "messages is missing"},
        {"{\"messages\":[]}", "messages is empty"},
        {"{\"messages\":\"hi\"}", "messages is a string"},
        {"{\"messages\":[7]}", "messages[0] is 7"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role is absent"},
        {"{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "messages[0].role is king"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content is absent"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content is 5"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
         "type image_url is not supported"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "tool_calls"},
        {"{" ASK ",\"tools\":{}}", "tools is"},
        {"{" ASK ",\"tools\":[{}]}", "tools[0] has no function"},
        {"{" ASK ",\"tool_choice\":\"required\"}", "tool_choice is required"},
        {"{" ASK ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice is an object"},
        {"{" ASK ",\"response_format\":{\"type\":\"json_object\"}}", "response_format"},
        {"{" ASK ",\"n\":2}", "n is 2"},
        {"{" ASK ",\"reasoning_budget_tokens\":-2}", "reasoning_budget_tokens"},
        {"{" ASK ",\"reasoning_budget_tokens\":\"5\"}", "reasoning_budget_tokens"},
        {"{" ASK ",\"prompt\":\"x\"}", "prompt is not a field of chats"},
        {"{" ASK ",\"chat_template_kwargs\":1}", "chat_template_kwargs is 1"},
        {"{" ASK ",\"chat_template_kwargs\":{\"messages\":[]}}", "chat_template_kwargs.messages"},
        {"{" ASK ",\"chat_template_kwargs\":{\"enable_thinking\":\"false\"}}",
         "chat_template_kwargs.enable_thinking is a string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":5},{\"role\":\"user\","
         "\"content\":\"x\"}]}",
         "messages[0].reasoning_content is 5"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
         "\"reasoning_content\":\"I look\"}]}",
         "messages[1].reasoning_content"},
        {"{" ASK ",\"top_logprobs\":2}", "top_logprobs needs logprobs"},
        {"{" ASK ",\"seed\":1e400}", "seed"},
        {"{" ASK ",\"temperature\":123456789012345678901234567890123456789012345678901234567890}",
         "temperature"},
    };
#undef ASK
    struct world *w = chat_world();
    struct client *c = client_new(w);

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        client_post(c, "/v1/chat/completions", cases[i].body);
        client_expect(w, c, 400, cases[i].words);
    }
    world_free(w);
}
END_TEST

/* They are JSON within a string, which the limit on the body's values does not see. */
START_TEST(arguments_of_calls_are_bounded)
{
    static const char head[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                               "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
                               "\"f\",\"arguments\":\"[",
                      tail[] = "1]\"}}]},{\"role\":\"tool\",\"content\":\"y\"}],\"max_tokens\":1}";
    struct world *w = chat_world();
    const struct completion_limits limits = {w->server.tokenizer, 4096, w->server.chat};
    struct completion_params params;
    struct request *request;
    struct api_error e;
    struct buf body = {0};

    ck_assert_int_eq(buf_addz(&body, head), 0);
    for (size_t i = 0; i < API_JSON_MAX_VALUES; i++)
        ck_assert_int_eq(buf_addz(&body, "1,"), 0);
    ck_assert_int_eq(buf_addz(&body, tail), 0);
    ck_assert_int_lt(chat_parse(body.data, body.len, &limits, &params, &request, &e), 0);
    ck_assert_int_eq(e.status, 400);
    ck_assert_str_eq(e.param, "messages[1].tool_calls[0].function.arguments");
    buf_done(&body);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_chat");
    TCase *t = tcase_create("http_chat");
    SRunner *r = srunner_create(s);
    int n_failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_chat_is_rendered_without_running_it);
    tcase_add_test(t, messages_are_rendered_by_the_models_template);
    tcase_add_test(t, a_stream_is_the_whole_answer_in_deltas);
    tcase_add_test(t, logprobs_are_as_chats_have_them);
    tcase_add_test(t, thinking_ends_at_its_budget_in_one_pass);
    tcase_add_test(t, a_budget_of_nothing_is_no_thinking);
    tcase_add_test(t, what_chats_cannot_do_is_refused_by_name);
    tcase_add_test(t, arguments_of_calls_are_bounded);
    suite_add_tcase(s, t);
    srunner_run_all(r, CK_NORMAL);
    n_failed = srunner_ntests_failed(r);
    srunner_free(r);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
