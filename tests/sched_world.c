/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

/* Letters, so that stop strings come up, and characters in pieces. */
static const struct fake_piece pieces[WORLD_VOCAB] = {
    {"<end>", 5}, {"?", 1},  {"a", 1},   {"b", 1},        {"ab", 2},   {"ba", 2},
    {"c", 1},     {" ", 1},  {"é", 2},   {"\xe2\x82", 2}, {"\xac", 1}, {"\xf0\x9f\x98", 3},
    {"\x80", 1},  {"€€", 6}, {"abc", 3}, {"", 0},         {"d", 1},    {"e", 1},
    {"f", 1},     {"g", 1},  {"h", 1},   {"i", 1},        {"j", 1},    {"k", 1},
    {"l", 1},     {"m", 1},  {"n", 1},   {"o", 1},        {"p", 1},    {"q", 1},
    {"r", 1},     {"s", 1},  {"t", 1},   {"u", 1},        {"v", 1},    {"w", 1},
    {"x", 1},     {"y", 1},  {"z", 1},   {"\n", 1},
};

struct world *world_new(const struct world_options *o)
{
    struct world *w = calloc(1, sizeof *w);

    ck_assert_ptr_nonnull(w);
    w->o = *o;
    w->seed = (unsigned int)o->engine.seed;
    ck_assert_int_ge(sd_event_new(&w->event), 0);
    w->engine = fake_engine_new(&o->engine);
    w->tokenizer = fake_tokenizer_new(pieces, WORLD_VOCAB);
    ck_assert_int_eq(sched_new(w->event, w->engine, w->tokenizer, &o->sched, &w->sched), 0);
    return w;
}

static void nothing(void *arg)
{
    (void)arg;
}

void world_free(struct world *w)
{
    w->on_call = NULL;
    sched_stop(w->sched, true, nothing, NULL);
    world_run(w);
    sched_free(w->sched);
    ck_assert_uint_eq(w->n_done, w->n_submitted);
    ck_assert(units_is_sane(engine_units(w->engine)));
    ck_assert_uint_eq(engine_units(w->engine)->n_free, w->o.engine.n_units);
    for (uint32_t i = 0; i < w->n_clients; i++)
        client_free(&w->clients[i]);
    engine_close(w->engine);
    tokenizer_free(w->tokenizer);
    (void)sd_event_unref(w->event);
    free(w);
}

void world_turn(struct world *w)
{
    int rc;

    while ((rc = sd_event_run(w->event, 0)) > 0)
        ;
    ck_assert_int_eq(rc, 0);
    ck_assert(units_is_sane(engine_units(w->engine)));
    ck_assert_uint_le(fake_engine_log(w->engine)->steps_in_flight, 2);
}

void world_run(struct world *w)
{
    /* Far more than any test needs: a scheduler that turns in circles is found out. */
    for (int i = 0; i < 100000; i++) {
        world_turn(w);
        if (!fake_engine_run(w->engine))
            return;
    }
    ck_abort_msg("the scheduler never comes to rest");
}

/* --- the cold run --- */

static uint32_t limit_of(const struct client *c)
{
    const struct fake_options *o = &c->w->o.engine;
    uint32_t pool = o->n_units * ENGINE_PAGE_TOKENS + 1;
    uint32_t most = (o->context < pool ? o->context : pool) - (uint32_t)c->r->prompt.n;

    return c->r->max_tokens < most ? c->r->max_tokens : most;
}

struct cold {
    int32_t ids[4096];
    size_t n;
    enum finish_reason finish;
    const char *stop_word;
    struct buf text; /* repaired; cut at the stop string */
};

/* A stop string that `text` ends with at any byte from `from` on; the text is cut. */
static const char *find_stop(const struct request *r, struct buf *text, size_t from)
{
    for (size_t end = from + 1; end <= text->len; end++) {
        const char *best = NULL;

        for (size_t i = 0; i < r->n_stop; i++) {
            size_t n = strlen(r->stop[i]);

            if (n <= end && memcmp(text->data + end - n, r->stop[i], n) == 0 &&
                (!best || n > strlen(best)))
                best = r->stop[i];
        }
        if (best) {
            text->len = end - strlen(best);
            return best;
        }
    }
    return NULL;
}

