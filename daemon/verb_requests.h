/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and Explain of io.strata.Control. */
#ifndef DAEMON_VERB_REQUESTS_H
#define DAEMON_VERB_REQUESTS_H

#include "daemon/verbs.h"

verb_method verb_requests, verb_explain;

#endif
