/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/listeners.h"

#include "ctl/paths.h"
#include "daemon/options.h"
#include "daemon/tcp_listen.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

enum {
    BACKLOG = 4096, /* the kernel cuts it to somaxconn; clients wait here while the model loads */
    LOCK_TRIES = 50,
    LOCK_PAUSE_NS = 20000000,
};

static void listener_close(struct listener *l)
{
    struct stat st;

    /* Another daemon may have put its own socket there since. */
    if (l->is_ours && !l->is_tcp && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
        st.st_ino == l->ino)
        (void)unlink(l->path);
    if (l->fd >= 0)
        (void)close(l->fd);
    l->fd = -1;
}

void listeners_close(struct listeners *l)
{
    for (size_t i = 0; i < l->n_api; i++)
        listener_close(&l->api[i]);
    if (l->n_control > 0)
        listener_close(&l->control);
    l->n_api = l->n_control = 0;
}

/* --- made here ---------------------------------------------------------------------------------
 */

/* One step down, made if missing; a link or a foreign directory is refused. */
static int enter_dir(int at, const char *name, mode_t mode, int *ret_fd, const char *shown,
                     struct err_text *e)
{
    CLEANUP(close_p) int fd = -1;
    struct stat st;
    int r;

    if (mkdirat(at, name, mode) == 0) {
        /* The umask of a daemon is 077; who may enter is our decision. */
        if (fchmodat(at, name, mode, 0) < 0) {
            r = -errno;
            return err_set(e, r, "%s: cannot set its mode: %s", shown, err_str(r));
        }
    } else if (errno != EEXIST) {
        r = -errno;
        return err_set(e, r, "cannot make the directory %s: %s", shown, err_str(r));
    }
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        r = -errno;
        return err_set(e, r, "cannot enter the directory %s: %s", shown, err_str(r));
    }
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", shown, err_str(-errno));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return err_set(e, -EPERM, "%s belongs to another user (uid %u)", shown, st.st_uid);
    *ret_fd = take_fd(&fd);
    return 0;
}

int listener_make_dirs(const char *base, const char *name, bool system, struct err_text *e)
{
    CLEANUP(close_p) int top = -1;
    CLEANUP(close_p) int mid = -1;
    CLEANUP(close_p) int end = -1;
    mode_t mode = system ? 0755 : 0700;
    char shown[300];
    int r;

    top = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        r = -errno;
        return err_set(e, r, "cannot enter the directory %s: %s", base, err_str(r));
    }
    (void)snprintf(shown, sizeof shown, "%s/strata", base);
    r = enter_dir(top, "strata", mode, &mid, shown, e);
    if (r < 0)
        return r;
    (void)snprintf(shown, sizeof shown, "%s/strata/%s", base, name);
    return enter_dir(mid, name, mode, &end, shown, e);
}

/* Somebody answers on `path`: refuse, with the name of the process if the kernel tells it. */
static int refuse_live(int fd, const char *path, struct err_text *e)
{
    struct ucred uc;
    socklen_t n = sizeof uc;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &uc, &n) == 0 && uc.pid > 0)
        return err_set(e, -EADDRINUSE, "%s: process %d serves there already", path, (int)uc.pid);
    return err_set(e, -EADDRINUSE, "%s: another process serves there already", path);
}

/* What lies at the path: 0 when it was a dead socket and is gone now. */
static int clear_stale(const char *path, const struct sockaddr_un *a, struct err_text *e)
{
    CLEANUP(close_p) int fd = -1;
    struct stat st;
    int r;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_set(e, -errno, "%s: %s", path, err_str(-errno));
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, -EADDRINUSE, "%s: something that is not a socket lies there", path);
    /* Never blocks: a full backlog says EAGAIN, and that is a live one too. */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(e, -errno, "no socket: %s", err_str(-errno));
    if (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0)
        return refuse_live(fd, path, e);
    r = -errno;
    if (r == -EAGAIN)
        return err_set(e, -EADDRINUSE, "%s: another process serves there already", path);
    if (r == -ENOENT)
        return 0;
    if (r != -ECONNREFUSED)
        return err_set(e, r, "%s: cannot tell whether somebody serves there: %s", path, err_str(r));
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(e, -errno, "%s: cannot remove the socket of a dead process: %s", path,
                       err_str(-errno));
    return 0;
}

/*
 * The directory of `path`, made (0700) if only itself is missing, and locked, so that two daemons
 * that start at once do not remove each other's new socket.  -1 when that fails: bind then says
 * what is wrong.  Whoever may read the directory can lock it, so nobody is waited for longer than a
 * daemon takes to bind.
 */
