/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/api_call.h"

#include "ctl/client.h"
#include "ctl/http_client.h"
#include "ctl/paths.h"
#include "ctl/varlink.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LINE_LIMIT = 1 << 20,
    BODY_LIMIT = 64 << 20, /* of an answer that is not a stream */
};

struct call {
    const struct api_hooks *hooks;
    struct http_client http;
    struct buf body; /* what has arrived and was not taken yet */
    bool ended;      /* [DONE] */
    bool failed;     /* `e` says why */
    struct err_text e;
};

static void call_done(struct call *a)
{
    buf_done(&a->http.in);
    buf_done(&a->body);
}

/* Why the call failed: said at its end, when the text before it has had its own end. */
static int fail(struct call *a, const char *why)
{
    a->failed = true;
    (void)err_set(&a->e, 0, "%s", why);
    return CTL_FAILED;
}

/* The first that is the path of a Unix socket, or NULL.  TCP is "127.0.0.1:8080" or "[::1]:8080".
 */
static const char *unix_socket(const json_t *sockets)
{
    for (size_t i = 0; i < json_array_size(sockets); i++) {
        const char *s = json_string_value(json_array_get(sockets, i));

        if (s && (strchr(s, '/') || !strchr(s, ':')))
            return s;
    }
    return NULL;
}

int api_connect(const struct ctl *c, int *ret_fd)
{
    CLEANUP(json_decrefp) json_t *status = NULL;
    const char *path;
    int r;

    if (!c->socket)
        return client_connect(c, NULL, STRATA_API_SOCKET, ret_fd);
    r = client_call(c, STRATA_CONTROL ".Status", NULL, &status);
    if (r != CTL_OK)
        return r;
    path = unix_socket(json_object_get(status, "api_sockets"));
    return path ? client_connect(c, path, STRATA_API_SOCKET, ret_fd)
                : ctl_say(c, CTL_FAILED, "the daemon has no Unix socket for its API");
}

static int wait_for(const struct call *a, int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    if (a->hooks->wait)
        return a->hooks->wait(a->hooks->arg, fd, events);
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    return 0;
}

/* The words of an OpenAI error object, or NULL. */
static const char *error_message(const json_t *j)
{
    return json_string_value(json_object_get(json_object_get(j, "error"), "message"));
}

static void take_event(struct call *a, const char *s, size_t n)
{
    CLEANUP(json_decrefp) json_t *j = NULL;

    if (n == 6 && memcmp(s, "[DONE]", 6) == 0) {
        a->ended = true;
        return;
    }
    j = json_loadb(s, n, 0, NULL);
    if (error_message(j)) {
        (void)fail(a, error_message(j));
        return;
    }
    a->hooks->event(a->hooks->arg, j);
}

/* Takes whole lines off the body: "data: ..." is an event, comments and empty lines are not. */
static void take_lines(struct call *a)
{
    size_t at = 0;
    char *nl;

    while (at < a->body.len && (nl = memchr(a->body.data + at, '\n', a->body.len - at)) != NULL) {
        char *line = a->body.data + at;
        size_t n = (size_t)(nl - line);

        if (n > 0 && line[n - 1] == '\r')
            n--;
        if (n > 5 && memcmp(line, "data:", 5) == 0) {
            size_t skip = line[5] == ' ' ? 6 : 5;

            take_event(a, line + skip, n - skip);
        }
        at = (size_t)(nl + 1 - a->body.data);
    }
    buf_consume(&a->body, at);
}

/* A daemon that refuses a large body answers before it is all sent; so a failed send is not the
 * last word. */
static int send_request(const struct call *a, int fd, const struct buf *out)
{
    for (size_t at = 0; at < out->len;) {
        ssize_t n = send(fd, out->data + at, out->len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN && wait_for(a, fd, POLLOUT) < 0)
            return API_STOPPED;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    return CTL_OK;
}

/* Receives until the answer is whole. */
static int receive(struct call *a, int fd)
{
    char chunk[16384];
    struct err_text e;
    int r = 0;

    while (a->http.state != HTTP_DONE) {
        ssize_t n;

        if (wait_for(a, fd, POLLIN) < 0)
            return API_STOPPED;
        n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return fail(a, err_str(-errno));
        r = n > 0 ? http_client_put(&a->http, chunk, (size_t)n, &a->body, &e)
                  : http_client_end(&a->http, &e);
        if (r < 0)
            return fail(a, r == -EBADMSG ? e.s : err_str(r));
        if (a->http.is_stream && a->http.status == 200)
            take_lines(a);
        if (n == 0)
            break;
    }
    return CTL_OK;
}

/* The whole answer has arrived. */
static int judge(struct call *a, struct buf *ret_body)
{
    CLEANUP(json_decrefp) json_t *j = NULL;
    char status[64];

    if (a->failed)
        return CTL_FAILED;
    if (a->http.status != 200) {
        j = json_loadb(a->body.data ? a->body.data : "", a->body.len, 0, NULL);
        (void)snprintf(status, sizeof status, "the daemon answered with status %d", a->http.status);
        return fail(a, error_message(j) ? error_message(j) : status);
    }
    if (a->http.is_stream)
        return a->ended ? CTL_OK : fail(a, "the answer ends too early");
    return buf_add(ret_body, a->body.data ? a->body.data : "", a->body.len) < 0
               ? fail(a, "out of memory")
               : CTL_OK;
}

int api_call(const struct ctl *c, const char *path, const json_t *request,
             const struct api_hooks *hooks, struct buf *ret_body)
{
    CLEANUP(call_done)
    struct call a = {.hooks = hooks, .http.in.limit = LINE_LIMIT, .body.limit = BODY_LIMIT};
    CLEANUP(buf_done) struct buf out = {0};
    CLEANUP(free_p) char *body = json_dumps(request, JSON_COMPACT);
    CLEANUP(close_p) int fd = -1;
    int r;

    if (!body || http_client_post(&out, path, body, strlen(body)) < 0)
        return ctl_say(c, CTL_FAILED, "out of memory");
    r = api_connect(c, &fd);
    if (r != CTL_OK)
        return r;
    r = send_request(&a, fd, &out);
    if (r == CTL_OK)
        r = receive(&a, fd);
    if (r == CTL_OK)
        r = judge(&a, ret_body);
    hooks->event(hooks->arg, NULL);
    return a.failed ? ctl_say(c, r, "%s", a.e.s) : r;
}
