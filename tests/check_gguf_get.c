/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to keys, and what gguf_open does with things that are not a readable file. */
#include "engine/gguf.h"

#include "tests/ggufw.h"
#include "tests/hostile.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(integers_of_every_width_and_sign_are_read_with_their_range)
{
    static const struct {
        uint32_t type;
        size_t n;
        uint64_t minus_one; /* as u64: what an unsigned type reads for all ones */
        bool is_signed;
    } types[] = {
        {GGUFW_U8, 1, UINT8_MAX, false},   {GGUFW_I8, 1, 0, true},
        {GGUFW_U16, 2, UINT16_MAX, false}, {GGUFW_I16, 2, 0, true},
        {GGUFW_U32, 4, UINT32_MAX, false}, {GGUFW_I32, 4, 0, true},
        {GGUFW_U64, 8, UINT64_MAX, false}, {GGUFW_I64, 8, 0, true},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CLEANUP(ggufw_done) struct ggufw w = {0};
        CLEANUP(free_p) void *copy = NULL;
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct err_text e = {{0}};
        uint64_t v = 99;

        ggufw_put(&w, "seven", types[i].type, "\7\0\0\0\0\0\0", types[i].n);
        ggufw_put(&w, "ones", types[i].type, "\xff\xff\xff\xff\xff\xff\xff\xff", types[i].n);
        g = hostile_accepted(&w, &copy);
        ck_assert_int_eq(gguf_get_u64(g, "seven", 7, 7, &v, &e), 1);
        ck_assert_uint_eq(v, 7);
        v = 99;
        ck_assert_int_eq(gguf_get_u64(g, "seven", 8, 20, &v, &e), ERR_DAMAGED);
        ck_assert_str_eq(e.s, "file: key \"seven\": found 7, expected 8 to 20");
        ck_assert_int_eq(gguf_get_u64(g, "seven", 1, 6, &v, &e), ERR_DAMAGED);
        ck_assert_uint_eq(v, 99);
        if (types[i].is_signed) {
            ck_assert_int_eq(gguf_get_u64(g, "ones", 0, UINT64_MAX, &v, &e), ERR_DAMAGED);
            ck_assert_ptr_nonnull(strstr(e.s, "key \"ones\": found -1, expected 0 to "));
        } else {
            ck_assert_int_eq(gguf_get_u64(g, "ones", 0, UINT64_MAX, &v, &e), 1);
            ck_assert_uint_eq(v, types[i].minus_one);
        }
        ck_assert_int_eq(gguf_get_u64(g, "other", 0, 9, &v, &e), 0);
    }
}
END_TEST

START_TEST(the_wrong_type_is_named_in_the_error)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(free_p) void *copy = NULL;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct gguf_array a;
    struct err_text e;
    struct gguf_str s;
    uint64_t u;
    float f;
    bool b;

    ggufw_str(&w, "str", "x");
    ggufw_u32(&w, "int", 2);
    ggufw_f32(&w, "float", 1);
    ggufw_bool(&w, "bool", true);
    ggufw_array(&w, "array", GGUFW_I32, 1, "\1\0\0", 4);
    g = hostile_accepted(&w, &copy);
#define WRONG(call, words)                                                                         \
    do {                                                                                           \
        ck_assert_int_eq(call, ERR_DAMAGED);                                                       \
        ck_assert_str_eq(e.s, "file: key " words);                                                 \
    } while (0)
    WRONG(gguf_get_u64(g, "str", 0, 9, &u, &e), "\"str\": found string, expected an integer");
    WRONG(gguf_get_u64(g, "float", 0, 9, &u, &e), "\"float\": found f32, expected an integer");
    WRONG(gguf_get_u64(g, "bool", 0, 9, &u, &e), "\"bool\": found bool, expected an integer");
    WRONG(gguf_get_u64(g, "array", 0, 9, &u, &e),
          "\"array\": found an array of i32, expected an integer");
    WRONG(gguf_get_f32(g, "int", &f, &e), "\"int\": found u32, expected f32 or f64");
    WRONG(gguf_get_bool(g, "int", &b, &e), "\"int\": found 2, expected 0 or 1");
    WRONG(gguf_get_bool(g, "str", &b, &e), "\"str\": found string, expected bool");
    WRONG(gguf_get_str(g, "int", &s, &e), "\"int\": found u32, expected a string");
    WRONG(gguf_get_array(g, "int", &a, &e), "\"int\": found u32, expected an array");
