/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <systemd/sd-journal.h>

enum {
    TEXT_MAX = 1024, /* a longer message is cut */
    FIELDS_MAX = 8,
    FIELD_MAX = 256,
};

static struct {
    atomic_int level;
    bool to_journal, with_prefix;
    const char *instance;
    void (*sink)(int priority, const char *text, void *arg);
    void *sink_arg;
} sink_state = {.level = LOG_INFO};

/* Made once with `systemd-id128 new`; the catalogue knows them. */
static const char *event_id(enum log_event event)
{
    switch (event) {
    case LOG_EVENT_NONE:
        return NULL;
    case LOG_EVENT_READY:
        return "6d0a0c0f5c7b4d5b9c1f4f7be1a25301";
    case LOG_EVENT_LOAD_FAILED:
        return "0f3e9b6a7a424a5f8ad2a3c7d04e8b02";
    case LOG_EVENT_STOPPING:
        return "b57c1d2e93ab4f0c8de6550a91c4f703";
    case LOG_EVENT_RELOADED:
        return "41d9e8c2f06b47d1a2b7c3e5908d6404";
    case LOG_EVENT_STUCK:
        return "c83f5a719e0d4b26b4d1706fe2a95805";
    case LOG_EVENT_DIVERGING:
        return "e41b0d97a25c4f8e93d67c1f0a58b206";
    }
    return NULL;
}

/* JOURNAL_STREAM names the device and inode of the stream that the manager connected; a redirected
 * stderr is another file. */
static bool is_journal(int fd)
{
    const char *s = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return s && sscanf(s, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 &&
           st.st_dev == dev && st.st_ino == ino;
}

void log_init(const char *instance)
{
    const char *pid = getenv("SYSTEMD_EXEC_PID");

    sink_state.instance = instance;
    sink_state.to_journal = is_journal(STDERR_FILENO);
    sink_state.with_prefix = pid && strtol(pid, NULL, 10) == (long)getpid();
}

void log_set_level(int level)
{
    atomic_store(&sink_state.level, level);
}

int log_level_of(const char *word)
{
    static const struct {
        const char *word;
        int level;
    } levels[] = {
        {"err", LOG_ERR},   {"warning", LOG_WARNING}, {"notice", LOG_NOTICE},
        {"info", LOG_INFO}, {"debug", LOG_DEBUG},
    };

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(levels[i].word, word) == 0)
            return levels[i].level;
    return -1;
}

void log_set_sink(void (*sink)(int priority, const char *text, void *arg), void *arg)
{
    sink_state.sink = sink;
    sink_state.sink_arg = arg;
}

/* One datagram to the journal: every field is "NAME=value". */
static int send_to_journal(int priority, enum log_event event, const struct log_field *fields,
                           const char *text)
{
    char lines[FIELDS_MAX + 4][FIELD_MAX], message[TEXT_MAX + 16];
    struct iovec iov[FIELDS_MAX + 5];
    int n_lines = 0, n = 0;

    (void)snprintf(message, sizeof message, "MESSAGE=%s", text);
    iov[n++] = (struct iovec){message, strlen(message)};
    (void)snprintf(lines[n_lines++], FIELD_MAX, "PRIORITY=%d", priority);
    if (sink_state.instance)
        (void)snprintf(lines[n_lines++], FIELD_MAX, "STRATA_INSTANCE=%s", sink_state.instance);
    if (event_id(event))
        (void)snprintf(lines[n_lines++], FIELD_MAX, "MESSAGE_ID=%s", event_id(event));
    for (int i = 0; fields && fields[i].name && i < FIELDS_MAX; i++)
        (void)snprintf(lines[n_lines++], FIELD_MAX, "STRATA_%s=%s", fields[i].name,
                       fields[i].value);
    for (int i = 0; i < n_lines; i++)
        iov[n++] = (struct iovec){lines[i], strlen(lines[i])};
    return sd_journal_sendv(iov, n);
}

static void emit(int priority, enum log_event event, const struct log_field *fields,
                 const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
static void emit(int priority, enum log_event event, const struct log_field *fields,
                 const char *fmt, va_list ap)
{
    char text[TEXT_MAX];

    if (priority > atomic_load(&sink_state.level))
        return;
    (void)vsnprintf(text, sizeof text, fmt, ap);
    if (sink_state.sink) {
        sink_state.sink(priority, text, sink_state.sink_arg);
        return;
    }
    /*
     * The journal asks the kernel whose a datagram is, and a process that has ended since has no
     * unit any more; a stream's unit was known when it was opened.  So a plain error, which may be
     * the last word before the exit, goes to standard error.
     */
    if (sink_state.to_journal && !(priority <= LOG_ERR && !fields && event == LOG_EVENT_NONE) &&
        send_to_journal(priority, event, fields, text) >= 0)
        return;
    if (sink_state.with_prefix || sink_state.to_journal)
        (void)fprintf(stderr, "<%d>%s\n", priority, text);
    else
        (void)fprintf(stderr, "strataD: %s\n", text);
}

void log_msg(int priority, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    emit(priority, LOG_EVENT_NONE, NULL, fmt, ap);
    va_end(ap);
}

void log_event(int priority, enum log_event event, const struct log_field *fields, const char *fmt,
               ...)
{
    va_list ap;

    va_start(ap, fmt);
    emit(priority, event, fields, fmt, ap);
    va_end(ap);
}
