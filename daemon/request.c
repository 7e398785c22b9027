/* SPDX-License-Identifier: Apache-2.0 */
/* A completion's memory: made on any thread, counted by its owner thread, freed whole. */
#include "daemon/request.h"

#include "daemon/decisions.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

struct request *request_new(void)
{
    static atomic_uint_fast64_t last_id; /* front threads make requests side by side */
    struct request *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->refs = 1;
    r->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    r->uid = UINT32_MAX;
    sampler_params_init(&r->sampling);
    r->max_tokens = UINT32_MAX;
    r->n_hold = UINT32_MAX;
    r->stop_token = -1;
    r->slot = -1;
    return r;
}

struct request *request_ref(struct request *r)
{
    assert(r->refs > 0);
    r->refs++;
    return r;
}

static void request_free(struct request *r)
{
    token_list_done(&r->prompt);
    token_list_done(&r->insert);
    free(r->bias);
    for (size_t i = 0; i < r->n_stop; i++)
        free(r->stop[i]);
    free(r->stop);
    free(r->cache_salt);
    for (size_t i = 0; i < r->n_tokens; i++)
        free(r->tokens[i].top);
    free(r->tokens);
    buf_done(&r->text);
    request_text_done(r);
    decision_unref(r->decision);
    free(r);
}

struct request *request_unref(struct request *r)
{
    if (!r)
        return NULL;
    assert(r->refs > 0);
    if (--r->refs == 0)
        request_free(r);
    return NULL;
}
