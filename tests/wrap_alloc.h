/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a test program allocates and makes allocations fail.  Link with
 * $(LINK_WRAPPED); sees the calls of our own objects (not those inside libc or other
 * libraries).  One thread.
 */
#ifndef TESTS_WRAP_ALLOC_H
#define TESTS_WRAP_ALLOC_H

#include <stddef.h>

/* Bytes asked for since the program started; freeing does not lower it. */
size_t wrap_alloc_total(void);

/* After n more allocations every further one fails; n < 0: none does. */
void wrap_alloc_fail_after(long n);

#endif
