/* SPDX-License-Identifier: Apache-2.0 */
/* Strings with marks: being written, cut, searched. */
#include "engine/jinja_private.h"

#include "engine/tok_unicode.h"
#include "util/utf8.h"

#include <errno.h>

/* --- being written -----------------------------------------------------------------------------
 */

void jout_done(struct jout *o)
{
    jheap_free(o->heap, o->s, o->cap);
    jheap_free(o->heap, o->spans, o->cap_spans * sizeof(*o->spans));
    o->s = NULL;
    o->spans = NULL;
    o->n = o->cap = o->n_spans = o->cap_spans = 0;
}

static int reserve(struct jout *o, size_t n)
{
    size_t need, cap;
    char *p;

    if (__builtin_add_overflow(o->n, n, &need) || need > SIZE_MAX / 2)
        return -ENOMEM;
    if (o->limit && need > o->limit)
        return ERR_CAPACITY;
    if (need <= o->cap)
        return 0;
    cap = o->cap + o->cap / 2;
    if (cap < need)
        cap = need;
    if (cap < 64)
        cap = 64;
    p = jheap_realloc(o->heap, o->s, o->cap, cap);
    if (!p)
        return -ENOMEM;
    o->s = p;
    o->cap = cap;
    return 0;
}

static int mark(struct jout *o, size_t begin, size_t end)
{
    if (o->n_spans > 0 && o->spans[o->n_spans - 1].end == begin) {
        o->spans[o->n_spans - 1].end = end;
        return 0;
    }
    if (o->n_spans == o->cap_spans) {
        size_t cap = o->cap_spans ? o->cap_spans * 2 : 4;
        void *p = jheap_realloc(o->heap, o->spans, o->cap_spans * sizeof(*o->spans),
                                cap * sizeof(*o->spans));

        if (!p)
            return -ENOMEM;
        o->spans = p;
        o->cap_spans = cap;
    }
    o->spans[o->n_spans++] = (struct jinja_span){begin, end};
    return 0;
}

int jout_add(struct jout *o, const char *s, size_t n, bool is_data)
{
    int r;

    if (n == 0)
        return 0;
    r = reserve(o, n);
    if (r < 0)
        return r;
    if (is_data || o->all_data) {
        r = mark(o, o->n, o->n + n);
        if (r < 0)
            return r;
    }
    memcpy(o->s + o->n, s, n);
    o->n += n;
    return 0;
}

int jout_slice(struct jout *o, const struct jinja_value *str, size_t begin, size_t end)
{
    int r = 0;

    for (size_t pos = begin; pos < end && r == 0;) {
        size_t stop;
        bool is_data = jstr_run(str, pos, end, &stop);

        r = jout_add(o, str->u.str.s + pos, stop - pos, is_data);
        pos = stop;
    }
    return r;
}

int jout_take(struct jout *o, struct jinja_value **ret)
{
    struct jinja_value *v = jv_new(o->heap, JT_STRING, o->n);

    if (!v)
        return -ENOMEM;
    if (o->n)
        memcpy(v + 1, o->s, o->n);
    v->u.str.s = (const char *)(v + 1);
    v->u.str.n = o->n;
    if (o->n_spans == 1 && o->spans[0].begin == 0 && o->spans[0].end == o->n) {
        v->marks = JM_DATA;
    } else if (o->n_spans > 0) {
        struct jinja_span *fit = jheap_realloc(o->heap, o->spans, o->cap_spans * sizeof(*o->spans),
                                               o->n_spans * sizeof(*o->spans));

        v->marks = JM_MIXED;
        v->u.str.runs = fit;
        v->u.str.n_runs = o->n_spans;
        o->spans = NULL;
        o->cap_spans = 0;
    }
    jout_done(o);
    *ret = v;
    return 0;
}

/* --- marks -------------------------------------------------------------------------------------
 */

