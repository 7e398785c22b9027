/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http_access.h"

#include "daemon/api_error.h"
#include "daemon/api_keys.h"
#include "daemon/tcp_listen.h"
#include "util/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

/* The host of HOST[:PORT], without brackets.  False when it is no such thing. */
static bool split(const char *s, const char **ret_host, size_t *ret_n)
{
    const char *end, *port;

    if (s[0] == '[') {
        end = strchr(s, ']');
        if (!end)
            return false;
        port = end + 1;
        s++;
    } else {
        end = port = s + strcspn(s, ":");
    }
    *ret_host = s;
    *ret_n = (size_t)(end - s);
    if (strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:") < *ret_n)
        return false;
    if (*port == ':')
        port += 1 + strspn(port + 1, "0123456789");
    return *ret_n > 0 && *port == '\0';
}

static bool is_address(const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr room;

    if (n >= sizeof text)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    return inet_pton(AF_INET, text, &room) == 1 || inet_pton(AF_INET6, text, &room) == 1;
}

static bool is_localhost(const char *s, size_t n)
{
    static const char name[] = "localhost";
    const size_t n_name = sizeof name - 1;

    if (n > 0 && s[n - 1] == '.')
        n--;
    if (n < n_name || strncasecmp(s + n - n_name, name, n_name) != 0)
        return false;
    return n == n_name || s[n - n_name - 1] == '.';
}

int access_check_length(const struct access_headers *h, struct api_error *e)
{
    if (h->n_lengths < 2)
        return 0;
    return api_error_set(e, 400, "invalid_length", NULL,
                         "the length of the body is said twice: one Content-Length, or chunked");
}

int access_check_origin(const struct access_headers *h, const char *listen, struct api_error *e)
{
    const char *host = "", *origin = h->origin;
    char shown[128];
    size_t n = 0;

    if (h->many)
        return api_error_set(e, 400, "invalid_host", NULL, "Host or Origin stands there twice");
    /* Only a program that is no browser leaves it out (HTTP/1.0). */
    if (h->host) {
        if (!split(h->host, &host, &n) ||
            !(is_address(host, n) || is_localhost(host, n) || tcp_listen_names(listen, host, n)))
            return api_error_set(
                e, 403, "host_not_allowed", NULL,
                "the Host \"%s\" is not one of this server: an address, localhost, or a name in "
                "\"listen\"",
                err_escape(shown, sizeof shown, h->host, strnlen(h->host, 100)));
    }
    if (!origin)
        return 0;
    if (strncasecmp(origin, "http://", 7) == 0)
        origin += 7;
    else if (strncasecmp(origin, "https://", 8) == 0)
        origin += 8;
    else
        origin = "";
    if (*origin && h->host && strcasecmp(origin, h->host) == 0)
        return 0;
    return api_error_set(
        e, 403, "origin_not_allowed", NULL,
        "a page of %s may not use this server: requests of browsers must come from "
        "the server's own pages",
        err_escape(shown, sizeof shown, h->origin, strnlen(h->origin, 100)));
}

/* The key in a header's value; its length may be 0. */
static const char *key_of(const struct access_headers *h, size_t *ret_n)
{
    const char *s = h->authorization;

    if (s && strncasecmp(s, "Bearer ", 7) == 0)
        s += 7;
    else
        s = h->x_api_key;
    if (!s)
        return NULL;
    s += strspn(s, " \t");
    *ret_n = strlen(s);
    while (*ret_n > 0 && (s[*ret_n - 1] == ' ' || s[*ret_n - 1] == '\t'))
        --*ret_n;
    return s;
}

int access_check_key(const struct access_headers *h, const struct api_keys *keys,
                     const struct api_key_owner **ret, struct api_error *e)
{
    const struct api_key_owner *owner;
    const char *key;
    size_t n;

    key = key_of(h, &n);
    if (!key)
        return api_error_set(e, 401, "invalid_api_key", NULL,
                             "no API key: this server wants \"Authorization: Bearer KEY\"");
    owner = keys ? api_keys_find(keys, key, n) : NULL;
    if (!owner)
        return api_error_set(e, 401, "invalid_api_key", NULL, "the API key is not known here");
    *ret = owner;
    return 0;
}
