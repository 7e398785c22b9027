/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of an HTTP/1.1 client as one POST over a Unix socket needs: the status, then the body as
 * it arrives, whether it has a length, comes in chunks or ends with the connection.
 *
 * The parser does no I/O; not thread safe.
 */
#ifndef CTL_HTTP_CLIENT_H
#define CTL_HTTP_CLIENT_H

#include "util/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err_text;

enum http_client_state {
    HTTP_HEAD,
    HTTP_BODY,
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK,
    HTTP_CHUNK_END,
    HTTP_TRAILER,
    HTTP_DONE
};

/* Zero-initialise with in.limit set; buf_done(&p.in) ends it. */
struct http_client {
    struct buf in; /* what is not understood yet: at most a line */
    enum http_client_state state;
    int status;     /* 200, ... once state is past HTTP_HEAD */
    bool is_stream; /* Content-Type: text/event-stream */
    bool to_end;    /* the body ends with the connection */
    uint64_t left;  /* bytes of the body or of the chunk */
};

/* Appends the request to `out`. */
int http_client_post(struct buf *out, const char *path, const char *body, size_t n);

/* Takes received bytes; appends those of the body to `body`.  0; -EBADMSG with `e`; ERR_CAPACITY;
 * -ENOMEM. */
int http_client_put(struct http_client *p, const char *s, size_t n, struct buf *body,
                    struct err_text *e);
/* The connection has ended.  0, or -EBADMSG when that was too early. */
int http_client_end(struct http_client *p, struct err_text *e);

#endif
