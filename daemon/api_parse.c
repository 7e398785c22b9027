/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api_parse.h"

#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/request.h"
#include "util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Text from here on is measured first: to make tokens of it takes seconds, and may be in vain. */
#define LONG_TEXT_BYTES ((size_t)1 << 20)

int completion_too_long(struct api_error *e, const char *field, size_t n, uint32_t context)
{
    return api_error_set(e, 400, "context_length_exceeded", field,
                         "the prompt has %zu tokens, but the context holds %" PRIu32
                         " and at least one must be left for the answer",
                         n, context);
}

/* The fewest tokens that n bytes can be. */
static size_t fewest_tokens(const struct tokenizer *t, size_t n)
{
    size_t longest = tokenizer_longest(t);

    return n / longest + (n % longest != 0);
}

/* Refuses a text that cannot fit whatever its tokens are. */
static int measure(const json_t *text, const struct completion_limits *limits, struct api_error *e)
{
    size_t fewest;

    if (json_string_length(text) <= LONG_TEXT_BYTES)
        return 0;
    fewest = fewest_tokens(limits->tokenizer, json_string_length(text));
    if (fewest < limits->context)
        return 0;
    return api_error_set(e, 400, "context_length_exceeded", "prompt",
                         "the prompt has at least %zu tokens, but the context holds %" PRIu32
                         " and at least one must be left for the answer",
                         fewest, limits->context);
}

int api_token_ids(const json_t *array, const char *name, const struct tokenizer *t,
                  struct token_list *out, struct api_error *e)
{
    const uint32_t n_vocab = tokenizer_n_vocab(t);

    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *j = json_array_get(array, i);
        char room[64];
        int64_t id;

        if (!api_json_int(j, &id) || id < 0 || id >= (int64_t)n_vocab)
            return api_bad_field(e, name, "%s[%zu] is %s; it must be a token id from 0 to %" PRIu32,
                                 name, i, api_json_describe(j, room, sizeof room), n_vocab - 1);
        if (token_list_add(out, (int32_t)id) < 0)
            return api_error_oom(e);
    }
    return 0;
}

/* The one prompt of the field: itself, or the only element of an array. */
static int one_prompt(const json_t *o, const json_t **ret, struct api_error *e)
{
    const json_t *j;
    char room[64];

    if (!api_get(o, "prompt", &j))
        return api_error_set(e, 400, "missing_field", "prompt",
                             "prompt is missing; it must be a string or an array of token ids");
    if (json_is_array(j) && json_array_size(j) > 0) {
        const json_t *first = json_array_get(j, 0);

        if (json_is_string(first) || json_is_array(first)) {
            if (json_array_size(j) > 1)
                return api_error_set(
                    e, 400, "unsupported_parameter", "prompt",
                    "prompt is an array of %zu prompts; one a request is supported",
                    json_array_size(j));
            j = first;
        }
    }
    if (!json_is_string(j) && !json_is_array(j))
        return api_bad_field(e, "prompt",
                             "prompt is %s; it must be a string or an array of token ids",
                             api_json_describe(j, room, sizeof room));
    *ret = j;
    return 0;
}

int completion_prompt(const json_t *o, const struct completion_limits *limits,
                      struct token_list *out, struct api_error *e)
{
    struct tokenize_options how = {.add_special = true, .parse_special = true};
    const json_t *prompt = NULL;
    int r;

    r = api_get_bool(o, "add_special", &how.add_special, e);
    if (r < 0)
        return r;
    r = api_get_bool(o, "parse_special", &how.parse_special, e);
    if (r < 0)
        return r;
    r = one_prompt(o, &prompt, e);
    if (r < 0)
        return r;

    if (json_is_string(prompt)) {
        r = measure(prompt, limits, e);
        if (r < 0)
            return r;
        if (tokenizer_encode(limits->tokenizer, json_string_value(prompt),
                             json_string_length(prompt), &how, out) < 0)
            return api_error_oom(e);
    } else {
        /* Before a million ids are copied. */
        if (json_array_size(prompt) >= limits->context)
            return completion_too_long(e, "prompt", json_array_size(prompt), limits->context);
        r = api_token_ids(prompt, "prompt", limits->tokenizer, out, e);
        if (r < 0)
            return r;
    }
    if (out->n == 0)
        return api_bad_field(e, "prompt", "prompt is empty; it must have at least one token");
    if (out->n >= limits->context)
        return completion_too_long(e, "prompt", out->n, limits->context);
    return 0;
}

static int stop_add(struct request *r, const json_t *j, struct api_error *e)
{
    size_t n = json_string_length(j);
    const char *s = json_string_value(j);
    char room[64];

    if (!s)
        return api_bad_field(e, "stop", "stop holds %s; it must hold strings",
                             api_json_describe(j, room, sizeof room));
    if (n == 0 || n > COMPLETION_MAX_STOP_BYTES || strlen(s) != n)
        return api_bad_field(e, "stop",
                             "stop holds a string of %zu bytes%s; it must have 1 to %d and no NUL",
                             n, strlen(s) != n ? " with a NUL" : "", COMPLETION_MAX_STOP_BYTES);
    r->stop[r->n_stop] = strdup(s);
    if (!r->stop[r->n_stop])
        return api_error_oom(e);
    r->n_stop++;
    return 0;
}

