/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit numbers are segment * per_segment + place.  New units always have numbers below max_units,
 * so that no more than max_units of memory is ever touched, however the taken ones lie; only units
 * taken before the limit was lowered stay above it.
 *
 * The segments that such a unit can be taken from are in a heap, the fullest on top: the emptier
 * ones get the time to become empty, and then are given back.
 */
#include "cache/arena.h"

#include "util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOT_IN_HEAP UINT32_MAX
enum { WORD_BITS = 64 };

struct segment {
    uint32_t index;
    uint32_t n_used;
    uint32_t n_below; /* of these, with a number below max_units */
    uint32_t i_heap;
    uint32_t first_word; /* no word of `free` before it has a bit */
    int fd;
    unsigned char *base; /* mapped, segment_bytes */
    uint64_t *free;      /* owned, a bit for each place that is free */
    uint32_t *refs;      /* owned, [per_segment] */
};

struct arena {
    uint64_t unit_bytes;
    uint64_t segment_bytes; /* whole memory pages */
    uint32_t per_segment;   /* units */
    uint32_t max_units;
    uint32_t n_used;
    uint32_t n_mapped;         /* segments there are */
    uint32_t n_slots;          /* of `segments` and `heap` */
    struct segment **segments; /* owned, by index, NULL: none now */
    struct segment **heap;     /* owned array */
    uint32_t n_heap;
};

static uint32_t n_words(const struct arena *a)
{
    return (a->per_segment + WORD_BITS - 1) / WORD_BITS;
}

/* The places of a segment whose numbers are below max_units. */
static uint32_t segment_places(const struct arena *a, uint32_t index)
{
    uint64_t first = (uint64_t)index * a->per_segment;

    if (first >= a->max_units)
        return 0;
    return a->max_units - first < a->per_segment ? (uint32_t)(a->max_units - first)
                                                 : a->per_segment;
}

/* --- the heap ------------------------------------------------------------------------------------
 */

/* The fullest first; of equals the lowest, so that the order does not depend on what was before. */
static bool goes_before(const struct segment *x, const struct segment *y)
{
    return x->n_used != y->n_used ? x->n_used > y->n_used : x->index < y->index;
}

static void heap_put(struct arena *a, uint32_t i, struct segment *s)
{
    a->heap[i] = s;
    s->i_heap = i;
}

/* Moves what stands at `i` up or down to where it belongs. */
static void heap_settle(struct arena *a, uint32_t i)
{
    struct segment *s = a->heap[i];

    while (i > 0 && goes_before(s, a->heap[(i - 1) / 2])) {
        heap_put(a, i, a->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child + 1 < a->n_heap && goes_before(a->heap[child + 1], a->heap[child]))
            child++;
        if (child >= a->n_heap || !goes_before(a->heap[child], s))
            break;
        heap_put(a, i, a->heap[child]);
        i = child;
    }
    heap_put(a, i, s);
}

static void heap_remove(struct arena *a, struct segment *s)
{
    uint32_t i = s->i_heap;

    s->i_heap = NOT_IN_HEAP;
    a->n_heap--;
    if (i == a->n_heap)
        return;
    heap_put(a, i, a->heap[a->n_heap]);
    heap_settle(a, i);
}

/* After a change of what is taken in `s`: in the heap exactly when there is room, at its place. */
static void heap_update(struct arena *a, struct segment *s)
{
    bool has_room = s->n_below < segment_places(a, s->index);

    if (!has_room && s->i_heap != NOT_IN_HEAP) {
        heap_remove(a, s);
    } else if (has_room) {
        if (s->i_heap == NOT_IN_HEAP)
            heap_put(a, a->n_heap++, s);
        heap_settle(a, s->i_heap);
    }
}

/* --- segments ------------------------------------------------------------------------------------
 */

static void segment_free(const struct arena *a, struct segment *s)
{
    if (!s)
        return;
    if (s->base)
        (void)munmap(s->base, a->segment_bytes);
    close_p(&s->fd);
    free(s->free);
    free(s->refs);
    free(s);
}

/* Nothing is populated: a page is charged when it is first written. */
static int segment_map(const struct arena *a, struct segment *s)
{
    void *p;

    s->fd = memfd_create("strata-ram", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)a->segment_bytes) < 0)
        return -ENOMEM;
    p = mmap(NULL, a->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    s->base = p;
    /* Hints, fine without.  No MADV_COLLAPSE: it would fill the holes, and so take memory for
     * units that nobody has taken. */
    (void)madvise(p, a->segment_bytes, MADV_HUGEPAGE);
    /* Prompts do not belong into a core dump. */
    (void)madvise(p, a->segment_bytes, MADV_DONTDUMP);
    return 0;
}

