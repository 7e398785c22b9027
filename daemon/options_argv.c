/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: long options only, one per setting, and --help that is made from the table. */
#include "daemon/options.h"

#include "daemon/config.h"
#include "util/text.h"

#include <errno.h>
#include <string.h>

/* An argument "--some-name[=value]" taken apart. */
struct argument {
    char name[64];     /* with '_' */
    const char *value; /* after '=', or NULL */
};

static int take_apart(const char *arg, struct argument *ret, struct err_text *e)
{
    char shown[128];
    size_t n;

    err_escape(shown, sizeof shown, arg, strlen(arg));
    if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0')
        return err_set(e, -EINVAL, "unexpected argument \"%s\"; --help lists the options", shown);
    n = strcspn(arg + 2, "=");
    if (n >= sizeof ret->name)
        return err_set(e, -EINVAL, "unknown option %s", shown);
    for (size_t i = 0; i < n; i++)
        ret->name[i] = arg[2 + i] == '-' ? '_' : arg[2 + i];
    ret->name[n] = '\0';
    ret->value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
    return 0;
}

/* "--x-y" for the setting x_y. */
static const char *option_name(const char *key, char *out, size_t size)
{
    (void)snprintf(out, size, "--%s", key);
    for (char *p = out; *p; p++)
        if (*p == '_')
            *p = '-';
    return out;
}

static int unknown(const struct argument *a, struct err_text *e)
{
    const struct option_spec *near = options_nearest(a->name);
    char typed[200], meant[80], shown[256];

    option_name(a->name, typed, sizeof typed);
    err_escape(shown, sizeof shown, typed, strlen(typed));
    if (near)
        return err_set(e, -EINVAL, "unknown option %s; did you mean %s?", shown,
                       option_name(near->name, meant, sizeof meant));
    return err_set(e, -EINVAL, "unknown option %s; --help lists the options", shown);
}

/* What a text means depends on the setting that it is for. */
static struct option_value value_of(const struct option_spec *spec, const char *text)
{
    struct option_value v = {.kind = VALUE_TEXT, .s = text};
    uint64_t u;
    double d;

    if (spec->type == OPTION_BOOL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)) {
        v.kind = VALUE_BOOL;
        v.b = text[0] == 't';
    } else if (spec->type == OPTION_UINT && text_u64(text, &u) == 0 && u <= INT64_MAX) {
        v.kind = VALUE_INT;
        v.i = (int64_t)u;
    } else if (spec->type == OPTION_UINT && text_f64(text, &d) == 0) {
        v.kind = VALUE_REAL;
        v.d = d;
    }
    return v;
}

static int set_from_argv(struct options *o, const struct option_spec *spec, const char *text,
                         struct err_text *e)
{
    struct option_value v = value_of(spec, text);
    struct err_text why;
    char name[80];
    int r;

    r = options_set(o, spec, &v, &why);
    if (r < 0)
        return err_set(e, r, "%s: %s", option_name(spec->name, name, sizeof name), why.s);
    return 0;
}

/* One walk over the line; `o` NULL: only what is in `ret` is wanted. */
static int walk(struct options *o, int argc, char **argv, struct options_argv *ret,
                struct err_text *e)
{
    struct argument a;
    int r;

    for (int i = 1; i < argc; i++) {
        const struct option_spec *spec;
        const char **file = NULL;

        if (strcmp(argv[i], "-h") == 0) {
            ret->help = true;
            continue;
        }
        r = take_apart(argv[i], &a, e);
        if (r < 0)
            return r;
        if (strcmp(a.name, "help") == 0 || strcmp(a.name, "version") == 0) {
            if (a.value)
                return err_set(e, -EINVAL, "--%s takes no value", a.name);
            *(a.name[0] == 'h' ? &ret->help : &ret->version) = true;
            continue;
        }
        if (strcmp(a.name, "config") == 0)
            file = &ret->config;
        else if (strcmp(a.name, "check") == 0)
            file = &ret->check;
        spec = file ? NULL : options_find(a.name);
        if (!file && !spec)
            return unknown(&a, e);
        if (!a.value && spec && spec->type == OPTION_BOOL)
            a.value = "true"; /* a flag by itself switches on; it never takes the next word */
        else if (!a.value && ++i < argc)
            a.value = argv[i];
        if (!a.value)
            return err_set(e, -EINVAL, "%s needs a value", argv[argc - 1]);
        if (file)
            *file = a.value;
        else if (o) {
            r = set_from_argv(o, spec, a.value, e);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int options_read_argv(struct options *o, int argc, char **argv, struct options_argv *ret,
                      struct err_text *e)
{
    struct options_argv asked = {0};
    int r;

    r = walk(NULL, argc, argv, &asked, e);
    if (r < 0)
        return r;
    if (!asked.help && !asked.version) {
        if (asked.config) {
            r = config_read(o, asked.config, e);
            if (r < 0)
                return r;
        }
        r = walk(o, argc, argv, &asked, e);
        if (r == 0)
            r = options_check(o, e);
        if (r < 0)
            return r;
    }
    *ret = asked;
    return 0;
}

static void print_option(FILE *f, const char *name, const char *argument, const char *help)
{
    char head[128];

    (void)snprintf(head, sizeof head, "%s%s%s", name, argument[0] ? " " : "", argument);
    (void)fprintf(f, strlen(head) < 26 ? "  %-26s %s" : "  %s\n                             %s",
                  head, help);
}

void options_print_help(FILE *f)
{
    const struct option_spec *spec;
    char name[80];

    (void)fputs("usage: strataD --model FILE [options]\n"
                "       strataD --config FILE [options]\n"
                "       strataD --check FILE [options]\n\n"
                "Serves one GGUF model to the programs of this machine.  Every option but --name "
                "is also a key of the\n"
                "configuration file, with '_' for '-'; the command line wins.\n\n",
                f);
    print_option(f, "--config", "FILE", "read settings from a JSON file\n");
    print_option(f, "--check", "FILE", "check a model, print the memory it would take, and end\n");
    print_option(f, "--version", "", "print the version and end\n");
    print_option(f, "--help", "", "print this and end\n");
    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++) {
        if (spec->type == OPTION_LATER)
            continue;
        print_option(f, option_name(spec->name, name, sizeof name), spec->argument, spec->help);
        if (spec->type == OPTION_UINT && spec->words)
            (void)fprintf(f, " (%u to %u; default: %s)\n", spec->min, spec->max, spec->words);
        else if (spec->type == OPTION_UINT)
            (void)fprintf(f, " (%u to %u; default %u)\n", spec->min, spec->max, spec->def);
        else
            (void)fprintf(f, spec->words[0] ? " (default: %s)\n" : "%s\n", spec->words);
    }
    (void)fputs("\nKnown, and refused until the work that they belong to is there:\n", f);
    for (size_t i = 0; (spec = options_spec(i)) != NULL; i++)
        if (spec->type == OPTION_LATER)
            (void)fprintf(f, "  %-26s comes with %s\n", option_name(spec->name, name, sizeof name),
                          spec->comes_with);
}
