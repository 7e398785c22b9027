/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/gen_options.h"

#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/text.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    INPUT_LIMIT = 48 << 20, /* of standard input: escaped as JSON it still fits the daemon's limit
                               for a body, mostly */
};

enum value_kind { VALUE_COUNT, VALUE_FRACTION, VALUE_STRINGS };

static const struct {
    const char *option, *key;
    enum value_kind kind;
} options[] = {
    {"--max-tokens", "max_tokens", VALUE_COUNT}, {"--temperature", "temperature", VALUE_FRACTION},
    {"--top-p", "top_p", VALUE_FRACTION},        {"--top-k", "top_k", VALUE_COUNT},
    {"--min-p", "min_p", VALUE_FRACTION},        {"--seed", "seed", VALUE_COUNT},
    {"--stop", "stop", VALUE_STRINGS}, /* may be given several times */
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };

const char *gen_value(const struct ctl *c, int argc, char **argv, int *i)
{
    if (*i + 1 < argc)
        return argv[++*i];
    (void)ctl_say(c, CTL_USAGE, "%s needs a value", argv[*i]);
    return NULL;
}

static int common_option(const struct ctl *c, int argc, char **argv, int *i, void *arg)
{
    json_t *request = arg, *value = NULL, *list;
    const char *text;
    size_t k = 0;
    uint64_t u;
    double d;

    while (k < N_OPTIONS && strcmp(options[k].option, argv[*i]) != 0)
        k++;
    if (k == N_OPTIONS)
        return GEN_OTHER;
    text = gen_value(c, argc, argv, i);
    if (!text)
        return CTL_USAGE;
    switch (options[k].kind) {
    case VALUE_COUNT:
        if (text_u64(text, &u) < 0 || u > INT64_MAX)
            return ctl_say(c, CTL_USAGE, "%s takes a whole number, not \"%s\"", options[k].option,
                           text);
        value = json_integer((json_int_t)u);
        break;
    case VALUE_FRACTION:
        if (text_f64(text, &d) < 0)
            return ctl_say(c, CTL_USAGE, "%s takes a number, not \"%s\"", options[k].option, text);
        value = json_real(d);
        break;
    case VALUE_STRINGS:
        value = json_string(text);
        if (!value)
            return ctl_say(c, CTL_USAGE, "%s takes text in UTF-8", options[k].option);
        list = json_object_get(request, options[k].key);
        if (list)
            return json_array_append_new(list, value) < 0 ? ctl_say(c, CTL_FAILED, "out of memory")
                                                          : CTL_OK;
        value = json_pack("[o]", value);
        break;
    }
    return json_object_set_new(request, options[k].key, value) < 0
               ? ctl_say(c, CTL_FAILED, "out of memory")
               : CTL_OK;
}

int gen_arguments(const struct ctl *c, const char *command, int argc, char **argv, json_t *request,
                  gen_option *own, void *arg, const char **ret_word)
{
    const char *word = NULL;
    bool words_only = false;
    int r;

    for (int i = 0; i < argc; i++) {
        if (words_only || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (word)
                return ctl_say(c, CTL_USAGE, "%s takes one text; quote it", command);
            word = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            words_only = true;
            continue;
        }
        r = common_option(c, argc, argv, &i, request);
        if (r == GEN_OTHER && own)
            r = own(c, argc, argv, &i, arg);
        if (r == GEN_OTHER)
            return ctl_say(c, CTL_USAGE, "%s has no option %s; stratactl(1) lists them", command,
                           argv[i]);
        if (r != CTL_OK)
            return r;
    }
    if (word)
        *ret_word = word;
    return CTL_OK;
}

static int read_stdin(const struct ctl *c, struct buf *b)
{
    char chunk[16384];
    ssize_t n;

    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
        int r = n < 0 ? -errno : buf_add(b, chunk, (size_t)n);

        if (r == ERR_CAPACITY)
            return ctl_say(c, CTL_FAILED, "standard input is longer than %d MiB",
                           INPUT_LIMIT >> 20);
        if (r < 0 && r != -EINTR)
            return ctl_say(c, CTL_FAILED, "cannot read standard input: %s", err_str(r));
    }
    return CTL_OK;
}

int gen_text(const struct ctl *c, const char *word, bool drop_newline, json_t **ret)
{
    CLEANUP(buf_done) struct buf text = {.limit = INPUT_LIMIT};
    json_t *value;
    size_t n;
    int r;

    if (word && strcmp(word, "-") != 0) {
        value = json_string(word);
    } else {
        r = read_stdin(c, &text);
        if (r != CTL_OK)
            return r;
        n = text.len;
        n -= drop_newline && n > 0 && text.data[n - 1] == '\n';
        value = json_stringn(text.data ? text.data : "", n);
    }
    if (!value)
        return ctl_say(c, CTL_USAGE, "the text is not UTF-8");
    *ret = value;
    return CTL_OK;
}
