/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions as JSON objects, with the same names in the API and on the control socket.
 *
 * Owner: the loop thread.  All return new objects, NULL when out of memory.
 */
#ifndef DAEMON_DECISION_JSON_H
#define DAEMON_DECISION_JSON_H

#include <jansson.h>
#include <stdint.h>

struct decision;
struct decisions;

/* What a list shows of it. */
json_t *decision_json_row(const struct decision *x);
/* All of it. */
json_t *decision_json(const struct decision *x);
/* What it caused in the cache, oldest first, the newest DECISION_EVENTS_TOLD. */
json_t *decision_json_events(const struct decisions *d, const struct decision *x, uint64_t now);
/* decision_explain's lines. */
json_t *decision_json_story(const struct decisions *d, const struct decision *x);

#endif
