/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/decisions.h"

#include "daemon/request.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct decisions {
    /* Rings: number i lies at i modulo the size; n_made were put in since the start. */
    struct decision *kept[DECISIONS_KEPT]; /* one reference each */
    uint64_t n_made;
    struct decision_event events[DECISION_EVENTS_KEPT];
    uint64_t n_events;
    struct decision_totals totals;
};

const char *source_str(enum source s)
{
    switch (s) {
    case SOURCE_NONE:
        return "none";
    case SOURCE_SLOT:
        return "slot";
    case SOURCE_VRAM:
        return "vram";
    case SOURCE_RAM:
        return "ram";
    case SOURCE_DISK:
        return "disk";
    case SOURCE_BORROWED:
        return "borrowed";
    case SOURCE_JOINED:
        return "joined";
    case SOURCE_ROOT:
        return "root";
    }
    return "none";
}

const char *decision_why_str(enum decision_why w)
{
    switch (w) {
    case WHY_WAITING:
        return "nothing is decided yet";
    case WHY_LONGEST:
        return "the longest stored prefix";
    case WHY_READING_FASTER:
        return "a longer prefix is in ram, but copying it would take longer than reading";
    case WHY_NOTHING_STORED:
        return "no stored prefix that can be resumed";
    case WHY_CACHE_OFF:
        return "the cache is off, for the daemon or for this request";
    case WHY_NO_ROOM:
        return "there were no free pages for a longer prefix";
    case WHY_LOAD_FAILED:
        return "copying a longer prefix failed";
    }
    return "nothing is decided yet";
}

const char *decision_finish_str(int finish)
{
    switch (finish) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_CANCELLED:
        return "cancelled";
    case FINISH_ERROR:
        return "error";
    default:
        return "none";
    }
}

int decisions_new(struct decisions **ret)
{
    struct decisions *d = calloc(1, sizeof *d);

    if (!d)
        return -ENOMEM;
    *ret = d;
    return 0;
}

void decisions_free(struct decisions *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < DECISIONS_KEPT; i++)
        decision_unref(d->kept[i]);
    free(d);
}

struct decision *decision_new(struct decisions *d, uint64_t request, const char *name, uint32_t uid)
{
    struct decision *x = calloc(1, sizeof *x);
    struct decision **at = &d->kept[d->n_made % DECISIONS_KEPT];

    if (!x)
        return NULL;
    x->refs = 2;
    x->request = request;
    x->uid = uid;
    (void)snprintf(x->name, sizeof x->name, "%s", name);
    decision_unref(*at);
    *at = x;
    d->n_made++;
    return x;
}

void decision_unref(struct decision *x)
{
    if (x && --x->refs == 0)
        free(x);
}

void decision_settled(struct decisions *d, const struct decision *x)
{
    d->totals.requests++;
    if (x->is_switch)
        d->totals.switches++;
    else
        d->totals.continuations++;
    if (x->is_switch && x->is_hit)
        d->totals.hits++;
    if (x->is_switch && !x->is_hit)
        d->totals.misses++;
    d->totals.prompt_tokens += x->n_prompt;
    d->totals.reused_tokens += x->n_reused;
}

void decisions_event(struct decisions *d, const struct cache_event *e, uint64_t now)
{
    d->events[d->n_events++ % DECISION_EVENTS_KEPT] =
        (struct decision_event){.time_ns = now, .e = *e};
    if (e->kind != CACHE_EVICTED || e->cause == 0)
        return;
    for (size_t i = 0; i < DECISIONS_KEPT; i++)
        if (d->kept[i] && d->kept[i]->request == e->cause)
            d->kept[i]->n_evicted++;
}

const struct decision *decisions_find(const struct decisions *d, const char *id)
{
    const struct decision *x;
    uint64_t number;
    bool numeric = text_u64(id, &number) == 0;

    if (!*id)
        return NULL; /* not every decision has a name */
    for (uint32_t i = 0; (x = decisions_at(d, i)) != NULL; i++)
        if (numeric ? x->request == number : strcmp(x->name, id) == 0)
            return x;
    return NULL;
}

const struct decision *
decisions_find_seen(const struct decisions *d, const char *id,
                    bool (*may_see)(const struct decision *x, const void *arg), const void *arg)
{
    const struct decision *x = decisions_find(d, id);

    if (x && may_see(x, arg))
        return x;
    for (uint32_t i = 0; *id && (x = decisions_at(d, i)) != NULL; i++)
        if (strcmp(x->http_id, id) == 0 && may_see(x, arg))
            return x;
    return NULL;
}

const struct decision *decisions_at(const struct decisions *d, uint32_t i)
{
    if (i >= DECISIONS_KEPT || i >= d->n_made)
        return NULL;
    return d->kept[(d->n_made - 1 - i) % DECISIONS_KEPT];
}

const struct decision_event *decisions_event_at(const struct decisions *d, uint32_t i)
{
    if (i >= DECISION_EVENTS_KEPT || i >= d->n_events)
        return NULL;
    return &d->events[(d->n_events - 1 - i) % DECISION_EVENTS_KEPT];
}

uint32_t decision_events_of(const struct decisions *d, const struct decision *x,
                            const struct decision_event *ret[DECISION_EVENTS_TOLD])
{
    const struct decision_event *e;
    uint32_t n = 0;

    for (uint32_t i = 0; (e = decisions_event_at(d, i)) != NULL; i++) {
        if (e->e.cause != x->request)
            continue;
        if (n < DECISION_EVENTS_TOLD)
            ret[n] = e;
        n++;
    }
    return n;
}

void decisions_totals(const struct decisions *d, struct decision_totals *ret)
{
    *ret = d->totals;
}