/* The first run that ends behind `pos`. */
static size_t first_run(const struct jstr *s, size_t pos)
{
    size_t lo = 0, hi = s->n_runs;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->runs[mid].end <= pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool jstr_run(const struct jinja_value *str, size_t pos, size_t end, size_t *ret_end)
{
    const struct jstr *s = &str->u.str;
    size_t i, stop = end;
    bool is_data = str->marks == JM_DATA;

    if (str->marks == JM_MIXED) {
        i = first_run(s, pos);
        is_data = i < s->n_runs && s->runs[i].begin <= pos;
        if (i < s->n_runs)
            stop = is_data ? s->runs[i].end : s->runs[i].begin;
    }
    *ret_end = stop < end ? stop : end;
    return is_data;
}

int jstr_slice(struct jinja_heap *h, struct jinja_value *str, size_t begin, size_t end,
               struct jinja_value **ret)
{
    const struct jstr *s = &str->u.str;
    struct jinja_value *v;
    size_t first = 0, n = 0;

    if (begin == 0 && end == s->n) {
        *ret = jinja_ref(str);
        return 0;
    }
    /* A few bytes are cheaper copied than kept alive with all the others. */
    if (end - begin < 64 && str->marks != JM_MIXED) {
        *ret = jv_new_string(h, s->s + begin, end - begin, str->marks == JM_DATA);
        return *ret ? 0 : -ENOMEM;
    }
    v = jv_new(h, JT_STRING, 0);
    if (!v)
        return -ENOMEM;
    v->u.str.s = s->s + begin;
    v->u.str.n = end - begin;
    v->marks = str->marks;
    v->u.str.owner = jinja_ref(s->owner ? s->owner : str);
    if (str->marks == JM_MIXED) {
        first = first_run(s, begin);
        while (first + n < s->n_runs && s->runs[first + n].begin < end)
            n++;
        if (n == 0) {
            v->marks = JM_PLAIN;
        } else if (n == 1 && s->runs[first].begin <= begin && s->runs[first].end >= end) {
            v->marks = JM_DATA;
        } else {
            v->u.str.runs = jheap_alloc(h, n * sizeof(*v->u.str.runs));
            if (!v->u.str.runs) {
                jinja_unref(v);
                return -ENOMEM;
            }
            v->u.str.n_runs = n;
        }
        for (size_t i = 0; i < v->u.str.n_runs; i++) {
            size_t a = s->runs[first + i].begin, b = s->runs[first + i].end;

            v->u.str.runs[i].begin = a > begin ? a - begin : 0;
            v->u.str.runs[i].end = (b < end ? b : end) - begin;
        }
    }
    *ret = v;
    return 0;
}

/* --- characters --------------------------------------------------------------------------------
 */

static bool is_ascii8(const char *s)
{
    uint64_t w;

    memcpy(&w, s, 8);
    return (w & 0x8080808080808080U) == 0;
}

size_t jstr_n_chars(const char *s, size_t n)
{
    size_t n_chars = 0, len;

    for (size_t i = 0; i < n; n_chars++) {
        while (n - i >= 8 && is_ascii8(s + i)) {
            i += 8;
            n_chars += 8;
        }
        if (i == n)
            break;
        (void)utf8_decode(s + i, n - i, &len);
        i += len;
    }
    return n_chars;
}

size_t jstr_offset(const char *s, size_t n, size_t n_chars)
{
    size_t i = 0, len;

    while (n_chars > 0 && i < n) {
        if (n_chars >= 8 && n - i >= 8 && is_ascii8(s + i)) {
            i += 8;
            n_chars -= 8;
            continue;
        }
        (void)utf8_decode(s + i, n - i, &len);
        i += len;
        n_chars--;
    }
    return i;
}

bool jstr_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f);
    return unicode_class_of(cp) == UNICODE_SPACE;
}

/* The character that ends at s[end): where it begins. */
static size_t previous(const char *s, size_t begin, size_t end)
{
    size_t at = end - 1, len;

    while (at > begin && end - at < 4 && ((unsigned char)s[at] & 0xc0) == 0x80)
        at--;
    (void)utf8_decode(s + at, end - at, &len);
    return at + len == end ? at : end - 1;
}

static bool is_one_of(uint32_t cp, const char *chars, size_t n)
{
    size_t len;

    if (!chars)
        return jstr_is_space(cp);
    for (size_t i = 0; i < n; i += len)
        if (utf8_decode(chars + i, n - i, &len) == cp)
            return true;
    return false;
}

void jstr_strip(const char *s, size_t *begin, size_t *end, const char *chars, size_t n_chars,
                bool left, bool right)
{
    size_t len;

    while (left && *begin < *end) {
        if (!is_one_of(utf8_decode(s + *begin, *end - *begin, &len), chars, n_chars))
            break;
        *begin += len;
    }
    while (right && *begin < *end) {
        size_t at = previous(s, *begin, *end);

        if (!is_one_of(utf8_decode(s + at, *end - at, &len), chars, n_chars))
            break;
        *end = at;
    }
}

size_t jstr_find(const char *s, size_t n, size_t from, const char *what, size_t n_what)
{
    const char *p;

    if (from > n || n_what > n - from)
        return SIZE_MAX;
    if (n_what == 0)
        return from;
    p = memmem(s + from, n - from, what, n_what);
    return p ? (size_t)(p - s) : SIZE_MAX;
}
