/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api_error.h"

#include "daemon/json_out.h"
#include "util/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...)
{
    va_list ap;

    e->status = status;
    e->code = code;
    (void)snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    e->retry_after_s = 0;
    va_start(ap, fmt);
    (void)vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

int api_error_oom(struct api_error *e)
{
    (void)api_error_set(e, 503, "out_of_memory", NULL, "out of memory");
    e->retry_after_s = 1;
    return -ENOMEM;
}

/* The names that OpenAI's clients know. */
static const char *type_of(int status)
{
    if (status == 429)
        return "rate_limit_error";
    if (status >= 500)
        return status == 503 ? "unavailable_error" : "server_error";
    return "invalid_request_error";
}

int api_error_write(const struct api_error *e, struct buf *out)
{
    int r = buf_addz(out, "{\"error\":{\"message\":");

    if (r >= 0)
        r = json_out_string(out, e->message, strlen(e->message));
    if (r >= 0)
        r = buf_addf(out, ",\"type\":\"%s\",\"param\":", type_of(e->status));
    if (r >= 0)
        r = e->param[0] ? json_out_string(out, e->param, strlen(e->param)) : buf_addz(out, "null");
    if (r >= 0)
        r = e->code ? buf_addf(out, ",\"code\":\"%s\"}}", e->code)
                    : buf_addz(out, ",\"code\":null}}");
    return r;
}
