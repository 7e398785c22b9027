/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rates.h"

void rates_add(struct rates *r, struct rates_sample s)
{
    r->ring[r->next] = s;
    r->next = (r->next + 1) % RATES_WINDOW;
    if (r->n < RATES_WINDOW)
        r->n++;
}

void rates_get(const struct rates *r, struct rates_sample now, double *ret_prompt,
               double *ret_generated)
{
    const struct rates_sample *old = &r->ring[(r->next + RATES_WINDOW - r->n) % RATES_WINDOW];
    double s = r->n > 0 && now.ns > old->ns ? (double)(now.ns - old->ns) / 1e9 : 0;

    *ret_prompt = s > 0 ? (double)(now.prompt_tokens - old->prompt_tokens) / s : 0;
    *ret_generated = s > 0 ? (double)(now.generated_tokens - old->generated_tokens) / s : 0;
}
