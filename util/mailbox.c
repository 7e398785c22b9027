/* SPDX-License-Identifier: Apache-2.0 */
#include "util/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *m)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;

    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_cond_init(&m->filled, NULL);
    m->head = m->tail = NULL;
    m->fd = fd;
    m->closed = false;
    return 0;
}

void mailbox_done(struct mailbox *m)
{
    assert(!m->head);
    (void)close(m->fd);
    m->fd = -1;
    (void)pthread_cond_destroy(&m->filled);
    (void)pthread_mutex_destroy(&m->lock);
}

void mailbox_put(struct mailbox *m, struct mail *mail)
{
    const uint64_t one = 1;

    mail->next = NULL;
    (void)pthread_mutex_lock(&m->lock);
    if (m->tail) {
        m->tail->next = mail;
    } else {
        m->head = mail;
        /* Only the step from empty to filled needs a wake-up; an eventfd cannot be full at 1. */
        (void)!write(m->fd, &one, sizeof one);
        (void)pthread_cond_signal(&m->filled);
    }
    m->tail = mail;
    (void)pthread_mutex_unlock(&m->lock);
}

/* With the lock held. */
static struct mail *pop(struct mailbox *m)
{
    struct mail *mail = m->head;
    uint64_t n;

    if (!mail)
        return NULL;
    m->head = mail->next;
    if (!m->head) {
        m->tail = NULL;
        (void)!read(m->fd, &n, sizeof n);
    }
    mail->next = NULL;
    return mail;
}

struct mail *mailbox_take(struct mailbox *m)
{
    struct mail *mail;

    (void)pthread_mutex_lock(&m->lock);
    mail = pop(m);
    (void)pthread_mutex_unlock(&m->lock);
    return mail;
}

struct mail *mailbox_wait(struct mailbox *m)
{
    struct mail *mail;

    (void)pthread_mutex_lock(&m->lock);
    while (!m->head && !m->closed)
        (void)pthread_cond_wait(&m->filled, &m->lock);
    mail = pop(m);
    (void)pthread_mutex_unlock(&m->lock);
    return mail;
}

void mailbox_close(struct mailbox *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->closed = true;
    (void)pthread_cond_broadcast(&m->filled);
    (void)pthread_mutex_unlock(&m->lock);
}
