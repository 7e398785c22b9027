/* SPDX-License-Identifier: Apache-2.0 */
/* util/utf8 against a decoder that does only what the definition says, and streams against whole
 * texts. */
#include "util/utf8.h"

#include "util/buf.h"
#include "util/err.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The definition: the shortest form of a scalar value, found by trying all lengths. */
static size_t plain_length(const unsigned char *s, size_t n)
{
    for (size_t len = 1; len <= 4 && len <= n; len++) {
        static const struct {
            unsigned char mask, lead;
            uint32_t least;
        } form[5] = {{0, 0, 0},
                     {0x80, 0, 0},
                     {0xE0, 0xC0, 0x80},
                     {0xF0, 0xE0, 0x800},
                     {0xF8, 0xF0, 0x10000}};
        uint32_t cp = s[0] & (unsigned char)~form[len].mask;
        bool good = (s[0] & form[len].mask) == form[len].lead;

        for (size_t i = 1; i < len; i++) {
            good = good && (s[i] & 0xC0) == 0x80;
            cp = cp << 6 | (s[i] & 0x3F);
        }
        if (good && cp >= form[len].least && cp <= 0x10FFFF && !(cp >= 0xD800 && cp < 0xE000))
            return len;
    }
    return 0;
}

/* Whether some bytes behind s[0..n) would make its beginning a whole sequence. */
static bool could_become_valid(const unsigned char *s, size_t n)
{
    unsigned char t[4] = {0};

    if (n > 3)
        return false;
    memcpy(t, s, n);
    /* Whether a second byte is allowed depends on its top six bits; the others may be anything. */
    for (unsigned int b = 0x80; b < 0xC0; b++) {
        for (size_t i = n; i < 4; i++)
            t[i] = i == n ? (unsigned char)b : 0x80;
        for (size_t len = n + 1; len <= 4; len++)
            if (plain_length(t, len) == len)
                return true;
    }
    return false;
}

/* What a stream must have given after its end. */
static void plain_repair(const unsigned char *s, size_t n, struct buf *out)
{
    size_t i = 0;

    while (i < n) {
        size_t len = plain_length(s + i, n - i);

        if (len) {
            ck_assert_int_eq(buf_add(out, s + i, len), 0);
            i += len;
        } else if (could_become_valid(s + i, n - i)) {
            ck_assert_int_eq(buf_addz(out, "\xEF\xBF\xBD"), 0);
            return;
        } else {
            ck_assert_int_eq(buf_addz(out, "\xEF\xBF\xBD"), 0);
            i++;
        }
    }
}

/* Each ck_assert is a message to the parent process, so a loop of a million checks asserts once. */
START_TEST(every_scalar_value_survives_encoding_and_decoding)
{
    uint32_t n_bad = 0;

    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char s[4];
        size_t n, len = 0;

        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        n = utf8_encode(cp, s);
        n_bad += !utf8_is_valid(s, n) || utf8_decode(s, n, &len) != cp || len != n;
    }
    ck_assert_uint_eq(n_bad, 0);
}
END_TEST

START_TEST(numbers_that_are_no_scalar_value_encode_as_the_replacement)
{
    static const uint32_t bad[] = {0xD800, 0xDFFF, 0x110000, UINT32_MAX};

    for (size_t i = 0; i < 4; i++) {
        char s[4];

        ck_assert_uint_eq(utf8_encode(bad[i], s), 3);
        ck_assert(memcmp(s, "\xEF\xBF\xBD", 3) == 0);
    }
}
END_TEST

/* One four-byte text and its openings. */
static uint32_t n_wrong(const unsigned char s[4])
{
    uint32_t n_bad = 0;

    for (size_t n = 1; n <= 4; n++) {
        const char *c = (const char *)s;
        size_t want = plain_length(s, n), len = 0;
        uint32_t cp = utf8_decode(c, n, &len);

        n_bad += len != (want ? want : 1) || (!want && cp != 0xFFFD);
        n_bad += utf8_is_valid(c, n) != (want && utf8_is_valid(c + want, n - want));
    }
    return n_bad;
}

