/* SPDX-License-Identifier: Apache-2.0 */
#include "util/text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int text_u64(const char *s, uint64_t *ret)
{
    uint64_t v = 0;

    if (*s == '\0')
        return -EINVAL;
    for (const char *p = s; *p; p++)
        if (*p < '0' || *p > '9')
            return -EINVAL;
    for (; *s; s++)
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return -ERANGE;
    *ret = v;
    return 0;
}

int text_f64(const char *s, double *ret)
{
    /* strtod would also take spaces, hexadecimal, "inf" and the locale's comma: the letters decide
     * before it is asked. */
    static const char allowed[] = "0123456789.eE+-";
    char *end;
    double v;
    locale_t c, old;

    if (*s == '\0' || s[strspn(s, allowed)] != '\0')
        return -EINVAL;
    c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return -ENOMEM;
    old = uselocale(c);
    v = strtod(s, &end);
    (void)uselocale(old);
    freelocale(c);
    if (end == s || *end != '\0')
        return -EINVAL;
    if (!isfinite(v))
        return -ERANGE;
    *ret = v;
    return 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t text_distance(const char *a, const char *b)
{
    enum { MOST = 63 };
    uint8_t row[3][MOST + 1]; /* the newest three rows of the table; every value is at most MOST */
    size_t n = strlen(a), m = strlen(b);

    if (n > MOST || m > MOST)
        return UINT32_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (uint8_t)j;
    for (size_t i = 1; i <= n; i++) {
        uint8_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

        now[0] = (uint8_t)i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t d = last[j - 1] + (uint32_t)(a[i - 1] != b[j - 1]);

            d = min_u32(d, last[j] + 1u);
            d = min_u32(d, now[j - 1] + 1u);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = min_u32(d, before[j - 2] + 1u);
            now[j] = (uint8_t)d;
        }
    }
    return row[n % 3][m];
}

int text_is_near(const char *typed, uint32_t distance)
{
    size_t n = strlen(typed);

    return distance <= (n <= 4 ? 1u : n <= 8 ? 2u : 3u);
}
