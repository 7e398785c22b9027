/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real model, SmolLM2-135M-Instruct as Q4_1: 20 chats (tests/data/smollm2.jsonl) are rendered and
 * made tokens by its own template and tokenizer, and continued as the same weights in F32 do.
 *
 * The file is fetched by tests/data/fetch-smollm2 (scripts/quickstart does) or named by
 * STRATA_SMOLLM2; without it the test is skipped.
 */
#include "daemon/api_error.h"
#include "daemon/chat_template.h"
#include "engine/gguf.h"
#include "tests/golden.h"
#include "tests/runner.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/utf8.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED = 77, N_CHATS = 20, MAX_ANSWER = 64, SHORT_CHATS = 2 };

static char path[4096];

static void find_file(void)
{
    static const char name[] = "strata/SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *given = getenv("STRATA_SMOLLM2"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");

    if (given)
        (void)snprintf(path, sizeof path, "%s", given);
    else if (cache && cache[0] == '/')
        (void)snprintf(path, sizeof path, "%s/%s", cache, name);
    else
        (void)snprintf(path, sizeof path, "%s/.cache/%s", home ? home : "", name);
}

static json_t *chats_load(void)
{
    FILE *f = fopen(golden_path("smollm2.jsonl"), "re");
    json_t *all = json_array(), *j;

    ck_assert_ptr_nonnull(f);
    while ((j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)))
        ck_assert_int_eq(json_array_append_new(all, j), 0);
    (void)fclose(f);
    ck_assert_uint_eq(json_array_size(all), N_CHATS);
    return all;
}

