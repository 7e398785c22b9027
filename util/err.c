/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *err_str(int code)
{
    if (code >= 0)
        return "success";
    if (code > -4096)
        return strerrordesc_np(-code) ? strerrordesc_np(-code) : "unknown error";

    /* No default: the compiler names a forgotten code. */
    switch ((enum err_code)code) {
    case ERR_DAMAGED:
        return "damaged data";
    case ERR_UNSUPPORTED:
        return "not supported";
    case ERR_CAPACITY:
        return "out of capacity";
    case ERR_NONFINITE:
        return "the model produced a value that is not finite";
    case ERR_ENDED:
        return "the sequence has ended";
    case ERR_DEVICE:
        return "the compute device failed";
    case ERR_IDENTITY:
        return "state of another model or layout";
    }
    return "unknown error";
}

int err_set(struct err_text *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (e) {
        va_start(ap, fmt);
        (void)vsnprintf(e->s, sizeof e->s, fmt, ap);
        va_end(ap);
    }
    return code;
}

char *err_escape(char *out, size_t size, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t o = 0;

    if (size == 0)
        return out;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        int plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';

        if (o + (plain ? 1 : 4) + 1 > size)
            break;
        if (plain) {
            out[o++] = (char)c;
        } else {
            out[o++] = '\\';
            out[o++] = 'x';
            out[o++] = hex[c >> 4];
            out[o++] = hex[c & 15];
        }
    }
    out[o] = '\0';
    return out;
}
