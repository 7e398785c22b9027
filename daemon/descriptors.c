/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/descriptors.h"

#include <sys/resource.h>

enum {
    PER_CONNECTION = 2, /* its socket, and the duplicate that is watched while it waits */
    RESERVED = 192, /* 64 control connections and those just accepted; epolls, timers, listeners,
                       the model, the log, files that a reload opens */
};

uint32_t descriptors_reserve(size_t n_listeners, uint32_t most)
{
    struct rlimit r;
    rlim_t want, left;

    if (n_listeners == 0)
        n_listeners = 1;
    want = RESERVED + (rlim_t)PER_CONNECTION * most * n_listeners;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return most;
    /* RLIM_INFINITY is the largest value of its type. */
    if (r.rlim_cur < want) {
        const rlim_t was = r.rlim_cur;

        r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) < 0)
            r.rlim_cur = was;
    }
    left = r.rlim_cur > RESERVED ? r.rlim_cur - RESERVED : 0;
    left /= PER_CONNECTION * n_listeners;
    if (left > most)
        return most;
    return left > 0 ? (uint32_t)left : 1;
}
