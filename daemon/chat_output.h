/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a chat model writes, taken apart as it streams: reasoning, content, tool calls.
 *
 * Fed with the text of a request piece by piece (whole UTF-8, cut anywhere); what comes out does
 * not depend on how it was cut.  Text that may still turn out to be part of a marker is held back.
 *
 * Formats: <think>…</think>; Hermes JSON in <tool_call>…</tool_call>;
 * Qwen's XML (<tool_call><function=NAME><parameter=KEY>…).  Both kinds of calls are understood
 * whenever tools were given; without tools, their text is content.
 *
 * Reasoning begins at a <think> that leads the text (later ones are content), or with the text when
 * the prompt opened it.  It ends at </think> or where a call begins.  Newlines at its beginning and
 * whitespace at its end are dropped, newlines at the beginning of the content after it too, and
 * whitespace between content and a call, between calls, and after the last one.
 *
 * What cannot be a call goes on as the text it is: no name, arguments that are no object, an object
 * that breaks off or is broken before its arguments.  Understood as meant: in JSON, arguments in a
 * string, null or missing ({}), "parameters", a brace too many or too few at </tool_call>, a comma
 * too many or too few in the outer object; in XML, no <tool_call> around it, no closing tags where
 * the text ends or before </tool_call>.  Stray text between <function=…> and a parameter is
 * dropped.
 *
 * The arguments of an XML call are always one JSON object.  Those of a JSON call are the model's
 * own text (control characters in strings escaped), bytes and order kept: JSON if it wrote JSON.
 * Where the text ends inside of them they stay cut off and the call does not count: closed, they
 * would pass for what the model meant.
 *
 * Any thread; one owner at a time.
 */
#ifndef DAEMON_CHAT_OUTPUT_H
#define DAEMON_CHAT_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat_output;

struct chat_output_options {
    bool in_reasoning;    /* the prompt ended with an open <think> */
    bool knows_reasoning; /* false: <think> is content like any other text (the template never
                             writes it) */
    const json_t *tools;  /* borrowed until chat_output_free: the request's tools array, for the
                             types  of parameters; NULL: no tools were given */
};

/* Where pieces go; each may be called many times, with n > 0.  Negative ends the feeding. */
struct chat_sink {
    int (*reasoning)(void *arg, const char *s, size_t n);
    int (*content)(void *arg, const char *s, size_t n);
    /* Call number `i` begins (0, 1, …), with its function's name. */
    int (*call)(void *arg, unsigned int i, const char *name, size_t n);
    /* More of the call's arguments: pieces of the text of one JSON object. */
    int (*arguments)(void *arg, unsigned int i, const char *s, size_t n);
    void *arg;
};

/* NULL when out of memory. */
struct chat_output *chat_output_new(const struct chat_output_options *o,
                                    const struct chat_sink *sink);
void chat_output_free(struct chat_output *c); /* NULL is fine */

/* 0, -ENOMEM, or what a sink returned. */
int chat_output_feed(struct chat_output *c, const char *s, size_t n);
/* Nothing more comes: what was held back is settled, open calls are closed if they have a name. */
int chat_output_end(struct chat_output *c);

/*
 * Complete calls so far; at least one makes finish_reason "tool_calls".  chat_output_end counts an
 * XML call that it closes: where a limit on tokens ended the text, the number before it is the one
 * that tells whether the model finished a call.
 */
unsigned int chat_output_n_calls(const struct chat_output *c);
/* Whether it is inside of reasoning now. */
bool chat_output_in_reasoning(const struct chat_output *c);
/* Whether what was read last may still turn out to be a marker, or part of a call. */
bool chat_output_is_unsettled(const struct chat_output *c);

#endif
