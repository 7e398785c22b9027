/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a compiled template: nodes, names, constants. */
#include "engine/jinja_private.h"

#include "util/hash.h"

#include <errno.h>
#include <stdlib.h>

/* --- memory of a template ----------------------------------------------------------------------
 */

struct jchunk {
    struct jchunk *next;
    size_t n, cap;
    _Alignas(16) char bytes[];
};

void *jarena(struct jinja *t, size_t n)
{
    struct jchunk *c = t->chunks;
    void *p;

    n = (n + 15) & ~(size_t)15;
    if (!c || c->cap - c->n < n) {
        size_t cap = n > 16384 ? n : 16384;

        c = calloc(1, sizeof(*c) + cap);
        if (!c)
            return NULL;
        c->cap = cap;
        c->next = t->chunks;
        t->chunks = c;
    }
    p = c->bytes + c->n;
    c->n += n;
    return p;
}

static int grow_index(struct jinja *t)
{
    uint32_t n = t->n_index ? t->n_index * 2 : 64;
    uint32_t *index = calloc(n, sizeof(*index));

    if (!index)
        return -ENOMEM;
    for (uint32_t i = 0; i < t->n_names; i++) {
        uint32_t at = (uint32_t)hash_bytes(t->names[i].s, t->names[i].n, 0) & (n - 1);

        while (index[at])
            at = (at + 1) & (n - 1);
        index[at] = i + 1;
    }
    free(t->index);
    t->index = index;
    t->n_index = n;
    return 0;
}

int jintern(struct jinja *t, const char *s, size_t n, uint32_t *ret)
{
    uint32_t at;
    char *copy;

    if (t->n_names * 2 >= t->n_index && grow_index(t) < 0)
        return -ENOMEM;
    at = (uint32_t)hash_bytes(s, n, 0) & (t->n_index - 1);
    for (; t->index[at]; at = (at + 1) & (t->n_index - 1)) {
        const struct jname *name = &t->names[t->index[at] - 1];

        if (name->n == n && memcmp(name->s, s, n) == 0) {
            *ret = t->index[at] - 1;
            return 0;
        }
    }
    if (t->n_names == t->cap_names) {
        uint32_t cap = t->cap_names ? t->cap_names * 2 : 32;
        void *p = reallocarray(t->names, cap, sizeof(*t->names));

        if (!p)
            return -ENOMEM;
        t->names = p;
        t->cap_names = cap;
    }
    copy = jarena(t, n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, s, n);
    t->names[t->n_names] = (struct jname){.s = copy, .n = (uint32_t)n};
    *ret = t->n_names++;
    t->index[at] = t->n_names;
    return 0;
}

struct jinja_value *jconst(struct jinja *t, struct jinja_value *v)
{
    if (!v || v->immortal)
        return v;
    if (t->n_consts == t->cap_consts) {
        size_t cap = t->cap_consts ? t->cap_consts * 2 : 64;
        void *p = reallocarray(t->consts, cap, sizeof(struct jinja_value *));

        if (!p) {
            jinja_unref(v);
            return NULL;
        }
        t->consts = p;
        t->cap_consts = cap;
    }
    v->immortal = true;
    t->consts[t->n_consts++] = v;
    return v;
}

void jinja_free(struct jinja *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_consts; i++) {
        t->consts[i]->immortal = false;
        jinja_unref(t->consts[i]);
    }
    free(t->consts);
    free(t->names);
    free(t->index);
    for (struct jchunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(t);
}
