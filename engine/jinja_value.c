/* SPDX-License-Identifier: Apache-2.0 */
/* Values: counted memory, references, lists, objects in order. */
#include "engine/jinja_private.h"

#include "util/hash.h"

#include <errno.h>
#include <stdlib.h>

struct jinja_value jv_undefined = {.type = JT_UNDEFINED, .immortal = true};
struct jinja_value jv_none = {.type = JT_NONE, .immortal = true};
struct jinja_value jv_true = {.type = JT_BOOL, .immortal = true, .u.b = true};
struct jinja_value jv_false = {.type = JT_BOOL, .immortal = true, .u.b = false};

/* Objects of more entries than this are searched by hash. */
enum { N_LINEAR = 8 };

static bool charge(struct jinja_heap *h, size_t n)
{
    if (!h)
        return true;
    if (n > h->limit - h->used) {
        h->over = true;
        return false;
    }
    h->used += n;
    return true;
}

void *jheap_alloc(struct jinja_heap *h, size_t n)
{
    void *p;

    if (!charge(h, n))
        return NULL;
    p = malloc(n ? n : 1);
    if (!p && h)
        h->used -= n;
    return p;
}

void *jheap_realloc(struct jinja_heap *h, void *p, size_t old, size_t n)
{
    void *q;

    if (n > old && !charge(h, n - old))
        return NULL;
    q = realloc(p, n ? n : 1);
    if (!q && n <= old)
        return p;
    if (h && !q)
        h->used -= n - old;
    else if (h && n < old)
        h->used -= old - n;
    return q;
}

void jheap_free(struct jinja_heap *h, void *p, size_t n)
{
    if (p && h)
        h->used -= n;
    free(p);
}

static bool can_be_in_a_cycle(enum jinja_type type)
{
    return type == JT_LIST || type == JT_OBJECT || type == JT_NAMESPACE || type == JT_SCOPE;
}

struct jinja_value *jv_new(struct jinja_heap *h, enum jinja_type type, size_t n_inline)
{
    struct jinja_value *v;
    size_t size;

    if (__builtin_add_overflow(sizeof(*v), n_inline, &size))
        return NULL;
    v = jheap_alloc(h, size);
    if (!v)
        return NULL;
    memset(v, 0, sizeof(*v));
    v->type = (uint8_t)type;
    v->refs = 1;
    v->heap = h;
    v->n_inline = n_inline;
    if (h && can_be_in_a_cycle(type)) {
        v->next = h->all;
        if (h->all)
            h->all->prev = v;
        h->all = v;
        v->linked = true;
    }
    return v;
}

struct jinja_value *jinja_ref(struct jinja_value *v)
{
    if (v && !v->immortal)
        (void)__atomic_fetch_add(&v->refs, 1, __ATOMIC_RELAXED);
    return v;
}

/* Gives up one reference; the last one puts the value on the list of the dead, so that values
 * nested however deep are freed without recursion. */
