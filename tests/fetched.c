/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fetched.h"

#include "tests/golden.h"
#include "util/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { SKIPPED = 77 };

static char folder[4096];

int fetched_folder(const char *program)
{
    const char *given = getenv("STRATA_TEMPLATES"), *build = getenv("BUILDDIR");
    char command[9000];
    int status;

    if (given) {
        (void)snprintf(folder, sizeof(folder), "%s", given);
        return 0;
    }
    (void)snprintf(folder, sizeof(folder), "%s/tests/templates", build ? build : ".");
    (void)snprintf(command, sizeof(command), "python3 '%s' '%s'", golden_path("fetch-templates"),
                   folder);
    status = system(command);
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    /* 127: there is no python3. */
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) != SKIPPED &&
        WEXITSTATUS(status) != 127)
        return EXIT_FAILURE;
    (void)fprintf(stderr, "%s: SKIPPED: its files could not be fetched\n", program);
    return SKIPPED;
}

static int add_path(struct buf *out, const char *fmt, va_list ap)
{
    char name[256];
    int n = vsnprintf(name, sizeof(name), fmt, ap);

    return n < 0 || (size_t)n >= sizeof(name) ? -EINVAL : buf_addf(out, "%s/%s", folder, name);
}

int fetched_path(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = add_path(out, fmt, ap);
    va_end(ap);
    return r;
}

int fetched_read(struct buf *out, const char *fmt, ...)
{
    struct buf path = {0};
    FILE *f = NULL;
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = add_path(&path, fmt, ap);
    va_end(ap);
    if (r >= 0) {
        f = fopen(path.data, "re");
        r = f ? 0 : -errno;
    }
    while (r >= 0) {
        char room[4096];
        size_t n = fread(room, 1, sizeof(room), f);

        if (n == 0)
            break;
        r = buf_add(out, room, n);
    }
    if (f)
        (void)fclose(f);
    buf_done(&path);
    return r < 0 ? r : 0;
}
