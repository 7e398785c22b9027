/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanners against known cuts (tests/data/pretokenize.json; pretok_random.json, or another file
 * of pretok_vectors.py that STRATA_PRETOK_VECTORS names), and the classes against their source.
 */
#include "engine/tok_pretok.h"

#include "engine/tok_unicode.h"
#include "tests/golden.h"
#include "util/cleanup.h"
#include "util/utf8.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must_cut(enum pretok_kind kind, const char *text, const json_t *pieces)
{
    struct pretok_scan p;
    size_t n = strlen(text), i = 0, at = 0;

    for (pretok_init(&p, kind, text, n); p.pos < n; i++) {
        const char *want = json_string_value(json_array_get(pieces, i));
        size_t end = pretok_next(&p);

        ck_assert_msg(want, "\"%s\": more pieces than %zu", text, i);
        ck_assert_msg(end - at == strlen(want) && memcmp(text + at, want, end - at) == 0,
                      "\"%s\": piece %zu is \"%.*s\", expected \"%s\"", text, i, (int)(end - at),
                      text + at, want);
        at = end;
    }
    ck_assert_uint_eq(i, json_array_size(pieces));
}

START_TEST(known_texts_are_cut_where_they_should_be)
{
    static const struct {
        const char *name;
        enum pretok_kind kind;
    } kinds[] = {{"gpt-2", PRETOK_GPT2},
                 {"smollm", PRETOK_SMOLLM},
                 {"llama3", PRETOK_LLAMA3},
                 {"qwen2", PRETOK_QWEN2},
                 {"qwen35", PRETOK_QWEN35}};
    json_t *file = json_load_file(golden_path("pretokenize.json"), 0, NULL), *v;
    size_t i, n = 0;

    ck_assert_ptr_nonnull(file);
    json_array_foreach(json_object_get(file, "cases"), i, v)
    {
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            ck_assert(json_is_array(json_object_get(v, kinds[k].name)));
            must_cut(kinds[k].kind, json_string_value(json_object_get(v, "text")),
                     json_object_get(v, kinds[k].name));
            n++;
        }
    }
    ck_assert_uint_eq(n, 125);
    json_decref(file);
}
END_TEST

