/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of io.strata.Control about the cache and its roots. */
#ifndef DAEMON_VERB_CACHE_H
#define DAEMON_VERB_CACHE_H

#include "daemon/verbs.h"

verb_method verb_cache_list, verb_cache_show, verb_cache_stats, verb_cache_evict, verb_cache_clear;
verb_method verb_roots_list, verb_roots_clear, verb_roots_pin, verb_roots_unpin;

#endif
