/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of both sockets: finding them, connecting, one control call. */
#ifndef CTL_CLIENT_H
#define CTL_CLIENT_H

#include "ctl/ctl.h"

#include <jansson.h>

/*
 * Connects to socket `file` (STRATA_CONTROL_SOCKET or STRATA_API_SOCKET) of the instance, in the
 * user's place first and then in the system's (root: the other way round), or to `path` when that
 * is not NULL.  CTL_OK with the descriptor; otherwise why not was said.
 */
int client_connect(const struct ctl *c, const char *path, const char *file, int *ret_fd);

/* Calls a method and waits for its reply.  `parameters` is taken over, also on failure; NULL: none.
 * CTL_OK with a new reference; otherwise why not was said. */
int client_call(const struct ctl *c, const char *method, json_t *parameters, json_t **ret);

#endif
