/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the tiers.
 *
 * A unit is charged from the moment it is taken, before anything is in it; what is under way holds
 * references of its own, so a page or checkpoint may change or go meanwhile.
 */
#include "cache/cache_private.h"

#include <errno.h>
#include <string.h>

/* --- moves -------------------------------------------------------------------------------------
 */

/* Room for the numbers of n units in both tiers behind the move. */
static struct cache_move *move_new(uint32_t n)
{
    struct cache_move *m = calloc(1, sizeof *m + sizeof(uint32_t) * 2 * (size_t)n);

    if (!m)
        return NULL;
    m->n_units = n;
    m->vram = (uint32_t *)(m + 1);
    m->ram = m->vram + n;
    return m;
}

/* The units of both sides are charged and in place: the move holds them too. */
static void move_fill(struct cache *c, struct cache_move *m, const uint32_t *vram,
                      const uint32_t *ram)
{
    uint32_t *v = (uint32_t *)(m + 1), *r = v + m->n_units;

    for (uint32_t i = 0; i < m->n_units; i++) {
        v[i] = vram[i];
        r[i] = ram[i];
        vram_take(c, v[i]);
        ram_ref(c, r[i]);
    }
    c->n_coming[m->load ? CACHE_VRAM : CACHE_RAM] += m->n_units;
    c->n_moves++;
    m->all_next = c->moves;
    if (c->moves)
        c->moves->all_prev = m;
    c->moves = m;
}

/* ram for all of n units or for none. */
static int ram_take_all(struct cache *c, uint32_t *units, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int r = ram_take(c, &units[i]);

        if (r < 0) {
            while (i-- > 0) {
                ram_drop(c, units[i]);
                units[i] = CACHE_NO_UNIT;
            }
            return r;
        }
    }
    return 0;
}

static void ready_add(struct cache *c, struct cache_move *m)
{
    m->next = NULL;
    *c->ready_tail = m;
    c->ready_tail = &m->next;
}

static bool write_back_page(struct cache *c, struct cache_node *n)
{
    struct cache_move *m = move_new(1);
    uint32_t unit;

    if (!m)
        return false;
    if (ram_take(c, &unit) < 0) {
        free(m);
        return false;
    }
    n->copy[CACHE_RAM] = (struct copy){unit, COPY_COMING};
    m->node = n;
    m->generation = n->generation;
    m->n_tokens = n->n_tokens < CACHE_PAGE ? n->n_tokens : 0;
    move_fill(c, m, &n->copy[CACHE_VRAM].unit, &unit);
    n->n_moves++;
    ready_add(c, m);
    return true;
}

static bool write_back_check(struct cache *c, struct cache_checkpoint *k)
{
    struct cache_move *m = move_new(c->o.checkpoint_units);
    uint32_t *ram = check_units(c, k, CACHE_RAM);

    if (!m)
        return false;
    if (ram_take_all(c, ram, m->n_units) < 0) {
        free(m);
        return false;
    }
    k->state[CACHE_RAM] = COPY_COMING;
    c->n_check_copies++;
    m->checkpoint = k;
    move_fill(c, m, check_units(c, k, CACHE_VRAM), ram);
    k->n_moves++;
    ready_add(c, m);
    return true;
}

bool node_start_write_back(struct cache *c, struct cache_node *n)
{
    bool ok = true;

    if (n->copy[CACHE_RAM].state == COPY_NONE && n->copy[CACHE_VRAM].state == COPY_VALID)
        ok = write_back_page(c, n);
    for (uint32_t i = 0; ok && i < n->n_checks; i++) {
        struct cache_checkpoint *k = n->checks[i];

        if (k->home == n && k->state[CACHE_RAM] == COPY_NONE && k->state[CACHE_VRAM] == COPY_VALID)
            ok = write_back_check(c, k);
    }
    node_changed(c, n);
    return ok;
}

/* --- background write-back ---------------------------------------------------------------------
 */

static void queue_add(struct node_queue *q, struct cache_node *n)
{
    n->q_next = NULL;
    n->q_prev = q->last;
    if (q->last)
        q->last->q_next = n;
    else
        q->first = n;
    q->last = n;
}

static void queue_remove(struct node_queue *q, struct cache_node *n)
{
    if (n->q_prev)
        n->q_prev->q_next = n->q_next;
    else
        q->first = n->q_next;
    if (n->q_next)
        n->q_next->q_prev = n->q_prev;
    else
        q->last = n->q_prev;
    n->q_prev = n->q_next = NULL;
}