static int segment_new(const struct arena *a, uint32_t index, struct segment **ret)
{
    struct segment *s = calloc(1, sizeof *s);

    if (!s)
        return -ENOMEM;
    s->index = index;
    s->i_heap = NOT_IN_HEAP;
    s->fd = -1;
    s->free = calloc(n_words(a), sizeof *s->free);
    s->refs = calloc(a->per_segment, sizeof *s->refs);
    if (!s->free || !s->refs || segment_map(a, s) < 0) {
        segment_free(a, s);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < a->per_segment; i++)
        s->free[i / WORD_BITS] |= UINT64_C(1) << i % WORD_BITS;
    *ret = s;
    return 0;
}

static int grow_slots(struct arena *a)
{
    uint32_t n = a->n_slots ? 2 * a->n_slots : 16;
    struct segment **p;

    p = reallocarray(a->heap, n, sizeof(struct segment *));
    if (!p)
        return -ENOMEM;
    a->heap = p;
    p = reallocarray(a->segments, n, sizeof(struct segment *));
    if (!p)
        return -ENOMEM;
    memset(p + a->n_slots, 0, (n - a->n_slots) * sizeof(struct segment *));
    a->segments = p;
    a->n_slots = n;
    return 0;
}

/* The lowest one that there is not; the heap is empty and a number below max_units free, so it has
 * a place. */
static int add_segment(struct arena *a)
{
    struct segment *s;
    uint32_t i = 0;

    while (i < a->n_slots && a->segments[i])
        i++;
    if (i == a->n_slots && grow_slots(a) < 0)
        return -ENOMEM;
    if (segment_new(a, i, &s) < 0)
        return -ENOMEM;
    a->segments[i] = s;
    a->n_mapped++;
    heap_update(a, s);
    return 0;
}

static void drop_segment(struct arena *a, struct segment *s)
{
    if (s->i_heap != NOT_IN_HEAP)
        heap_remove(a, s);
    a->segments[s->index] = NULL;
    a->n_mapped--;
    segment_free(a, s);
}

/* --- the arena -----------------------------------------------------------------------------------
 */

int arena_new(uint64_t unit_bytes, uint32_t max_units, uint64_t segment_bytes, struct arena **ret)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t per_segment, bytes;
    struct arena *a;

    if (unit_bytes == 0 || unit_bytes % 64 != 0 || segment_bytes == 0 ||
        unit_bytes > INT64_MAX - page || segment_bytes > INT64_MAX - page)
        return -EINVAL;
    per_segment = segment_bytes / unit_bytes;
    per_segment = per_segment == 0 ? 1 : per_segment > INT32_MAX ? INT32_MAX : per_segment;
    bytes = per_segment * unit_bytes;
    a = calloc(1, sizeof *a);
    if (!a)
        return -ENOMEM;
    a->unit_bytes = unit_bytes;
    a->per_segment = (uint32_t)per_segment;
    a->segment_bytes = (bytes + page - 1) / page * page;
    a->max_units = max_units;
    *ret = a;
    return 0;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; i < a->n_slots; i++)
        segment_free(a, a->segments[i]);
    free(a->segments);
    free(a->heap);
    free(a);
}

/* The lowest free place, so that what is touched stays dense. */
static uint32_t take_place(struct segment *s)
{
    uint32_t w = s->first_word, bit;

    while (s->free[w] == 0)
        w++;
    bit = (uint32_t)__builtin_ctzll(s->free[w]);
    s->free[w] &= s->free[w] - 1;
    s->first_word = w;
    return w * WORD_BITS + bit;
}

int arena_take(struct arena *a, uint32_t *ret)
{
    struct segment *s;
    uint32_t place;

    if (a->n_used >= a->max_units)
        return -ENOSPC;
    if (a->n_heap == 0 && add_segment(a) < 0)
        return -ENOMEM;
    s = a->heap[0];
    place = take_place(s);
    assert(place < segment_places(a, s->index));
    s->refs[place] = 1;
    s->n_used++;
    s->n_below++;
    a->n_used++;
    heap_update(a, s);
    *ret = s->index * a->per_segment + place;
    return 0;
}

/* Of a unit that is taken. */
static struct segment *segment_of(const struct arena *a, uint32_t unit)
{
    uint32_t i = unit / a->per_segment;

