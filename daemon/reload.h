/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people write for the daemon and may change while it runs: the configuration and the keys,
 * read at the start and again on SIGHUP.  What cannot be used is logged and changes nothing.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

struct err_text;
struct server;

/* The keys for the first time, where "api_key_file" is set: s->keys.  0, or negative with `e`. */
int reload_open_keys(struct server *s, struct err_text *e);

/* Everything again, the configuration as the command line of the start says. */
void reload_run(struct server *s, int argc, char **argv);

#endif
