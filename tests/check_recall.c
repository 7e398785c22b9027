/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No conversation ever gets another's facts: the dialogues of needle.jsonl, 16 at a time over 4
 * slots, whole and growing turn by turn, parked, borrowed and moved through tiers that hold a few
 * of them, end in their golden answers, and so do they through the daemon (check_recall_http).
 */
#include "daemon/sched.h"
#include "tests/golden.h"
#include "tests/mkmodel.h"
#include "tests/sched_lab.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16, MAX_TURNS = 24, IM_START = 1, USER = 308 };

/* A dialogue that is asked up to the end of each of its turns in order. */
struct talk {
    const struct golden *g;
    uint32_t ends[MAX_TURNS], n_ends, i_end; /* prompts: tokens */
    struct request *r;                       /* owned; the one that runs */
    bool done;
};

struct recall {
    struct lab l;
    struct golden *goldens; /* owned */
    size_t n_goldens;
    struct talk talks[64];
    uint32_t n_talks;
};

static uint32_t longest(void)
{
    if (getenv("STRATA_TEST_LONG"))
        return UINT32_MAX;
    return getenv("STRATA_TEST_SHORT") ? 220 : 620;
}

static void cut_turns(struct talk *t, bool growing)
{
    const struct token_list *p = &t->g->prompt;

    /* A message of the user ends where the assistant's opening is complete: two tokens behind. */
    for (size_t i = 1; growing && i + 3 < p->n; i++)
        if (p->ids[i] == IM_START && p->ids[i + 1] != USER && t->n_ends + 1 < MAX_TURNS)
            t->ends[t->n_ends++] = (uint32_t)i + 3;
    if (t->n_ends == 0 || t->ends[t->n_ends - 1] != p->n)
        t->ends[t->n_ends++] = (uint32_t)p->n;
}

static void open_recall(struct recall *c, bool growing)
{
    /* The longest dialogue needs some 100 pages. */
    const uint32_t n_units = getenv("STRATA_TEST_LONG") ? 300 : 90;
    const struct lab_options o = {.n_threads = 2,
                                  .n_units = n_units,
                                  .ram_units = n_units,
                                  .context = n_units * CACHE_PAGE,
                                  .n_conversations = 12,
                                  .n_roots = 4};

    lab_open(&c->l, &(struct mkmodel){.family = NULL}, &o);
    c->n_goldens = golden_load("needle.jsonl", &c->goldens);
    for (size_t i = 0; i < c->n_goldens; i++)
        if (c->goldens[i].prompt.n <= longest()) {
            struct talk *t = &c->talks[c->n_talks++];

            *t = (struct talk){.g = &c->goldens[i]};
            cut_turns(t, growing);
        }
}

static void close_recall(struct recall *c)
{
    lab_close(&c->l);
    golden_free(c->goldens, c->n_goldens);
    free(c);
}

static void ask(struct recall *c, struct talk *t)
{
    const bool last = t->i_end + 1 == t->n_ends;
    const uint32_t n = t->ends[t->i_end];

    t->r = lab_request(&c->l, t->g->prompt.ids, n, last ? (uint32_t)t->g->greedy.n : 4);
    boundaries_find(c->l.tokenizer, t->r->prompt.ids, n, &t->r->bounds);
    lab_submit(&c->l, t->r);
}

static void answered(struct talk *t, uint32_t round)
{
    const struct token_list *want = &t->g->greedy;
    const struct request *r = t->r;

    ck_assert_msg(r->finish == FINISH_STOP || r->finish == FINISH_LENGTH, "%s", r->error_text.s);
    if (++t->i_end == t->n_ends) {
        bool same = r->n_tokens == want->n;

        for (size_t k = 0; same && k < want->n; k++)
            same = r->tokens[k].id == want->ids[k];
        ck_assert_msg(same, "round %u: not \"%s\" but \"%.*s\" (%u of %zu tokens reused)", round,
                      t->g->text, (int)r->text.len, r->text.data, r->n_cached, r->prompt.n);
        t->done = true;
        t->i_end = 0;
    }
    (void)request_unref(t->r);
    t->r = NULL;
}

/* Until each has had its last answer in this round; AT_ONCE are under way at any time. */
static void talk_all(struct recall *c, uint32_t round)
{
    uint32_t n_open = c->n_talks, next = round;

    for (uint32_t i = 0; i < c->n_talks; i++)
        c->talks[i].done = false;
    while (n_open > 0) {
        for (uint32_t i = 0; i < c->n_talks && c->l.n_running < AT_ONCE; i++) {
            struct talk *t = &c->talks[(next + i * 7) % c->n_talks];

            if (!t->r && !t->done)
                ask(c, t);
        }
        next++;
        lab_turn(&c->l);
        for (uint32_t i = 0; i < c->n_talks; i++) {
            struct talk *t = &c->talks[i];

            if (t->r && t->r->state == REQUEST_DONE && !t->r->run) {
                answered(t, round);
                n_open -= t->done;
            }
        }
    }
    lab_run(&c->l);
}

/* 0: whole prompts; 1: growing. */
START_TEST(every_answer_is_its_own)
{
    struct recall *c = calloc(1, sizeof *c);
    const bool growing = _i == 1;
    struct decision_totals t;
    struct cache_stats st;

    ck_assert_ptr_nonnull(c);
    open_recall(c, growing);
    ck_assert_uint_ge(c->n_talks, 8);
    for (uint32_t round = 0; round < (getenv("STRATA_TEST_SHORT") ? 2 : 3); round++)
        talk_all(c, round);
    decisions_totals(c->l.decisions, &t);
    cache_stats(c->l.cache, &st);
    ck_assert_uint_gt(t.reused_tokens, 500);
    ck_assert_uint_gt(st.parks, 20);
    ck_assert_uint_gt(st.evictions, 0);
    ck_assert_uint_gt(st.write_backs, 0);
    close_recall(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recall");
    TCase *tc = tcase_create("recall");
    SRunner *sr;
    int n_failed;

    tcase_add_loop_test(tc, every_answer_is_its_own, 0, 2);
    suite_add_tcase(s, tc);
    sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
