/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request begins with and leaves, one situation at a time, for pure attention models (_i 0:
 * resumable anywhere) and hybrids (_i 1: at checkpoints).
 */
#include "daemon/api_keys.h"
#include "tests/sched_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* --- turns of one conversation --- */

START_TEST(the_next_turn_goes_on_from_the_end)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *a, *b;

    text_add(&p, 300, 1);
    a = world_ask(w, &p, 20);
    client_told(a, told_cold(300));
    ck_assert_uint_eq(world_rows(w), 319);
    text_add_answer(&p, a);
    text_add(&p, 50, 2);
    b = world_ask(w, &p, 20);
    /* The last token of the answer was sampled, not read. */
    client_told(b, (struct told){SOURCE_SLOT, false, false, 319, 51, WHY_LONGEST});
    ck_assert_uint_eq(world_rows(w), 319 + 51 + 19);
    ck_assert_uint_ne(a->r->decision->conversation, 0);
    ck_assert_uint_eq(b->r->decision->conversation, a->r->decision->conversation);
    ck_assert_uint_eq(b->r->decision->from, a->r->decision->conversation);
    ck_assert_uint_eq(b->r->decision->n_kept, 370 + 19);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    ck_assert_uint_eq(world_stats(w).superseded + world_stats(w).evictions, 0);
    world_free(w);
}
END_TEST

START_TEST(every_length_of_the_first_turn_is_gone_on_from)
{
    struct world_options o = world_cached(_i % 2);
    const uint32_t n = 60 + (uint32_t)_i / 2;
    struct world *w = world_new(&o);
    struct text p = {0};

    text_add(&p, n, 1);
    text_add_answer(&p, world_ask(w, &p, 5));
    text_add(&p, 3, 2);
    client_told(world_ask(w, &p, 5),
                (struct told){SOURCE_SLOT, false, false, n + 4, 4, WHY_LONGEST});
    ck_assert_uint_eq(world_rows(w), n + 4 + 4 + 4);
    world_free(w);
}
END_TEST

START_TEST(dropped_thinking_is_read_again_from_the_turn_checkpoint)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *a, *b;

    text_add(&p, 300, 1);
    a = client_of(w, &p, 20);
    a->r->bounds.turn = 290;
    client_run(a);
    /* The answer comes back without its thinking, and with a question. */
    ck_assert_int_ne(a->r->tokens[0].id, 2 + 2);
    text_add(&p, 5, 2);
    text_add(&p, 60, 3);
    b = client_of(w, &p, 20);
    b->r->bounds.turn = 355;
    client_run(b);
    client_told(
        b, (struct told){SOURCE_SLOT, false, false, _i ? 290 : 300, _i ? 75 : 65, WHY_LONGEST});
    ck_assert_uint_eq(b->r->decision->n_superseded, 1);
    ck_assert_uint_eq(b->r->decision->conversation, a->r->decision->conversation);
    ck_assert_uint_eq(world_stats(w).superseded, 1);
    ck_assert_uint_eq(world_stats(w).evictions, 0);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    world_free(w);
}
END_TEST

START_TEST(a_tool_loop_whose_thinking_is_dropped_is_read_again_from_the_query_checkpoint)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text loop = {0}, next = {0};
    struct client *c = NULL;
    uint32_t ran = 0;

    text_add(&loop, 300, 1);
    text_add_ids(&next, loop.ids, 300);
    /* Four calls and the answer. */
    for (unsigned int i = 0; i < 5; i++) {
        const struct told more = {SOURCE_SLOT, false, false, ran, loop.n - ran, WHY_LONGEST};

        c = client_of(w, &loop, 20);
        c->r->bounds = (struct boundaries){.turn = loop.n - 10, .query = 290};
        client_run(c);
        client_told(c, i == 0 ? told_cold(300) : more);
        ck_assert_int_ne(c->r->tokens[0].id, 2 + 20);
        ran = loop.n + 19;
        text_add_answer(&loop, c);
        text_add(&loop, 50, 10 + i);
        /* What is left of it: the call and the tool's answer. */
        text_add(&next, 8, 20);
        text_add(&next, 50, 10 + i);
    }
    c = client_of(w, &next, 20);
    c->r->bounds = (struct boundaries){.turn = next.n - 10, .query = next.n - 10};
    client_run(c);
    client_told(c, (struct told){SOURCE_SLOT, false, false, _i ? 290 : 300,
                                 next.n - (_i ? 290 : 300), WHY_LONGEST});
    ck_assert_uint_eq(c->r->decision->n_superseded, 1);
    ck_assert_uint_eq(world_stats(w).superseded, 1);
    ck_assert_uint_eq(world_stats(w).evictions, 0);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    world_free(w);
}
END_TEST

