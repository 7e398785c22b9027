/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a chat model's text: tables of outputs, at every cut. */
#include "tests/chat_log.h"
#include "util/buf.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct row {
    unsigned int how;
    const char *text, *want;
    unsigned int n_calls;
};

static const struct row reasoning_rows[] = {
    {0, "", "", 0},
    {0, " \n plain <think>text</think>\n ", "[C] \n plain <think>text</think>\n ", 0},
    {THINKS, "plain\n", "[C]plain\n", 0},
    {THINKS, "<think>\nwhy\n</think>\n\nso", "[R]why[C]so", 0},
    {THINKS, " \n<think>why</think>so \n", "[R]why[C]so \n", 0},
    {THINKS, "<think>\n\n</think>\n\nso", "[C]so", 0},
    {THINKS, "<think></think>", "", 0},
    {THINKS, "\n\n so", "[C]\n\n so", 0},
    {THINKS, "\n <thin so", "[C]\n <thin so", 0},
    {THINKS, "\n <thin", "[C]\n <thin", 0},
    {THINKS, "a <think>b</think>", "[C]a <think>b</think>", 0},
    {THINKS, "a</think>b", "[C]a</think>b", 0},
    {THINKS, "<think>never ends \n", "[R]never ends", 0},
    {THINKS, "<think>a < b </thin </think >\n\n</think>  so", "[R]a < b </thin </think >[C]  so",
     0},
    {THINKS, "<think>a</think>\n\n<think>b</think>", "[R]a[C]<think>b</think>", 0},
    {THINKS, "<think>\n\n  a\n\n\nb</think>\r\n\n c", "[R]  a\n\n\nb[C] c", 0},
    {THINKS, "<think>a</thi", "[R]a</thi", 0},
    {THINKS | OPENED, "why\n</think>\n\nso", "[R]why[C]so", 0},
    {THINKS | OPENED, "\n<think>\nwhy\n</think>\n\nso", "[R]why[C]so", 0},
    {THINKS | OPENED, "<think><think>why</think>so", "[R]<think>why[C]so", 0},
    {THINKS | OPENED, "\n why", "[R] why", 0},
    {THINKS | OPENED, "</think>\n\n", "", 0},
    {THINKS | OPENED, "</think>\n \n", "[C] \n", 0},
    {OPENED, "why</think>so", "[R]why[C]so", 0},
    {OPENED, "<tool_call>\n{\"name\":\"f\"}</tool_call>",
     "[R]<tool_call>\n{\"name\":\"f\"}</tool_call>", 0},
    {THINKS | OPENED | TOOLS, "let me \n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n",
     "[R]let me[f]{}", 1},
    {THINKS | OPENED | TOOLS, "let me\n<tool_call>\n<function=f>\n</function>\n</tool_call>\nso",
     "[R]let me[f]{}[C]so", 1},
    {THINKS | OPENED | TOOLS, "a <tool_call> is \n<function=f> it</think>so",
     "[R]a <tool_call> is \n<function=f> it[C]so", 0},
    {THINKS | OPENED | TOOLS, "a <tool_call>{\"nam</think>", "[R]a <tool_call>{\"nam</think>", 0},
    {THINKS | OPENED | TOOLS, "a <tool_call>{1}</think>\nb", "[R]a <tool_call>{1}[C]b", 0},
    {THINKS | TOOLS, "<think>a</think>\n\n<tool_call>{\"name\":\"f\"}</tool_call>", "[R]a[f]{}", 1},
};

#define CALL(object)    "<tool_call>\n" object "\n</tool_call>"
#define F(arguments)    CALL("{\"name\": \"f\", \"arguments\": " arguments "}")
#define OPEN(arguments) "<tool_call>\n{\"name\": \"f\", \"arguments\": " arguments

