/* SPDX-License-Identifier: Apache-2.0 */
/* A chat model's text as it streams: when things come out, hard text, failures. */
#include "daemon/chat_output.h"
#include "daemon/chat_output_private.h"
#include "tests/chat_log.h"
#include "tests/wrap_alloc.h"
#include "util/buf.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What has come out after each piece. */
START_TEST(text_goes_out_as_soon_as_it_is_clear)
{
    struct chat_log l = {0};
    struct chat_output *c = chat_log_open(&l, OPENED | THINKS | TOOLS);
    bool reasoning = true;

#define STEP(piece, want)                                                                          \
    do {                                                                                           \
        ck_assert_int_eq(chat_output_feed(c, piece, strlen(piece)), 0);                            \
        ck_assert_str_eq(l.text.data, want);                                                       \
        ck_assert_int_eq(chat_output_in_reasoning(c), reasoning);                                  \
        buf_clear(&l.text);                                                                        \
    } while (0)
    STEP("so", "[R]so");
    STEP(" it is \n", " it is");
    STEP("< </thi", " \n<");
    reasoning = false;
    STEP("nk>\n", "");
    STEP("\nText ", "[C]Text");
    STEP("and <tool", " and");
    STEP("_call>\n{\"name\": \"f\", \"argum", "");
    STEP("ents\": {", "[f]{");
    STEP("\"a\": \"b", "\"a\": \"b");
    STEP("\"}", "\"}");
    ck_assert_uint_eq(chat_output_n_calls(c), 0);
    STEP("}", "");
    ck_assert_uint_eq(chat_output_n_calls(c), 1);
    STEP("\n</tool_call>\n<function=f", "");
    STEP(">", "[f]{");
    STEP("<parameter=s>\n", "\"s\": \"");
    STEP("x\ny\n</par", "x\\ny");
    STEP("ameter> z", "\\n</parameter> z");
    STEP("\n</parameter>\n<parameter=i>", "\", \"i\": ");
    STEP("12\n</parameter>\n", "");
    STEP("</function>", "12}");
    ck_assert_uint_eq(chat_output_n_calls(c), 2);
#undef STEP
    ck_assert_int_eq(chat_output_end(c), 0);
    ck_assert_str_eq(l.text.data, "");
    chat_output_free(c);
    buf_done(&l.text);
}
END_TEST

static const struct {
    const char *head, *unit;
} hard[] = {
    {"", "<"},
    {"", " "},
    {"", "<tool_call>"},
    {"", "<tool_call>\n"},
    {"<tool_call>", " "},
    {"<tool_call>", "{"},
    {"<tool_call>", "{\"a\":"},
    {"<tool_call>{\"name\":\"", "x"},
    {"<tool_call>{\"arguments\":", "{\"x\":["},
    {"<tool_call>{\"arguments\":{\"a\":", "</tool_call"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":", "["},
    {"<tool_call>{\"name\":\"f\",\"arguments\":", "{\"a\":"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":\"{", "\\ud800"},
    {"<tool_call>{\"name\":\"f\"}", " "},
    {"", "<function="},
    {"<function=", "x"},
    {"<function=f>", "<parameter="},
    {"<function=f>", "<"},
    {"<function=f><parameter=s>", "<"},
    {"<function=f><parameter=s>", "</parameter>"},
    {"<function=f><parameter=s>", "</parameter>\n<"},
    {"<function=f><parameter=s></parameter>", "\n"},
    {"<function=f><parameter=s>", "</function></tool_call>"},
    {"<function=f><parameter=s>", "</function>"},
    {"<function=f><parameter=a>", "["},
    {"<function=f><parameter=a>", "[1,"},
    {"<function=f>", "<parameter=i>1</parameter>"},
};

/* Megabytes that are held, given back or begun again at every byte: quadratic work does not end. */
START_TEST(hard_text_takes_linear_time)
{
    size_t n_units = (size_t)1 << 18;
    struct chat_log l = {0};
    struct chat_output *c = chat_log_open(&l, THINKS | TOOLS);
    struct buf text = {0};
    size_t held;
    int r = 0;

    ck_assert_int_eq(buf_addz(&text, hard[_i].head), 0);
    for (size_t i = 0; i < n_units && r == 0; i++)
        r = buf_addz(&text, hard[_i].unit);
    for (size_t i = 0; i < text.len && r == 0; i++)
        r = chat_output_feed(c, text.data + i, 1);
    ck_assert_int_eq(r, 0);
    held = c->space.cap + c->raw.cap + c->out.cap + c->json.args.cap + c->json.name.cap +
           c->json.word.cap + c->json.closers.cap + c->xml.name.cap + c->xml.value.cap;
    ck_assert_uint_lt(held, 6 * text.len + 4096);
    ck_assert_int_eq(chat_output_end(c), 0);
    /* Nothing is dropped but what is between parameters, and nothing comes out twice. */
    ck_assert_uint_lt(l.text.len, 2 * text.len + 64);
    chat_output_free(c);
    buf_done(&l.text);
    buf_done(&text);
}
END_TEST

