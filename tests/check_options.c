/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings and the command line. */
#include "daemon/options.h"

#include "daemon/log.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct options o;

static void set_up(void)
{
    ck_assert_int_eq(options_init(&o), 0);
}

static void tear_down(void)
{
    options_done(&o);
}

/* Runs a command line given as words; the result of options_read_argv. */
static int read_line(const char *const *words, struct options_argv *ret, struct err_text *e)
{
    char *argv[16] = {(char *)(uintptr_t) "strataD"};
    int argc = 1;

    for (; *words; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    return options_read_argv(&o, argc, argv, ret, e);
}

#define LINE(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(defaults_are_those_of_the_table)
{
    ck_assert_ptr_null(o.model);
    ck_assert_str_eq(o.name, "default");
    ck_assert_uint_eq(o.parallel, 4);
    ck_assert_uint_eq(o.context, 0);
    ck_assert_uint_eq(o.vram_mib, 0);
    ck_assert_uint_eq(o.max_gap_ms, 200);
    ck_assert_uint_eq(o.monitor_cache_window, 20);
    ck_assert_str_eq(o.kv_type, "f16");
    ck_assert_str_eq(o.backend, "auto");
    ck_assert_str_eq(o.log_level, "info");
    ck_assert(!o.deterministic);
    ck_assert(o.cache);
    ck_assert_uint_eq(o.conversation_cache_mib, OPTION_DECIDE);
    ck_assert_uint_eq(o.conversation_cache_slots, 0);
    ck_assert_uint_eq(o.prompt_cache_roots, 8);
    ck_assert_uint_eq(o.root_min, 512);
    ck_assert_uint_eq(o.checkpoint_every, 8192);
    ck_assert_str_eq(o.isolation, "uid");
}
END_TEST

START_TEST(every_setting_of_the_design_is_known)
{
    static const char *const keys[] = {
        "model",
        "parallel",
        "context",
        "vram_mib",
        "cache",
        "conversation_cache_mib",
        "disk_mib",
        "kv_type",
        "batch_mtp",
        "isolation",
        "layer_split",
        "conversation_cache_slots",
        "api_key_file",
        "api_socket",
        "control_socket",
        "listen",
        "state_dir",
        "monitor_cache_window",
        "backend",
        "threads",
        "max_gap_ms",
        "root_min",
        "mirror_after",
        "prompt_cache_roots",
        "deterministic",
        "prompt_cache_file",
        "checkpoint_every",
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        ck_assert_msg(options_find(keys[i]), "%s", keys[i]);
}
END_TEST

START_TEST(every_number_takes_its_bounds_and_nothing_beyond)
{
    const struct option_spec *spec;
    struct err_text e;

    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        struct option_value v = {.kind = VALUE_INT};
        uint32_t *field = (uint32_t *)(void *)((char *)&o + spec->offset);

        if (spec->type != OPTION_UINT)
            continue;
        v.i = spec->min;
        ck_assert_int_eq(options_set(&o, spec, &v, &e), 0);
        ck_assert_uint_eq(*field, spec->min);
        v.i = spec->max;
        ck_assert_int_eq(options_set(&o, spec, &v, &e), 0);
        ck_assert_uint_eq(*field, spec->max);
        for (int k = 0; k < 4; k++) {
            const int64_t bad[] = {(int64_t)spec->min - 1, (int64_t)spec->max + 1, INT64_MIN,
                                   INT64_MAX};

            v.i = bad[k];
            ck_assert_int_eq(options_set(&o, spec, &v, &e), -ERANGE);
            ck_assert_uint_eq(*field, spec->max);
        }
    }
}
END_TEST

START_TEST(every_choice_can_be_chosen)
{
    const struct option_spec *spec;
    struct err_text e;

    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        char list[128], *save = NULL;

        if (spec->type != OPTION_CHOICE)
            continue;
        (void)snprintf(list, sizeof list, "%s", spec->choices);
        for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
            struct option_value v = {.kind = VALUE_TEXT, .s = w};

            ck_assert_int_eq(options_set(&o, spec, &v, &e), 0);
            ck_assert_str_eq(*(const char **)(void *)((char *)&o + spec->offset), w);
            if (strcmp(spec->name, "log_level") == 0)
                ck_assert_int_ge(log_level_of(w), 0);
        }
    }
}
END_TEST

START_TEST(settings_of_later_work_are_refused_by_name)
{
    const struct option_spec *spec;
    struct err_text e;
    size_t n = 0;

    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        struct option_value v = {.kind = VALUE_INT, .i = 7};

        if (spec->type != OPTION_LATER)
            continue;
        n++;
        ck_assert_int_eq(options_set(&o, spec, &v, &e), ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(e.s, "not supported yet: it comes with "));
        if (spec->off) {
            v = (struct option_value){.kind = VALUE_TEXT, .s = spec->off};
            ck_assert_int_eq(options_set(&o, spec, &v, &e), 0);
        }
    }
    ck_assert_uint_ge(n, 5);
}
END_TEST

