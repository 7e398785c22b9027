/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of stratactl share. */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <stdbool.h>
#include <stdio.h>

/* The exit codes, as stratactl(1) lists them. */
enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,      /* the daemon refused or the answer was an error */
    CTL_USAGE = 2,       /* the command line makes no sense */
    CTL_NOT_RUNNING = 3, /* nobody listens on the socket */
    CTL_PERMISSION = 4,  /* somebody does, but not for us */
};

struct ctl {
    const char *instance; /* -i, default "default" */
    const char *socket;   /* --socket: the control socket, or NULL */
    bool json;            /* --json */
    FILE *out, *err;
};

/* One command: its own arguments, without noun and verb.  Returns an exit code; everything has been
 * said. */
typedef int ctl_command(const struct ctl *c, int argc, char **argv);

struct ctl_verb {
    const char *noun, *verb, *arguments, *help;
    ctl_command *run;
};
/* The table, by index; NULL from the end on. */
const struct ctl_verb *ctl_verb(size_t i);

ctl_command cmd_status, cmd_slots_list, cmd_chat, cmd_complete, cmd_help;
ctl_command cmd_cache_list, cmd_cache_show, cmd_cache_stats, cmd_cache_evict, cmd_cache_clear;
ctl_command cmd_roots_list, cmd_roots_clear, cmd_roots_pin, cmd_roots_unpin;
ctl_command cmd_requests, cmd_explain;

/* The whole program. */
int ctl_run(int argc, char **argv, FILE *out, FILE *err);

/* "stratactl: ..." on c->err; returns `code`. */
int ctl_say(const struct ctl *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
