/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/chat_log.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"other\",\"parameters\":{\"properties\":{"
    "\"n\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"n\":{\"type\":\"number\"},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},\"a\":{\"type\":\"array\"},"
    "\"sn\":{\"type\":[\"string\",\"null\"]},"
    "\"in\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},"
    "\"si\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":[\"integer\",\"array\"]}]},"
    "\"e\":{\"enum\":[\"1\",\"null\"],\"type\":[\"integer\",\"null\"]},"
    "\"em\":{\"enum\":[1,\"1\"],\"type\":\"integer\"},"
    "\"any\":{\"description\":\"no type\"}}}}}]";

static json_t *tools;

void chat_log_set_up(void)
{
    tools = json_loads(tools_text, 0, NULL);
    ck_assert_ptr_nonnull(tools);
}

void chat_log_tear_down(void)
{
    json_decref(tools);
    tools = NULL;
}

static int add(struct chat_log *l, char kind, const char *s, size_t n)
{
    const char mark[] = {'[', kind, ']'};

    if (++l->n_pieces == l->fail_at)
        return -EPIPE;
    l->bad |= n == 0;
    if (kind != l->kind && kind != 'A')
        l->bad |= buf_add(&l->text, mark, sizeof mark) < 0;
    l->kind = kind;
    l->bad |= buf_add(&l->text, s, n) < 0;
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
    struct chat_log *l = arg;

    l->bad |= i != l->n_calls || n == 0;
    l->n_calls++;
    l->kind = 'A';
    l->bad |= buf_add(&l->text, "[", 1) < 0 || buf_add(&l->text, name, n) < 0 ||
              buf_add(&l->text, "]", 1) < 0;
    return 0;
}

static int on_arguments(void *arg, unsigned int i, const char *s, size_t n)
{
    struct chat_log *l = arg;

    l->bad |= i + 1 != l->n_calls || l->kind != 'A';
    return add(l, 'A', s, n);
}

struct chat_output *chat_log_open(struct chat_log *l, unsigned int how)
{
    struct chat_output_options o = {.in_reasoning = how & OPENED, .knows_reasoning = how & THINKS};
    struct chat_sink sink = {on_reasoning, on_content, on_call, on_arguments, l};

    o.tools = how & TOOLS ? tools : NULL;
    return chat_output_new(&o, &sink);
}

unsigned int chat_log_run(struct chat_log *l, unsigned int how, const char *s, size_t n, size_t cut)
{
    struct chat_output *c = chat_log_open(l, how);
    unsigned int n_calls;
    int r = 0;

    ck_assert_ptr_nonnull(c);
    for (size_t i = 0, piece; i < n && r == 0; i += piece) {
        piece = cut == 0 || cut > n - i ? n - i : cut;
        r = chat_output_feed(c, s + i, piece);
    }
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(chat_output_end(c), 0);
    ck_assert(!l->bad);
    n_calls = chat_output_n_calls(c);
    chat_output_free(c);
    ck_assert_int_eq(buf_add(&l->text, "", 0), 0);
    return n_calls;
}
