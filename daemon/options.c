/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "daemon/config.h"
#include "daemon/tcp_listen.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct option_spec specs[] = {
#define OPTION_STRING(field, flags_, argument_, words_, help_)                                     \
    {.name = #field,                                                                               \
     .type = OPTION_STRING,                                                                        \
     .flags = (flags_),                                                                            \
     .offset = offsetof(struct options, field),                                                    \
     .argument = (argument_),                                                                      \
     .words = (words_),                                                                            \
     .help = (help_)},
#define OPTION_CHOICE(field, def_, choices_, later_, comes_, flags_, help_)                        \
    {.name = #field,                                                                               \
     .type = OPTION_CHOICE,                                                                        \
     .flags = (flags_),                                                                            \
     .offset = offsetof(struct options, field),                                                    \
     .argument = (choices_),                                                                       \
     .words = (def_),                                                                              \
     .choices = (choices_),                                                                        \
     .later = (later_),                                                                            \
     .comes_with = (comes_),                                                                       \
     .help = (help_)},
#define OPTION_UINT(field, def_, min_, max_, flags_, argument_, words_, help_)                     \
    {.name = #field,                                                                               \
     .type = OPTION_UINT,                                                                          \
     .flags = (flags_),                                                                            \
     .offset = offsetof(struct options, field),                                                    \
     .argument = (argument_),                                                                      \
     .words = (words_),                                                                            \
     .def = (def_),                                                                                \
     .min = (min_),                                                                                \
     .max = (max_),                                                                                \
     .help = (help_)},
#define OPTION_BOOL(field, def_, flags_, help_)                                                    \
    {.name = #field,                                                                               \
     .type = OPTION_BOOL,                                                                          \
     .flags = (flags_),                                                                            \
     .offset = offsetof(struct options, field),                                                    \
     .argument = "true|false",                                                                     \
     .words = (def_) ? "true" : "false",                                                           \
     .def = (def_),                                                                                \
     .help = (help_)},
#define OPTION_LATER(field, off_, comes_)                                                          \
    {.name = #field, .type = OPTION_LATER, .off = (off_), .comes_with = (comes_)},
#include "daemon/options.def"
#undef OPTION_STRING
#undef OPTION_CHOICE
#undef OPTION_UINT
#undef OPTION_BOOL
#undef OPTION_LATER
};

enum { N_SPECS = sizeof specs / sizeof specs[0] };

/* The field of `spec` in `o`, whose type the spec knows. */
static void *field_of(const struct options *o, const struct option_spec *spec)
{
    return (char *)(uintptr_t)o + spec->offset;
}

const struct option_spec *options_spec(size_t i)
{
    return i < N_SPECS ? &specs[i] : NULL;
}

const struct option_spec *options_find(const char *name)
{
    for (size_t i = 0; i < N_SPECS; i++)
        if (strcmp(specs[i].name, name) == 0)
            return &specs[i];
    return NULL;
}

const struct option_spec *options_nearest(const char *name)
{
    const struct option_spec *best = NULL;
    uint32_t least = UINT32_MAX;

    for (size_t i = 0; i < N_SPECS; i++) {
        uint32_t d = text_distance(name, specs[i].name);

        if (d < least) {
            least = d;
            best = &specs[i];
        }
    }
    return best && text_is_near(name, least) ? best : NULL;
}

/* The word of a list "a|b|c" that equals `s`: its position in the list, or NULL. */
static const char *list_find(const char *list, const char *s)
{
    size_t n = strlen(s);

    for (const char *p = list; p && *p;) {
        size_t k = strcspn(p, "|");

        if (k == n && memcmp(p, s, n) == 0)
            return p;
        p += k;
        p += *p == '|';
    }
    return NULL;
}

