/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens per second over the last ten seconds, from counters that are sampled once a second.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_RATES_H
#define DAEMON_RATES_H

#include <stdint.h>

enum { RATES_WINDOW = 10 };

struct rates_sample {
    uint64_t ns; /* when */
    uint64_t prompt_tokens, generated_tokens;
};

/* Zero-initialised: no samples. */
struct rates {
    struct rates_sample ring[RATES_WINDOW];
    unsigned int n;    /* valid samples */
    unsigned int next; /* where the next one goes */
};

void rates_add(struct rates *r, struct rates_sample s);
/* From the oldest sample to `now`; 0 when there is none or no time has passed. */
void rates_get(const struct rates *r, struct rates_sample now, double *ret_prompt,
               double *ret_generated);

#endif
