/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front.h"

#include <check.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <systemd/sd-event.h>

enum { N_JOBS = 500 };

struct job_of_test {
    struct front_job job;
    pthread_t loop;
    struct front *front;       /* to submit `again` to, NULL */
    struct job_of_test *again; /* NULL */
    atomic_uint *n_started;
    sem_t *go;            /* waited for, NULL */
    unsigned int started; /* how many had started before it, and itself */
    unsigned int n_worked, n_done;
    uint64_t result;
};

static void work(struct front_job *j)
{
    struct job_of_test *t = (struct job_of_test *)j;

    t->started = atomic_fetch_add(t->n_started, 1) + 1;
    if (t->go)
        while (sem_wait(t->go) < 0)
            ;
    t->n_worked++;
    for (unsigned int i = 0; i < 1000; i++)
        t->result = t->result * 31 + i;
}

static void done(struct front_job *j)
{
    struct job_of_test *t = (struct job_of_test *)j;

    ck_assert(pthread_equal(pthread_self(), t->loop));
    ck_assert_uint_eq(t->n_worked, 1);
    t->n_done++;
    if (t->again)
        front_submit(t->front, &t->again->job);
}

static void job_init(struct job_of_test *t, atomic_uint *n_started)
{
    *t = (struct job_of_test){
        .job = {.work = work, .done = done}, .loop = pthread_self(), .n_started = n_started};
}

START_TEST(every_job_is_worked_on_a_front_thread_and_done_on_the_loop)
{
    struct job_of_test *jobs = calloc(N_JOBS, sizeof *jobs);
    sd_event *event = NULL;
    struct front *f = NULL;
    atomic_uint n_started = 0;
    unsigned int n_done = 0;

    ck_assert_int_ge(sd_event_new(&event), 0);
    ck_assert_int_eq(front_new(event, (unsigned int)_i, &f), 0);
    for (int i = 0; i < N_JOBS; i++) {
        job_init(&jobs[i], &n_started);
        front_submit(f, &jobs[i].job);
    }
    while (n_done < N_JOBS) {
        ck_assert_int_gt(sd_event_run(event, UINT64_MAX), 0);
        n_done = 0;
        for (int i = 0; i < N_JOBS; i++)
            n_done += jobs[i].n_done;
    }
    for (int i = 0; i < N_JOBS; i++) {
        ck_assert_uint_eq(jobs[i].n_done, 1);
        if (_i == 1)
            ck_assert_uint_eq(jobs[i].started, i + 1);
    }
    ck_assert_int_eq(sd_event_run(event, 0), 0);
    front_free(f);
    (void)sd_event_unref(event);
    free(jobs);
}
END_TEST

/* The first job waits until the second is done: with one thread for both this would never end. */
START_TEST(two_threads_work_on_two_jobs_at_once)
{
    struct job_of_test a, b;
    sd_event *event = NULL;
    struct front *f = NULL;
    atomic_uint n_started = 0;
    sem_t go;

    ck_assert_int_eq(sem_init(&go, 0, 0), 0);
    ck_assert_int_ge(sd_event_new(&event), 0);
    ck_assert_int_eq(front_new(event, 2, &f), 0);
    job_init(&a, &n_started);
    job_init(&b, &n_started);
    a.go = &go;
    front_submit(f, &a.job);
    front_submit(f, &b.job);
    while (b.n_done == 0)
        ck_assert_int_gt(sd_event_run(event, UINT64_MAX), 0);
    ck_assert_uint_eq(a.n_done, 0);
    ck_assert_int_eq(sem_post(&go), 0);
    while (a.n_done == 0)
        ck_assert_int_gt(sd_event_run(event, UINT64_MAX), 0);
    front_free(f);
    (void)sd_event_unref(event);
    (void)sem_destroy(&go);
}
END_TEST

START_TEST(freeing_works_off_what_was_submitted_also_by_the_last_jobs)
{
    struct job_of_test *jobs = calloc(N_JOBS, sizeof *jobs), last;
    sd_event *event = NULL;
    struct front *f = NULL;
    atomic_uint n_started = 0;

    ck_assert_int_ge(sd_event_new(&event), 0);
    ck_assert_int_eq(front_new(event, 2, &f), 0);
    for (int i = 0; i < N_JOBS; i++)
        job_init(&jobs[i], &n_started);
    job_init(&last, &n_started);
    jobs[N_JOBS - 1].front = f;
    jobs[N_JOBS - 1].again = &last;
    for (int i = 0; i < N_JOBS; i++)
        front_submit(f, &jobs[i].job);
    front_free(f);
    for (int i = 0; i < N_JOBS; i++)
        ck_assert_uint_eq(jobs[i].n_done, 1);
    ck_assert_uint_eq(last.n_done, 1);
    front_free(NULL);
    (void)sd_event_unref(event);
    free(jobs);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("front");
    TCase *tc = tcase_create("front");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, every_job_is_worked_on_a_front_thread_and_done_on_the_loop, 1, 5);
    tcase_add_test(tc, two_threads_work_on_two_jobs_at_once);
    tcase_add_test(tc, freeing_works_off_what_was_submitted_also_by_the_last_jobs);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
