/* SPDX-License-Identifier: Apache-2.0 */
/* `stratactl requests` and `stratactl explain`. */
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/out.h"
#include "ctl/varlink.h"
#include "util/text.h"

#include <string.h>

int cmd_requests(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"request", "REQUEST", OUT_PLAIN, false},
        {"uid|key", "USER", OUT_PLAIN, false},
        {"state", "STATE", OUT_PLAIN, false},
        {"finish_reason", "END", OUT_PLAIN, false},
        {"prompt_tokens", "PROMPT", OUT_PLAIN, false},
        {"reused_tokens", "REUSED", OUT_PLAIN, false},
        {"read_tokens", "READ", OUT_PLAIN, false},
        {"generated_tokens", "WRITTEN", OUT_PLAIN, false},
        {"source", "SOURCE", OUT_PLAIN, false},
        {"switch", "SWITCH", OUT_PLAIN, false},
        {"hit", "HIT", OUT_PLAIN, false},
        {"total_ms", "TIME", OUT_MS, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    json_t *answer, *parameters = NULL;
    uint64_t limit;
    int r;

    if (argc > 0 && strcmp(argv[0], "--limit") != 0)
        return ctl_say(c, CTL_USAGE, "unexpected argument \"%s\"", argv[0]);
    if (argc == 1)
        return ctl_say(c, CTL_USAGE, "--limit needs a value");
    if (argc > 2)
        return ctl_say(c, CTL_USAGE, "unexpected argument \"%s\"", argv[2]);
    if (argc == 2) {
        if (text_u64(argv[1], &limit) < 0 || limit < 1 || limit > 1000)
            return ctl_say(c, CTL_USAGE, "--limit takes a number from 1 to 1000, not \"%s\"",
                           argv[1]);
        parameters = json_pack("{s:I}", "limit", (json_int_t)limit);
    }
    r = client_call(c, STRATA_CONTROL ".Requests", parameters, &answer);
    if (r != CTL_OK)
        return r;
    out_table(c, answer, "requests", fields);
    json_decref(answer);
    return CTL_OK;
}

int cmd_explain(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field none[] = {{NULL, NULL, OUT_PLAIN, false}};
    json_t *answer, *line, *parameters;
    size_t i;
    int r;

    if (argc < 1)
        return ctl_say(c, CTL_USAGE,
                       "a request's number, the id in its answer, or its X-Request-Id, is "
                       "missing; \"stratactl requests\" shows the numbers");
    if (argc > 1)
        return ctl_say(c, CTL_USAGE, "unexpected argument \"%s\"", argv[1]);
    parameters = json_pack("{s:s}", "id", argv[0]);
    if (!parameters)
        return ctl_say(c, CTL_USAGE, "that is not a request's id");
    r = client_call(c, STRATA_CONTROL ".Explain", parameters, &answer);
    if (r != CTL_OK)
        return r;
    out_object(c, answer, none); /* for --json */
    json_array_foreach(json_object_get(answer, "explain"), i, line)
    {
        if (c->json || !json_is_string(line))
            break;
        out_text(c->out, json_string_value(line), json_string_length(line));
        (void)fputc('\n', c->out);
    }
    json_decref(answer);
    return CTL_OK;
}