START_TEST(budgets_of_the_cache_change_with_a_reload_and_its_meaning_does_not)
{
    static const struct {
        const char *key;
        bool reloadable;
    } keys[] = {
        {"conversation_cache_mib", true},
        {"conversation_cache_slots", true},
        {"prompt_cache_roots", true},
        {"cache", false},
        {"root_min", false},
        {"checkpoint_every", false},
        {"isolation", false},
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct option_spec *spec = options_find(keys[i].key);

        ck_assert_msg(!!(spec->flags & OPTION_RELOADABLE) == keys[i].reloadable, "%s", keys[i].key);
    }
}
END_TEST

START_TEST(null_is_absent_only_where_the_design_says_so)
{
    struct option_value null = {.kind = VALUE_NULL}, twenty = {.kind = VALUE_REAL, .d = 20.0},
                        more = {.kind = VALUE_REAL, .d = 20.5};
    const struct option_spec *window = options_find("monitor_cache_window");
    struct err_text e;

    ck_assert_int_eq(options_set(&o, window, &null, &e), 0);
    ck_assert_uint_eq(o.monitor_cache_window, 20);
    o.monitor_cache_window = 1;
    ck_assert_int_eq(options_set(&o, window, &twenty, &e), 0);
    ck_assert_uint_eq(o.monitor_cache_window, 20);
    ck_assert_int_eq(options_set(&o, window, &more, &e), -EINVAL);
    ck_assert_int_eq(options_set(&o, options_find("parallel"), &null, &e), -EINVAL);
}
END_TEST

START_TEST(a_line_sets_what_it_says)
{
    struct options_argv argv;
    struct err_text e;

    ck_assert_int_eq(read_line(LINE("--model", "a b.gguf", "--parallel=8", "--deterministic",
                                    "--kv-type", "bf16", "--name=x.1"),
                               &argv, &e),
                     0);
    ck_assert_str_eq(o.model, "a b.gguf");
    ck_assert_uint_eq(o.parallel, 8);
    ck_assert(o.deterministic);
    ck_assert_str_eq(o.kv_type, "bf16");
    ck_assert_str_eq(o.name, "x.1");
    ck_assert_int_eq(read_line(LINE("--cache=false", "--conversation-cache-mib", "0",
                                    "--prompt-cache-roots=0", "--isolation=none"),
                               &argv, &e),
                     0);
    ck_assert(!o.cache);
    ck_assert_uint_eq(o.conversation_cache_mib, 0);
    ck_assert_uint_eq(o.prompt_cache_roots, 0);
    ck_assert_str_eq(o.isolation, "none");
    ck_assert_int_eq(read_line(LINE("--deterministic=false", "--check", "m.gguf"), &argv, &e), 0);
    ck_assert(!o.deterministic);
    ck_assert_str_eq(argv.check, "m.gguf");
}
END_TEST

