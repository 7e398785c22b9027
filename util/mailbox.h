/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of messages between threads, with a descriptor that an event loop can watch.
 *
 * Any thread may put; one thread takes.  Messages are intrusive: embed a `struct mail` in what is
 * sent.  A message belongs to the sender until it is put and to the receiver once it is taken;
 * nothing in it may be touched in between.  Order is kept.  The queue itself never allocates, so
 * a put cannot fail; what bounds it is that its messages are.
 */
#ifndef UTIL_MAILBOX_H
#define UTIL_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>

struct mail {
    struct mail *next; /* owned by the mailbox while queued */
};

struct mailbox {
    pthread_mutex_t lock; /* held for a few instructions only */
    pthread_cond_t filled;
    struct mail *head, *tail;
    int fd;      /* eventfd, readable while mail waits; watched for EPOLLIN by the taker's loop */
    bool closed; /* after mailbox_close: wait returns NULL once empty */
};

/* 0 or a negative errno (no descriptor left). */
int mailbox_init(struct mailbox *m);
/* The queue must be empty and nobody may be using it. */
void mailbox_done(struct mailbox *m);

void mailbox_put(struct mailbox *m, struct mail *mail);

/* The oldest message, or NULL at once when there is none. */
struct mail *mailbox_take(struct mailbox *m);

/* The oldest message; sleeps until there is one.  NULL once the box is closed and empty. */
struct mail *mailbox_wait(struct mailbox *m);

/* No more mail will come: a waiter drains what is left and then gets NULL. */
void mailbox_close(struct mailbox *m);

#endif
