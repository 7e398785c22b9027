/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache.h"

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
