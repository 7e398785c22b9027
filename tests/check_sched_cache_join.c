/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What requests share while they run: roots, and prompts that are being read just now.  _i 0 is a
 * pure attention model, _i 1 a hybrid.
 */
#include "tests/sched_world.h"

#include "util/clock.h"

#include <check.h>
#include <stdlib.h>

/* --- roots --- */

/* A chat: a system prompt of n tokens, 100 of its own, and where its messages begin. */
static struct client *chat(struct world *w, unsigned int system, uint32_t n, unsigned int user,
                           struct text *t)
{
    struct client *c;

    t->n = 0;
    text_add(t, n, system);
    text_add(t, 100, user);
    c = client_of(w, t, 10);
    c->r->bounds = (struct boundaries){n, t->n - 10, t->n - 10};
    return c;
}

START_TEST(a_new_chat_behind_a_root_reads_only_its_own_and_is_no_hit)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text t;
    struct client *a = chat(w, 1, 130, 10, &t), *b;

    client_run(a);
    client_told(a, told_cold(230));
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_MADE), 1);
    ck_assert_uint_eq(world_stats(w).n_roots, 1);
    for (unsigned int k = 0; k < 3; k++) {
        b = chat(w, 1, 130, 11 + k, &t);
        client_run(b);
        client_told(b, (struct told){SOURCE_ROOT, true, false, 130, 100, WHY_LONGEST});
        ck_assert_uint_eq(b->r->decision->root_pos, 130);
    }
    ck_assert_uint_eq(world_stats(w).n_roots, 1);
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_MADE), 1);
    ck_assert_uint_eq(world_rows(w), 130 + 4 * 109);
    /* Its next turn is one of the conversation. */
    text_add_answer(&t, b);
    text_add(&t, 20, 20);
    b = client_of(w, &t, 5);
    b->r->bounds = (struct boundaries){130, t.n - 10, t.n - 10};
    client_run(b);
    client_told(b, (struct told){SOURCE_SLOT, false, false, 239, 21, WHY_LONGEST});
    ck_assert_uint_eq(world_stats(w).superseded + world_stats(w).evictions, 0);
    world_free(w);
}
END_TEST

/* Prompts without the head of an answer: their last message begins where the root ends. */
START_TEST(a_chat_whose_last_message_is_its_first_is_not_the_next_turn_of_another)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text t;

    for (unsigned int k = 0; k < 3; k++) {
        struct client *c = chat(w, 1, 130, 10 + k, &t);

        c->r->bounds = (struct boundaries){.root = 130, .turn = 130, .query = 130};
        client_run(c);
        client_told(c, k == 0 ? told_cold(230)
                              : (struct told){SOURCE_ROOT, true, false, 130, 100, WHY_LONGEST});
        ck_assert_uint_eq(world_stats(w).n_parked, k + 1);
    }
    ck_assert_uint_eq(world_stats(w).superseded, 0);
    world_free(w);
}
END_TEST

START_TEST(without_roots_the_prefix_is_borrowed)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text t;
    struct client *b;

    o.limits.n_roots = 0;
    w = world_new(&o);
    client_run(chat(w, 1, 130, 10, &t));
    b = chat(w, 1, 130, 11, &t);
    client_run(b);
    client_told(b, (struct told){SOURCE_BORROWED, true, true, 130, 100, WHY_LONGEST});
    ck_assert_uint_eq(b->r->decision->root_pos, 0);
    ck_assert_uint_eq(world_stats(w).n_roots, 0);
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_MADE) + world_n_events(w, CACHE_ROOT_LOST), 0);
    world_free(w);
}
END_TEST

