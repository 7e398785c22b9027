/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: the reference's probes, what is refused and where, limits, marks of data. */
#include "engine/jinja.h"

#include "tests/golden.h"
#include "tests/jinja_values.h"
#include "tests/wrap_alloc.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct err_text error;

/* Renders with the variables of a JSON text (NULL: none), given some limits. */
static int render(const char *template, const char *vars, const struct jinja_limits *l,
                  struct jinja_output *ret)
{
    json_t *j = json_loads(vars ? vars : "{}", 0, NULL);
    struct jinja_value *globals;
    struct jinja *t = NULL;
    int r;

    ck_assert_msg(j, "%s", vars);
    globals = jinja_from_json(j);
    jinja_set_text(globals, "bos", "<s>");
    json_decref(j);
    error.s[0] = '\0';
    r = jinja_compile(template, strlen(template), &t, &error);
    if (r == 0)
        r = jinja_render(t, globals, l, ret, &error);
    jinja_free(t);
    jinja_unref(globals);
    return r;
}

static void must_give(const char *template, const char *vars, const char *want)
{
    struct jinja_output out = {0};
    int r = render(template, vars, NULL, &out);

    ck_assert_msg(r == 0, "%s: %s", template, error.s);
    ck_assert_msg(strcmp(out.text.data, want) == 0, "%s: \"%s\", expected \"%s\"", template,
                  out.text.data, want);
    ck_assert_uint_eq(out.text.len, strlen(want));
    jinja_output_done(&out);
}

START_TEST(the_probes_give_what_jinja2_gives)
{
    json_t *file = json_load_file(golden_path("jinja_probes.json"), 0, NULL), *c;
    struct jinja_value *globals = jinja_object();
    size_t i, n = 0;

    ck_assert_ptr_nonnull(file);
    jinja_set(globals, "messages", jinja_from_json(json_object_get(file, "messages")));
    json_array_foreach(json_object_get(file, "cases"), i, c)
    {
        const char *source = json_string_value(json_object_get(c, "template"));
        const char *want = json_string_value(json_object_get(c, "expect"));
        struct jinja_output out = {0};
        struct jinja *t = NULL;
        int r = jinja_compile(source, strlen(source), &t, &error);

        if (r == 0)
            r = jinja_render(t, globals, NULL, &out, &error);
        if (want)
            ck_assert_msg(r == 0 && strcmp(out.text.data, want) == 0, "%s: \"%s\", expected \"%s\"",
                          source, r == 0 ? out.text.data : error.s, want);
        else
            ck_assert_msg(r < 0 && strncmp(error.s, "line 1: ", 8) == 0, "%s: %d, %s", source, r,
                          error.s);
        jinja_output_done(&out);
        jinja_free(t);
        n++;
    }
    ck_assert_uint_eq(n, 54);
    jinja_unref(globals);
    json_decref(file);
}
END_TEST

