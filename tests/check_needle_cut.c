/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of the tree, cut off at every border between two fields of its header and at many
 * places in between: each time a clear error.  The borders come from a walk of its own here.
 */
#include "engine/model.h"

#include "tests/hostile.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const uint8_t *file; /* mapped */
static size_t size;
static size_t *borders; /* owned */
static size_t n_borders;
static size_t header_end;

static void map_needle(void)
{
    const char *srcdir = getenv("SRCDIR");
    CLEANUP(close_p) int fd = -1;
    struct stat st;
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/tests/data/needle-f16.gguf", srcdir ? srcdir : ".");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s: cannot open", path);
    size = (size_t)st.st_size;
    file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert(file != MAP_FAILED);
}

static size_t at;

static uint64_t number(unsigned int n)
{
    uint64_t v = 0;

    memcpy(&v, file + at, n);
    at += n;
    borders = reallocarray(borders, n_borders + 1, sizeof *borders);
    ck_assert_ptr_nonnull(borders);
    borders[n_borders++] = at;
    return v;
}

static void string(void)
{
    uint64_t n = number(8);

    at += n - 1;
    (void)number(1);
}

static void value(uint64_t type)
{
    static const unsigned int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t elem, n;

    if (type == 8) {
        string();
    } else if (type == 9) {
        elem = number(4);
        for (n = number(8); n > 0; n--)
            value(elem);
    } else {
        (void)number(bytes[type]);
    }
}

static void walk(void)
{
    uint64_t n_tensors, n_keys;

    (void)number(4);
    (void)number(4);
    n_tensors = number(8);
    n_keys = number(8);
    for (; n_keys > 0; n_keys--) {
        string();
        value(number(4));
    }
    for (; n_tensors > 0; n_tensors--) {
        string();
        for (uint64_t d = number(4); d > 0; d--)
            (void)number(8);
        (void)number(4);
        (void)number(8);
    }
    header_end = at;
}

static void set_up(void)
{
    map_needle();
    walk();
}

/* Short ones in a copy of exactly their size, for the sanitizer; long ones in place. */
static void cut_is_refused(size_t n)
{
    struct gguf *g = NULL;
    struct err_text e = {{0}};

    if (n <= header_end + 64) {
        hostile_bytes_refused(file, n, ERR_DAMAGED, "");
        return;
    }
    ck_assert_int_eq(gguf_open_bytes(file, n, "file", &g, &e), ERR_DAMAGED);
    ck_assert_msg(strstr(e.s, "cut off or damaged") != NULL, "%zu: %s", n, e.s);
}

START_TEST(cut_off_between_two_fields_it_is_refused)
{
    /* Every border, each sixteenth of the two long arrays' many. */
    for (size_t i = 0; i < n_borders; i++) {
        bool in_array = i > 120 && i + 2000 < n_borders;

        if (in_array && i % 16 != 0)
            continue;
        cut_is_refused(borders[i] - 1);
        cut_is_refused(borders[i]);
        cut_is_refused(borders[i] + 1);
    }
    ck_assert_uint_gt(n_borders, 4000);
}
END_TEST

START_TEST(cut_off_anywhere_in_the_header_it_is_refused)
{
    unsigned int seed = (unsigned int)_i;

    for (int i = 0; i < 200; i++)
        cut_is_refused((size_t)rand_r(&seed) % header_end);
}
END_TEST

START_TEST(cut_off_anywhere_in_the_data_it_is_refused)
{
    unsigned int seed = (unsigned int)_i;

    for (int i = 0; i < 100; i++)
        cut_is_refused(header_end + 65 + (size_t)rand_r(&seed) % (size - header_end - 65));
    cut_is_refused(size - 1);
}
END_TEST

START_TEST(whole_it_is_a_sound_model)
{
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct err_text e = {{0}};

    ck_assert_msg(gguf_open_bytes(file, size, "file", &g, &e) == 0, "%s", e.s);
    ck_assert_msg(model_from_gguf(g, &m, &e) == 0, "%s", e.s);
    ck_assert_str_eq(m->hp.arch, "qwen35moe");
    ck_assert_uint_eq(m->hp.n_layer, 8);
    ck_assert_uint_eq(m->n_attn, 2);
    ck_assert(m->hp.has_draft && m->hp.n_expert == 8 && m->hp.n_expert_used == 2);
    ck_assert_msg(model_scan(m, &e) == 0, "%s", e.s);
    model_free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("needle_cut");
    TCase *t = tcase_create("needle_cut");
    SRunner *runner;
    int failed;

    tcase_add_unchecked_fixture(t, set_up, NULL);
    tcase_add_test(t, cut_off_between_two_fields_it_is_refused);
    tcase_add_loop_test(t, cut_off_anywhere_in_the_header_it_is_refused, 0, 4);
    tcase_add_loop_test(t, cut_off_anywhere_in_the_data_it_is_refused, 0, 4);
    tcase_add_test(t, whole_it_is_a_sound_model);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
