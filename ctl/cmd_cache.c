/* SPDX-License-Identifier: Apache-2.0 */
/* `stratactl cache` and `stratactl roots`. */
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/out.h"
#include "ctl/varlink.h"
#include "util/text.h"

#include <string.h>
#include <unistd.h>

/* What may stand behind a verb: one id, one flag. */
struct words {
    uint64_t id; /* 0: none */
    bool flag;
};

/* `flag` NULL: there is none. */
static int take_words(const struct ctl *c, int argc, char **argv, bool wants_id, const char *flag,
                      struct words *ret)
{
    struct words w = {0};

    for (int i = 0; i < argc; i++) {
        if (flag && strcmp(argv[i], flag) == 0) {
            w.flag = true;
        } else if (argv[i][0] == '-') {
            return ctl_say(c, CTL_USAGE, "unknown option %s; stratactl(1) lists them", argv[i]);
        } else if (!wants_id || w.id) {
            return ctl_say(c, CTL_USAGE, "unexpected argument \"%s\"", argv[i]);
        } else if (text_u64(argv[i], &w.id) < 0 || w.id == 0 || w.id > INT64_MAX) {
            return ctl_say(c, CTL_USAGE,
                           "\"%s\" is not the number of an entry; \"stratactl cache "
                           "list\" shows them",
                           argv[i]);
        }
    }
    if (wants_id && !w.id)
        return ctl_say(c, CTL_USAGE,
                       "the number of an entry is missing; \"stratactl cache list\" "
                       "shows them");
    *ret = w;
    return CTL_OK;
}

/* Whether a person at a terminal means it; without one nobody is asked. */
static bool is_meant(const struct ctl *c, const char *question)
{
    char line[16];

    if (!isatty(STDIN_FILENO))
        return true;
    (void)fprintf(c->err, "%s [y/N] ", question);
    (void)fflush(c->err);
    if (!fgets(line, sizeof line, stdin))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, "y") == 0 || strcmp(line, "yes") == 0;
}

/* A call whose reply is shown with --json only. */
static int call_silently(const struct ctl *c, const char *method, json_t *parameters)
{
    static const struct out_field none[] = {{NULL, NULL, OUT_PLAIN, false}};
    json_t *answer;
    int r = client_call(c, method, parameters, &answer);

    if (r != CTL_OK)
        return r;
    out_object(c, answer, none);
    json_decref(answer);
    return CTL_OK;
}