/* Beyond the probes; expected texts are jinja2's. */
START_TEST(the_rest_of_the_subset_gives_what_jinja2_gives)
{
    static const struct {
        const char *template, *want;
    } cases[] = {
        {"{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.123 }}",
         "0.30000000000000004 1e+16 1000000000000000.0 1e-05 0.0001 123456789.123"},
        {"{{ 'stra\xc3\x9f"
         "e'|upper }} {{ \"they're bill's\"|title }} {{ \"they're\".title() }}",
         "STRASSE They're Bill's They'Re"},
        {"{{ [3,1,2]|sort(reverse=true) }} {{ ['b','A','a']|sort }} {{ ['b','A','a']|unique|list "
         "}}",
         "[3, 2, 1] ['A', 'a', 'b'] ['b', 'A']"},
        {"{{ {'b':1,'a':[]}|tojson(sort_keys=true, separators=(',',':')) }}", "{\"a\":[],\"b\":1}"},
        {"{{ 'a,b,c'.rsplit(',',1) }} {{ ' a b  c '.split(none,1) }} {{ 'abc'.replace('','-') }}",
         "['a,b', 'c'] ['a', 'b  c '] -a-b-c-"},
        {"{% set x = 1 %}{% macro m(a, b=x, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
         "{% set x = 2 %}{{ m(0) }}{{ m(0, c=5) }}",
         "020025"},
        {"{% for i in range(2) %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}", "01"},
        {"{% set ns = namespace(m=[]) %}{% for i in [1, 2] %}{% macro g() %}{{ i }}{% endmacro %}"
         "{% set ns.m = ns.m + [g] %}{% endfor %}{{ ns.m[0]() }}{{ ns.m[1]() }}",
         "12"},
        {"{% set l = [1] %}{% set _ = l.append(2) %}{{ l.pop(0) }}{{ l }}", "1[2]"},
        {"{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{{ d.pop('a') }}{{ d }}",
         "1{'b': 2}"},
        {"{{ '%s is %d and %5.2f' | format('x', 3, 2.5) }} {{ '{1}{0}{x}'.format('a','b',x='c') }}",
         "x is 3 and  2.50 bac"},
        {"{{ '{\"a\": [1, \"\\\\u00e9\"]}' | from_json }}", "{'a': [1, '\xc3\xa9']}"},
        {"{{ strftime_now('%Y') | int > 2000 }}", "True"},
        {"{% for x in [1,2,3] %}{% for y in [1] %}{% continue %}{% endfor %}{{ x }}{% endfor %}",
         "123"},
        {"a\r\nb\rc\r\n", "a\nb\nc"},
        {"{% generation %}x{% endgeneration %}{% raw -%} {{ y {%- endraw %}\nz", "x{{ yz"},
        {"{{ '\\u00a0 x\\u3000\\x1c'|trim }}|{{ 'a\\u2003b'.split()|length }}", "x|2"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        must_give(cases[i].template, NULL, cases[i].want);
}
END_TEST

/* Refused before anything is rendered, even in a branch that never runs. */
START_TEST(what_is_not_supported_is_refused_by_name_and_line)
{
    static const struct {
        const char *template, *words;
        int code;
    } cases[] = {
        {"a\n{% include 'x' %}", "line 2: the statement 'include' is not supported",
         ERR_UNSUPPORTED},
        {"{% extends 'x' %}", "line 1: the statement 'extends' is not supported", ERR_UNSUPPORTED},
        {"\n\n{% if false %}{{ 1|nofilter }}{% endif %}",
         "line 3: the filter 'nofilter' is not supported", ERR_UNSUPPORTED},
        {"{{ 1 is notest }}", "line 1: the test 'notest' is not supported", ERR_UNSUPPORTED},
        {"{{ [1]|map('nofilter') }}", "line 1: the filter 'nofilter' is not supported",
         ERR_UNSUPPORTED},
        {"{{ [1]|selectattr('a', 'notest') }}", "line 1: the test 'notest' is not supported",
         ERR_UNSUPPORTED},
        {"{{\n now() }}", "line 2: the function 'now' is not supported", ERR_UNSUPPORTED},
        {"{{ x.encode() }}", "line 1: the method 'encode' is not supported", ERR_UNSUPPORTED},
        {"{{ 1|tojson(colour=2) }}",
         "line 1: the argument 'colour' of the filter 'tojson' is not supported", ERR_UNSUPPORTED},
        {"{% for x in y recursive %}{% endfor %}", "line 1: recursive loops are not supported",
         ERR_UNSUPPORTED},
        {"{{ f(*x) }}", "line 1: arguments with * are not supported", ERR_UNSUPPORTED},
        {"{% macro m() %}{{ caller() }}{% endmacro %}", "line 1: 'caller' is not supported",
         ERR_UNSUPPORTED},
        {"{% if x %}\n", "line 1: the template ends without the end of line 1", ERR_DAMAGED},
        {"{% endif %}", "line 1: 'endif' without its beginning", ERR_DAMAGED},
        {"{% break %}", "line 1: break outside of a loop", ERR_DAMAGED},
        {"\n{{ 'x }}", "line 2: a string is not closed", ERR_DAMAGED},
        {"{{ (1 }}", "line 1: unexpected '}'", ERR_DAMAGED},
        {"{{ 1 ", "line 1: a tag is not closed with }}", ERR_DAMAGED},
        {"{# x", "line 1: a comment is not closed", ERR_DAMAGED},
        {"{{ 1 + }}", "line 1: an expression expected, not }}", ERR_DAMAGED},
        {"{{ a ? b }}", "line 1: unexpected character '?'", ERR_DAMAGED},
        {"\xff", "the template is not UTF-8", ERR_DAMAGED},
    };
    struct jinja_output out = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(render(cases[i].template, NULL, NULL, &out) == cases[i].code &&
                          strstr(error.s, cases[i].words),
                      "%s: \"%s\", expected \"%s\"", cases[i].template, error.s, cases[i].words);
    }
    /* A template may ask first. */
    must_give("{% if now is defined %}{{ now() }}{% endif %}x", NULL, "x");
}
END_TEST

START_TEST(faults_while_rendering_name_their_line)
{
    static const struct {
        const char *template, *words;
    } cases[] = {
        {"\n{{ 'a' +\n nosuch }}", "line 3: 'nosuch' is undefined"},
        {"{% set x = {} %}\n{{ x.a.b }}", "line 2: attribute 'a' is undefined"},
        {"\n\n{{ raise_exception('no ' ~ 'way\n') }}", "line 3: the template refuses: no way "},
        {"{% macro m() %}\n{{ 1 // 0 }}{% endmacro %}\n\n{{ m() }}", "line 2: division by zero"},
        {"\n{{ [1]|sort + 1 }}", "line 2: a list + an integer is not possible"},
        {"{{ 9223372036854775807 + 1 }}", "line 1: an integer beyond 64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "line 1: an integer beyond 64 bits"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
         "line 1: macro 'm' takes 1 arguments, not 2"},
        {"{% set a, b = [1] %}", "line 1: 1 values for 2 names"},
        {"{{ {}.pop('x') }}", "line 1: there is no such key to pop"},
        {"{{ '[1' | from_json }}", "line 1: no JSON at byte 2"},
    };
    struct jinja_output out = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(render(cases[i].template, NULL, NULL, &out) == -EINVAL &&
                          strcmp(error.s, cases[i].words) == 0,
                      "%s: \"%s\", expected \"%s\"", cases[i].template, error.s, cases[i].words);
    }
    ck_assert_ptr_null(out.text.data);
}
END_TEST

