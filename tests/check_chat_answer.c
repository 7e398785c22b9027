/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of an answer's reasoning: when it ends, whatever the text is cut into. */
#include "daemon/api_parse.h"
#include "daemon/chat_answer.h"
#include "daemon/request.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/*
 * A token for each of `pieces`, with the hold as the scheduler has it; the number after which
 * reasoning was ended, 0: never.
 */
static uint32_t ended_after(const char *const *pieces, size_t n, uint32_t budget, bool in_reasoning,
                            const json_t *tools)
{
    const struct completion_params p = {.is_chat = true,
                                        .in_reasoning = in_reasoning,
                                        .knows_reasoning = true,
                                        .reasoning_budget = budget,
                                        .tools = (json_t *)tools};
    struct chat_answer *c = chat_answer_new(&p);
    struct request *r = request_new();
    uint32_t ended = 0;

    ck_assert(c && r);
    r->n_hold = in_reasoning ? budget : 1;
    for (size_t i = 0; i < n && !ended; i++) {
        /* "~": kept back, it may be part of a stop string. */
        struct buf *to = pieces[i][0] == '~' ? &r->held : &r->text;

        if (to == &r->text) {
            ck_assert_int_eq(buf_add(&r->text, r->held.data, r->held.len), 0);
            buf_clear(&r->held);
        }
        ck_assert_int_eq(buf_addz(to, pieces[i] + (to == &r->held)), 0);
        r->n_generated++;
        if (r->n_generated >= r->n_hold && chat_answer_held(c, r))
            ended = r->n_generated;
        ck_assert(ended || r->n_hold > r->n_generated);
    }
    chat_answer_free(c);
    (void)request_unref(r);
    return ended;
}

#define ENDED(budget, in_reasoning, tools, ...)                                                    \
    ended_after((const char *const[]){__VA_ARGS__},                                                \
                sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), budget,         \
                in_reasoning, tools)

START_TEST(it_counts_the_tokens_of_reasoning)
{
    ck_assert_uint_eq(ENDED(3, true, NULL, "a", "b", "c", "d"), 3);
    ck_assert_uint_eq(ENDED(5, true, NULL, "a", "b", "c", "d"), 0);
    /* It ended by itself, before the budget or with its last token. */
    ck_assert_uint_eq(ENDED(3, true, NULL, "a", "</think>", "c", "d", "e"), 0);
    ck_assert_uint_eq(ENDED(3, true, NULL, "a", "b", "</think>", "d", "e"), 0);
}
END_TEST

START_TEST(a_model_may_open_it_itself)
{
    ck_assert_uint_eq(ENDED(2, false, NULL, "<think>", "\n", "b", "c"), 3);
    ck_assert_uint_eq(ENDED(2, false, NULL, "\n", "<thi", "nk>", "a", "b", "c"), 5);
    ck_assert_uint_eq(ENDED(0, false, NULL, "<think>", "a"), 1);
    ck_assert_uint_eq(ENDED(2, false, NULL, "Well", "<think>", "a", "b", "c"), 0);
    ck_assert_uint_eq(ENDED(2, false, NULL, "<this", "a", "b", "c", "d"), 0);
}
END_TEST

START_TEST(it_does_not_cut_what_may_be_a_marker)
{
    ck_assert_uint_eq(ENDED(2, true, NULL, "a", "</th", "ink>", "b", "c"), 0);
    ck_assert_uint_eq(ENDED(2, true, NULL, "a", "</th", "umb", "b"), 3);
    /* Or part of a stop string. */
    ck_assert_uint_eq(ENDED(2, true, NULL, "a", "~</think>", "b", "c"), 0);
    ck_assert_uint_eq(ENDED(2, true, NULL, "a", "~b", "c", "d"), 3);
}
END_TEST

START_TEST(a_call_ends_reasoning_too)
{
    json_t *tools = json_pack("[{s:s,s:{s:s}}]", "type", "function", "function", "name", "f");

    ck_assert_uint_eq(ENDED(2, true, tools, "a", "<tool_call>", "\n{", "\"name\": \"f\",",
                            "\"arguments\": {", "}}", "</tool_call>", "x"),
                      0);
    /* What is no call after all was reasoning. */
    ck_assert_uint_eq(ENDED(2, true, tools, "a", "<tool_call>", "\n", "oh", "b", "c"), 4);
    json_decref(tools);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chat_answer");
    TCase *t = tcase_create("chat_answer");
    SRunner *r = srunner_create(s);
    int n_failed;

    tcase_add_test(t, it_counts_the_tokens_of_reasoning);
    tcase_add_test(t, a_model_may_open_it_itself);
    tcase_add_test(t, it_does_not_cut_what_may_be_a_marker);
    tcase_add_test(t, a_call_ends_reasoning_too);
    suite_add_tcase(s, t);
    srunner_run_all(r, CK_NORMAL);
    n_failed = srunner_ntests_failed(r);
    srunner_free(r);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