/* _i is the first byte.  Third and fourth bytes are tried at the borders of their ranges. */
START_TEST(every_short_sequence_decodes_as_the_definition_says)
{
    static const unsigned char edges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0xBF, 0xC0, 0xFF};
    uint32_t n_bad = 0;

    for (unsigned int b = 0; b < 256; b++) {
        for (size_t i = 0; i < sizeof(edges) * sizeof(edges); i++) {
            unsigned char s[4] = {(unsigned char)_i, (unsigned char)b, edges[i / sizeof(edges)],
                                  edges[i % sizeof(edges)]};

            n_bad += n_wrong(s);
        }
    }
    ck_assert_uint_eq(n_bad, 0);
}
END_TEST

/* _i is the seed. */
START_TEST(any_bytes_in_any_pieces_give_what_the_whole_gives)
{
    static const unsigned char pool[] = {0x41, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC1,
                                         0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4,
                                         0xF5, 0xFF, 0x8F, 0x90, 0x82, 0xAC};
    unsigned int seed = (unsigned int)_i;
    unsigned char s[200];

    for (int round = 0; round < 40; round++) {
        size_t n = (size_t)rand_r(&seed) % sizeof(s), at = 0;
        struct utf8_stream u = {0};
        struct buf want = {0}, got = {0};

        for (size_t i = 0; i < n; i++)
            s[i] = rand_r(&seed) % 4 ? pool[(size_t)rand_r(&seed) % sizeof(pool)]
                                     : (unsigned char)rand_r(&seed);
        plain_repair(s, n, &want);
        while (at < n) {
            size_t step = (size_t)rand_r(&seed) % 6;

            if (step > n - at)
                step = n - at;
            ck_assert_int_eq(utf8_stream_put(&u, (const char *)s + at, step, &got), 0);
            at += step;
            ck_assert(utf8_is_valid(got.data ? got.data : "", got.len));
            ck_assert_uint_le(u.n_held, 3);
            ck_assert(u.n_held == 0 || could_become_valid((unsigned char *)u.held, u.n_held));
        }
        ck_assert_int_eq(utf8_stream_end(&u, &got), 0);
        ck_assert_uint_eq(got.len, want.len);
        ck_assert(want.len == 0 || memcmp(got.data, want.data, want.len) == 0);
        buf_done(&want);
        buf_done(&got);
    }
}
END_TEST

START_TEST(a_stream_that_finds_no_room_is_as_it_was)
{
    struct utf8_stream u = {0};
    struct buf b = {.limit = 4};

    ck_assert_int_eq(utf8_stream_put(&u, "ab\xE2\x82", 4, &b), 0);
    ck_assert_uint_eq(u.n_held, 2);
    ck_assert_int_eq(utf8_stream_put(&u, "\xAC", 1, &b), ERR_CAPACITY);
    ck_assert_uint_eq(u.n_held, 2);
    ck_assert_str_eq(b.data, "ab");
    ck_assert_int_eq(utf8_stream_end(&u, &b), ERR_CAPACITY);
    b.limit = 5;
    ck_assert_int_eq(utf8_stream_put(&u, "\xAC", 1, &b), 0);
    ck_assert_uint_eq(u.n_held, 0);
    ck_assert_str_eq(b.data, "ab\xE2\x82\xAC");
    buf_done(&b);
}
END_TEST

START_TEST(control_characters_and_broken_bytes_are_not_printable)
{
    static const char *const good[] = {
        "", "a name", "\xC3\xA9t\xC3\xA9", "\xEF\xBF\xBD", "\xC2\xA0", "\xF0\x9F\x98\x80"};
    static const char *const bad[] = {"a\nb",     "\x1B[2J", "\x7F",    "\xC2\x80",
                                      "\xC2\x9F", "a\xFF",   "\xE2\x82"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(utf8_is_printable(good[i], strlen(good[i])), "good text %zu", i);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!utf8_is_printable(bad[i], strlen(bad[i])), "bad text %zu", i);
    ck_assert(!utf8_is_printable("a\0b", 3));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("utf8");
    TCase *t = tcase_create("utf8");
    SRunner *runner;
    int failed;

    tcase_add_test(t, every_scalar_value_survives_encoding_and_decoding);
    tcase_add_test(t, numbers_that_are_no_scalar_value_encode_as_the_replacement);
    tcase_add_loop_test(t, every_short_sequence_decodes_as_the_definition_says, 0, 256);
    tcase_add_loop_test(t, any_bytes_in_any_pieces_give_what_the_whole_gives, 0, 32);
    tcase_add_test(t, a_stream_that_finds_no_room_is_as_it_was);
    tcase_add_test(t, control_characters_and_broken_bytes_are_not_printable);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
