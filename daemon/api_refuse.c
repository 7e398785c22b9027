/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of other servers' completions that change the answer and do not work here: ignoring them
 * would give an answer that is wrong in silence, so they are refused by name, unless their value
 * asks for nothing.
 */
#include "daemon/api_parse.h"

#include "daemon/api_error.h"
#include "daemon/api_json.h"

#include <stdio.h>
#include <string.h>

/* When the field is harmless; null always is. */
enum harmless {
    IF_NEVER,
    IF_EMPTY, /* "", [], {} */
    IF_FALSE,
    IF_NUMBER, /* equal to `number` */
    IF_TEXT,   /* "text", or an object whose type is "text" */
};

struct refusal {
    const char *name;
    enum harmless harmless;
    double number;
    const char *allowed; /* in words */
};

static const struct refusal refusals[] = {
    /* OpenAI */
    {"n", IF_NUMBER, 1, "1"},
    {"best_of", IF_NUMBER, 1, "1"},
    {"suffix", IF_EMPTY, 0, "null or empty"},
    {"echo", IF_FALSE, 0, "false"},
    {"response_format", IF_TEXT, 0, "{\"type\":\"text\"}"},
    {"messages", IF_NEVER, 0, "absent: send `prompt`"},
    {"tools", IF_EMPTY, 0, "absent"},
    {"functions", IF_EMPTY, 0, "absent"},
    {"modalities", IF_EMPTY, 0, "absent"},
    /* constrained output, by its many names */
    {"grammar", IF_EMPTY, 0, "absent"},
    {"grammar_triggers", IF_EMPTY, 0, "absent"},
    {"json_schema", IF_EMPTY, 0, "absent"},
    {"structured_outputs", IF_EMPTY, 0, "absent"},
    {"guided_json", IF_EMPTY, 0, "absent"},
    {"guided_regex", IF_EMPTY, 0, "absent"},
    {"guided_choice", IF_EMPTY, 0, "absent"},
    {"guided_grammar", IF_EMPTY, 0, "absent"},
    /* not text, and adapters */
    {"images", IF_EMPTY, 0, "absent"},
    {"image_data", IF_EMPTY, 0, "absent"},
    {"multimodal_data", IF_EMPTY, 0, "absent"},
    {"prompt_embeds", IF_EMPTY, 0, "absent"},
    {"lora", IF_EMPTY, 0, "absent"},
    {"control_vectors", IF_EMPTY, 0, "absent"},
    {"input_prefix", IF_EMPTY, 0, "absent"},
    {"input_suffix", IF_EMPTY, 0, "absent"},
    {"input_extra", IF_EMPTY, 0, "absent"},
    /* samplers that do not exist here */
    {"samplers", IF_EMPTY, 0, "absent"},
    {"typical_p", IF_NUMBER, 1, "1"},
    {"mirostat", IF_NUMBER, 0, "0"},
    {"xtc_probability", IF_NUMBER, 0, "0"},
    {"dry_multiplier", IF_NUMBER, 0, "0"},
    {"dynatemp_range", IF_NUMBER, 0, "0"},
    {"top_n_sigma", IF_NUMBER, -1, "-1"},
    {"min_keep", IF_NUMBER, 0, "0"},
    {"penalty_prompt", IF_EMPTY, 0, "absent"},
    {"use_beam_search", IF_FALSE, 0, "false"},
    {"length_penalty", IF_NUMBER, 1, "1"},
    {"logits_processors", IF_EMPTY, 0, "absent"},
    {"allowed_token_ids", IF_EMPTY, 0, "absent"},
    {"bad_words", IF_EMPTY, 0, "absent"},
    {"post_sampling_probs", IF_FALSE, 0, "false"},
    {"n_probs", IF_NUMBER, 0, "0: send `logprobs`"},
    {"prompt_logprobs", IF_NEVER, 0, "absent"},
    /* where to stop and what to keep */
    {"stop_token_ids", IF_EMPTY, 0, "absent"},
    {"include_stop_str_in_output", IF_FALSE, 0, "false"},
    {"min_tokens", IF_NUMBER, 0, "0"},
    {"n_indent", IF_NUMBER, 0, "0"},
    {"t_max_predict_ms", IF_NUMBER, 0, "0"},
    {"truncate_prompt_tokens", IF_NEVER, 0, "absent"},
    {"n_cmpl", IF_NUMBER, 1, "1"},
};

static bool is_text_format(const json_t *j)
{
    const char *type = json_string_value(json_is_object(j) ? json_object_get(j, "type") : j);

    return type && strcmp(type, "text") == 0;
}

static bool is_harmless(const struct refusal *f, const json_t *j)
{
    switch (f->harmless) {
    case IF_NEVER:
        return false;
    case IF_EMPTY:
        return (json_is_string(j) && json_string_length(j) == 0) ||
               (json_is_array(j) && json_array_size(j) == 0) ||
               (json_is_object(j) && json_object_size(j) == 0);
    case IF_FALSE:
        return json_is_false(j);
    case IF_NUMBER:
        return json_is_number(j) && json_number_value(j) == f->number;
    case IF_TEXT:
        return is_text_format(j);
    }
    return false;
}

/* Fields of the table that chats do honour. */
static bool is_of_chats(const char *name)
{
    static const char *const honoured[] = {"messages", "tools"};

    for (size_t i = 0; i < sizeof honoured / sizeof honoured[0]; i++)
        if (strcmp(name, honoured[i]) == 0)
            return true;
    return false;
}

static int refuse(const json_t *o, bool chat, struct api_error *e)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *f = &refusals[i];
        const json_t *j;
        char room[64];

        if (chat && is_of_chats(f->name))
            continue;

        if (!api_get(o, f->name, &j) || is_harmless(f, j))
            continue;
        return api_error_set(e, 400, "unsupported_parameter", f->name,
                             "%s is %s; it is not supported, it must be %s", f->name,
                             api_json_describe(j, room, sizeof room), f->allowed);
    }
    return 0;
}

int completion_refuse(const json_t *o, struct api_error *e)
{
    return refuse(o, false, e);
}

int chat_refuse(const json_t *o, struct api_error *e)
{
    static const char *const absent[] = {"prompt", "audio", "function_call", "web_search_options"};
    const json_t *j;
    int r = refuse(o, true, e);

    for (size_t i = 0; r >= 0 && i < sizeof absent / sizeof absent[0]; i++)
        if (api_get(o, absent[i], &j))
            r = api_error_set(e, 400, "unsupported_parameter", absent[i],
                              "%s is not a field of chats here; it must be absent", absent[i]);
    return r;
}
