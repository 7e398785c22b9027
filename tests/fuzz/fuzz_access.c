/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decides about access over TCP, given a line each: Host, Origin, Authorization, "listen", and
 * then the file of keys.  Whatever they are: words in plain ASCII, or what must be true of those
 * that may.
 */
#include "daemon/api_error.h"
#include "daemon/api_keys.h"
#include "daemon/http_access.h"
#include "daemon/tcp_listen.h"
#include "util/err.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            abort();                                                                               \
    } while (0)

enum { N_LINES = 4 };

static void must_be_ascii(const char *s)
{
    MUST(s[0]);
    for (; *s; s++)
        MUST(*s >= ' ' && *s < 0x7f);
}

static void check_keys(const char *text, size_t n, const struct access_headers *h)
{
    const struct api_key_owner *owner = NULL;
    int fd = memfd_create("keys", MFD_CLOEXEC);
    struct api_keys *k = NULL;
    struct api_error e = {0};
    struct err_text why = {""};
    char path[64];

    MUST(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, n) == (ssize_t)n);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (api_keys_open(path, &k, &why) < 0) {
        must_be_ascii(why.s);
    } else {
        MUST(api_keys_n(k) > 0 && api_keys_n_short(k) <= api_keys_n(k));
        MUST(api_keys_reload(k, &why) == 0);
        if (access_check_key(h, k, &owner, &e) == 0)
            MUST(owner->name[0] && !uid_is_user(owner->uid));
        else
            MUST(e.status == 401);
    }
    api_keys_free(k);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line[N_LINES] = {"", "", "", ""};
    char *text = malloc(size + 1), *rest = text;
    struct access_headers h = {0};
    struct api_error e = {0};
    struct err_text why = {""};

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 0; i < N_LINES; i++) {
        char *end = strchr(rest, '\n');

        if (!end)
            break;
        *end = '\0';
        line[i] = rest;
        rest = end + 1;
    }
    h.host = line[0];
    h.authorization = line[2];

    if (access_check_origin(&h, line[3], &e) == 0) {
        MUST(!strpbrk(h.host, "@/\\ ?#"));
        h.origin = line[1];
        if (access_check_origin(&h, line[3], &e) == 0)
            MUST(strstr(h.origin, "://") && strlen(h.origin) > strlen(h.host));
    }
    if (e.status) {
        MUST(e.status == 403);
        must_be_ascii(e.message);
    }
    if (tcp_listen_check(line[3], &why) < 0)
        must_be_ascii(why.s);
    check_keys(rest, size - (size_t)(rest - text), &h);
    free(text);
    return 0;
}
