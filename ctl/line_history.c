/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/line_history.h"

#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    N_TEXTS = 1000,
    TEXT_MAX = 64 << 10, /* bytes; the file is written anew for each text */
};

/* Like mkdir -p, but what is made is only for the user. */
static int make_dirs(const char *dir)
{
    CLEANUP(free_p) char *path = strdup(dir);

    if (!path)
        return -ENOMEM;
    for (char *p = path + 1;; p++) {
        bool end = *p == '\0';

        if (!end && *p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return -errno;
        if (end)
            return 0;
        *p = '/';
    }
}

/* Locks the directory until the descriptor is closed: each writer replaces the file itself. */
static int lock_dir(const char *dir)
{
    CLEANUP(close_p) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return -errno;
    return take_fd(&fd);
}

/* A file that is no history, or is not there, has no texts. */
static void load(struct line_history *h)
{
    HistEvent ev;
    struct stat st;

    (void)history(h->history, &ev, H_CLEAR);
    /* Opening a FIFO would wait for a writer. */
    if (stat(h->path, &st) == 0 && S_ISREG(st.st_mode))
        (void)history(h->history, &ev, H_LOAD, h->path);
}

static int save(struct line_history *h)
{
    CLEANUP(free_p) char *temp = NULL;
    HistEvent ev;
    FILE *f;
    int fd, r;

    if (asprintf(&temp, "%s.new", h->path) < 0)
        return -ENOMEM;
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    f = fdopen(fd, "w");
    if (!f) {
        r = -errno;
        (void)close(fd);
        return r;
    }
    r = history(h->history, &ev, H_SAVE_FP, f) < 0 ? -EIO : 0;
    if (fclose(f) != 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(temp, h->path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(temp);
    return r;
}

int line_history_init(struct line_history *h, const char *dir, struct err_text *e)
{
    HistEvent ev;
    int r;

    *h = (struct line_history){.history = history_init()};
    e->s[0] = '\0';
    if (!h->history || history(h->history, &ev, H_SETSIZE, N_TEXTS) < 0)
        return -ENOMEM;
    if (!dir)
        return 0;
    r = make_dirs(dir);
    if (r < 0) {
        (void)err_set(e, r, "cannot make %s, so what is typed is not kept: %s", dir, err_str(r));
        return 0;
    }
    h->dir = strdup(dir);
    if (!h->dir || asprintf(&h->path, "%s/chat_history", dir) < 0) {
        h->path = NULL;
        return -ENOMEM;
    }
    load(h);
    return 0;
}

void line_history_done(struct line_history *h)
{
    if (h->history)
        history_end(h->history);
    free(h->dir);
    free(h->path);
    *h = (struct line_history){0};
}

static void enter(struct line_history *h, const char *text)
{
    HistEvent ev;

    for (int r = history(h->history, &ev, H_FIRST); r >= 0; r = history(h->history, &ev, H_NEXT)) {
        if (strcmp(ev.str, text) == 0) {
            if (history(h->history, &ev, H_DEL, ev.num) >= 0)
                free((void *)ev.str); /* a copy of what was deleted, which nobody else has */
            break;
        }
    }
    (void)history(h->history, &ev, H_ENTER, text);
}

void line_history_add(struct line_history *h, const char *text)
{
    CLEANUP(close_p) int lock = -1;

    if (strlen(text) > TEXT_MAX)
        return;
    if (h->path)
        lock = lock_dir(h->dir);
    if (lock >= 0)
        load(h);
    enter(h, text);
    /* Loading again would lose what could not be written. */
    if (h->path && (lock < 0 || save(h) < 0)) {
        free(h->path);
        h->path = NULL;
    }
}