/* Choices are stored as constants: one NUL-terminated word per value that can be chosen. */
static const char *choice_word(const char *s)
{
    static const char *const words[] = {"f16",     "bf16",   "f32",  "auto",  "cpu", "err",
                                        "warning", "notice", "info", "debug", "uid", "none"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], s) == 0)
            return words[i];
    return NULL;
}

int options_init(struct options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < N_SPECS; i++) {
        const struct option_spec *spec = &specs[i];

        switch (spec->type) {
        case OPTION_STRING:
        case OPTION_LATER:
            break;
        case OPTION_CHOICE:
            *(const char **)field_of(o, spec) = choice_word(spec->words);
            break;
        case OPTION_UINT:
            *(uint32_t *)field_of(o, spec) = spec->def;
            break;
        case OPTION_BOOL:
            *(bool *)field_of(o, spec) = spec->def != 0;
            break;
        }
    }
    o->name = strdup("default");
    return o->name ? 0 : -ENOMEM;
}

void options_done(struct options *o)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        if (specs[i].type != OPTION_STRING)
            continue;
        free(*(char **)field_of(o, &specs[i]));
        *(char **)field_of(o, &specs[i]) = NULL;
    }
}

bool options_equal(const struct option_spec *spec, const struct options *a, const struct options *b)
{
    const char *sa, *sb;

    switch (spec->type) {
    case OPTION_STRING:
    case OPTION_CHOICE:
        sa = *(char **)field_of(a, spec);
        sb = *(char **)field_of(b, spec);
        return sa == sb || (sa && sb && strcmp(sa, sb) == 0);
    case OPTION_UINT:
        return *(uint32_t *)field_of(a, spec) == *(uint32_t *)field_of(b, spec);
    case OPTION_BOOL:
        return *(bool *)field_of(a, spec) == *(bool *)field_of(b, spec);
    case OPTION_LATER:
        return true;
    }
    return true;
}

/* What was found, as a message says it; in `out` where that takes making. */
static const char *found_words(const struct option_value *v, char *out, size_t size)
{
    char shown[64];

    switch (v->kind) {
    case VALUE_NULL:
        return "null";
    case VALUE_BOOL:
        return v->b ? "true" : "false";
    case VALUE_INT:
        (void)snprintf(out, size, "the number %lld", (long long)v->i);
        return out;
    case VALUE_REAL:
        (void)snprintf(out, size, "the number %g", v->d);
        return out;
    case VALUE_TEXT:
        (void)snprintf(out, size, "the text \"%s\"",
                       err_escape(shown, sizeof shown, v->s, strlen(v->s)));
        return out;
    case VALUE_OTHER:
        return v->s;
    }
    return "something else";
}

/* Neither type nor words fit. */
static int unexpected(const struct option_spec *spec, const struct option_value *v,
                      struct err_text *e)
{
    char out[128];
    const char *found = found_words(v, out, sizeof out);

    switch (spec->type) {
    case OPTION_UINT:
        return err_set(e, -EINVAL, "expected a whole number from %u to %u, found %s", spec->min,
                       spec->max, found);
    case OPTION_BOOL:
        return err_set(e, -EINVAL, "expected true or false, found %s", found);
    case OPTION_CHOICE:
        return err_set(e, -EINVAL, "expected one of %s, found %s", spec->choices, found);
    case OPTION_STRING:
    case OPTION_LATER:
        break;
    }
    if (spec->flags & OPTION_IS_LIST)
        return err_set(e, -EINVAL, "expected text or a list of texts, found %s", found);
    return err_set(e, -EINVAL, "expected text, found %s", found);
}

/* Instance names end in paths, so they can neither leave a directory nor hide in one. */
static bool is_name(const char *s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t n = strlen(s);

    return n > 0 && n <= 64 && s[0] != '.' && s[strspn(s, allowed)] == '\0';
}