#undef WRONG
}
END_TEST

START_TEST(floats_come_from_f32_and_f64_and_are_finite)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(free_p) void *copy = NULL;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    const double half = 0.5, huge = 1e39, inf = INFINITY;
    struct err_text e;
    float f = 9;

    ggufw_f32(&w, "f32", 0.25f);
    ggufw_put(&w, "f64", GGUFW_F64, &half, sizeof half);
    ggufw_put(&w, "huge", GGUFW_F64, &huge, sizeof huge);
    ggufw_put(&w, "inf", GGUFW_F64, &inf, sizeof inf);
    ggufw_f32(&w, "nan", NAN);
    g = hostile_accepted(&w, &copy);
    ck_assert_int_eq(gguf_get_f32(g, "f32", &f, NULL), 1);
    ck_assert(f == 0.25f);
    ck_assert_int_eq(gguf_get_f32(g, "f64", &f, NULL), 1);
    ck_assert(f == 0.5f);
    ck_assert_int_eq(gguf_get_f32(g, "huge", &f, &e), ERR_DAMAGED);
    ck_assert_str_eq(e.s, "file: key \"huge\": found 1e+39, expected a finite f32");
    ck_assert_int_eq(gguf_get_f32(g, "inf", &f, &e), ERR_DAMAGED);
    ck_assert_int_eq(gguf_get_f32(g, "nan", &f, &e), ERR_DAMAGED);
    ck_assert_int_eq(gguf_get_f32(g, "none", &f, &e), 0);
    ck_assert(f == 0.5f);
}
END_TEST

START_TEST(flags_come_from_bools_and_integers_0_and_1)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(free_p) void *copy = NULL;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    bool b = false;

    ggufw_bool(&w, "true", true);
    ggufw_u64(&w, "zero", 0);
    ggufw_put(&w, "two", GGUFW_BOOL, "\2", 1);
    ggufw_i32(&w, "minus", -1);
    g = hostile_accepted(&w, &copy);
    ck_assert_int_eq(gguf_get_bool(g, "true", &b, NULL), 1);
    ck_assert(b);
    ck_assert_int_eq(gguf_get_bool(g, "two", &b, NULL), ERR_DAMAGED);
    ck_assert_int_eq(gguf_get_bool(g, "minus", &b, NULL), ERR_DAMAGED);
    ck_assert(b);
    ck_assert_int_eq(gguf_get_bool(g, "zero", &b, NULL), 1);
    ck_assert(!b);
}
END_TEST

START_TEST(array_elements_are_converted)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(free_p) void *copy = NULL;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    const uint64_t u64s[2] = {UINT64_MAX, 3};
    const int64_t i64s[2] = {INT64_MIN, -3};
    const float f32s[2] = {1.5f, -2};
    struct gguf_array a;
    int64_t v;
    double d;

    ggufw_array(&w, "i8", GGUFW_I8, 3, "\x80\xff\x7f", 3);
    ggufw_array(&w, "u64", GGUFW_U64, 2, u64s, sizeof u64s);
    ggufw_array(&w, "i64", GGUFW_I64, 2, i64s, sizeof i64s);
    ggufw_array(&w, "f32", GGUFW_F32, 2, f32s, sizeof f32s);
    g = hostile_accepted(&w, &copy);
    ck_assert_int_eq(gguf_get_array(g, "i8", &a, NULL), 1);
    ck_assert(!gguf_array_is_str(&a));
    ck_assert(gguf_array_i64(&a, 0, &v) && v == -128);
    ck_assert(gguf_array_i64(&a, 1, &v) && v == -1);
    ck_assert(gguf_array_i64(&a, 2, &v) && v == 127);
    ck_assert(gguf_array_f64(&a, 0, &d) && d == -128);
    ck_assert_int_eq(gguf_get_array(g, "u64", &a, NULL), 1);
    ck_assert(gguf_array_i64(&a, 0, &v) && v == INT64_MAX);
    ck_assert(gguf_array_i64(&a, 1, &v) && v == 3);
    ck_assert_int_eq(gguf_get_array(g, "i64", &a, NULL), 1);
    ck_assert(gguf_array_i64(&a, 0, &v) && v == INT64_MIN);
    ck_assert(gguf_array_i64(&a, 1, &v) && v == -3);
    ck_assert_int_eq(gguf_get_array(g, "f32", &a, NULL), 1);
    ck_assert(!gguf_array_i64(&a, 0, &v));
    ck_assert(gguf_array_f64(&a, 0, &d) && d == 1.5);
}
END_TEST

