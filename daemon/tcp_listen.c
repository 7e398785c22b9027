/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tcp_listen.h"

#include "util/cleanup.h"
#include "util/err.h"
#include "util/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    BACKLOG = 4096, /* the kernel cuts it to somaxconn */
    HOST_BYTES = 256,
    /* A peer whose machine is gone is noticed within two minutes. */
    KEEPALIVE_IDLE_S = 60,
    KEEPALIVE_EVERY_S = 15,
    KEEPALIVE_TRIES = 4,
};

/* One ADDR:PORT, taken apart. */
struct item {
    const char *s; /* as written, n bytes */
    size_t n;
    char host[HOST_BYTES]; /* without brackets */
    char port[8];
};

static int bad(const struct item *it, const char *words, struct err_text *e)
{
    char shown[160];

    return err_set(e, -EINVAL, "\"%s\" %s",
                   err_escape(shown, sizeof shown, it->s, it->n > 120 ? 120 : it->n), words);
}

static int take_apart(struct item *it, struct err_text *e)
{
    const char *colon = memrchr(it->s, ':', it->n), *host = it->s;
    size_t n_port, n_host;
    uint64_t port;

    if (!colon)
        return bad(it, "has no port: 127.0.0.1:8080, [::1]:8080 or localhost:8080", e);
    n_port = it->n - (size_t)(colon + 1 - it->s);
    n_host = (size_t)(colon - it->s);
    if (n_port == 0 || n_port > 5)
        return bad(it, "does not end in a port from 0 to 65535", e);
    memcpy(it->port, colon + 1, n_port);
    it->port[n_port] = '\0';
    if (text_u64(it->port, &port) < 0 || port > 65535)
        return bad(it, "does not end in a port from 0 to 65535", e);
    if (n_host == 0)
        return bad(
            it, "has no address: 127.0.0.1 is for this machine, 0.0.0.0 and [::] for everybody", e);
    if (host[0] == '[' && host[n_host - 1] == ']') {
        host++;
        n_host -= 2;
    } else if (memchr(host, ':', n_host)) {
        return bad(it, "is not clear: an IPv6 address stands in brackets, [::1]:8080", e);
    }
    if (n_host == 0 || n_host >= sizeof it->host)
        return bad(it, "has no address that could be meant", e);
    memcpy(it->host, host, n_host);
    it->host[n_host] = '\0';
    if (strspn(it->host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:%") !=
        n_host)
        return bad(it, "has characters that no address has", e);
    return 0;
}

/* The next item.  1, 0 at the end, or -EINVAL. */
static int next_item(const char **at, struct item *ret, struct err_text *e)
{
    const char *s = *at;
    int r;

    if (!s)
        return 0;
    s += strspn(s, " \t");
    *ret = (struct item){.s = s, .n = strcspn(s, ",")};
    *at = s[ret->n] ? s + ret->n + 1 : NULL;
    while (ret->n > 0 && (s[ret->n - 1] == ' ' || s[ret->n - 1] == '\t'))
        ret->n--;
    r = take_apart(ret, e);
    return r < 0 ? r : 1;
}

int tcp_listen_check(const char *listen, struct err_text *e)
{
    struct item it;
    int r;

    do
        r = next_item(&listen, &it, e);
    while (r > 0);
    return r;
}

bool tcp_listen_names(const char *listen, const char *host, size_t n)
{
    struct item it;

    while (next_item(&listen, &it, NULL) > 0)
        if (strlen(it.host) == n && strncasecmp(it.host, host, n) == 0)
            return true;
    return false;
}

/* Inherited by accepted connections. */
static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } set[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
               {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
               {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
               {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES},
               {IPPROTO_TCP, TCP_NODELAY, 1}};

    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++)
        (void)setsockopt(fd, set[i].level, set[i].name, &set[i].value, sizeof set[i].value);
}

void tcp_adopt(struct listener *l)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    char host[INET6_ADDRSTRLEN] = "";

    set_options(l->fd);
    l->is_tcp = true;
    if (getsockname(l->fd, (struct sockaddr *)&a, &len) < 0)
        return;
    if (a.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        (void)snprintf(l->path, sizeof l->path, "%s:%u", host, ntohs(in->sin_port));
        l->is_remote = ntohl(in->sin_addr.s_addr) >> 24 != 127;
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a;

        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        (void)snprintf(l->path, sizeof l->path, "[%s]:%u", host, ntohs(in6->sin6_port));
        l->is_remote = !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    }
}

static int bind_one(const struct addrinfo *a, struct listener *ret)
{
    CLEANUP(close_p)
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    const int on = 1;

    if (fd < 0)
        return -errno;
    /* A restart must not wait for the last process's connections to be forgotten. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret = (struct listener){.fd = take_fd(&fd), .is_ours = true};
    tcp_adopt(ret);
    return 0;
}

static int refused(const struct item *it, int r, struct err_text *e)
{
    /* What the units of strata@.service allow: sockets are made by the manager. */
    const char *hint =
        r == -EAFNOSUPPORT ? "; under systemd the socket unit opens TCP, see strataD(8)" : "";

    return err_set(e, r, "listen: cannot listen on %.*s: %s%s", (int)it->n, it->s, err_str(r),
                   hint);
}

/* All addresses of one item.  A name may have some that this machine does not have. */
static int open_item(const struct item *it, struct listener *list, size_t *n, size_t most,
                     struct err_text *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int r = getaddrinfo(it->host, it->port, &hints, &found), absent = 0;
    const size_t n_before = *n;

    if (r != 0)
        return err_set(e, -EADDRNOTAVAIL, "listen: %.*s: %s", (int)it->n, it->s,
                       r == EAI_SYSTEM ? err_str(-errno) : gai_strerror(r));
    r = 0;
    for (const struct addrinfo *a = found; a && r == 0; a = a->ai_next) {
        if (*n == most) {
            r = err_set(e, ERR_CAPACITY, "listen: %.*s: more than %zu sockets of the API",
                        (int)it->n, it->s, most);
            break;
        }
        r = bind_one(a, &list[*n]);
        if (r == 0) {
            (*n)++;
        } else if (r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT) {
            absent = r;
            r = 0;
        } else {
            r = refused(it, r, e);
        }
    }
    freeaddrinfo(found);
    return r == 0 && *n == n_before ? refused(it, absent, e) : r;
}

int tcp_listen_open(const char *listen, struct listener *list, size_t *n, size_t most,
                    struct err_text *e)
{
    struct item it;
    int r;

    while ((r = next_item(&listen, &it, e)) > 0) {
        r = open_item(&it, list, n, most, e);
        if (r < 0)
            return r;
    }
    return r;
}
