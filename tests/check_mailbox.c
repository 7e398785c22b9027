/* SPDX-License-Identifier: Apache-2.0 */
/* util/mailbox: order, the descriptor's truth, threads that put while one takes, closing. */
#include "util/mailbox.h"

#include <check.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct letter {
    struct mail mail; /* first, so that a mail is its letter */
    unsigned int from, number;
};

static bool is_readable(const struct mailbox *m)
{
    struct pollfd p = {.fd = m->fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static struct letter *letter_of(struct mail *mail)
{
    return (struct letter *)mail;
}

START_TEST(an_empty_box_gives_nothing_and_is_not_readable)
{
    struct mailbox m;

    ck_assert_int_eq(mailbox_init(&m), 0);
    ck_assert_ptr_null(mailbox_take(&m));
    ck_assert(!is_readable(&m));
    mailbox_close(&m);
    ck_assert_ptr_null(mailbox_wait(&m));
    mailbox_done(&m);
}
END_TEST

START_TEST(a_closed_box_gives_what_is_left_before_it_ends)
{
    struct letter a = {.number = 1}, b = {.number = 2};
    struct mailbox m;

    ck_assert_int_eq(mailbox_init(&m), 0);
    mailbox_put(&m, &a.mail);
    mailbox_put(&m, &b.mail);
    mailbox_close(&m);
    ck_assert_ptr_eq(mailbox_wait(&m), &a.mail);
    ck_assert_ptr_eq(mailbox_wait(&m), &b.mail);
    ck_assert_ptr_null(mailbox_wait(&m));
    mailbox_done(&m);
}
END_TEST

/* _i is the seed.  The model is two counters: letters leave in the order in which they came. */
START_TEST(any_mix_of_calls_keeps_order_and_the_descriptor_true)
{
    enum { N = 64 };
    struct letter letters[N];
    unsigned int seed = (unsigned int)_i, n_put = 0, n_taken = 0;
    struct mailbox m;

    ck_assert_int_eq(mailbox_init(&m), 0);
    for (int step = 0; step < 3000; step++) {
        if (rand_r(&seed) % 2 && n_put - n_taken < N) {
            /* Rubbish in the link of a letter that is put must not matter. */
            letters[n_put % N] = (struct letter){{&letters[0].mail}, 0, n_put};
            mailbox_put(&m, &letters[n_put % N].mail);
            n_put++;
        } else if (n_put == n_taken) {
            ck_assert_ptr_null(mailbox_take(&m));
        } else {
            struct mail *got = rand_r(&seed) % 2 ? mailbox_take(&m) : mailbox_wait(&m);

            ck_assert_ptr_nonnull(got);
            ck_assert_uint_eq(letter_of(got)->number, n_taken);
            ck_assert_ptr_null(got->next);
            n_taken++;
        }
        ck_assert(is_readable(&m) == (n_put != n_taken));
    }
    while (mailbox_take(&m))
        n_taken++;
    ck_assert_uint_eq(n_put, n_taken);
    mailbox_done(&m);
}
END_TEST

enum { N_SENDERS = 4, N_LETTERS = 2000 };

struct sender {
    pthread_t thread;
    struct mailbox *to;
    unsigned int id;
    struct letter letters[N_LETTERS];
};

static void *send_all(void *arg)
{
    struct sender *s = arg;

    for (unsigned int i = 0; i < N_LETTERS; i++) {
        s->letters[i].from = s->id;
        s->letters[i].number = i;
        mailbox_put(s->to, &s->letters[i].mail);
    }
    return NULL;
}

/* _i == 0: the taker sleeps in wait; 1: it polls the descriptor, as an event loop does. */
START_TEST(letters_of_many_threads_arrive_once_and_in_the_order_of_each)
{
    static struct sender senders[N_SENDERS];
    unsigned int next[N_SENDERS] = {0}, n = 0;
    struct mailbox m;

    memset(senders, 0, sizeof senders);
    ck_assert_int_eq(mailbox_init(&m), 0);
    for (unsigned int i = 0; i < N_SENDERS; i++) {
        senders[i].to = &m;
        senders[i].id = i;
        ck_assert_int_eq(pthread_create(&senders[i].thread, NULL, send_all, &senders[i]), 0);
    }
    while (n < N_SENDERS * N_LETTERS) {
        struct mail *got;

        if (_i == 0) {
            got = mailbox_wait(&m);
            ck_assert_ptr_nonnull(got);
        } else {
            struct pollfd p = {.fd = m.fd, .events = POLLIN};

            /* Without a lost wake-up this never sleeps while mail waits. */
            ck_assert_int_eq(poll(&p, 1, -1), 1);
            got = mailbox_take(&m);
        }
        for (; got; got = mailbox_take(&m)) {
            struct letter *l = letter_of(got);

            ck_assert_uint_eq(l->number, next[l->from]);
            next[l->from]++;
            n++;
        }
    }
    for (unsigned int i = 0; i < N_SENDERS; i++)
        ck_assert_int_eq(pthread_join(senders[i].thread, NULL), 0);
    ck_assert_ptr_null(mailbox_take(&m));
    ck_assert(!is_readable(&m));
    mailbox_done(&m);
}
END_TEST

static void *wait_to_the_end(void *arg)
{
    uintptr_t n = 0;

    while (mailbox_wait(arg))
        n++;
    return (void *)n;
}

START_TEST(closing_wakes_the_thread_that_waits)
{
    struct letter l = {.number = 1};
    struct mailbox m;
    pthread_t t;
    void *n;

    ck_assert_int_eq(mailbox_init(&m), 0);
    ck_assert_int_eq(pthread_create(&t, NULL, wait_to_the_end, &m), 0);
    mailbox_put(&m, &l.mail);
    mailbox_close(&m);
    ck_assert_int_eq(pthread_join(t, &n), 0);
    ck_assert_uint_eq((uintptr_t)n, 1);
    mailbox_done(&m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mailbox");
    TCase *t = tcase_create("mailbox");
    SRunner *runner;
    int failed;

    tcase_add_test(t, an_empty_box_gives_nothing_and_is_not_readable);
    tcase_add_test(t, a_closed_box_gives_what_is_left_before_it_ends);
    tcase_add_loop_test(t, any_mix_of_calls_keeps_order_and_the_descriptor_true, 0, 8);
    tcase_add_loop_test(t, letters_of_many_threads_arrive_once_and_in_the_order_of_each, 0, 2);
    tcase_add_loop_test(t, closing_wakes_the_thread_that_waits, 0, 50);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