void queue_forget(struct cache *c, struct cache_node *n)
{
    if (n->queued)
        queue_remove(&c->dirty, n);
    if (n->starved)
        queue_remove(&c->starved, n);
    n->queued = n->starved = false;
}

void queue_write_back(struct cache *c, struct cache_node *n)
{
    if (n->queued || n->superseded || n->dead || c->limits.ram_units == 0)
        return;
    queue_forget(c, n);
    n->queued = true;
    queue_add(&c->dirty, n);
}

void queue_starve(struct cache *c, struct cache_node *n)
{
    queue_forget(c, n);
    if (n->superseded || n->dead)
        return;
    n->starved = true;
    queue_add(&c->starved, n);
}

/* Those that found no room are asked again once there is some, as many as it is enough for: there
 * may be a whole pool of them. */
static void requeue_starved(struct cache *c)
{
    uint32_t room = c->limits.ram_units - c->held[CACHE_RAM];
    struct cache_node *n;

    c->ram_freed = false;
    while (room > 0 && (n = c->starved.first)) {
        const uint32_t need = node_ram_missing(c, n);

        room -= need < room ? need : room;
        queue_remove(&c->starved, n);
        n->starved = false;
        n->queued = true;
        queue_add(&c->dirty, n);
    }
}

struct cache_move *cache_next_write_back(struct cache *c)
{
    struct cache_move *m;
    struct cache_node *n;

    if (!c->ready && c->ram_freed && c->held[CACHE_RAM] < c->limits.ram_units)
        requeue_starved(c);
    while (!c->ready && (n = c->dirty.first)) {
        struct value v = node_value(c, n, CACHE_RAM);
        const uint32_t need = node_ram_missing(c, n);

        queue_remove(&c->dirty, n);
        n->queued = false;
        if (need == 0 || n->superseded)
            continue;
        /* A second copy must never cost somebody's last. */
        v.cls = n->refused ? CLASS_USELESS : CLASS_MIRROR;
        if (!path_fits_ram(c, n)) {
            /* Once a path. */
            if (node_refuse(n))
                continue;
            cache_tell(c, CACHE_REFUSED, CACHE_WHY_TOO_LARGE, CACHE_RAM, NULL,
                       need * c->o.unit_bytes);
        } else if (!ram_make_room_for(c, n, need, v) || !node_start_write_back(c, n)) {
            queue_starve(c, n);
        }
    }
    m = c->ready;
    if (m) {
        c->ready = m->next;
        if (!c->ready)
            c->ready_tail = &c->ready;
        m->next = NULL;
    }
    return m;
}

/* --- loads -------------------------------------------------------------------------------------
 */

static void load_add(struct cache *c, struct cache_move *m, const uint32_t *vram,
                     const uint32_t *ram, struct cache_move ***tail)
{
    m->load = true;
    move_fill(c, m, vram, ram);
    /* The owner's references: the page or checkpoint has its own by now. */
    for (uint32_t i = 0; i < m->n_units; i++)
        c->ops.vram_unref(c->ops.arg, vram[i]);
    m->next = NULL;
    **tail = m;
    *tail = &m->next;
}

static bool load_page(struct cache *c, struct cache_node *n, uint32_t unit,
                      struct cache_move ***tail)
{
    struct cache_move *m = move_new(1);

    if (!m)
        return false;
    vram_hold(c, unit, n->users > 0);
    n->copy[CACHE_VRAM] = (struct copy){unit, COPY_COMING};
    m->node = n;
    m->generation = n->generation;
    n->n_moves++;
    load_add(c, m, &unit, &n->copy[CACHE_RAM].unit, tail);
    node_changed(c, n);
    return true;
}

static bool load_check(struct cache *c, struct cache_checkpoint *k, const uint32_t *units,
                       struct cache_move ***tail)
{
    struct cache_move *m = move_new(c->o.checkpoint_units);

    if (!m)
        return false;
    for (uint32_t i = 0; i < m->n_units; i++) {
        vram_hold(c, units[i], k->home->users > 0);
        check_units(c, k, CACHE_VRAM)[i] = units[i];
    }
    k->state[CACHE_VRAM] = COPY_COMING;
    c->n_check_copies++;
    m->checkpoint = k;
    k->n_moves++;
    load_add(c, m, units, check_units(c, k, CACHE_RAM), tail);
    node_changed(c, k->home);
    return true;
}

uint32_t cache_load(struct cache *c, struct cache_pin *p, const uint32_t *units, uint32_t n,
                    struct cache_move **moves)
{
    struct cache_move **tail = moves;
    struct cache_checkpoint *k = p->m.checkpoint;
    uint32_t used = 0;

