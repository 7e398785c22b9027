/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's watchdog, fed from real progress: only when the loop turns, and the engine
 * is idle or has ticked since the last beat.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_HEALTH_H
#define DAEMON_HEALTH_H

struct health;
struct server;

/* *ret is NULL when no watchdog is asked for.  0 or a negative errno. */
int health_new(struct server *s, struct health **ret);
void health_free(struct health *h);

#endif