static char dir[] = "/tmp/strata-check-XXXXXX";
static char path[sizeof dir + 16];

static void make_dir(void)
{
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/a\nfile", dir);
}

static void remove_dir(void)
{
    (void)unlink(path);
    (void)rmdir(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void path_refused(int code, const char *words)
{
    struct gguf *g = NULL;
    struct err_text e = {{0}};
    int r = gguf_open(path, &g, &e);

    ck_assert_msg(r == code && strstr(e.s, words), "%s: %d %s", words, r, e.s);
    ck_assert_ptr_nonnull(strstr(e.s, "/a\\x0afile: "));
    ck_assert_ptr_null(g);
}

START_TEST(what_is_not_a_readable_file_is_refused_without_waiting)
{
    int fd;

    path_refused(-ENOENT, "cannot open: No such file or directory");
    ck_assert_int_eq(mkdir(path, 0700), 0);
    path_refused(-EINVAL, "not a regular file");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    path_refused(-EINVAL, "not a regular file");
    ck_assert_int_eq(unlink(path), 0);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    path_refused(ERR_DAMAGED, "the file is empty");
    ck_assert_int_eq(write(fd, "GGUF", 4), 4);
    path_refused(ERR_DAMAGED, "4 bytes are too few");
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    path_refused(-EBUSY, "locked the file for writing");
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(an_open_file_keeps_writers_that_ask_away)
{
    CLEANUP(ggufw_done) struct ggufw w = {0};
    CLEANUP(close_p) int fd = -1;
    struct gguf *g = NULL, *g2 = NULL;

    ggufw_u32(&w, "key", 1);
    ck_assert_int_eq(ggufw_write(&w, path), 0);
    ck_assert_int_eq(gguf_open(path, &g, NULL), 0);
    ck_assert_int_eq(gguf_open(path, &g2, NULL), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), -1);
    gguf_free(g);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), -1);
    gguf_free(g2);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
}
END_TEST

START_TEST(a_long_path_is_shown_by_its_end)
{
    char name[4000];
    struct gguf *g = NULL;
    struct err_text e = {{0}};

    memset(name, '\xff', sizeof name);
    memcpy(name + sizeof name - 6, "/last", 6);
    ck_assert_int_eq(gguf_open(name, &g, &e), -ENAMETOOLONG);
    ck_assert_ptr_nonnull(strstr(e.s, "...\\xff"));
    ck_assert_ptr_nonnull(strstr(e.s, "\\xff/last: cannot open"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_get");
    TCase *t = tcase_create("keys"), *files = tcase_create("files");
    SRunner *runner;
    int failed;

    tcase_add_test(t, integers_of_every_width_and_sign_are_read_with_their_range);
    tcase_add_test(t, the_wrong_type_is_named_in_the_error);
    tcase_add_test(t, floats_come_from_f32_and_f64_and_are_finite);
    tcase_add_test(t, flags_come_from_bools_and_integers_0_and_1);
    tcase_add_test(t, array_elements_are_converted);
    tcase_add_checked_fixture(files, make_dir, remove_dir);
    tcase_add_test(files, what_is_not_a_readable_file_is_refused_without_waiting);
    tcase_add_test(files, an_open_file_keeps_writers_that_ask_away);
    tcase_add_test(files, a_long_path_is_shown_by_its_end);
    suite_add_tcase(s, t);
    suite_add_tcase(s, files);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
