/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/http_client.h"

#include "util/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int http_client_post(struct buf *out, const char *path, const char *body, size_t n)
{
    int r = buf_addf(out,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     path, n);

    return r < 0 ? r : buf_add(out, body, n);
}

/* The next line of `in` without its end, NUL-terminated in place; NULL when it is not whole yet. */
static char *next_line(struct http_client *p, size_t *ret_used)
{
    char *end = p->in.len ? memchr(p->in.data, '\n', p->in.len) : NULL;

    if (!end)
        return NULL;
    *ret_used = (size_t)(end + 1 - p->in.data);
    *end = '\0';
    if (end > p->in.data && end[-1] == '\r')
        end[-1] = '\0';
    return p->in.data;
}

/* The value of header `name` when `line` is that header. */
static const char *header(const char *line, const char *name)
{
    size_t n = strlen(name);

    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static int take_head_line(struct http_client *p, const char *line, struct err_text *e)
{
    const char *v;
    unsigned long long len;

    if (p->status == 0) {
        if (sscanf(line, "HTTP/1.%*1[01] %3d", &p->status) != 1 || p->status < 100)
            return err_set(e, -EBADMSG, "the answer is not HTTP");
        p->to_end = true;
        return 0;
    }
    if (line[0] == '\0') {
        if (p->status < 200) {
            p->status = 0; /* 100 Continue: the real head follows */
            return 0;
        }
        p->state = p->to_end || p->left > 0 ? HTTP_BODY : HTTP_DONE;
        if (p->left == UINT64_MAX)
            p->state = HTTP_CHUNK_SIZE;
        return 0;
    }
    v = header(line, "Content-Type");
    if (v)
        p->is_stream = strncasecmp(v, "text/event-stream", 17) == 0;
    v = header(line, "Transfer-Encoding");
    if (v && strcasecmp(v, "chunked") == 0) {
        p->left = UINT64_MAX; /* until the end of the head: chunks win over a length */
        p->to_end = false;
    }
    v = header(line, "Content-Length");
    if (v && p->left != UINT64_MAX) {
        if (*v < '0' || *v > '9' || sscanf(v, "%llu", &len) != 1 || len >= UINT64_MAX)
            return err_set(e, -EBADMSG, "the answer has a bad Content-Length");
        p->left = len;
        p->to_end = false;
    }
    return 0;
}

static int take_chunk_size(struct http_client *p, const char *line, struct err_text *e)
{
    size_t digits = strspn(line, "0123456789abcdefABCDEF");
    unsigned long long size;

    /* 15 digits cannot overflow; what follows a ';' is an extension. */
    if (digits == 0 || digits > 15 || (line[digits] && !strchr("; \t", line[digits])) ||
        sscanf(line, "%llx", &size) != 1)
        return err_set(e, -EBADMSG, "the answer has a bad chunk");
    p->left = size;
    p->state = size > 0 ? HTTP_CHUNK : HTTP_TRAILER;
    return 0;
}

static int take_line(struct http_client *p, const char *line, struct err_text *e)
{
    switch (p->state) {
    case HTTP_HEAD:
        return take_head_line(p, line, e);
    case HTTP_CHUNK_SIZE:
        return take_chunk_size(p, line, e);
    case HTTP_CHUNK_END:
        if (line[0])
            return err_set(e, -EBADMSG, "the answer has a chunk of another size than it says");
        p->state = HTTP_CHUNK_SIZE;
        return 0;
    case HTTP_TRAILER:
        if (line[0] == '\0')
            p->state = HTTP_DONE;
        return 0;
    case HTTP_BODY:
    case HTTP_CHUNK:
    case HTTP_DONE:
        break;
    }
    return 0;
}

int http_client_put(struct http_client *p, const char *s, size_t n, struct buf *body,
                    struct err_text *e)
{
    int r;

    while (n > 0 && p->state != HTTP_DONE) {
        const char *nl;
        size_t k, used;
        char *line;

        if (p->state == HTTP_BODY || p->state == HTTP_CHUNK) {
            k = !p->to_end && p->left < n ? (size_t)p->left : n;
            r = buf_add(body, s, k);
            if (r < 0)
                return r;
            s += k;
            n -= k;
            p->left -= p->to_end ? 0 : k;
            if (!p->to_end && p->left == 0)
                p->state = p->state == HTTP_CHUNK ? HTTP_CHUNK_END : HTTP_DONE;
            continue;
        }
        nl = memchr(s, '\n', n);
        k = nl ? (size_t)(nl + 1 - s) : n;
        r = buf_add(&p->in, s, k);
        if (r < 0)
            return err_set(e, r, "the answer has a line that is too long");
        s += k;
        n -= k;
        line = next_line(p, &used);
        if (!line)
            continue;
        r = take_line(p, line, e);
        buf_consume(&p->in, used);
        if (r < 0)
            return r;
    }
    return 0;
}

int http_client_end(struct http_client *p, struct err_text *e)
{
    if (p->state == HTTP_DONE || (p->state == HTTP_BODY && p->to_end))
        return 0;
    return err_set(e, -EBADMSG, "the answer ends too early");
}
