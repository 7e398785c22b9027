/* SPDX-License-Identifier: Apache-2.0 */
/* An answer while it arrives: what is printed where, what is kept, what is counted. */
#include "ctl/turn.h"

#include "util/cleanup.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct turn t;
static FILE *out;
static char *printed;
static size_t n_printed;

static void set_up(void)
{
    out = open_memstream(&printed, &n_printed);
    ck_assert_ptr_nonnull(out);
    turn_init(&t, out);
}

static void tear_down(void)
{
    turn_done(&t);
    (void)fclose(out);
    free(printed);
}

static void take(const char *event)
{
    CLEANUP(json_decrefp) json_t *j = event ? json_loads(event, 0, NULL) : NULL;

    ck_assert(!event || j);
    turn_take(&t, j);
}

static void think_and_answer(void)
{
    take("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
    take("{\"choices\":[{\"delta\":{\"reasoning_content\":\"h\\u001b[m\"}}]}");
    take("{\"choices\":[{\"delta\":{\"reasoning_content\":\"m\"}}]}");
    take("{\"choices\":[{\"delta\":{\"content\":\"a\\u0007\"}}]}");
    take("{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}");
    take(NULL);
    ck_assert_str_eq(t.text.data, "a\ab");
    ck_assert_str_eq(t.reasoning.data, "h\033[mm");
    ck_assert_int_eq(t.error, 0);
}

START_TEST(elsewhere_the_answer_alone_is_printed_as_it_is)
{
    think_and_answer();
    ck_assert_str_eq(printed, "a\ab\n");
}
END_TEST

START_TEST(a_terminal_shows_thinking_dimmed_and_harmless)
{
    t.is_terminal = t.can_dim = true;
    think_and_answer();
    ck_assert_str_eq(printed, "\033[2mh?[mm\n\033[0m\na?b\n");
}
END_TEST

START_TEST(a_terminal_that_cannot_dim_marks_thinking)
{
    t.is_terminal = true;
    think_and_answer();
    ck_assert_str_eq(printed, "[thinking]\nh?[mm\n[/thinking]\n\na?b\n");
}
END_TEST

START_TEST(thinking_that_is_broken_off_is_closed)
{
    t.is_terminal = t.can_dim = true;
    take("{\"choices\":[{\"delta\":{\"reasoning_content\":\"h\"}}]}");
    take(NULL);
    ck_assert_str_eq(printed, "\033[2mh\n\033[0m\n");
}
END_TEST

START_TEST(an_answer_of_lines_gets_no_other_newline)
{
    take("{\"choices\":[{\"delta\":{\"content\":\"a\\n\"}}]}");
    take(NULL);
    ck_assert_str_eq(printed, "a\n");
}
END_TEST

START_TEST(a_long_prompt_shows_how_far_it_is_read)
{
    t.is_terminal = t.can_dim = true;
    take("{\"choices\":[{\"delta\":{}}],"
         "\"prompt_progress\":{\"total\":255,\"cache\":0,\"processed\":1}}");
    ck_assert_str_eq(printed, "");
    take("{\"choices\":[{\"delta\":{}}],"
         "\"prompt_progress\":{\"total\":700,\"cache\":100,\"processed\":300}}");
    ck_assert_str_eq(printed, "\r\033[2mreading 200 of 600\033[0m\033[K");
    take("{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
    take(NULL);
    ck_assert_str_eq(printed, "\r\033[2mreading 200 of 600\033[0m\033[K\r\033[Ka\n");
}
END_TEST

START_TEST(figures_say_what_the_daemon_said)
{
    CLEANUP(free_p) char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ck_assert_ptr_nonnull(f);
    turn_print_figures(&t, f);
    ck_assert_int_eq(fflush(f), 0);
    ck_assert_str_eq(text, "");
    take("{\"choices\":[],\"usage\":{\"prompt_tokens\":857,\"completion_tokens\":96}}");
    turn_print_figures(&t, f);
    take("{\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":null}");
    take("{\"choices\":[],\"usage\":{\"prompt_tokens\":857,\"completion_tokens\":96,"
         "\"prompt_tokens_details\":{\"cached_tokens\":845}},"
         "\"timings\":{\"predicted_per_second\":41.26}}");
    turn_print_figures(&t, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_str_eq(text, "[857 read, 0 reused, 96 generated]\n"
                           "[12 read, 845 reused, 96 generated, 41.3 tokens/s; cut at the limit "
                           "of tokens]\n");
}
END_TEST

START_TEST(events_of_another_shape_are_passed_over)
{
    take("[]");
    take("{\"choices\":3,\"usage\":[],\"timings\":\"x\",\"prompt_progress\":7}");
    take("{\"choices\":[{\"delta\":{\"content\":7,\"reasoning_content\":{}},\"finish_reason\":1}],"
         "\"usage\":{\"prompt_tokens\":\"x\"}}");
    take(NULL);
    ck_assert_str_eq(printed, "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("turn");
    TCase *c = tcase_create("turn");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, elsewhere_the_answer_alone_is_printed_as_it_is);
    tcase_add_test(c, a_terminal_shows_thinking_dimmed_and_harmless);
    tcase_add_test(c, a_terminal_that_cannot_dim_marks_thinking);
    tcase_add_test(c, thinking_that_is_broken_off_is_closed);
    tcase_add_test(c, an_answer_of_lines_gets_no_other_newline);
    tcase_add_test(c, a_long_prompt_shows_how_far_it_is_read);
    tcase_add_test(c, figures_say_what_the_daemon_said);
    tcase_add_test(c, events_of_another_shape_are_passed_over);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
