/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/json_out.h"

#include "util/buf.h"
#include "util/utf8.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The escape of an ASCII character, or NULL when it stands for itself. */
static const char *escape(unsigned char c, char room[8])
{
    static const char hex[] = "0123456789abcdef";
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";

    for (size_t i = 0; i < sizeof from - 1; i++) {
        if (c == (unsigned char)from[i]) {
            room[0] = '\\';
            room[1] = to[i];
            room[2] = '\0';
            return room;
        }
    }
    if (c >= 0x20 && c != 0x7f)
        return NULL;
    room[0] = '\\';
    room[1] = 'u';
    room[2] = room[3] = '0';
    room[4] = hex[c >> 4];
    room[5] = hex[c & 15];
    room[6] = '\0';
    return room;
}

int json_out_string(struct buf *out, const char *s, size_t n)
{
    size_t plain = 0; /* start of the run not written yet */
    size_t len;
    int r = buf_add(out, "\"", 1);

    for (size_t i = 0; i < n && r >= 0; i += len) {
        unsigned char c = (unsigned char)s[i];
        const char *put;
        char room[8];

        len = 1;
        if (c < 0x80) {
            put = escape(c, room);
        } else {
            bool bad = utf8_decode(s + i, n - i, &len) == 0xfffd && len == 1;

            put = bad ? "\xef\xbf\xbd" : NULL;
        }
        if (!put)
            continue;
        r = buf_add(out, s + plain, i - plain);
        if (r >= 0)
            r = buf_addz(out, put);
        plain = i + len;
    }
    if (r >= 0)
        r = buf_add(out, s + plain, n - plain);
    return r < 0 ? r : buf_add(out, "\"", 1);
}

int json_out_float(struct buf *out, float v)
{
    return isfinite(v) ? buf_addf(out, "%.9g", (double)v) : buf_addz(out, "null");
}

int json_out_fixed(struct buf *out, double v)
{
    return isfinite(v) ? buf_addf(out, "%.3f", v) : buf_addz(out, "null");
}
