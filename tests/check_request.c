/* SPDX-License-Identifier: Apache-2.0 */
/* Text assembly against a plain search over the whole text, for random texts, cuts and stop
 * strings. */
#include "daemon/request.h"

#include "tests/fake_tokenizer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 60, MAX_PIECE = 8 };

/* Letters that repeat, characters of 2 to 4 bytes, and bytes that are no UTF-8. */
static const char *const alphabet[] = {"a", "b", "a",    "b",        "é",
                                       "€", "😀", "\xff", "\xe2\x82", "\xa9"};

/* What the whole text is, and where it ends. */
struct plain {
    struct buf text; /* repaired, all of it */
    size_t end;      /* the released text is text[0..end) */
    int stop;        /* index of the stop string that ended it, -1 */
};

/* First the one that is complete first, then the longest. */
static void plain_search(struct plain *p, char *const *stop, size_t n_stop)
{
    p->end = p->text.len;
    p->stop = -1;
    for (size_t end = 1; end <= p->text.len && p->stop < 0; end++) {
        for (size_t i = 0; i < n_stop; i++) {
            size_t n = strlen(stop[i]);

            if (n <= end && memcmp(p->text.data + end - n, stop[i], n) == 0 &&
                (p->stop < 0 || n > strlen(stop[p->stop]))) {
                p->stop = (int)i;
                p->end = end - n;
            }
        }
    }
}

/* How many bytes at the end of text[0..n) are a proper beginning of a stop string. */
static size_t plain_hold(const char *text, size_t n, char *const *stop, size_t n_stop)
{
    for (size_t k = n; k > 0; k--)
        for (size_t i = 0; i < n_stop; i++)
            if (k < strlen(stop[i]) && memcmp(text + n - k, stop[i], k) == 0)
                return k;
    return 0;
}

static void add_random(struct buf *b, unsigned int *seed, size_t n_alphabet)
{
    ck_assert_int_eq(buf_addz(b, alphabet[(size_t)rand_r(seed) % n_alphabet]), 0);
}

/* A random text, cut at random bytes into `pieces` from id 1 on; returns how many ids. */
static uint32_t cut(struct buf *raw, struct fake_piece *pieces, unsigned int *seed)
{
    uint32_t n = 1;

    for (size_t at = 0; at < raw->len && n < MAX_TOKENS;) {
        size_t len = (size_t)rand_r(seed) % MAX_PIECE;

        len = len < raw->len - at ? len : raw->len - at;
        if (n == MAX_TOKENS - 1)
            raw->len = at + len;
        pieces[n++] = (struct fake_piece){raw->data + at, len};
        at += len;
    }
    return n;
}

static void add_stops(struct request *r, unsigned int *seed)
{
    r->n_stop = (size_t)rand_r(seed) % 5;
    r->stop = calloc(r->n_stop + 1, sizeof *r->stop);
    for (size_t i = 0; i < r->n_stop; i++) {
        struct buf b = {0};

        for (int k = 1 + rand_r(seed) % 5; k > 0; k--)
            add_random(&b, seed, 7);
        r->stop[i] = b.data;
    }
}

/* After `id` of n_ids pieces, nothing stopped yet. */
static void check_so_far(const struct request *r, const struct plain *p,
                         const struct fake_piece *pieces, uint32_t id)
{
    struct utf8_stream u = {{0}, 0};
    struct buf seen = {0};
    size_t hold;

    for (uint32_t i = 1; i <= id; i++)
        ck_assert_int_eq(utf8_stream_put(&u, pieces[i].s, pieces[i].n, &seen), 0);
    hold = plain_hold(seen.data, seen.len, r->stop, r->n_stop);
    ck_assert_uint_eq(r->text.len, seen.len - hold);
    if (r->text.len > 0) {
        ck_assert_mem_eq(r->text.data, p->text.data, r->text.len);
        ck_assert(utf8_is_valid(r->text.data, r->text.len));
    }
    /* All is out, or what is not belongs to the tokens that are not. */
    if (hold == 0 && u.n_held == 0)
        ck_assert_uint_eq(r->n_tokens_released, id);
    else if (pieces[id].n > 0)
        ck_assert_uint_lt(r->n_tokens_released, id);
    for (size_t i = 0; i < r->n_tokens_released; i++)
        ck_assert_uint_le(r->tokens[i].text_begin, r->text.len);
    buf_done(&seen);
}

