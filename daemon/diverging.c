/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/diverging.h"

#include "util/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More than a machine has; the one that was heard of longest ago makes room. */
enum { N_CLIENTS = 64 };

struct client {
    uint64_t key, used; /* used 0: empty */
    int32_t *head;      /* owned: the first part of its prompt before */
    uint32_t n_head, n_row;
    bool told;
};

struct diverging {
    uint64_t seed, now;
    struct client clients[N_CLIENTS];
};

int diverging_new(struct diverging **ret)
{
    struct diverging *d = calloc(1, sizeof *d);

    if (!d)
        return -ENOMEM;
    d->seed = hash_seed();
    *ret = d;
    return 0;
}

void diverging_free(struct diverging *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < N_CLIENTS; i++)
        free(d->clients[i].head);
    free(d);
}

static struct client *client_get(struct diverging *d, uint64_t key)
{
    struct client *oldest = &d->clients[0];

    for (size_t i = 0; i < N_CLIENTS; i++) {
        struct client *c = &d->clients[i];

        if (c->used > 0 && c->key == key)
            return c;
        if (c->used < oldest->used)
            oldest = c;
    }
    free(oldest->head);
    *oldest = (struct client){.key = key};
    return oldest;
}

/* Keeps the first part of the prompt; without memory for it there is one to compare less. */
static void keep_head(struct client *c, const int32_t *ids, uint32_t n)
{
    int32_t *head = reallocarray(c->head, n, sizeof *head);

    if (head)
        c->head = memcpy(head, ids, n * sizeof *head);
    c->n_head = head ? n : 0;
}

bool diverging_note(struct diverging *d, uint32_t uid, const char *salt, const int32_t *ids,
                    uint32_t n, uint32_t n_common, uint32_t *ret_pos)
{
    const uint32_t early = n / DIVERGING_PART;
    uint32_t same = 0;
    struct client *c;

    if (n < DIVERGING_MIN)
        return false;
    c = client_get(d,
                   hash_bytes(salt ? salt : "", salt ? strlen(salt) : 0, hash_u64(uid, d->seed)));
    c->used = ++d->now;
    while (same < c->n_head && same < early && c->head[same] == ids[same])
        same++;
    /* What was kept of a shorter prompt ended before a difference was seen. */
    if (n_common >= early || same >= early || (same > 0 && same == c->n_head))
        c->n_row = 0;
    else
        c->n_row++;
    keep_head(c, ids, early);
    if (c->told || c->n_row < DIVERGING_ROW)
        return false;
    c->told = true;
    *ret_pos = n_common > same ? n_common : same;
    return true;
}
