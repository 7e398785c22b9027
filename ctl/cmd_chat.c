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

struct arguments {
    const char *message;
    bool usage;
};

static int set_flag(const struct ctl *c, json_t *request, const char *key, bool value)
{
    return json_object_set_new(request, key, json_boolean(value)) < 0
               ? ctl_say(c, CTL_FAILED, "out of memory")
               : CTL_OK;
}

/* One option of chat's own, at argv[*i]. */
static int take_option(struct chat *chat, int argc, char **argv, int *i, struct arguments *a)
{
    const struct ctl *c = chat->c;
    const char *text;
    int r;

    if (strcmp(argv[*i], "--think") == 0 || strcmp(argv[*i], "--no-think") == 0)
        return set_flag(c, chat->request, "enable_thinking", argv[*i][2] == 't');
    if (strcmp(argv[*i], "--usage") == 0) {
        a->usage = true;
        return CTL_OK;
    }
    if (strcmp(argv[*i], "--system") != 0)
        return ctl_say(c, CTL_USAGE, "chat has no option %s; stratactl(1) lists them", argv[*i]);
    text = gen_value(c, argc, argv, i);
    if (!text)
        return CTL_USAGE;
    r = dialogue_set_system(&chat->dialogue, text);
    if (r == -EILSEQ)
        return ctl_say(c, CTL_USAGE, "--system takes text in UTF-8");
    return r < 0 ? ctl_say(c, CTL_FAILED, "%s", err_str(r)) : CTL_OK;
}

static int take_arguments(struct chat *chat, int argc, char **argv, struct arguments *a)
{
    bool words_only = false;
    int r;

    for (int i = 0; i < argc; i++) {
        if (words_only || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (a->message)
                return ctl_say(chat->c, CTL_USAGE, "more than one message; quote the text");
            a->message = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            words_only = true;
            continue;
        }
        r = gen_option(chat->c, argc, argv, &i, chat->request);
        if (r == GEN_OTHER)
            r = take_option(chat, argc, argv, &i, a);
        if (r != CTL_OK)
            return r;
    }
    return CTL_OK;
}

/* --- one question ------------------------------------------------------------------------------
 */

static int take_message(struct chat *chat, const char *word)
{
    json_t *text;
    int r = gen_text(chat->c, word, &text);

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
        return ctl_say(
            chat->c, CTL_USAGE,
            "chat needs a message, or - to read one from standard input, when its output "
            "is not a terminal or JSON");
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

static int run(struct chat *chat, const struct arguments *a)
{
    bool talks = !a->message && isatty(STDIN_FILENO), shows = isatty(fileno(chat->c->out));
    struct terminal t;
    int r;

    chat->figures = a->usage || (shows && !chat->c->json);
    /* Before signals are blocked: reading standard input may take its time. */
    r = talks ? CTL_OK : take_message(chat, a->message);
    if (r != CTL_OK)
        return r;
    if (!talks && !shows)
        return ask_one(chat);
    r = terminal_init(&t);
    if (r < 0)
        return ctl_say(chat->c, CTL_FAILED, "cannot take signals: %s", err_str(r));
    chat->terminal = &t;
    r = talks ? talk_at_terminal(chat) : ask_one(chat);
    (void)fflush(chat->c->out);
    terminal_done(&t);
    return r;
}

int cmd_chat(const struct ctl *c, int argc, char **argv)
{
    struct chat chat = {.c = c, .request = json_object()};
    struct arguments a = {0};
    int r;

    if (!chat.request || dialogue_init(&chat.dialogue) < 0)
        r = ctl_say(c, CTL_FAILED, "out of memory");
    else
        r = take_arguments(&chat, argc, argv, &a);
    if (r == CTL_OK)
        r = run(&chat, &a);
    dialogue_done(&chat.dialogue);
    json_decref(chat.request);
    return r;
}