START_TEST(a_loop_that_is_first_seen_in_its_middle_has_its_query_checkpoint_too)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 300, 1);
    text_add(&p, 100, 2);
    c = client_of(w, &p, 20);
    c->r->bounds = (struct boundaries){.turn = 390, .query = 290};
    client_run(c);
    p.n = 300;
    text_add(&p, 60, 3);
    c = client_of(w, &p, 20);
    c->r->bounds = (struct boundaries){.turn = 350, .query = 350};
    client_run(c);
    client_told(
        c, (struct told){SOURCE_SLOT, false, false, _i ? 290 : 300, _i ? 70 : 60, WHY_LONGEST});
    ck_assert_uint_eq(c->r->decision->n_superseded, 1);
    world_free(w);
}
END_TEST

START_TEST(an_edit_leaves_the_old_branch_and_going_back_is_a_hit_of_its_whole_length)
{
    struct world_options o = world_cached(_i);
    struct world *w;
    struct text p = {0}, e = {0};
    struct client *a, *b, *c;

    o.sched.parallel = 1;
    w = world_new(&o);
    text_add(&p, 400, 1);
    a = world_ask(w, &p, 10);
    text_add_answer(&p, a);
    text_add(&p, 100, 2);
    a = world_ask(w, &p, 10);
    text_add_answer(&p, a);

    text_add_ids(&e, p.ids, 200);
    text_add(&e, 150, 3);
    ck_assert_uint_eq(text_common(&p, &e), 200);
    b = world_ask(w, &e, 10);
    client_told(b, _i ? told_cold(350)
                      : (struct told){SOURCE_BORROWED, true, true, 200, 150, WHY_LONGEST});
    ck_assert_uint_eq(b->r->decision->n_common, 200);
    ck_assert_uint_ne(b->r->decision->conversation, a->r->decision->conversation);

    /* The second one to leave there resumes there. */
    e.n = 200;
    text_add(&e, 100, 4);
    client_told(world_ask(w, &e, 10),
                (struct told){SOURCE_BORROWED, true, true, 200, 100, WHY_LONGEST});

    text_add(&p, 30, 5);
    c = world_ask(w, &p, 10);
    client_told(c, (struct told){SOURCE_VRAM, true, true, 519, 31, WHY_LONGEST});
    ck_assert_uint_eq(c->r->decision->conversation, a->r->decision->conversation);
    ck_assert_uint_eq(world_stats(w).superseded + world_stats(w).evictions, 0);
    ck_assert_uint_eq(world_stats(w).n_parked, 3);
    world_free(w);
}
END_TEST

START_TEST(the_same_prompt_again_reads_its_last_token_only)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *a, *b;

    text_add(&p, 200, 1);
    a = world_ask(w, &p, 10);
    b = world_ask(w, &p, 10);
    client_told(b, (struct told){SOURCE_SLOT, false, false, 199, 1, WHY_LONGEST});
    ck_assert_uint_eq(b->r->decision->conversation, a->r->decision->conversation);
    /* With a little more. */
    text_add(&p, 7, 2);
    b = world_ask(w, &p, 10);
    ck_assert_uint_eq(b->r->n_cached, _i ? 199 : 200);
    ck_assert_uint_eq(world_stats(w).evictions, 0);
    world_free(w);
}
END_TEST

START_TEST(the_same_prompt_again_with_a_turn_near_its_end_resumes_there)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 200, 1);
    for (int k = 0; k < 3; k++) {
        c = client_of(w, &p, 10);
        c->r->bounds.turn = 150;
        client_run(c);
    }
    client_told(c,
                (struct told){SOURCE_SLOT, false, false, _i ? 150 : 199, _i ? 50 : 1, WHY_LONGEST});
    ck_assert_uint_eq(world_stats(w).superseded + world_stats(w).evictions, 0);
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    world_free(w);
}
END_TEST

START_TEST(a_prompt_that_is_a_prefix_of_a_stored_one_reads_its_last_token)
{
    static const uint32_t lengths[] = {65, 128, 129, 150, 191, 192};
    const uint32_t n = lengths[_i / 2];
    const bool hybrid = _i % 2;
    /* The deepest position that leaves a token to read: any, or a multiple of 64. */
    const uint32_t most = hybrid ? (n - 1) / 64 * 64 : n - 1;
    struct world_options o = world_cached(hybrid);
    struct world *w;
    struct text p = {0};

    o.sched.checkpoint_every = 64;
    w = world_new(&o);
    text_add(&p, 300, 1);
    (void)world_ask(w, &p, 10);
    p.n = n;
    client_told(world_ask(w, &p, 1),
                (struct told){SOURCE_BORROWED, true, true, most, n - most, WHY_LONGEST});
    world_free(w);
}
END_TEST

