/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a chat model writes, any bytes: however it is cut the same comes out, arguments that were
 * XML are one JSON object, text without tools passes, and no more is held than was read.  The first
 * byte chooses what the prompt and the request were like.
 */
#include "daemon/chat_output.h"
#include "daemon/chat_output_private.h"
#include "util/buf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            abort();                                                                               \
    } while (0)

enum { OPENED = 1, THINKS = 2, TOOLS = 4, MAX_SIZE = 1 << 14 };

static const char tools_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"i\":{\"type\":\"integer\"},\"n\":{\"type\":[\"number\",\"null\"]},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"array\"}]}"
    "}}}}]";

struct log {
    struct buf events; /* kind, text, kind, text, … */
    struct buf args;   /* of all calls, each followed by \x01, which JSON does not have */
    char kind;
};

static int add(struct log *l, char kind, const char *s, size_t n)
{
    MUST(n > 0);
    if (kind != l->kind)
        MUST(buf_add(&l->events, &kind, 1) == 0);
    l->kind = kind;
    MUST(buf_add(&l->events, s, n) == 0);
    return 0;
}

static int on_reasoning(void *arg, const char *s, size_t n)
{
    return add(arg, 'R', s, n);
}

static int on_content(void *arg, const char *s, size_t n)
{
    return add(arg, 'C', s, n);
}

static int on_call(void *arg, unsigned int i, const char *name, size_t n)
{
    struct log *l = arg;

    l->kind = 0;
    if (i > 0)
        MUST(buf_add(&l->args, "\x01", 1) == 0);
    return add(l, 'N', name, n);
}

static int on_arguments(void *arg, unsigned int i, const char *s, size_t n)
{
    struct log *l = arg;

    (void)i;
    MUST(l->kind == 'N' || l->kind == 'A');
    MUST(buf_add(&l->args, s, n) == 0);
    return add(l, 'A', s, n);
}

static unsigned int run(struct log *l, const json_t *tools, unsigned int how, const char *s,
                        size_t n, uint32_t cut)
{
    struct chat_output_options o = {.in_reasoning = how & OPENED,
                                    .knows_reasoning = how & THINKS,
                                    .tools = how & TOOLS ? tools : NULL};
    struct chat_sink sink = {on_reasoning, on_content, on_call, on_arguments, l};
    struct chat_output *c = chat_output_new(&o, &sink);
    unsigned int n_calls;

    MUST(c);
    for (size_t i = 0, piece; i < n; i += piece) {
        cut = cut > 1 ? cut * 1103515245u + 12345u : cut;
        piece = cut == 0 ? n : cut == 1 ? 1 : (cut >> 16) % 32;
        piece = piece > n - i ? n - i : piece;
        MUST(chat_output_feed(c, s + i, piece) == 0);
        MUST(c->space.len + c->raw.len <= i + piece);
        MUST(c->json.args.len <= 6 * (i + piece) && c->xml.value.len <= i + piece);
        MUST(c->json.closers.len <= i + piece && c->out.len == 0);
    }
    MUST(chat_output_end(c) == 0);
    n_calls = chat_output_n_calls(c);
    MUST(n_calls <= c->n_begun);
    chat_output_free(c);
    return n_calls;
}

/* --- JSON, by its grammar alone ------------------------------------------------------------------
 */

static const char *skip(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *string(const char *p)
{
    MUST(*p++ == '"');
    while (*p != '"') {
        MUST((unsigned char)*p >= 0x20);
        if (*p++ != '\\')
            continue;
        if (*p == 'u')
            MUST(strspn(p + 1, "0123456789abcdefABCDEF") >= 4);
        MUST(*p && strchr("\"\\/bfnrtu", *p));
        p++;
    }
    return p + 1;
}

static const char *digits(const char *p)
{
    MUST(*p >= '0' && *p <= '9');
    return p + strspn(p, "0123456789");
}

static const char *scalar(const char *p)
{
    if (strncmp(p, "true", 4) == 0 || strncmp(p, "null", 4) == 0)
        return p + 4;
    if (strncmp(p, "false", 5) == 0)
        return p + 5;
    p += *p == '-';
    p = *p == '0' ? p + 1 : digits(p);
    if (*p == '.')
        p = digits(p + 1);
    if (*p == 'e' || *p == 'E') {
        p++;
        p = digits(p + (*p == '+' || *p == '-'));
    }
    return p;
}

static const char *value(const char *p)
{
    char close = *p == '{' ? '}' : ']';

    if (*p == '"')
        return string(p);
    if (*p != '{' && *p != '[')
        return scalar(p);
    p = skip(p + 1);
    if (*p == close)
        return p + 1;
    for (;;) {
        if (close == '}') {
            p = skip(string(p));
            MUST(*p == ':');
            p = skip(p + 1);
        }
        p = skip(value(p));
        if (*p == close)
            return p + 1;
        MUST(*p == ',');
        p = skip(p + 1);
    }
}

/* Whether a call in JSON may be in it: those are as the model wrote them. */
static bool has_json_call(const char *s)
{
    static const char tag[] = "<tool_call>";

    while ((s = strstr(s, tag))) {
        s += sizeof tag - 1;
        if (s[strspn(s, " \t\r\n\v\f")] == '{')
            return true;
    }
    return false;
}

static void must_be_objects(const char *args)
{
    while (*args) {
        MUST(*args == '{');
        args = value(args);
        MUST(*args == '\0' || *args == '\x01');
        args += *args == '\x01';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools;
    struct log whole = {0}, l = {0};
    unsigned int how, n_calls;
    char *s;
    size_t n;

    if (!tools)
        tools = json_loads(tools_text, 0, NULL);
    MUST(tools);
    if (size == 0 || size > MAX_SIZE)
        return 0;
    how = data[0] & 7;
    n = size - 1;
    s = malloc(n + 1);
    if (!s)
        return 0;
    memcpy(s, data + 1, n);
    s[n] = '\0';

    n_calls = run(&whole, tools, how, s, n, 0);
    for (uint32_t cut = 1; cut < 4; cut++) {
        buf_clear(&l.events);
        buf_clear(&l.args);
        l.kind = 0;
        MUST(run(&l, tools, how, s, n, cut) == n_calls);
        MUST(l.events.len == whole.events.len && l.args.len == whole.args.len);
        MUST(l.events.len == 0 || memcmp(l.events.data, whole.events.data, l.events.len) == 0);
    }
    if (!(how & TOOLS))
        MUST(n_calls == 0 && whole.args.len == 0);
    if (how == 0)
        MUST(whole.events.len == n + (n > 0) &&
             (n == 0 || memcmp(whole.events.data + 1, s, n) == 0));
    if (whole.args.len > 0 && strlen(s) == n && !has_json_call(s))
        must_be_objects(whole.args.data);

    buf_done(&whole.events);
    buf_done(&whole.args);
    buf_done(&l.events);
    buf_done(&l.args);
    free(s);
    return 0;
}
