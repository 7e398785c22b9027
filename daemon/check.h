/* SPDX-License-Identifier: Apache-2.0 */
/* `strataD --check FILE`: would this model load, and what memory would it take. */
#ifndef DAEMON_CHECK_H
#define DAEMON_CHECK_H

#include <stdio.h>

struct options;

/*
 * Checks everything that loading checks and, beyond it, that every weight is finite; prints the
 * memory plan to `f` and what is wrong to the log.  The exit code: 0 or 78, as
 * when serving fails for the same reason.
 */
int check_model(const struct options *o, const char *path, FILE *f);

#endif
