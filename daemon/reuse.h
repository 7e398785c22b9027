/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache over the loaded engine: made from the options, told its limits, its losses noted and
 * journalled.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_REUSE_H
#define DAEMON_REUSE_H

struct err_text;
struct options;
struct sched_options;
struct server;

/*
 * Makes server.decisions, and with "cache" server.arena and server.cache over server.engine.  The
 * share of memory that nobody set is of server.available.  0 or negative with `e`; reuse_close
 * frees what was made.
 */
int reuse_open(struct server *s, struct err_text *e);
/* After the scheduler is gone. */
void reuse_close(struct server *s);
/* What a scheduler needs to know of it. */
void reuse_describe(const struct server *s, struct sched_options *o);
/* The options were read again: those of the cache that may change live take effect. */
void reuse_apply(struct server *s, const struct options *o);

#endif
