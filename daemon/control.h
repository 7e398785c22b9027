/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: Varlink (org.varlink.service and io.strata.Control) over the server's state.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_CONTROL_H
#define DAEMON_CONTROL_H

struct control;
struct server;

/* `fd` is a listening AF_UNIX socket, borrowed until control_free.  0 or a negative errno. */
int control_new(struct server *s, int fd, struct control **ret);
void control_free(struct control *c);

/* What a timer does once a second: counters for the rates, clients that stalled.  Tests call it
 * themselves. */
void control_tick(struct control *c);

#endif
