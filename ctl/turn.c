/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/turn.h"

#include "ctl/out.h"
#include "ctl/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LONG_PROMPT = 256, /* tokens to read: less than the eye would follow */
};

bool turn_can_dim(FILE *f)
{
    const char *no_color = getenv("NO_COLOR");

    return terminal_knows_escapes(f) && !(no_color && no_color[0]);
}

void turn_init(struct turn *t, FILE *out)
{
    *t = (struct turn){.out = out,
                       .is_terminal = isatty(fileno(out)),
                       .can_dim = turn_can_dim(out),
                       .n_prompt = -1,
                       .n_reused = -1,
                       .n_generated = -1};
}

void turn_done(struct turn *t)
{
    buf_done(&t->text);
    buf_done(&t->reasoning);
}

/* Appends the string `j` to `to`, when there is one.  Returns whether something came. */
static bool keep(struct turn *t, const json_t *j, struct buf *to)
{
    if (json_string_length(j) == 0)
        return false;
    if (buf_add(to, json_string_value(j), json_string_length(j)) < 0)
        t->error = -ENOMEM;
    return true;
}

static void show(struct turn *t, const json_t *j)
{
    const char *s = json_string_value(j);
    size_t n = json_string_length(j);

    if (t->is_terminal)
        out_text(t->out, s, n);
    else
        (void)fwrite(s, 1, n, t->out);
    t->in_line = s[n - 1] != '\n';
}

static void end_line(struct turn *t)
{
    if (t->in_line)
        (void)fputc('\n', t->out);
    t->in_line = false;
}

/* Thinking stands between two marks where it cannot be dimmed. */
static void begin_thinking(struct turn *t)
{
    if (t->is_thinking)
        return;
    end_line(t);
    (void)fputs(t->can_dim ? "\033[2m" : "[thinking]\n", t->out);
    t->is_thinking = true;
}

static void end_thinking(struct turn *t)
{
    if (!t->is_thinking)
        return;
    end_line(t);
    (void)fputs(t->can_dim ? "\033[0m\n" : "[/thinking]\n\n", t->out);
    t->is_thinking = false;
}

static void take_count(const json_t *usage, const char *key, json_int_t *ret)
{
    const json_t *j = json_object_get(usage, key);

    if (json_is_integer(j))
        *ret = json_integer_value(j);
}

/* How far a long prompt is read, on a line that what comes next replaces. */
static void show_progress(struct turn *t, const json_t *progress)
{
    json_int_t total = -1, reused = 0, read = 0;

    take_count(progress, "total", &total);
    take_count(progress, "cache", &reused);
    take_count(progress, "processed", &read);
    if (!t->can_dim || total - reused < LONG_PROMPT)
        return;
    (void)fprintf(t->out,
                  "\r\033[2mreading %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                  "\033[0m\033[K",
                  read - reused, total - reused);
    t->is_reading = true;
}

static void end_progress(struct turn *t)
{
    if (t->is_reading)
        (void)fputs("\r\033[K", t->out);
    t->is_reading = false;
}

void turn_take(struct turn *t, const json_t *event)
{
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta"), *usage, *j;
    const char *finish;

    j = json_object_get(event, "prompt_progress");
    if (j)
        show_progress(t, j);
    else
        end_progress(t);
    j = json_object_get(delta, "reasoning_content");
    if (keep(t, j, &t->reasoning) && t->is_terminal) {
        begin_thinking(t);
        show(t, j);
    }
    j = json_object_get(delta, "content");
    if (keep(t, j, &t->text)) {
        end_thinking(t);
        show(t, j);
    }
    finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish)
        t->is_cut = strcmp(finish, "length") == 0;
    usage = json_object_get(event, "usage");
    take_count(usage, "prompt_tokens", &t->n_prompt);
    take_count(usage, "completion_tokens", &t->n_generated);
    take_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &t->n_reused);
    j = json_object_get(json_object_get(event, "timings"), "predicted_per_second");
    if (json_is_number(j))
        t->per_second = json_number_value(j);
    if (!event) {
        end_thinking(t);
        end_line(t);
    }
    (void)fflush(t->out);
}

void turn_print_figures(const struct turn *t, FILE *f)
{
    bool dim = turn_can_dim(f);
    json_int_t reused = t->n_reused > 0 ? t->n_reused : 0;

    if (t->n_prompt < 0 || t->n_generated < 0)
        return;
    (void)fprintf(f,
                  "%s[%" JSON_INTEGER_FORMAT " read, %" JSON_INTEGER_FORMAT
                  " reused, %" JSON_INTEGER_FORMAT " generated",
                  dim ? "\033[2m" : "", t->n_prompt - reused, reused, t->n_generated);
    if (t->per_second > 0)
        (void)fprintf(f, ", %.1f tokens/s", t->per_second);
    (void)fprintf(f, "%s]%s\n", t->is_cut ? "; cut at the limit of tokens" : "",
                  dim ? "\033[0m" : "");
    (void)fflush(f);
}
