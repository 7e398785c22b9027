/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long strataD takes from exec to READY=1, as a service manager sees it.
 *
 *     bench_ready [--threads N] [--rounds N] STRATAD MODEL.gguf
 *
 * The first start, which may find the file outside of the page cache, is not counted.  Prints one
 * row of the CSV of bench_engine, in seconds, without its header.
 */
#include "util/clock.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_ROUNDS = 100,
    WAIT_S = 60, /* for READY, and for the end after SIGTERM */
};

struct bench {
    const char *daemon, *model, *threads;
    char dir[64]; /* of the sockets and the log; removed at the end */
    char notify[96], api[96], control[96], log[96];
    int fd; /* bound to `notify` */
};

static int failed(const char *what)
{
    const int code = errno ? -errno : -EIO;

    (void)fprintf(stderr, "bench_ready: %s: %s\n", what, strerror(-code));
    return code;
}

static int begin(struct bench *b)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    (void)strcpy(b->dir, "/tmp/strata-ready-XXXXXX");
    if (!mkdtemp(b->dir))
        return failed("a folder in /tmp");
    (void)snprintf(b->notify, sizeof b->notify, "%s/notify", b->dir);
    (void)snprintf(b->api, sizeof b->api, "%s/api.sock", b->dir);
    (void)snprintf(b->control, sizeof b->control, "%s/control.sock", b->dir);
    (void)snprintf(b->log, sizeof b->log, "%s/log", b->dir);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", b->notify);
    b->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (b->fd < 0 || bind(b->fd, (struct sockaddr *)&to, sizeof to) < 0)
        return failed(b->notify);
    return 0;
}

static void end(struct bench *b)
{
    if (b->fd >= 0)
        (void)close(b->fd);
    (void)unlink(b->notify);
    (void)unlink(b->api);
    (void)unlink(b->control);
    (void)unlink(b->log);
    (void)rmdir(b->dir);
}

static void print_log(const struct bench *b)
{
    FILE *f = fopen(b->log, "re");
    char line[1024];

    while (f && fgets(line, sizeof line, f))
        (void)fputs(line, stderr);
    if (f)
        (void)fclose(f);
}

static pid_t start(const struct bench *b)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (setenv("NOTIFY_SOCKET", b->notify, 1) == 0 && freopen(b->log, "w", stderr) &&
        dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        (void)execl(b->daemon, b->daemon, "--model", b->model, "--threads", b->threads,
                    "--api-socket", b->api, "--control-socket", b->control, (char *)NULL);
    _exit(127);
}

/* 1 once READY=1 has come, 0 when the daemon ended before, negative on a fault or after WAIT_S. */
static int wait_ready(const struct bench *b, pid_t pid)
{
    const uint64_t begin_ns = clock_ns();
    char text[4096];

    while (clock_ms_since(begin_ns) < WAIT_S * 1e3) {
        struct pollfd p = {.fd = b->fd, .events = POLLIN};
        ssize_t n;

        if (poll(&p, 1, 100) < 0)
            return failed("poll");
        if (p.revents == 0 && waitpid(pid, NULL, WNOHANG) == pid)
            return 0; /* it failed: what it says is in the log */
        if (p.revents == 0)
            continue;
        n = recv(b->fd, text, sizeof text - 1, 0);
        if (n < 0)
            return failed("the notification socket");
        text[n] = '\0';
        if (strncmp(text, "READY=1", 7) == 0 || strstr(text, "\nREADY=1"))
            return 1;
    }
    errno = ETIMEDOUT;
    return failed("READY=1");
}

/* Ends the daemon and throws away what it said; it must end well, and soon. */
static int stop(const struct bench *b, pid_t pid)
{
    const uint64_t begin_ns = clock_ns();
    char text[4096];
    int status = -1;
    pid_t ended;

    (void)kill(pid, SIGTERM);
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && clock_ms_since(begin_ns) < WAIT_S * 1e3)
        (void)poll(NULL, 0, 5);
    if (ended == 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    while (recv(b->fd, text, sizeof text, MSG_DONTWAIT) >= 0)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    errno = ended == 0 ? ETIMEDOUT : EIO;
    return failed("its end after SIGTERM");
}

static int one_start(const struct bench *b, double *ret_s)
{
    const uint64_t begin_ns = clock_ns();
    const pid_t pid = start(b);
    double s;
    int r;

    if (pid < 0)
        return failed("fork");
    r = wait_ready(b, pid);
    s = clock_ms_since(begin_ns) * 1e-3;
    if (r == 0) {
        errno = ECHILD;
        return failed("it ended before READY=1");
    }
    if (r < 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return r;
    }
    r = stop(b, pid);
    if (r == 0)
        *ret_s = s;
    return r;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int measure(const struct bench *b, uint32_t n)
{
    double seconds[MAX_ROUNDS + 1];
    const char *slash = strrchr(b->model, '/'), *name = slash ? slash + 1 : b->model;
    const char *dot = strrchr(name, '.');
    int r = 0;

    for (uint32_t i = 0; i <= n && r == 0; i++)
        r = one_start(b, &seconds[i]);
    if (r < 0) {
        print_log(b);
        return r;
    }
    qsort(seconds + 1, n, sizeof seconds[0], ascending);
    printf("%.*s,ready,%s,,%u,s,%.4f,%.4f,%.4f,,,,\n",
           (int)(dot ? (size_t)(dot - name) : strlen(name)), name, b->threads, n,
           seconds[1 + n / 2], seconds[n], seconds[1]);
    (void)fprintf(stderr, "%s: READY %.3f s after exec (%.3f-%.3f)\n", b->model, seconds[1 + n / 2],
                  seconds[1], seconds[n]);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    struct bench b = {.threads = "2", .fd = -1};
    long n = 5;
    int c, r;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 't')
            b.threads = optarg;
        else if (c == 'r')
            n = strtol(optarg, NULL, 10);
        else
            n = 0;
    }
    if (argc - optind != 2 || n < 1 || n > MAX_ROUNDS) {
        (void)fprintf(stderr, "usage: bench_ready [--threads N] [--rounds N] STRATAD MODEL.gguf\n");
        return EXIT_FAILURE;
    }
    b.daemon = argv[optind];
    b.model = argv[optind + 1];
    r = begin(&b);
    if (r == 0)
        r = measure(&b, (uint32_t)n);
    end(&b);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