static void run_cold(const struct client *c, struct cold *ret)
{
    const struct request *r = c->r;
    struct utf8_stream u = {{0}, 0};
    int32_t *ids = calloc(r->prompt.n + 4096, sizeof *ids);
    size_t n = r->prompt.n;

    *ret = (struct cold){.finish = FINISH_LENGTH};
    memcpy(ids, r->prompt.ids, n * sizeof *ids);
    while (ret->n < limit_of(c)) {
        int32_t id = fake_next(&c->w->o.engine, ids, n, r->ignore_eos);
        size_t from = ret->text.len;

        ck_assert_uint_lt(ret->n, 4096);
        ids[n++] = ret->ids[ret->n++] = id;
        if (id == FAKE_END) {
            ret->finish = FINISH_STOP;
            break;
        }
        ck_assert_int_eq(utf8_stream_put(&u, pieces[id].s, pieces[id].n, &ret->text), 0);
        ret->stop_word = find_stop(r, &ret->text, from);
        if (ret->stop_word) {
            ret->finish = FINISH_STOP;
            break;
        }
    }
    if (!ret->stop_word) {
        size_t from = ret->text.len;

        ck_assert_int_eq(utf8_stream_end(&u, &ret->text), 0);
        ret->stop_word = find_stop(r, &ret->text, from);
    }
    free(ids);
}

void client_check(const struct client *c)
{
    const struct request *r = c->r;
    struct cold *cold = malloc(sizeof *cold);

    run_cold(c, cold);
    ck_assert_uint_eq(c->n_done, 1);
    ck_assert_int_eq(r->state, REQUEST_DONE);
    ck_assert_uint_eq(r->n_tokens, r->n_generated);
    ck_assert_uint_eq(r->n_tokens_released, r->n_tokens);
    ck_assert_uint_le(r->n_tokens, cold->n);
    for (size_t i = 0; i < r->n_tokens; i++)
        ck_assert_int_eq(r->tokens[i].id, cold->ids[i]);
    if (r->finish != FINISH_CANCELLED) {
        ck_assert_int_eq(r->finish, cold->finish);
        ck_assert_uint_eq(r->n_tokens, cold->n);
        ck_assert_uint_eq(r->n_read, r->prompt.n);
        ck_assert_ptr_eq(r->stop_word, cold->stop_word);
        ck_assert_uint_eq(r->text.len, cold->text.len);
        if (r->text.len)
            ck_assert_mem_eq(r->text.data, cold->text.data, r->text.len);
    }
    buf_done(&cold->text);
    free(cold);
}

/* --- clients --- */

static void on_any(struct client *c, bool done)
{
    ck_assert(!c->w->inside);
    ck_assert_uint_eq(c->n_done, done);
    ck_assert_uint_ge(c->r->n_read, c->seen_read);
    ck_assert_uint_ge(c->r->n_tokens, c->seen_tokens);
    ck_assert_uint_ge(c->r->text.len, c->seen_text);
    c->seen_read = c->r->n_read;
    c->seen_tokens = c->r->n_tokens;
    c->seen_text = c->r->text.len;
    if (c->w->on_call)
        c->w->on_call(c, done);
}

static void on_progress(struct request *r, void *arg)
{
    struct client *c = arg;

    ck_assert_uint_gt(r->n_read, c->seen_read);
    c->n_progress++;
    on_any(c, false);
}

static void on_output(struct request *r, void *arg)
{
    struct client *c = arg;

    (void)r;
    c->n_output++;
    on_any(c, false);
}

static void on_done(struct request *r, void *arg)
{
    struct client *c = arg;

    ck_assert_int_eq(r->state, REQUEST_DONE);
    ck_assert_int_ne(r->finish, FINISH_NONE);
    c->n_done++;
    c->done_at = ++c->w->n_done;
    on_any(c, true);
}

struct client *client_new(struct world *w, uint32_t n_prompt, uint32_t max_tokens)
{
    struct client *c = &w->clients[w->n_clients];

    ck_assert_uint_lt(w->n_clients++, WORLD_CLIENTS);
    *c = (struct client){.w = w, .r = request_new()};
    ck_assert_ptr_nonnull(c->r);
    for (uint32_t i = 0; i < n_prompt; i++)
        ck_assert_int_eq(token_list_add(&c->r->prompt, 2 + rand_r(&w->seed) % (WORLD_VOCAB - 2)),
                         0);
    c->r->max_tokens = max_tokens;
    c->r->observer = (struct request_observer){on_progress, on_output, on_done, c};
    return c;
}

int client_submit(struct client *c, struct err_text *e)
{
    int rc;

    c->w->inside = true;
    rc = sched_submit(c->w->sched, c->r, e);
    c->w->inside = false;
    c->submitted = rc == 0;
    c->w->n_submitted += c->submitted;
    return rc;
}

void client_free(struct client *c)
{
    c->r = request_unref(c->r);
}
