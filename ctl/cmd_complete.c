/* SPDX-License-Identifier: Apache-2.0 */
/* `stratactl complete`: one completion over the API socket, its text printed as it comes. */
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/http_client.h"
#include "ctl/out.h"
#include "ctl/paths.h"
#include "ctl/varlink.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/text.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PROMPT_LIMIT = 48 << 20, /* of standard input: escaped as JSON it still fits the daemon's limit
                                for a body, mostly */
    LINE_LIMIT = 1 << 20,
    BODY_LIMIT = 64 << 20, /* of an answer that is not a stream */
};

/* --- the request -------------------------------------------------------------------------------
 */

enum value_kind { VALUE_COUNT, VALUE_FRACTION, VALUE_STRINGS };

static const struct {
    const char *option, *key;
    enum value_kind kind;
} options[] = {
    {"--max-tokens", "max_tokens", VALUE_COUNT},
    {"--temperature", "temperature", VALUE_FRACTION},
    {"--top-p", "top_p", VALUE_FRACTION},
    {"--top-k", "top_k", VALUE_COUNT},
    {"--seed", "seed", VALUE_COUNT},
    {"--stop", "stop", VALUE_STRINGS}, /* may be given several times */
};

/* Adds option `i` with its text to the request. */
static int set_option(const struct ctl *c, json_t *request, size_t i, const char *text)
{
    json_t *value = NULL, *list;
    uint64_t u;
    double d;

    switch (options[i].kind) {
    case VALUE_COUNT:
        if (text_u64(text, &u) < 0 || u > INT64_MAX)
            return ctl_say(c, CTL_USAGE, "%s takes a whole number, not \"%s\"", options[i].option,
                           text);
        value = json_integer((json_int_t)u);
        break;
    case VALUE_FRACTION:
        if (text_f64(text, &d) < 0)
            return ctl_say(c, CTL_USAGE, "%s takes a number, not \"%s\"", options[i].option, text);
        value = json_real(d);
        break;
    case VALUE_STRINGS:
        value = json_string(text);
        if (!value)
            return ctl_say(c, CTL_USAGE, "%s takes text in UTF-8", options[i].option);
        list = json_object_get(request, options[i].key);
        if (list)
            return json_array_append_new(list, value) < 0 ? ctl_say(c, CTL_FAILED, "out of memory")
                                                          : CTL_OK;
        value = json_pack("[o]", value);
        break;
    }
    return json_object_set_new(request, options[i].key, value) < 0
               ? ctl_say(c, CTL_FAILED, "out of memory")
               : CTL_OK;
}

static int read_stdin(const struct ctl *c, struct buf *b)
{
    char chunk[16384];
    ssize_t n;
    int r;

    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ctl_say(c, CTL_FAILED, "cannot read standard input: %s", err_str(-errno));
        r = buf_add(b, chunk, (size_t)n);
        if (r < 0)
            return ctl_say(c, CTL_FAILED, "the prompt is too long");
    }
    return CTL_OK;
}

/* The request as the command line says. */
static int make_request(const struct ctl *c, int argc, char **argv, json_t *request)
{
    CLEANUP(buf_done) struct buf text = {.limit = PROMPT_LIMIT};
    const char *prompt = NULL;
    json_t *value;
    int r;

    for (int i = 0; i < argc; i++) {
        size_t k = 0;

        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            if (prompt)
                return ctl_say(c, CTL_USAGE, "more than one prompt; quote the text");
            prompt = argv[i];
            continue;
        }
        while (k < sizeof options / sizeof options[0] && strcmp(options[k].option, argv[i]) != 0)
            k++;
        if (k == sizeof options / sizeof options[0])
            return ctl_say(c, CTL_USAGE, "complete has no option %s; stratactl(1) lists them",
                           argv[i]);
        if (++i == argc)
            return ctl_say(c, CTL_USAGE, "%s needs a value", argv[i - 1]);
        r = set_option(c, request, k, argv[i]);
        if (r != CTL_OK)
            return r;
    }
    if (!prompt && isatty(STDIN_FILENO))
        return ctl_say(c, CTL_USAGE,
                       "complete needs a prompt, or - to read it from standard input");
    if (prompt && strcmp(prompt, "-") != 0) {
        value = json_string(prompt);
    } else {
        r = read_stdin(c, &text);
        if (r != CTL_OK)
            return r;
        value = json_stringn(text.data ? text.data : "", text.len);
    }
    if (!value)
        return ctl_say(c, CTL_USAGE, "the prompt is not text in UTF-8");
    if (json_object_set_new(request, "prompt", value) < 0 ||
        (!c->json && json_object_set_new(request, "stream", json_true()) < 0))
        return ctl_say(c, CTL_FAILED, "out of memory");
    return CTL_OK;
}

/* --- the answer --------------------------------------------------------------------------------
 */

struct answer {
    const struct ctl *c;
    struct http_client http;
    struct buf body; /* what has arrived and was not printed yet */
    bool ended;      /* [DONE] */
    bool said;       /* an error of the stream was said */
    bool newline;    /* the text so far ends with one */
};

