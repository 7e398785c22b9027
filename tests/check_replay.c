/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a small dense model and gives it to check_replay.py, which says what is tested.  Exits 77,
 * saying why, without python3.
 */
#include "tests/mkmodel.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    const struct mkmodel dense = {.family = "llama", .n_context = 16384, .seed = 9};
    const char *src = getenv("SRCDIR");
    char model[] = "/tmp/strata_dense_XXXXXX", script[4096];
    int status, fd;
    pid_t pid;

    if (system("python3 -c pass >/dev/null 2>&1") != 0) { /* NOLINT */
        (void)fprintf(stderr, "SKIPPED: check_replay needs python3\n");
        return 77;
    }
    (void)snprintf(script, sizeof script, "%s/tests/check_replay.py", src ? src : ".");
    fd = mkstemp(model);
    if (fd < 0 || mkmodel_write(&dense, model) < 0) {
        perror("check_replay: the model");
        return 99;
    }
    (void)close(fd);
    pid = fork();
    if (pid == 0) {
        (void)execlp("python3", "python3", "-B", script, model, (char *)NULL);
        _exit(99);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        status = 99;
    (void)unlink(model);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
