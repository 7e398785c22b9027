/* SPDX-License-Identifier: Apache-2.0 */
/* Models of several files: opened by the first one, and every way in which they can be wrong. */
#include "engine/gguf.h"
#include "engine/model.h"

#include "tests/mkmodel.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_FILES = 3 };

static char dir[] = "/tmp/check_gguf_split.XXXXXX";
static char paths[N_FILES][64];
static struct ggufw whole, files[N_FILES];

/* The tensors go to the files in turn, but none to the first when it is to be empty. */
static void split(bool empty_first)
{
    mkmodel_build(&(struct mkmodel){.family = "qwen3", .type = TENSOR_Q4_0, .seed = 5}, &whole);
    for (uint32_t i = 0; i < N_FILES; i++) {
        files[i] = (struct ggufw){0};
        for (size_t k = 0; i == 0 && k < whole.n_keys; k++)
            ggufw_add(&files[i], whole.keys[k].name.data, whole.keys[k].name.len,
                      whole.keys[k].type, whole.keys[k].value.data, whole.keys[k].value.len);
        ggufw_put(&files[i], "split.no", GGUFW_U16, &(uint16_t){(uint16_t)i}, 2);
        ggufw_put(&files[i], "split.count", GGUFW_U16, &(uint16_t){N_FILES}, 2);
        ggufw_i32(&files[i], "split.tensors.count", (int32_t)whole.n_tensors);
    }
    for (size_t t = 0; t < whole.n_tensors; t++) {
        const struct ggufw_tensor *from = &whole.tensors[t];
        CLEANUP(free_p) char *name = strndup(from->name.data, from->name.len);

        (void)ggufw_tensor(&files[empty_first ? 1 + t % (N_FILES - 1) : t % N_FILES], name,
                           from->type, from->n_dims, from->dims, from->data.data, from->data.len);
    }
}

static void write_files(void)
{
    for (uint32_t i = 0; i < N_FILES; i++)
        ck_assert_int_eq(ggufw_write(&files[i], paths[i]), 0);
}

static void setup(void)
{
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (uint32_t i = 0; i < N_FILES; i++)
        (void)snprintf(paths[i], sizeof paths[i], "%s/m-%05u-of-%05u.gguf", dir, i + 1, N_FILES);
    split(false);
}

