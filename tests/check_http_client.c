/* SPDX-License-Identifier: Apache-2.0 */
/* stratactl's HTTP parser: whole and cut answers, and answers that are none. */
#include "ctl/http_client.h"

#include "util/err.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *answer;
    int status;
    const char *body;
    bool stream, to_end;
} good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false, false},
    {"HTTP/1.0 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, "", false, false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Type: text/event-stream; "
     "charset=utf-8\r\n\r\n"
     "5\r\nda\nta\r\n1;x=y\r\n:\r\n0\r\nTrailer: x\r\n\r\n",
     200, "da\nta:", true, false},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno", 413,
     "no", false, false},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it", 200, "all of it", false, true},
    {"HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", 200, "abc",
     false, false},
};

/* The same answer cut at every byte, and in single bytes. */
START_TEST(an_answer_is_the_same_however_it_is_cut)
{
    const char *s = good[_i].answer;
    size_t n = strlen(s);

    for (size_t cut = 0; cut <= n; cut++) {
        struct http_client p = {.in.limit = 1024};
        struct buf body = {0};
        struct err_text e;

        if (cut == n) {
            for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(http_client_put(&p, s + i, 1, &body, &e), 0);
        } else {
            ck_assert_int_eq(http_client_put(&p, s, cut, &body, &e), 0);
            ck_assert_int_eq(http_client_put(&p, s + cut, n - cut, &body, &e), 0);
        }
        ck_assert_int_eq(http_client_end(&p, &e), 0);
        ck_assert_int_eq(p.state == HTTP_DONE, !good[_i].to_end);
        ck_assert_int_eq(p.status, good[_i].status);
        ck_assert_int_eq(p.is_stream, good[_i].stream);
        ck_assert_str_eq(body.data ? body.data : "", good[_i].body);
        buf_done(&p.in);
        buf_done(&body);
    }
}
END_TEST

static const char *const bad[] = {
    "SSH-2.0-OpenSSH\r\n",
    "HTTP/2 200\r\n",
    "HTTP/1.1 abc\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "HTTP/1.1 200",
    "",
};

START_TEST(an_answer_that_is_none_is_refused)
{
    struct http_client p = {.in.limit = 1024};
    struct buf body = {0};
    struct err_text e = {""};
    int r = http_client_put(&p, bad[_i], strlen(bad[_i]), &body, &e);

    if (r == 0)
        r = http_client_end(&p, &e);
    ck_assert_int_eq(r, -EBADMSG);
    ck_assert_str_ne(e.s, "");
    buf_done(&p.in);
    buf_done(&body);
}
END_TEST

START_TEST(a_line_without_end_is_refused_at_the_limit)
{
    struct http_client p = {.in.limit = 1024};
    struct buf body = {0};
    int r = 0;

    for (int i = 0; i < 2000 && r == 0; i++)
        r = http_client_put(&p, "x", 1, &body, NULL);
    ck_assert_int_eq(r, ERR_CAPACITY);
    buf_done(&p.in);
    buf_done(&body);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_client");
    TCase *t = tcase_create("http_client");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, an_answer_is_the_same_however_it_is_cut, 0,
                        sizeof good / sizeof good[0]);
    tcase_add_loop_test(t, an_answer_that_is_none_is_refused, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(t, a_line_without_end_is_refused_at_the_limit);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
