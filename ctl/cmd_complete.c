/* SPDX-License-Identifier: Apache-2.0 */
/* `stratactl complete`: one completion over the API socket, its text printed as it comes. */
#include "ctl/api_call.h"
#include "ctl/ctl.h"
#include "ctl/gen_options.h"
#include "ctl/out.h"
#include "util/buf.h"
#include "util/cleanup.h"

#include <unistd.h>

/* The request as the command line says. */
static int make_request(const struct ctl *c, int argc, char **argv, json_t *request)
{
    const char *prompt = NULL;
    json_t *text;
    int r = gen_arguments(c, "complete", argc, argv, request, NULL, NULL, &prompt);

    if (r != CTL_OK)
        return r;
    if (!prompt && isatty(STDIN_FILENO))
        return ctl_say(c, CTL_USAGE,
                       "complete needs a prompt, or - to read it from standard input");
    r = gen_text(c, prompt, false, &text); /* a newline more is another prompt */
    if (r != CTL_OK)
        return r;
    return json_object_set_new(request, "prompt", text) < 0 ||
                   (!c->json && json_object_set_new(request, "stream", json_true()) < 0)
               ? ctl_say(c, CTL_FAILED, "out of memory")
               : CTL_OK;
}

struct printer {
    FILE *out;
    bool is_terminal;
    bool in_line; /* the text so far does not end with a newline */
};

static void print_event(void *arg, const json_t *event)
{
    struct printer *p = arg;
    const json_t *text =
        json_object_get(json_array_get(json_object_get(event, "choices"), 0), "text");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);

    if (!event && p->in_line)
        (void)fputc('\n', p->out);
    if (n == 0)
        return;
    if (p->is_terminal)
        out_text(p->out, s, n);
    else
        (void)fwrite(s, 1, n, p->out);
    (void)fflush(p->out);
    p->in_line = s[n - 1] != '\n';
}

int cmd_complete(const struct ctl *c, int argc, char **argv)
{
    CLEANUP(json_decrefp) json_t *request = json_object();
    CLEANUP(buf_done) struct buf body = {0};
    struct printer p = {.out = c->out, .is_terminal = isatty(fileno(c->out))};
    const struct api_hooks hooks = {.event = print_event, .arg = &p};
    int r;

    r = request ? make_request(c, argc, argv, request) : ctl_say(c, CTL_FAILED, "out of memory");
    if (r != CTL_OK)
        return r;
    r = api_call(c, "/v1/completions", request, &hooks, &body);
    (void)fwrite(body.data ? body.data : "", 1, body.len, c->out);
    if (body.len > 0 && body.data[body.len - 1] != '\n')
        (void)fputc('\n', c->out);
    return r;
}
