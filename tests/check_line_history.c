/* SPDX-License-Identifier: Apache-2.0 */
/* The history of what was typed: kept, shared, bounded, private, and never in the way. */
#include "ctl/line_history.h"

#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char top[32], dir[64], path[96];
static struct err_text e;

static void set_up(void)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)strcpy(top, "/tmp/check_history.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(top));
    (void)snprintf(dir, sizeof dir, "%s/state/strata", top);
    (void)snprintf(path, sizeof path, "%s/chat_history", dir);
}

static void tear_down(void)
{
    char parent[48];

    (void)snprintf(parent, sizeof parent, "%s/state", top);
    (void)remove(path);
    (void)remove(dir);
    (void)remove(parent);
    ck_assert_int_eq(remove(top), 0);
}

static void open_it(struct line_history *h)
{
    ck_assert_int_eq(line_history_init(h, dir, &e), 0);
    ck_assert_str_eq(e.s, "");
}

/* The texts, the newest first, each with a '|' behind. */
static void expect(struct line_history *h, const char *want)
{
    char is[512] = "";
    HistEvent ev;

    for (int r = history(h->history, &ev, H_FIRST); r >= 0; r = history(h->history, &ev, H_NEXT)) {
        (void)strncat(is, ev.str, sizeof is - strlen(is) - 2);
        (void)strcat(is, "|");
    }
    ck_assert_str_eq(is, want);
}

static int n_texts(struct line_history *h)
{
    HistEvent ev;

    ck_assert_int_ge(history(h->history, &ev, H_GETSIZE), 0);
    return ev.num;
}

START_TEST(texts_are_there_next_time_and_private)
{
    struct line_history h;
    struct stat st;

    open_it(&h);
    line_history_add(&h, "a b\nzwei € \\x\t");
    line_history_add(&h, "c");
    line_history_done(&h);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0600);
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0700);
    open_it(&h);
    expect(&h, "c|a b\nzwei € \\x\t|");
    line_history_done(&h);
}
END_TEST

START_TEST(a_text_is_there_once_as_the_newest)
{
    struct line_history h;

    open_it(&h);
    line_history_add(&h, "a");
    line_history_add(&h, "b");
    line_history_add(&h, "a");
    line_history_add(&h, "a");
    expect(&h, "a|b|");
    line_history_done(&h);
}
END_TEST

START_TEST(two_chats_share_it)
{
    struct line_history one, two;

    open_it(&one);
    open_it(&two);
    line_history_add(&one, "a");
    line_history_add(&two, "b");
    line_history_add(&one, "c");
    expect(&one, "c|b|a|");
    line_history_done(&one);
    line_history_done(&two);
}
END_TEST

START_TEST(the_oldest_go_after_a_thousand)
{
    struct line_history h;
    char text[16];
    HistEvent ev;

    open_it(&h);
    free(TAKE(h.path)); /* in memory: the same limit, less work */
    for (int i = 0; i < 1010; i++) {
        (void)snprintf(text, sizeof text, "%d", i);
        line_history_add(&h, text);
    }
    ck_assert_int_eq(n_texts(&h), 1000);
    ck_assert_int_ge(history(h.history, &ev, H_LAST), 0);
    ck_assert_str_eq(ev.str, "10");
    line_history_done(&h);
}
END_TEST

START_TEST(a_very_long_text_is_not_kept)
{
    CLEANUP(free_p) char *text = calloc(1, (64 << 10) + 2);
    struct line_history h;

    ck_assert_ptr_nonnull(text);
    (void)memset(text, 'x', (64 << 10) + 1);
    open_it(&h);
    line_history_add(&h, "a");
    line_history_add(&h, text);
    expect(&h, "a|");
    text[64 << 10] = '\0';
    line_history_add(&h, text);
    line_history_done(&h);
    open_it(&h);
    ck_assert_int_eq(n_texts(&h), 2);
    line_history_done(&h);
}
END_TEST

START_TEST(a_file_that_is_no_history_is_replaced)
{
    struct line_history h;
    FILE *f;

    open_it(&h);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("something else\n\\xyz\n", f), 0);
    ck_assert_int_eq(fclose(f), 0);
    line_history_add(&h, "a");
    expect(&h, "a|");
    line_history_done(&h);
    open_it(&h);
    expect(&h, "a|");
    line_history_done(&h);
}
END_TEST

START_TEST(a_fifo_in_its_place_is_not_waited_for)
{
    struct line_history h;

    open_it(&h);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    line_history_add(&h, "a");
    expect(&h, "a|");
    line_history_done(&h);
}
END_TEST

START_TEST(where_it_cannot_be_kept_it_is_remembered)
{
    struct line_history h;

    open_it(&h);
    line_history_add(&h, "a");
    ck_assert_int_eq(remove(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0); /* cannot be replaced by a file */
    line_history_add(&h, "b");
    line_history_add(&h, "c");
    expect(&h, "c|b|");
    line_history_done(&h);

    ck_assert_int_eq(line_history_init(&h, "/dev/null/x", &e), 0);
    ck_assert_ptr_nonnull(strstr(e.s, "/dev/null/x"));
    line_history_add(&h, "a");
    expect(&h, "a|");
    line_history_done(&h);

    ck_assert_int_eq(line_history_init(&h, NULL, &e), 0);
    ck_assert_str_eq(e.s, "");
    line_history_add(&h, "a");
    expect(&h, "a|");
    line_history_done(&h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("line_history");
    TCase *t = tcase_create("line_history");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, texts_are_there_next_time_and_private);
    tcase_add_test(t, a_text_is_there_once_as_the_newest);
    tcase_add_test(t, two_chats_share_it);
    tcase_add_test(t, the_oldest_go_after_a_thousand);
    tcase_add_test(t, a_very_long_text_is_not_kept);
    tcase_add_test(t, a_file_that_is_no_history_is_replaced);
    tcase_add_test(t, a_fifo_in_its_place_is_not_waited_for);
    tcase_add_test(t, where_it_cannot_be_kept_it_is_remembered);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