START_TEST(two_roots_of_three_system_prompts_lose_the_first)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text t;
    struct client *b;

    o.limits.n_roots = 2;
    w = world_new(&o);
    for (unsigned int k = 0; k < 3; k++)
        client_run(chat(w, 1 + k, 130, 10 + k, &t));
    ck_assert_uint_eq(world_stats(w).n_roots, 2);
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_MADE), 3);
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_LOST), 1);
    for (uint32_t i = 0; i < w->n_events; i++)
        if (w->events[i].kind == CACHE_ROOT_LOST) {
            ck_assert_uint_eq(w->events[i].id, w->events[0].id);
            ck_assert_int_eq(w->events[i].why, CACHE_WHY_ROOTS);
        }
    b = chat(w, 3, 130, 20, &t);
    client_run(b);
    client_told(b, (struct told){SOURCE_ROOT, true, false, 130, 100, WHY_LONGEST});
    b = chat(w, 2, 130, 21, &t);
    client_run(b);
    client_told(b, (struct told){SOURCE_ROOT, true, false, 130, 100, WHY_LONGEST});
    /* The prefix is still there, and becomes a root again. */
    b = chat(w, 1, 130, 22, &t);
    client_run(b);
    client_told(b, (struct told){SOURCE_BORROWED, true, true, 130, 100, WHY_LONGEST});
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_LOST), 2);
    /* The third one's was used before the second one's. */
    b = chat(w, 2, 130, 23, &t);
    client_run(b);
    ck_assert_int_eq(b->r->decision->source, SOURCE_ROOT);
    world_free(w);
}
END_TEST

START_TEST(a_root_below_root_min_is_made_only_when_it_is_asked_for)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text t;
    struct client *c;

    client_run(chat(w, 1, 63, 10, &t));
    ck_assert_uint_eq(world_stats(w).n_roots, 0);
    client_run(chat(w, 2, 64, 10, &t));
    ck_assert_uint_eq(world_stats(w).n_roots, 1);
    c = chat(w, 3, 20, 10, &t);
    c->r->root_asked = true;
    client_run(c);
    ck_assert_uint_eq(world_stats(w).n_roots, 2);
    c = chat(w, 3, 20, 11, &t);
    client_run(c);
    client_told(c, (struct told){SOURCE_ROOT, true, false, 20, 100, WHY_LONGEST});
    world_free(w);
}
END_TEST

START_TEST(a_root_outlives_the_conversations_that_made_it)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text t;
    struct client *c;

    /* Two chats of four pages fill vram; a root of two pages and its checkpoint stay. */
    o.engine.n_units = _i ? 30 : 10;
    o.limits.ram_units = 0;
    w = world_new(&o);
    client_run(chat(w, 1, 128, 10, &t));
    for (unsigned int k = 0; k < 12; k++) {
        t.n = 0;
        text_add(&t, 230, 20 + k);
        (void)world_ask(w, &t, 10);
    }
    ck_assert_uint_eq(world_n_events(w, CACHE_ROOT_LOST), 0);
    c = chat(w, 1, 128, 11, &t);
    client_run(c);
    client_told(c, (struct told){SOURCE_ROOT, true, false, 128, 100, WHY_LONGEST});
    world_free(w);
}
END_TEST

/* --- joins --- */

/* The queue is looked at again when a step has come back. */
static void look(struct world *w)
{
    ck_assert(world_step(w));
    world_turn(w);
}

/* `a` reads 1000 tokens, and has read 192; `b` has n of them and 50 others, and waits. */
static void begin_both(struct world *w, uint32_t n, struct client **ret_a, struct client **ret_b)
{
    struct text p = {0}, q = {0};

    text_add(&p, 1000, 1);
    text_add_ids(&q, p.ids, n);
    text_add(&q, 50, 2);
    ck_assert_uint_eq(text_common(&p, &q), n);
    *ret_a = client_of(w, &p, 10);
    *ret_b = client_of(w, &q, 10);
    ck_assert_int_eq(client_submit(*ret_a, NULL), 0);
    world_run_until_read(w, *ret_a, 128);
    ck_assert_int_eq(client_submit(*ret_b, NULL), 0);
    look(w);
    ck_assert_uint_eq((*ret_a)->r->n_read, 192);
    ck_assert_int_eq((*ret_b)->r->state, REQUEST_QUEUED);
    ck_assert_uint_eq((*ret_b)->r->decision->joined_with, (*ret_a)->r->id);
}

START_TEST(a_prefix_that_is_being_read_is_waited_for)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    /* Whole pages, or the branch checkpoint that the reader takes for it. */
    const uint32_t joined = _i ? 600 : 576;
    const struct decision *x;
    struct client *a, *b;

    begin_both(w, 600, &a, &b);
    world_run(w);
    client_check(a);
    client_check(b);
    client_told(a, told_cold(1000));
    client_told(b, (struct told){SOURCE_JOINED, true, true, joined, 650 - joined, WHY_LONGEST});
    x = b->r->decision;
    ck_assert_uint_eq(x->joined_with, a->r->id);
    /* What was there when it came is not what it waited for. */
    ck_assert_uint_eq(x->n_joined, _i ? joined : joined - 128);
    ck_assert_uint_eq(world_rows(w), 1009 + 650 - joined + 9);
    /* It does not wait longer than it has to. */
    ck_assert_uint_lt(b->done_at, a->done_at);
    world_free(w);
}
END_TEST

