/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of the control socket: one table, each entry a function from parameters to a reply.
 *
 * Owner: the loop thread.  No method waits: what takes time answers later (none does yet).
 */
#ifndef DAEMON_VERBS_H
#define DAEMON_VERBS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct buf;
struct rates;
struct server;
struct varlink_call;

/* What a method may look at. */
struct verb_context {
    const struct server *server;
    const struct rates *rates;
    struct ucred peer; /* of the connection: pid, uid, gid */
};

/* Why a method failed, as the wire says it. */
struct verb_error {
    const char *name;  /* static: "interface.Error"; NULL: the method did not say */
    const char *key;   /* static: its parameter; NULL: none */
    const char *value; /* of it: static, in the call's parameters, or `room` */
    char room[160];
};

/*
 * A method.  `parameters` is an object, never NULL, without unknown names.  0 with *ret a new
 * object; -EINVAL with `e` filled; -ENOMEM.
 */
typedef int verb_method(const struct verb_context *c, json_t *parameters, json_t **ret,
                        struct verb_error *e);

/* Fill `e` and return -EINVAL. */
int verb_fail(struct verb_error *e, const char *name, const char *key, const char *value);
int verb_bad_parameter(struct verb_error *e, const char *key);

/*
 * Runs the call and appends its reply or error to `out`, or nothing when it is oneway.  0, or
 * -ENOMEM or ERR_CAPACITY: then the connection cannot go on.
 */
int verbs_run(const struct verb_context *c, const struct varlink_call *call, struct buf *out);

#endif
