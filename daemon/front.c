/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs go to the threads through one queue under a lock, and come back through a mailbox that the
 * loop watches.  (A mailbox has one taker; here several threads take.)
 */
#include "daemon/front.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <systemd/sd-event.h>

struct front {
    sd_event_source *source;   /* owned: watches done.fd */
    struct mailbox done;       /* finished jobs, for the loop */
    unsigned int n_unfinished; /* submitted, `done` not called yet; loop thread */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t filled;
    struct mail *head, *tail;
    bool closed;

    unsigned int n_threads;
    pthread_t threads[]; /* [n_threads] */
};

static void *front_thread(void *arg)
{
    struct front *f = arg;

    for (;;) {
        struct front_job *j;

        (void)pthread_mutex_lock(&f->lock);
        while (!f->head && !f->closed)
            (void)pthread_cond_wait(&f->filled, &f->lock);
        /* `mail` is its first member. */
        j = (struct front_job *)f->head;
        if (j) {
            f->head = j->mail.next;
            if (!f->head)
                f->tail = NULL;
        }
        (void)pthread_mutex_unlock(&f->lock);

        if (!j)
            return NULL;
        j->work(j);
        mailbox_put(&f->done, &j->mail);
    }
}

/* `done` may submit another job, or free this one. */
static bool finish_one(struct front *f, struct mail *mail)
{
    struct front_job *j = (struct front_job *)mail;

    if (!j)
        return false;
    f->n_unfinished--;
    j->done(j);
    return true;
}

/* One job a turn, so that a burst of bodies does not keep the loop from everything else. */
static int on_done(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct front *f = arg;

    (void)source;
    (void)fd;
    (void)revents;
    (void)finish_one(f, mailbox_take(&f->done));
    return 0;
}

static void join_threads(struct front *f)
{
    (void)pthread_mutex_lock(&f->lock);
    f->closed = true;
    (void)pthread_cond_broadcast(&f->filled);
    (void)pthread_mutex_unlock(&f->lock);
    for (unsigned int i = 0; i < f->n_threads; i++)
        (void)pthread_join(f->threads[i], NULL);
    f->n_threads = 0;
}

int front_new(sd_event *event, unsigned int n_threads, struct front **ret)
{
    struct front *f;
    int rc;

    assert(n_threads > 0);
    f = calloc(1, sizeof *f + n_threads * sizeof f->threads[0]);
    if (!f)
        return -ENOMEM;
    rc = mailbox_init(&f->done);
    if (rc < 0) {
        free(f);
        return rc;
    }
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->filled, NULL);

    rc = sd_event_add_io(event, &f->source, f->done.fd, EPOLLIN, on_done, f);
    while (rc >= 0 && f->n_threads < n_threads) {
        rc = -pthread_create(&f->threads[f->n_threads], NULL, front_thread, f);
        if (rc == 0)
            f->n_threads++;
    }
    if (rc < 0) {
        front_free(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void front_free(struct front *f)
{
    if (!f)
        return;
    while (f->n_unfinished > 0)
        (void)finish_one(f, mailbox_wait(&f->done));
    join_threads(f);
    (void)sd_event_source_disable_unref(f->source);
    mailbox_done(&f->done);
    (void)pthread_cond_destroy(&f->filled);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

void front_submit(struct front *f, struct front_job *j)
{
    f->n_unfinished++;
    j->mail.next = NULL;
    (void)pthread_mutex_lock(&f->lock);
    if (f->tail)
        f->tail->next = &j->mail;
    else
        f->head = &j->mail;
    f->tail = &j->mail;
    (void)pthread_cond_signal(&f->filled);
    (void)pthread_mutex_unlock(&f->lock);
}
