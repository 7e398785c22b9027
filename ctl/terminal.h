/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals and settings of the terminal during a chat.  Signals are blocked and come as events of
 * terminal_wait(), so nothing is ever interrupted half way and the terminal is left as it was.
 */
#ifndef CTL_TERMINAL_H
#define CTL_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

enum terminal_event {
    TERMINAL_READY,     /* the descriptor */
    TERMINAL_INTERRUPT, /* Ctrl-C */
    TERMINAL_SUSPEND,   /* Ctrl-Z: terminal_suspend() */
    TERMINAL_RESIZE,
    TERMINAL_END, /* the process shall end; terminal_done() sees to it */
};

struct terminal {
    int signals;  /* owned: signalfd */
    int ended_by; /* the signal of TERMINAL_END, 0: none */
    sigset_t before;
    struct termios usual; /* of standard input */
    bool has_input;       /* standard input is a terminal */
    bool is_quiet;
};

/* 0 or a negative errno. */
int terminal_init(struct terminal *t);
/* Unblocks the signals; one that ended the chat ends the process here. */
void terminal_done(struct terminal *t);

/* Waits for a signal, or for `fd` to be ready for `events` of poll(2). */
enum terminal_event terminal_wait(struct terminal *t, int fd, short events);
/* Stops the process until it is continued, not quiet meanwhile. */
void terminal_suspend(struct terminal *t);

/* Quiet: what is typed is neither shown nor cut into lines, and waits for the next prompt. */
void terminal_set_quiet(struct terminal *t, bool quiet);

/* Whether `f` is a terminal, and more than a dumb one. */
bool terminal_knows_escapes(FILE *f);

#endif