/* --- failures ------------------------------------------------------------------------------------
 */

static const char whole_text[] =
    "<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
    "<tool_call><function=f><parameter=s>x</parameter><parameter=a>[1]</parameter></function>"
    "</tool_call>c";
enum { N_PIECES = 5 };

START_TEST(a_sink_that_fails_ends_the_feeding)
{
    struct chat_log l = {.fail_at = (unsigned int)_i};
    struct chat_output *c = chat_log_open(&l, THINKS | TOOLS);
    size_t len;
    int r;

    r = chat_output_feed(c, whole_text, sizeof whole_text - 1);
    ck_assert_int_eq(r, _i > 0 ? -EPIPE : 0);
    len = l.text.len;
    r = chat_output_feed(c, "more", 4);
    ck_assert_int_eq(r, _i > 0 ? -EPIPE : 0);
    ck_assert_int_eq(chat_output_end(c), r);
    ck_assert_int_eq(l.text.len > len, r == 0);
    chat_output_free(c);
    buf_done(&l.text);
}
END_TEST

START_TEST(running_out_of_memory_is_an_error)
{
    struct chat_log l = {0}, whole = {0};
    long n = 0;
    int r;

    (void)chat_log_run(&whole, THINKS | TOOLS, whole_text, sizeof whole_text - 1, 0);
    do {
        struct chat_output *c;

        buf_clear(&l.text);
        l.kind = 0;
        l.n_calls = 0;
        ck_assert_int_eq(buf_reserve(&l.text, 1000), 0);
        wrap_alloc_fail_after(n++);
        c = chat_log_open(&l, THINKS | TOOLS);
        r = c ? chat_output_feed(c, whole_text, sizeof whole_text - 1) : -ENOMEM;
        if (r == 0)
            r = chat_output_end(c);
        wrap_alloc_fail_after(-1);
        ck_assert(!l.bad && (r == 0 || r == -ENOMEM));
        chat_output_free(c);
    } while (r < 0);
    ck_assert_int_gt(n, 5);
    ck_assert_str_eq(l.text.data, whole.text.data);
    buf_done(&l.text);
    buf_done(&whole.text);
}
END_TEST

START_TEST(a_schema_is_looked_at_for_a_while)
{
    json_t *schema = json_pack("{s:s}", "type", "integer"), *properties, *wide = json_array();

    for (int i = 0; i < 1000; i++) {
        json_t *outer = json_pack("{s:[o]}", "anyOf", schema);

        ck_assert_ptr_nonnull(outer);
        schema = outer;
        ck_assert_int_eq(json_array_append_new(wide, json_object()), 0);
    }
    ck_assert_int_eq(json_array_append_new(wide, json_pack("{s:s}", "type", "integer")), 0);
    properties = json_pack("{s:o, s:{s:o}}", "deep", schema, "wide", "oneOf", wide);
    ck_assert_ptr_nonnull(properties);
    ck_assert_uint_eq(chat_value_types(properties, "deep"), TYPE_NULL | TYPE_STRING);
    ck_assert_uint_eq(chat_value_types(properties, "wide"), TYPE_NULL | TYPE_STRING);
    ck_assert_uint_eq(chat_value_types(NULL, "deep"), TYPE_NULL | TYPE_STRING);
    json_decref(properties);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chat_output_stream");
    TCase *t = tcase_create("chat_output_stream");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, chat_log_set_up, chat_log_tear_down);
    tcase_add_test(t, text_goes_out_as_soon_as_it_is_clear);
    tcase_add_loop_test(t, hard_text_takes_linear_time, 0, sizeof hard / sizeof *hard);
    tcase_add_loop_test(t, a_sink_that_fails_ends_the_feeding, 0, N_PIECES + 1);
    tcase_add_test(t, running_out_of_memory_is_an_error);
    tcase_add_test(t, a_schema_is_looked_at_for_a_while);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
