/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/chat.h"

#include "ctl/api_call.h"
#include "ctl/turn.h"
#include "util/cleanup.h"

struct asking {
    struct turn turn;
    struct terminal *terminal;
};

static void on_event(void *arg, const json_t *event)
{
    turn_take(&((struct asking *)arg)->turn, event);
}

static int on_wait(void *arg, int fd, short events)
{
    struct terminal *t = ((struct asking *)arg)->terminal;

    for (;;) {
        switch (terminal_wait(t, fd, events)) {
        case TERMINAL_READY:
            return 0;
        case TERMINAL_INTERRUPT:
        case TERMINAL_END:
            return -1;
        case TERMINAL_SUSPEND:
            terminal_suspend(t);
            break;
        case TERMINAL_RESIZE:
            break;
        }
    }
}

/* Puts what this question needs into the request. */
static int complete_request(const struct chat *chat)
{
    int r = json_object_set(chat->request, "messages", chat->dialogue.messages);

    if (r == 0 && !chat->c->json)
        r = json_object_set_new(chat->request, "stream", json_true());
    if (r == 0 && !chat->c->json)
        r = json_object_set_new(chat->request, "stream_options",
                                json_pack("{sb}", "include_usage", 1));
    if (r == 0 && !chat->c->json && chat->terminal)
        r = json_object_set_new(chat->request, "return_progress", json_true());
    return r < 0 ? ctl_say(chat->c, CTL_FAILED, "out of memory") : CTL_OK;
}

int chat_ask(struct chat *chat)
{
    struct asking a = {.terminal = chat->terminal};
    const struct api_hooks hooks = {
        .event = on_event, .wait = chat->terminal ? on_wait : NULL, .arg = &a};
    CLEANUP(buf_done) struct buf body = {0};
    int r;

    turn_init(&a.turn, chat->c->out);
    r = complete_request(chat);
    if (r == CTL_OK)
        r = api_call(chat->c, "/v1/chat/completions", chat->request, &hooks, &body);
    if (body.len > 0)
        (void)fwrite(body.data, 1, body.len, chat->c->out);
    if (r == CTL_OK || (r == API_STOPPED && a.turn.text.len > 0)) {
        if (a.turn.error < 0 ||
            dialogue_answer(&chat->dialogue, &a.turn.text, &a.turn.reasoning) < 0)
            r = ctl_say(chat->c, CTL_FAILED, "out of memory");
    }
    dialogue_take_back(&chat->dialogue);
    if (r == CTL_OK && chat->figures)
        turn_print_figures(&a.turn, chat->c->err);
    turn_done(&a.turn);
    return r;
}
