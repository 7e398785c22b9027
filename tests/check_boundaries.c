/* SPDX-License-Identifier: Apache-2.0 */
/* Where messages begin: in the prompts of needle.jsonl, and in what other models' templates make.
 */
#include "daemon/boundaries.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "tests/golden.h"
#include "tests/tokfix.h"
#include "util/buf.h"
#include "util/err.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* --- needle --------------------------------------------------------------------------------------
 */

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* What the text says: the messages are counted there, and where the n-th is, in the ids. */
static struct boundaries of_text(const struct golden *g, int32_t opener)
{
    static const char mark[] = "<|im_start|>";
    struct boundaries b = {0};
    const char *s = g->prompt_text;
    bool asked = false;
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->prompt.n; i++) {
        if (g->prompt.ids[i] != opener)
            continue;
        s = strstr(s, mark);
        ck_assert_ptr_nonnull(s);
        s += sizeof mark - 1;
        if (++n == 2 && begins(g->prompt_text, "<|im_start|>system\n"))
            b.root = i;
        b.turn = i;
        if (begins(s, "user\n") && !begins(s, "user\n<tool_response>")) {
            asked = true;
            b.query = 0;
        } else if (begins(s, "assistant\n") && asked) {
            asked = false;
            b.query = i;
        }
    }
    return b;
}

START_TEST(in_needles_prompts_they_are_where_the_text_has_them)
{
    size_t n_roots = 0, n_loops = 0, n;
    struct tokenizer *t;
    struct golden *g;
    struct gguf *f;
    struct err_text e;

    ck_assert_int_eq(gguf_open(golden_path("needle-f16.gguf"), &f, &e), 0);
    ck_assert_int_eq(tokenizer_new(f, &t, &e), 0);
    n = golden_load("needle.jsonl", &g);
    for (size_t i = 0; i < n; i++) {
        struct boundaries want = of_text(&g[i], tokenizer_find_special(t, "<|im_start|>")), b;

        boundaries_find(t, g[i].prompt.ids, g[i].prompt.n, &b);
        ck_assert_msg(b.root == want.root && b.turn == want.turn && b.query == want.query,
                      "case %zu: root %u turn %u query %u, not %u %u %u", i, b.root, b.turn,
                      b.query, want.root, want.turn, want.query);
        n_roots += b.root > 0;
        n_loops += b.query < b.turn;
        ck_assert_uint_gt(b.query, 0);
    }
    /* The file has all of it. */
    ck_assert_uint_gt(n_roots, 0);
    ck_assert_uint_lt(n_roots, n);
    ck_assert_uint_gt(n_loops, 0);
    golden_free(g, n);
    tokenizer_free(t);
    gguf_free(f);
}
END_TEST

/* --- other formats -------------------------------------------------------------------------------
 */

static const struct tokfix_token specials[] = {
    {"<|im_start|>", TOKEN_CONTROL},
    {"<|im_end|>", TOKEN_CONTROL},
    {"<tool_response>", TOKEN_USER},
    {"<|begin_of_text|>", TOKEN_CONTROL},
    {"<|start_header_id|>", TOKEN_CONTROL},
    {"<|end_header_id|>", TOKEN_CONTROL},
    {"<|eot_id|>", TOKEN_CONTROL},
    {"<bos>", TOKEN_CONTROL},
    {"<start_of_turn>", TOKEN_CONTROL},
    {"<end_of_turn>", TOKEN_CONTROL},
    {"<|system|>", TOKEN_USER},
    {"<|user|>", TOKEN_USER},
    {"<|assistant|>", TOKEN_USER},
    {"<|observation|>", TOKEN_CONTROL},
    {"<|end|>", TOKEN_CONTROL},
    {"[gMASK]", TOKEN_CONTROL},
    {"<sop>", TOKEN_CONTROL},
    {"<|START_OF_TURN_TOKEN|>", TOKEN_CONTROL},
    {"<|SYSTEM_TOKEN|>", TOKEN_CONTROL},
    {"<|USER_TOKEN|>", TOKEN_CONTROL},
    {"<|CHATBOT_TOKEN|>", TOKEN_CONTROL},
    {"<|start|>", TOKEN_CONTROL},
    {"<|message|>", TOKEN_CONTROL},
    {"<|channel|>", TOKEN_CONTROL},
    {"[SYSTEM_PROMPT]", TOKEN_CONTROL},
    {"[/SYSTEM_PROMPT]", TOKEN_CONTROL},
    {"[INST]", TOKEN_CONTROL},
    {"[/INST]", TOKEN_CONTROL},
    {"<\uff5cUser\uff5c>", TOKEN_CONTROL},
    {"<\uff5cAssistant\uff5c>", TOKEN_CONTROL},
};

static struct tokfix fix;

