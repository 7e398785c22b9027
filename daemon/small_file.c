/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/small_file.h"

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int small_file_read(const char *path, struct buf *out, struct stat *ret_st, struct err_text *e)
{
    CLEANUP(close_p) int fd = -1;
    char shown[256];
    struct stat st;
    ssize_t n;
    int r;

    err_escape(shown, sizeof shown, path, strlen(path));
    /* O_NONBLOCK: a FIFO given by mistake must not hang the start. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", shown, err_str(-errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "%s: not a regular file", shown);
    do {
        char chunk[4096];

        n = read(fd, chunk, sizeof chunk);
        if (n < 0)
            return err_set(e, -errno, "%s: %s", shown, err_str(-errno));
        r = buf_add(out, chunk, (size_t)n);
        explicit_bzero(chunk, (size_t)n);
        if (r == ERR_CAPACITY)
            return err_set(e, r, "%s: larger than %zu bytes", shown, out->limit);
        if (r < 0)
            return err_set(e, r, "%s: %s", shown, err_str(r));
    } while (n > 0);
    if (ret_st)
        *ret_st = st;
    return 0;
}
