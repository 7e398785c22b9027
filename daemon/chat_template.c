/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/chat_template.h"

#include "daemon/api_error.h"
#include "daemon/chat_values.h"
#include "engine/gguf.h"
#include "engine/jinja.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct chat_template {
    char *source; /* owned */
    size_t n_source;
    struct jinja *jinja; /* owned; NULL: `fault` */
    struct err_text fault;
    bool takes_parts, knows_reasoning;
    const char *bos, *eos; /* borrowed from the tokenizer */
    size_t n_bos, n_eos;
};

static const char *token_text(const struct tokenizer *t, int32_t id, size_t *ret_n)
{
    *ret_n = 0;
    return id >= 0 ? tokenizer_piece(t, id, true, ret_n) : "";
}

int chat_template_new(const struct gguf *g, const struct tokenizer *t, struct chat_template **ret)
{
    struct gguf_str s;

    *ret = NULL;
    if (gguf_get_str(g, "tokenizer.chat_template", &s, NULL) <= 0)
        return 0;
    return chat_template_make(s.s, s.n, t, ret);
}

int chat_template_make(const char *source, size_t n, const struct tokenizer *t,
                       struct chat_template **ret)
{
    struct chat_template *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return -ENOMEM;
    c->source = malloc(n + 1);
    if (!c->source) {
        free(c);
        return -ENOMEM;
    }
    memcpy(c->source, source, n);
    c->source[n] = '\0';
    c->n_source = n;
    c->bos = token_text(t, tokenizer_bos(t), &c->n_bos);
    c->eos = token_text(t, tokenizer_eos(t), &c->n_eos);
    c->knows_reasoning = memmem(source, n, "think>", 6) != NULL;
    r = jinja_compile(c->source, c->n_source, &c->jinja, &c->fault);
    if (r == -ENOMEM) {
        chat_template_free(c);
        return r;
    }
    c->takes_parts = r >= 0 && jinja_takes_parts(c->jinja) > 0;
    *ret = c;
    return 0;
}

void chat_template_free(struct chat_template *c)
{
    if (!c)
        return;
    jinja_free(c->jinja);
    free(c->source);
    free(c);
}

const char *chat_template_fault(const struct chat_template *c)
{
    return c->jinja ? NULL : c->fault.s;
}

const char *chat_template_source(const struct chat_template *c, size_t *ret_n)
{
    *ret_n = c->n_source;
    return c->source;
}

void chat_prompt_done(struct chat_prompt *p)
{
    buf_done(&p->text);
    free(p->data);
    token_list_done(&p->ids);
    *p = (struct chat_prompt){0};
}

/* --- rendering ---------------------------------------------------------------------------------
 */

static void jinja_unrefp(struct jinja_value **v)
{
    jinja_unref(*v);
}

static int set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    return jinja_object_set(o, key, strlen(key), false, v);
}

static int set_all(struct jinja_value *o, const json_t *from)
{
    int r = 0;

    for (void *i = json_object_iter((json_t *)from); r >= 0 && i;
         i = json_object_iter_next((json_t *)from, i))
        r = set(o, json_object_iter_key(i), chat_value(json_object_iter_value(i)));
    return r;
}

/* What is put behind the messages of the request when it is rendered again. */
struct extra {
    size_t n_messages;            /* of the request's own */
    const char *assistant, *user; /* NULL: none */
    bool generation;
};

static int add_text_message(struct jinja_value *list, const char *role, const char *text)
{
    struct jinja_value *o = jinja_object();

    if (!o || set(o, "role", jinja_string(role, strlen(role), false)) < 0 ||
        set(o, "content", jinja_string(text, strlen(text), true)) < 0) {
        jinja_unref(o);
        return -ENOMEM;
    }
    return jinja_list_add(list, o);
}

static struct jinja_value *messages_value(const struct chat_template *c,
                                          const struct chat_input *in, const struct extra *x)
{
    struct jinja_value *list = jinja_list();
    int r = list ? 0 : -ENOMEM;

    for (size_t i = 0; r >= 0 && i < x->n_messages; i++)
        r = jinja_list_add(list,
                           chat_message_value(json_array_get(in->messages, i), c->takes_parts));
    if (r >= 0 && x->assistant)
        r = add_text_message(list, "assistant", x->assistant);
    if (r >= 0 && x->user)
        r = add_text_message(list, "user", x->user);
    if (r < 0) {
        jinja_unref(list);
        return NULL;
    }
    return list;
}

