/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api_keys.h"

#include "daemon/small_file.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct key {
    uint8_t digest[SHA256_BYTES];
    const struct api_key_owner *owner;
    unsigned int line;
};

struct key_list {
    struct key *keys; /* owned, [n] */
    uint32_t n, n_short;
};

struct api_keys {
    char *path; /* owned */
    struct key_list list;
    struct api_key_owner **owners; /* owned, [n_owners] and they too; they stay as numbered */
    uint32_t n_owners;
};

static void key_list_done(struct key_list *l)
{
    free(l->keys);
    *l = (struct key_list){0};
}

/* The owner of this name, made if new.  NULL: no memory, or more than there are numbers for. */
static const struct api_key_owner *owner_get(struct api_keys *k, const char *name)
{
    struct api_key_owner **more, *o;

    for (uint32_t i = 0; i < k->n_owners; i++)
        if (strcmp(k->owners[i]->name, name) == 0)
            return k->owners[i];
    if (k->n_owners == API_KEY_OWNERS_MAX)
        return NULL;
    more = reallocarray(k->owners, k->n_owners + 1, sizeof *more);
    if (!more)
        return NULL;
    k->owners = more;
    o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->uid = API_KEY_UIDS + k->n_owners;
    (void)snprintf(o->name, sizeof o->name, "%s", name);
    more[k->n_owners++] = o;
    return o;
}

/* The next word of a line, NUL-terminated in place; NULL at its end or at a comment. */
static char *next_word(char **at)
{
    char *s = *at + strspn(*at, " \t\r");
    size_t n = strcspn(s, " \t\r");

    if (*s == '\0' || *s == '#')
        return NULL;
    *at = s + n;
    if (**at)
        *(*at)++ = '\0';
    return s;
}

static bool is_name(const char *s)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@");

    return n > 0 && n <= API_KEY_NAME_BYTES && s[n] == '\0';
}

static bool is_key(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~')
            return false;
    return n <= API_KEY_MAX_BYTES;
}

static int add_key(struct api_keys *k, struct key_list *l, const char *name, const char *key,
                   unsigned int line, struct err_text *e)
{
    char own_name[API_KEY_NAME_BYTES + 1], hex[2 * SHA256_BYTES + 1];
    struct key *x = &l->keys[l->n];
    int r = sha256(key, strlen(key), x->digest);

    if (r == 0 && !name)
        r = sha256_hex(key, strlen(key), hex);
    if (r < 0)
        return err_set(e, r, "line %u: libcrypto gives no SHA-256 of the key", line);
    for (uint32_t i = 0; i < l->n; i++)
        if (memcmp(l->keys[i].digest, x->digest, SHA256_BYTES) == 0)
            return err_set(e, -EINVAL, "line %u: the key of line %u again", line, l->keys[i].line);
    if (!name) {
        /* No name in the file has a colon. */
        (void)snprintf(own_name, sizeof own_name, "sha256:%.16s", hex);
        name = own_name;
    }
    x->owner = owner_get(k, name);
    if (!x->owner)
        return err_set(e, -ENOMEM, "line %u: no memory, or too many owners of keys", line);
    x->line = line;
    l->n_short += strlen(key) < API_KEY_GOOD_BYTES;
    l->n++;
    return 0;
}

/* Never says what stood there: it may be a key. */
static int read_line(struct api_keys *k, struct key_list *l, char *s, unsigned int line,
                     struct err_text *e)
{
    char *first = next_word(&s), *second = first ? next_word(&s) : NULL;
    const char *name = second ? first : NULL, *key = second ? second : first;

    if (!first)
        return 0;
    if (second && next_word(&s))
        return err_set(e, -EINVAL, "line %u: expected KEY or NAME KEY, found more words", line);
    if (name && !is_name(name))
        return err_set(e, -EINVAL,
                       "line %u: a name has 1 to %d letters, digits, '-', '_', '.' or '@'", line,
                       API_KEY_NAME_BYTES);
    if (!is_key(key))
        return err_set(e, -EINVAL, "line %u: a key has at most %d bytes of printable ASCII", line,
                       API_KEY_MAX_BYTES);
    if (l->n == API_KEYS_MAX)
        return err_set(e, ERR_CAPACITY, "line %u: more than %d keys", line, API_KEYS_MAX);
    return add_key(k, l, name, key, line, e);
}

