/* SPDX-License-Identifier: Apache-2.0 */
/* The words for what happens in the cache. */
#include "cache/cache.h"

const char *cache_tier_str(enum cache_tier tier)
{
    switch (tier) {
    case CACHE_VRAM:
        return "vram";
    case CACHE_RAM:
        return "ram";
    case CACHE_TIERS:
        break;
    }
    return "a tier";
}

const char *cache_event_str(enum cache_event_kind kind)
{
    switch (kind) {
    case CACHE_EVICTED:
        return "evicted";
    case CACHE_SUPERSEDED:
        return "superseded";
    case CACHE_REFUSED:
        return "refused";
    case CACHE_DEMOTED:
        return "demoted";
    case CACHE_ROOT_MADE:
        return "root_made";
    case CACHE_ROOT_LOST:
        return "root_lost";
    }
    return "changed";
}

const char *cache_why_str(enum cache_why why)
{
    switch (why) {
    case CACHE_WHY_SPACE:
        return "its room was needed for something of more value";
    case CACHE_WHY_SLOTS:
        return "more conversations were parked than may be";
    case CACHE_WHY_ROOTS:
        return "more roots were kept than may be";
    case CACHE_WHY_SUPERSEDED:
        return "a prompt went on differently from its turn or query checkpoint";
    case CACHE_WHY_TOO_LARGE:
        return "it would not fit even alone";
    case CACHE_WHY_NONFINITE:
        return "its path gave logits that are not finite";
    case CACHE_WHY_OPERATOR:
        return "an operator asked for it";
    case CACHE_WHY_MEMORY:
        return "out of memory";
    case CACHE_WHY_FAILED:
        return "a copy between tiers failed";
    case CACHE_WHY_LIMITS:
        return "a limit was lowered";
    }
    return "for no known reason";
}