/* The patterns of `default`, run by the Python module regex 2026.5.9. */
START_TEST(files_that_name_no_pretokenizer_are_cut_as_of_old)
{
    static const struct {
        const char *text, *pieces;
    } cases[] = {
        {"Hello, world!", "[\"Hello\", \",\", \" world\", \"!\"]"},
        {"I'm 12345 years", "[\"I\", \"'\", \"m\", \" \", \"123\", \"45\", \" years\"]"},
        {"a=1234567;  b", "[\"a\", \"=\", \"123\", \"456\", \"7\", \";\", \" \", \" b\"]"},
        {"x  , y", "[\"x\", \"  \", \",\", \" y\"]"},
        {"\xD9\xA3"
         "12345",
         "[\"\xD9\xA3\", \"123\", \"45\"]"},
        {"tabs\t\tend \n", "[\"tabs\", \"\\t\", \"\\t\", \"end\", \" \\n\"]"},
        {"`~`~", "[\"`\", \"~\", \"`\", \"~\"]"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *pieces = json_loads(cases[i].pieces, 0, NULL);

        ck_assert_ptr_nonnull(pieces);
        must_cut(PRETOK_DEFAULT, cases[i].text, pieces);
        json_decref(pieces);
    }
}
END_TEST

static const struct pretok_rule *must_find(const char *name)
{
    const struct pretok_rule *r = pretok_find(name, strlen(name));

    ck_assert_msg(r, "%s is not known", name);
    return r;
}

START_TEST(random_texts_are_cut_as_the_patterns_cut_them)
{
    const char *other = getenv("STRATA_PRETOK_VECTORS"), *cuts;
    json_t *file =
        json_load_file(other ? other : golden_path("pretok_random.json"), JSON_ALLOW_NUL, NULL);
    json_t *v, *names;
    size_t i, n = 0, n_bad = 0;

    ck_assert_ptr_nonnull(file);
    json_array_foreach(json_object_get(file, "cases"), i, v)
    {
        const json_t *text = json_array_get(v, 0);

        json_object_foreach(json_array_get(v, 1), cuts, names)
        {
            CLEANUP(free_p) char *list = strdup(json_string_value(names));
            char *rest = NULL;

            for (char *f = strtok_r(list, " ", &rest); f; f = strtok_r(NULL, " ", &rest), n++) {
                const char *want = cuts;
                struct pretok_scan p;
                size_t at = 0;

                pretok_init(&p, must_find(f)->kind, json_string_value(text),
                            json_string_length(text));
                while (p.pos < p.text.n) {
                    size_t end = pretok_next(&p);
                    char *after;

                    if (strtoul(want, &after, 10) != end - at)
                        break;
                    want = after;
                    at = end;
                }
                if ((at != p.text.n || *want) && n_bad++ < 5)
                    (void)fprintf(stderr, "case %zu, %s: differs behind byte %zu\n", i, f, at);
            }
        }
    }
    ck_assert_uint_eq(n_bad, 0);
    ck_assert_uint_ge(n, 7200);
    json_decref(file);
}
END_TEST

START_TEST(names_find_their_family_and_unknown_ones_nothing)
{
    static const struct {
        const char *name;
        enum pretok_kind kind;
        bool ignore_merges, add_bos;
    } known[] = {
        {"default", PRETOK_DEFAULT, false, false}, {"gpt-2", PRETOK_GPT2, false, false},
        {"smollm", PRETOK_SMOLLM, false, false},   {"starcoder", PRETOK_SMOLLM, false, false},
        {"llama-bpe", PRETOK_LLAMA3, true, true},  {"falcon3", PRETOK_LLAMA3, true, true},
        {"dbrx", PRETOK_LLAMA3, false, false},     {"qwen2", PRETOK_QWEN2, false, false},
        {"qwen35", PRETOK_QWEN35, false, false},   {"tekken", PRETOK_TEKKEN, true, true},
        {"gpt-4o", PRETOK_GPT4O, false, false}};
    static const char *const unknown[] = {"",       "qwen",    "qwen2 ", "QWEN2",
                                          "jais-2", "kimi-k2", "gemma4"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const struct pretok_rule *r = must_find(known[i].name);

        ck_assert_int_eq(r->kind, known[i].kind);
        ck_assert_int_eq(r->ignore_merges, known[i].ignore_merges);
        ck_assert_int_eq(r->add_bos, known[i].add_bos);
    }
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        ck_assert_ptr_null(pretok_find(unknown[i], strlen(unknown[i])));
}
END_TEST

START_TEST(every_name_of_the_pattern_lists_is_known)
{
    json_t *file = json_load_file(golden_path("pretokenizers.json"), 0, NULL), *v, *alias;
    const char *name;
    size_t i, n = 0;

    ck_assert_ptr_nonnull(file);
    json_object_foreach(json_object_get(file, "patterns"), name, v)
    {
        (void)must_find(name);
        n++;
    }
    json_object_foreach(json_object_get(file, "aliases"), name, v)
    {
        json_array_foreach(v, i, alias)
        {
            ck_assert_int_eq(must_find(json_string_value(alias))->kind, must_find(name)->kind);
            n++;
        }
    }
    ck_assert_uint_eq(n, 71);
    json_decref(file);
}
END_TEST

START_TEST(every_code_point_has_the_class_of_the_source_table)
{
    static uint8_t want[0x110000];
    static const struct {
        const char *category;
        uint8_t cls;
    } classes[] = {
        {"Lu", UNICODE_UPPER},         {"Lt", UNICODE_UPPER},        {"Ll", UNICODE_LOWER},
        {"Lm", UNICODE_UNCASED},       {"Lo", UNICODE_UNCASED},      {"Mn", UNICODE_MARK},
        {"Mc", UNICODE_MARK},          {"Me", UNICODE_MARK},         {"Nd", UNICODE_DIGIT},
        {"Nl", UNICODE_LETTER_NUMBER}, {"No", UNICODE_OTHER_NUMBER}, {"Pc", UNICODE_CONNECTOR},
        {"Pd", UNICODE_PUNCTUATION},   {"Ps", UNICODE_PUNCTUATION},  {"Pe", UNICODE_PUNCTUATION},
        {"Pi", UNICODE_PUNCTUATION},   {"Pf", UNICODE_PUNCTUATION},  {"Po", UNICODE_PUNCTUATION},
        {"Sm", UNICODE_SYMBOL},        {"Sc", UNICODE_SYMBOL},       {"Sk", UNICODE_SYMBOL},
        {"So", UNICODE_SYMBOL}};
    static const uint32_t spaces[][2] = {
        {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    char path[4096], line[128], category[8];
    unsigned int lo, hi, n_ranges = 0, n_bad = 0;
    const char *dir = getenv("SRCDIR");
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/scripts/unicode_categories.txt", dir ? dir : ".");
    f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        uint8_t cls = UNICODE_OTHER;

        if (sscanf(line, "%x %x %7s", &lo, &hi, category) != 3)
            continue;
        for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
            if (strcmp(classes[i].category, category) == 0)
                cls = classes[i].cls;
        ck_assert(hi < 0x110000 && cls != UNICODE_OTHER);
        for (uint32_t cp = lo; cp <= hi; cp++)
            want[cp] = cls;
        n_ranges++;
    }
    (void)fclose(f);
    ck_assert_uint_gt(n_ranges, 2800);
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        for (uint32_t cp = spaces[i][0]; cp <= spaces[i][1]; cp++)
            want[cp] = UNICODE_SPACE;
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        n_bad += unicode_class_of(cp) != want[cp];
    ck_assert_uint_eq(n_bad, 0);
    ck_assert_int_eq(unicode_class_of(0x110000), UNICODE_OTHER);
    ck_assert_int_eq(unicode_class_of(UINT32_MAX), UNICODE_OTHER);
}
END_TEST

/* _i is the seed. */
START_TEST(pieces_are_whole_characters_and_cover_the_text)
{
    static const uint32_t pool[] = {
        '\'', 's',  'l',   'L',   ' ',    ' ',    '\n',   '\r', '\t',    '1',    '2',    ',', '$',
        '|',  0xE9, 0x301, 0x663, 0x4E2D, 0x3000, 0x2028, 0xA0, 0x1F600, 0xFFFD, 0x200D, 0};
    unsigned int seed = (unsigned int)_i;
    uint32_t n_bad = 0;

    for (int round = 0; round < 300; round++) {
        char s[256];
        size_t n = 0, at = 0;
        struct pretok_scan p;

        while (n < sizeof(s) - 4 && rand_r(&seed) % 60)
            n += utf8_encode(pool[(size_t)rand_r(&seed) % (sizeof(pool) / sizeof(pool[0]))], s + n);
        pretok_init(&p, (enum pretok_kind)(round % PRETOK_N), s, n);
        while (p.pos < n) {
            size_t end = pretok_next(&p);

            n_bad += end <= at || end > n || end != p.pos || !utf8_is_valid(s + at, end - at);
            if (n_bad)
                break;
            at = end;
        }
    }
    ck_assert_uint_eq(n_bad, 0);
}
END_TEST

/*
 * Whatever the pattern, a long run costs what a short one does for each character: with time that
 * grows with the square these would take hours.
 */
START_TEST(long_runs_of_anything_are_cut_in_linear_time)
{
    static const char *const units[] = {" ",
                                        "a",
                                        "A",
                                        "\xE3\x81\x82",
                                        "\xCC\x81",
                                        "7",
                                        "\n",
                                        "\xC2\xBD",
                                        "!",
                                        "\x01",
                                        " \n",
                                        "\xE3\x81\x82"
                                        "A",
                                        "\xCC\x81"
                                        "A",
                                        "7a",
                                        "12\xC2\xBD",
                                        "'",
                                        "\t ",
                                        "A ",
                                        "\xE3\x80\x80",
                                        "/\n"};
    const size_t n = 1 << 20;
    char *s = malloc(n + 16);

    ck_assert_ptr_nonnull(s);
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t len = strlen(units[u]), end = 0;

        while (end < n) {
            memcpy(s + end, units[u], len);
            end += len;
        }
        /* What ends the run decides about all of it. */
        for (int last = getenv("STRATA_TEST_SHORT") ? 1 : 0; last < 2; last++) {
            s[end] = 'x';
            for (int kind = 0; kind < PRETOK_N; kind++) {
                struct pretok_scan p;

                pretok_init(&p, (enum pretok_kind)kind, s, end + (size_t)last);
                while (p.pos < p.text.n)
                    (void)pretok_next(&p);
            }
        }
    }
    free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pretok");
    TCase *t = tcase_create("pretok");
    SRunner *runner;
    int failed;

    tcase_add_test(t, known_texts_are_cut_where_they_should_be);
    tcase_add_test(t, files_that_name_no_pretokenizer_are_cut_as_of_old);
    tcase_add_test(t, random_texts_are_cut_as_the_patterns_cut_them);
    tcase_add_test(t, every_name_of_the_pattern_lists_is_known);
    tcase_add_test(t, long_runs_of_anything_are_cut_in_linear_time);
    tcase_add_test(t, names_find_their_family_and_unknown_ones_nothing);
    tcase_add_test(t, every_code_point_has_the_class_of_the_source_table);
    tcase_add_loop_test(t, pieces_are_whole_characters_and_cover_the_text, 0, 16);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
