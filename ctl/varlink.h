/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Varlink wire, for both sides: JSON objects that each end with a NUL byte, on a stream socket.
 *
 * Client to server {"method": "interface.Method", "parameters": {...}} and at most one of "more",
 * "oneway", "upgrade"; server to client {"parameters": {...}} with "continues": true when more
 * follow, or {"error": "interface.Error", "parameters": {...}}. Replies come in the order of calls.
 *
 * No I/O here: bytes go in and out of struct buf.  Not thread safe, no global state.
 */
#ifndef CTL_VARLINK_H
#define CTL_VARLINK_H

#include "util/buf.h"

#include <jansson.h>
#include <stdbool.h>

struct err_text;

enum {
    VARLINK_MAX_FRAME = 1 << 20, /* bytes of one message, its NUL included */
};

#define VARLINK_SERVICE                "org.varlink.service"
#define VARLINK_INTERFACE_NOT_FOUND    VARLINK_SERVICE ".InterfaceNotFound"
#define VARLINK_METHOD_NOT_FOUND       VARLINK_SERVICE ".MethodNotFound"
#define VARLINK_METHOD_NOT_IMPLEMENTED VARLINK_SERVICE ".MethodNotImplemented"
#define VARLINK_INVALID_PARAMETER      VARLINK_SERVICE ".InvalidParameter"
#define VARLINK_PERMISSION_DENIED      VARLINK_SERVICE ".PermissionDenied"
#define VARLINK_EXPECTED_MORE          VARLINK_SERVICE ".ExpectedMore"

#define STRATA_CONTROL "io.strata.Control"
/* The text of io.strata.Control.varlink and of org.varlink.service. */
extern const char strata_control_idl[];
extern const char varlink_service_idl[];

/* Cuts received bytes into messages.  Zero-initialise; buf_done(&r.in) ends it. */
struct varlink_reader {
    struct buf in;
    size_t at;      /* messages before here were handed out */
    size_t scanned; /* no NUL between at and here */
};

/* Where to receive to: at least one byte of room at *ret, *ret_n of them.  0; ERR_CAPACITY when an
 * unfinished message is too large; -ENOMEM. */
int varlink_reader_room(struct varlink_reader *r, char **ret, size_t *ret_n);
/* `n` bytes were received there. */
void varlink_reader_received(struct varlink_reader *r, size_t n);
/* Adds bytes: the two above for data that is in memory. */
int varlink_reader_put(struct varlink_reader *r, const char *p, size_t n);
/* The next whole message without its NUL, valid until the next call on `r`: 1, or 0 when there is
 * none. */
int varlink_reader_next(struct varlink_reader *r, const char **ret, size_t *ret_n);

/* A call as a server sees it. */
struct varlink_call {
    json_t *message;    /* owned; the rest points into it */
    const char *method; /* "interface.Method" */
    json_t *parameters; /* an object, or NULL when absent */
    bool more, oneway, upgrade;
};
/* 0; -EBADMSG with `e` for what is not a call (the connection must end); -ENOMEM. */
int varlink_call_parse(const char *frame, size_t n, struct varlink_call *ret, struct err_text *e);
void varlink_call_done(struct varlink_call *c);

/* A reply as a client sees it. */
struct varlink_reply {
    json_t *message;    /* owned */
    const char *error;  /* NULL: success */
    json_t *parameters; /* an object, or NULL when absent */
    bool continues;
};
int varlink_reply_parse(const char *frame, size_t n, struct varlink_reply *ret, struct err_text *e);
void varlink_reply_done(struct varlink_reply *r);

/*
 * Append one message to `out`.  `parameters` is taken over, also on failure; NULL counts as out of
 * memory for a reply (a failed json_pack) and as absent for a call.  0, -ENOMEM, or ERR_CAPACITY
 * past out->limit; nothing is appended on failure.
 */
int varlink_add_call(struct buf *out, const char *method, json_t *parameters, bool more);
int varlink_add_reply(struct buf *out, json_t *parameters, bool continues);
/* `key` NULL: an error without parameters, else with one string. */
int varlink_add_error(struct buf *out, const char *error, const char *key, const char *value);

#endif
