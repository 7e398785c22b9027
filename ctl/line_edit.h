/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts typed at a terminal, edited with libedit (emacs keys, ~/.editrc).  Pasted text is one text
 * whatever its lines; Alt-Enter and a backslash at the end of a line begin another line.
 */
#ifndef CTL_LINE_EDIT_H
#define CTL_LINE_EDIT_H

#include <stdio.h>

struct buf;
struct err_text;
struct line_edit;
struct terminal;

enum line_result {
    LINE_TEXT,
    LINE_INTERRUPTED, /* Ctrl-C, or longer than 8 MiB: what was typed is gone */
    LINE_END,         /* Ctrl-D on an empty line, the terminal is gone, or the process shall end */
};

/*
 * `t` is borrowed for its life.  `history_dir` as line_history_init() has it, `e` too.  Makes the
 * process read UTF-8 when its locale does not.  0 or -ENOMEM.
 */
int line_edit_new(struct terminal *t, FILE *out, const char *history_dir, struct err_text *e,
                  struct line_edit **ret);
void line_edit_free(struct line_edit *l); /* NULL is fine */

/* Reads one text into `ret`, which is cleared first, without the last newline. */
enum line_result line_edit_read(struct line_edit *l, struct buf *ret);

#endif
