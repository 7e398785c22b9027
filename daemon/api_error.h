/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request was refused, and OpenAI's JSON object for it. */
#ifndef DAEMON_API_ERROR_H
#define DAEMON_API_ERROR_H

struct buf;

/* A plain value: filled on a front thread or on the loop, turned into an answer on the loop. */
struct api_error {
    int status;        /* HTTP; 0: no error */
    const char *code;  /* static, for programs: "context_length_exceeded"; NULL: null */
    char param[64];    /* the field at fault; "": null */
    char message[512]; /* printable ASCII: what was found (escaped) and what is allowed */
    int retry_after_s; /* > 0: a Retry-After header */
};

/* Fills `e` and returns -EINVAL, so that failing is one line.  NULL param or code: null. */
int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* 400 for a field. */
#define api_bad_field(e, param, ...) api_error_set(e, 400, "invalid_value", param, __VA_ARGS__)

int api_error_oom(struct api_error *e);

/* {"error":{"message","type","param","code"}} without a newline.  0 or -ENOMEM. */
int api_error_write(const struct api_error *e, struct buf *out);

#endif
