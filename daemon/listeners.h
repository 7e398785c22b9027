/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that strataD listens on: handed over by the service manager, or made here.
 *
 * From the manager: stream sockets named "api" or "control" (FileDescriptorName=), or by the units'
 * own names; "api" may be TCP too, where clients need keys.  Made here: api.sock and control.sock
 * in the runtime directory of the instance (paths.h), or where the options say, and TCP as "listen"
 * says (tcp_listen.h).  A socket file that a dead process left is replaced, a live one is refused.
 *
 * Owner: the main thread.
 */
#ifndef DAEMON_LISTENERS_H
#define DAEMON_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err_text;
struct options;

enum { LISTENERS_MAX = 8 };

/* A socket with a name in the file system, or TCP. */
struct listener {
    int fd;
    char path[108]; /* TCP: address and port */
    bool is_tcp;
    bool is_remote; /* TCP that other machines may reach */
    bool is_ours;   /* made here: its file goes away at the end, if it is still this one */
    dev_t dev;
    ino_t ino;
};

struct listeners {
    struct listener api[LISTENERS_MAX];
    size_t n_api;
    struct listener control;
    size_t n_control; /* 0 or 1 */
};

/* Takes what the manager passed and makes what is missing.  0 or negative with `e`; then nothing is
 * open. */
int listeners_open(const struct options *o, struct listeners *ret, struct err_text *e);
void listeners_close(struct listeners *l);

/*
 * Binds and listens on one path, mode 0660.  0; -EADDRINUSE when somebody serves there or something
 * else lies there; or another negative errno, with `e`.
 */
int listener_bind(const char *path, struct listener *ret, struct err_text *e);
/* Makes <base>/strata/<name> (0755 for the system, 0700 for a user), following no link.  0 or
 * negative with `e`. */
int listener_make_dirs(const char *base, const char *name, bool system, struct err_text *e);

#endif
