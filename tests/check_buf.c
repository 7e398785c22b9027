/* SPDX-License-Identifier: Apache-2.0 */
/* util/buf against a plain array: content, limit, termination, and what a failure leaves. */
#include "util/buf.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_MAX = 1 << 16 };

/* What must hold between any two calls. */
static void buf_is_sane(const struct buf *b)
{
    ck_assert(b->data || (b->len == 0 && b->cap == 0));
    ck_assert(!b->data || b->len < b->cap);
    ck_assert(!b->data || b->data[b->len] == '\0');
    ck_assert(!b->limit || b->len <= b->limit);
}

START_TEST(an_empty_buf_owns_nothing_and_can_be_freed)
{
    struct buf b = {0};

    buf_clear(&b);
    buf_consume(&b, 0);
    buf_is_sane(&b);
    buf_done(&b);
    buf_done(&b);
    ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(nothing_added_to_an_empty_buf_is_an_empty_string)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_add(&b, NULL, 0), 0);
    buf_is_sane(&b);
    ck_assert_str_eq(b.data, "");
    buf_done(&b);
}
END_TEST

START_TEST(the_limit_is_reached_exactly_and_never_passed)
{
    struct buf b = {.limit = 10};

    ck_assert_int_eq(buf_add(&b, "1234567890", 10), 0);
    ck_assert_int_eq(buf_add(&b, "x", 1), ERR_CAPACITY);
    ck_assert_int_eq(buf_addf(&b, "%d", 1), ERR_CAPACITY);
    ck_assert_int_eq(buf_addz(&b, "x"), ERR_CAPACITY);
    ck_assert_int_eq(buf_addz(&b, ""), 0);
    ck_assert_str_eq(b.data, "1234567890");
    buf_consume(&b, 4);
    ck_assert_int_eq(buf_addf(&b, "%s", "abcd"), 0);
    ck_assert_str_eq(b.data, "567890abcd");
    buf_done(&b);
    ck_assert_uint_eq(b.limit, 10);
}
END_TEST

START_TEST(an_absurd_size_is_refused_and_changes_nothing)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addz(&b, "kept"), 0);
    ck_assert_int_eq(buf_reserve(&b, SIZE_MAX), -ENOMEM);
    ck_assert_int_eq(buf_reserve(&b, SIZE_MAX - 4), -ENOMEM);
    ck_assert_int_eq(buf_reserve(&b, SIZE_MAX - 5), -ENOMEM);
    buf_is_sane(&b);
    ck_assert_str_eq(b.data, "kept");
    buf_done(&b);
}
END_TEST

/* _i is the seed. */
START_TEST(any_mix_of_calls_agrees_with_a_plain_array)
{
    static char model[MODEL_MAX], bytes[3000];
    unsigned int seed = (unsigned int)_i;
    struct buf b = {.limit = _i % 2 ? 0 : 5000};
    size_t len = 0;

    for (int step = 0; step < 4000; step++) {
        size_t n = (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 40 : sizeof bytes);
        size_t max = b.limit ? b.limit : MODEL_MAX;
        int r;

        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)('a' + rand_r(&seed) % 26);
        /* The unlimited ones are emptied before the model's array is full. */
        if (!b.limit && len + n > MODEL_MAX) {
            buf_clear(&b);
            len = 0;
        }
        switch (rand_r(&seed) % 6) {
        case 0:
            n = n > len ? len : n;
            buf_consume(&b, n);
            memmove(model, model + n, len - n);
            len -= n;
            break;
        case 1:
            if (rand_r(&seed) % 50)
                break;
            buf_clear(&b);
            len = 0;
            break;
        case 2:
            r = buf_addf(&b, "%.*s", (int)n, bytes);
            goto added;
        case 3:
            r = buf_reserve(&b, n);
            ck_assert_int_eq(r, len + n > max ? ERR_CAPACITY : 0);
            break;
        default:
            r = buf_add(&b, bytes, n);
        added:
            ck_assert_int_eq(r, len + n > max ? ERR_CAPACITY : 0);
            if (r == 0) {
                memcpy(model + len, bytes, n);
                len += n;
            }
            break;
        }
        buf_is_sane(&b);
        ck_assert_uint_eq(b.len, len);
        ck_assert(len == 0 || memcmp(b.data, model, len) == 0);
    }
    buf_done(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("buf");
    TCase *t = tcase_create("buf");
    SRunner *runner;
    int failed;

    tcase_add_test(t, an_empty_buf_owns_nothing_and_can_be_freed);
    tcase_add_test(t, nothing_added_to_an_empty_buf_is_an_empty_string);
    tcase_add_test(t, the_limit_is_reached_exactly_and_never_passed);
    tcase_add_test(t, an_absurd_size_is_refused_and_changes_nothing);
    tcase_add_loop_test(t, any_mix_of_calls_agrees_with_a_plain_array, 0, 16);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