START_TEST(two_wait_for_the_same_and_a_slot_is_taken_by_none)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    const uint32_t joined = _i ? 600 : 576;
    struct client *a, *b, *c, *other;
    struct text q = {0};

    o.sched.parallel = o.engine.n_sequences = 2;
    w = world_new(&o);
    begin_both(w, 600, &a, &b);
    text_add_ids(&q, a->r->prompt.ids, 600);
    text_add(&q, 50, 3);
    c = client_of(w, &q, 10);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    q.n = 0;
    text_add(&q, 30, 4);
    other = client_of(w, &q, 1);
    ck_assert_int_eq(client_submit(other, NULL), 0);
    look(w);
    ck_assert_int_eq(c->r->state, REQUEST_QUEUED);
    ck_assert_int_eq(other->r->state, REQUEST_READING);
    world_run(w);
    client_check(a);
    client_check(b);
    client_check(c);
    client_check(other);
    client_told(b, (struct told){SOURCE_JOINED, true, true, joined, 650 - joined, WHY_LONGEST});
    /* It had to wait for a slot as well. */
    client_told(c, (struct told){SOURCE_JOINED, true, true, 600, 50, WHY_LONGEST});
    ck_assert_uint_eq(world_rows(w), 1009 + 650 - joined + 9 + 50 + 9 + 30);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_reader_reads_on_as_far_as_others_need_it)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    const uint32_t joined = _i ? 600 : 576;
    struct client *a, *b;

    begin_both(w, 600, &a, &b);
    sched_cancel(w->sched, a->r);
    world_turn(w);
    ck_assert_uint_eq(a->n_done, 1);
    ck_assert_int_eq(a->r->finish, FINISH_CANCELLED);
    ck_assert_int_eq(b->r->state, REQUEST_QUEUED);
    world_run(w);
    client_check(b);
    client_told(b, (struct told){SOURCE_JOINED, true, true, joined, 650 - joined, WHY_LONGEST});
    /* Up to the end of the page that was waited for; no answer. */
    ck_assert_uint_ge(world_rows(w), joined + 650 - joined + 9);
    ck_assert_uint_le(world_rows(w), 640 + 650 - joined + 9);
    ck_assert_uint_eq(a->r->n_tokens, 0);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_reader_stops_when_nobody_waits_any_more)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct client *a, *b;

    begin_both(w, 600, &a, &b);
    sched_cancel(w->sched, a->r);
    world_turn(w);
    sched_cancel(w->sched, b->r);
    world_run(w);
    /* What was in flight, at most. */
    ck_assert_uint_le(world_rows(w), 192 + 3 * 64);
    ck_assert_int_eq(b->r->finish, FINISH_CANCELLED);
    world_free(w);
}
END_TEST

START_TEST(a_waiter_that_is_cancelled_changes_nothing_for_the_reader)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct client *a, *b;

    begin_both(w, 600, &a, &b);
    sched_cancel(w->sched, b->r);
    world_turn(w);
    ck_assert_uint_eq(b->n_done, 1);
    world_run(w);
    client_check(a);
    ck_assert_uint_eq(world_rows(w), 1009);
    ck_assert_uint_eq(b->r->n_read, 0);
    world_free(w);
}
END_TEST

START_TEST(nobody_waits_for_a_prefix_of_another_key)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *a, *b;

    text_add(&p, 1000, 1);
    a = client_of(w, &p, 10);
    b = client_of(w, &p, 10);
    b->r->uid = 1001;
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_run_until_read(w, a, 128);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    look(w);
    ck_assert_int_eq(b->r->state, REQUEST_READING);
    world_run(w);
    client_check(b);
    client_told(b, told_cold(1000));
    world_free(w);
}
END_TEST

