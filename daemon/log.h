/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon tells its operator.
 *
 * Goes to the journal with structured fields when standard error is the journal, otherwise to
 * standard error (with <N> prefixes when a service manager reads it).  The daemon logs once, where
 * the consequence is known; libraries return errors instead.  Nothing of a prompt or an answer is
 * ever logged above debug.
 *
 * Levels: err = someone must act; warning = degraded; notice = life cycle; info = per request;
 * debug = the rest.
 *
 * Any thread.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <syslog.h> /* LOG_ERR ... LOG_DEBUG */

/* Events with a MESSAGE_ID, explained in units/strata.catalog. */
enum log_event {
    LOG_EVENT_NONE,
    LOG_EVENT_READY,
    LOG_EVENT_LOAD_FAILED,
    LOG_EVENT_STOPPING,
    LOG_EVENT_RELOADED,
    LOG_EVENT_STUCK,
    LOG_EVENT_DIVERGING,
};

/* A field of the journal: name without "STRATA_", value a NUL-terminated text. */
struct log_field {
    const char *name;
    const char *value;
};

/* Finds out where messages go.  `instance` (borrowed for good) becomes the field STRATA_INSTANCE=.
 * Before threads start. */
void log_init(const char *instance);

/* Messages less important than `level` are dropped.  Default LOG_INFO. */
void log_set_level(int level);
/* "err", "warning", "notice", "info", "debug"; -1 for another word. */
int log_level_of(const char *word);

/* Tests: messages go to `sink` instead; NULL undoes it. */
void log_set_sink(void (*sink)(int priority, const char *text, void *arg), void *arg);

void log_msg(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same with a catalogued event and up to 8 fields, the last one {NULL, NULL}; `fields` may be
 * NULL. */
void log_event(int priority, enum log_event event, const struct log_field *fields, const char *fmt,
               ...) __attribute__((format(printf, 4, 5)));

#endif