START_TEST(the_second_one_to_leave_takes_the_branch_checkpoint)
{
    struct world_options o = world_cached(1);
    struct world *w = world_new(&o);
    struct text p = {0};

    for (unsigned int k = 1; k <= 4; k++) {
        p.n = 0;
        text_add(&p, 200, 1);
        text_add(&p, 100, 10 + k);
        client_told(world_ask(w, &p, 10),
                    k < 3 ? told_cold(300)
                          : (struct told){SOURCE_BORROWED, true, true, 200, 100, WHY_LONGEST});
    }
    world_free(w);
}
END_TEST

/* --- slots --- */

START_TEST(a_conversation_is_borrowed_from_while_it_runs)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0}, q = {0};
    struct client *a, *b;

    text_add(&p, 300, 1);
    a = client_of(w, &p, 200);
    a->r->bounds.turn = 250;
    ck_assert_int_eq(client_submit(a, NULL), 0);
    world_run_until_read(w, a, 300);
    ck_assert_int_eq(a->r->state, REQUEST_GENERATING);

    text_add_ids(&q, p.ids, 252);
    text_add(&q, 100, 2);
    b = client_of(w, &q, 10);
    client_run(b);
    client_check(a);
    client_told(
        b, (struct told){SOURCE_BORROWED, true, true, _i ? 250 : 252, _i ? 102 : 100, WHY_LONGEST});
    client_told(a, told_cold(300));
    ck_assert_uint_ne(a->r->decision->conversation, b->r->decision->conversation);
    ck_assert_uint_eq(world_stats(w).superseded, 0);
    world_free(w);
}
END_TEST

START_TEST(with_all_slots_busy_it_waits_and_is_a_hit_in_another_slot)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0}, noise = {0};
    struct client *a, *b, *busy[4];

    text_add(&p, 200, 1);
    a = world_ask(w, &p, 10);
    for (unsigned int i = 0; i < 4; i++) {
        noise.n = 0;
        text_add(&noise, 40, 10 + i);
        busy[i] = client_of(w, &noise, i == 3 ? 20 : 100);
        ck_assert_int_eq(client_submit(busy[i], NULL), 0);
    }
    world_run_until_read(w, busy[3], 40);
    text_add_answer(&p, a);
    text_add(&p, 40, 2);
    b = client_of(w, &p, 10);
    ck_assert_int_eq(client_submit(b, NULL), 0);
    world_turn(w);
    ck_assert_int_eq(b->r->state, REQUEST_QUEUED);
    world_run(w);
    client_check(b);
    for (int i = 0; i < 4; i++)
        client_check(busy[i]);
    client_told(b, (struct told){SOURCE_VRAM, true, true, 209, 41, WHY_LONGEST});
    ck_assert_uint_lt(b->done_at, busy[0]->done_at);
    world_free(w);
}
END_TEST

START_TEST(a_free_slot_that_remembers_the_conversation_is_preferred)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p[3] = {0};
    struct client *c;

    for (unsigned int i = 0; i < 3; i++)
        text_add(&p[i], 100, 1 + i);
    for (unsigned int k = 0; k < 9; k++) {
        struct text *t = &p[k % 3];

        c = world_ask(w, t, 5);
        if (k >= 3)
            client_told(c, (struct told){SOURCE_SLOT, false, false, t->n - 21, 21, WHY_LONGEST});
        text_add_answer(t, c);
        text_add(t, 20, 10 + k);
    }
    world_free(w);
}
END_TEST

/* --- isolation --- */

START_TEST(another_uid_or_salt_finds_nothing)
{
    struct world_options o = world_cached(_i);
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 200, 1);
    (void)world_ask(w, &p, 10);
    c = client_of(w, &p, 10);
    c->r->uid = 1001;
    client_run(c);
    client_told(c, told_cold(200));
    for (int k = 0; k < 2; k++) {
        c = client_of(w, &p, 10);
        c->r->cache_salt = strdup("salt");
        client_run(c);
        client_told(c, k == 0 ? told_cold(200)
                              : (struct told){SOURCE_SLOT, false, false, 199, 1, WHY_LONGEST});
    }
    c = client_of(w, &p, 10);
    c->r->cache_salt = strdup("salt ");
    client_run(c);
    client_told(c, told_cold(200));
    ck_assert_uint_eq(world_rows(w), 4 * 209 + 10);
    world_free(w);

    o.sched.share_all = true;
    w = world_new(&o);
    (void)world_ask(w, &p, 10);
    c = client_of(w, &p, 10);
    c->r->uid = 1001;
    client_run(c);
    client_told(c, (struct told){SOURCE_SLOT, false, false, 199, 1, WHY_LONGEST});
    world_free(w);
}
END_TEST

