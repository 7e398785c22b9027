/* SPDX-License-Identifier: Apache-2.0 */
/* The wire: framing under every split, messages that are refused, and what is written. */
#include "ctl/varlink.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rng_state;

static uint32_t rng(uint32_t n)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (rng_state >> 8) % n;
}

START_TEST(frames_come_out_as_they_went_in_however_they_are_cut)
{
    struct varlink_reader r = {0};
    struct buf all = {0}, seen = {0};
    uint32_t n = 1 + (uint32_t)_i % 20;
    size_t at = 0;

    rng_state = (uint32_t)_i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = rng(4) == 0 ? 0 : rng(rng(3) == 0 ? 40000 : 40);

        /* One assertion for all bytes: libcheck keeps a record of each. */
        ck_assert_int_eq(buf_reserve(&all, len), 0);
        for (uint32_t k = 0; k < len; k++)
            all.data[all.len++] = (char)('a' + rng(26));
        ck_assert_int_eq(buf_add(&all, "", 1), 0);
    }
    while (at < all.len) {
        size_t k = 1 + rng(rng(2) ? 20 : 20000), room;
        const char *frame;
        size_t len;
        char *to;

        if (k > all.len - at)
            k = all.len - at;
        if (rng(2)) {
            ck_assert_int_eq(varlink_reader_room(&r, &to, &room), 0);
            ck_assert_uint_gt(room, 0);
            if (k > room)
                k = room;
            memcpy(to, all.data + at, k);
            varlink_reader_received(&r, k);
        } else {
            ck_assert_int_eq(varlink_reader_put(&r, all.data + at, k), 0);
        }
        at += k;
        while (rng(5) && varlink_reader_next(&r, &frame, &len))
            ck_assert_int_eq(buf_add(&seen, frame, len + 1), 0);
    }
    for (;;) {
        const char *frame;
        size_t len;

        if (!varlink_reader_next(&r, &frame, &len))
            break;
        ck_assert_int_eq(buf_add(&seen, frame, len + 1), 0);
    }
    ck_assert_uint_eq(seen.len, all.len);
    ck_assert_mem_eq(seen.data, all.data, all.len);
    buf_done(&r.in);
    buf_done(&all);
    buf_done(&seen);
}
END_TEST

START_TEST(a_frame_that_never_ends_is_refused_at_the_limit)
{
    struct varlink_reader r = {0};
    size_t total = 0, room, n;
    const char *frame;
    char *to;
    int x;

    while ((x = varlink_reader_room(&r, &to, &room)) == 0) {
        memset(to, 'x', room);
        varlink_reader_received(&r, room);
        ck_assert_int_eq(varlink_reader_next(&r, &frame, &n), 0);
        total += room;
        ck_assert_uint_le(total, VARLINK_MAX_FRAME + 65536);
    }
    ck_assert_int_eq(x, ERR_CAPACITY);
    ck_assert_uint_ge(total, VARLINK_MAX_FRAME);
    buf_done(&r.in);
}
END_TEST

static const char *const bad_calls[] = {
    "",
    "x",
    "[]",
    "null",
    "{}",
    "{\"method\": 1}",
    "{\"method\": \"a.B\", \"parameters\": []}",
    "{\"method\": \"a.B\", \"parameters\": \"x\"}",
    "{\"method\": \"a.B\", \"more\": 1}",
    "{\"method\": \"a.B\", \"oneway\": \"true\"}",
    "{\"method\": \"a.B\", \"more\": true, \"oneway\": true}",
    "{\"method\": \"a.B\"} {}",
    "{\"method\": \"a.B\", \"method\": \"a.C\"}",
    "{\"method\": \"a\\u0000b\"}",
    "{\"method\": \"\xc3\"}",
    "{\"method\": \"a.B\"",
};

START_TEST(what_is_not_a_call_is_refused)
{
    struct varlink_call c = {0};
    struct err_text e = {""};

    ck_assert_int_eq(varlink_call_parse(bad_calls[_i], strlen(bad_calls[_i]), &c, &e), -EBADMSG);
    ck_assert_ptr_null(c.message);
    ck_assert_str_ne(e.s, "");
}
END_TEST