/* Each of these would run for ages, or fill the memory, or the stack. */
START_TEST(hostile_templates_meet_a_limit)
{
    static const char *const templates[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
        "%}",
        "{{ 'x' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set n = namespace(a=[]) %}{% for i in range(9999) %}{% set n.a = [n.a] %}{% endfor %}"
        "{{ n.a }}",
        "{% set n = namespace(a=[]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor "
        "%}"
        "{{ n.a|tojson }}",
        "{% set n = namespace(a=[]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor "
        "%}"
        "{% set m = namespace(a=[]) %}{% for i in range(99) %}{% set m.a = [m.a, m.a] %}{% endfor "
        "%}"
        "{{ n.a == m.a }}",
        "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
        "{% set a = [] %}{% set b = [] %}{% set _ = a.append(a) %}{% set _ = b.append(b) %}"
        "{{ a < b }}",
        "{% set n = namespace(s='xxxxxxxxxxxxxxxx' * 65536) %}"
        "{% for a in range(99999) %}{% set n.t = n.s|upper %}{% endfor %}",
        "{% for x in range(100000) %}{{ 'y' * 1000 }}{% endfor %}",
        "{{ range(100001) }}",
        "{{ '%0999d' % 1 * 9999999 }}",
        "{{ big.split('a')|length }}{% for a in range(99) %}{{ big|list|length }}{% endfor %}",
    };
    struct jinja_limits l = {.steps = 1000000, .bytes = 8 << 20, .output_bytes = 1 << 20};
    char *vars = malloc((1 << 20) + 32);
    struct jinja_output out = {0};

    memcpy(vars, "{\"big\":\"", 8);
    memset(vars + 8, 'a', 1 << 20);
    memcpy(vars + 8 + (1 << 20), "\"}", 3);
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
        ck_assert_msg(render(templates[i], vars, &l, &out) == ERR_CAPACITY &&
                          strncmp(error.s, "line ", 5) == 0,
                      "%zu: %s", i, error.s);
    free(vars);
}
END_TEST

