/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int terminal_init(struct terminal *t)
{
    static const int taken[] = {SIGINT, SIGTSTP, SIGWINCH, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;

    *t = (struct terminal){.signals = -1};
    t->has_input = tcgetattr(STDIN_FILENO, &t->usual) == 0;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        (void)sigaddset(&set, taken[i]);
    t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (t->signals < 0)
        return -errno;
    return sigprocmask(SIG_BLOCK, &set, &t->before) < 0 ? -errno : 0;
}

void terminal_done(struct terminal *t)
{
    if (t->signals < 0)
        return;
    (void)close(t->signals);
    if (t->ended_by)
        (void)raise(t->ended_by);
    (void)sigprocmask(SIG_SETMASK, &t->before, NULL);
}

static enum terminal_event next_signal(struct terminal *t)
{
    struct signalfd_siginfo s;

    if (read(t->signals, &s, sizeof s) != (ssize_t)sizeof s)
        return TERMINAL_READY;
    switch (s.ssi_signo) {
    case SIGINT:
        return TERMINAL_INTERRUPT;
    case SIGTSTP:
        return TERMINAL_SUSPEND;
    case SIGWINCH:
        return TERMINAL_RESIZE;
    default:
        t->ended_by = (int)s.ssi_signo;
        return TERMINAL_END;
    }
}

enum terminal_event terminal_wait(struct terminal *t, int fd, short events)
{
    struct pollfd p[2] = {{.fd = t->signals, .events = POLLIN}, {.fd = fd, .events = events}};
    enum terminal_event e;

    while (!t->ended_by) {
        if (poll(p, 2, -1) < 0)
            continue; /* EINTR: continued after a stop */
        e = p[0].revents ? next_signal(t) : TERMINAL_READY;
        if (e != TERMINAL_READY || p[1].revents)
            return e;
    }
    return TERMINAL_END;
}

void terminal_set_quiet(struct terminal *t, bool quiet)
{
    struct termios s = t->usual;

    if (!t->has_input || quiet == t->is_quiet)
        return;
    if (quiet)
        s.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s);
    t->is_quiet = quiet;
}

void terminal_suspend(struct terminal *t)
{
    bool quiet = t->is_quiet;

    terminal_set_quiet(t, false);
    (void)raise(SIGSTOP);
    terminal_set_quiet(t, quiet);
}

bool terminal_knows_escapes(FILE *f)
{
    const char *term = getenv("TERM");

    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}
