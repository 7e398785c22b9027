/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is free, for the machine and for our control group.
 *
 * Each hierarchy is found in /proc/self/mountinfo, since a container sees a part of it only: there
 * the mount's root is some group, and /proc/self/cgroup may name a path from above it, or one that
 * is not below it at all.  Without mountinfo the usual folders are tried.
 */
#include "daemon/memory.h"

#include <stdbool.h>
#include <string.h>

/* A hierarchy that limits memory. */
struct hierarchy {
    bool is_v2;
    char mount[1024]; /* where it is mounted; "" not found */
    char top[1024];   /* the group that is mounted there, "" for the very top */
    const char *limit, *throttle, *use, *cache_key;
};

/* A file below `root`, or NULL. */
static FILE *open_below(const char *root, const char *path)
{
    char full[8192];
    int n = snprintf(full, sizeof full, "%s%s", root, path);

    return n < 0 || (size_t)n >= sizeof full ? NULL : fopen(full, "re");
}

/* The first number of a small file, or UINT64_MAX ("max", absent, unreadable). */
static uint64_t read_number(const char *root, const char *path)
{
    FILE *f = open_below(root, path);
    unsigned long long v;
    int n;

    if (!f)
        return UINT64_MAX;
    n = fscanf(f, "%llu", &v);
    (void)fclose(f);
    return n == 1 ? v : UINT64_MAX;
}

/* The number behind `key` at the beginning of a line, or `absent`. */
static uint64_t read_key(const char *root, const char *path, const char *key, uint64_t absent)
{
    FILE *f = open_below(root, path);
    const size_t n = strlen(key);
    uint64_t ret = absent;
    unsigned long long v;
    char line[256];

    if (!f)
        return absent;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && sscanf(line + n, " %llu", &v) == 1)
            ret = v;
    (void)fclose(f);
    return ret;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What one group may still take. */
static uint64_t group_left(const char *root, const struct hierarchy *h, const char *group)
{
    const char *const limits[] = {h->limit, h->throttle};
    uint64_t max = UINT64_MAX, used, cached;
    char file[4096];

    for (size_t i = 0; i < 2; i++) {
        if (!limits[i])
            continue;
        (void)snprintf(file, sizeof file, "%s%s/%s", h->mount, group, limits[i]);
        max = least(max, read_number(root, file));
    }
    (void)snprintf(file, sizeof file, "%s%s/%s", h->mount, group, h->use);
    used = read_number(root, file);
    if (max == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    /* Like MemAvailable: pages of files that nobody has used lately go when memory is wanted. */
    (void)snprintf(file, sizeof file, "%s%s/memory.stat", h->mount, group);
    cached = read_key(root, file, h->cache_key, 0);
    used -= least(used, cached);
    return max > used ? max - used : 0;
}

/* The part of `path` below `top`, or NULL when it is not below it. */
static const char *below(const char *path, const char *top)
{
    size_t n = strlen(top);

    if (strncmp(path, top, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n;
}

/* The least of what `path` ("/a/b"; "/" the top) and all groups above it leave. */
static uint64_t hierarchy_left(const char *root, const struct hierarchy *h, const char *path)
{
    const char *rest = below(path, h->top);
    uint64_t ret = UINT64_MAX;
    char group[2048];

    /* Outside of what is mounted, or above our namespace: what is mounted is all there is. */
    if (!rest || strstr(rest, "/.."))
        rest = "";
    (void)snprintf(group, sizeof group, "%s", strcmp(rest, "/") == 0 ? "" : rest);
    for (;;) {
        char *slash = strrchr(group, '/');

        ret = least(ret, group_left(root, h, group));
        if (!slash)
            return ret;
        *slash = '\0';
    }
}

/* Whether `word` is in the list "a,b,c". */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ",");

        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k + (p[k] == ',');
    }
    return false;
}

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *s)
{
    char *to = s;

    while (*s) {
        unsigned int c;

        if (s[0] == '\\' && sscanf(s + 1, "%3o", &c) == 1 && c < 256) {
            *to++ = (char)c;
            s += 4;
        } else {
            *to++ = *s++;
        }
    }
    *to = '\0';
}

/* Where the hierarchy of `path` is mounted: the mount that our group is below, else any of it. */
static void find_mount(const char *root, const char *path, struct hierarchy *h)
{
    FILE *f = open_below(root, "/proc/self/mountinfo");
    char line[8192], top[1024], mount[1024], type[32], options[1024];

    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        const char *dash = strstr(line, " - ");
        bool is_below;

        if (!dash || sscanf(line, "%*s %*s %*s %1023s %1023s", top, mount) != 2 ||
            mount[0] != '/' || sscanf(dash + 3, "%31s %*s %1023s", type, options) != 2)
            continue;
        if (strcmp(type, h->is_v2 ? "cgroup2" : "cgroup") != 0 ||
            (!h->is_v2 && !has_word(options, "memory")))
            continue;
        unescape(top);
        unescape(mount);
        if (strcmp(top, "/") == 0)
            top[0] = '\0';
        is_below = below(path, top) != NULL;
        if (h->mount[0] && !is_below)
            continue;
        memcpy(h->mount, mount, sizeof mount);
        memcpy(h->top, top, sizeof top);
        if (is_below)
            break;
    }
    (void)fclose(f);
}

/* What the hierarchy of a line of /proc/self/cgroup, "ID:CONTROLLERS:PATH", leaves. */
static uint64_t line_left(const char *root, char *line)
{
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    struct hierarchy v1 = {.limit = "memory.limit_in_bytes",
                           .use = "memory.usage_in_bytes",
                           .cache_key = "total_inactive_file "},
                     v2 = {.is_v2 = true,
                           .limit = "memory.max",
                           .throttle = "memory.high",
                           .use = "memory.current",
                           .cache_key = "inactive_file "},
                     *h;

    if (!path)
        return UINT64_MAX;
    *path++ = '\0';
    list++;
    if (*list == '\0')
        h = &v2;
    else if (has_word(list, "memory"))
        h = &v1;
    else
        return UINT64_MAX;
    find_mount(root, path, h);
    if (!h->mount[0])
        (void)strcpy(h->mount, h->is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    return hierarchy_left(root, h, path);
}

uint64_t memory_available(const char *root)
{
    uint64_t ret = read_key(root, "/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024), left;
    FILE *f = open_below(root, "/proc/self/cgroup");
    char line[4096];

    ret = ret >= UINT64_MAX / 1024 ? UINT64_MAX : ret * 1024;
    if (!f)
        return ret;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        left = line_left(root, line);
        ret = least(ret, left);
    }
    (void)fclose(f);
    return ret;
}
