/* SPDX-License-Identifier: Apache-2.0 */
/* How the tokens of a completion are to be chosen: numbers with their ranges, and the bias list. */
#include "daemon/api_parse.h"

#include "daemon/api_error.h"
#include "daemon/api_json.h"
#include "daemon/request.h"
#include "util/err.h"
#include "util/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Below this a division by the temperature tells no two logits apart from the greedy choice. */
#define TEMPERATURE_GREEDY 1e-5

/* Field, alias, range and default, in the order of `v` in sampling_numbers. */
struct number {
    const char *name, *alias;
    double min, max, def;
};

enum { TEMPERATURE, TOP_P, MIN_P, PRESENCE, FREQUENCY, REPEAT, NUMBER_N };

/* Defaults are OpenAI's, and "off" for what OpenAI does not have. */
static const struct number numbers[NUMBER_N] = {
    [TEMPERATURE] = {"temperature", NULL, 0, 100, 1},
    [TOP_P] = {"top_p", NULL, 0, 1, 1},
    [MIN_P] = {"min_p", NULL, 0, 1, 0},
    [PRESENCE] = {"presence_penalty", NULL, -2, 2, 0},
    [FREQUENCY] = {"frequency_penalty", NULL, -2, 2, 0},
    [REPEAT] = {"repeat_penalty", "repetition_penalty", 0.01, 100, 1},
};

static int sampling_numbers(const json_t *o, struct sampler_params *p, struct api_error *e)
{
    double v[NUMBER_N];

    for (int i = 0; i < NUMBER_N; i++) {
        const struct number *f = &numbers[i];
        int r = api_get_double(o, f->name, f->min, f->max, &v[i], e);

        if (r == 0 && f->alias)
            r = api_get_double(o, f->alias, f->min, f->max, &v[i], e);
        if (r < 0)
            return r;
        if (r == 0)
            v[i] = f->def;
    }
    p->temperature = v[TEMPERATURE] < TEMPERATURE_GREEDY ? 0 : (float)v[TEMPERATURE];
    p->top_p = (float)v[TOP_P];
    p->min_p = (float)v[MIN_P];
    p->presence_penalty = (float)v[PRESENCE];
    p->frequency_penalty = (float)v[FREQUENCY];
    p->repeat_penalty = (float)v[REPEAT];
    return 0;
}

static int sampling_integers(const json_t *o, struct sampler_params *p, struct api_error *e)
{
    int64_t top_k = 0, last_n = 64, seed = -1;
    int r;

    r = api_get_int(o, "top_k", -1, INT32_MAX, &top_k, e);
    if (r < 0)
        return r;
    r = api_get_int(o, "repeat_last_n", -1, INT32_MAX, &last_n, e);
    if (r < 0)
        return r;
    r = api_get_int(o, "seed", INT64_MIN, INT64_MAX, &seed, e);
    if (r < 0)
        return r;

    p->top_k = (int32_t)top_k;
    p->penalty_last_n = (int32_t)last_n;
    p->seed = (uint64_t)seed;
    /*
     * -1 is llama-server's word for a random one.  getrandom cannot fail for so few bytes once the
     * machine is up.
     */
    if (seed == -1 && getrandom(&p->seed, sizeof p->seed, 0) != sizeof p->seed)
        return api_error_set(e, 500, NULL, "seed", "no random numbers");
    return 0;
}

static int sampling_logprobs(const json_t *o, struct sampler_params *p, struct api_error *e)
{
    const json_t *j;
    int64_t n;
    int r;

    if (api_get(o, "logprobs", &j) && json_is_false(j))
        return 0;
    r = api_get_int(o, "logprobs", 0, SAMPLER_MAX_TOP, &n, e);
    if (r <= 0)
        return r;
    p->logprob = true;
    p->n_top = (uint32_t)n;
    return 0;
}

/* One entry, into the next free place of r->bias.  OpenAI: -100 bans. */
static int bias_add(struct request *r, uint32_t n_vocab, int64_t id, const json_t *value,
                    struct api_error *e)
{
    char room[64];
    double v;

    if (id < 0 || id >= (int64_t)n_vocab)
        return api_bad_field(e, "logit_bias", "logit_bias holds the token id %lld; ids are 0 to %u",
                             (long long)id, n_vocab - 1);
    if (json_is_false(value)) {
        v = -100;
    } else if (json_is_number(value) && fabs(json_number_value(value)) <= 100) {
        v = json_number_value(value);
    } else {
        return api_bad_field(e, "logit_bias",
                             "logit_bias of token %lld is %s; it must be a number from -100 to 100",
                             (long long)id, api_json_describe(value, room, sizeof room));
    }
    r->bias[r->sampling.n_bias++] = (struct logit_bias){
        .id = (int32_t)id,
        .bias = v <= -100 ? -INFINITY : (float)v,
    };
    return 0;
}

