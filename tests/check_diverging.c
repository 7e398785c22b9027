/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/diverging.h"

#include <check.h>
#include <stdlib.h>

enum { N = 1000 };

static struct diverging *made(void)
{
    struct diverging *d;

    ck_assert_int_eq(diverging_new(&d), 0);
    return d;
}

/* A prompt of n tokens whose tokens from `from` on are of kind `k`; -1: not told, else where. */
static int note(struct diverging *d, uint32_t uid, const char *salt, uint32_t n, uint32_t from,
                int32_t k, uint32_t n_common)
{
    int32_t *ids = calloc(n, sizeof *ids);
    uint32_t pos;
    bool told;

    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i % 7) + (i >= from ? 10 * (k + 1) : 0);
    told = diverging_note(d, uid, salt, ids, n, n_common, &pos);
    free(ids);
    return told ? (int)pos : -1;
}

START_TEST(a_stamp_near_the_beginning_is_told_once_with_its_position)
{
    struct diverging *d = made();

    for (int32_t k = 0; k < 50; k++)
        ck_assert_int_eq(note(d, 1, NULL, N, 20, k, 20), k == DIVERGING_ROW - 1 ? 20 : -1);
    /* Another client, and the same one with a salt, are told for themselves. */
    for (int32_t k = 0; k < 10; k++)
        ck_assert_int_eq(note(d, 2, NULL, N, 20, k, 3), k == DIVERGING_ROW - 1 ? 20 : -1);
    for (int32_t k = 0; k < 10; k++)
        ck_assert_int_eq(note(d, 1, "a", N, 5, k, 20), k == DIVERGING_ROW - 1 ? 20 : -1);
    diverging_free(d);
}
END_TEST

START_TEST(one_prompt_that_was_found_ends_the_row)
{
    struct diverging *d = made();

    for (int32_t k = 0; k < 50; k++)
        ck_assert_int_eq(note(d, 1, NULL, N, 20, k, k % DIVERGING_ROW == 5 ? N / 20 : 20), -1);
    diverging_free(d);
}
END_TEST

START_TEST(what_was_evicted_is_no_fault_of_the_client)
{
    struct diverging *d = made();

    /* Nothing is stored, but each begins as the one before; also when that one was shorter. */
    for (int32_t k = 0; k < 50; k++)
        ck_assert_int_eq(note(d, 1, NULL, N + 500 * (uint32_t)(k % 3), 400, k, 0), -1);
    diverging_free(d);
}
END_TEST

START_TEST(later_differences_and_short_prompts_do_not_count)
{
    struct diverging *d = made();

    for (int32_t k = 0; k < 50; k++)
        ck_assert_int_eq(note(d, 1, NULL, N, N / 20, k, 0), -1);
    for (int32_t k = 0; k < 50; k++)
        ck_assert_int_eq(note(d, 3, NULL, DIVERGING_MIN - 1, 5, k, 0), -1);
    diverging_free(d);
}
END_TEST

START_TEST(the_client_of_longest_ago_makes_room)
{
    struct diverging *d = made();

    for (int32_t k = 0; k < DIVERGING_ROW - 1; k++)
        ck_assert_int_eq(note(d, 1, NULL, N, 20, k, 20), -1);
    for (uint32_t u = 100; u < 164; u++)
        ck_assert_int_eq(note(d, u, NULL, N, 20, 0, 20), -1);
    ck_assert_int_eq(note(d, 1, NULL, N, 20, 40, 20), -1); /* counted from its beginning */
    diverging_free(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("diverging");
    TCase *t = tcase_create("diverging");
    SRunner *r = srunner_create(s);
    int n_failed;

    tcase_add_test(t, a_stamp_near_the_beginning_is_told_once_with_its_position);
    tcase_add_test(t, one_prompt_that_was_found_ends_the_row);
    tcase_add_test(t, what_was_evicted_is_no_fault_of_the_client);
    tcase_add_test(t, later_differences_and_short_prompts_do_not_count);
    tcase_add_test(t, the_client_of_longest_ago_makes_room);
    suite_add_tcase(s, t);
    srunner_run_all(r, CK_NORMAL);
    n_failed = srunner_ntests_failed(r);
    srunner_free(r);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