START_TEST(nesting_is_limited_when_compiling)
{
    static const char *const opening[] = {"(", "[", "-", "not ", "{1:", "1 if ", "a(", "x["};
    char source[4096];

    for (size_t i = 0; i < sizeof(opening) / sizeof(opening[0]); i++) {
        struct jinja *t = NULL;
        size_t n = (size_t)sprintf(source, "{{ ");

        while (n + 16 < sizeof(source))
            n += (size_t)sprintf(source + n, "%s", opening[i]);
        n += (size_t)sprintf(source + n, " }}");
        ck_assert_msg(jinja_compile(source, n, &t, &error) < 0, "%s", opening[i]);
    }
}
END_TEST

/* ---- marks ---- */

/* The output with [ and ] around what is data. */
static void must_mark(const char *template, const char *vars, const char *want)
{
    struct jinja_output out = {0};
    struct buf b = {0};
    size_t at = 0;
    int r = render(template, vars, NULL, &out);

    ck_assert_msg(r == 0, "%s: %s", template, error.s);
    for (size_t i = 0; i < out.n_spans; i++) {
        struct jinja_span s = out.spans[i];

        ck_assert(s.begin < s.end && s.end <= out.text.len && (i == 0 || s.begin > at));
        r |= buf_add(&b, out.text.data + at, s.begin - at) | buf_add(&b, "[", 1);
        r |= buf_add(&b, out.text.data + s.begin, s.end - s.begin) | buf_add(&b, "]", 1);
        at = s.end;
    }
    r |= buf_add(&b, out.text.data + at, out.text.len - at);
    ck_assert(r == 0);
    ck_assert_msg(strcmp(b.data, want) == 0, "%s: %s, expected %s", template, b.data, want);
    buf_done(&b);
    jinja_output_done(&out);
}