    if (!p->held)
        return 0;
    while (*tail)
        tail = &(*tail)->next;
    if (cache_is_broken(c, p))
        return 0;
    if (k && k->state[CACHE_VRAM] == COPY_NONE && k->state[CACHE_RAM] == COPY_VALID) {
        if (n < c->o.checkpoint_units || !load_check(c, k, units, &tail))
            return 0;
        used = c->o.checkpoint_units;
    }
    for (struct cache_node *x = p->m.node; x->parent && used < n; x = x->parent)
        if (x->copy[CACHE_VRAM].state == COPY_NONE && x->copy[CACHE_RAM].state == COPY_VALID) {
            if (!load_page(c, x, units[used], &tail))
                break;
            used++;
        }
    return used;
}

uint32_t cache_units_to_load(const struct cache *c, const struct cache_pin *p)
{
    uint32_t n = 0;

    if (!p->held)
        return 0;
    if (p->m.checkpoint && p->m.checkpoint->state[CACHE_VRAM] == COPY_NONE)
        n += c->o.checkpoint_units;
    for (const struct cache_node *x = p->m.node; x->parent; x = x->parent)
        n += x->copy[CACHE_VRAM].state == COPY_NONE;
    return n;
}

/* --- done --------------------------------------------------------------------------------------
 */

static void page_done(struct cache *c, struct cache_move *m, enum cache_tier to, bool ok)
{
    struct cache_node *n = m->node;
    struct copy *x = &n->copy[to];

    n->n_moves--;
    if (!n->dead) {
        if (n->generation == m->generation && x->state == COPY_COMING) {
            if (ok)
                x->state = COPY_VALID;
            else
                node_drop_copy(c, n, to);
        }
        if (to == CACHE_RAM && !ok)
            node_set_leaving(c, n, false);
        node_changed(c, n);
    }
    /* What cannot be read from ram is worth nothing, nor is what hangs on it. */
    if (!n->dead && to == CACHE_VRAM && !ok && n->copy[CACHE_VRAM].state == COPY_NONE)
        node_kill(c, n, CACHE_WHY_FAILED);
    else
        node_reap(c, n);
}

static void check_done(struct cache *c, struct cache_move *m, enum cache_tier to, bool ok)
{
    struct cache_checkpoint *k = m->checkpoint;

    k->n_moves--;
    if (k->state[to] == COPY_COMING) {
        if (ok)
            k->state[to] = COPY_VALID;
        else
            check_drop_copy(c, k, to);
    }
    if (k->home) {
        if (to == CACHE_RAM && !ok)
            node_set_leaving(c, k->home, false);
        node_changed(c, k->home);
        if (to == CACHE_VRAM && !ok) {
            entries_lose(c, k, CACHE_WHY_FAILED);
            check_detach(c, k);
        }
    } else {
        check_reap(c, k);
    }
}

void cache_move_done(struct cache *c, struct cache_move *m, bool ok)
{
    const enum cache_tier to = m->load ? CACHE_VRAM : CACHE_RAM;
    const uint64_t bytes = m->n_units * c->o.unit_bytes;
    struct cache_node *n = m->node ? m->node : m->checkpoint->home;
    bool leaving;

    if (!ok) {
        c->st.failed_moves++;
        cache_tell(c, CACHE_REFUSED, CACHE_WHY_FAILED, to, NULL, bytes);
    } else if (m->load) {
        c->st.loads++;
        c->st.load_bytes += bytes;
    } else {
        c->st.write_backs++;
        c->st.write_back_bytes += bytes;
    }
    /* Two references each: the page's or checkpoint's stays. */
    for (uint32_t i = 0; i < m->n_units; i++) {
        vram_drop(c, m->vram[i]);
        ram_drop(c, m->ram[i]);
    }
    c->n_coming[to] -= m->n_units;
    c->n_moves--;
    if (m->all_prev)
        m->all_prev->all_next = m->all_next;
    else
        c->moves = m->all_next;
    if (m->all_next)
        m->all_next->all_prev = m->all_prev;
    /* What failed may take the page with it; only a copy to ram lets one leave. */
    if (n && (n->dead || m->load || !ok))
        n = NULL;
    leaving = n && n->leaving;
    if (m->node)
        page_done(c, m, to, ok);
    else
        check_done(c, m, to, ok);
    /* Unless somebody came back to it, or part of it could not be copied. */
    if (leaving && n->users == 0 && !node_is_moving(n) && node_is_mirrored(c, n, CACHE_VRAM))
        node_leave_vram(c, n, CACHE_WHY_SPACE);
    free(m);
}
