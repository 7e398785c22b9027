/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of a request as values of a template.  Any thread; no state. */
#ifndef DAEMON_CHAT_VALUES_H
#define DAEMON_CHAT_VALUES_H

#include <jansson.h>
#include <stdbool.h>

struct jinja_value;

/* All strings are marked as data.  NULL when out of memory. */
struct jinja_value *chat_value(const json_t *j);
/*
 * A message as templates want it: the arguments of tool calls, which OpenAI writes as strings, are
 * parsed where they are JSON (none are {}); parts of content that are text are joined unless
 * `parts`; stamps of clients that change with every request are made constant in a system message.
 */
struct jinja_value *chat_message_value(const json_t *message, bool parts);

/* The last text of a message's content that is more than white space, borrowed from it; or NULL. */
const json_t *chat_last_text(const json_t *content);

/*
 * Volatile stamps at the head of a prompt: Claude Code's billing header has a checksum and a build
 * number that change with every request, and nothing behind them could be reused.  Their characters
 * become '0', in place.  Whether there were any.
 */
bool chat_still_stamps(char *s, size_t n);

#endif