/* The words of an OpenAI error object, or NULL. */
static const char *error_message(const json_t *j)
{
    return json_string_value(json_object_get(json_object_get(j, "error"), "message"));
}

/* One event of the stream. */
static void take_event(struct answer *a, const char *s, size_t n)
{
    CLEANUP(json_decrefp) json_t *j = NULL;
    const json_t *text;
    size_t len;

    if (n == 6 && memcmp(s, "[DONE]", 6) == 0) {
        a->ended = true;
        return;
    }
    j = json_loadb(s, n, 0, NULL);
    if (error_message(j)) {
        (void)ctl_say(a->c, CTL_FAILED, "%s", error_message(j));
        a->said = true;
        return;
    }
    text = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "text");
    len = json_string_length(text);
    if (len == 0)
        return;
    if (isatty(fileno(a->c->out)))
        out_text(a->c->out, json_string_value(text), len);
    else
        (void)fwrite(json_string_value(text), 1, len, a->c->out);
    (void)fflush(a->c->out);
    a->newline = json_string_value(text)[len - 1] == '\n';
}

/* Takes whole lines off the body: "data: ..." is an event, comments and empty lines are not. */
static void take_lines(struct answer *a)
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

/* Receives until the answer is whole. */
static int receive(struct answer *a, int fd)
{
    char chunk[16384];
    struct err_text e;
    int r = 0;

    while (a->http.state != HTTP_DONE) {
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ctl_say(a->c, CTL_FAILED, "the connection broke: %s", err_str(-errno));
        r = n > 0 ? http_client_put(&a->http, chunk, (size_t)n, &a->body, &e)
                  : http_client_end(&a->http, &e);
        if (r < 0)
            return ctl_say(a->c, CTL_FAILED, "%s", r == -EBADMSG ? e.s : err_str(r));
        if (a->http.is_stream && a->http.status == 200)
            take_lines(a);
        if (n == 0)
            break;
    }
    return CTL_OK;
}

static int finish(struct answer *a)
{
    CLEANUP(json_decrefp) json_t *j = NULL;

    if (a->http.status != 200) {
        j = json_loadb(a->body.data ? a->body.data : "", a->body.len, 0, NULL);
        if (error_message(j))
            return ctl_say(a->c, CTL_FAILED, "%s", error_message(j));
        return ctl_say(a->c, CTL_FAILED, "the daemon answered with status %d", a->http.status);
    }
    if (!a->http.is_stream) {
        (void)fwrite(a->body.data ? a->body.data : "", 1, a->body.len, a->c->out);
        if (a->body.len > 0 && a->body.data[a->body.len - 1] != '\n')
            (void)fputc('\n', a->c->out);
        return CTL_OK;
    }
    if (!a->newline)
        (void)fputc('\n', a->c->out);
    if (a->said)
        return CTL_FAILED;
    return a->ended ? CTL_OK : ctl_say(a->c, CTL_FAILED, "the answer ends too early");
}

/* The API socket: the instance's own, or the one that the daemon at --socket names. */
static int connect_api(const struct ctl *c, int *ret_fd)
{
    json_t *status;
    const char *path;
    int r;

    if (!c->socket)
        return client_connect(c, NULL, STRATA_API_SOCKET, ret_fd);
    r = client_call(c, STRATA_CONTROL ".Status", NULL, &status);
    if (r != CTL_OK)
        return r;
    path = json_string_value(json_array_get(json_object_get(status, "api_sockets"), 0));
    r = path ? client_connect(c, path, STRATA_API_SOCKET, ret_fd)
             : ctl_say(c, CTL_FAILED, "the daemon does not say where its API is");
    json_decref(status);
    return r;
}

int cmd_complete(const struct ctl *c, int argc, char **argv)
{
    CLEANUP(json_decrefp) json_t *request = json_object();
    CLEANUP(close_p) int fd = -1;
    CLEANUP(buf_done) struct buf out = {0};
    struct answer a = {.c = c, .http.in.limit = LINE_LIMIT, .body.limit = BODY_LIMIT};
    char *body;
    int r;

    r = request ? make_request(c, argc, argv, request) : ctl_say(c, CTL_FAILED, "out of memory");
    if (r == CTL_OK)
        r = connect_api(c, &fd);
    if (r != CTL_OK)
        return r;
    body = json_dumps(request, JSON_COMPACT);
    r = body ? http_client_post(&out, "/v1/completions", body, strlen(body)) : -ENOMEM;
    free(body);
    /* A daemon that refuses a large body answers before it is all sent; so a failed send is not the
     * last word. */
    for (size_t at = 0; r == 0 && at < out.len;) {
        ssize_t n = send(fd, out.data + at, out.len - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    r = r < 0 ? ctl_say(c, CTL_FAILED, "%s", err_str(r)) : receive(&a, fd);
    if (r == CTL_OK)
        r = finish(&a);
    buf_done(&a.http.in);
    buf_done(&a.body);
    return r;
}