static struct jinja_value *globals_value(const struct chat_template *c, const struct chat_input *in,
                                         const struct extra *x)
{
    struct jinja_value *o = jinja_object();
    int r = o ? 0 : -ENOMEM;

    if (r >= 0)
        r = set(o, "messages", messages_value(c, in, x));
    if (r >= 0 && in->tools)
        r = set(o, "tools", chat_value(in->tools));
    if (r >= 0)
        r = set(o, "add_generation_prompt", jinja_bool(x->generation));
    if (r >= 0)
        r = set(o, "bos_token", jinja_string(c->bos, c->n_bos, false));
    if (r >= 0)
        r = set(o, "eos_token", jinja_string(c->eos, c->n_eos, false));
    if (r >= 0 && (in->enable_thinking || in->no_reasoning))
        r = set(o, "enable_thinking",
                jinja_bool(in->enable_thinking && json_is_true(in->enable_thinking)));
    if (r >= 0 && in->reasoning_effort)
        r = set(o, "reasoning_effort",
                jinja_string(in->reasoning_effort, strlen(in->reasoning_effort), true));
    if (r >= 0 && in->kwargs)
        r = set_all(o, in->kwargs);
    if (r < 0) {
        jinja_unref(o);
        return NULL;
    }
    return o;
}

static int render(const struct chat_template *c, const struct chat_input *in, const struct extra *x,
                  struct jinja_output *ret, struct err_text *e)
{
    CLEANUP(jinja_unrefp) struct jinja_value *globals = globals_value(c, in, x);

    return globals ? jinja_render(c->jinja, globals, NULL, ret, e) : -ENOMEM;
}

/* --- where messages begin ----------------------------------------------------------------------
 */

static size_t common(const struct buf *a, const struct buf *b)
{
    const size_t n = a->len < b->len ? a->len : b->len;
    size_t i = 0;

    while (i < n && a->data[i] == b->data[i])
        i++;
    return i;
}

/*
 * Tokens that lie wholly in the first `bytes` bytes of the text.  Where a text has U+2581 and the
 * vocabulary reads it as a space, they are too many: that costs reuse, and nothing else.
 */
static uint32_t tokens_before(const struct tokenizer *t, const struct token_list *ids, size_t bytes)
{
    size_t at = 0, i = 0, len;

    for (; i < ids->n; i++) {
        (void)tokenizer_piece_after(t, i ? ids->ids[i - 1] : -1, ids->ids[i], true, &len);
        if (at + len > bytes)
            break;
        at += len;
    }
    return (uint32_t)i;
}

/*
 * Back to the last token that opens a message, which no text behind it can change.  Where a format
 * has none, one token less: it may read differently with what follows.
 */
static uint32_t settle(const struct tokenizer *t, const struct token_list *ids, uint32_t n)
{
    const uint32_t last = boundaries_last(t, ids->ids, n < ids->n ? n + 1 : n);

    return last ? last : n > 0 ? n - 1 : 0;
}

static size_t leading_system(const json_t *messages)
{
    size_t n = 0;

    for (; n < json_array_size(messages); n++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, n), "role"));

        if (!role || (strcmp(role, "system") != 0 && strcmp(role, "developer") != 0))
            break;
    }
    return n;
}

/* What the same leading system messages and tools give whatever the first user message is. */
static void find_root(const struct chat_template *c, const struct tokenizer *t,
                      const struct chat_input *in, struct chat_prompt *p)
{
    const size_t n_system = leading_system(in->messages);
    struct extra a = {n_system, NULL, "Alpha", false}, b = {n_system, NULL, "7 omega", false};
    struct jinja_output x = {0}, y = {0};
    struct err_text e;
    size_t n;

    p->bounds.root = 0;
    if ((n_system > 0 || in->tools) && render(c, in, &a, &x, &e) >= 0 &&
        render(c, in, &b, &y, &e) >= 0) {
        n = common(&x.text, &y.text);
        if (common(&x.text, &p->text) >= n)
            p->bounds.root = settle(t, &p->ids, tokens_before(t, &p->ids, n));
    }
    jinja_output_done(&x);
    jinja_output_done(&y);
}

/* Where a rendering with one more user message leaves this one: thinking since then is dropped by
 * the next question. */
static void find_query(const struct chat_template *c, const struct tokenizer *t,
                       const struct chat_input *in, struct chat_prompt *p)
{
    struct extra more = {json_array_size(in->messages), "x", "y", false};
    struct jinja_output x = {0};
    struct err_text e;

    if (!in->prefill && render(c, in, &more, &x, &e) >= 0)
        p->bounds.query = settle(t, &p->ids, tokens_before(t, &p->ids, common(&x.text, &p->text)));
    jinja_output_done(&x);
}

/* --- the prompt --------------------------------------------------------------------------------
 */

static size_t trimmed(const char *s, size_t n)
{
    while (n > 0 && strchr(" \n\r\t", s[n - 1]))
        n--;
    return n;
}

/* The text ends inside of <think>. */
static bool ends_in_reasoning(const struct buf *text)
{
    static const char open[] = "<think>";
    const size_t n = trimmed(text->data, text->len);

    return n >= sizeof open - 1 &&
           memcmp(text->data + n - (sizeof open - 1), open, sizeof open - 1) == 0;
}

