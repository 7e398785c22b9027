/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a test fetches: what tests/data/fetch-templates leaves in a folder. */
#ifndef TESTS_FETCHED_H
#define TESTS_FETCHED_H

struct buf;

/*
 * Fetches what is not there, or takes the folder that STRATA_TEMPLATES names.  0, or the exit
 * status of `program`: 77 (skipped, it says so) without network, 1 when what came is not what it
 * should be.
 */
int fetched_folder(const char *program);

/* A file of that folder: its path, or its bytes and a NUL.  0 or negative. */
int fetched_path(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int fetched_read(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
