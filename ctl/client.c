/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/client.h"

#include "ctl/paths.h"
#include "ctl/varlink.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* The daemon's loop answers within milliseconds; a machine that swaps may take longer. */
enum { TIMEOUT_S = 10 };

static int connect_path(const char *path, int *ret_fd)
{
    CLEANUP(close_p) int fd = -1;
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof a.sun_path)
        return -ENAMETOOLONG;
    memcpy(a.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int say_why(const struct ctl *c, const char *path, int r)
{
    if (r == -EACCES || r == -EPERM)
        return ctl_say(c, CTL_PERMISSION,
                       "no permission for %s; root and members of the socket's group may use it",
                       path);
    if (r == -ENOENT)
        return ctl_say(c, CTL_NOT_RUNNING, "strataD is not running: there is no %s", path);
    if (r == -ECONNREFUSED)
        return ctl_say(c, CTL_NOT_RUNNING, "strataD is not running: nobody listens on %s", path);
    return ctl_say(c, CTL_FAILED, "cannot connect to %s: %s", path, err_str(r));
}

int client_connect(const struct ctl *c, const char *path, const char *file, int *ret_fd)
{
    char place[2][512];
    bool root = geteuid() == 0;
    int r[2], found = -1;

    if (path) {
        r[0] = connect_path(path, ret_fd);
        return r[0] == 0 ? CTL_OK : say_why(c, path, r[0]);
    }
    for (int i = 0; i < 2; i++) {
        r[i] = strata_socket_path(root ? i == 0 : i == 1, c->instance, file, place[i],
                                  sizeof place[i]);
        if (r[i] < 0) {
            place[i][0] = '\0'; /* no such place for this user */
            continue;
        }
        r[i] = connect_path(place[i], ret_fd);
        if (r[i] == 0)
            return CTL_OK;
        if (r[i] != -ENOENT && found < 0)
            found = i;
    }
    if (found >= 0)
        return say_why(c, place[found], r[found]);
    return ctl_say(c, CTL_NOT_RUNNING,
                   "strataD is not running as \"%s\": there is no %s%s%s; -i NAME or --socket PATH "
                   "say where else to look",
                   c->instance, place[0], place[0][0] && place[1][0] ? " and no " : "", place[1]);
}

static int send_all(int fd, const struct buf *b)
{
    for (size_t at = 0; at < b->len;) {
        ssize_t n = send(fd, b->data + at, b->len - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void reader_done(struct varlink_reader *r)
{
    buf_done(&r->in);
}

/* Reads one message.  0, or -EPIPE when the daemon closed the connection. */
static int receive(int fd, struct varlink_reader *in, struct varlink_reply *ret, struct err_text *e)
{
    const char *frame;
    size_t n, room;
    char *to;
    int r;

    while (!varlink_reader_next(in, &frame, &n)) {
        ssize_t got;

        r = varlink_reader_room(in, &to, &room);
        if (r < 0)
            return err_set(e, r, "%s", err_str(r));
        got = recv(fd, to, room, 0);
        if (got == 0)
            return err_set(e, -EPIPE, "the daemon closed the connection");
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return err_set(e, -ETIMEDOUT, "the daemon does not answer");
        if (got < 0)
            return err_set(e, -errno, "%s", err_str(-errno));
        varlink_reader_received(in, (size_t)got);
    }
    return varlink_reply_parse(frame, n, ret, e);
}

/* The daemon's error in words. */
static int say_error(const struct ctl *c, const char *method, const struct varlink_reply *reply)
{
    const char *prefix = STRATA_CONTROL ".", *error = reply->error;
    const char *id = json_string_value(json_object_get(reply->parameters, "id"));
    const char *reason = json_string_value(json_object_get(reply->parameters, "reason"));
    char shown[200];

    if (strcmp(error, VARLINK_METHOD_NOT_FOUND) == 0)
        return ctl_say(c, CTL_FAILED, "this strataD does not know %s; it may be of another version",
                       method);
    if (strcmp(error, VARLINK_PERMISSION_DENIED) == 0)
        return ctl_say(c, CTL_PERMISSION,
                       "only root, the daemon's user and members of strata-admin may do that");
    if (strncmp(error, prefix, strlen(prefix)) != 0)
        return ctl_say(c, CTL_FAILED, "the daemon refused: %s",
                       err_escape(shown, sizeof shown, error, strlen(error)));
    error += strlen(prefix);
    if (strcmp(error, "NoCache") == 0 && reason)
        return ctl_say(c, CTL_FAILED, "there is no cache: %s",
                       err_escape(shown, sizeof shown, reason, strlen(reason)));
    if (id)
        (void)err_escape(shown, sizeof shown, id, strlen(id));
    if (strcmp(error, "NoSuchEntry") == 0 && id)
        return ctl_say(c, CTL_FAILED, "there is no entry %s in the cache", shown);
    if (strcmp(error, "NoSuchRequest") == 0 && id)
        return ctl_say(c, CTL_FAILED, "there is no request %s among those that are remembered",
                       shown);
    if (strcmp(error, "Busy") == 0 && id)
        return ctl_say(c, CTL_FAILED, "entry %s is pinned or in use just now", shown);
    return ctl_say(c, CTL_FAILED, "the daemon refused: %s",
                   err_escape(shown, sizeof shown, error, strlen(error)));
}

int client_call(const struct ctl *c, const char *method, json_t *parameters, json_t **ret)
{
    static const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    CLEANUP(close_p) int fd = -1;
    CLEANUP(buf_done) struct buf out = {0};
    CLEANUP(reader_done) struct varlink_reader in = {0};
    struct varlink_reply reply;
    struct err_text e;
    int r;

    r = client_connect(c, c->socket, STRATA_CONTROL_SOCKET, &fd);
    if (r != CTL_OK) {
        json_decref(parameters);
        return r;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    r = varlink_add_call(&out, method, parameters, false);
    if (r == 0)
        r = send_all(fd, &out);
    if (r < 0)
        return ctl_say(c, CTL_FAILED, "cannot ask the daemon: %s", err_str(r));
    r = receive(fd, &in, &reply, &e);
    if (r < 0)
        return ctl_say(c, CTL_FAILED, "no answer that makes sense: %s", e.s);
    if (reply.error) {
        r = say_error(c, method, &reply);
    } else {
        *ret = reply.parameters ? json_incref(reply.parameters) : json_object();
        r = *ret ? CTL_OK : ctl_say(c, CTL_FAILED, "out of memory");
    }
    varlink_reply_done(&reply);
    return r;
}
