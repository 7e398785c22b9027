/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /v1/chat/completions: messages and tools checked, rendered by the model's
 * template, made tokens.  Runs on a front thread.
 */
#include "daemon/api_parse.h"

#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/chat_template.h"
#include "daemon/chat_values.h"
#include "daemon/request.h"
#include "util/cleanup.h"

#include <errno.h>
#include <string.h>

static int bad_message(struct api_error *e, size_t i, const char *field, const char *what,
                       const char *allowed)
{
    char param[128];

    (void)snprintf(param, sizeof param, "messages[%zu]%s", i, field);
    return api_bad_field(e, param, "messages[%zu]%s is %s; it must be %s", i, field, what, allowed);
}

static int check_part(const json_t *part, size_t i, size_t k, struct api_error *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    char field[48];

    (void)snprintf(field, sizeof field, ".content[%zu]", k);
    if (!json_is_object(part) || !type)
        return bad_message(e, i, field, "no part with a type", "{\"type\":\"text\",\"text\":...}");
    if (strcmp(type, "text") != 0) {
        char param[64], room[64];

        (void)snprintf(param, sizeof param, "messages[%zu].content[%zu]", i, k);
        return api_error_set(e, 400, "unsupported_parameter", param,
                             "a part of type %s is not supported; text only",
                             err_escape(room, sizeof room, type, strlen(type)));
    }
    if (!json_is_string(json_object_get(part, "text")))
        return bad_message(e, i, field, "a text part without text",
                           "{\"type\":\"text\",\"text\":...}");
    return 0;
}