static void set_up(void)
{
    struct err_text e;

    tokfix_bytes(&fix, specials, sizeof specials / sizeof specials[0], NULL, 0);
    ck_assert_int_eq(tokfix_open(&fix, &e), 0);
}

static void tear_down(void)
{
    tokfix_done(&fix);
}

/*
 * Prompts with marks: {R} root, {Q} query, {T} turn stand where the boundary is; one that is not
 * there is none.
 */
static const char *const prompts[] = {
    "",
    "no message at all",
    /* ChatML */
    "<|im_start|>system\nBe.<|im_end|>\n{R}{T}<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|>system\nBe.<|im_end|>\n{R}<|im_start|>user\nHi<|im_end|>\n{Q}{T}<|im_start|>"
    "assistant\n",
    "<|im_start|>user\nHi<|im_end|>\n{Q}{T}<|im_start|>assistant\n",
    "<|im_start|>assistant\nHi<|im_end|>\n{T}<|im_start|>assistant\n",
    "<|im_start|>developer\nBe.<|im_end|>\n{R}<|im_start|>user\nHi<|im_end|>\n{Q}{T}<|im_start|>"
    "assistant",
    /* a role that begins like another one, and ids that are no text of a format */
    "<|im_start|>users\nHi<|im_end|>\n{R}{T}<|im_start|>assistants\n",
    "<|im_start|>\001\002\003{R}<|im_start|>\004\005{T}<|im_start|>\006",
    "<|im_start|>{R}<|im_start|>{T}<|im_start|>",
    "<|im_start|>system\nalone",
    /* an answer of a tool is no question; a second system message ends the root */
    "<|im_start|>system\nBe.<|im_end|>\n{R}<|im_start|>user\nHi<|im_end|>\n{Q}<|im_start|>assistant"
    "\n<|im_end|>\n<|im_start|>user\n<tool_response>\n4</tool_response><|im_end|>\n{T}"
    "<|im_start|>assistant\n",
    "<|im_start|>system\nBe.<|im_end|>\n{R}<|im_start|>system\nToo.<|im_end|>\n<|im_start|>user\n"
    "Hi<|im_end|>\n{Q}{T}<|im_start|>assistant\n",
    "<|im_start|>user\nHi<|im_end|>\n{Q}<|im_start|>assistant\n<|im_end|>\n<|im_start|>tool\n4"
    "<|im_end|>\n{T}<|im_start|>assistant\n",
    "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\n3"
    "<|im_end|>\n{Q}{T}<|im_start|>assistant\n",
    /* the newest question has no answer yet */
    "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n{T}<|im_start|>user\n3",
    /* "<tool_response>" further in the text is a question */
    "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nwhat is "
    "<tool_response>?<|im_end|>\n{Q}{T}<|im_start|>assistant\n",
    /* does not begin with a message */
    "text <|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi{Q}{T}<|im_start|>assistant\n",
    /* Llama 3 */
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe.<|eot_id|>{R}<|start_header_"
    "id|>user<|end_header_id|>\n\nHi<|eot_id|>{Q}<|start_header_id|>assistant<|end_header_id|>\n\n"
    "call<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n4<|eot_id|>{T}<|start_header_"
    "id|>assistant<|end_header_id|>\n\n",
    "<|begin_of_text|>{T}<|start_header_id|>user<|end_header_id|>\n\nHi",
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>{Q}<|start_header_id|>assistant"
    "<|end_header_id|>\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n<tool_response>4"
    "<|eot_id|>{T}<|start_header_id|>assistant<|end_header_id|>\n\n",
    /* Gemma: the system message is part of the user's */
    "<bos><start_of_turn>user\nBe. Hi<end_of_turn>\n{Q}{T}<start_of_turn>model\n",
    "<bos><start_of_turn>system\nBe.<end_of_turn>\n{R}<start_of_turn>user\nHi<end_of_turn>\n{Q}{T}"
    "<start_of_turn>model\n",
    /* Phi; its tokens are user-defined in some files */
    "<|system|>Be.<|end|>{R}<|user|>Hi<|end|>{Q}{T}<|assistant|>",
    "<|user|>Hi<|end|>{Q}{T}<|assistant|>",
    /* GLM */
    "[gMASK]<sop><|system|>\nBe.{R}<|user|>\nHi{Q}<|assistant|>\ncall<|observation|>\n4{T}"
    "<|assistant|>\n",
    "[gMASK]<sop><|user|>\nHi{Q}<|assistant|>\ncall<|user|>\n<tool_response>4{T}<|assistant|>",
    /* Command R */
    "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be.{R}<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi{Q}"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>call<|START_OF_TURN_TOKEN|><|USER_TOKEN|>"
    "<tool_response>4{T}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    /* gpt-oss */
    "<|start|>system<|message|>Be.<|end|>{R}<|start|>user<|message|>Hi<|end|>{Q}<|start|>assistant"
    "<|channel|>analysis<|message|>Hm<|end|>{T}<|start|>assistant",
    /* Mistral and DeepSeek */
    "[SYSTEM_PROMPT]Be.[/SYSTEM_PROMPT]{R}{T}[INST]Hi[/INST]",
    "<bos>Be.<\uff5cUser\uff5c>Hi{Q}{T}<\uff5cAssistant\uff5c>",
};