static const struct row json_rows[] = {
    {0, F("{}"), "[C]" F("{}"), 0},
    {TOOLS, F("{\"a\": 1, \"b\" : [1,{}, \"}\"]}"), "[f]{\"a\": 1, \"b\" : [1,{}, \"}\"]}", 1},
    {TOOLS, "Look:\n\n" F("{}") "\n" F("{ }") "\n", "[C]Look:[f]{}[f]{ }", 2},
    {TOOLS, "Look:\n" F("{}") "\n\nDone.\n", "[C]Look:[f]{}[C]\n\nDone.\n", 1},
    {TOOLS, F("{}") "\n\nDone.\n", "[f]{}[C]Done.\n", 1},
    {TOOLS, "  \n" F("{}") " ", "[f]{}", 1},
    {TOOLS, "<tool_call>{\"arguments\":{\"a\":\"\\\"}\"},\"name\":\"f\"}</tool_call>",
     "[f]{\"a\":\"\\\"}\"}", 1},
    {TOOLS, CALL("{\"name\": \"f\"}"), "[f]{}", 1},
    {TOOLS, CALL("{\"name\":\"f\",\"arguments\":null }"), "[f]{}", 1},
    {TOOLS, CALL("{\"arguments\":null,\"name\":\"f\"}"), "[f]{}", 1},
    {TOOLS, CALL("{\"id\":7,\"x\":[{\"name\":\"g\"},\"]\"],\"name\":\"f\",\"y\":\"\\\"\"}"),
     "[f]{}", 1},
    {TOOLS, CALL("{\"name\":\"f\",\"parameters\":{\"a\":1}}"), "[f]{\"a\":1}", 1},
    {TOOLS, CALL("{\"n\\u0061me\":\"\\u00e9\\ud83d\\ude00\\n\\ud83dx\",\"arguments\":{}}"),
     "[\xc3\xa9\xf0\x9f\x98\x80\n\xef\xbf\xbdx]{}", 1},
    {TOOLS, F("{},\"arguments\":{\"a\":1},\"name\":\"g\",\"z\":tr"), "[f]{}", 1},
    /* arguments in a string */
    {TOOLS, F("\"{\\\"a\\\": \\\"\\\\u00e9\\\\n\\u00e9\\\"}\""),
     "[f]{\"a\": \"\\u00e9\\n\xc3\xa9\"}", 1},
    {TOOLS, F("\" {\\\"a\\\": \\\"x\\ny\\\"}\""), "[f]{\"a\": \"x\\ny\"}", 1},
    {TOOLS, F("\"\""), "[f]{}", 1},
    {TOOLS, CALL("{\"arguments\":\"{\\\"a\\\":1}\",\"name\":\"f\"}"), "[f]{\"a\":1}", 1},
    /* what models do wrong */
    {TOOLS, F("{\"a\": \"x\ny\t\"}"), "[f]{\"a\": \"x\\ny\\t\"}", 1},
    {TOOLS, F("{\"a\": 1}}"), "[f]{\"a\": 1}", 1},
    {TOOLS, F("{\"a\": 1}} }") "x", "[f]{\"a\": 1}[C]x", 1},
    {TOOLS, OPEN("{\"a\": 1}\n</tool_call>x"), "[f]{\"a\": 1}[C]x", 1},
    {TOOLS, OPEN("{\"a\": [{\"b\": 1\n</tool_call>x"), "[f]{\"a\": [{\"b\": 1\n}]}[C]x", 1},
    {TOOLS, OPEN("{\"a\": 1}\n<tool_call>{\"name\":\"g\"}</tool_call>"), "[f]{\"a\": 1}[g]{}",
     1 + 1},
    {TOOLS, CALL("{\"name\": \"f\" \"arguments\": {}}"), "[f]{}", 1},
    {TOOLS, CALL("{\"name\": \"f\", \"arguments\": {},}"), "[f]{}", 1},
    {TOOLS, OPEN("{} oops\n</tool_call>"), "[f]{}[C]oops\n</tool_call>", 1},
    {TOOLS, F("{\"a\": </tool_cal}"), "[f]{\"a\": </tool_cal}", 1},
    {TOOLS, F("{'a': True}"), "[f]{'a': True}", 1},
    {TOOLS, OPEN("{\"a\": [1</tool_call>") F("{}") "x", "[f]{\"a\": [1]}[f]{}[C]x", 2},
    {TOOLS, F("\"{\\\"a\", \"x\": {\"y\": \"}\"}") "x", "[f]{\"a[C]x", 1},
    /* the end of the text */
    {TOOLS, OPEN("{\"a\": 1}}"), "[f]{\"a\": 1}", 1},
    {TOOLS, OPEN("{\"a\": 1}}\n</tool_c"), "[f]{\"a\": 1}", 1},
    {TOOLS, OPEN("{\"a\": 1}"), "[f]{\"a\": 1}", 1},
    {TOOLS, OPEN("{\"a\": 1"), "[f]{\"a\": 1", 0},
    {TOOLS, OPEN("{\"a\": </tool"), "[f]{\"a\": </tool", 0},
    {TOOLS, OPEN("\"{\\\"a\\"), "[f]{\"a", 0},
    {TOOLS, "<tool_call>\n{\"name\":\"f\"}", "[f]{}", 1},
    {TOOLS, "x <tool_call>\n{\"name\":\"f\"", "[C]x <tool_call>\n{\"name\":\"f\"", 0},
    {TOOLS, "x <tool_call>\n{\"arguments\":{\"a\":</to",
     "[C]x <tool_call>\n{\"arguments\":{\"a\":</to", 0},
    {TOOLS, "x <tool_call>\n ", "[C]x <tool_call>\n ", 0},
    {TOOLS, "x <tool_c", "[C]x <tool_c", 0},
    {TOOLS, "x \n", "[C]x \n", 0},
    /* no calls */
    {TOOLS, CALL("{}"), "[C]" CALL("{}"), 0},
    {TOOLS, CALL("[]"), "[C]" CALL("[]"), 0},
    {TOOLS, CALL("{\"name\": \"\"}"), "[C]" CALL("{\"name\": \"\"}"), 0},
    {TOOLS, CALL("{\"name\": 5, \"arguments\": {}}"),
     "[C]" CALL("{\"name\": 5, \"arguments\": {}}"), 0},
    {TOOLS, F("5"), "[C]" F("5"), 0},
    {TOOLS, F("[]"), "[C]" F("[]"), 0},
    {TOOLS, F("\"x\""), "[C]" F("\"x\""), 0},
    {TOOLS, CALL("{\"x\": [</tool_call>"), "[C]" CALL("{\"x\": [</tool_call>"), 0},
    {TOOLS, "<tool_call>\n{\"name\": \"f\n" F("{}"), "[C]<tool_call>\n{\"name\": \"f[f]{}", 1},
    {TOOLS, "<tool_call>\n" F("{}"), "[C]<tool_call>[f]{}", 1},
    {TOOLS, "a << b <tool <tool_call <x> </tool_call>",
     "[C]a << b <tool <tool_call <x> </tool_call>", 0},
};