static void teardown(void)
{
    for (uint32_t i = 0; i < N_FILES; i++) {
        (void)unlink(paths[i]);
        ggufw_done(&files[i]);
    }
    ggufw_done(&whole);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void opens(void)
{
    struct model *m = NULL;
    struct err_text e = {{0}};
    uint64_t bytes = 0;

    write_files();
    ck_assert_msg(model_open(paths[0], &m, &e) == 0, "%s", e.s);
    ck_assert_uint_eq(gguf_n_files(m->gguf), N_FILES);
    ck_assert_uint_eq(gguf_n_tensors(m->gguf), whole.n_tensors);
    for (size_t t = 0; t < whole.n_tensors; t++) {
        const struct ggufw_tensor *want = &whole.tensors[t];
        CLEANUP(free_p) char *name = strndup(want->name.data, want->name.len);
        const struct tensor *have = gguf_find(m->gguf, name);

        ck_assert_ptr_nonnull(have);
        ck_assert_uint_eq(have->n_bytes, want->data.len);
        ck_assert_mem_eq(have->data, want->data.data, want->data.len);
        bytes += want->data.len;
    }
    ck_assert_uint_gt(gguf_file_bytes(m->gguf), bytes);
    ck_assert_int_eq(model_scan(m, NULL), 0);
    model_free(m);
}

static void refused(int code, uint32_t i_file, const char *words)
{
    struct model *m = NULL;
    struct err_text e = {{0}};
    int r = model_open(paths[0], &m, &e);

    ck_assert_msg(r == code && strstr(e.s, words), "%s: %d %s", words, r, e.s);
    ck_assert_msg(strstr(e.s, paths[i_file]), "%s does not name %s", e.s, paths[i_file]);
    ck_assert_ptr_null(m);
}

START_TEST(a_model_of_several_files_has_the_tensors_of_all)
{
    opens();
}
END_TEST

START_TEST(the_first_file_may_have_no_tensors)
{
    for (uint32_t i = 0; i < N_FILES; i++)
        ggufw_done(&files[i]);
    ggufw_done(&whole);
    split(true);
    opens();
}
END_TEST

START_TEST(a_missing_part_is_named)
{
    write_files();
    ck_assert_int_eq(unlink(paths[2]), 0);
    refused(-ENOENT, 2, "cannot open: No such file or directory");
}
END_TEST

START_TEST(a_damaged_part_is_named)
{
    files[1].no_data = true;
    write_files();
    refused(ERR_DAMAGED, 1, "the file is cut off or damaged");
}
END_TEST

START_TEST(parts_out_of_order_are_refused)
{
    ggufw_put(&files[1], "split.no", GGUFW_U16, &(uint16_t){2}, 2);
    write_files();
    refused(ERR_DAMAGED, 1, "key \"split.no\": found 2, expected 1");
    ggufw_drop(&files[1], "split.no");
    write_files();
    refused(ERR_DAMAGED, 1, "key \"split.no\" is missing");
}
END_TEST

START_TEST(counts_that_differ_are_refused)
{
    ggufw_put(&files[2], "split.count", GGUFW_U16, &(uint16_t){4}, 2);
    write_files();
    refused(ERR_DAMAGED, 2, "key \"split.count\": found 4, expected 3");
    ggufw_drop(&files[2], "split.count"); /* which only the first part has to have */
    opens();
    ggufw_i32(&files[0], "split.tensors.count", (int32_t)whole.n_tensors + 1);
    write_files();
    refused(ERR_DAMAGED, 0, "key \"split.tensors.count\" says");
    ggufw_drop(&files[0], "split.tensors.count");
    write_files();
    refused(ERR_DAMAGED, 0, "key \"split.tensors.count\" is missing");
}
END_TEST

START_TEST(a_tensor_in_two_parts_is_refused)
{
    struct ggufw_tensor *t = ggufw_find(&files[1], "blk.0.attn_q.weight");

    for (uint32_t i = 0; !t && i < N_FILES; i++)
        t = ggufw_find(&files[i], "blk.0.attn_q.weight");
    ck_assert_ptr_nonnull(t);
    ggufw_name_tensor(t, "output_norm.weight", strlen("output_norm.weight"));
    write_files();
    refused(ERR_DAMAGED, 0, "tensor \"output_norm.weight\" occurs twice");
}
END_TEST

START_TEST(another_part_than_the_first_is_refused)
{
    struct model *m = NULL;
    struct err_text e = {{0}};

    write_files();
    ck_assert_int_eq(model_open(paths[1], &m, &e), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(e.s, "part 2 of a model split into 3 files; the first part is the one to open"));
    ck_assert_ptr_nonnull(strstr(e.s, paths[1]));
}
END_TEST

START_TEST(a_first_part_by_another_name_is_refused)
{
    char other[80];
    struct model *m = NULL;
    struct err_text e = {{0}};

    write_files();
    (void)snprintf(other, sizeof other, "%s/m.gguf", dir);
    ck_assert_int_eq(rename(paths[0], other), 0);
    ck_assert_int_eq(model_open(other, &m, &e), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(e.s, "has to end in \"-00001-of-00003.gguf\""));
    ck_assert_int_eq(unlink(other), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_split");
    TCase *t = tcase_create("files");
    SRunner *sr;
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_model_of_several_files_has_the_tensors_of_all);
    tcase_add_test(t, the_first_file_may_have_no_tensors);
    tcase_add_test(t, a_missing_part_is_named);
    tcase_add_test(t, a_damaged_part_is_named);
    tcase_add_test(t, parts_out_of_order_are_refused);
    tcase_add_test(t, counts_that_differ_are_refused);
    tcase_add_test(t, a_tensor_in_two_parts_is_refused);
    tcase_add_test(t, another_part_than_the_first_is_refused);
    tcase_add_test(t, a_first_part_by_another_name_is_refused);
    suite_add_tcase(s, t);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
