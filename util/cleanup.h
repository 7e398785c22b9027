/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope-bound ownership: a local marked CLEANUP(fn) is given to fn(&local) when its scope ends,
 * and TAKE(p) hands a pointer over, leaving NULL behind.
 */
#ifndef UTIL_CLEANUP_H
#define UTIL_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) take_ = (p);                                                                 \
        (p) = NULL;                                                                                \
        take_;                                                                                     \
    })

/* For CLEANUP on any malloc'ed pointer. */
static inline void free_p(void *pp)
{
    free(*(void **)pp);
}

/* For CLEANUP on a file descriptor, -1 when there is none. */
static inline void close_p(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

/* Hands a descriptor over, leaving -1 behind. */
static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#endif
