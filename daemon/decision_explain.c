/* SPDX-License-Identifier: Apache-2.0 */
/* decision_explain: one request as a story, a line for each part of its prompt and each outcome. */
#include "daemon/decisions.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct story {
    struct buf *out;
    const struct decision *x;
    int r; /* the first error */
};

/* Every line here is words of ours and numbers, so it fits. */
static void __attribute__((format(printf, 2, 3))) line(struct story *s, const char *fmt, ...)
{
    char room[400];
    va_list ap;

    if (s->r < 0)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(room, sizeof room, fmt, ap);
    va_end(ap);
    s->r = buf_addf(s->out, "%s\n", room);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

struct size_text {
    char s[24];
};

static struct size_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    struct size_text t;
    size_t i = 0;

    for (; v >= 1024 && i < 4; i++)
        v /= 1024;
    (void)snprintf(t.s, sizeof t.s, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
    return t;
}

static void tell_kind(struct story *s)
{
    const struct decision *x = s->x;

    if (!x->is_switch)
        line(s,
             "a continuation: the conversation that its slot remembers goes on, or is asked again");
    else if (x->is_hit)
        line(s, "a switch and a hit: more than a root was found that its slot does not remember");
    else if (x->n_found > 0)
        line(s, "a switch and a miss: nothing but a root was found");
    else
        line(s, "a switch and a miss: nothing was found that can be resumed");
}

/* The part of the prompt that was not read. */
static void tell_reused(struct story *s)
{
    const struct decision *x = s->x;
    uint32_t mounted = x->n_reused - (x->n_joined < x->n_reused ? x->n_joined : x->n_reused);
    uint32_t root = x->root_pos < mounted ? x->root_pos : mounted;
    char from[64] = "an unnamed path";

    if (x->from)
        (void)snprintf(from, sizeof from, "conversation %" PRIu64, x->from);
    if (root > 0 && x->source == SOURCE_ROOT && x->from)
        line(s, "0..%" PRIu32 ": reused: root %" PRIu64, root, x->from);
    else if (root > 0)
        line(s, "0..%" PRIu32 ": reused: a root", root);
    if (mounted > root) {
        const char *how = "";

        switch (x->source) {
        case SOURCE_SLOT:
            how = ", which its slot remembers";
            break;
        case SOURCE_BORROWED:
            how = ", borrowed: that stays as it was";
            break;
        case SOURCE_VRAM:
            how = ", in vram";
            break;
        case SOURCE_RAM:
            how = ", from ram";
            break;
        case SOURCE_DISK:
            how = ", from disk";
            break;
        case SOURCE_NONE:
        case SOURCE_JOINED:
        case SOURCE_ROOT:
            break;
        }
        line(s, "%" PRIu32 "..%" PRIu32 ": reused from %s%s", root, mounted, from, how);
    }
    if (x->n_reused > mounted)
        line(s,
             "%" PRIu32 "..%" PRIu32 ": joined: waited for request %" PRIu64
             ", which was reading the same",
             mounted, x->n_reused, x->joined_with);
    else if (x->joined_with)
        line(s, "waited for request %" PRIu64 ", which left nothing that could be used",
             x->joined_with);
    if (x->bytes_loaded > 0)
        line(s, "copied from %s to vram for it: %s in %.1f ms",
             x->source == SOURCE_DISK ? "disk" : "ram", size_text(x->bytes_loaded).s, x->load_ms);
}

/* Why [from, to), which could have been resumed, was not taken. */
static void tell_left_out(struct story *s, uint32_t from, uint32_t to)
{
    const char *why = "was not taken";

    switch (s->x->why) {
    case WHY_READING_FASTER:
        why = "reading is faster than copying it from ram";
        break;
    case WHY_NO_ROOM:
        why = "there were no free pages to copy it to";
        break;
    case WHY_LOAD_FAILED:
        why = "copying it failed";
        break;
    case WHY_WAITING:
    case WHY_LONGEST:
    case WHY_NOTHING_STORED:
    case WHY_CACHE_OFF:
        break;
    }
    line(s, "%" PRIu32 "..%" PRIu32 ": read again: stored, but %s", from, to, why);
}

/* The part of the prompt that was, or is to be, read. */
static void tell_read(struct story *s)
{
    const struct decision *x = s->x;
    uint32_t at = x->n_reused;

    if (x->why == WHY_CACHE_OFF) {
        line(s, "0..%" PRIu32 ": read: %s", x->n_prompt, decision_why_str(x->why));
        return;
    }
    if (at < x->n_found) {
        tell_left_out(s, at, x->n_found);
        at = x->n_found;
    }
    if (at < x->n_common && x->n_common == x->n_prompt && at + 1 == x->n_prompt) {
        line(s, "%" PRIu32 "..%" PRIu32 ": read again: the last token of a prompt always is", at,
             x->n_prompt);
        at = x->n_prompt;
    } else if (at < x->n_common) {
        line(s,
             "%" PRIu32 "..%" PRIu32 ": read again: stored, but nothing between %" PRIu32
             " and %" PRIu32 " can be resumed (no checkpoint)",
             at, x->n_common, at, x->n_common);
        at = x->n_common;
    }
    if (at == 0 && x->n_prompt > 0)
        line(s, "0..%" PRIu32 ": read: nothing stored begins like this", x->n_prompt);
    else if (at < x->n_prompt)
        line(s, "%" PRIu32 "..%" PRIu32 ": read: new", at, x->n_prompt);
}

/* What was compared, where it was. */
static void tell_estimates(struct story *s)
{
    const struct decision *x = s->x;
    char best[64] = "", vram[64] = "";

    if (!(x->est_cold_ms > 0) || (!(x->est_best_ms > 0) && !(x->est_vram_ms > 0)))
        return;
    if (x->est_best_ms > 0)
        (void)snprintf(best, sizeof best, "%.1f ms with the longest (%" PRIu32 "), ",
                       x->est_best_ms, x->n_found);
    if (x->est_vram_ms > 0)
        (void)snprintf(vram, sizeof vram, "%.1f ms with what is in vram (%" PRIu32 "), ",
                       x->est_vram_ms, x->n_found_vram);
    line(s, "estimated: %s%s%.1f ms reading everything; chosen: %s", best, vram, x->est_cold_ms,
         decision_why_str(x->why));
}

static void tell_event(struct story *s, const struct cache_event *e)
{
    const char *tier = cache_tier_str(e->tier);
    const bool is_root = e->kind == CACHE_ROOT_MADE || e->kind == CACHE_ROOT_LOST;
    const char *why = cache_why_str(e->why);
    char what[96];

    if (e->id)
        (void)snprintf(what, sizeof what, "%s %" PRIu64 " of %" PRIu32 " token%s",
                       is_root ? "root" : "conversation", e->id, e->n_tokens, plural(e->n_tokens));
    else
        (void)snprintf(what, sizeof what, "a path of %" PRIu32 " token%s", e->n_tokens,
                       plural(e->n_tokens));
    switch (e->kind) {
    case CACHE_EVICTED:
        line(s, "%s left %s: %s (%s)", what, tier, why, size_text(e->bytes).s);
        break;
    case CACHE_SUPERSEDED:
        line(s, "%s is superseded: %s (%s)", what, why, size_text(e->bytes).s);
        break;
    case CACHE_REFUSED:
        line(s, "%s was not taken into %s: %s (%s)", what, tier, why, size_text(e->bytes).s);
        break;
    case CACHE_DEMOTED:
        line(s, "%s left vram and is in ram: %s (%s)", what, why, size_text(e->bytes).s);
        break;
    case CACHE_ROOT_MADE:
        line(s, "%s was made", what);
        break;
    case CACHE_ROOT_LOST:
        line(s, "%s was lost: %s", what, why);
        break;
    }
}

/* What else happened in the cache because of it, the oldest first. */
static void tell_events(struct story *s, const struct decisions *d)
{
    const struct decision_event *found[DECISION_EVENTS_TOLD];
    const struct decision *x = s->x;
    uint32_t n = decision_events_of(d, x, found);

    if (x->n_superseded > 0)
        line(s, "superseded by it: %" PRIu32 " tail%s", x->n_superseded, plural(x->n_superseded));
    if (x->n_evicted > 0)
        line(s, "evicted for it: %" PRIu32 " conversation%s", x->n_evicted, plural(x->n_evicted));
    if (n > DECISION_EVENTS_TOLD)
        line(s, "%" PRIu32 " older events are left out", n - DECISION_EVENTS_TOLD);
    for (uint32_t i = n < DECISION_EVENTS_TOLD ? n : DECISION_EVENTS_TOLD; i-- > 0;)
        tell_event(s, &found[i]->e);
}

static void tell_left_behind(struct story *s)
{
    const struct decision *x = s->x;

    if (x->conversation)
        line(s,
             "left conversation %" PRIu64 " of %" PRIu32 " token%s with %" PRIu32
             " new checkpoint%s",
             x->conversation, x->n_kept, plural(x->n_kept), x->n_checkpoints,
             plural(x->n_checkpoints));
    else
        line(s, x->keeping ? "what it leaves is still being kept" : "left no conversation");
    if (x->n_checkpoints_skipped > 0)
        line(s, "%" PRIu32 " checkpoint%s not made: no free pages for %s", x->n_checkpoints_skipped,
             x->n_checkpoints_skipped == 1 ? " was" : "s were",
             x->n_checkpoints_skipped == 1 ? "it" : "them");
    if (x->keep_error)
        line(s, "less was kept than could have been: %s", err_str(x->keep_error));
}

static void tell_end(struct story *s)
{
    const struct decision *x = s->x;
    const uint32_t to_read = x->n_prompt - (x->n_reused < x->n_prompt ? x->n_reused : x->n_prompt);

    if (x->n_read < to_read)
        line(s, "%" PRIu32 " of these %" PRIu32 " token%s %s", x->n_read, to_read, plural(to_read),
             x->done ? "were read before it ended" : "are read so far");
    if (x->n_parked > 0)
        line(s, "parked itself %" PRIu32 " time%s for want of pages", x->n_parked,
             plural(x->n_parked));
    if (x->done)
        line(s, "ended (%s) after %.1f ms: %.1f ms waiting, %.1f ms copying, %.1f ms reading",
             decision_finish_str(x->finish), x->total_ms, x->wait_ms, x->load_ms, x->read_ms);
}

int decision_explain(const struct decisions *d, const struct decision *x, struct buf *out)
{
    struct story s = {.out = out, .x = x};
    const char *open = x->name[0] ? " (" : "", *close = x->name[0] ? ")" : "";

    line(&s,
         "request %" PRIu64 "%s%s%s: %" PRIu32 " token%s of prompt, %" PRIu32 " reused, %" PRIu32
         " read, %" PRIu32 " generated",
         x->request, open, x->name, close, x->n_prompt, plural(x->n_prompt), x->n_reused, x->n_read,
         x->n_generated);
    if (x->why == WHY_WAITING) {
        if (x->done)
            line(&s, "ended (%s) before anything was decided", decision_finish_str(x->finish));
        else
            line(&s, "waits: nothing is decided yet");
        return s.r;
    }
    tell_kind(&s);
    tell_reused(&s);
    tell_read(&s);
    tell_estimates(&s);
    tell_end(&s);
    tell_events(&s, d);
    if (x->done)
        tell_left_behind(&s);
    return s.r;
}
