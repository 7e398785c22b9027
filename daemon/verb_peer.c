/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/verb_peer.h"

#include "ctl/varlink.h"
#include "daemon/verbs.h"
#include "util/cleanup.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

/* A group of many thousand members still fits; more than that is nobody's. */
enum { ROOM_FIRST = 1024, ROOM_MOST = 1 << 20, GROUPS_MOST = 65536 };

static bool find_group(const char *name, gid_t *ret)
{
    struct group g, *found = NULL;

    for (size_t n = ROOM_FIRST; n <= ROOM_MOST; n *= 4) {
        CLEANUP(free_p) char *room = malloc(n);
        int r = room ? getgrnam_r(name, &g, room, n, &found) : ENOMEM;

        if (r == 0 && found)
            *ret = g.gr_gid;
        if (r != ERANGE)
            return r == 0 && found;
    }
    return false;
}

static bool is_listed(const char *user, gid_t primary, gid_t gid)
{
    int n = 64;

    while (n <= GROUPS_MOST) {
        CLEANUP(free_p) gid_t *groups = calloc((size_t)n, sizeof *groups);
        const int room = n;

        if (!groups)
            return false;
        if (getgrouplist(user, primary, groups, &n) >= 0) {
            for (int i = 0; i < n; i++)
                if (groups[i] == gid)
                    return true;
            return false;
        }
        /* It says how many there are; not trusted to grow. */
        n = n > room ? n : room * 2;
    }
    return false;
}

bool verb_user_is_in_group(uid_t uid, const char *group)
{
    struct passwd p, *found = NULL;
    gid_t gid;

    if (!find_group(group, &gid))
        return false;
    for (size_t n = ROOM_FIRST; n <= ROOM_MOST; n *= 4) {
        CLEANUP(free_p) char *room = malloc(n);
        int r = room ? getpwuid_r(uid, &p, room, n, &found) : ENOMEM;

        if (r == 0 && found)
            return is_listed(p.pw_name, p.pw_gid, gid);
        if (r != ERANGE)
            return false;
    }
    return false;
}

bool verb_peer_is_admin(const struct ucred *peer)
{
    return peer->uid == 0 || peer->uid == geteuid() ||
           verb_user_is_in_group(peer->uid, VERB_ADMIN_GROUP);
}

int verb_need_admin(const struct verb_context *c, struct verb_error *e)
{
    return verb_peer_is_admin(&c->peer) ? 0 : verb_fail(e, VARLINK_PERMISSION_DENIED, NULL, NULL);
}