static int lock_dir(const char *path)
{
    char dir[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *slash = strrchr(path, '/');
    int fd;

    if (!slash)
        (void)snprintf(dir, sizeof dir, ".");
    else
        (void)snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    (void)mkdir(dir, 0700);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    return fd;
}

int listener_bind(const char *path, struct listener *ret, struct err_text *e)
{
    CLEANUP(close_p) int fd = -1;
    CLEANUP(close_p) int lock = -1;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct listener l = {.is_ours = true};
    struct stat st;
    int r;

    if (strlen(path) >= sizeof a.sun_path)
        return err_set(e, -ENAMETOOLONG, "%.60s...: a socket's path has at most %zu bytes", path,
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    memcpy(l.path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(e, -errno, "no socket: %s", err_str(-errno));

    lock =
        lock_dir(path); /* without it (no such directory, not readable) bind says what is wrong */
    r = bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 ? -errno : 0;
    if (r == -EADDRINUSE) {
        r = clear_stale(path, &a, e);
        if (r < 0)
            return r;
        r = bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 ? -errno : 0;
    }
    if (r < 0)
        return err_set(e, r, "%s: cannot listen there: %s", path, err_str(r));
    /* The daemon's umask leaves it to its own user until the mode is set. */
    if (listen(fd, BACKLOG) < 0 || lstat(path, &st) < 0 || chmod(path, 0660) < 0) {
        r = -errno;
        (void)unlink(path);
        return err_set(e, r, "%s: cannot listen there: %s", path, err_str(r));
    }
    l.dev = st.st_dev;
    l.ino = st.st_ino;
    l.fd = take_fd(&fd);
    *ret = l;
    return 0;
}

/* The socket of one role where the options or the defaults say. */
static int make_listener(const struct options *o, const char *asked, const char *file,
                         struct listener *ret, struct err_text *e)
{
    bool system = geteuid() == 0;
    char path[300];
    int r;

    if (asked)
        return listener_bind(asked, ret, e);
    if (!strata_run_base(system))
        return err_set(e, -ENOENT,
                       "XDG_RUNTIME_DIR is not set; say where the sockets go: --api-socket and "
                       "--control-socket");
    r = listener_make_dirs(strata_run_base(system), o->name, system, e);
    if (r < 0)
        return r;
    r = strata_socket_path(system, o->name, file, path, sizeof path);
    if (r < 0)
        return err_set(e, r, "the path of the runtime directory is too long");
    return listener_bind(path, ret, e);
}

/* --- from the manager --------------------------------------------------------------------------
 */

static void free_names(char ***names)
{
    for (char **p = *names; p && *p; p++)
        free(*p);
    free(*names);
}

/* "strata-control@x.socket" is control, "strata@x.socket" the API: the names without
 * FileDescriptorName=. */
static bool is_role(const char *name, const char *role, const char *unit)
{
    return strcmp(name, role) == 0 || strncmp(name, unit, strlen(unit)) == 0;
}

static int take_passed(int fd, const char *name, bool has_keys, struct listeners *l,
                       struct err_text *e)
{
    bool control = is_role(name, "control", "strata-control@");
    bool tcp = sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) > 0 ||
               sd_is_socket(fd, AF_INET6, SOCK_STREAM, 1) > 0;
    struct listener *list = control ? &l->control : l->api;
    size_t *n = control ? &l->n_control : &l->n_api, most = control ? 1 : LISTENERS_MAX;
    struct sockaddr_un a;
    socklen_t len = sizeof a;

    if (!control && !is_role(name, "api", "strata@"))
        return err_set(e, -EINVAL,
                       "the service manager passed \"%.60s\", expected \"api\" or \"control\"",
                       name);
    if (tcp && control)
        return err_set(
            e, -EINVAL,
            "the service manager passed a TCP socket as \"%.60s\": the control socket is "
            "a Unix socket",
            name);
    if (tcp && !has_keys)
        return err_set(e, -EINVAL,
                       "the service manager passed a TCP socket as \"%.60s\", where every request "
                       "needs a key: set \"api_key_file\"",
                       name);
    if (!tcp && sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) <= 0)
        return err_set(e, -EINVAL,
                       "the service manager passed \"%.60s\", which is not a listening stream "
                       "socket",
                       name);
    if (*n == most)
        return err_set(e, ERR_CAPACITY,
                       "the service manager passed more than %zu sockets as \"%.60s\"", most, name);
    memset(&a, 0, sizeof a);
    list[*n] = (struct listener){.fd = fd};
    /* An abstract name begins with NUL and shows as nothing. */
    if (tcp)
        tcp_adopt(&list[*n]);
    else if (getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        (void)snprintf(list[*n].path, sizeof list[*n].path, "%.*s", (int)sizeof a.sun_path - 1,
                       a.sun_path);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (*n)++;
    return 0;
}

static int take_all_passed(bool has_keys, struct listeners *l, struct err_text *e)
{
    CLEANUP(free_names) char **names = NULL;
    int n = sd_listen_fds_with_names(1, &names), r = 0;

    if (n < 0)
        return err_set(e, n, "cannot take the sockets of the service manager: %s", err_str(n));
    for (int i = 0; i < n; i++) {
        int fd = SD_LISTEN_FDS_START + i;

        if (r == 0)
            r = take_passed(fd, names[i], has_keys, l, e);
        /* After a refusal nothing is used; descriptors that were not taken are closed here. */
        if (r < 0)
            (void)close(fd);
    }
    return r;
}

int listeners_open(const struct options *o, struct listeners *ret, struct err_text *e)
{
    struct listeners l = {0};
    int r;

    r = take_all_passed(o->api_key_file != NULL, &l, e);
    if (r == 0 && o->api_socket && o->control_socket &&
        strcmp(o->api_socket, o->control_socket) == 0)
        r = err_set(e, -EINVAL, "api_socket and control_socket are both %.60s", o->api_socket);
    if (r == 0 && l.n_api == 0) {
        r = make_listener(o, o->api_socket, STRATA_API_SOCKET, &l.api[0], e);
        l.n_api = r == 0;
    }
    if (r == 0 && o->listen)
        r = tcp_listen_open(o->listen, l.api, &l.n_api, LISTENERS_MAX, e);
    if (r == 0 && l.n_control == 0) {
        r = make_listener(o, o->control_socket, STRATA_CONTROL_SOCKET, &l.control, e);
        l.n_control = r == 0;
    }
    if (r < 0) {
        listeners_close(&l);
        return r;
    }
    *ret = l;
    return 0;
}