    assert(i < a->n_slots && a->segments[i]);
    assert(a->segments[i]->refs[unit % a->per_segment] > 0);
    return a->segments[i];
}

void arena_ref(struct arena *a, uint32_t unit)
{
    uint32_t *refs = &segment_of(a, unit)->refs[unit % a->per_segment];

    assert(*refs < UINT32_MAX);
    ++*refs;
}

void arena_unref(struct arena *a, uint32_t unit)
{
    struct segment *s = segment_of(a, unit);
    uint32_t place = unit % a->per_segment, w = place / WORD_BITS;

    if (--s->refs[place] > 0)
        return;
    s->free[w] |= UINT64_C(1) << place % WORD_BITS;
    s->first_word = w < s->first_word ? w : s->first_word;
    s->n_used--;
    s->n_below -= unit < a->max_units;
    a->n_used--;
    if (s->n_used == 0)
        drop_segment(a, s);
    else
        heap_update(a, s);
}

uint32_t arena_refs(const struct arena *a, uint32_t unit)
{
    uint32_t i = unit / a->per_segment;

    return i < a->n_slots && a->segments[i] ? a->segments[i]->refs[unit % a->per_segment] : 0;
}

void *arena_ptr(const struct arena *a, uint32_t unit)
{
    return segment_of(a, unit)->base + (uint64_t)(unit % a->per_segment) * a->unit_bytes;
}

uint32_t arena_n_used(const struct arena *a)
{
    return a->n_used;
}

uint32_t arena_max_units(const struct arena *a)
{
    return a->max_units;
}

/* The taken places below `n`. */
static uint32_t count_taken(const struct segment *s, uint32_t n)
{
    uint32_t n_free = 0;

    for (uint32_t w = 0; w < n / WORD_BITS; w++)
        n_free += (uint32_t)__builtin_popcountll(s->free[w]);
    if (n % WORD_BITS)
        n_free += (uint32_t)__builtin_popcountll(s->free[n / WORD_BITS] &
                                                 ((UINT64_C(1) << n % WORD_BITS) - 1));
    return n - n_free;
}

void arena_set_max(struct arena *a, uint32_t max_units)
{
    a->max_units = max_units;
    for (uint32_t i = 0; i < a->n_slots; i++) {
        struct segment *s = a->segments[i];

        if (!s)
            continue;
        s->n_below = count_taken(s, segment_places(a, i));
        heap_update(a, s);
    }
}

uint64_t arena_bytes_mapped(const struct arena *a)
{
    return a->n_mapped * a->segment_bytes;
}

uint32_t arena_n_segments(const struct arena *a)
{
    uint32_t n = a->n_slots;

    while (n > 0 && !a->segments[n - 1])
        n--;
    return n;
}

int arena_segment_fd(const struct arena *a, uint32_t i)
{
    return i < a->n_slots && a->segments[i] ? a->segments[i]->fd : -1;
}

/* --- the walk ------------------------------------------------------------------------------------
 */

static bool segment_is_sane(const struct arena *a, const struct segment *s, uint32_t index)
{
    uint32_t n_used = 0, n_below = 0, places = segment_places(a, index);

    for (uint32_t i = 0; i < a->per_segment; i++) {
        bool is_free = s->free[i / WORD_BITS] >> i % WORD_BITS & 1;

        if (is_free != (s->refs[i] == 0) || (is_free && i / WORD_BITS < s->first_word))
            return false;
        n_used += !is_free;
        n_below += !is_free && i < places;
    }
    if (s->index != index || s->n_used != n_used || s->n_below != n_below || n_used == 0)
        return false;
    if (s->fd < 0 || !s->base)
        return false;
    if (n_below == places)
        return s->i_heap == NOT_IN_HEAP;
    return s->i_heap < a->n_heap && a->heap[s->i_heap] == s;
}

bool arena_is_sane(const struct arena *a)
{
    uint32_t n_used = 0, n_mapped = 0, n_with_room = 0;

    for (uint32_t i = 0; i < a->n_slots; i++) {
        const struct segment *s = a->segments[i];

        if (!s)
            continue;
        if (!segment_is_sane(a, s, i))
            return false;
        n_used += s->n_used;
        n_mapped++;
        n_with_room += s->i_heap != NOT_IN_HEAP;
    }
    for (uint32_t i = 1; i < a->n_heap; i++)
        if (goes_before(a->heap[i], a->heap[(i - 1) / 2]))
            return false;
    return n_used == a->n_used && n_mapped == a->n_mapped && n_with_room == a->n_heap;
}
