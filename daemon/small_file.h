/* SPDX-License-Identifier: Apache-2.0 */
/* Files that people write for us, read whole: configuration and keys. */
#ifndef DAEMON_SMALL_FILE_H
#define DAEMON_SMALL_FILE_H

#include <stddef.h>

struct buf;
struct err_text;
struct stat;

/*
 * Appends the regular file `path` to `out`, which holds at most out->limit bytes; *ret_st (may be
 * NULL) is what was opened.  0; ERR_CAPACITY past the limit, -EINVAL for what is no file, or what
 * opening gave, with `e` naming the file.
 */
int small_file_read(const char *path, struct buf *out, struct stat *ret_st, struct err_text *e);

#endif