static int parse_stop(const json_t *o, struct request *r, struct api_error *e)
{
    const json_t *j;
    char room[64];
    size_t n;

    if (!api_get(o, "stop", &j))
        return 0;
    if (!json_is_string(j) && !json_is_array(j))
        return api_bad_field(e, "stop", "stop is %s; it must be a string or an array of strings",
                             api_json_describe(j, room, sizeof room));
    n = json_is_string(j) ? 1 : json_array_size(j);
    if (n > COMPLETION_MAX_STOP)
        return api_bad_field(e, "stop", "stop has %zu strings; it may have at most %d", n,
                             COMPLETION_MAX_STOP);
    if (n == 0)
        return 0;
    r->stop = calloc(n, sizeof *r->stop);
    if (!r->stop)
        return api_error_oom(e);
    for (size_t i = 0; i < n; i++) {
        int rc = stop_add(r, json_is_string(j) ? j : json_array_get(j, i), e);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* -1 is llama-server's word for no limit. */
static int parse_max_tokens(const json_t *o, struct request *r, struct api_error *e)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int64_t n;
        int rc = api_get_int(o, names[i], -1, INT64_MAX, &n, e);

        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (n == 0)
            return api_bad_field(e, names[i], "%s is 0; it must be at least 1, or -1 for no limit",
                                 names[i]);
        r->max_tokens = n < 0 || n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
        return 0;
    }
    return 0;
}

static int parse_answer(const json_t *o, struct completion_params *p, struct api_error *e)
{
    const json_t *so;
    char room[64];
    int r;

    r = api_get_bool(o, "stream", &p->stream, e);
    if (r < 0)
        return r;
    r = api_get_bool(o, "return_token_ids", &p->return_token_ids, e);
    if (r < 0)
        return r;
    r = api_get_bool(o, "return_progress", &p->return_progress, e);
    if (r < 0)
        return r;
    if (!api_get(o, "stream_options", &so))
        return 0;
    if (!json_is_object(so))
        return api_bad_field(e, "stream_options", "stream_options is %s; it must be an object",
                             api_json_describe(so, room, sizeof room));
    r = api_get_bool(so, "include_usage", &p->include_usage, e);
    return r < 0 ? r : 0;
}

/* Fields without an effect whose type is checked all the same, so that a slip shows. */
static int parse_inert(const json_t *o, struct api_error *e)
{
    static const char *const strings[] = {"model", "user"};
    const char *s;
    size_t n;

    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        int r = api_get_string(o, strings[i], &s, &n, e);

        if (r < 0)
            return r;
    }
    return 0;
}

/* What the prompt may share, and with whom. */
static int parse_cache(const json_t *o, struct request *r, struct api_error *e)
{
    bool cache_prompt = true;
    const char *salt = NULL;
    size_t n = 0;
    int rc;

    rc = api_get_bool(o, "cache_prompt", &cache_prompt, e);
    if (rc < 0)
        return rc;
    r->no_cache = !cache_prompt;
    rc = api_get_string(o, "cache_salt", &salt, &n, e);
    if (rc < 0)
        return rc;
    if (n == 0)
        return 0;
    /* A salt that ended at a NUL would be equal to others. */
    if (n > COMPLETION_MAX_SALT_BYTES || strlen(salt) != n)
        return api_bad_field(e, "cache_salt",
                             "cache_salt has %zu bytes%s; it may have %d and no NUL", n,
                             strlen(salt) != n ? " with a NUL" : "", COMPLETION_MAX_SALT_BYTES);
    r->cache_salt = strdup(salt);
    return r->cache_salt ? 0 : api_error_oom(e);
}

int completion_root(const json_t *o, struct request *r, struct api_error *e)
{
    int64_t root;
    int rc;

    rc = api_get_int(o, "cache_root", 0, (int64_t)r->prompt.n, &root, e);
    if (rc < 0)
        return rc;
    r->root_asked = rc > 0;
    if (rc > 0)
        r->bounds.root = (uint32_t)root;
    return 0;
}

static void request_unrefp(struct request **r)
{
    (void)request_unref(*r);
}

int completion_parse(const char *body, size_t n, const struct completion_limits *limits,
                     struct completion_params *ret_params, struct request **ret,
                     struct api_error *e)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(request_unrefp) struct request *r = NULL;
    struct completion_params p = {0};
    int rc;

    rc = api_json_read(body, n, &o, e);
    if (rc < 0)
        return rc;
    rc = completion_refuse(o, e);
    if (rc < 0)
        return rc;
    r = request_new();
    if (!r)
        return api_error_oom(e);
    rc = completion_common(o, limits, r, &p, e);
    if (rc < 0)
        return rc;
    /* Last, since it is the work. */
    rc = completion_prompt(o, limits, &r->prompt, e);
    if (rc < 0)
        return rc;
    boundaries_find(limits->tokenizer, r->prompt.ids, r->prompt.n, &r->bounds);
    rc = completion_root(o, r, e);
    if (rc < 0)
        return rc;
    *ret_params = p;
    *ret = TAKE(r);
    return 0;
}

int completion_common(const json_t *o, const struct completion_limits *limits, struct request *r,
                      struct completion_params *p, struct api_error *e)
{
    int rc;

    rc = parse_answer(o, p, e);
    if (rc < 0)
        return rc;
    rc = parse_inert(o, e);
    if (rc < 0)
        return rc;
    rc = parse_cache(o, r, e);
    if (rc < 0)
        return rc;
    rc = parse_max_tokens(o, r, e);
    if (rc < 0)
        return rc;
    rc = parse_stop(o, r, e);
    if (rc < 0)
        return rc;
    rc = completion_sampling(o, limits, r, e);
    if (rc < 0)
        return rc;
    p->logprobs = r->sampling.logprob;
    return 0;
}