static int read_lines(struct api_keys *k, struct buf *text, struct key_list *ret,
                      struct err_text *e)
{
    CLEANUP(key_list_done) struct key_list l = {0};
    unsigned int line = 0;
    int r;

    if (text->len == 0)
        return err_set(e, -EINVAL, "holds no key");
    if (memchr(text->data, '\0', text->len))
        return err_set(e, -EINVAL, "not a text file");
    l.keys = calloc(API_KEYS_MAX, sizeof *l.keys);
    if (!l.keys)
        return err_set(e, -ENOMEM, "out of memory");
    for (char *s = text->data, *next; s; s = next) {
        next = strchr(s, '\n');
        if (next)
            *next++ = '\0';
        r = read_line(k, &l, s, ++line, e);
        if (r < 0)
            return r;
    }
    if (l.n == 0)
        return err_set(e, -EINVAL, "holds no key");
    *ret = l;
    l = (struct key_list){0};
    return 0;
}

static int check_mode(const struct stat *st, struct err_text *e)
{
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(e, -EPERM, "belongs to another user (uid %u)", st->st_uid);
    if (st->st_mode & (S_IWGRP | S_IRWXO))
        return err_set(
            e, -EPERM,
            "its mode %04o lets others read or change it; only its owner and a group that "
            "reads may (chmod 0600)",
            st->st_mode & 07777);
    return 0;
}

static void forget(struct buf *text)
{
    if (text->data)
        explicit_bzero(text->data, text->cap);
    buf_done(text);
}

static int load(struct api_keys *k, struct key_list *ret, struct err_text *e)
{
    struct buf text = {.limit = API_KEYS_MAX_BYTES};
    struct err_text why;
    char shown[256];
    struct stat st;
    int r = small_file_read(k->path, &text, &st, e);

    if (r == 0) {
        r = check_mode(&st, &why);
        if (r == 0)
            r = read_lines(k, &text, ret, &why);
        if (r < 0)
            (void)err_set(e, r, "%s: %s", err_escape(shown, sizeof shown, k->path, strlen(k->path)),
                          why.s);
    }
    forget(&text);
    return r;
}

/* Credentials are named, files are reached by a path. */
static char *path_of(const char *path)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    char *s;

    if (!dir || strchr(path, '/'))
        return strdup(path);
    return asprintf(&s, "%s/%s", dir, path) < 0 ? NULL : s;
}

int api_keys_open(const char *path, struct api_keys **ret, struct err_text *e)
{
    struct api_keys *k = calloc(1, sizeof *k);
    int r;

    if (k)
        k->path = path_of(path);
    r = k && k->path ? load(k, &k->list, e) : err_set(e, -ENOMEM, "out of memory");
    if (r < 0) {
        api_keys_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

void api_keys_free(struct api_keys *k)
{
    if (!k)
        return;
    key_list_done(&k->list);
    for (uint32_t i = 0; i < k->n_owners; i++)
        free(k->owners[i]);
    free(k->owners);
    free(k->path);
    free(k);
}

int api_keys_reload(struct api_keys *k, struct err_text *e)
{
    struct key_list fresh = {0};
    int r = load(k, &fresh, e);

    if (r < 0)
        return r;
    key_list_done(&k->list);
    k->list = fresh;
    return 0;
}

const struct api_key_owner *api_keys_find(const struct api_keys *k, const char *key, size_t n)
{
    uint8_t digest[SHA256_BYTES];
    const struct api_key_owner *found = NULL;

    if (n > API_KEY_MAX_BYTES || sha256(key, n, digest) < 0)
        return NULL;
    /* All of them, and none is there twice. */
    for (uint32_t i = 0; i < k->list.n; i++)
        if (sha256_equal(k->list.keys[i].digest, digest))
            found = k->list.keys[i].owner;
    return found;
}

const char *api_keys_name(const struct api_keys *k, uint32_t uid)
{
    if (!k || uid_is_user(uid) || uid - API_KEY_UIDS >= k->n_owners)
        return NULL;
    return k->owners[uid - API_KEY_UIDS]->name;
}

uint32_t api_keys_n(const struct api_keys *k)
{
    return k->list.n;
}

uint32_t api_keys_n_short(const struct api_keys *k)
{
    return k->list.n_short;
}
