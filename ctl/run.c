/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of stratactl: global options, then noun and verb from the table. */
#include "ctl/ctl.h"

#include "ctl/out.h"
#include "util/cleanup.h"
#include "util/text.h"

#include "strata-config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ctl_verb verbs[] = {
#define VERB(noun_, verb_, run_, arguments_, help_) {noun_, verb_, arguments_, help_, run_},
#include "ctl/verbs.def"
#undef VERB
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

const struct ctl_verb *ctl_verb(size_t i)
{
    return i < N_VERBS ? &verbs[i] : NULL;
}

int ctl_say(const struct ctl *c, int code, const char *fmt, ...)
{
    CLEANUP(free_p) char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    (void)fputs("stratactl: ", c->err);
    /* It may quote the daemon, and so the template of a model file. */
    if (n >= 0)
        out_text(c->err, text, (size_t)n);
    else
        text = NULL;
    (void)fputc('\n', c->err);
    return code;
}

int cmd_help(const struct ctl *c, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)fputs("usage: stratactl [-i NAME | --socket PATH] [--json] COMMAND\n\n", c->out);
    for (size_t i = 0; i < N_VERBS; i++) {
        char head[80];

        (void)snprintf(head, sizeof head, "%s%s%s%s%s", verbs[i].noun, verbs[i].verb[0] ? " " : "",
                       verbs[i].verb, verbs[i].arguments[0] ? " " : "", verbs[i].arguments);
        (void)fprintf(c->out, "  %-34s %s\n", head, verbs[i].help);
    }
    (void)fputs("\n  -i NAME                            the instance (default: default)\n"
                "  --socket PATH                      its control socket\n"
                "  --json                             answers as JSON\n"
                "  --version                          the version of stratactl\n",
                c->out);
    return CTL_OK;
}

static int unknown(const struct ctl *c, const char *noun)
{
    const char *best = NULL;
    uint32_t least = UINT32_MAX;

    for (size_t i = 0; i < N_VERBS; i++) {
        uint32_t d = text_distance(noun, verbs[i].noun);

        if (d < least) {
            least = d;
            best = verbs[i].noun;
        }
    }
    if (best && text_is_near(noun, least))
        return ctl_say(c, CTL_USAGE, "unknown command \"%s\"; did you mean \"%s\"?", noun, best);
    return ctl_say(c, CTL_USAGE, "unknown command \"%s\"; \"stratactl help\" lists the commands",
                   noun);
}

static int dispatch(const struct ctl *c, int argc, char **argv)
{
    const struct ctl_verb *of_noun = NULL;

    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i].noun, argv[0]) != 0)
            continue;
        if (verbs[i].verb[0] == '\0')
            return verbs[i].run(c, argc - 1, argv + 1);
        if (argc > 1 && strcmp(verbs[i].verb, argv[1]) == 0)
            return verbs[i].run(c, argc - 2, argv + 2);
        of_noun = &verbs[i];
    }
    if (of_noun && argc > 1)
        return ctl_say(c, CTL_USAGE, "\"%s\" has no \"%s\"; try \"%s %s\"", argv[0], argv[1],
                       of_noun->noun, of_noun->verb);
    if (of_noun)
        return ctl_say(c, CTL_USAGE, "\"%s\" needs a verb; try \"%s %s\"", argv[0], of_noun->noun,
                       of_noun->verb);
    return unknown(c, argv[0]);
}

int ctl_run(int argc, char **argv, FILE *out, FILE *err)
{
    struct ctl c = {.instance = "default", .out = out, .err = err};
    int i;

    for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
        const char **value = NULL;

        if (strcmp(argv[i], "--json") == 0) {
            c.json = true;
        } else if (strcmp(argv[i], "--version") == 0) {
            (void)fprintf(out, "stratactl %s\n", PACKAGE_VERSION);
            return CTL_OK;
        } else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            return cmd_help(&c, 0, NULL);
        } else if (strcmp(argv[i], "-i") == 0 || strcmp(argv[i], "--instance") == 0) {
            value = &c.instance;
        } else if (strcmp(argv[i], "--socket") == 0) {
            value = &c.socket;
        } else {
            return ctl_say(&c, CTL_USAGE, "unknown option %s; \"stratactl help\" lists the options",
                           argv[i]);
        }
        if (value && i + 1 == argc)
            return ctl_say(&c, CTL_USAGE, "%s needs a value", argv[i]);
        if (value)
            *value = argv[++i];
    }
    /* A name with a slash would lead out of the runtime directory. */
    if (strchr(c.instance, '/') || c.instance[0] == '.' || c.instance[0] == '\0')
        return ctl_say(&c, CTL_USAGE, "\"%s\" is not the name of an instance", c.instance);
    if (i == argc) {
        (void)cmd_help(&(struct ctl){.out = err, .err = err}, 0, NULL);
        return CTL_USAGE;
    }
    i = dispatch(&c, argc - i, argv + i);
    /* What was printed is the result: a full disk or a closed pipe must not look like success. */
    if ((fflush(out) != 0 || ferror(out)) && i == CTL_OK)
        return ctl_say(&c, CTL_FAILED, "cannot write the output");
    return i;
}
