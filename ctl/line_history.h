/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was typed in chats, the newest 1000 different texts, in a file that only the user can read.
 * Chats that run at once share it: each text is merged into the file when it is entered.
 */
#ifndef CTL_LINE_HISTORY_H
#define CTL_LINE_HISTORY_H

#include <histedit.h>

struct err_text;

struct line_history {
    History *history; /* owned */
    char *dir, *path; /* owned; NULL: it is not kept */
};

/*
 * Opens the history in directory `dir`, which is made when it is not there; NULL: it is not kept.
 * 0, also when it cannot be kept, with the reason in `e` then (else e->s is empty); or -ENOMEM.
 */
int line_history_init(struct line_history *h, const char *dir, struct err_text *e);
void line_history_done(struct line_history *h);

/* Makes `text` the newest, unless it has more than 64 KiB.  When it cannot be written it is only
 * remembered. */
void line_history_add(struct line_history *h, const char *text);

#endif
