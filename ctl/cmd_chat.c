/* SPDX-License-Identifier: Apache-2.0 */
/* `stratactl chat`: one question, or a dialogue at the terminal. */
#include "ctl/chat.h"

#include "ctl/api_call.h"
#include "ctl/gen_options.h"
#include "ctl/line_edit.h"
#include "ctl/paths.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int set_thinking(const struct chat *chat, bool on)
{
    return json_object_set_new(chat->request, "enable_thinking", json_boolean(on)) < 0
               ? ctl_say(chat->c, CTL_FAILED, "out of memory")
               : CTL_OK;
}

static int set_system(struct chat *chat, const char *text)
{
    int r = dialogue_set_system(&chat->dialogue, text);

    if (r == -EILSEQ)
        return ctl_say(chat->c, CTL_USAGE, "--system takes text in UTF-8");
    return r < 0 ? ctl_say(chat->c, CTL_FAILED, "%s", err_str(r)) : CTL_OK;
}

/* The options that only chat has. */
static int take_option(const struct ctl *c, int argc, char **argv, int *i, void *arg)
{
    struct chat *chat = arg;
    const char *text;

    if (strcmp(argv[*i], "--think") == 0 || strcmp(argv[*i], "--no-think") == 0)
        return set_thinking(chat, argv[*i][2] == 't');
    if (strcmp(argv[*i], "--usage") == 0) {
        chat->figures = true;
        return CTL_OK;
    }
    if (strcmp(argv[*i], "--system") != 0)
        return GEN_OTHER;
    text = gen_value(c, argc, argv, i);
    return text ? set_system(chat, text) : CTL_USAGE;
}

/* --- one question ------------------------------------------------------------------------------
 */

static int take_message(struct chat *chat, const char *word)
{
    json_t *text;
    /* What echo and editors end a file with is no part of the message. */
    int r = gen_text(chat->c, word, true, &text);

    if (r != CTL_OK)
        return r;
    if (json_string_length(text) == 0) {
        json_decref(text);
        return ctl_say(chat->c, CTL_USAGE, "the message is empty");
    }
    return dialogue_ask(&chat->dialogue, text) < 0 ? ctl_say(chat->c, CTL_FAILED, "out of memory")
                                                   : CTL_OK;
}

static int ask_one(struct chat *chat)
{
    int r = chat_ask(chat);

    /* A shell wants to see that it was the signal. */
    if (r == API_STOPPED && chat->terminal->ended_by == 0)
        chat->terminal->ended_by = SIGINT;
    return r;
}

/* --- a dialogue --------------------------------------------------------------------------------
 */

/* What a text of the terminal is: a command, or the next question. */
static enum chat_next take_text(struct chat *chat, const struct buf *text)
{
    const char *s = text->data;
    size_t n = text->len;

    if (n == 0 || strspn(s, " \t\n") == n)
        return CHAT_READ;
    if (s[0] == '/' && s[1] != '/')
        return chat_command(chat, s);
    if (s[0] == '/') {
        s++;
        n--;
    }
    if (dialogue_ask(&chat->dialogue, json_stringn(s, n)) < 0) {
        (void)ctl_say(chat->c, CTL_FAILED, "out of memory");
        return CHAT_READ;
    }
    return CHAT_ASK;
}

static void ask(struct chat *chat)
{
    int r;

    terminal_set_quiet(chat->terminal, true);
    r = chat_ask(chat);
    terminal_set_quiet(chat->terminal, false);
    if (r == API_STOPPED && !chat->terminal->ended_by)
        (void)fputs("[stopped]\n", chat->c->out);
    if (chat->dialogue.unanswered && !chat->terminal->ended_by)
        (void)fputs("[no answer; /retry asks again]\n", chat->c->out);
}

static int talk(struct chat *chat, struct line_edit *l)
{
    CLEANUP(buf_done) struct buf text = {0};
    enum line_result result;

    while ((result = line_edit_read(l, &text)) != LINE_END) {
        enum chat_next next = result == LINE_TEXT ? take_text(chat, &text) : CHAT_READ;

        if (next == CHAT_QUIT)
            return CTL_OK;
        if (next == CHAT_ASK)
            ask(chat);
        (void)fflush(chat->c->out);
    }
    (void)fputc('\n', chat->c->out);
    return CTL_OK;
}

static int talk_at_terminal(struct chat *chat)
{
    char dir[4096];
    struct line_edit *l;
    struct err_text e;
    int fd, r;

    if (!isatty(fileno(chat->c->out)) || chat->c->json)
        return ctl_say(chat->c, CTL_USAGE,
                       "without a terminal to print to, or with --json, chat needs a message or -");
    /* Better to say now that nobody is there than after the first question. */
    r = api_connect(chat->c, &fd);
    if (r != CTL_OK)
        return r;
    (void)close(fd);
    r = strata_user_state_dir(dir, sizeof dir);
    if (line_edit_new(chat->terminal, chat->c->out, r < 0 ? NULL : dir, &e, &l) < 0)
        return ctl_say(chat->c, CTL_FAILED, "out of memory");
    if (e.s[0])
        (void)ctl_say(chat->c, CTL_OK, "%s", e.s);
    (void)fputs("/help lists the commands, Ctrl-D ends.\n", chat->c->out);
    r = talk(chat, l);
    line_edit_free(l);
    return r;
}

/* --- the command -------------------------------------------------------------------------------
 */

static int run(struct chat *chat, struct terminal *t, const char *message)
{
    bool talks = !message && isatty(STDIN_FILENO), shows = isatty(fileno(chat->c->out));
    int r;

    if (shows && !chat->c->json)
        chat->figures = true;
    /* Before signals are blocked: reading standard input may take its time. */
    r = talks ? CTL_OK : take_message(chat, message);
    if (r != CTL_OK)
        return r;
    if (!talks && !shows)
        return ask_one(chat);
    r = terminal_init(t);
    if (r < 0)
        return ctl_say(chat->c, CTL_FAILED, "cannot take signals: %s", err_str(r));
    chat->terminal = t;
    r = talks ? talk_at_terminal(chat) : ask_one(chat);
    (void)fflush(chat->c->out);
    terminal_done(t);
    return r;
}

int cmd_chat(const struct ctl *c, int argc, char **argv)
{
    struct terminal terminal;
    struct chat chat = {.c = c, .request = json_object()};
    const char *message = NULL;
    int r;

    if (!chat.request || dialogue_init(&chat.dialogue) < 0)
        r = ctl_say(c, CTL_FAILED, "out of memory");
    else
        r = gen_arguments(c, "chat", argc, argv, chat.request, take_option, &chat, &message);
    if (r == CTL_OK)
        r = run(&chat, &terminal, message);
    dialogue_done(&chat.dialogue);
    json_decref(chat.request);
    return r;
}