static int list(const struct ctl *c, int argc, char **argv, const char *method, const char *key)
{
    static const struct out_field fields[] = {
        {"id", "ID", OUT_PLAIN, false},
        {"kind", "KIND", OUT_PLAIN, false},
        {"uid|key", "USER", OUT_PLAIN, false},
        {"tokens", "TOKENS", OUT_PLAIN, false},
        {"active", "ACTIVE", OUT_PLAIN, false},
        {"pinned", "PINNED", OUT_PLAIN, false},
        {"vram_bytes", "VRAM", OUT_BYTES, false},
        {"ram_bytes", "RAM", OUT_BYTES, false},
        {"own_pages", "OWN PAGES", OUT_PLAIN, false},
        {"checkpoints", "CHECKPOINTS", OUT_PLAIN, false},
        {"hits", "HITS", OUT_PLAIN, false},
        {"idle_ms", "IDLE", OUT_MS, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    struct words w;
    json_t *answer;
    json_int_t total;
    size_t n;
    int r = take_words(c, argc, argv, false, NULL, &w);

    if (r == CTL_OK)
        r = client_call(c, method, NULL, &answer);
    if (r != CTL_OK)
        return r;
    out_table(c, answer, key, fields);
    total = json_integer_value(json_object_get(answer, "total"));
    n = json_array_size(json_object_get(answer, key));
    if (!c->json && total > (json_int_t)n)
        (void)fprintf(c->out, "%" JSON_INTEGER_FORMAT " more\n", total - (json_int_t)n);
    json_decref(answer);
    return CTL_OK;
}

int cmd_cache_list(const struct ctl *c, int argc, char **argv)
{
    return list(c, argc, argv, STRATA_CONTROL ".CacheList", "entries");
}

int cmd_roots_list(const struct ctl *c, int argc, char **argv)
{
    return list(c, argc, argv, STRATA_CONTROL ".RootsList", "roots");
}

int cmd_cache_show(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"entry.id", "entry", OUT_PLAIN, false},
        {"entry.kind", "kind", OUT_PLAIN, false},
        {"entry.uid|entry.key", "user", OUT_PLAIN, false},
        {"entry.active", "active", OUT_PLAIN, false},
        {"entry.pinned", "pinned", OUT_PLAIN, false},
        {"entry.shared", "shared", OUT_PLAIN, false},
        {"entry.tokens", "tokens", OUT_PLAIN, false},
        {"entry.turn_pos", "turn checkpoint", OUT_PLAIN, false},
        {"entry.query_pos", "query checkpoint", OUT_PLAIN, false},
        {"entry.checkpoints", "checkpoints", OUT_PLAIN, false},
        {"entry.pages", "pages", OUT_PLAIN, false},
        {"entry.vram_pages", "pages in vram", OUT_PLAIN, false},
        {"entry.ram_pages", "pages in ram", OUT_PLAIN, false},
        {"entry.own_pages", "pages of its own", OUT_PLAIN, false},
        {"entry.vram_bytes", "in vram", OUT_BYTES, false},
        {"entry.ram_bytes", "in ram", OUT_BYTES, false},
        {"entry.hits", "hits", OUT_PLAIN, false},
        {"entry.idle_ms", "idle", OUT_MS, false},
        {"entry.value", "value", OUT_PLAIN, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    struct words w;
    json_t *answer;
    int r = take_words(c, argc, argv, true, NULL, &w);

    if (r == CTL_OK)
        r = client_call(c, STRATA_CONTROL ".CacheShow", json_pack("{s:I}", "id", (json_int_t)w.id),
                        &answer);
    if (r != CTL_OK)
        return r;
    out_object(c, answer, fields);
    json_decref(answer);
    return CTL_OK;
}

int cmd_cache_stats(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"reuse.requests", "requests", OUT_PLAIN, false},
        {"reuse.prompt_tokens", "prompt tokens", OUT_PLAIN, false},
        {"reuse.reused_tokens", "reused", OUT_PLAIN, false},
        {"reuse.continuations", "continuations", OUT_PLAIN, false},
        {"reuse.switches", "switches", OUT_PLAIN, false},
        {"reuse.hits", "hits", OUT_PLAIN, false},
        {"reuse.misses", "misses", OUT_PLAIN, false},
        {"parked", "parked", OUT_PLAIN, false},
        {"parked_limit", "most parked", OUT_PLAIN, false},
        {"active", "active", OUT_PLAIN, false},
        {"roots", "roots", OUT_PLAIN, false},
        {"pinned", "pinned", OUT_PLAIN, false},
        {"pages", "pages", OUT_PLAIN, false},
        {"checkpoints", "checkpoints", OUT_PLAIN, false},
        {"vram.bytes", "in vram", OUT_BYTES, false},
        {"vram.units_held", "units in vram", OUT_PLAIN, false},
        {"vram.units_limit", "most in vram", OUT_PLAIN, false},
        {"ram.bytes", "in ram", OUT_BYTES, false},
        {"ram.units_held", "units in ram", OUT_PLAIN, false},
        {"ram.units_limit", "most in ram", OUT_PLAIN, false},
        {"parks", "parked so far", OUT_PLAIN, false},
        {"evictions", "evicted", OUT_PLAIN, false},
        {"superseded", "superseded", OUT_PLAIN, false},
        {"refused", "refused", OUT_PLAIN, false},
        {"demotions", "demoted", OUT_PLAIN, false},
        {"roots_made", "roots made", OUT_PLAIN, false},
        {"roots_lost", "roots lost", OUT_PLAIN, false},
        {"write_backs", "copies to ram", OUT_PLAIN, false},
        {"write_back_bytes", "copied to ram", OUT_BYTES, false},
        {"loads", "copies to vram", OUT_PLAIN, false},
        {"load_bytes", "copied to vram", OUT_BYTES, false},
        {"failed_moves", "failed copies", OUT_PLAIN, false},
        {"book_bytes", "books", OUT_BYTES, false},
        {"token_bytes", "tokens", OUT_BYTES, false},
        {"rounding_bytes", "rounding", OUT_BYTES, false},
        {NULL, NULL, OUT_PLAIN, false},
    };
    struct words w;
    json_t *answer;
    int r = take_words(c, argc, argv, false, NULL, &w);

    if (r == CTL_OK)
        r = client_call(c, STRATA_CONTROL ".CacheStats", NULL, &answer);
    if (r != CTL_OK)
        return r;
    out_object(c, answer, fields);
    json_decref(answer);
    return CTL_OK;
}

int cmd_cache_evict(const struct ctl *c, int argc, char **argv)
{
    struct words w;
    int r = take_words(c, argc, argv, true, "--forget", &w);

    return r != CTL_OK
               ? r
               : call_silently(c, STRATA_CONTROL ".CacheEvict",
                               json_pack("{s:I, s:b}", "id", (json_int_t)w.id, "forget", w.flag));
}

static int clear(const struct ctl *c, int argc, char **argv, const char *question,
                 const char *method, const struct out_field *fields)
{
    struct words w;
    json_t *answer;
    int r = take_words(c, argc, argv, false, "--yes", &w);

    if (r != CTL_OK)
        return r;
    if (!w.flag && !is_meant(c, question))
        return ctl_say(c, CTL_FAILED, "nothing was done");
    r = client_call(c, method, NULL, &answer);
    if (r != CTL_OK)
        return r;
    out_object(c, answer, fields);
    json_decref(answer);
    return CTL_OK;
}

int cmd_cache_clear(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"conversations", "conversations forgotten", OUT_PLAIN, false},
        {NULL, NULL, OUT_PLAIN, false},
    };

    return clear(c, argc, argv, "Forget everything that is cached?", STRATA_CONTROL ".CacheClear",
                 fields);
}

int cmd_roots_clear(const struct ctl *c, int argc, char **argv)
{
    static const struct out_field fields[] = {
        {"roots", "roots given up", OUT_PLAIN, false},
        {NULL, NULL, OUT_PLAIN, false},
    };

    return clear(c, argc, argv, "Give up all roots that are not pinned?",
                 STRATA_CONTROL ".RootsClear", fields);
}

static int pin(const struct ctl *c, int argc, char **argv, const char *method)
{
    struct words w;
    int r = take_words(c, argc, argv, true, NULL, &w);

    return r != CTL_OK ? r : call_silently(c, method, json_pack("{s:I}", "id", (json_int_t)w.id));
}

int cmd_roots_pin(const struct ctl *c, int argc, char **argv)
{
    return pin(c, argc, argv, STRATA_CONTROL ".RootsPin");
}

int cmd_roots_unpin(const struct ctl *c, int argc, char **argv)
{
    return pin(c, argc, argv, STRATA_CONTROL ".RootsUnpin");
}