START_TEST(data_stays_data_on_every_way_to_the_output)
{
    static const char vars[] =
        "{\"d\": \"Data \", \"o\": {\"k\": \"v\", \"n\": 1}, \"l\": [\"p\", \"q\"]}";
    static const struct {
        const char *template, *want;
    } cases[] = {
        {"x{{ d }}y{{ bos }}", "x[Data ]y<s>"},
        {"{{ bos + d + 't' }}", "<s>[Data ]t"},
        {"{{ bos ~ d ~ 1 }}", "<s>[Data ]1"},
        {"{{ d ~ d }}{{ d }}", "[Data Data Data ]"},
        {"{{ ('a' ~ d)[0:3] }}|{{ ('a' ~ d)[::-1] }}|{{ d[0] }}|{{ ('ab' ~ d)[:2] }}",
         "a[Da]|[ ataD]a|[D]|ab"},
        {"{{ ('  a' ~ d)|trim }}|{{ d.strip() }}|{{ ('b' ~ d).rstrip('a ') }}",
         "a[Data]|[Data]|b[Dat]"},
        {"{{ ('a-' ~ d ~ '-b').split('-')|join('+') }}", "a+[Data ]+b"},
        {"{{ 'a-b'.replace('-', d) }}|{{ ('x' ~ d).replace('a', 'o') }}", "a[Data ]b|x[D]o[t]o[ ]"},
        {"{{ ('a' ~ d)|upper }}{{ ('a' ~ d).lower() }}{{ ('a' ~ d)|title }}",
         "A[DATA ]a[data ]A[data ]"},
        {"{{ ('a\\n' ~ d)|indent(2) }}|{{ 'a\\nb'|indent(d) }}", "a[\n]  [Data ]|a\n[Data ]b"},
        {"{{ l|join(', ') }}|{{ 'ab'|join(d) }}|{{ d.join(['1', '2']) }}",
         "[p], [q]|a[Data ]b|1[Data ]2"},
        {"{{ o|tojson }}|{{ {'a': 'b'}|tojson }}|{{ [d] }}",
         "[{\"k\": \"v\", \"n\": 1}]|{\"a\": \"b\"}|[['Data ']]"},
        {"{{ [1]|tojson(indent=d) }}{{ [1, 2]|tojson(separators=(d, d)) }}{{ strftime_now(d) }}",
         "[[\nData 1\n][1Data 2]Data ]"},
        {"{{ o }}|{{ o.n }}|{{ o['k'] }}|{{ o|length }}", "[{'k': 'v', 'n': 1}]|1|[v]|2"},
        {"{% for k, v in o|items %}{{ k }}={{ v }};{% endfor %}", "[k]=[v];[n]=1;"},
        {"{% for c in ('a' ~ d) %}{{ c }}.{% endfor %}", "a.[D].[a].[t].[a].[ ]."},
        {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(d) }}{{ m(d)|upper }}", "<[Data ]><[DATA ]>"},
        {"{% set s %}a{{ d }}b{% endset %}{{ s }}{{ s|length }}", "a[Data ]b7"},
        {"{% filter upper %}a{{ d }}{% endfilter %}", "A[DATA ]"},
        {"{% set ns = namespace(x='') %}{% for i in l %}{% set ns.x = ns.x + i + ',' %}{% endfor %}"
         "{{ ns.x }}",
         "[p],[q],"},
        {"{{ '%s:%s' % (d, 'x') }}{{ '{}:{}'.format('y', d) }}", "[Data ]:xy:[Data ]"},
        {"{{ 'a' * 2 }}{{ d * 2 }}", "aa[Data Data ]"},
        {"{{ '{\"a\": \"b\"}'|from_json }}{{ ('[\"' ~ d ~ '\"]')|from_json|first }}",
         "{'a': 'b'}[Data ]"},
        {"{{ l|map('upper')|first }}{{ l|sort|last }}{{ l|max }}{{ l|reverse|list }}",
         "[Pqq['q', 'p']]"},
        {"{{ nosuch|default(d) }}{{ d if d else 'x' }}{{ '' or d }}", "[Data Data Data ]"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        must_mark(cases[i].template, vars, cases[i].want);
}
END_TEST

/* ---- values and memory ---- */

START_TEST(rendering_does_not_change_what_it_was_given)
{
    static const char source[] =
        "{% set _ = m.append(1) %}{% set _ = m[0].update({'a': 2}) %}{{ m }}";
    struct jinja_value *globals = jinja_object(), *list = jinja_list(), *o = jinja_object();
    struct jinja *t = NULL;

    jinja_set(o, "a", jinja_int(1));
    ck_assert_int_eq(jinja_list_add(list, o), 0);
    jinja_set(globals, "m", list);
    ck_assert_int_eq(jinja_compile(source, strlen(source), &t, &error), 0);
    for (int i = 0; i < 2; i++) {
        struct jinja_output out = {0};

        ck_assert_int_eq(jinja_render(t, globals, NULL, &out, &error), 0);
        ck_assert_str_eq(out.text.data, "[{'a': 2}, 1]");
        jinja_output_done(&out);
    }
    jinja_free(t);
    jinja_unref(globals);
}
END_TEST

START_TEST(objects_of_many_keys_keep_their_order)
{
    struct jinja_value *globals = jinja_object(), *o = jinja_object();
    static const char source[] =
        "{{ o.k777 }} {{ o|length }} {{ (o|list)[998] }} {{ o.pop('k5') }} "
        "{{ o.k6 }} {{ o.k5 is defined }} {{ (o|list)[5] }} "
        "{{ 18446744073709551616 }} {{ big }}";
    struct jinja_output out = {0};
    struct jinja *t = NULL;
    char key[16];

    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        jinja_set(o, key, jinja_int(i));
    }
    jinja_set(o, "k999", jinja_int(-1));
    jinja_set(globals, "o", o);
    jinja_set(globals, "big", jinja_number_text("1e999", 5));
    ck_assert_int_eq(jinja_compile(source, strlen(source), &t, &error), 0);
    ck_assert_msg(jinja_render(t, globals, NULL, &out, &error) == 0, "%s", error.s);
    ck_assert_str_eq(out.text.data, "777 1000 k998 5 6 False k6 18446744073709551616 1e999");
    jinja_output_done(&out);
    jinja_free(t);
    jinja_unref(globals);
}
END_TEST

