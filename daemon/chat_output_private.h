/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of chat_output*.c: one byte at a time goes through a machine of few states.
 *
 * Every state looks for some markers; `tag` is the proper prefix of one that was read so far.  What
 * may still turn out to be no call at all is kept in `raw` and given back as text.  A byte is given
 * back at most once (a tag, which is short, twice), so that any text takes linear time.
 */
#ifndef DAEMON_CHAT_OUTPUT_PRIVATE_H
#define DAEMON_CHAT_OUTPUT_PRIVATE_H

#include "daemon/chat_output.h"
#include "util/buf.h"

#include <stdint.h>

enum marker {
    MARK_THINK,
    MARK_THINK_END,
    MARK_CALL,
    MARK_CALL_END,
    MARK_FUNCTION,
    MARK_FUNCTION_END,
    MARK_PARAMETER,
    MARK_PARAMETER_END,
    N_MARKERS,
};

/* For sets of them. */
#define SET(marker) (1u << (marker))

/* What chat_output_match gives besides a marker. */
enum { MATCH_NONE = -1, MATCH_PART = -2 };

/* The longest name of a function or a parameter in XML: longer ones are prose. */
enum { XML_NAME_MAX = 256 };

enum chat_state {
    AT_START, /* nothing but whitespace so far, and <think> may come */
    AT_TEXT,  /* reasoning or content */
    AT_OPEN,  /* <tool_call> was read, but not what kind of call it is */
    AT_JSON,  /* in the object of a call in JSON */
    AT_XML,   /* after <function= */
    AT_TAIL,  /* after a call, before its </tool_call> */
};

enum json_state {
    IN_KEY,    /* before a key, or the end of the object */
    IN_COLON,  /* before it */
    IN_VALUE,  /* before it */
    IN_STRING, /* in a key or value */
    IN_NEST,   /* in an object or array */
    IN_SCALAR, /* in a number or word */
    IN_AFTER,  /* after a value */
};

enum xml_state {
    IN_FUNCTION,  /* in its name */
    IN_BODY,      /* between parameters */
    IN_PARAMETER, /* in its name */
    IN_TEXT,      /* in its value */
    IN_TEXT_END,  /* </parameter> was read: the end of the value if the right thing follows */
    IN_TEXT_FUNC, /* </function> was read in a value: its end if the text ends here … */
    IN_TEXT_CALL, /* … or after </tool_call> */
};

/* Where a value goes. */
enum json_target { TO_KEY, TO_NAME, TO_ARGUMENTS, TO_NOWHERE };

struct json_call {
    enum json_state state;
    enum json_target target;
    struct buf word;           /* the key, or a scalar */
    struct buf name;           /* the function's */
    struct buf args;           /* arguments that came before the name */
    struct buf closers;        /* in IN_NEST: what closes the open objects and arrays */
    bool has_name, has_args;   /* complete ones */
    bool begun;                /* the call went out: name and beginning of arguments are known */
    bool args_open;            /* arguments in a string: their first brace was seen */
    bool in_string, in_escape; /* of the text of the arguments (or of IN_NEST) */
    uint8_t escape;            /* of IN_STRING: 0, 1 after the backslash, 2 to 5 in \uXXXX */
    uint32_t unit, high;       /* UTF-16: being read, and a high surrogate before it */
};

/* Bits of the types that a parameter may have. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_STRUCTURE = 16, /* an object or an array */
    TYPE_STRING = 32,
};

struct xml_call {
    enum xml_state state;
    struct buf name;          /* a function's, or a parameter's */
    struct buf value;         /* what can not be written before its end is known */
    const json_t *properties; /* borrowed from the tools: the function's parameters */
    unsigned int types;       /* of the value */
    bool has_parameter;       /* one was written */
    bool at_first, newline;   /* a value's first byte; one newline that is held */
    enum { VALUE_HELD, VALUE_NULLISH, VALUE_STREAMED } how;
};

enum out_kind { OUT_REASONING, OUT_CONTENT, OUT_ARGUMENTS };

struct chat_output {
    struct chat_sink sink;
    const json_t *tools; /* borrowed; NULL: none */
    int failed;          /* what ended the feeding */

    enum chat_state state;
    bool reasoning;     /* what text is now */
    bool skip_newlines; /* at the beginning of text */
    bool after_call;    /* nothing but whitespace since a call */
    bool any_content;
    bool tail_json;

    char tag[16]; /* the beginning of a marker */
    size_t n_tag;
    struct buf space; /* whitespace that is dropped when a marker follows */
    struct buf raw;   /* what is text if no call comes of it */

    struct json_call json;
    struct xml_call xml;
    unsigned int n_begun, n_complete;

    struct buf out; /* pieces of one kind, for the sink at the end of the feed */
    enum out_kind out_kind;
};

/* --- chat_output.c ------------------------------------------------------------------------------
 * All return 0, -ENOMEM or what a sink returned. */

static inline bool chat_is_space(char ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

/* One byte more of a marker of `set`: the marker, MATCH_PART, or MATCH_NONE (the tag is as it was,
 * and for the caller to give back together with ch). */
int chat_output_match(struct chat_output *c, char ch, unsigned int set);
/* The text of a marker. */
const char *chat_output_marker(enum marker m);

/* One byte through the machine. */
int chat_output_step(struct chat_output *c, char ch);
/* The tag, then ch, through the machine in its present state. */
int chat_output_again(struct chat_output *c, char ch);

int chat_output_emit(struct chat_output *c, enum out_kind kind, const char *s, size_t n);
/* Text of the present kind. */
int chat_output_text(struct chat_output *c, const char *s, size_t n);
/* No call after all: `raw` is text. */
int chat_output_give_back(struct chat_output *c);

/* A call begins: reasoning ends, whitespace before it goes. */
int chat_output_begin(struct chat_output *c, const char *name, size_t n);
/* A call is complete; what is left of it is in AT_TAIL. */
void chat_output_complete(struct chat_output *c, bool json);
/* </tool_call> was read. */
void chat_output_closed(struct chat_output *c);

/* --- chat_output_json.c ------------------------------------------------------------------------
 */

/* `{` was read. */
int chat_json_open(struct chat_output *c);
int chat_json_step(struct chat_output *c, char ch);
int chat_json_end(struct chat_output *c);

/* --- chat_output_xml.c -------------------------------------------------------------------------
 */

/* <function= was read. */
int chat_xml_open(struct chat_output *c);
int chat_xml_step(struct chat_output *c, char ch);
int chat_xml_end(struct chat_output *c);

/* --- chat_output_value.c -----------------------------------------------------------------------
 */

/* The parameters of a function; NULL when it is not among the tools. */
const json_t *chat_value_properties(const json_t *tools, const char *function);
/* The types that a parameter may have: TYPE_NULL | TYPE_STRING when the schema does not say. */
unsigned int chat_value_types(const json_t *properties, const char *key);

/* The JSON of a value's text. 0 or buf's errors. */
int chat_value_write(struct buf *out, unsigned int types, const char *s, size_t n);

/* One byte inside of a JSON string: up to 6 bytes to `to`; their number. */
size_t chat_value_escape(char ch, char to[8]);

/*
 * An object or array, in JSON or as Python prints it ('quotes', True, None, a comma at the end),
 * as JSON: what is JSON already comes out byte for byte.  0, -EINVAL (out is as it was), or buf's
 * errors.
 */
int chat_value_structure(struct buf *out, const char *s, size_t n);

#endif