#define XML(body)   "<tool_call>\n<function=f>\n" body "</function>\n</tool_call>"
#define P(key, val) "<parameter=" key ">\n" val "\n</parameter>\n"

static const struct row xml_rows[] = {
    {0, XML(P("s", "x")), "[C]" XML(P("s", "x")), 0},
    {TOOLS, XML(""), "[f]{}", 1},
    {TOOLS, XML(P("s", "x") P("q", "y")), "[f]{\"s\": \"x\", \"q\": \"y\"}", 1},
    {TOOLS, "Hm.\n\n" XML(P("s", "x")) "\n" XML(P("s", "y")) "\nDone",
     "[C]Hm.[f]{\"s\": \"x\"}[f]{\"s\": \"y\"}[C]\nDone", 2},
    {TOOLS, "<function=f>" P("s", "x") "</function>", "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "Hm <function=f>" P("s", "x") "</function></tool_call>", "[C]Hm[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<tool_call><function= g ><parameter= k\" >v</parameter></function></tool_call>",
     "[g]{\"k\\\"\": \"v\"}", 1},
    {TOOLS, "<tool_call><function=f></function><function=g></function></tool_call>", "[f]{}[g]{}",
     2},
    /* a value's text */
    {TOOLS, XML(P("s", "\n x \"\\\t\x01\xc3\xa9\n")),
     "[f]{\"s\": \"\\n x \\\"\\\\\\t\\u0001\xc3\xa9\\n\"}", 1},
    {TOOLS, "<function=f><parameter=s>x</parameter></function>", "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<function=f><parameter=s></parameter></function>", "[f]{\"s\": \"\"}", 1},
    {TOOLS, "<function=f><parameter=s>\n</parameter></function>", "[f]{\"s\": \"\"}", 1},
    {TOOLS, "<function=f><parameter=s>\n\n</parameter></function>", "[f]{\"s\": \"\"}", 1},
    {TOOLS, "<function=f><parameter=s>\n\n\n</parameter></function>", "[f]{\"s\": \"\\n\"}", 1},
    {TOOLS, XML(P("s", "<b>&amp;</b> </parameter> </paramete </function> <parameter=i>")),
     "[f]{\"s\": \"<b>&amp;</b> </parameter> </paramete </function> <parameter=i>\"}", 1},
    {TOOLS, XML(P("s", "a\n</parameter>\n\nb\n</parameter>\n</parameter>")),
     "[f]{\"s\": \"a\\n</parameter>\\n\\nb\\n</parameter>\\n</parameter>\"}", 1},
    {TOOLS, XML(P("s", "a</function>\n</tool_call>\n<tool_call>")),
     "[f]{\"s\": \"a</function>\\n</tool_call>\\n<tool_call>\"}", 1},
    {TOOLS, XML(P("s", "a</parameter>\n</par")), "[f]{\"s\": \"a</parameter>\\n</par\"}", 1},
    {TOOLS, XML(P("s", "</function></parameter><")), "[f]{\"s\": \"</function></parameter><\"}", 1},
    /* types */
    {TOOLS, XML(P("s", "null") P("s", "5")), "[f]{\"s\": \"null\", \"s\": \"5\"}", 1},
    {TOOLS, XML(P("i", "5") P("i", " -12345678901234567890123 ")),
     "[f]{\"i\": 5, \"i\": -12345678901234567890123}", 1},
    {TOOLS, XML(P("i", "5.0") P("i", "05") P("i", "x ") P("i", "")),
     "[f]{\"i\": \"5.0\", \"i\": \"05\", \"i\": \"x \", \"i\": \"\"}", 1},
    {TOOLS, XML(P("n", "5") P("n", "5.0") P("n", "-1e400") P("n", "5.") P("n", "NaN") P("n", "-")),
     "[f]{\"n\": 5, \"n\": 5.0, \"n\": -1e400, \"n\": \"5.\", \"n\": \"NaN\", \"n\": \"-\"}", 1},
    {TOOLS, XML(P("b", "True") P("b", "false") P("b", "FALSE") P("b", "1") P("b", "null")),
     "[f]{\"b\": true, \"b\": false, \"b\": false, \"b\": \"1\", \"b\": \"null\"}", 1},
    {TOOLS, XML(P("sn", "null") P("sn", "NuLL") P("sn", "nul") P("sn", "nullx") P("sn", "")),
     "[f]{\"sn\": null, \"sn\": null, \"sn\": \"nul\", \"sn\": \"nullx\", \"sn\": \"\"}", 1},
    {TOOLS, XML(P("sn", "null ") P("sn", "5")), "[f]{\"sn\": \"null \", \"sn\": \"5\"}", 1},
    {TOOLS, XML(P("in", "5") P("in", "None") P("in", "null")),
     "[f]{\"in\": 5, \"in\": \"None\", \"in\": null}", 1},
    {TOOLS, XML(P("si", "5") P("si", " x") P("si", "[1,]")),
     "[f]{\"si\": 5, \"si\": \" x\", \"si\": [1]}", 1},
    {TOOLS, XML(P("e", "1") P("e", "null") P("em", "1")),
     "[f]{\"e\": \"1\", \"e\": \"null\", \"em\": 1}", 1},
    {TOOLS, XML(P("any", "null") P("any", "5") P("zz", "Null") P("zz", "true")),
     "[f]{\"any\": null, \"any\": \"5\", \"zz\": null, \"zz\": \"true\"}", 1},
    {TOOLS, "<function=nosuch>" P("i", "5") "</function>", "[nosuch]{\"i\": \"5\"}", 1},
    {TOOLS, "<function=other>" P("n", "5") "</function>", "[other]{\"n\": \"5\"}", 1},
    {TOOLS, XML(P("o", "{\"a\" : [1.50, \"\\u00e9\\/\", {}],\n \"b\":null}")),
     "[f]{\"o\": {\"a\" : [1.50, \"\\u00e9\\/\", {}],\n \"b\":null}}", 1},
    {TOOLS,
     XML(P("o", "{'a': \"it's\", 'b': 'say \"x\" \\'y\\'\\x41\\d\n', 'c': [True, None, ], }")),
     "[f]{\"o\": {\"a\": \"it's\", \"b\": \"say \\\"x\\\" 'y'\\u0041\\\\d\\n\","
     " \"c\": [true, null ] }}",
     1},
    {TOOLS, XML(P("o", "{a: 1}") P("a", "[1") P("a", "[1]]") P("a", "[1}") P("a", "5")),
     "[f]{\"o\": \"{a: 1}\", \"a\": \"[1\", \"a\": \"[1]]\", \"a\": \"[1}\", \"a\": \"5\"}", 1},
    {TOOLS, XML(P("a", "[,]") P("a", "[1,,2]") P("o", "{\"a\"}") P("o", "{\"a\":}") P("a", "[\"")),
     "[f]{\"a\": \"[,]\", \"a\": \"[1,,2]\", \"o\": \"{\\\"a\\\"}\", \"o\": \"{\\\"a\\\":}\","
     " \"a\": \"[\\\"\"}",
     1},
    {TOOLS, XML(P("a", "[{\"b\":[]},{},[[]]]")), "[f]{\"a\": [{\"b\":[]},{},[[]]]}", 1},
    /* what models do wrong */
    {TOOLS, "<tool_call>\n<function=f>\n" P("s", "x") "</tool_call>y", "[f]{\"s\": \"x\"}[C]y", 1},
    {TOOLS, "<function=f>hm < <para " P("s", "x") P("i", "1") "</function>",
     "[f]{\"s\": \"x\", \"i\": 1}", 1},
    {TOOLS, "<tool_call>\n<function=f>\nhm <tool_call>\n<function=g></function>", "[f]{}[g]{}", 2},
    {TOOLS, "<function=f>hm</tool_call>so", "[f]{}[C]so", 1},
    {TOOLS, "<function=f>\n<function=g></function>", "[f]{}[g]{}", 2},
    {TOOLS, "<function=f><parameter=></parameter>" P("i\n", "1") P("s", "x") "</function>",
     "[f]{\"s\": \"x\"}", 1},
    /* the end of the text */
    {TOOLS, "<tool_call>\n<function=f>\n" P("s", "x") "</function>\n</tool_call",
     "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n" P("s", "x") "</func", "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n" P("s", "x"), "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=i>\n12", "[f]{\"i\": 12}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=s>\nx\n", "[f]{\"s\": \"x\"}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</para", "[f]{\"s\": \"x\\n</para\"}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=i>\n1\n</function>\n", "[f]{\"i\": 1}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=i>\n1\n</function>\n</tool_call>\n",
     "[f]{\"i\": 1}", 1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=i>\n1\n</function>\n</tool_", "[f]{\"i\": 1}",
     1},
    {TOOLS, "<tool_call>\n<function=f>\n<parameter=s", "[f]{}", 1},
    {TOOLS, "<tool_call>\n<function=f>", "[f]{}", 1},
    {TOOLS, "a <tool_call>\n<function=f", "[C]a <tool_call>\n<function=f", 0},
    /* no calls */
    {TOOLS, "<function=>x</function>", "[C]<function=>x</function>", 0},
    {TOOLS, "a <function=b\n c> <function=f></function>", "[C]a <function=b\n c>[f]{}", 1},
    {TOOLS, "<tool_call> <fun>", "[C]<tool_call> <fun>", 0},
};

static void table(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].text);

        for (size_t cut = 0; cut <= len; cut++) {
            struct chat_log l = {0};
            unsigned int n_calls = chat_log_run(&l, rows[i].how, rows[i].text, len, cut);

            ck_assert_msg(strcmp(l.text.data, rows[i].want) == 0,
                          "row %zu, pieces of %zu:\n%s\ngave\n%s\ninstead of\n%s", i, cut,
                          rows[i].text, l.text.data, rows[i].want);
            ck_assert_msg(n_calls == rows[i].n_calls, "row %zu: %u calls:\n%s", i, n_calls,
                          rows[i].text);
            buf_done(&l.text);
        }
    }
}

