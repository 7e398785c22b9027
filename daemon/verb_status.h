/* SPDX-License-Identifier: Apache-2.0 */
/* Status and Slots of io.strata.Control.  New objects, or NULL when out of memory. */
#ifndef DAEMON_VERB_STATUS_H
#define DAEMON_VERB_STATUS_H

#include <jansson.h>

struct verb_context;

json_t *verb_status(const struct verb_context *c);
json_t *verb_slots(const struct verb_context *c);

#endif