START_TEST(nesting_without_end_is_refused)
{
    size_t n = VARLINK_MAX_FRAME - 1;
    char *s = malloc(n);
    struct varlink_call c;

    ck_assert_ptr_nonnull(s);
    memset(s, '[', n);
    ck_assert_int_eq(varlink_call_parse(s, n, &c, NULL), -EBADMSG);
    for (size_t i = 0; i + 5 <= n; i += 5)
        memcpy(s + i, "{\"a\":", 5);
    ck_assert_int_eq(varlink_call_parse(s, n, &c, NULL), -EBADMSG);
    free(s);
}
END_TEST

START_TEST(a_call_survives_the_wire)
{
    struct buf out = {0};
    struct varlink_call c;
    const char *frame;

    ck_assert_int_eq(varlink_add_call(&out, "a.b.C", json_pack("{s:s}", "k", "é\n\\\""), true), 0);
    frame = out.data;
    ck_assert_uint_eq(strlen(frame) + 1, out.len);
    ck_assert_int_eq(varlink_call_parse(frame, out.len - 1, &c, NULL), 0);
    ck_assert_str_eq(c.method, "a.b.C");
    ck_assert(c.more && !c.oneway && !c.upgrade);
    ck_assert_str_eq(json_string_value(json_object_get(c.parameters, "k")), "é\n\\\"");
    varlink_call_done(&c);
    buf_clear(&out);
    ck_assert_int_eq(varlink_add_call(&out, "a.b.C", NULL, false), 0);
    ck_assert_str_eq(out.data, "{\"method\":\"a.b.C\"}");
    buf_done(&out);
}
END_TEST

START_TEST(replies_and_errors_survive_the_wire)
{
    struct buf out = {0};
    struct varlink_reply r;

    ck_assert_int_eq(varlink_add_reply(&out, json_pack("{s:i}", "n", 5), true), 0);
    ck_assert_str_eq(out.data, "{\"parameters\":{\"n\":5},\"continues\":true}");
    ck_assert_int_eq(varlink_reply_parse(out.data, out.len - 1, &r, NULL), 0);
    ck_assert(r.continues && !r.error);
    varlink_reply_done(&r);
    buf_clear(&out);
    ck_assert_int_eq(varlink_add_error(&out, VARLINK_INVALID_PARAMETER, "parameter", "x"), 0);
    ck_assert_int_eq(varlink_reply_parse(out.data, out.len - 1, &r, NULL), 0);
    ck_assert_str_eq(r.error, "org.varlink.service.InvalidParameter");
    ck_assert_str_eq(json_string_value(json_object_get(r.parameters, "parameter")), "x");
    varlink_reply_done(&r);
    ck_assert_int_eq(varlink_reply_parse("{\"error\": 4}", 12, &r, NULL), -EBADMSG);
    buf_done(&out);
}
END_TEST

START_TEST(a_message_that_does_not_fit_leaves_the_buffer_as_it_was)
{
    struct buf out = {.limit = 64};
    char text[100];

    memset(text, 'x', sizeof text);
    text[99] = '\0';
    ck_assert_int_eq(varlink_add_reply(&out, json_pack("{s:i}", "n", 5), false), 0);
    ck_assert_int_eq(varlink_add_reply(&out, json_pack("{s:s}", "n", text), false), ERR_CAPACITY);
    ck_assert_int_eq(varlink_add_reply(&out, NULL, false), -ENOMEM);
    ck_assert_str_eq(out.data, "{\"parameters\":{\"n\":5}}");
    ck_assert_uint_eq(out.len, strlen(out.data) + 1);
    buf_done(&out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("varlink");
    TCase *t = tcase_create("varlink");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, frames_come_out_as_they_went_in_however_they_are_cut, 0, 100);
    tcase_add_test(t, a_frame_that_never_ends_is_refused_at_the_limit);
    tcase_add_loop_test(t, what_is_not_a_call_is_refused, 0,
                        sizeof bad_calls / sizeof bad_calls[0]);
    tcase_add_test(t, nesting_without_end_is_refused);
    tcase_add_test(t, a_call_survives_the_wire);
    tcase_add_test(t, replies_and_errors_survive_the_wire);
    tcase_add_test(t, a_message_that_does_not_fit_leaves_the_buffer_as_it_was);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
