/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/http_world.h"

#include "daemon/api_keys.h"
#include "daemon/chat_template.h"
#include "daemon/front.h"
#include "daemon/log.h"
#include "engine/model.h"
#include "tests/fake_tokenizer.h"
#include "util/clock.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <unistd.h>

static char ascii[WORLD_VOCAB];
static struct fake_piece pieces[WORLD_VOCAB];

static void make_pieces(void)
{
    pieces[0] = (struct fake_piece){"<|end|>", 7};
    pieces[1] = (struct fake_piece){"\x01", 1};
    for (int i = 2; i < WORLD_VOCAB; i++) {
        ascii[i] = (char)(' ' + i - 2);
        pieces[i] = (struct fake_piece){&ascii[i], 1};
    }
}

static void keep_log(int priority, const char *text, void *arg)
{
    struct world *w = arg;

    (void)priority;
    (void)snprintf(w->log, sizeof w->log, "%s", text);
    w->n_logged++;
}

static void listen_unix(struct world *w)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)strcpy(a.sun_path, w->path);
    w->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(w->listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(w->listen_fd, 512), 0);
}

static void listen_tcp(struct world *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    struct err_text e;
    int fd = open(w->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dprintf(fd, "alice key-of-alice\nbob key-of-bob-42\n"), 37);
    (void)close(fd);
    ck_assert_msg(api_keys_open(w->path, &w->server.keys, &e) == 0, "%s", e.s);
    w->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(w->listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(w->listen_fd, 512), 0);
    ck_assert_int_eq(getsockname(w->listen_fd, (struct sockaddr *)&a, &n), 0);
    w->port = ntohs(a.sin_port);
}

struct world *world_new(void)
{
    return world_with(&(struct world_options){.state = SERVER_READY});
}

struct world *world_with(const struct world_options *o)
{
    struct world *w = calloc(1, sizeof *w);
    struct server *s = &w->server;
    struct sched_options so = {
        .parallel = o->parallel ? o->parallel : 2,
        .max_gap_ms = 200,
        .max_queued = o->max_queued ? o->max_queued : 4,
    };

    make_pieces();
    w->now_ns = 1000000000;
    clock_set_fake(&w->now_ns);
    log_set_sink(keep_log, w);
    w->engine_runs = true;
    w->fake = (struct fake_options){
        .n_units = 2048,
        .context = o->context ? o->context : 4096,
        .max_rows = 64,
        .n_sequences = so.parallel,
        .n_vocab = WORLD_VOCAB,
        .seed = 7,
        .end_every = o->end_every,
        .ns_per_row = 1000,
    };

