/* SPDX-License-Identifier: Apache-2.0 */
/* The commands inside of a chat. */
#include "ctl/chat.h"

#include "util/err.h"

#include <errno.h>
#include <string.h>

static enum chat_next say(struct chat *chat, const char *text)
{
    (void)fprintf(chat->c->out, "%s\n", text);
    return CHAT_READ;
}

static enum chat_next quit(struct chat *chat, const char *rest)
{
    (void)chat;
    (void)rest;
    return CHAT_QUIT;
}

static enum chat_next clear(struct chat *chat, const char *rest)
{
    (void)rest;
    dialogue_clear(&chat->dialogue);
    return say(chat, "A new conversation.");
}

static enum chat_next undo(struct chat *chat, const char *rest)
{
    (void)rest;
    return say(chat, dialogue_undo(&chat->dialogue) < 0
                         ? "There is no answer yet."
                         : "The last question and its answer are forgotten.");
}

static enum chat_next retry(struct chat *chat, const char *rest)
{
    int r = dialogue_ask_again(&chat->dialogue);

    (void)rest;
    if (r == -ENOENT)
        return say(chat, "There is no question yet.");
    return r < 0 ? say(chat, err_str(r)) : CHAT_ASK;
}

static enum chat_next set_system(struct chat *chat, const char *rest)
{
    int r = dialogue_set_system(&chat->dialogue, rest[0] ? rest : NULL);

    if (r < 0)
        return say(chat, err_str(r));
    return say(chat, rest[0] ? "The system message is set." : "There is no system message now.");
}

static enum chat_next think(struct chat *chat, const char *rest)
{
    bool on = !json_is_true(json_object_get(chat->request, "enable_thinking"));

    if (strcmp(rest, "on") == 0)
        on = true;
    else if (strcmp(rest, "off") == 0)
        on = false;
    else if (rest[0])
        return say(chat, "/think takes on or off.");
    if (json_object_set_new(chat->request, "enable_thinking", json_boolean(on)) < 0)
        return say(chat, err_str(-ENOMEM));
    return say(chat, on ? "Thinking is on, where the model can." : "Thinking is off.");
}

static enum chat_next help(struct chat *chat, const char *rest);

static const struct {
    const char *name, *arguments, *help;
    enum chat_next (*run)(struct chat *chat, const char *rest);
} commands[] = {
    {"/retry", "", "answer the last question again", retry},
    {"/undo", "", "forget the last question and its answer", undo},
    {"/clear", "", "forget all but the system message", clear},
    {"/system", "[TEXT]", "set the system message; none without TEXT", set_system},
    {"/think", "[on|off]", "whether the model thinks before it answers", think},
    {"/help", "", "this list", help},
    {"/quit", "", "end; so does Ctrl-D", quit},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static enum chat_next help(struct chat *chat, const char *rest)
{
    (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(chat->c->out, "  %-8s%-10s%s\n", commands[i].name, commands[i].arguments,
                      commands[i].help);
    return say(chat, "  //text            a message that begins with a slash\n"
                     "  \\ or Alt-Enter    at the end of a line: the message has another line\n"
                     "  Ctrl-C            stop the answer, or drop the line");
}

enum chat_next chat_command(struct chat *chat, const char *line)
{
    size_t n = strcspn(line, " \t\n");
    char shown[64];

    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *rest = line + n + strspn(line + n, " \t\n");

        if (strlen(commands[i].name) != n || memcmp(commands[i].name, line, n) != 0)
            continue;
        if (rest[0] && !commands[i].arguments[0]) {
            (void)fprintf(chat->c->out, "%s takes nothing more.\n", commands[i].name);
            return CHAT_READ;
        }
        return commands[i].run(chat, rest);
    }
    (void)fprintf(chat->c->out,
                  "There is no %s; /help lists the commands, // begins a message with a slash.\n",
                  err_escape(shown, sizeof shown, line, n));
    return CHAT_READ;
}