static int set_string(struct options *o, const struct option_spec *spec,
                      const struct option_value *v, struct err_text *e)
{
    char **field = field_of(o, spec);
    char *s;

    if (v->kind != VALUE_TEXT)
        return unexpected(spec, v, e);
    if (v->s[0] == '\0')
        return err_set(e, -EINVAL,
                       spec->flags & OPTION_IS_LIST ? "the list is empty" : "must not be empty");
    if ((spec->flags & OPTION_IS_NAME) && !is_name(v->s))
        return err_set(e, -EINVAL,
                       "expected 1 to 64 letters, digits, '_', '-' or '.', not beginning with '.'");
    s = strdup(v->s);
    if (!s)
        return err_set(e, -ENOMEM, "out of memory");
    free(*field);
    *field = s;
    return 0;
}

static int set_choice(struct options *o, const struct option_spec *spec,
                      const struct option_value *v, struct err_text *e)
{
    if (v->kind != VALUE_TEXT)
        return unexpected(spec, v, e);
    if (list_find(spec->later, v->s))
        return err_set(e, ERR_UNSUPPORTED, "\"%s\" is not supported yet: it comes with %s", v->s,
                       spec->comes_with);
    if (!list_find(spec->choices, v->s))
        return unexpected(spec, v, e);
    *(const char **)field_of(o, spec) = choice_word(v->s);
    return 0;
}

static int set_uint(struct options *o, const struct option_spec *spec, const struct option_value *v,
                    struct err_text *e)
{
    int64_t i;

    if (v->kind == VALUE_INT)
        i = v->i;
    else if (v->kind == VALUE_REAL && v->d == trunc(v->d) && fabs(v->d) < 1e15)
        i = (int64_t)v->d; /* 20.0 is 20 */
    else
        return unexpected(spec, v, e);
    if (i < (int64_t)spec->min || i > (int64_t)spec->max)
        return err_set(e, -ERANGE, "%lld is out of range: a whole number from %u to %u",
                       (long long)i, spec->min, spec->max);
    *(uint32_t *)field_of(o, spec) = (uint32_t)i;
    return 0;
}

/* A setting of later work: only the value that asks for nothing passes. */
static int set_later(const struct option_spec *spec, const struct option_value *v,
                     struct err_text *e)
{
    bool is_off = false;

    if (spec->off && v->kind == VALUE_TEXT)
        is_off = strcmp(v->s, spec->off) == 0;
    else if (spec->off && v->kind == VALUE_BOOL)
        is_off = !v->b && strcmp(spec->off, "false") == 0;
    else if (spec->off && v->kind == VALUE_INT)
        is_off = v->i == 0 && strcmp(spec->off, "0") == 0;
    if (is_off)
        return 0;
    return err_set(e, ERR_UNSUPPORTED, "not supported yet: it comes with %s", spec->comes_with);
}

int options_set(struct options *o, const struct option_spec *spec, const struct option_value *v,
                struct err_text *e)
{
    if (v->kind == VALUE_NULL && (spec->flags & OPTION_NULL_IS_ABSENT))
        return 0;

    switch (spec->type) {
    case OPTION_STRING:
        return set_string(o, spec, v, e);
    case OPTION_CHOICE:
        return set_choice(o, spec, v, e);
    case OPTION_UINT:
        return set_uint(o, spec, v, e);
    case OPTION_BOOL:
        if (v->kind != VALUE_BOOL)
            return unexpected(spec, v, e);
        *(bool *)field_of(o, spec) = v->b;
        return 0;
    case OPTION_LATER:
        return set_later(spec, v, e);
    }
    return -EINVAL;
}

int options_check(const struct options *o, struct err_text *e)
{
    struct err_text why;
    int r;

    if (!o->listen)
        return 0;
    if (!o->api_key_file)
        return err_set(e, -EINVAL,
                       "\"listen\" opens TCP, where every request needs a key: set "
                       "\"api_key_file\" too");
    r = tcp_listen_check(o->listen, &why);
    return r < 0 ? err_set(e, r, "\"listen\": %s", why.s) : 0;
}