/* Bytes of a text's end that are compared: enough to know it, and no work for who sends much. */
#define END_BYTES ((size_t)32)

/*
 * Where the text that was begun ends in the output.  It is the last data there: "end" is found in
 * <|im_end|> too.  But a template may take thinking apart and write </think> itself.  0: nowhere.
 */
static size_t find_end(const struct jinja_output *o, const char *text, size_t n)
{
    static const char close[] = "</think>";
    const size_t n_close = sizeof close - 1;
    const char *out = o->text.data;

    for (size_t i = o->n_spans; i-- > 0;) {
        const size_t begin = o->spans[i].begin, len = trimmed(out + begin, o->spans[i].end - begin);
        size_t k = n < len ? n : len;

        k = k < END_BYTES ? k : END_BYTES;
        if (k > 0 && memcmp(out + begin + len - k, text + n - k, k) == 0)
            return begin + len;
        if (k > 0)
            break;
    }
    if (n >= n_close && memcmp(text + n - n_close, close, n_close) == 0)
        for (size_t at = o->text.len; at >= n_close; at--)
            if (memcmp(out + at - n_close, close, n_close) == 0)
                return at;
    return 0;
}

/* An answer that was begun: what the template closes the message with goes. */
static void cut_prefill(const json_t *messages, struct jinja_output *o)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1),
                 *content = chat_last_text(json_object_get(last, "content"));
    const char *text = json_string_value(content);
    const size_t n = trimmed(text, json_string_length(content)),
                 n_tail = json_string_length(content) - n;
    size_t at = find_end(o, text, n);

    if (at == 0)
        return;
    /* White space at its end is the client's, if the template kept it. */
    if (at + n_tail <= o->text.len && memcmp(o->text.data + at, text + n, n_tail) == 0)
        at += n_tail;
    o->text.len = at;
    while (o->n_spans > 0 && o->spans[o->n_spans - 1].begin >= o->text.len)
        o->n_spans--;
    if (o->n_spans > 0 && o->spans[o->n_spans - 1].end > o->text.len)
        o->spans[o->n_spans - 1].end = o->text.len;
}

static int render_error(int rc, const struct err_text *text, struct api_error *e)
{
    if (rc == -ENOMEM)
        return api_error_oom(e);
    return api_error_set(e, 400, "template_error", "messages", "the chat template: %s", text->s);
}

static int take_output(struct jinja_output *o, struct chat_prompt *p)
{
    p->data = calloc(o->n_spans + 1, sizeof *p->data);
    if (!p->data)
        return -ENOMEM;
    for (size_t i = 0; i < o->n_spans; i++)
        p->data[i] = (struct text_span){o->spans[i].begin, o->spans[i].end};
    p->n_data = o->n_spans;
    p->text = o->text;
    o->text = (struct buf){0};
    return 0;
}

static int make_tokens(const struct chat_template *c, const struct tokenizer *t,
                       const struct chat_input *in, struct chat_prompt *p)
{
    const struct tokenize_options how = {
        .parse_special = true, .data = p->data, .n_data = p->n_data};
    int r = tokenizer_encode(t, p->text.data ? p->text.data : "", p->text.len, &how, &p->ids);

    if (r < 0)
        return r;
    boundaries_find(t, p->ids.ids, p->ids.n, &p->bounds);
    find_root(c, t, in, p);
    find_query(c, t, in, p);
    return 0;
}

int chat_template_prompt(const struct chat_template *c, const struct tokenizer *t,
                         const struct chat_input *in, bool tokens, struct chat_prompt *ret,
                         struct api_error *e)
{
    const struct extra x = {.n_messages = json_array_size(in->messages),
                            .generation = !in->no_generation_prompt && !in->prefill};
    struct jinja_output o = {0};
    struct err_text text = {{0}};
    int r;

    *ret = (struct chat_prompt){.knows_reasoning = c->knows_reasoning};
    r = render(c, in, &x, &o, &text);
    if (r < 0) {
        jinja_output_done(&o);
        return render_error(r, &text, e);
    }
    if (in->prefill)
        cut_prefill(in->messages, &o);
    r = take_output(&o, ret);
    jinja_output_done(&o);
    if (r >= 0)
        ret->in_reasoning = c->knows_reasoning && ends_in_reasoning(&ret->text);
    if (r >= 0 && ret->in_reasoning && in->no_reasoning) {
        ret->in_reasoning = false;
        r = buf_addz(&ret->text, CHAT_END_OF_REASONING);
    }
    if (r >= 0 && tokens)
        r = make_tokens(c, t, in, ret);
    if (r < 0) {
        chat_prompt_done(ret);
        return api_error_oom(e);
    }
    return 0;
}
