/* SPDX-License-Identifier: Apache-2.0 */
/* One POST to the API socket and its answer, event by event when it is a stream. */
#ifndef CTL_API_CALL_H
#define CTL_API_CALL_H

#include "ctl/ctl.h"

#include <jansson.h>

struct buf;

/* The caller gave up before the answer was whole; no exit code. */
enum { API_STOPPED = -1 };

struct api_hooks {
    /* An event of the stream; at its end, however that comes, NULL before what is wrong is said. */
    void (*event)(void *arg, const json_t *event);
    /* Returns once `fd` is ready for `events` (poll(2)), or negative to give up.  NULL: nothing but
     * the daemon is waited for. */
    int (*wait)(void *arg, int fd, short events);
    void *arg;
};

/* The instance's API socket, or the one that the daemon at --socket names.  CTL_OK with the
 * descriptor; otherwise why not was said. */
int api_connect(const struct ctl *c, int *ret_fd);

/*
 * Asks and waits until the answer is whole.  An answer that is no stream is appended to `ret_body`.
 * CTL_OK; API_STOPPED; otherwise what is wrong was said.
 */
int api_call(const struct ctl *c, const char *path, const json_t *request,
             const struct api_hooks *hooks, struct buf *ret_body);

#endif
