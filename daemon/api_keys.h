/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of clients that come over TCP, and who they belong to.
 *
 * A file of lines "KEY" or "NAME KEY"; '#' begins a comment.  All keys of one NAME belong to one
 * owner, so that a key can be exchanged without losing what is cached for it; a key without a name
 * is its own owner, named by its digest.  Kept are digests, never keys.
 *
 * An owner takes the place of a Unix socket's uid, by a number that no user of a machine has; the
 * number is of this process, the name outlives it.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_API_KEYS_H
#define DAEMON_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_keys;
struct err_text;

enum {
    API_KEYS_MAX = 1000,
    API_KEYS_MAX_BYTES = 256 << 10, /* of the file */
    API_KEY_MAX_BYTES = 256,
    API_KEY_GOOD_BYTES = 16, /* shorter ones can be guessed */
    API_KEY_NAME_BYTES = 40,
    API_KEY_OWNERS_MAX = 65536, /* all that were ever seen */
};

/* Numbers from here on are owners of keys, or UINT32_MAX: nobody knows who. */
#define API_KEY_UIDS UINT32_C(0xf0000000)

static inline bool uid_is_user(uint32_t uid)
{
    return uid < API_KEY_UIDS;
}

/* As logs have it: -1 for who is no user of the machine. */
static inline int32_t uid_shown(uint32_t uid)
{
    return uid_is_user(uid) ? (int32_t)uid : -1;
}

struct api_key_owner {
    uint32_t uid;
    char name[API_KEY_NAME_BYTES + 1];
};

/*
 * Reads `path`; a name without a slash is a credential of the service manager, where there are any
 * ($CREDENTIALS_DIRECTORY).  0, or negative with `e` saying file, line and what is wrong: no key at
 * all, one twice, one too long, a file that others may read or change.
 */
int api_keys_open(const char *path, struct api_keys **ret, struct err_text *e);
void api_keys_free(struct api_keys *k); /* NULL is fine */

/* Reads the file again.  On failure, likewise, the keys stay as they were. */
int api_keys_reload(struct api_keys *k, struct err_text *e);

/*
 * Whose key this is, NULL: nobody's, or sha256() fails.  Takes as long whatever the key is and
 * wherever it stands.  The owner is valid until api_keys_free, when its key is gone too.
 */
const struct api_key_owner *api_keys_find(const struct api_keys *k, const char *key, size_t n);

/* The name of the owner that has this number, of any that was ever seen; NULL: none has.  `k` may
 * be NULL. */
const char *api_keys_name(const struct api_keys *k, uint32_t uid);

uint32_t api_keys_n(const struct api_keys *k);
/* How many are shorter than API_KEY_GOOD_BYTES. */
uint32_t api_keys_n_short(const struct api_keys *k);

#endif
