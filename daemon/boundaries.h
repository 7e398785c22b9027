/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the messages of a prompt begin, found by control tokens (design section 1: root, turn
 * boundary, query checkpoint).  For raw prompts; a rendered chat knows its own boundaries and fills
 * in the same struct.
 *
 * Any thread; reads the tokenizer only.
 */
#ifndef DAEMON_BOUNDARIES_H
#define DAEMON_BOUNDARIES_H

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* Positions in tokens (what comes before belongs to the prefix); 0: none. */
struct boundaries {
    uint32_t root;  /* end of the leading system message, tool list included */
    uint32_t turn;  /* of the last message, usually the assistant's that is to be generated */
    uint32_t query; /* of the first assistant message after the newest real user message */
};

/*
 * A boundary is a control token whose text opens a message in some known chat format
 * ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>" and the like).  The root is
 * the second boundary, unless the first message is visibly not a system message, or the prompt does
 * not begin with a boundary (a BOS token before it is fine).  A user message that is a tool's
 * answer ("<tool_response>") is not a real one.
 */
void boundaries_find(const struct tokenizer *t, const int32_t *ids, size_t n,
                     struct boundaries *ret);

/* The last token of ids[0..n) that opens a message; 0 when there is none but the first. */
uint32_t boundaries_last(const struct tokenizer *t, const int32_t *ids, size_t n);

#endif
