/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a chat: what is sent after which questions, answers and second thoughts. */
#include "ctl/dialogue.h"

#include "util/buf.h"
#include "util/cleanup.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct dialogue d;

static void set_up(void)
{
    ck_assert_int_eq(dialogue_init(&d), 0);
}

static void tear_down(void)
{
    dialogue_done(&d);
}

static void answer(const char *text, const char *reasoning)
{
    CLEANUP(buf_done) struct buf t = {0}, r = {0};

    ck_assert_int_eq(buf_addz(&t, text), 0);
    ck_assert_int_eq(buf_addz(&r, reasoning), 0);
    ck_assert_int_eq(dialogue_answer(&d, &t, &r), 0);
}

static void ask(const char *text)
{
    ck_assert_int_eq(dialogue_ask(&d, json_string(text)), 0);
}

/* The messages as "role: content" lines, with "(reasoning)" behind. */
static void expect(const char *want)
{
    CLEANUP(buf_done) struct buf b = {0};
    json_t *m;
    size_t i;

    json_array_foreach(d.messages, i, m)
    {
        const char *r = json_string_value(json_object_get(m, "reasoning_content"));

        ck_assert_int_eq(buf_addf(&b, "%s: %s%s%s%s\n",
                                  json_string_value(json_object_get(m, "role")),
                                  json_string_value(json_object_get(m, "content")), r ? " (" : "",
                                  r ? r : "", r ? ")" : ""),
                         0);
    }
    ck_assert_str_eq(b.data ? b.data : "", want);
}

START_TEST(turns_follow_each_other)
{
    ask("a");
    answer("A", "");
    ask("b");
    answer("", "thought");
    expect("user: a\nassistant: A\nuser: b\nassistant:  (thought)\n");
}
END_TEST

START_TEST(a_system_message_stays_first)
{
    ask("a");
    answer("A", "");
    ck_assert_int_eq(dialogue_set_system(&d, "one"), 0);
    ck_assert_int_eq(dialogue_set_system(&d, "two"), 0);
    expect("system: two\nuser: a\nassistant: A\n");
    ck_assert_int_eq(dialogue_set_system(&d, "\xff"), -EILSEQ);
    dialogue_clear(&d);
    expect("system: two\n");
    ck_assert_int_eq(dialogue_undo(&d), -ENOENT);
    ck_assert_int_eq(dialogue_ask_again(&d), -ENOENT);
    ck_assert_int_eq(dialogue_set_system(&d, NULL), 0);
    ck_assert_int_eq(dialogue_set_system(&d, NULL), 0);
    expect("");
}
END_TEST

START_TEST(a_question_without_answer_can_be_asked_again)
{
    ask("a");
    answer("A", "");
    ask("b");
    dialogue_take_back(&d);
    dialogue_take_back(&d); /* an answer is never taken back */
    expect("user: a\nassistant: A\n");
    ck_assert_int_eq(dialogue_ask_again(&d), 0);
    expect("user: a\nassistant: A\nuser: b\n");
    dialogue_take_back(&d);
    ask("c"); /* another one: b is gone */
    answer("C", "");
    ck_assert_int_eq(dialogue_ask_again(&d), 0);
    expect("user: a\nassistant: A\nuser: c\n");
}
END_TEST

START_TEST(undo_forgets_the_last_turn)
{
    ck_assert_int_eq(dialogue_undo(&d), -ENOENT);
    ask("a");
    answer("A", "");
    ask("b");
    answer("B", "");
    ask("c");
    dialogue_take_back(&d);
    ck_assert_int_eq(dialogue_undo(&d), 0);
    expect("user: a\nassistant: A\n");
    ck_assert_int_eq(dialogue_ask_again(&d), 0); /* a, not the forgotten c */
    expect("user: a\n");
}
END_TEST

START_TEST(a_question_that_is_no_text_changes_nothing)
{
    ck_assert_int_eq(dialogue_ask(&d, json_string("\xff")), -ENOMEM);
    expect("");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dialogue");
    TCase *t = tcase_create("dialogue");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, turns_follow_each_other);
    tcase_add_test(t, a_system_message_stays_first);
    tcase_add_test(t, a_question_without_answer_can_be_asked_again);
    tcase_add_test(t, undo_forgets_the_last_turn);
    tcase_add_test(t, a_question_that_is_no_text_changes_nothing);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
