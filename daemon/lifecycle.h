/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of strataD: listen, load, serve, stop.
 *
 * Owner: the main thread, which becomes the loop thread.
 */
#ifndef DAEMON_LIFECYCLE_H
#define DAEMON_LIFECYCLE_H

struct options;

enum {
    EXIT_CODE_CONFIG =
        78, /* EX_CONFIG: another try would end the same way; units/ keep the manager from it */
};

struct lifecycle_result {
    int code;   /* for exit */
    int abrupt; /* 1: leave by _exit, threads may still run: a second signal asked for the end at
                   once, or the event loop failed */
};

/* How to read the settings again on SIGHUP: the command line of the process. */
struct lifecycle_argv {
    int argc;
    char **argv;
};

/* Process-wide things that must be so before any file exists: umask, no core dumps, no SIGPIPE.  0
 * or a negative errno. */
int lifecycle_prepare(void);

/* Runs until the end.  `o` has a model. */
struct lifecycle_result lifecycle_run(const struct options *o, const struct lifecycle_argv *argv);

#endif