static void drop(struct jinja_value *v, struct jinja_value **dead)
{
    if (!v || v->immortal || __atomic_sub_fetch(&v->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (v->linked) {
        if (v->prev)
            v->prev->next = v->next;
        else
            v->heap->all = v->next;
        if (v->next)
            v->next->prev = v->prev;
        v->linked = false;
    }
    v->next = *dead;
    *dead = v;
}

static void free_entries(struct jinja_value *v, struct jinja_value **dead)
{
    struct jobject *o = &v->u.obj;

    for (size_t i = 0; i < o->n; i++) {
        drop(o->e[i].key, dead);
        drop(o->e[i].value, dead);
    }
    jheap_free(v->heap, o->e, o->cap * sizeof(*o->e));
    jheap_free(v->heap, o->index, o->n_index * sizeof(*o->index));
    *o = (struct jobject){0};
}

static void free_content(struct jinja_value *v, struct jinja_value **dead)
{
    switch (v->type) {
    case JT_BIG:
    case JT_STRING:
        drop(v->u.str.owner, dead);
        jheap_free(v->heap, v->u.str.runs, v->u.str.n_runs * sizeof(*v->u.str.runs));
        break;
    case JT_LIST:
    case JT_TUPLE:
        for (size_t i = 0; i < v->u.list.n; i++)
            drop(v->u.list.v[i], dead);
        jheap_free(v->heap, v->u.list.v, v->u.list.cap * sizeof(struct jinja_value *));
        v->u.list.v = NULL;
        v->u.list.n = v->u.list.cap = 0;
        break;
    case JT_OBJECT:
    case JT_NAMESPACE:
        free_entries(v, dead);
        break;
    case JT_LOOP:
        drop(v->u.loop.items, dead);
        break;
    case JT_MACRO:
        drop(v->u.macro.scope, dead);
        break;
    case JT_METHOD:
        drop(v->u.method.self, dead);
        break;
    case JT_SCOPE:
        for (uint32_t i = 0; i < v->u.scope.n; i++)
            drop(v->u.scope.v[i].value, dead);
        jheap_free(v->heap, v->u.scope.v, v->u.scope.cap * sizeof(struct jvar));
        drop(v->u.scope.parent, dead);
        v->u.scope.v = NULL;
        v->u.scope.n = v->u.scope.cap = 0;
        v->u.scope.parent = NULL;
        break;
    default:
        break;
    }
}

static void bury(struct jinja_value *dead)
{
    while (dead) {
        struct jinja_value *v = dead;

        dead = v->next;
        free_content(v, &dead);
        jheap_free(v->heap, v, sizeof(*v) + v->n_inline);
    }
}

void jinja_unref(struct jinja_value *v)
{
    struct jinja_value *dead = NULL;

    drop(v, &dead);
    bury(dead);
}

void jheap_break_cycles(struct jinja_heap *h)
{
    struct jinja_value *dead = NULL;

    /* Emptying one may free others, but not the one that is held here. */
    while (h->all) {
        struct jinja_value *v = jinja_ref(h->all);

        free_content(v, &dead);
        bury(dead);
        dead = NULL;
        if (__atomic_load_n(&v->refs, __ATOMIC_ACQUIRE) > 1) {
            /* Still in some other's content: it is freed with that. */
            h->all = v->next;
            if (v->next)
                v->next->prev = NULL;
            v->linked = false;
            v->prev = v->next = NULL;
        }
        jinja_unref(v);
    }
}

/* --- makers ------------------------------------------------------------------------------------
 */

struct jinja_value *jinja_none(void)
{
    return &jv_none;
}

struct jinja_value *jinja_bool(bool b)
{
    return jv_of_bool(b);
}

struct jinja_value *jv_new_int(struct jinja_heap *h, int64_t i)
{
    struct jinja_value *v = jv_new(h, JT_INT, 0);

    if (v)
        v->u.i = i;
    return v;
}

struct jinja_value *jv_new_float(struct jinja_heap *h, double d)
{
    struct jinja_value *v = jv_new(h, JT_FLOAT, 0);

    if (v)
        v->u.f = d;
    return v;
}

struct jinja_value *jv_new_string(struct jinja_heap *h, const char *s, size_t n, bool is_data)
{
    struct jinja_value *v = jv_new(h, JT_STRING, n);

    if (!v)
        return NULL;
    if (n)
        memcpy(v + 1, s, n);
    v->u.str.s = (const char *)(v + 1);
    v->u.str.n = n;
    v->marks = is_data ? JM_DATA : JM_PLAIN;
    return v;
}

struct jinja_value *jinja_int(int64_t i)
{
    return jv_new_int(NULL, i);
}

struct jinja_value *jinja_float(double d)
{
    return jv_new_float(NULL, d);
}

struct jinja_value *jinja_number_text(const char *s, size_t n)
{
    struct jinja_value *v = jv_new_string(NULL, s, n, false);

    if (v)
        v->type = JT_BIG;
    return v;
}

struct jinja_value *jinja_string(const char *s, size_t n, bool is_data)
{
    return jv_new_string(NULL, s, n, is_data);
}

struct jinja_value *jinja_list(void)
{
    return jv_new(NULL, JT_LIST, 0);
}

struct jinja_value *jinja_object(void)
{
    return jv_new(NULL, JT_OBJECT, 0);
}

/* --- lists -------------------------------------------------------------------------------------
 */

int jlist_reserve(struct jinja_value *list, size_t n)
{
    size_t cap = list->u.list.cap, need;
    void *p;

    if (__builtin_add_overflow(list->u.list.n, n, &need) || need > SIZE_MAX / 32)
        return -ENOMEM;
    if (need <= cap)
        return 0;
    cap += cap / 2;
    if (cap < need)
        cap = need;
    p = jheap_realloc(list->heap, list->u.list.v, list->u.list.cap * sizeof(struct jinja_value *),
                      cap * sizeof(struct jinja_value *));
    if (!p)
        return -ENOMEM;
    list->u.list.v = p;
    list->u.list.cap = cap;
    return 0;
}

int jlist_push(struct jinja_value *list, struct jinja_value *item)
{
    if (list->u.list.n == list->u.list.cap) {
        int r = jlist_reserve(list, 4);

        if (r < 0)
            return r;
    }
    list->u.list.v[list->u.list.n++] = item;
    return 0;
}

int jinja_list_add(struct jinja_value *list, struct jinja_value *item)
{
    if (!list || !item || jlist_push(list, item) < 0) {
        jinja_unref(item);
        return -ENOMEM;
    }
    return 0;
}

/* --- objects -----------------------------------------------------------------------------------
 */

bool jv_can_be_key(const struct jinja_value *v)
{
    return v->type == JT_STRING || v->type == JT_NONE || jv_is_number(v);
}

/* For this process: who makes the keys cannot know the seed. */
static uint64_t seed(void)
{
    static uint64_t s;
    uint64_t v = __atomic_load_n(&s, __ATOMIC_RELAXED), none = 0;

    if (v)
        return v;
    v = hash_seed() | 1;
    if (!__atomic_compare_exchange_n(&s, &none, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        v = none;
    return v;
}

static uint64_t hash_key(const struct jinja_value *v)
{
    double d;

    if (v->type == JT_STRING || v->type == JT_BIG)
        return hash_bytes(v->u.str.s, v->u.str.n, seed());
    /* 1, 1.0 and true are one key. */
    if (!jv_double(v, &d))
        return 0;
    d += 0.0; /* -0.0 is 0.0 */
    return hash_bytes(&d, sizeof(d), seed());
}

/* Position of the entry, or SIZE_MAX. */
static size_t find_entry(const struct jobject *o, const struct jinja_value *key, uint64_t hash)
{
    if (!o->index) {
        for (size_t i = 0; i < o->n; i++)
            if (o->e[i].hash == hash && jop_equal(o->e[i].key, key, 0))
                return i;
        return SIZE_MAX;
    }
    for (size_t at = hash & (o->n_index - 1); o->index[at]; at = (at + 1) & (o->n_index - 1)) {
        const struct jentry *e = &o->e[o->index[at] - 1];

        if (e->hash == hash && jop_equal(e->key, key, 0))
            return o->index[at] - 1;
    }
    return SIZE_MAX;
}

static void index_entry(struct jobject *o, size_t i)
{
    size_t at = o->e[i].hash & (o->n_index - 1);

    while (o->index[at])
        at = (at + 1) & (o->n_index - 1);
    o->index[at] = (uint32_t)i + 1;
}

static void index_all(struct jobject *o)
{
    memset(o->index, 0, o->n_index * sizeof(*o->index));
    for (size_t i = 0; i < o->n; i++)
        index_entry(o, i);
}

static int grow(struct jinja_value *v)
{
    struct jobject *o = &v->u.obj;
    size_t cap = o->cap ? o->cap * 2 : 4;
    void *p;

    if (cap > UINT32_MAX / 4)
        return -ENOMEM;
    if (cap > N_LINEAR) {
        uint32_t *index = jheap_alloc(v->heap, cap * 2 * sizeof(*index));

        if (!index)
            return -ENOMEM;
        jheap_free(v->heap, o->index, o->n_index * sizeof(*o->index));
        o->index = index;
        o->n_index = cap * 2;
        index_all(o);
    }
    p = jheap_realloc(v->heap, o->e, o->cap * sizeof(*o->e), cap * sizeof(*o->e));
    if (!p)
        return -ENOMEM;
    o->e = p;
    o->cap = cap;
    return 0;
}

int jobject_put(struct jinja_value *object, struct jinja_value *key, struct jinja_value *value)
{
    struct jobject *o = &object->u.obj;
    uint64_t hash = hash_key(key);
    size_t i = find_entry(o, key, hash);

    if (i != SIZE_MAX) {
        struct jinja_value *old = o->e[i].value;

        o->e[i].value = value;
        jinja_unref(old);
        jinja_unref(key); /* the first one stays, as in Python */
        return 0;
    }
    if (o->n == o->cap) {
        int r = grow(object);

        if (r < 0)
            return r;
    }
    o->e[o->n++] = (struct jentry){.key = key, .value = value, .hash = hash};
    if (o->index)
        index_entry(o, o->n - 1);
    return 0;
}

void jobject_remove(struct jinja_value *v, size_t i)
{
    struct jobject *o = &v->u.obj;
    struct jentry e = o->e[i];

    memmove(o->e + i, o->e + i + 1, (o->n - i - 1) * sizeof(*o->e));
    o->n--;
    if (o->index)
        index_all(o);
    jinja_unref(e.key);
    jinja_unref(e.value);
}

struct jinja_value *jobject_find(const struct jinja_value *o, const struct jinja_value *key)
{
    size_t i;

    if (!jv_can_be_key(key))
        return NULL;
    i = find_entry(&o->u.obj, key, hash_key(key));
    return i == SIZE_MAX ? NULL : o->u.obj.e[i].value;
}

struct jinja_value *jobject_find_text(const struct jinja_value *o, const char *s, size_t n)
{
    struct jinja_value key = {.type = JT_STRING, .u.str = {.s = s, .n = n}};

    return jobject_find(o, &key);
}

int jinja_object_set(struct jinja_value *object, const char *key, size_t n, bool key_is_data,
                     struct jinja_value *value)
{
    struct jinja_value *k = object && value ? jinja_string(key, n, key_is_data) : NULL;

    if (!k || jobject_put(object, k, value) < 0) {
        jinja_unref(k);
        jinja_unref(value);
        return -ENOMEM;
    }
    return 0;
}

/* --- what a value is ---------------------------------------------------------------------------
 */

bool jv_truth(const struct jinja_value *v)
{
    switch (v->type) {
    case JT_UNDEFINED:
    case JT_NONE:
        return false;
    case JT_BOOL:
        return v->u.b;
    case JT_INT:
        return v->u.i != 0;
    case JT_FLOAT:
        return v->u.f != 0;
    case JT_STRING:
        return v->u.str.n > 0;
    case JT_LIST:
    case JT_TUPLE:
        return v->u.list.n > 0;
    case JT_OBJECT:
        return v->u.obj.n > 0;
    default:
        return true;
    }
}

bool jv_integer(const struct jinja_value *v, int64_t *ret)
{
    if (v->type == JT_BOOL)
        *ret = v->u.b;
    else if (v->type == JT_INT)
        *ret = v->u.i;
    else
        return false;
    return true;
}

bool jv_double(const struct jinja_value *v, double *ret)
{
    int64_t i;

    if (v->type == JT_FLOAT)
        *ret = v->u.f;
    else if (jv_integer(v, &i))
        *ret = (double)i;
    else
        return false;
    return true;
}

const char *jv_type_name(const struct jinja_value *v)
{
    static const char *const names[] = {"undefined", "none",         "a boolean",   "an integer",
                                        "a float",   "a big number", "a string",    "a list",
                                        "a tuple",   "an object",    "a namespace", "a loop",
                                        "a macro",   "a method",     "a function",  "a scope"};

    return names[v->type];
}