#define TABLE(rows) table(rows, sizeof(rows) / sizeof *(rows))

START_TEST(reasoning_is_told_from_content)
{
    TABLE(reasoning_rows);
}
END_TEST

START_TEST(calls_in_json_are_found)
{
    TABLE(json_rows);
}
END_TEST

START_TEST(calls_in_xml_become_json)
{
    TABLE(xml_rows);
}
END_TEST

/* All rows one after the other, which is a mess, in pieces of any size. */
START_TEST(how_the_text_is_cut_does_not_matter)
{
    static const struct {
        const struct row *rows;
        size_t n;
    } all[] = {{xml_rows, sizeof xml_rows / sizeof *xml_rows},
               {json_rows, sizeof json_rows / sizeof *json_rows},
               {reasoning_rows, sizeof reasoning_rows / sizeof *reasoning_rows}};
    unsigned int how = (unsigned int)_i % 8, rng = (unsigned int)_i + 1;
    struct chat_log whole = {0}, l = {0};
    struct chat_output *c = chat_log_open(&l, how);
    struct buf text = {0};

    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < all[k].n; i++)
            ck_assert_int_eq(buf_addz(&text, all[k].rows[(i * 7 + (size_t)_i) % all[k].n].text), 0);
    (void)chat_log_run(&whole, how, text.data, text.len, 0);
    for (size_t i = 0, n; i < text.len; i += n) {
        rng = rng * 1103515245u + 12345u;
        n = (rng >> 16) % 24;
        n = n > text.len - i ? text.len - i : n;
        ck_assert_int_eq(chat_output_feed(c, text.data + i, n), 0);
    }
    ck_assert_int_eq(chat_output_end(c), 0);
    chat_output_free(c);
    ck_assert_str_eq(l.text.data, whole.text.data);
    buf_done(&l.text);
    buf_done(&whole.text);
    buf_done(&text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chat_output");
    TCase *t = tcase_create("chat_output");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, chat_log_set_up, chat_log_tear_down);
    tcase_add_test(t, reasoning_is_told_from_content);
    tcase_add_test(t, calls_in_json_are_found);
    tcase_add_test(t, calls_in_xml_become_json);
    tcase_add_loop_test(t, how_the_text_is_cut_does_not_matter, 0, 64);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