/* One text; `seed` gives everything. */
static void check_text(unsigned int seed)
{
    struct fake_piece pieces[MAX_TOKENS] = {{"<end>", 5}};
    struct tokenizer *t = fake_tokenizer_new(pieces, MAX_TOKENS);
    struct request *r = request_new();
    struct plain p = {.stop = -1};
    struct utf8_stream u = {{0}, 0};
    struct buf raw = {0};
    uint32_t n_ids, id;
    const size_t n_alphabet = seed % 2 ? 7 : sizeof alphabet / sizeof *alphabet;
    size_t released = 0;
    int rc = 0;

    for (int k = rand_r(&seed) % 80; k >= 0; k--)
        add_random(&raw, &seed, n_alphabet);
    n_ids = cut(&raw, pieces, &seed);
    add_stops(r, &seed);
    ck_assert_int_eq(utf8_stream_put(&u, raw.data, raw.len, &p.text), 0);
    ck_assert_int_eq(utf8_stream_end(&u, &p.text), 0);
    plain_search(&p, r->stop, r->n_stop);

    for (id = 1; id < n_ids && rc == 0; id++) {
        struct sample s = {.id = (int32_t)id, .n_top = 1, .top = {{7, -1}}};

        rc = request_put_token(r, t, &s);
        ck_assert_int_ge(rc, 0);
        ck_assert_uint_ge(r->n_tokens_released, released);
        released = r->n_tokens_released;
        ck_assert_uint_eq(r->n_generated, id);
        if (rc == 0)
            check_so_far(r, &p, pieces, id);
    }
    if (rc == 0)
        rc = request_end_text(r);
    ck_assert_int_eq(request_end_text(r), 0);

    ck_assert_int_eq(rc, p.stop >= 0);
    ck_assert_ptr_eq(r->stop_word, p.stop >= 0 ? r->stop[p.stop] : NULL);
    ck_assert_uint_eq(r->text.len, p.end);
    if (p.end > 0)
        ck_assert_mem_eq(r->text.data, p.text.data, p.end);
    ck_assert_uint_eq(r->n_tokens_released, r->n_tokens);
    for (size_t i = 0; i < r->n_tokens; i++) {
        ck_assert_uint_le(r->tokens[i].text_begin, r->text.len);
        ck_assert(i == 0 || r->tokens[i].text_begin >= r->tokens[i - 1].text_begin);
    }
    ck_assert_ptr_null(request_unref(r));
    tokenizer_free(t);
    buf_done(&raw);
    buf_done(&p.text);
}

START_TEST(text_is_that_of_a_plain_search_however_it_is_cut)
{
    for (unsigned int k = 0; k < 100; k++)
        check_text((unsigned int)_i * 100 + k);
}
END_TEST

static struct request *request_with_stop(const char *stop)
{
    struct request *r = request_new();

    r->stop = calloc(1, sizeof *r->stop);
    r->stop[0] = strdup(stop);
    r->n_stop = 1;
    return r;
}

START_TEST(an_end_token_adds_no_text_and_is_reported)
{
    static const struct fake_piece pieces[] = {{"<end>", 5}, {"xE", 2}};
    struct tokenizer *t = fake_tokenizer_new(pieces, 2);
    struct request *r = request_with_stop("END");

    ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = 1}), 0);
    ck_assert_str_eq(r->text.data, "x");
    ck_assert_uint_eq(r->n_tokens_released, 0);
    ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = FAKE_END, .end = true}), 0);
    ck_assert_int_eq(request_end_text(r), 0);
    ck_assert_str_eq(r->text.data, "xE");
    ck_assert_uint_eq(r->n_generated, 2);
    ck_assert_uint_eq(r->n_tokens_released, 2);
    ck_assert_uint_eq(r->tokens[1].text_begin, 2);
    (void)request_unref(r);
    tokenizer_free(t);
}
END_TEST

/* "aaa...ab" against "aaa...": a search that begins again at every byte would take minutes here. */
START_TEST(a_long_stop_string_that_almost_matches_costs_no_rescan)
{
    enum { N = 1 << 20 };
    char *stop = malloc(N + 2), *text = malloc(N);
    const struct fake_piece pieces[] = {{"", 0}, {text, N}, {"b", 1}};
    struct tokenizer *t = fake_tokenizer_new(pieces, 3);
    struct request *r;

    memset(stop, 'a', N);
    memcpy(stop + N, "b", 2);
    memset(text, 'a', N);
    r = request_with_stop(stop);
    ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = 1}), 0);
    ck_assert_uint_eq(r->text.len, 0);
    ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = 1}), 0);
    ck_assert_uint_eq(r->text.len, N);
    ck_assert_int_eq(request_put_token(r, t, &(struct sample){.id = 2}), 1);
    ck_assert_uint_eq(r->text.len, N);
    (void)request_unref(r);
    tokenizer_free(t);
    free(stop);
    free(text);
}
END_TEST

START_TEST(requests_have_their_own_numbers_and_die_with_the_last_reference)
{
    struct request *a = request_new(), *b = request_new();

    ck_assert_uint_ne(a->id, 0);
    ck_assert_uint_gt(b->id, a->id);
    ck_assert_ptr_eq(request_ref(a), a);
    ck_assert_ptr_null(request_unref(a));
    ck_assert_uint_eq(a->refs, 1);
    (void)request_unref(a);
    (void)request_unref(b);
    ck_assert_ptr_null(request_unref(NULL));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("request");
    TCase *tc = tcase_create("request");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, text_is_that_of_a_plain_search_however_it_is_cut, 0, 30);
    tcase_add_test(tc, an_end_token_adds_no_text_and_is_reported);
    tcase_add_test(tc, a_long_stop_string_that_almost_matches_costs_no_rescan);
    tcase_add_test(tc, requests_have_their_own_numbers_and_die_with_the_last_reference);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
