/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a chat model's text, as one text, for the tests of daemon/chat_output.h. */
#ifndef TESTS_CHAT_LOG_H
#define TESTS_CHAT_LOG_H

#include "daemon/chat_output.h"
#include "util/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* What the prompt and the request were like. */
enum {
    OPENED = 1, /* the prompt ended with <think> */
    THINKS = 2, /* the template knows of reasoning */
    TOOLS = 4,
};

/* [R]reasoning [C]content [NAME]arguments: a mark wherever the kind changes. */
struct chat_log {
    struct buf text;
    char kind;
    bool bad; /* a promise was broken: noted, since libcheck may allocate for an assertion */
    unsigned int n_calls, n_pieces;
    unsigned int fail_at; /* the piece that is refused; 0: none */
};

/* Before and after each test: the tools, f and other, with parameters of all types. */
void chat_log_set_up(void);
void chat_log_tear_down(void);

/* NULL when out of memory. */
struct chat_output *chat_log_open(struct chat_log *l, unsigned int how);

/* Pieces of `cut` bytes; 0: the whole.  The number of complete calls. */
unsigned int chat_log_run(struct chat_log *l, unsigned int how, const char *s, size_t n,
                          size_t cut);

#endif
