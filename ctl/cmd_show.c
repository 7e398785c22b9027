/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask one question and show the answer. */
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/out.h"
#include "ctl/varlink.h"

static int no_arguments(const struct ctl *c, int argc, char **argv)
{
    return argc == 0 ? CTL_OK : ctl_say(c, CTL_USAGE, "unexpected argument \"%s\"", argv[0]);
}

int cmd_status(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"state", "state", OUT_PLAIN, false},
        {"percent", "loaded", OUT_PERCENT, true},
        {"reason", "reason", OUT_PLAIN, true},
        {"model.name", "model", OUT_PLAIN, false},
        {"model.path", "file", OUT_PLAIN, false},
        {"model.arch", "family", OUT_PLAIN, false},
        {"model.context", "context", OUT_PLAIN, false},
        {"backend.name", "backend", OUT_PLAIN, false},
        {"backend.isa", "instruction set", OUT_PLAIN, false},
        {"backend.threads", "threads", OUT_PLAIN, false},
        {"backend.kv_type", "kv type", OUT_PLAIN, false},
        {"slots_used", "slots in use", OUT_PLAIN, false},
        {"slots_total", "slots", OUT_PLAIN, false},
        {"queued", "queued", OUT_PLAIN, false},
        {"connections", "connections", OUT_PLAIN, false},
        {"pool.units_used", "units in use", OUT_PLAIN, false},
        {"pool.units_total", "units", OUT_PLAIN, false},
        {"pool.unit_bytes", "unit", OUT_BYTES, false},
        {"cache.parked", "parked", OUT_PLAIN, true},
        {"cache.roots", "roots", OUT_PLAIN, true},
        {"cache.vram_bytes", "cached in vram", OUT_BYTES, true},
        {"cache.ram_bytes", "cached in ram", OUT_BYTES, true},
        {"cache.ram_limit_bytes", "ram for the cache", OUT_BYTES, true},
        {"cache.switches", "switches", OUT_PLAIN, true},
        {"cache.hits", "hits on switches", OUT_PLAIN, true},
        {"totals.requests", "requests", OUT_PLAIN, false},
        {"totals.failed", "failed", OUT_PLAIN, false},
        {"totals.cancelled", "cancelled", OUT_PLAIN, false},
        {"totals.prompt_tokens", "tokens read", OUT_PLAIN, false},
        {"totals.generated_tokens", "tokens written", OUT_PLAIN, false},
        {"rates.prompt_tokens", "reading", OUT_PER_S, false},
        {"rates.generated_tokens", "writing", OUT_PER_S, false},
        {"uptime_ms", "up", OUT_MS, false},
        {"version", "version", OUT_PLAIN, false},
        {"pid", "process", OUT_PLAIN, false},
        {"api_sockets", "api", OUT_PLAIN, false},
        {"control_socket", "control", OUT_PLAIN, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    json_t *answer;
    int r = no_arguments(c, argc, argv);

    if (r == CTL_OK)
        r = client_call(c, STRATA_CONTROL ".Status", NULL, &answer);
    if (r != CTL_OK)
        return r;
    out_object(c, answer, fields);
    json_decref(answer);
    return CTL_OK;
}

int cmd_slots_list(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"index", "SLOT", OUT_PLAIN, false},
        {"state", "STATE", OUT_PLAIN, false},
        {"request", "REQUEST", OUT_PLAIN, false},
        {"uid|key", "USER", OUT_PLAIN, false},
        {"prompt_tokens", "PROMPT", OUT_PLAIN, false},
        {"read_tokens", "READ", OUT_PLAIN, false},
        {"generated_tokens", "WRITTEN", OUT_PLAIN, false},
        {"pages", "PAGES", OUT_PLAIN, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    json_t *answer;
    int r = no_arguments(c, argc, argv);

    if (r == CTL_OK)
        r = client_call(c, STRATA_CONTROL ".Slots", NULL, &answer);
    if (r != CTL_OK)
        return r;
    out_table(c, answer, "slots", fields);
    json_decref(answer);
    return CTL_OK;
}