    (void)strcpy(w->dir, "/tmp/check_http_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(w->dir));
    (void)snprintf(w->path, sizeof w->path, "%s/s", w->dir);
    w->tcp = o->tcp;
    if (w->tcp)
        listen_tcp(w);
    else
        listen_unix(w);

    ck_assert_int_ge(sd_event_new(&s->event), 0);
    w->options.parallel = so.parallel;
    w->options.model = w->path;
    s->options = &w->options;
    s->state = o->state;
    (void)strcpy(s->model_id, "fake \"model\"");
    s->created = 1234567890;
    s->tokenizer = fake_tokenizer_new(pieces, WORLD_VOCAB);
    s->engine = fake_engine_new(&w->fake);
    ck_assert_int_eq(front_new(s->event, 2, &s->front), 0);
    ck_assert_int_eq(sched_new(s->event, s->engine, s->tokenizer, &so, &s->sched), 0);
    ck_assert_int_ge(
        http_new(s,
                 &(struct http_options){.fds = &w->listen_fd,
                                        .n_fds = 1,
                                        .max_body = o->max_body ? o->max_body : 65536,
                                        .keys = s->keys,
                                        .listen = o->listen,
                                        .max_connections =
                                            o->max_connections ? o->max_connections : 1000},
                 &s->http),
        0);
    return w;
}

static void set_true(void *arg)
{
    *(bool *)arg = true;
}

void world_free(struct world *w)
{
    struct server *s = &w->server;
    bool idle = false;

    for (uint32_t i = 0; i < w->n_clients; i++)
        client_close(&w->clients[i]);
    w->engine_runs = true;
    UNTIL(w, http_n_active(s->http) == 0);
    /* A body of a client that left may still be in a front thread's hands. */
    UNTIL(w, s->http->body_used == 0);
    sched_stop(s->sched, true, set_true, &idle);
    UNTIL(w, idle);
    ck_assert_uint_eq(world_totals(w).running + world_totals(w).queued, 0);
    ck_assert_uint_eq(world_totals(w).units_used, 0);

    front_free(s->front);
    http_free(s->http);
    api_keys_free(s->keys);
    sched_free(s->sched);
    chat_template_free(s->chat);
    engine_close(s->engine);
    tokenizer_free(s->tokenizer);
    (void)sd_event_unref(s->event);
    for (uint32_t i = 0; i < w->n_clients; i++)
        buf_done(&w->clients[i].in);
    ck_assert_int_eq(fcntl(w->listen_fd, F_GETFD), FD_CLOEXEC); /* still ours */
    (void)close(w->listen_fd);
    (void)unlink(w->path);
    (void)rmdir(w->dir);
    log_set_sink(NULL, NULL);
    clock_set_fake(NULL);
    free(w);
}

static void client_read(struct client *c)
{
    while (c->fd >= 0 && !c->lazy && !c->eof) {
        ssize_t n;

        if (buf_reserve(&c->in, 65536) < 0)
            ck_abort_msg("out of memory");
        n = recv(c->fd, c->in.data + c->in.len, 65536, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            c->eof = true;
            return;
        }
        c->in.len += (size_t)n;
        c->in.data[c->in.len] = '\0';
    }
}

/* Something happened. */
static bool turn(struct world *w, uint64_t wait_us)
{
    bool ran = w->engine_runs && fake_engine_run(w->server.engine);
    int r = sd_event_run(w->server.event, ran ? 0 : wait_us);

    if (r < 0)
        ck_abort_msg("the loop failed: %d", r);
    for (uint32_t i = 0; i < w->n_clients; i++)
        client_read(&w->clients[i]);
    return ran || r > 0;
}

void world_turn(struct world *w)
{
    (void)turn(w, 1000);
}

void world_settle(struct world *w)
{
    while (turn(w, 0))
        ;
}

void world_pass(struct world *w, uint32_t ms)
{
    w->now_ns += (uint64_t)ms * 1000000;
    http_tick(w->server.http);
}

struct sched_totals world_totals(const struct world *w)
{
    struct sched_totals t;

    sched_totals(w->server.sched, &t);
    return t;
}

struct client *client_new(struct world *w)
{
    struct client *c = &w->clients[w->n_clients++];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(w->port)};

    ck_assert_uint_le(w->n_clients, WORLD_CLIENTS);
    if (w->tcp) {
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(c->fd, (struct sockaddr *)&in, sizeof in), 0);
        return c;
    }
    (void)strcpy(a.sun_path, w->path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
    return c;
}

void client_send(struct client *c, const void *p, size_t n)
{
    ck_assert_int_eq(send(c->fd, p, n, MSG_NOSIGNAL), (ssize_t)n);
}

void client_send_some(struct client *c, const void *p, size_t n)
{
    (void)send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void client_sendz(struct client *c, const char *s)
{
    client_send(c, s, strlen(s));
}

void client_post(struct client *c, const char *path, const char *body)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                              path, strlen(body), body),
                     0);
    client_send(c, b.data, b.len);
    buf_done(&b);
}

void client_get(struct client *c, const char *path)
{
    struct buf b = {0};

    ck_assert_int_eq(buf_addf(&b, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path), 0);
    client_send(c, b.data, b.len);
    buf_done(&b);
}

void client_close(struct client *c)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
}

void client_half_close(struct client *c)
{
    ck_assert_int_eq(shutdown(c->fd, SHUT_WR), 0);
}

void response_done(struct response *r)
{
    buf_done(&r->head);
    buf_done(&r->body);
}

