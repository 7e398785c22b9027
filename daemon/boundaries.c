/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over the ids.  Almost all are ordinary tokens, which cost a look at their kind; what a
 * control token is gets remembered by its id, and of each message only the first bytes are read.
 */
#include "daemon/boundaries.h"

#include "engine/tokenizer.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum role { ROLE_UNKNOWN, ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };

/* Tokens that open a message.  ROLE_UNKNOWN: the role is the text behind it. */
static const struct opener {
    const char *text;
    enum role role;
} openers[] = {
    {"<|im_start|>", ROLE_UNKNOWN},            /* ChatML: Qwen, SmolLM, and many more */
    {"<|start_header_id|>", ROLE_UNKNOWN},     /* Llama 3 */
    {"<|header_start|>", ROLE_UNKNOWN},        /* Llama 4 */
    {"<start_of_turn>", ROLE_UNKNOWN},         /* Gemma */
    {"<|turn>", ROLE_UNKNOWN},                 /* Gemma 4 */
    {"<|START_OF_TURN_TOKEN|>", ROLE_UNKNOWN}, /* Command R */
    {"<|start_of_role|>", ROLE_UNKNOWN},       /* Granite */
    {"<|start|>", ROLE_UNKNOWN},               /* gpt-oss */
    {"<seed:bos>", ROLE_UNKNOWN},              /* Seed-OSS */
    {"]~b]", ROLE_UNKNOWN},                    /* MiniMax */
    {"<role>", ROLE_UNKNOWN},                  /* Ling */
    {"<|system|>", ROLE_SYSTEM},               /* Phi, GLM, Falcon 3, OLMo */
    {"<|user|>", ROLE_USER},
    {"<|assistant|>", ROLE_ASSISTANT},
    {"<|observation|>", ROLE_TOOL},
    {"<|im_system|>", ROLE_SYSTEM}, /* Kimi */
    {"<|im_user|>", ROLE_USER},
    {"<|im_assistant|>", ROLE_ASSISTANT},
    {"<|system_start|>", ROLE_SYSTEM}, /* Apertus */
    {"<|developer_start|>", ROLE_SYSTEM},
    {"<|user_start|>", ROLE_USER},
    {"<|assistant_start|>", ROLE_ASSISTANT},
    {"[|system|]", ROLE_SYSTEM}, /* EXAONE */
    {"[|user|]", ROLE_USER},
    {"[|assistant|]", ROLE_ASSISTANT},
    {"[|tool|]", ROLE_TOOL},
    {"[SYSTEM_PROMPT]", ROLE_SYSTEM}, /* Mistral: the answer has no opener of its own */
    {"[INST]", ROLE_USER},
    {"[TOOL_RESULTS]", ROLE_TOOL},
    {"<\uff5cUser\uff5c>", ROLE_USER}, /* DeepSeek: the system message has none */
    {"<\uff5cAssistant\uff5c>", ROLE_ASSISTANT},
};

static const struct {
    const char *word;
    enum role role;
} roles[] = {
    {"system", ROLE_SYSTEM},     {"developer", ROLE_SYSTEM},    {"user", ROLE_USER},
    {"human", ROLE_USER},        {"assistant", ROLE_ASSISTANT}, {"model", ROLE_ASSISTANT},
    {"chatbot", ROLE_ASSISTANT}, {"ai", ROLE_ASSISTANT},        {"tool", ROLE_TOOL},
    {"ipython", ROLE_TOOL},      {"observation", ROLE_TOOL},    {"function", ROLE_TOOL},
};

enum {
    N_MEMOS = 64,
    HEAD_BYTES = 96, /* holds every role, what closes it and "<tool_response>" */
    HEAD_TOKENS = HEAD_BYTES,
};

struct walk {
    const struct tokenizer *tokenizer;
    const int32_t *ids;
    size_t n;
    /* What control tokens seen before are, by id % N_MEMOS. */
    struct memo {
        int32_t id;
        const struct opener *opener;
    } memos[N_MEMOS];
};

static const struct opener *find_opener(const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *s = tokenizer_piece(t, id, true, &n);

    for (size_t i = 0; i < sizeof openers / sizeof openers[0]; i++)
        if (strlen(openers[i].text) == n && memcmp(openers[i].text, s, n) == 0)
            return &openers[i];
    return NULL;
}