static int check_content(const json_t *m, size_t i, bool is_assistant, struct api_error *e)
{
    const json_t *c = json_object_get(m, "content");
    char room[64];

    if (json_is_string(c))
        return 0;
    if (!c || json_is_null(c))
        /* An answer may be all tool calls or thinking. */
        return is_assistant ? 0 : bad_message(e, i, ".content", "absent", "a string or text parts");
    if (!json_is_array(c))
        return bad_message(e, i, ".content", api_json_describe(c, room, sizeof room),
                           "a string or an array of text parts");
    for (size_t k = 0; k < json_array_size(c); k++) {
        int r = check_part(json_array_get(c, k), i, k, e);

        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * Arguments are JSON within a string, so what limits the values of the body does not see theirs.
 * Counted as there; *n_values is what all calls so far hold.
 */
static int count_values(const json_t *arguments, size_t i, size_t k, size_t *n_values,
                        struct api_error *e)
{
    const char *s = json_string_value(arguments);
    char param[96];

    for (size_t n = json_string_length(arguments); n > 0; n--, s++)
        *n_values += *s == ',' || *s == '[' || *s == '{';
    if (*n_values <= API_JSON_MAX_VALUES)
        return 0;
    (void)snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu].function.arguments", i, k);
    return api_bad_field(e, param, "%s: the calls hold more than %d values", param,
                         API_JSON_MAX_VALUES);
}

static int check_calls(const json_t *m, size_t i, size_t *n_values, struct api_error *e)
{
    const json_t *calls = json_object_get(m, "tool_calls");
    char room[64];
    int r = 0;

    if (!calls || json_is_null(calls))
        return 0;
    if (!json_is_array(calls))
        return bad_message(e, i, ".tool_calls", api_json_describe(calls, room, sizeof room),
                           "an array");
    for (size_t k = 0; r >= 0 && k < json_array_size(calls); k++) {
        const json_t *f = json_object_get(json_array_get(calls, k), "function");

        if (!json_is_string(json_object_get(f, "name")))
            return bad_message(e, i, ".tool_calls", "without a function's name",
                               "[{\"type\":\"function\",\"function\":{\"name\":...}}]");
        r = count_values(json_object_get(f, "arguments"), i, k, n_values, e);
    }
    return r;
}

static int check_reasoning(const json_t *m, size_t i, struct api_error *e)
{
    const json_t *j = json_object_get(m, "reasoning_content");
    char room[64];

    if (!j || json_is_null(j) || json_is_string(j))
        return 0;
    return bad_message(e, i, ".reasoning_content", api_json_describe(j, room, sizeof room),
                       "a string");
}

static int check_message(const json_t *m, size_t i, size_t *n_values, struct api_error *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role;
    char room[64];
    size_t k = 0;
    int r;

    if (!json_is_object(m))
        return bad_message(e, i, "", api_json_describe(m, room, sizeof room), "an object");
    role = json_string_value(json_object_get(m, "role"));
    while (role && k < sizeof roles / sizeof roles[0] && strcmp(role, roles[k]) != 0)
        k++;
    if (!role || k == sizeof roles / sizeof roles[0])
        return bad_message(e, i, ".role",
                           role ? err_escape(room, sizeof room, role, strlen(role)) : "absent",
                           "system, developer, user, assistant or tool");
    r = check_content(m, i, strcmp(role, "assistant") == 0, e);
    if (r >= 0)
        r = check_reasoning(m, i, e);
    return r < 0 ? r : check_calls(m, i, n_values, e);
}

static int check_messages(const json_t *o, const json_t **ret, struct api_error *e)
{
    const json_t *j;
    size_t n_values = 0;
    char room[64];

    if (!api_get(o, "messages", &j))
        return api_error_set(e, 400, "missing_field", "messages",
                             "messages is missing; it must be an array of messages");
    if (!json_is_array(j) || json_array_size(j) == 0)
        return api_bad_field(e, "messages", "messages is %s; it must be an array of messages",
                             json_is_array(j) ? "empty" : api_json_describe(j, room, sizeof room));
    for (size_t i = 0; i < json_array_size(j); i++) {
        int r = check_message(json_array_get(j, i), i, &n_values, e);

        if (r < 0)
            return r;
    }
    *ret = j;
    return 0;
}

static int check_tools(const json_t *o, const json_t **ret, struct api_error *e)
{
    const json_t *j;
    char room[64];

    *ret = NULL;
    if (!api_get(o, "tools", &j))
        return 0;
    if (!json_is_array(j))
        return api_bad_field(e, "tools", "tools is %s; it must be an array of functions",
                             api_json_describe(j, room, sizeof room));
    for (size_t i = 0; i < json_array_size(j); i++) {
        const json_t *f = json_object_get(json_array_get(j, i), "function");

        if (!json_is_string(json_object_get(f, "name")))
            return api_bad_field(e, "tools",
                                 "tools[%zu] has no function with a name; it must be "
                                 "{\"type\":\"function\",\"function\":{\"name\":...}}",
                                 i);
    }
    if (json_array_size(j) > 0)
        *ret = j;
    return 0;
}

/* auto and none; calls that must be made need constrained decoding. */
static int check_tool_choice(const json_t *o, const json_t **tools, struct api_error *e)
{
    const json_t *j;
    const char *s;
    char room[64];

    if (!api_get(o, "tool_choice", &j))
        return 0;
    s = json_string_value(j);
    if (s && strcmp(s, "auto") == 0)
        return 0;
    if (s && strcmp(s, "none") == 0) {
        *tools = NULL;
        return 0;
    }
    return api_error_set(e, 400, "unsupported_parameter", "tool_choice",
                         "tool_choice is %s; only \"auto\" and \"none\" are supported",
                         s ? err_escape(room, sizeof room, s, strlen(s))
                           : api_json_describe(j, room, sizeof room));
}

/* They are set last, over what was checked by the names of the request. */
static int check_kwargs(const json_t *kwargs, struct api_error *e)
{
    static const char *const own[] = {"messages", "tools"};
    const json_t *j = json_object_get(kwargs, "enable_thinking");
    char room[64];

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (json_object_get(kwargs, own[i]))
            return api_bad_field(e, "chat_template_kwargs",
                                 "chat_template_kwargs.%s must be absent: it is a field of the "
                                 "request itself",
                                 own[i]);
    /* "false" would be true. */
    if (j && !json_is_null(j) && !json_is_boolean(j))
        return api_bad_field(e, "chat_template_kwargs",
                             "chat_template_kwargs.enable_thinking is %s; it must be true or false",
                             api_json_describe(j, room, sizeof room));
    return 0;
}

/* What the template gets beside messages and tools. */
static int read_input(const json_t *o, struct chat_input *in, struct api_error *e)
{
    bool generation = true;
    const json_t *j;
    size_t n;
    int r;

    if (api_get(o, "chat_template_kwargs", &j)) {
        char room[64];

        if (!json_is_object(j))
            return api_bad_field(e, "chat_template_kwargs",
                                 "chat_template_kwargs is %s; it must be an object",
                                 api_json_describe(j, room, sizeof room));
        r = check_kwargs(j, e);
        if (r < 0)
            return r;
        in->kwargs = j;
    }
    if (api_get(o, "enable_thinking", &j)) {
        bool b;

        r = api_get_bool(o, "enable_thinking", &b, e);
        if (r < 0)
            return r;
        in->enable_thinking = j;
    }
    r = api_get_string(o, "reasoning_effort", &in->reasoning_effort, &n, e);
    if (r < 0)
        return r;
    r = api_get_bool(o, "add_generation_prompt", &generation, e);
    if (r < 0)
        return r;
    in->no_generation_prompt = !generation;
    return 0;
}

/* A last message of the assistant is the beginning of the answer, unless it is a call. */
static int read_prefill(const json_t *o, struct chat_input *in, struct api_error *e)
{
    const size_t i = json_array_size(in->messages) - 1;
    const json_t *last = json_array_get(in->messages, i);
    bool wanted = true;
    int r = api_get_bool(o, "continue_final_message", &wanted, e);

    if (r < 0 || !wanted ||
        strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0 ||
        json_array_size(json_object_get(last, "tool_calls")) > 0)
        return r;
    in->prefill = chat_last_text(json_object_get(last, "content")) != NULL;
    if (in->prefill)
        return 0;
    if (json_string_length(json_object_get(last, "reasoning_content")) > 0)
        return bad_message(e, i, ".reasoning_content", "all there is of the last message",
                           "followed by content: thinking that was begun cannot go on");
    /* Nothing was begun. */
    if (i > 0)
        (void)json_array_remove((json_t *)in->messages, i);
    return 0;
}

/* Templates that were written before the role existed know it by its old name. */
static int rename_developers(const struct chat_template *c, const json_t *messages)
{
    size_t n;
    const char *source = chat_template_source(c, &n);

    if (memmem(source, n, "developer", 9))
        return 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));

        if (strcmp(role, "developer") == 0 &&
            json_object_set_new(m, "role", json_string("system")) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Chats say logprobs: true and top_logprobs: n, where text completions say logprobs: n. */
static int rename_logprobs(json_t *o, struct api_error *e)
{
    bool wanted = false;
    int64_t top = 0;
    int r = api_get_bool(o, "logprobs", &wanted, e);

    if (r >= 0)
        r = api_get_int(o, "top_logprobs", 0, SAMPLER_MAX_TOP, &top, e);
    if (r < 0)
        return r;
    if (!wanted && top > 0)
        return api_bad_field(e, "top_logprobs", "top_logprobs needs logprobs to be true");
    (void)json_object_del(o, "top_logprobs");
    if (!wanted)
        (void)json_object_del(o, "logprobs");
    else if (json_object_set_new(o, "logprobs", json_integer(top)) < 0)
        return api_error_oom(e);
    return 0;
}

/* What the request needs to be held when its thinking may be too long. */
static int set_budget(const struct completion_limits *limits, struct completion_params *p,
                      struct request *r)
{
    const struct tokenize_options how = {.parse_special = true};

    if (p->reasoning_budget == UINT32_MAX || !p->knows_reasoning)
        return 0;
    r->n_hold = p->in_reasoning ? p->reasoning_budget : 1;
    return tokenizer_encode(limits->tokenizer, CHAT_END_OF_REASONING,
                            sizeof CHAT_END_OF_REASONING - 1, &how, &r->insert);
}

/* -1 or absent: no limit. */
static int read_budget(const json_t *o, struct completion_params *p, struct api_error *e)
{
    int64_t n = -1;
    int r = api_get_int(o, "reasoning_budget_tokens", -1, INT32_MAX, &n, e);

    p->reasoning_budget = n < 0 ? UINT32_MAX : (uint32_t)n;
    return r < 0 ? r : 0;
}

/* The body rendered, and made tokens if wanted; *ret_tools is the body's, NULL: none. */
static int render(const json_t *o, const struct completion_limits *limits,
                  const struct completion_params *p, bool tokens, struct chat_prompt *ret,
                  const json_t **ret_tools, struct api_error *e)
{
    struct chat_input in = {0};
    int rc;

    rc = check_messages(o, &in.messages, e);
    if (rc >= 0)
        rc = check_tools(o, &in.tools, e);
    if (rc >= 0)
        rc = check_tool_choice(o, &in.tools, e);
    if (rc >= 0)
        rc = read_input(o, &in, e);
    if (rc >= 0)
        rc = read_prefill(o, &in, e);
    if (rc < 0)
        return rc;
    if (rename_developers(limits->chat, in.messages) < 0)
        return api_error_oom(e);
    in.no_reasoning = p->reasoning_budget == 0;
    *ret_tools = in.tools;
    return chat_template_prompt(limits->chat, limits->tokenizer, &in, tokens, ret, e);
}

static int make_prompt(const json_t *o, const struct completion_limits *limits,
                       struct completion_params *p, struct request *r, struct api_error *e)
{
    CLEANUP(chat_prompt_done) struct chat_prompt prompt = {0};
    const json_t *tools;
    int rc = render(o, limits, p, true, &prompt, &tools, e);

    if (rc < 0)
        return rc;
    if (prompt.ids.n == 0)
        return api_bad_field(e, "messages", "the chat template made no text of messages");
    if (prompt.ids.n >= limits->context)
        return completion_too_long(e, "messages", prompt.ids.n, limits->context);

    r->prompt = prompt.ids;
    prompt.ids = (struct token_list){0};
    r->bounds = prompt.bounds;
    p->in_reasoning = prompt.in_reasoning;
    p->knows_reasoning = prompt.knows_reasoning;
    p->tools = tools ? json_incref((json_t *)tools) : NULL;
    return set_budget(limits, p, r) < 0 ? api_error_oom(e) : 0;
}

static int check_template(const struct completion_limits *limits, struct api_error *e)
{
    if (!limits->chat)
        return api_error_set(e, 400, "no_chat_template", NULL,
                             "the model file has no chat template; use /v1/completions");
    if (chat_template_fault(limits->chat))
        return api_error_set(e, 400, "chat_template_unsupported", NULL,
                             "the model's chat template cannot be used: %s",
                             chat_template_fault(limits->chat));
    return 0;
}

int chat_render(const json_t *o, const struct completion_limits *limits, bool tokens,
                struct chat_prompt *ret, struct api_error *e)
{
    struct completion_params p = {.is_chat = true};
    const json_t *tools;
    int rc = check_template(limits, e);

    if (rc >= 0)
        rc = chat_refuse(o, e);
    if (rc >= 0)
        rc = read_budget(o, &p, e);
    return rc < 0 ? rc : render(o, limits, &p, tokens, ret, &tools, e);
}

static void request_unrefp(struct request **r)
{
    (void)request_unref(*r);
}

int chat_parse(const char *body, size_t n, const struct completion_limits *limits,
               struct completion_params *ret_params, struct request **ret, struct api_error *e)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(request_unrefp) struct request *r = NULL;
    struct completion_params p = {.is_chat = true};
    int rc;

    rc = check_template(limits, e);
    if (rc >= 0)
        rc = api_json_read(body, n, &o, e);
    if (rc >= 0)
        rc = chat_refuse(o, e);
    if (rc >= 0)
        rc = rename_logprobs(o, e);
    if (rc < 0)
        return rc;
    r = request_new();
    if (!r)
        return api_error_oom(e);
    rc = completion_common(o, limits, r, &p, e);
    if (rc >= 0)
        rc = read_budget(o, &p, e);
    /* Last, since it is the work. */
    if (rc >= 0)
        rc = make_prompt(o, limits, &p, r, e);
    if (rc >= 0)
        rc = completion_root(o, r, e);
    if (rc < 0) {
        json_decref(p.tools);
        return rc;
    }
    *ret_params = p;
    *ret = TAKE(r);
    return 0;
}