START_TEST(a_reader_that_ends_non_finite_lets_the_waiter_start_from_0)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p = {0}, q = {0};
    struct client *a, *b, *root;
    uint64_t id = 0;

    /* Large chunks, once reading has been measured. */
    o.engine.ns_per_row = 1000;
    w = world_new(&o);
    root = chat(w, 1, 130, 10, &p);
    client_run(root);
    for (uint32_t i = 0; i < w->n_events; i++)
        if (w->events[i].kind == CACHE_ROOT_MADE)
            id = w->events[i].id;
    ck_assert_int_eq(cache_pin_root(w->cache, id, true, clock_ns()), 0);

    p.n = 130;
    text_add(&p, 470, 2);
    text_add_ids(&q, p.ids, 560);
    text_add(&q, 50, 3);
    p.ids[590] = FAKE_POISON;
    a = client_of(w, &p, 10);
    b = client_of(w, &q, 10);
    a->r->bounds.root = b->r->bounds.root = 130;
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_turn(w);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_turn(w);
    ck_assert_int_eq(b->r->state, REQUEST_QUEUED);
    ck_assert_uint_eq(b->r->decision->joined_with, a->r->id);
    world_run(w);
    ck_assert_int_eq(a->r->finish, FINISH_ERROR);
    ck_assert_int_eq(a->r->error, ERR_NONFINITE);
    client_check(b);
    /* The root was there, pinned, and is not any more. */
    client_told(b, told_cold(610));
    ck_assert_uint_ge(world_n_events(w, CACHE_ROOT_LOST), 1);
    /* b made it again. */
    ck_assert_uint_eq(world_stats(w).n_roots, 1);
    ck_assert_uint_eq(world_stats(w).n_pinned, 0);
    world_free(w);
}
END_TEST

START_TEST(non_finite_logits_drop_what_was_stored_of_the_path)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 300, 1);
    text_add_answer(&p, world_ask(w, &p, 10));
    text_add(&p, 10, 2);
    p.ids[p.n - 5] = FAKE_POISON;
    c = client_of(w, &p, 10);
    ck_assert_int_eq(client_submit(c, NULL), 0);
    world_run(w);
    ck_assert_int_eq(c->r->error, ERR_NONFINITE);
    ck_assert_uint_eq(c->r->n_cached, 309);
    ck_assert_uint_eq(world_stats(w).n_pages + world_stats(w).n_parked, 0);
    ck_assert_uint_eq(world_stats(w).tier[CACHE_RAM].units_held, 0);
    p.n = 300;
    client_told(world_ask(w, &p, 10), told_cold(300));
    world_free(w);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
    TCase *tc = tcase_create(name);

    suite_add_tcase(s, tc);
    return tc;
}

int main(void)
{
    Suite *s = suite_create("sched_cache_join");
    TCase *tc = add_case(s, "roots");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, a_new_chat_behind_a_root_reads_only_its_own_and_is_no_hit, 0, 2);
    tcase_add_loop_test(tc, a_chat_whose_last_message_is_its_first_is_not_the_next_turn_of_another,
                        0, 2);
    tcase_add_loop_test(tc, without_roots_the_prefix_is_borrowed, 0, 2);
    tcase_add_loop_test(tc, two_roots_of_three_system_prompts_lose_the_first, 0, 2);
    tcase_add_loop_test(tc, a_root_below_root_min_is_made_only_when_it_is_asked_for, 0, 2);
    tcase_add_loop_test(tc, a_root_outlives_the_conversations_that_made_it, 0, 2);
    tc = add_case(s, "joins");
    tcase_add_loop_test(tc, a_prefix_that_is_being_read_is_waited_for, 0, 2);
    tcase_add_loop_test(tc, two_wait_for_the_same_and_a_slot_is_taken_by_none, 0, 2);
    tcase_add_loop_test(tc, a_cancelled_reader_reads_on_as_far_as_others_need_it, 0, 2);
    tcase_add_loop_test(tc, a_cancelled_reader_stops_when_nobody_waits_any_more, 0, 2);
    tcase_add_loop_test(tc, a_waiter_that_is_cancelled_changes_nothing_for_the_reader, 0, 2);
    tcase_add_loop_test(tc, nobody_waits_for_a_prefix_of_another_key, 0, 2);
    tc = add_case(s, "non-finite");
    tcase_add_loop_test(tc, a_reader_that_ends_non_finite_lets_the_waiter_start_from_0, 0, 2);
    tcase_add_loop_test(tc, non_finite_logits_drop_what_was_stored_of_the_path, 0, 2);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