START_TEST(content_as_parts_is_recognised)
{
    static const struct {
        const char *template;
        int want;
    } cases[] = {
        {"{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}", 0},
        {"{% for m in messages %}{{ m.role + m.content }}{% endfor %}", 0},
        {"{% for m in messages %}{{ m.content|tojson }}{% endfor %}", 0},
        {"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
         "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
         1},
        {"{% if messages[0].role != 'system' %}{{ raise_exception('x') }}{% endif %}"
         "{% for m in messages %}{{ m.content[0]['text'] }}{% endfor %}",
         1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jinja *t = NULL;

        ck_assert_int_eq(jinja_compile(cases[i].template, strlen(cases[i].template), &t, &error),
                         0);
        ck_assert_msg(jinja_takes_parts(t) == cases[i].want, "%s", cases[i].template);
        jinja_free(t);
    }
}
END_TEST

START_TEST(any_allocation_may_fail)
{
    static const char source[] =
        "{% macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{% set ns = namespace(x=[]) %}"
        "{% for k, v in o|items if v %}{% set ns.x = ns.x + [m(k)|upper, v|tojson(indent=1)] %}"
        "{% endfor %}{{ ns.x|join(', ') }}{% set s %}{{ o }}{% endset %}{{ s.split(',')[1:] }}"
        "{{ '%s' % ('a' ~ o.k) }}{% set _ = ns.x.append({'a': 1, 'b': (1, 2)}) %}{{ ns.x[-1] }}"
        "{{ '[{\"a\": 1}]'|from_json }}{{ ns.x|map('string')|sort|first|indent }}";
    struct jinja_value *globals = jinja_object(), *o = jinja_object();
    char *want = NULL;
    bool is_done = false;

    jinja_set(o, "k", jinja_string("v", 1, true));
    jinja_set(o, "l", jinja_list());
    jinja_set(globals, "o", o);
    for (long n = -1; !is_done && n < 100000; n++) {
        struct jinja_output out = {0};
        struct jinja *t = NULL;
        int r;

        wrap_alloc_fail_after(n);
        r = jinja_compile(source, strlen(source), &t, NULL);
        if (r == 0)
            r = jinja_render(t, globals, NULL, &out, NULL);
        wrap_alloc_fail_after(-1);
        if (n < 0) {
            ck_assert_int_eq(r, 0);
            want = strdup(out.text.data);
        } else if (r == 0) {
            ck_assert_str_eq(out.text.data, want);
            is_done = true;
        } else if (r != -ENOMEM) {
            ck_assert_msg(false, "allocation %ld: %d", n, r);
        }
        jinja_output_done(&out);
        jinja_free(t);
    }
    ck_assert(is_done);
    free(want);
    jinja_unref(globals);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja");
    TCase *t = tcase_create("jinja");
    SRunner *r;
    int failed;

    tcase_add_test(t, the_probes_give_what_jinja2_gives);
    tcase_add_test(t, the_rest_of_the_subset_gives_what_jinja2_gives);
    tcase_add_test(t, what_is_not_supported_is_refused_by_name_and_line);
    tcase_add_test(t, faults_while_rendering_name_their_line);
    tcase_add_test(t, hostile_templates_meet_a_limit);
    tcase_add_test(t, nesting_is_limited_when_compiling);
    tcase_add_test(t, data_stays_data_on_every_way_to_the_output);
    tcase_add_test(t, rendering_does_not_change_what_it_was_given);
    tcase_add_test(t, objects_of_many_keys_keep_their_order);
    tcase_add_test(t, content_as_parts_is_recognised);
    tcase_add_test(t, any_allocation_may_fail);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
