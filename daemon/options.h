/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of strataD: one table (options.def), from which everything about them derives.
 *
 * Owner: the main thread until the server runs, constant after that.
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include "util/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_flags {
    OPTION_RELOADABLE = 1 << 0,     /* can change while the daemon runs */
    OPTION_ARGV_ONLY = 1 << 1,      /* not in the file */
    OPTION_NULL_IS_ABSENT = 1 << 2, /* JSON null leaves the default */
    OPTION_IS_NAME = 1 << 3,        /* becomes part of a path: letters, digits, '_', '-', '.' */
    OPTION_IS_LIST = 1 << 4,        /* of texts; as one text, separated by commas */
};

enum option_type { OPTION_STRING, OPTION_CHOICE, OPTION_UINT, OPTION_BOOL, OPTION_LATER };

/* The default of a number whose 0 means something, when the program decides. */
#define OPTION_DECIDE UINT32_MAX

/* One line of options.def. */
struct option_spec {
    const char *name; /* the JSON key */
    enum option_type type;
    unsigned int flags;
    size_t offset; /* of its field in struct options: char *, const char *, uint32_t, bool; none for
                      LATER */
    const char *argument; /* for --help */
    const char *words;    /* the default in words; NULL: the value itself */
    const char *help;
    uint32_t def, min, max; /* UINT; BOOL uses def */
    const char *choices;    /* CHOICE: "a|b|c"; the first word of `words` when it is the default */
    const char *later;      /* CHOICE: values that are refused by name, "x|y" */
    const char *comes_with; /* what a refused value or setting will come with */
    const char *off;        /* LATER: the one value that is accepted, since it asks for nothing */
};

/* The values.  Strings are owned; a choice points into options.c. */
struct options {
#define OPTION_STRING(field, ...) char *field;
#define OPTION_CHOICE(field, ...) const char *field;
#define OPTION_UINT(field, ...)   uint32_t field;
#define OPTION_BOOL(field, ...)   bool field;
#define OPTION_LATER(field, ...)
#include "daemon/options.def"
#undef OPTION_STRING
#undef OPTION_CHOICE
#undef OPTION_UINT
#undef OPTION_BOOL
#undef OPTION_LATER
};

/* What the command line asks for besides settings. */
struct options_argv {
    const char *config; /* --config FILE, borrowed from argv, or NULL */
    const char *check;  /* --check FILE */
    bool help, version;
};

/* A value before its setting is known, as JSON or a command line gives it. */
struct option_value {
    enum option_value_kind {
        VALUE_NULL,
        VALUE_BOOL,
        VALUE_INT,
        VALUE_REAL,
        VALUE_TEXT,
        VALUE_OTHER
    } kind;
    bool b;
    int64_t i;
    double d;
    const char *s; /* VALUE_TEXT; VALUE_OTHER: the words for what it is ("an array") */
};

/* The table, by index; NULL from the end on. */
const struct option_spec *options_spec(size_t i);
const struct option_spec *options_find(const char *name);
/* The known key that was probably meant, or NULL. */
const struct option_spec *options_nearest(const char *name);

/* Defaults.  0 or -ENOMEM. */
int options_init(struct options *o);
void options_done(struct options *o);

/*
 * Sets one.  0, -ENOMEM, or with `e` saying what it takes (the caller says where it stood): -EINVAL
 * wrong type or malformed, -ERANGE out of range, ERR_UNSUPPORTED for later work.  Nothing changes
 * on failure.
 */
int options_set(struct options *o, const struct option_spec *spec, const struct option_value *v,
                struct err_text *e);

/* What no setting can say alone: "listen" needs "api_key_file".  0, or -EINVAL with `e`. */
int options_check(const struct options *o, struct err_text *e);

/* Whether the values of `spec` are the same in both. */
bool options_equal(const struct option_spec *spec, const struct options *a,
                   const struct options *b);

/*
 * Reads a command line: finds --config first and has the file read (config.c), then sets what the
 * line itself says, which wins, and checks the whole. 0, or negative with `e`.
 */
int options_read_argv(struct options *o, int argc, char **argv, struct options_argv *ret,
                      struct err_text *e);

void options_print_help(FILE *f);

#endif
