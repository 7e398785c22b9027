/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `stratactl chat` share. */
#ifndef CTL_CHAT_H
#define CTL_CHAT_H

#include "ctl/ctl.h"
#include "ctl/dialogue.h"
#include "ctl/terminal.h"

struct chat {
    const struct ctl *c;
    json_t *request; /* owned: all but the messages */
    struct dialogue dialogue;
    struct terminal *terminal; /* borrowed; NULL: signals do what they usually do */
    bool figures;              /* a line of them after each answer, on c->err */
};

/*
 * Asks for the answer to the dialogue's last message, prints it as it comes and makes it the next
 * message.  CTL_OK; API_STOPPED by a signal, with what had come as the answer; otherwise what is
 * wrong was said.  Without an answer the question is taken back.
 */
int chat_ask(struct chat *chat);

/* What a line of the terminal that begins with a slash does, said on c->out. */
enum chat_next {
    CHAT_READ, /* read the next line */
    CHAT_ASK,  /* the last message is a question now */
    CHAT_QUIT,
};
enum chat_next chat_command(struct chat *chat, const char *line);

#endif
