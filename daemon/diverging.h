/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds clients whose prompts cannot be reused: something that changes each time stands near the
 * beginning, and all behind it is read again and again.  Nothing but the client can mend that, so
 * its operator is told once, with the position.
 *
 * A prompt diverges when it has less than a twentieth in common with everything that is stored and
 * with the client's own prompt before it (which may have been evicted: that is no fault of the
 * client).  Short prompts cost little and do not count.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_DIVERGING_H
#define DAEMON_DIVERGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIVERGING_MIN = 512, /* tokens of a prompt that counts */
    DIVERGING_ROW = 8,   /* so many of them one after the other make the word "keep" */
    DIVERGING_PART = 20, /* early: in the first such part of it */
};

struct diverging;

int diverging_new(struct diverging **ret); /* 0 or -ENOMEM */
void diverging_free(struct diverging *d);  /* NULL is fine */

/*
 * A prompt of the client `uid`, `salt` (NULL: none); n_common of it are stored.  True once for each
 * client, when its prompts keep diverging; *ret_pos is then where this one did.
 */
bool diverging_note(struct diverging *d, uint32_t uid, const char *salt, const int32_t *ids,
                    uint32_t n, uint32_t n_common, uint32_t *ret_pos);

#endif