/* Length of a chunked body with its end, its content in `out`; 0: not complete. */
static size_t dechunk(const char *s, size_t n, struct buf *out)
{
    size_t i = 0;

    for (;;) {
        const char *line = memmem(s + i, n - i, "\r\n", 2);
        size_t len;

        if (!line)
            return 0;
        len = strtoul(s + i, NULL, 16);
        i = (size_t)(line - s) + 2;
        if (i + len + 2 > n)
            return 0;
        if (buf_add(out, s + i, len) < 0)
            ck_abort_msg("out of memory");
        i += len + 2;
        if (len == 0)
            return i;
    }
}

bool client_take(struct client *c, struct response *ret)
{
    struct response r = {0};
    size_t n_head, used;
    const char *length, *end;

    /* Looked at once, not in every turn: streams are long. */
    if (c->in.len == c->seen)
        return false;
    c->seen = c->seen < 8 ? 0 : c->seen - 8;
    end = memmem(c->in.data + c->seen, c->in.len - c->seen, "\r\n\r\n", 4);
    c->seen = c->in.len;
    if (!end)
        return false;
    end = memmem(c->in.data, c->in.len, "\r\n\r\n", 4);
    n_head = (size_t)(end - c->in.data) + 4;
    ck_assert_int_eq(buf_add(&r.head, c->in.data, n_head), 0);
    ck_assert_msg(sscanf(r.head.data, "HTTP/1.%*d %d", &r.status) == 1, "no answer: %s",
                  r.head.data);
    length = strcasestr(r.head.data, "\r\nContent-Length: ");
    if (r.status == 100) {
        used = n_head;
    } else if (length) {
        size_t n = strtoul(length + 18, NULL, 10);

        used = c->in.len >= n_head + n ? n_head + n : 0;
        if (used)
            ck_assert_int_eq(buf_add(&r.body, c->in.data + n_head, n), 0);
    } else {
        used = dechunk(c->in.data + n_head, c->in.len - n_head, &r.body);
        used = used ? used + n_head : 0;
    }
    if (!used) {
        response_done(&r);
        return false;
    }
    buf_consume(&c->in, used);
    c->seen = 0;
    ck_assert_int_eq(buf_addz(&r.body, ""), 0);
    *ret = r;
    return true;
}

void client_wait(struct world *w, struct client *c, struct response *ret)
{
    UNTIL(w, client_take(c, ret));
}

void client_expect(struct world *w, struct client *c, int status, const char *words)
{
    struct response r;

    client_wait(w, c, &r);
    ck_assert_msg(r.status == status, "%d, not %d: %s", r.status, status, r.body.data);
    ck_assert_msg(!words || strstr(r.body.data, words), "%s: not in %s%s", words, r.head.data,
                  r.body.data);
    response_done(&r);
}

size_t client_count(const struct client *c, const char *what)
{
    size_t n = 0;

    for (const char *p = c->in.data; p && (p = strstr(p, what)); p++)
        n++;
    return n;
}

void world_expect(const struct world *w, const char *prompt, uint32_t n, char *ret_text)
{
    size_t len = strlen(prompt);
    int32_t *ids = calloc(len + n, sizeof *ids);

    for (size_t i = 0; i < len; i++)
        ids[i] = prompt[i] - ' ' + 2;
    for (uint32_t i = 0; i < n; i++) {
        ids[len + i] = fake_next(&w->fake, ids, len + i, false);
        ret_text[i] = ids[len + i] == FAKE_END ? '\0' : ascii[ids[len + i]];
    }
    ret_text[n] = '\0';
    free(ids);
}

void stream_text(const char *s, struct buf *out)
{
    ck_assert_int_eq(buf_addz(out, ""), 0);
    for (const char *p = s; (p = strstr(p, "data: {")); p++) {
        json_error_t e;
        json_t *j = json_loads(p + 6, JSON_DISABLE_EOF_CHECK, &e);
        const json_t *choice;

        ck_assert_msg(j != NULL, "no JSON in an event: %s", e.text);
        choice = json_array_get(json_object_get(j, "choices"), 0);
        if (choice)
            ck_assert_int_eq(buf_addz(out, json_string_value(json_object_get(choice, "text"))), 0);
        json_decref(j);
    }
}
