/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates, whatever they are: compiled and rendered under small limits.  Marks lie in the text
 * and ascend, and what the values brought into the output is inside of them.
 */
#include "engine/jinja.h"
#include "util/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: these must hold whatever the build's flags are. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            abort();                                                                               \
    } while (0)

/* Private use characters, which no template of the corpus has: U+E000, and U+E001 in a key. */
#define SECRET     "\xee\x80\x80"
#define SECRET_KEY "\xee\x80\x81"

static void set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    MUST(jinja_object_set(o, key, strlen(key), false, v) == 0);
}

static struct jinja_value *text(const char *s)
{
    return jinja_string(s, strlen(s), true);
}

static struct jinja_value *message(const char *role, const char *content)
{
    struct jinja_value *m = jinja_object();

    set(m, "role", jinja_string(role, strlen(role), false));
    set(m, "content", content ? text(content) : jinja_none());
    return m;
}

static struct jinja_value *make_globals(void)
{
    struct jinja_value *globals = jinja_object(), *messages = jinja_list(), *o = jinja_object();
    struct jinja_value *last = message("tool", NULL);

    set(o, "name", text(SECRET));
    MUST(jinja_object_set(o, SECRET_KEY, 3, true, jinja_int(-7)) == 0);
    set(o, "list", jinja_list());
    set(last, "tool_calls", o);
    MUST(jinja_list_add(messages, message("user", " a" SECRET "b\n")) == 0);
    MUST(jinja_list_add(messages, message("assistant", SECRET SECRET)) == 0);
    MUST(jinja_list_add(messages, last) == 0);
    set(globals, "messages", messages);
    set(globals, "o", jinja_ref(o));
    set(globals, "d", text("x" SECRET " \xc3\xa9,y"));
    set(globals, "n", jinja_int(3));
    set(globals, "f", jinja_float(2.5));
    set(globals, "big", jinja_number_text("123456789012345678901", 21));
    set(globals, "bos_token", jinja_string("<s>", 3, false));
    return globals;
}

static bool is_marked(const struct jinja_output *o, size_t at)
{
    for (size_t i = 0; i < o->n_spans; i++)
        if (at >= o->spans[i].begin && at < o->spans[i].end)
            return true;
    return false;
}

static void check_output(const struct jinja_output *o, bool template_has_secret)
{
    size_t end = 0;

    for (size_t i = 0; i < o->n_spans; i++) {
        MUST(o->spans[i].begin < o->spans[i].end && o->spans[i].end <= o->text.len);
        MUST(i == 0 || o->spans[i].begin > end);
        end = o->spans[i].end;
    }
    for (size_t i = 0; i + 3 <= o->text.len && !template_has_secret; i++)
        if (memcmp(o->text.data + i, SECRET, 2) == 0)
            MUST(is_marked(o, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct jinja_limits limits = {
        .steps = 20000, .bytes = 1 << 20, .depth = 20, .output_bytes = 1 << 16, .now = 1};
    struct jinja_output out = {0};
    struct err_text e = {""};
    struct jinja *t = NULL;
    struct jinja_value *globals;
    int r = jinja_compile((const char *)data, size, &t, &e);

    MUST((r == 0) == (t != NULL));
    MUST(r == 0 || r == ERR_UNSUPPORTED || r == ERR_DAMAGED || r == -ENOMEM);
    if (r < 0) {
        MUST(e.s[0]);
        return 0;
    }
    globals = make_globals();
    r = jinja_render(t, globals, &limits, &out, &e);
    MUST(r == 0 || r == -EINVAL || r == ERR_CAPACITY || r == -ENOMEM);
    if (r == 0)
        check_output(&out, size && (memmem(data, size, "\xee", 1) || memmem(data, size, "\\", 1)));
    else
        MUST(strncmp(e.s, "line ", 5) == 0);
    jinja_output_done(&out);
    jinja_unref(globals);
    jinja_free(t);
    return 0;
}
