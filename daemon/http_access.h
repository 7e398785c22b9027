/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask over TCP: whoever has a key, and no page of a browser that came from elsewhere.
 *
 * A page can make a browser send requests to this machine: directly (it says so in Origin), or by a
 * name of its own that it lets point here (DNS rebinding: then Host is that name).  Both are
 * refused whatever else the request has.
 */
#ifndef DAEMON_HTTP_ACCESS_H
#define DAEMON_HTTP_ACCESS_H

#include <stdbool.h>

struct api_error;
struct api_key_owner;
struct api_keys;

/* The headers of a request that matter here; NULL: absent. */
struct access_headers {
    const char *host, *origin, *authorization, *x_api_key;
    bool many;              /* Host or Origin stands there twice */
    unsigned int n_lengths; /* Content-Length and Transfer-Encoding, all of them */
};

/*
 * Where a body ends is said once: a proxy that reads it in another way than we do would take what
 * is behind it for another request than we do, of another user perhaps.  0, or negative with `e`
 * (400).
 */
int access_check_length(const struct access_headers *h, struct api_error *e);

/*
 * Host is an address, localhost, a name below it, or a name in `listen` (the setting, may be NULL);
 * and Origin, when there is one, is the same.  0, or negative with `e` (400, 403).
 */
int access_check_origin(const struct access_headers *h, const char *listen, struct api_error *e);

/*
 * "Authorization: Bearer KEY" or "X-Api-Key: KEY".  0 with its owner, or negative with `e` (401),
 * with or without a key that was wrong.
 */
int access_check_key(const struct access_headers *h, const struct api_keys *keys,
                     const struct api_key_owner **ret, struct api_error *e);

#endif