static const struct {
    const char *words[6];
    const char *text;
} bad_lines[] = {
    {{"--parallel", "0"}, "--parallel: 0 is out of range: a whole number from 1 to 256"},
    {{"--parallel=many"},
     "--parallel: expected a whole number from 1 to 256, found the text \"many\""},
    {{"--parallel", "-1"}, "--parallel: -1 is out of range: a whole number from 1 to 256"},
    {{"--parallel", "18446744073709551616"}, "--parallel: expected a whole number"},
    {{"--parallel", "2.5"},
     "--parallel: expected a whole number from 1 to 256, found the number 2.5"},
    {{"--parallel"}, "--parallel needs a value"},
    {{"--paralel", "3"}, "unknown option --paralel; did you mean --parallel?"},
    {{"--vrammib", "3"}, "unknown option --vrammib; did you mean --vram-mib?"},
    {{"--zzzz"}, "unknown option --zzzz; --help lists the options"},
    {{"model.gguf"}, "unexpected argument \"model.gguf\"; --help lists the options"},
    {{"--"}, "unexpected argument \"--\"; --help lists the options"},
    {{"--model="}, "--model: must not be empty"},
    {{"--name", "../up"}, "--name: expected 1 to 64 letters"},
    {{"--name", ".hidden"}, "--name: expected 1 to 64 letters"},
    {{"--kv-type", "q8_0"},
     "--kv-type: \"q8_0\" is not supported yet: it comes with quantised state"},
    {{"--kv-type", "q9"}, "--kv-type: expected one of f16|bf16|f32, found the text \"q9\""},
    {{"--backend", "cuda"},
     "--backend: \"cuda\" is not supported yet: it comes with the CUDA backend"},
    {{"--listen", "127.0.0.1:80"},
     "\"listen\" opens TCP, where every request needs a key: set \"api_key_file\" too"},
    {{"--check", "m.gguf", "--listen", "127.0.0.1:80"}, "\"listen\" opens TCP"},
    {{"--api-key-file", "k", "--listen", "8080"},
     "\"listen\": \"8080\" has no port: 127.0.0.1:8080"},
    {{"--api-key-file", "k", "--listen", ":8080"},
     "\"listen\": \":8080\" has no address: 127.0.0.1 "},
    {{"--api-key-file", "k", "--listen", "127.0.0.1:1,::1:80"},
     "\"listen\": \"::1:80\" is not clear: an IPv6 address stands in brackets"},
    {{"--api-key-file", "k", "--listen", "a:1,"}, "\"listen\": \"\" has no port"},
    {{"--api-key-file", "k", "--listen", "a:65536"},
     "\"listen\": \"a:65536\" does not end in a port from 0 to 65535"},
    {{"--api-key-file", "k", "--listen", "a:"}, "\"listen\": \"a:\" does not end in a port"},
    {{"--api-key-file", "k", "--listen", "a b:1"}, "\"listen\": \"a b:1\" has characters"},
    {{"--api-key-file", "k", "--listen", "[]:1"}, "\"listen\": \"[]:1\" has no address"},
    {{"--listen="}, "--listen: the list is empty"},
    {{"--layer-split", "0"},
     "--layer-split: not supported yet: it comes with models that span several GPUs"},
    {{"--batch-mtp=false"}, "--batch-mtp: not supported yet: it comes with speculative decoding"},
    {{"--deterministic=maybe"},
     "--deterministic: expected true or false, found the text \"maybe\""},
    {{"--monitor-cache-window", "501"},
     "--monitor-cache-window: 501 is out of range: a whole number from 1 to 500"},
    {{"--cache=1"}, "--cache: expected true or false, found the text \"1\""},
    {{"--isolation", "group"}, "--isolation: expected one of uid|none, found the text \"group\""},
    {{"--checkpoint-every", "63"},
     "--checkpoint-every: 63 is out of range: a whole number from 64 to 16777216"},
    {{"--root-min", "0"}, "--root-min: 0 is out of range: a whole number from 1 to 16777216"},
    {{"--prompt-cache-roots", "1001"},
     "--prompt-cache-roots: 1001 is out of range: a whole number from 0 to 1000"},
    {{"--prompt-cache-file", "x"},
     "--prompt-cache-file: not supported yet: it comes with export and import of roots"},
    {{"--help=1"}, "--help takes no value"},
    {{"--config", "/does/not/exist"}, "/does/not/exist: No such file or directory"},
};

START_TEST(a_bad_line_is_refused_with_words)
{
    struct options_argv argv;
    struct err_text e = {""};

    ck_assert_int_lt(read_line(bad_lines[_i].words, &argv, &e), 0);
    ck_assert_msg(strncmp(e.s, bad_lines[_i].text, strlen(bad_lines[_i].text)) == 0, "%s", e.s);
}
END_TEST

START_TEST(help_names_every_setting)
{
    const struct option_spec *spec;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ck_assert_ptr_nonnull(f);
    options_print_help(f);
    ck_assert_int_eq(fclose(f), 0);
    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        char name[80];

        (void)snprintf(name, sizeof name, "  --%s ", spec->name);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : *p;
        ck_assert_msg(strstr(text, name), "%s", name);
    }
    free(text);
}
END_TEST

START_TEST(a_word_that_is_far_from_all_keys_gets_no_suggestion)
{
    ck_assert_ptr_null(options_nearest("speculative_decoding"));
    ck_assert_ptr_null(options_nearest(""));
    ck_assert_ptr_null(
        options_nearest("a_word_of_more_than_sixty_three_bytes_is_infinitely_far_from_all_"));
    ck_assert_str_eq(options_nearest("disc_mib")->name, "disk_mib");
    ck_assert_str_eq(options_nearest("therads")->name, "threads");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, defaults_are_those_of_the_table);
    tcase_add_test(t, every_setting_of_the_design_is_known);
    tcase_add_test(t, every_number_takes_its_bounds_and_nothing_beyond);
    tcase_add_test(t, every_choice_can_be_chosen);
    tcase_add_test(t, settings_of_later_work_are_refused_by_name);
    tcase_add_test(t, budgets_of_the_cache_change_with_a_reload_and_its_meaning_does_not);
    tcase_add_test(t, null_is_absent_only_where_the_design_says_so);
    tcase_add_test(t, a_line_sets_what_it_says);
    tcase_add_loop_test(t, a_bad_line_is_refused_with_words, 0,
                        sizeof bad_lines / sizeof bad_lines[0]);
    tcase_add_test(t, help_names_every_setting);
    tcase_add_test(t, a_word_that_is_far_from_all_keys_gets_no_suggestion);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
