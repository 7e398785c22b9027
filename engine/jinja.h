/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: the subset of Jinja that model files use, compiled once, rendered many times.
 *
 * What a template cannot do is refused when it is compiled, naming the construct and its line; what
 * goes wrong while it renders is an error with the line.  Rendering has limits on steps, depth and
 * memory: templates come from model files, values from clients.
 *
 * Text that stems from values (messages, tools) stays marked as data through concatenation, slices,
 * filters and macros, so that nothing in it can become a control token: the output says which of
 * its bytes the template itself wrote.
 *
 * Any thread; a compiled template is immutable and may be shared.  A value is built by one thread
 * and not changed afterwards (rendering works on copies of what a template changes).
 */
#ifndef ENGINE_JINJA_H
#define ENGINE_JINJA_H

#include "util/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err_text;
struct jinja;
struct jinja_value;

/* 0; ERR_UNSUPPORTED for what is not in the subset, ERR_DAMAGED for a syntax error, with line and
 * construct in `e`; -ENOMEM. `source` need not outlive it. */
int jinja_compile(const char *source, size_t n, struct jinja **ret, struct err_text *e);
void jinja_free(struct jinja *t); /* NULL is fine */

/*
 * Values, reference counted.  Makers return NULL when out of memory, and take over the values given
 * to them, also when they fail (NULL among them makes the result NULL).  Strings are copied.
 */
struct jinja_value *jinja_none(void);
struct jinja_value *jinja_bool(bool b);
struct jinja_value *jinja_int(int64_t i);
struct jinja_value *jinja_float(double d);
/* A number too large for the above, as it was written; printed like that. */
struct jinja_value *jinja_number_text(const char *s, size_t n);
/* `is_data`: a client's; false: ours, like bos_token. */
struct jinja_value *jinja_string(const char *s, size_t n, bool is_data);
struct jinja_value *jinja_list(void);
struct jinja_value *jinja_object(void); /* keeps the order of its keys */
/* 0 or -ENOMEM; the item is taken over either way. */
int jinja_list_add(struct jinja_value *list, struct jinja_value *item);
int jinja_object_set(struct jinja_value *object, const char *key, size_t n, bool key_is_data,
                     struct jinja_value *value);
struct jinja_value *jinja_ref(struct jinja_value *v);
void jinja_unref(struct jinja_value *v); /* NULL is fine */

/* 0: the defaults. */
struct jinja_limits {
    uint64_t steps;        /* 20 million */
    uint64_t bytes;        /* of everything alive, 256 MiB */
    uint32_t depth;        /* of calls and nesting, 100 */
    uint64_t output_bytes; /* 64 MiB */
    int64_t now;           /* unix seconds for strftime_now; 0: the clock's */
};

struct jinja_span {
    size_t begin, end; /* bytes of the output that stem from data; ascending, not touching */
};
struct jinja_output {
    struct buf text;
    struct jinja_span *spans; /* owned, [n_spans] */
    size_t n_spans;
};
void jinja_output_done(struct jinja_output *o);

/*
 * `globals` (an object) are the template's variables.  0; -EINVAL when the template raises
 * (raise_exception: its words) or a value does not suit, ERR_CAPACITY beyond a limit, with the line
 * in `e`; -ENOMEM.
 */
int jinja_render(const struct jinja *t, struct jinja_value *globals, const struct jinja_limits *l,
                 struct jinja_output *ret, struct err_text *e);

/* Whether rendering looks into a message's content as a list of parts: true when the
 * template iterates or tests it. Decided by rendering probes; 1, 0 or negative. */
int jinja_takes_parts(const struct jinja *t);

#endif
