/* SPDX-License-Identifier: Apache-2.0 */
/* engine/tok_bpe against the definition of byte-pair encoding, and what it costs. */
#include "engine/tok_bpe.h"

#include "engine/tokenizer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RANDOM = 60 };

/* A vocabulary of random strings over "abcd" with merges that make them, some only by way of
 * no-tokens. */
struct random_bpe {
    struct bpe bpe;
    char left[N_RANDOM][16], right[N_RANDOM][16]; /* merges by rank */
};

static void random_bpe_init(struct random_bpe *r, unsigned int seed)
{
    char all[4 + N_RANDOM][32] = {"a", "b", "c", "d"};
    uint32_t n_all = 4, n_tokens = 0;
    int rank = 0;

    while (rank < N_RANDOM) {
        const char *l = all[(uint32_t)rand_r(&seed) % n_all],
                   *m = all[(uint32_t)rand_r(&seed) % n_all];
        bool again = strlen(l) + strlen(m) > 12;

        for (int i = 0; i < rank; i++)
            again = again || (strcmp(r->left[i], l) == 0 && strcmp(r->right[i], m) == 0);
        if (again) {
            l = all[(uint32_t)rand_r(&seed) % 4];
            m = all[n_all - 1];
            if (strlen(m) > 12)
                m = "a";
        }
        (void)snprintf(r->left[rank], sizeof(r->left[0]), "%s", l);
        (void)snprintf(r->right[rank], sizeof(r->right[0]), "%s", m);
        (void)snprintf(all[n_all++], sizeof(all[0]), "%.15s%.15s", l, m);
        rank++;
    }
    /* Every fourth product is no token. */
    for (uint32_t i = 0; i < n_all; i++)
        n_tokens += i < 4 || i % 4;
    ck_assert_int_eq(bpe_init(&r->bpe, n_tokens, 4096), 0);
    for (uint32_t i = 0; i < n_all; i++)
        if (i < 4 || i % 4)
            ck_assert_int_eq(bpe_add_token(&r->bpe, all[i], strlen(all[i]), true), 0);
    ck_assert_int_eq(bpe_start_merges(&r->bpe, N_RANDOM), 0);
    for (uint32_t i = 0; i < N_RANDOM; i++) {
        struct bpe_pair p = {.n_left = strlen(r->left[i]), .rank = i};
        char text[32];

        p.n = (size_t)snprintf(text, sizeof(text), "%s%s", r->left[i], r->right[i]);
        ck_assert_int_eq(bpe_add_merges(&r->bpe, text, &p, 1), 0);
    }
}

/* The definition: texts, and again and again the leftmost pair of the lowest rank. */
static void slow_encode(const struct random_bpe *r, const char *s, size_t n, struct token_list *out)
{
    char(*sym)[32] = calloc(n, sizeof(*sym));

    for (size_t i = 0; i < n; i++)
        sym[i][0] = s[i];
    for (;;) {
        int best = N_RANDOM;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            for (int k = 0; k < best; k++) {
                if (strcmp(sym[i], r->left[k]) == 0 && strcmp(sym[i + 1], r->right[k]) == 0) {
                    best = k;
                    at = i;
                }
            }
        }
        if (best == N_RANDOM)
            break;
        for (size_t k = strlen(sym[at]), j = 0; k < sizeof(sym[0]) - 1 && sym[at + 1][j]; k++, j++)
            sym[at][k] = sym[at + 1][j];
        memmove(sym[at + 1], sym[at + 2], (n - at - 2) * sizeof(*sym));
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t id = bpe_find(&r->bpe, sym[i], strlen(sym[i]));

        if (id < r->bpe.n_vocab)
            (void)token_list_add(out, (int32_t)id);
        else
            for (const char *c = sym[i]; *c; c++)
                (void)token_list_add(out, *c - 'a');
    }
    free(sym);
}

/* _i is the seed.  Lengths on both sides of where the heap takes over. */
START_TEST(merging_is_what_the_definition_says_for_short_and_long_pieces)
{
    unsigned int seed = (unsigned int)_i;
    struct random_bpe r;
    struct bpe_work w;

    random_bpe_init(&r, seed);
    ck_assert_int_eq(bpe_work_init(&w, 0), 0);
    for (int round = 0; round < 60; round++) {
        char s[160];
        size_t n = 1 + (size_t)rand_r(&seed) % (round % 2 ? 12 : sizeof(s));
        struct token_list want = {0}, got = {0};

        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + rand_r(&seed) % (round % 3 ? 4 : 2));
        slow_encode(&r, s, n, &want);
        /* Twice: the second answer may come from the cache. */
        for (int again = 0; again < 2; again++) {
            got.n = 0;
            ck_assert_int_eq(bpe_encode(&r.bpe, &w, s, n, false, &got), 0);
            ck_assert_uint_eq(got.n, want.n);
            ck_assert(memcmp(got.ids, want.ids, got.n * sizeof(*got.ids)) == 0);
        }
        token_list_done(&want);
        token_list_done(&got);
    }
    bpe_work_done(&w);
    bpe_done(&r.bpe);
}
END_TEST

START_TEST(a_piece_as_long_as_the_text_takes_steps_in_proportion)
{
    struct random_bpe r;
    uint64_t steps[2];
    char *s = malloc(1 << 20);
    unsigned int seed = 7;

    random_bpe_init(&r, 3);
    for (size_t i = 0; i < 1 << 20; i++)
        s[i] = (char)('a' + rand_r(&seed) % 4);
    for (int k = 0; k < 2; k++) {
        size_t n = k ? 1 << 20 : 1 << 16;
        struct token_list l = {0};
        struct bpe_work w;

        ck_assert_int_eq(bpe_work_init(&w, n), 0);
        ck_assert_int_eq(bpe_encode(&r.bpe, &w, s, n, false, &l), 0);
        steps[k] = w.n_steps;
        bpe_work_done(&w);
        token_list_done(&l);
    }
    /* 16 times the text: n log n is 16 * 20 / 16 = 20 times the steps, the square 256. */
    ck_assert_uint_gt(steps[0], 1 << 16);
    ck_assert_uint_lt(steps[1], 24 * steps[0]);
    bpe_done(&r.bpe);
    free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bpe");
    TCase *t = tcase_create("bpe");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(t, merging_is_what_the_definition_says_for_short_and_long_pieces, 0, 40);
    tcase_add_test(t, a_piece_as_long_as_the_text_takes_steps_in_proportion);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