/* The ids of an array, malloc'ed. */
static int32_t *ids_of(const json_t *array, uint32_t *ret_n)
{
    int32_t *ids = calloc(json_array_size(array) + 1, sizeof *ids);

    ck_assert_ptr_nonnull(ids);
    *ret_n = (uint32_t)json_array_size(array);
    for (uint32_t i = 0; i < *ret_n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static void check_prompt(const struct chat_template *c, const struct tokenizer *t, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const json_t *want = json_object_get(j, "prompt"), *ids = json_object_get(j, "prompt_ids");
    const struct chat_input in = {.messages = json_object_get(j, "messages")};
    struct chat_prompt p;
    struct api_error e;

    ck_assert_msg(chat_template_prompt(c, t, &in, true, &p, &e) == 0, "%s: %s", name, e.message);
    ck_assert_msg(p.text.len == json_string_length(want) &&
                      memcmp(p.text.data, json_string_value(want), p.text.len) == 0,
                  "%s: %.*s", name, (int)p.text.len, p.text.data);
    ck_assert_msg(p.ids.n == json_array_size(ids), "%s: %zu tokens", name, p.ids.n);
    for (size_t i = 0; i < p.ids.n; i++)
        ck_assert_msg(p.ids.ids[i] == json_integer_value(json_array_get(ids, i)), "%s: id %zu",
                      name, i);
    chat_prompt_done(&p);
}

struct file {
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static void file_open(struct file *f)
{
    struct err_text e;

    ck_assert_msg(gguf_open(path, &f->gguf, &e) == 0, "%s", e.s);
    ck_assert_msg(tokenizer_new(f->gguf, &f->tokenizer, &e) == 0, "%s", e.s);
}

static void file_close(struct file *f)
{
    tokenizer_free(f->tokenizer);
    gguf_free(f->gguf);
}

START_TEST(chats_are_rendered_and_tokenised_alike)
{
    json_t *chats = chats_load();
    struct chat_template *c;
    struct file f;

    file_open(&f);
    ck_assert_int_eq(chat_template_new(f.gguf, f.tokenizer, &c), 0);
    ck_assert_ptr_nonnull(c);
    for (size_t i = 0; i < N_CHATS; i++)
        check_prompt(c, f.tokenizer, json_array_get(chats, i));
    chat_template_free(c);
    file_close(&f);
    json_decref(chats);
}
END_TEST

/* Steps of the goldens by how far the likeliest token is ahead there, and those where we say the
 * same. */
struct tally {
    double margin;
    unsigned int percent; /* at least so many must be alike */
    uint32_t n, n_same;
};

/*
 * The margin of each step.  The goldens have none for a token that leaves a character incomplete:
 * 0 then.
 */
static void read_margins(const struct tokenizer *t, const json_t *margins, const int32_t *answer,
                         uint32_t n, double *ret)
{
    CLEANUP(buf_done) struct buf text = {0};
    size_t i_margin = 0;

    for (uint32_t k = 0; k < n; k++) {
        size_t len;
        const char *piece = tokenizer_piece(t, answer[k], true, &len);

        ck_assert_int_eq(buf_add(&text, piece, len), 0);
        ret[k] = utf8_is_valid(text.data, text.len)
                     ? json_number_value(json_array_get(margins, i_margin++))
                     : 0;
    }
    ck_assert_uint_eq(i_margin, json_array_size(margins));
}

/* Along the golden answer, whatever we would have said. */
static void continue_chat(struct runner *r, const struct tokenizer *t, const json_t *j,
                          struct tally *tallies, size_t n)
{
    uint32_t n_prompt, n_answer;
    int32_t *prompt = ids_of(json_object_get(j, "prompt_ids"), &n_prompt);
    int32_t *answer = ids_of(json_object_get(j, "ids"), &n_answer);
    struct sample samples[MAX_ANSWER];
    double margins[MAX_ANSWER];
    struct sequence *s = runner_sequence(r);
    struct sampler_params sp;

    ck_assert(n_answer >= 2 && n_answer <= MAX_ANSWER);
    read_margins(t, json_object_get(j, "margins"), answer, n_answer, margins);
    sampler_params_init(&sp);
    samples[0].id = runner_read(r, s, prompt, n_prompt, r->max_rows, NULL);
    struct step_entry en = {.seq = s,
                            .ids = answer,
                            .n_rows = n_answer - 1,
                            .n_logits = n_answer - 1,
                            .sampling = &sp,
                            .samples = samples + 1};
    runner_step(r, &en, 1);
    ck_assert_int_eq(en.status, 0);
    for (uint32_t k = 0; k < n_answer; k++)
        for (size_t i = 0; i < n; i++)
            if (margins[k] >= tallies[i].margin) {
                tallies[i].n++;
                tallies[i].n_same += samples[k].id == answer[k];
            }
    runner_release(r, s);
    free(prompt);
    free(answer);
}

START_TEST(answers_are_those_of_the_weights_in_f32)
{
    const uint32_t n_chats = getenv("STRATA_TEST_SHORT") ? SHORT_CHATS : N_CHATS;
    struct tally tallies[] = {{2, 100, 0, 0}, {0.25, 99, 0, 0}, {0, 95, 0, 0}};
    const size_t n = sizeof tallies / sizeof tallies[0];
    json_t *chats = chats_load();
    struct file f;
    struct runner r;

    if (n_chats < N_CHATS)
        printf("STRATA_TEST_SHORT: %d of %d chats left out\n", N_CHATS - SHORT_CHATS, N_CHATS);
    file_open(&f);
    runner_open(&r, path, &(struct runner_options){.n_threads = 2, .context = 5120});
    for (uint32_t i = 0; i < n_chats; i++)
        continue_chat(&r, f.tokenizer, json_array_get(chats, i), tallies, n);
    runner_close(&r);
    file_close(&f);
    json_decref(chats);
    for (size_t i = 0; i < n; i++) {
        printf("margin from %.2f: %u of %u steps alike (limit %u %%)\n", tallies[i].margin,
               tallies[i].n_same, tallies[i].n, tallies[i].percent);
        ck_assert_uint_gt(tallies[i].n, 0);
        ck_assert_uint_ge(100 * tallies[i].n_same, tallies[i].percent * tallies[i].n);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("smollm2");
    TCase *t = tcase_create("chats");
    SRunner *sr;
    int failed;

    find_file();
    if (access(path, R_OK) != 0) {
        printf("SKIPPED: there is no %s; tests/data/fetch-smollm2 fetches it\n", path);
        return SKIPPED;
    }
    tcase_set_timeout(t, 1200);
    tcase_add_test(t, chats_are_rendered_and_tokenised_alike);
    tcase_add_test(t, answers_are_those_of_the_weights_in_f32);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
