/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int units_init(struct units *u, uint32_t n)
{
    uint32_t *refs = calloc(n ? n : 1, sizeof *refs);
    uint32_t *free_stack = calloc(n ? n : 1, sizeof *free_stack);

    if (!refs || !free_stack) {
        free(refs);
        free(free_stack);
        return -ENOMEM;
    }
    /* Low numbers first, so that a pool that is never full stays in few pages of memory. */
    for (uint32_t i = 0; i < n; i++)
        free_stack[i] = n - 1 - i;
    *u = (struct units){.n = n, .n_free = n, .refs = refs, .free = free_stack};
    return 0;
}

void units_done(struct units *u)
{
    free(u->refs);
    free(u->free);
    *u = (struct units){0};
}

int units_take(struct units *u, uint32_t n, uint32_t *ret)
{
    if (n > u->n_free)
        return -ENOSPC;

    for (uint32_t i = 0; i < n; i++) {
        ret[i] = u->free[--u->n_free];
        u->refs[ret[i]] = 1;
    }
    return 0;
}

void units_ref(struct units *u, uint32_t unit)
{
    assert(unit < u->n && u->refs[unit] > 0);
    u->refs[unit]++;
}

void units_unref(struct units *u, uint32_t unit)
{
    assert(unit < u->n && u->refs[unit] > 0);
    if (--u->refs[unit] == 0)
        u->free[u->n_free++] = unit;
}

bool units_is_sane(const struct units *u)
{
    uint32_t n_unused = 0;

    if (u->n_free > u->n)
        return false;
    for (uint32_t i = 0; i < u->n; i++)
        n_unused += u->refs[i] == 0;
    if (n_unused != u->n_free)
        return false;
    for (uint32_t i = 0; i < u->n_free; i++)
        if (u->free[i] >= u->n || u->refs[u->free[i]] != 0)
            return false;
    return true;
}
