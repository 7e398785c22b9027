/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what over the control socket, by the credentials of the peer.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_VERB_PEER_H
#define DAEMON_VERB_PEER_H

#include <stdbool.h>
#include <sys/socket.h>

struct verb_context;
struct verb_error;

#define VERB_ADMIN_GROUP "strata-admin"

/* Root, the daemon's own user, or a member of the group (which need not exist). */
bool verb_peer_is_admin(const struct ucred *peer);
/* The user `uid` belongs to the group, by the system's data bases. */
bool verb_user_is_in_group(uid_t uid, const char *group);

/* 0, or -EINVAL with the error that says so. */
int verb_need_admin(const struct verb_context *c, struct verb_error *e);

#endif
