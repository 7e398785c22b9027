/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/dialogue.h"

#include "util/buf.h"
#include "util/utf8.h"

#include <errno.h>
#include <string.h>

int dialogue_init(struct dialogue *d)
{
    *d = (struct dialogue){.messages = json_array()};
    return d->messages ? 0 : -ENOMEM;
}

void dialogue_done(struct dialogue *d)
{
    json_decref(d->messages);
    json_decref(d->unanswered);
    *d = (struct dialogue){0};
}

static void forget_unanswered(struct dialogue *d)
{
    json_decref(d->unanswered);
    d->unanswered = NULL;
}

/* Whether message `i` exists and is `role`'s. */
static bool is_of(const struct dialogue *d, size_t i, const char *role)
{
    const char *is = json_string_value(json_object_get(json_array_get(d->messages, i), "role"));

    return is && strcmp(is, role) == 0;
}

int dialogue_set_system(struct dialogue *d, const char *text)
{
    json_t *m;

    if (text && !utf8_is_valid(text, strlen(text)))
        return -EILSEQ;
    if (text) {
        m = json_pack("{ssss}", "role", "system", "content", text);
        if (is_of(d, 0, "system"))
            return json_array_set_new(d->messages, 0, m) < 0 ? -ENOMEM : 0;
        return json_array_insert_new(d->messages, 0, m) < 0 ? -ENOMEM : 0;
    }
    if (is_of(d, 0, "system"))
        (void)json_array_remove(d->messages, 0);
    return 0;
}

int dialogue_ask(struct dialogue *d, json_t *text)
{
    json_t *m = json_pack("{ssso}", "role", "user", "content", text);

    if (json_array_append_new(d->messages, m) < 0)
        return -ENOMEM;
    forget_unanswered(d);
    return 0;
}

int dialogue_answer(struct dialogue *d, const struct buf *text, const struct buf *reasoning)
{
    json_t *m = json_pack("{ssss%}", "role", "assistant", "content", text->data ? text->data : "",
                          text->len);

    if (m && reasoning->len > 0 &&
        json_object_set_new(m, "reasoning_content", json_stringn(reasoning->data, reasoning->len)) <
            0) {
        json_decref(m);
        m = NULL;
    }
    return json_array_append_new(d->messages, m) < 0 ? -ENOMEM : 0;
}

void dialogue_take_back(struct dialogue *d)
{
    size_t n = json_array_size(d->messages);

    if (n == 0 || !is_of(d, n - 1, "user"))
        return;
    forget_unanswered(d);
    d->unanswered = json_incref(json_object_get(json_array_get(d->messages, n - 1), "content"));
    (void)json_array_remove(d->messages, n - 1);
}

int dialogue_undo(struct dialogue *d)
{
    size_t n = json_array_size(d->messages);

    forget_unanswered(d);
    if (n < 2 || !is_of(d, n - 1, "assistant"))
        return -ENOENT;
    (void)json_array_remove(d->messages, n - 1);
    (void)json_array_remove(d->messages, n - 2);
    return 0;
}

int dialogue_ask_again(struct dialogue *d)
{
    size_t n = json_array_size(d->messages);

    if (d->unanswered)
        return dialogue_ask(d, json_incref(d->unanswered));
    if (n < 2 || !is_of(d, n - 1, "assistant"))
        return -ENOENT;
    (void)json_array_remove(d->messages, n - 1);
    return 0;
}

void dialogue_clear(struct dialogue *d)
{
    size_t keep = is_of(d, 0, "system") ? 1 : 0;

    forget_unanswered(d);
    while (json_array_size(d->messages) > keep)
        (void)json_array_remove(d->messages, json_array_size(d->messages) - 1);
}
