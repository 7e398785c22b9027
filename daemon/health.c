/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/health.h"

#include "daemon/log.h"
#include "daemon/sched.h"
#include "daemon/server.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

struct health {
    struct server *server; /* borrowed */
    sd_event_source *beat; /* owned */
    uint64_t interval_us;
    bool stuck; /* said so already */
};

static int on_beat(sd_event_source *s, uint64_t usec, void *arg)
{
    struct health *h = arg;
    bool alive = !h->server->sched || sched_is_alive(h->server->sched);

    if (alive)
        (void)sd_notify(0, "WATCHDOG=1");
    else if (!h->stuck)
        log_event(LOG_WARNING, LOG_EVENT_STUCK, NULL,
                  "the engine makes no progress; the watchdog will end this process if that lasts");
    h->stuck = !alive;
    /* From now, not from when it was due: a loop that was late must not beat several times in a
     * row. */
    (void)sd_event_now(sd_event_source_get_event(s), CLOCK_MONOTONIC, &usec);
    (void)sd_event_source_set_time(s, usec + h->interval_us);
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

int health_new(struct server *s, struct health **ret)
{
    uint64_t limit_us = 0, now;
    struct health *h;
    int r;

    r = sd_watchdog_enabled(0, &limit_us);
    if (r <= 0) {
        *ret = NULL;
        return r;
    }
    h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->server = s;
    /* A third: one beat may be withheld (a step longer than the interval) without being shot. */
    h->interval_us = limit_us / 3 > 0 ? limit_us / 3 : 1;
    r = sd_event_now(s->event, CLOCK_MONOTONIC, &now);
    if (r >= 0)
        r = sd_event_add_time(s->event, &h->beat, CLOCK_MONOTONIC, now, h->interval_us / 10,
                              on_beat, h);
    if (r < 0) {
        health_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void health_free(struct health *h)
{
    if (!h)
        return;
    sd_event_source_disable_unref(h->beat);
    free(h);
}
