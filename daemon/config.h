/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: one JSON object whose keys are the settings of options.def.
 *
 * Every refusal names file, line and key.  Nothing of the file is used when any of it is refused.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stddef.h>

struct err_text;
struct options;

enum {
    CONFIG_MAX_BYTES = 1 << 20, /* a configuration has 30 keys */
};

/* Reads `path` into `o`.  0; -EINVAL, -ERANGE, ERR_UNSUPPORTED, ERR_CAPACITY, -ENOMEM or what
 * opening gave, with `e`. */
int config_read(struct options *o, const char *path, struct err_text *e);

/* The same for bytes in memory; `name` stands for the file in messages. */
int config_read_bytes(struct options *o, const char *name, const char *s, size_t n,
                      struct err_text *e);

#endif