/* Over TCP it is the owner of the key that counts, whatever its number is in this process. */
START_TEST(owners_of_keys_share_with_nobody_but_themselves)
{
    struct world_options o = world_cached(_i);
    static const struct {
        const char *key;
        uint32_t uid;
        bool finds;
    } asks[] = {{"alice", API_KEY_UIDS, false},    {"bob", API_KEY_UIDS + 1, false},
                {"alice", API_KEY_UIDS + 7, true}, {"alic", API_KEY_UIDS, false},
                {"alice ", API_KEY_UIDS, false},   {NULL, 1000, false}};
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 200, 1);
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        c = client_of(w, &p, 10);
        c->r->key = asks[i].key;
        c->r->uid = asks[i].uid;
        client_run(c);
        ck_assert_uint_eq(c->r->n_cached, asks[i].finds ? 199 : 0);
        ck_assert_ptr_eq(c->r->decision->key, asks[i].key);
    }
    world_free(w);

    o.sched.share_all = true;
    w = world_new(&o);
    (void)world_ask(w, &p, 10);
    c = client_of(w, &p, 10);
    c->r->key = "alice";
    c->r->uid = API_KEY_UIDS;
    client_run(c);
    ck_assert_uint_eq(c->r->n_cached, 199);
    world_free(w);
}
END_TEST

START_TEST(no_cache_finds_nothing_and_leaves_nothing)
{
    struct world_options o = world_cached(_i);
    const struct told off = {SOURCE_NONE, true, false, 0, 200, WHY_CACHE_OFF};
    struct world *w = world_new(&o);
    struct text p = {0};
    struct client *c;

    text_add(&p, 200, 1);
    for (int k = 0; k < 2; k++) {
        c = client_of(w, &p, 10);
        c->r->no_cache = true;
        client_run(c);
        client_told(c, off);
        ck_assert_uint_eq(world_stats(w).n_pages, k ? 4 : 0);
        ck_assert_uint_eq(world_stats(w).n_parked, k);
        if (k == 0)
            client_told(world_ask(w, &p, 10), told_cold(200));
    }
    ck_assert_uint_eq(world_stats(w).n_parked, 1);
    world_free(w);

    /* "cache": false */
    o.cache = false;
    w = world_new(&o);
    for (int k = 0; k < 2; k++)
        ck_assert_uint_eq(world_ask(w, &p, 10)->r->n_cached, 0);
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
    Suite *s = suite_create("sched_cache");
    TCase *tc = add_case(s, "turns");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, the_next_turn_goes_on_from_the_end, 0, 2);
    tcase_add_loop_test(tc, every_length_of_the_first_turn_is_gone_on_from, 0, 140);
    tcase_add_loop_test(tc, dropped_thinking_is_read_again_from_the_turn_checkpoint, 0, 2);
    tcase_add_loop_test(
        tc, a_tool_loop_whose_thinking_is_dropped_is_read_again_from_the_query_checkpoint, 0, 2);
    tcase_add_loop_test(tc, a_loop_that_is_first_seen_in_its_middle_has_its_query_checkpoint_too, 0,
                        2);
    tcase_add_loop_test(
        tc, an_edit_leaves_the_old_branch_and_going_back_is_a_hit_of_its_whole_length, 0, 2);
    tcase_add_loop_test(tc, the_same_prompt_again_reads_its_last_token_only, 0, 2);
    tcase_add_loop_test(tc, the_same_prompt_again_with_a_turn_near_its_end_resumes_there, 0, 2);
    tcase_add_loop_test(tc, a_prompt_that_is_a_prefix_of_a_stored_one_reads_its_last_token, 0, 12);
    tcase_add_test(tc, the_second_one_to_leave_takes_the_branch_checkpoint);
    tc = add_case(s, "slots");
    tcase_add_loop_test(tc, a_conversation_is_borrowed_from_while_it_runs, 0, 2);
    tcase_add_loop_test(tc, with_all_slots_busy_it_waits_and_is_a_hit_in_another_slot, 0, 2);
    tcase_add_loop_test(tc, a_free_slot_that_remembers_the_conversation_is_preferred, 0, 2);
    tc = add_case(s, "isolation");
    tcase_add_loop_test(tc, another_uid_or_salt_finds_nothing, 0, 2);
    tcase_add_loop_test(tc, owners_of_keys_share_with_nobody_but_themselves, 0, 2);
    tcase_add_loop_test(tc, no_cache_finds_nothing_and_leaves_nothing, 0, 2);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