/* What the token at `i` opens, or NULL. */
static const struct opener *opener_at(struct walk *w, size_t i)
{
    const int32_t id = w->ids[i];
    const enum token_kind kind = tokenizer_kind(w->tokenizer, id);
    struct memo *m;

    if (kind != TOKEN_CONTROL && kind != TOKEN_USER)
        return NULL;
    m = &w->memos[(uint32_t)id % N_MEMOS];
    if (m->id != id)
        *m = (struct memo){id, find_opener(w->tokenizer, id)};
    return m->opener;
}

/* The beginning of the message whose opener stands at `i`, NUL-terminated. */
static void read_head(struct walk *w, size_t i, char head[HEAD_BYTES + 1])
{
    size_t len = 0, end = w->n - i > HEAD_TOKENS ? i + HEAD_TOKENS : w->n;

    for (size_t k = i + 1; k < end && len < HEAD_BYTES && !opener_at(w, k); k++) {
        size_t n;
        const char *s = tokenizer_piece_after(w->tokenizer, w->ids[k - 1], w->ids[k], true, &n);

        n = n > HEAD_BYTES - len ? HEAD_BYTES - len : n;
        memcpy(head + len, s, n);
        len += n;
    }
    head[len] = '\0';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The role that a head begins with; *s moves behind it. */
static enum role read_role(const char **s)
{
    const char *p;

    if (**s == '\0')
        return ROLE_UNKNOWN;
    p = *s + (strncmp(*s, "<|", 2) == 0 ? 2 : 0); /* <|USER_TOKEN|> */
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        size_t n = strlen(roles[i].word);

        if (strncasecmp(p, roles[i].word, n) != 0 || is_letter(p[n]))
            continue;
        *s = p + n;
        return roles[i].role;
    }
    return ROLE_UNKNOWN;
}

/* Whether the text behind a role begins with a tool's answer. */
static bool is_tool_answer(const char *s)
{
    static const char answer[] = "<tool_response>";

    /* What closes the role: "<|end_header_id|>", "_TOKEN|>", a newline. */
    for (;;) {
        const char *end = *s == '_' || strncmp(s, "<|", 2) == 0 ? strchr(s, '>') : NULL;

        if (end)
            s = end + 1;
        else if (*s == '\n' || *s == ' ')
            s++;
        else
            return strncmp(s, answer, sizeof answer - 1) == 0;
    }
}

static enum role role_of(struct walk *w, size_t i, const struct opener *o)
{
    char head[HEAD_BYTES + 1];
    const char *s = head;
    enum role role = o->role;

    if (role != ROLE_UNKNOWN && role != ROLE_USER)
        return role;
    read_head(w, i, head);
    if (role == ROLE_UNKNOWN)
        role = read_role(&s);
    return role == ROLE_USER && is_tool_answer(s) ? ROLE_TOOL : role;
}

void boundaries_find(const struct tokenizer *t, const int32_t *ids, size_t n,
                     struct boundaries *ret)
{
    struct walk w = {.tokenizer = t, .ids = ids, .n = n};
    struct boundaries b = {0};
    enum role first = ROLE_UNKNOWN;
    bool opens = true;  /* only control tokens so far */
    bool wants = false; /* a real user message has had no answer yet */
    uint32_t n_found = 0;

    assert(n <= UINT32_MAX);
    for (size_t i = 0; i < N_MEMOS; i++)
        w.memos[i].id = -1;
    for (size_t i = 0; i < n; i++) {
        const struct opener *o = opener_at(&w, i);
        enum role role;

        if (!o) {
            if (n_found == 0 && tokenizer_kind(t, ids[i]) != TOKEN_CONTROL)
                opens = false;
            continue;
        }
        role = role_of(&w, i, o);
        if (n_found == 0)
            first = role;
        else if (n_found == 1 && opens && (first == ROLE_SYSTEM || first == ROLE_UNKNOWN))
            b.root = (uint32_t)i;
        n_found++;
        b.turn = (uint32_t)i;
        if (role == ROLE_USER) {
            wants = true;
            b.query = 0;
        } else if (role == ROLE_ASSISTANT && wants) {
            wants = false;
            b.query = (uint32_t)i;
        }
    }
    *ret = b;
}

uint32_t boundaries_last(const struct tokenizer *t, const int32_t *ids, size_t n)
{
    struct walk w = {.tokenizer = t, .ids = ids, .n = n};

    for (size_t k = 0; k < N_MEMOS; k++)
        w.memos[k].id = -1;
    while (n-- > 1)
        if (opener_at(&w, n))
            return (uint32_t)n;
    return 0;
}
