/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads, barriers and sleep for the CPU backend.
 *
 * Everything that is waited for is a 32-bit word that only ever counts up: the number of runs
 * started, of runs ended, of barriers passed.  A waiter spins on its word for a short while and
 * then sleeps in a futex; whoever changes the word enters the kernel only when somebody sleeps.
 */
#include "engine/cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * How long to spin before sleeping.  Waking a sleeper costs the two threads 5 to 50 us on a virtual
 * machine; the pieces between two barriers of a decode step last some tens of us.
 */
#define SPIN_NS 40000

struct word {
    _Alignas(64) atomic_uint value;
    atomic_uint n_sleepers;
};

struct pool {
    struct word started;                /* runs started; the workers wait for the next */
    struct word ended;                  /* runs that all members have left; member 0 waits for it */
    struct word passed;                 /* barriers that all members have reached */
    _Alignas(64) atomic_uint n_arrived; /* at the current barrier */
    _Alignas(64) atomic_uint n_left;    /* members that returned from the current run */

    uint32_t n;
    bool spin; /* more processors than members: somebody else can make progress while we spin */
    atomic_bool stop;

    void (*fn)(void *arg, uint32_t i_member);
    void *arg;
    struct worker *workers; /* owned; [n - 1], of which n_started run */
    uint32_t n_started;
};

struct worker {
    pthread_t thread;
    struct pool *pool;
    uint32_t i_member;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Not clock_ns: a test's fake time stands still, and spinning would never end. */
static int64_t now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void word_wait(struct word *w, uint32_t old, bool spin)
{
    int64_t end = 0;

    while (spin) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
                return;
            relax();
        }
        if (end == 0)
            end = now_ns() + SPIN_NS;
        else if (now_ns() > end)
            break;
    }
    while (atomic_load_explicit(&w->value, memory_order_acquire) == old) {
        /*
         * Announce, then let the kernel compare again: either the changer sees the sleeper or the
         * futex sees the change.  Spurious returns only go round the loop.
         */
        atomic_fetch_add(&w->n_sleepers, 1);
        (void)syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
        atomic_fetch_sub(&w->n_sleepers, 1);
    }
}

static void word_next(struct word *w)
{
    atomic_fetch_add(&w->value, 1);
    if (atomic_load(&w->n_sleepers) > 0)
        (void)syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Counts a member in; the last one clears the count for the next time and moves the word on. */
static bool arrive(struct pool *p, atomic_uint *count, struct word *w)
{
    if (atomic_fetch_add(count, 1) + 1 < p->n)
        return false;
    atomic_store_explicit(count, 0, memory_order_relaxed);
    word_next(w);
    return true;
}

static void *worker_main(void *arg)
{
    struct worker *wk = arg;
    struct pool *p = wk->pool;

    for (uint32_t seen = 0;; seen++) {
        word_wait(&p->started, seen, p->spin);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->arg, wk->i_member);
        (void)arrive(p, &p->n_left, &p->ended);
    }
}

static uint32_t n_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    return 1;
}

int pool_new(uint32_t n_threads, struct pool **ret)
{
    struct pool *p;
    sigset_t all, old;
    int rc = 0;

    if (n_threads == 0)
        return -EINVAL;
    p = aligned_alloc(_Alignof(struct pool), sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct pool){.n = n_threads, .spin = n_threads <= n_processors()};
    p->workers = calloc(n_threads, sizeof(*p->workers));
    if (!p->workers) {
        free(p);
        return -ENOMEM;
    }

    /* Signals are the loop thread's: the workers inherit a full mask. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; p->n_started < n_threads - 1 && rc == 0; p->n_started += rc == 0) {
        struct worker *wk = &p->workers[p->n_started];

        wk->pool = p;
        wk->i_member = p->n_started + 1;
        rc = pthread_create(&wk->thread, NULL, worker_main, wk);
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        pool_free(p);
        return -rc;
    }
    for (uint32_t i = 0; i < p->n_started; i++)
        (void)pthread_setname_np(p->workers[i].thread, "strata-cpu");
    *ret = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    word_next(&p->started);
    for (uint32_t i = 0; i < p->n_started; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
}

uint32_t pool_size(const struct pool *p)
{
    return p->n;
}

void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t i_member), void *arg)
{
    uint32_t ended = atomic_load_explicit(&p->ended.value, memory_order_relaxed);

    p->fn = fn;
    p->arg = arg;
    if (p->n > 1)
        word_next(&p->started);
    fn(arg, 0);
    if (p->n > 1 && !arrive(p, &p->n_left, &p->ended))
        word_wait(&p->ended, ended, p->spin);
}

void pool_barrier(struct pool *p)
{
    uint32_t passed;

    if (p->n == 1)
        return;
    /* Read before arriving: afterwards it may already have moved. */
    passed = atomic_load_explicit(&p->passed.value, memory_order_relaxed);
    if (!arrive(p, &p->n_arrived, &p->passed))
        word_wait(&p->passed, passed, p->spin);
}

int pool_take(struct pool_counter *c, uint32_t n, uint32_t grain, uint32_t *ret_begin,
              uint32_t *ret_end)
{
    uint32_t begin;

    /* Looking first keeps the counter from running away (and round) however often it is asked. */
    if (atomic_load_explicit(&c->next, memory_order_relaxed) >= n)
        return 0;
    begin = atomic_fetch_add_explicit(&c->next, grain, memory_order_relaxed);
    if (begin >= n)
        return 0;
    *ret_begin = begin;
    *ret_end = n - begin < grain ? n : begin + grain;
    return 1;
}
