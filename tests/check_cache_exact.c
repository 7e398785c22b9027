/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hit equals a cold run (docs/architecture.md, law 1): whatever a request was begun with, by the
 * scheduler, out of whichever tier, it samples what it would have sampled alone, and leaves the
 * bytes that it would have left.
 *
 * The models: needle (hybrid, mixture, draft block), two small hybrids, a dense llama.
 */
#include "daemon/sched.h"
#include "tests/mkmodel.h"
#include "tests/sched_lab.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_STREAM = 1024 };

static const struct {
    const char *name;
    struct mkmodel make; /* family NULL: the needle file */
} models[] = {
    {"needle", {.family = NULL}},
    {"qwen35",
     {.family = "qwen35", .type = 0, .draft = true, .dn_k_heads = 1, .dn_v_heads = 3, .seed = 7}},
    {"llama",
     {.family = "llama",
      .type = TENSOR_BF16,
      .n_embd = 72,
      .n_head = 3,
      .n_head_kv = 1,
      .head_dim = 24,
      .n_ff = 100,
      .bias = true,
      .seed = 5}},
    {"qwen3next", {.family = "qwen3next", .type = TENSOR_Q8_0, .dn_dim = 32, .seed = 4}},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static bool short_run, long_run;

static bool is_slow(int i)
{
    return !long_run && (short_run || !models[i].make.family);
}

/* Any tokens: the control tokens too, they mean nothing here. */
static void stream(const struct lab *l, unsigned int seed, int32_t *ret, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (int32_t)((uint32_t)rand_r(&seed) % l->runner.n_vocab);
}

static struct request *ask(struct lab *l, const int32_t *ids, uint32_t n, uint32_t n_answer)
{
    struct request *r = lab_request(l, ids, n, n_answer);

    lab_submit(l, r);
    lab_run(l);
    return r;
}

static bool is_hybrid(const struct lab *l)
{
    return l->runner.plan.checkpoint_units > 0;
}

/* 130 consecutive lengths of the same tokens, in an order that goes up and down. */
START_TEST(every_length_after_every_other)
{
    const char *name = models[_i].name;
    int32_t ids[N_STREAM];
    uint64_t reused = 0;
    struct lab l;

    lab_open(&l, &models[_i].make, &(struct lab_options){.ram_units = 256, .n_units = 512});
    stream(&l, 1, ids, N_STREAM);
    for (uint32_t i = 0; i < 130; i += short_run ? 9 : 1) {
        const uint32_t n = 4 + i * 37 % 130;
        struct request *r = ask(&l, ids, n, 3);

        lab_expect_cold(&l, r, name, n);
        /* Everything was kept, to the end. */
        ck_assert_uint_eq(r->decision->n_kept, n + r->n_tokens - 1);
        reused += r->n_cached;
        (void)request_unref(r);
    }
    ck_assert_uint_gt(reused, short_run ? 100 : 2000);
    lab_expect_all_cold(&l, name, 0);
    lab_close(&l);
}
END_TEST

/* A prompt that leaves a stored one at every place, and another one that leaves it there too. */
START_TEST(every_cut_of_a_stored_prompt)
{
    enum { N = 200, OTHER = 9 };
    const char *name = models[_i].name;
    int32_t ids[N_STREAM], prompt[N + OTHER];
    struct request *r;
    struct lab l;

    lab_open(&l, &models[_i].make, &(struct lab_options){.ram_units = 2048, .n_units = 4096});
    stream(&l, 2, ids, N_STREAM);
    r = ask(&l, ids, N, 4);
    (void)request_unref(r);
    for (uint32_t k = 1; k <= N; k += is_slow(_i) ? short_run ? 23 : 5 : 1)
        for (uint32_t twin = 0; twin < (short_run || k % 2 ? 1 : 2); twin++) {
            memcpy(prompt, ids, k * sizeof *ids);
            stream(&l, 1000 * k + twin, prompt + k, OTHER);
            prompt[k] = (ids[k] + 1 + (int32_t)twin) % (int32_t)l.runner.n_vocab;
            r = ask(&l, prompt, k + OTHER, 2);
            lab_expect_cold(&l, r, name, k);
            if (!is_hybrid(&l))
                ck_assert_uint_eq(r->n_cached, k);
            /* The first one to leave there took a branch checkpoint. */
            else if (twin == 1 && k >= CACHE_PAGE)
                ck_assert_uint_gt(r->n_cached + CACHE_PAGE, k);
            (void)request_unref(r);
        }
    lab_expect_all_cold(&l, name, 1);
    lab_close(&l);
}
END_TEST

/* As above, where next to nothing has room: pages leave, come back, and are read again. */
START_TEST(every_cut_while_everything_moves)
{
    enum { N = 200, OTHER = 9 };
    const char *name = models[_i].name;
    int32_t ids[N_STREAM], prompt[N + OTHER];
    struct cache_stats st;
    struct lab l;
    uint32_t check;

    lab_open(&l, &models[_i].make, &(struct lab_options){.ram_units = 1, .n_units = 8});
    check = l.runner.plan.checkpoint_units;
    lab_close(&l);
    lab_open(&l, &models[_i].make,
             &(struct lab_options){.ram_units = 12 + 4 * check, .n_units = 6 + 3 * check});
    stream(&l, 3, ids, N_STREAM);
    for (uint32_t i = 0; i < N; i += is_slow(_i) ? 5 : 1) {
        const uint32_t k = 1 + i * 77 % N;
        struct request *r;

        memcpy(prompt, ids, k * sizeof *ids);
        stream(&l, 2000 + i, prompt + k, OTHER);
        r = ask(&l, prompt, k + OTHER, 3);
        lab_expect_cold(&l, r, name, k);
        (void)request_unref(r);
        if (i % 20 == 0)
            lab_expect_all_cold(&l, name, i);
    }
    cache_stats(l.cache, &st);
    ck_assert_uint_gt(st.write_backs, 0);
    ck_assert_uint_gt(st.loads, 0);
    ck_assert_uint_gt(st.evictions, 0);
    lab_close(&l);
}
END_TEST

/* Two and more at once that begin alike: one reads, the others wait for it. */
START_TEST(what_is_being_read_is_waited_for)
{
    enum { COMMON = 260, OWN = 20, N = 8 };
    const char *name = models[_i].name;
    int32_t ids[N_STREAM], prompt[COMMON + OWN];
    struct request *r[N];
    struct lab l;
    uint32_t joined = 0;

    lab_open(&l, &models[_i].make,
             &(struct lab_options){.ram_units = 64, .n_units = 512, .max_rows = 80});
    stream(&l, 4, ids, N_STREAM);
    for (uint32_t round = 0; round < (short_run ? 1 : 4); round++) {
        /* Two alike, two that end inside, all slots and more. */
        const uint32_t n = round == 0 ? 2 : N;

        for (uint32_t i = 0; i < n; i++) {
            const uint32_t common = round < 2 ? COMMON : COMMON - 31 * i;

            memcpy(prompt, ids + 100 * round, common * sizeof *ids);
            stream(&l, 50 * round + i, prompt + common, OWN);
            r[i] = lab_request(&l, prompt, round == 0 ? COMMON : common + OWN, 4);
            lab_submit(&l, r[i]);
            /* Some come later. */
            for (uint32_t k = 0; k < round * 2; k++)
                lab_turn(&l);
        }
        /* The reader goes away; what it reads is still wanted. */
        if (round == 3)
            sched_cancel(l.sched, r[0]);
        lab_run(&l);
        for (uint32_t i = 0; i < n; i++) {
            lab_expect_cold(&l, r[i], name, round * 10 + i);
            joined += r[i]->decision->n_joined > 0;
            (void)request_unref(r[i]);
        }
    }
    ck_assert_uint_ge(joined, 1);
    lab_expect_all_cold(&l, name, 4);
    lab_close(&l);
}
END_TEST

START_TEST(a_borrow_leaves_the_lender_as_it_was)
{
    enum { N = 150, OTHER = 70 };
    const char *name = models[_i].name;
    int32_t ids[N_STREAM], prompt[N + OTHER];
    struct request *lender, *r;
    struct lab l;

    lab_open(&l, &models[_i].make, &(struct lab_options){.ram_units = 0, .n_units = 1024});
    stream(&l, 5, ids, N_STREAM);
    lender = ask(&l, ids, N, 3);
    for (uint32_t i = 0; i + 1 < lender->n_tokens; i++)
        ids[N + i] = lender->tokens[i].id;
    for (uint32_t k = 65; k < N - 1; k += is_slow(_i) ? 28 : 7) {
        const uint32_t n = N + (uint32_t)lender->n_tokens - 1;
        uint8_t *before, *after;
        size_t n_before, n_after;

        before = lab_path_bytes(&l, lender->uid, ids, n, true, &n_before);
        /* Twice: a hybrid borrows from the second time on. */
        for (uint32_t twin = 0; twin < 2; twin++) {
            memcpy(prompt, ids, k * sizeof *ids);
            stream(&l, 100 * k + twin, prompt + k, OTHER);
            prompt[k] = (ids[k] + 1 + (int32_t)twin) % (int32_t)l.runner.n_vocab;
            r = ask(&l, prompt, k + OTHER, 40);
            lab_expect_cold(&l, r, name, k);
            ck_assert(twin == 0 || r->n_cached > 0);
            ck_assert_msg(r->n_cached == 0 || r->decision->source == SOURCE_BORROWED,
                          "%s %u: %u reused, from %s", name, k, r->n_cached,
                          source_str(r->decision->source));
            (void)request_unref(r);
        }
        after = lab_path_bytes(&l, lender->uid, ids, n, true, &n_after);
        ck_assert_uint_eq(n_before, n_after);
        ck_assert_msg(memcmp(before, after, n_before) == 0, "%s: a borrow at %u wrote on a page",
                      name, k);
        free(before);
        free(after);
    }
    (void)request_unref(lender);
    lab_close(&l);
}
END_TEST

/* ids[0..end) read whole by a sequence, put into units anew and mounted at `pos`, which then reads
 * next[pos..n): the bytes of its pages. */
static uint8_t *restored_and_rewound(struct lab *l, const int32_t *ids, uint32_t end, uint32_t pos,
                                     const int32_t *next, uint32_t n, size_t *ret_n)
{
    struct runner *r = &l->cold;
    struct units *u = engine_units(r->engine);
    struct sequence *whole = runner_sequence(r), *s = runner_sequence(r);
    const uint32_t n_check = r->plan.checkpoint_units, n_pages = engine_pages(pos);
    const size_t unit = r->plan.unit_bytes;
    uint32_t check[16], pages[N_STREAM / CACHE_PAGE];
    const struct step_capture capture = {.pos = pos, .units = check};
    struct step_entry en = {
        .seq = whole, .ids = ids, .n_rows = end, .captures = &capture, .n_captures = n_check > 0};
    struct transfer items[N_STREAM / CACHE_PAGE];
    struct job_transfer import = {.job.kind = JOB_IMPORT, .items = items, .n_items = n_pages};
    struct job_mount mount = {.job.kind = JOB_MOUNT,
                              .seq = s,
                              .pos = pos,
                              .tokens = ids,
                              .pages = pages,
                              .n_pages = n_pages,
                              .checkpoint = n_check > 0 ? check : NULL};
    uint8_t *bytes;
    size_t n_bytes;

    ck_assert_uint_le(n_check, 16);
    ck_assert_int_eq(units_take(u, n_check, check), 0);
    ck_assert_int_eq(units_take(u, n_pages, pages), 0);
    runner_step(r, &en, 1);
    bytes = runner_state(r, whole, NULL, &n_bytes);
    for (uint32_t i = 0; i < n_pages; i++)
        items[i] = (struct transfer){.unit = pages[i], .host = bytes + i * unit};
    ck_assert_int_eq(runner_job(r, &import.job), 0);
    ck_assert_int_eq(runner_job(r, &mount.job), 0);
    free(bytes);
    en = (struct step_entry){.seq = s, .ids = next + pos, .n_rows = n - pos};
    runner_step(r, &en, 1);
    bytes = runner_state(r, s, NULL, ret_n);
    runner_release(r, whole);
    runner_release(r, s);
    for (uint32_t i = 0; i < n_check; i++)
        units_unref(u, check[i]);
    for (uint32_t i = 0; i < n_pages; i++)
        units_unref(u, pages[i]);
    return bytes;
}

START_TEST(a_borrow_is_a_whole_restore_and_a_rewind)
{
    enum { N = 150, OTHER = 30 };
    const char *name = models[_i].name;
    int32_t ids[N_STREAM], prompt[N + OTHER + 8];
    struct request *lender, *r;
    uint32_t end;
    struct lab l;

    lab_open(&l, &models[_i].make, &(struct lab_options){.ram_units = 0, .n_units = 1024});
    stream(&l, 6, ids, N_STREAM);
    lender = ask(&l, ids, N, 3);
    end = N + (uint32_t)lender->n_tokens - 1;
    for (uint32_t i = 0; i + 1 < lender->n_tokens; i++)
        ids[N + i] = lender->tokens[i].id;
    for (uint32_t k = 64; k < N; k += is_slow(_i) ? 17 : 5)
        for (uint32_t twin = 0; twin < 2; twin++) {
            uint8_t *have, *want;
            size_t n_have, n_want;
            uint32_t n = k + OTHER;

            memcpy(prompt, ids, k * sizeof *ids);
            stream(&l, 100 * k + twin, prompt + k, OTHER);
            prompt[k] = (ids[k] + 1 + (int32_t)twin) % (int32_t)l.runner.n_vocab;
            r = ask(&l, prompt, n, 4);
            for (uint32_t i = 0; i + 1 < r->n_tokens; i++)
                prompt[n++] = r->tokens[i].id;
            if (twin == 1) {
                ck_assert_uint_gt(r->n_cached, 0);
                have = lab_path_bytes(&l, r->uid, prompt, n, false, &n_have);
                want = restored_and_rewound(&l, ids, end, r->n_cached, prompt, n, &n_want);
                ck_assert_uint_eq(n_have, n_want);
                ck_assert_msg(memcmp(have, want, n_have) == 0, "%s: borrowed at %u of %u", name,
                              r->n_cached, k);
                free(have);
                free(want);
            }
            (void)request_unref(r);
        }
    (void)request_unref(lender);
    lab_close(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_exact");
    TCase *t = tcase_create("cache_exact");
    SRunner *sr;
    int first, failed;

    short_run = getenv("STRATA_TEST_SHORT") != NULL;
    long_run = getenv("STRATA_TEST_LONG") != NULL;
    if (short_run)
        printf("STRATA_TEST_SHORT: fewer lengths and cuts, without needle\n");
    first = short_run ? 1 : 0;
    tcase_add_loop_test(t, every_length_after_every_other, first, N_MODELS);
    tcase_add_loop_test(t, every_cut_of_a_stored_prompt, first, N_MODELS);
    tcase_add_loop_test(t, every_cut_while_everything_moves, first, N_MODELS);
    tcase_add_loop_test(t, what_is_being_read_is_waited_for, first, N_MODELS);
    tcase_add_loop_test(t, a_borrow_leaves_the_lender_as_it_was, first, N_MODELS);
    tcase_add_loop_test(t, a_borrow_is_a_whole_restore_and_a_rewind, first, N_MODELS);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
