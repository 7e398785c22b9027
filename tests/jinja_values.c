/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/jinja_values.h"

#include "engine/jinja.h"

#include <stdlib.h>
#include <string.h>

static struct jinja_value *must(struct jinja_value *v)
{
    if (!v)
        abort();
    return v;
}

struct jinja_value *jinja_from_json(const json_t *j)
{
    struct jinja_value *v;
    const char *key;
    json_t *item;
    size_t i, n;

    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v = must(jinja_object());
        json_object_keylen_foreach((json_t *)j, key, n, item)
        {
            if (jinja_object_set(v, key, n, true, jinja_from_json(item)) < 0)
                abort();
        }
        return v;
    case JSON_ARRAY:
        v = must(jinja_list());
        json_array_foreach(j, i, item)
        {
            if (jinja_list_add(v, jinja_from_json(item)) < 0)
                abort();
        }
        return v;
    case JSON_STRING:
        return must(jinja_string(json_string_value(j), json_string_length(j), true));
    case JSON_INTEGER:
        return must(jinja_int(json_integer_value(j)));
    case JSON_REAL:
        return must(jinja_float(json_real_value(j)));
    case JSON_TRUE:
    case JSON_FALSE:
        return jinja_bool(json_is_true(j));
    case JSON_NULL:
    default:
        return jinja_none();
    }
}

void jinja_set(struct jinja_value *o, const char *key, struct jinja_value *v)
{
    if (jinja_object_set(o, key, strlen(key), false, v) < 0)
        abort();
}

void jinja_set_text(struct jinja_value *o, const char *key, const char *text)
{
    jinja_set(o, key, jinja_string(text, strlen(text), false));
}