/* {"42": -100, ...} */
static int bias_object(const json_t *j, uint32_t n_vocab, struct request *r, struct api_error *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)j, key, value)
    {
        char room[64];
        uint64_t id;
        int rc;

        if (text_u64(key, &id) < 0 || id > INT32_MAX)
            return api_bad_field(e, "logit_bias",
                                 "logit_bias has the key \"%s\"; keys must be token ids, 0 to %u",
                                 err_escape(room, sizeof room, key, strlen(key)), n_vocab - 1);
        rc = bias_add(r, n_vocab, (int64_t)id, value, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* llama-server's [[42, -100], [43, false], ...] */
static int bias_pairs(const json_t *j, uint32_t n_vocab, struct request *r, struct api_error *e)
{
    for (size_t i = 0; i < json_array_size(j); i++) {
        const json_t *pair = json_array_get(j, i);
        int64_t id;
        int rc;

        if (json_array_size(pair) != 2 || !api_json_int(json_array_get(pair, 0), &id))
            return api_bad_field(e, "logit_bias",
                                 "logit_bias[%zu] must be an array of a token id and a number", i);
        rc = bias_add(r, n_vocab, id, json_array_get(pair, 1), e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int sampling_bias(const json_t *o, const struct tokenizer *t, struct request *r,
                         struct api_error *e)
{
    uint32_t n_vocab = tokenizer_n_vocab(t);
    const json_t *j = NULL;
    char room[64];
    size_t n = 0;

    if (api_get(o, "logit_bias", &j)) {
        if (!json_is_object(j) && !json_is_array(j))
            return api_bad_field(e, "logit_bias",
                                 "logit_bias is %s; it must be an object of token ids and numbers",
                                 api_json_describe(j, room, sizeof room));
        n = json_is_object(j) ? json_object_size(j) : json_array_size(j);
        if (n > n_vocab)
            return api_bad_field(e, "logit_bias",
                                 "logit_bias has %zu entries; the vocabulary has %u tokens", n,
                                 n_vocab);
    }
    if (n == 0)
        return 0;

    r->bias = calloc(n, sizeof *r->bias);
    if (!r->bias)
        return api_error_oom(e);
    r->sampling.bias = r->bias;
    return json_is_object(j) ? bias_object(j, n_vocab, r, e) : bias_pairs(j, n_vocab, r, e);
}

/* Some token must be left to sample, or the request could only fail once its prompt was read. */
static int check_bans(const struct tokenizer *t, const struct request *r, struct api_error *e)
{
    const uint32_t n_vocab = tokenizer_n_vocab(t);
    const struct sampler_params *p = &r->sampling;
    size_t n_end = 0, n_left = n_vocab;
    const int32_t *end_ids = tokenizer_end_ids(t, &n_end);
    bool *banned;

    if (!r->ignore_eos)
        n_end = 0;
    if (p->n_bias + n_end < n_vocab)
        return 0;
    banned = calloc(n_vocab, sizeof *banned);
    if (!banned)
        return api_error_oom(e);
    for (size_t i = 0; i < p->n_bias + n_end; i++) {
        const int32_t id = i < p->n_bias ? p->bias[i].id : end_ids[i - p->n_bias];

        if (i < p->n_bias && p->bias[i].bias != -INFINITY)
            continue;
        n_left -= !banned[id];
        banned[id] = true;
    }
    free(banned);
    return n_left > 0 ? 0
                      : api_bad_field(e, "logit_bias", "logit_bias%s bans every token",
                                      n_end > 0 ? " with ignore_eos" : "");
}

int completion_sampling(const json_t *o, const struct completion_limits *limits, struct request *r,
                        struct api_error *e)
{
    int rc;

    rc = sampling_numbers(o, &r->sampling, e);
    if (rc < 0)
        return rc;
    rc = sampling_integers(o, &r->sampling, e);
    if (rc < 0)
        return rc;
    rc = sampling_logprobs(o, &r->sampling, e);
    if (rc < 0)
        return rc;
    rc = api_get_bool(o, "ignore_eos", &r->ignore_eos, e);
    if (rc < 0)
        return rc;
    rc = sampling_bias(o, limits->tokenizer, r, e);
    if (rc < 0)
        return rc;
    return check_bans(limits->tokenizer, r, e);
}