/* A prompt without its marks, and where they were; `ret` has the bytes before each. */
static void take_marks(const char *marked, struct buf *text, struct boundaries *ret)
{
    *ret = (struct boundaries){0};
    for (const char *s = marked; *s; s++) {
        uint32_t at = (uint32_t)text->len;

        if (begins(s, "{R}"))
            ret->root = at;
        else if (begins(s, "{Q}"))
            ret->query = at;
        else if (begins(s, "{T}"))
            ret->turn = at;
        else if (buf_add(text, s, 1) < 0)
            abort();
        else
            continue;
        s += 2;
    }
}

static void encode(const char *s, size_t n, bool parse_special, struct token_list *out)
{
    struct tokenize_options how = {.parse_special = parse_special};

    ck_assert_int_eq(tokenizer_encode(fix.tok, s, n, &how, out), 0);
}

/* How many tokens the first `n_bytes` are: all but the control tokens are bytes. */
static uint32_t tokens_before(const char *s, size_t n_bytes)
{
    struct token_list l = {0};
    uint32_t n;

    encode(s, n_bytes, true, &l);
    n = (uint32_t)l.n;
    token_list_done(&l);
    return n;
}

START_TEST(a_prompt_of_any_known_format_has_them)
{
    struct buf text = {0};
    struct token_list l = {0};
    struct boundaries want, b = {7, 7, 7};
    const char *s;

    take_marks(prompts[_i], &text, &want);
    s = text.data ? text.data : "";
    encode(s, text.len, true, &l);
    boundaries_find(fix.tok, l.ids, l.n, &b);
    ck_assert_msg(b.root == tokens_before(s, want.root) && b.turn == tokens_before(s, want.turn) &&
                      b.query == tokens_before(s, want.query),
                  "%s: root %u turn %u query %u", prompts[_i], b.root, b.turn, b.query);
    token_list_done(&l);
    buf_done(&text);
}
END_TEST

START_TEST(text_that_looks_like_a_control_token_is_none)
{
    static const char s[] = "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\n";
    struct token_list l = {0};
    struct boundaries b;

    encode(s, sizeof s - 1, false, &l);
    boundaries_find(fix.tok, l.ids, l.n, &b);
    ck_assert(b.root == 0 && b.turn == 0 && b.query == 0);
    token_list_done(&l);
}
END_TEST

/* A scan that is not linear would not come to its end before the test is killed. */
START_TEST(a_million_ids_are_read_once)
{
    enum { N = 1 << 20 };
    const int32_t opener = tokenizer_find_special(fix.tok, "<|im_start|>"),
                  other = tokenizer_find_special(fix.tok, "<|im_end|>");
    int32_t *ids = malloc(N * sizeof *ids);
    struct boundaries b;

    for (uint32_t i = 0; i < N; i++)
        ids[i] = 'a';
    ids[0] = opener;
    ids[N / 2] = opener;
    boundaries_find(fix.tok, ids, N, &b);
    ck_assert(b.root == N / 2 && b.turn == N / 2 && b.query == 0);
    for (uint32_t i = 1; i < N; i++)
        ids[i] = other;
    boundaries_find(fix.tok, ids, N, &b);
    ck_assert(b.root == 0 && b.turn == 0);
    for (uint32_t i = 1; i < N; i++)
        ids[i] = opener;
    boundaries_find(fix.tok, ids, N, &b);
    ck_assert(b.root == 1 && b.turn == N - 1);
    /* Ids of no token are harmless. */
    ids[1] = -1;
    ids[2] = INT32_MAX;
    boundaries_find(fix.tok, ids, N, &b);
    ck_assert_uint_eq(b.root, 3);
    free(ids);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("boundaries");
    TCase *needle = tcase_create("needle"), *t = tcase_create("formats");
    SRunner *runner;
    int failed;

    tcase_add_test(needle, in_needles_prompts_they_are_where_the_text_has_them);
    suite_add_tcase(s, needle);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_prompt_of_any_known_format_has_them, 0,
                        (int)(sizeof prompts / sizeof prompts[0]));
    tcase_add_test(t, text_that_looks_like_a_control_token_is_none);
    tcase_add_test(t, a_million_ids_are_read_once);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
