/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as values of templates. */
#ifndef TESTS_JINJA_VALUES_H
#define TESTS_JINJA_VALUES_H

#include <jansson.h>

struct jinja_value;

/* Every string is data, keys too.  Ends the program when there is no memory. */
struct jinja_value *jinja_from_json(const json_t *j);
/* o[key] = text, of ours. */
void jinja_set_text(struct jinja_value *o, const char *key, const char *text);
void jinja_set(struct jinja_value *o, const char *key, struct jinja_value *v);

#endif
