/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_pretok.h"

#include "engine/tok_unicode.h"
#include "util/utf8.h"

#include <string.h>

/*
 * gpt-2 names without the encoders that want separators (jina-v1-en, roberta-bpe, ...): those are
 * not generative models and are refused with the unknown names.
 */
static const struct pretok_rule rules[] = {
    {"default", PRETOK_DEFAULT, false, false},

    {"gpt-2", PRETOK_GPT2, false, false},
    {"gpt2", PRETOK_GPT2, false, false},
    {"phi-2", PRETOK_GPT2, false, false},
    {"gigachat", PRETOK_GPT2, false, false},
    {"a.x-4.0", PRETOK_GPT2, false, false},
    {"mellum", PRETOK_GPT2, false, false},
    {"mpt", PRETOK_GPT2, false, false},
    {"olmo", PRETOK_GPT2, false, false},
    {"jais", PRETOK_GPT2, false, false},
    {"trillion", PRETOK_GPT2, false, false},
    {"granite-docling", PRETOK_GPT2, false, false},
    {"exaone4", PRETOK_GPT2, false, false},

    {"smollm", PRETOK_SMOLLM, false, false},
    {"starcoder", PRETOK_SMOLLM, false, false},
    {"refact", PRETOK_SMOLLM, false, false},
    {"command-r", PRETOK_SMOLLM, false, false},
    {"codeshell", PRETOK_SMOLLM, false, false},
    {"exaone", PRETOK_SMOLLM, false, false},
    {"minerva-7b", PRETOK_SMOLLM, false, false},

    {"llama-bpe", PRETOK_LLAMA3, true, true},
    {"llama3", PRETOK_LLAMA3, true, true},
    {"llama-v3", PRETOK_LLAMA3, true, true},
    {"falcon3", PRETOK_LLAMA3, true, true},
    {"falcon-h1", PRETOK_LLAMA3, true, true},
    {"pixtral", PRETOK_LLAMA3, true, true},
    {"midm-2.0", PRETOK_LLAMA3, true, true},
    {"lfm2", PRETOK_LLAMA3, true, true},
    {"dbrx", PRETOK_LLAMA3, false, false},
    {"smaug-bpe", PRETOK_LLAMA3, false, false},
    {"glm4", PRETOK_LLAMA3, false, false},
    {"chatglm-bpe", PRETOK_LLAMA3, false, false},

    {"qwen2", PRETOK_QWEN2, false, false},
    {"deepseek-r1-qwen", PRETOK_QWEN2, false, false},
    {"kormo", PRETOK_QWEN2, false, false},
    {"megrez", PRETOK_QWEN2, false, false},
    {"stablelm2", PRETOK_QWEN2, false, false},
    {"hunyuan", PRETOK_QWEN2, false, false},
    {"solar-open", PRETOK_QWEN2, false, false},
    {"grok-2", PRETOK_QWEN2, false, false},

    {"qwen35", PRETOK_QWEN35, false, false},
};

const struct pretok_rule *pretok_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strlen(rules[i].name) == n && memcmp(rules[i].name, name, n) == 0)
            return &rules[i];
    return NULL;
}

/* Sets of classes, so that a scanner can ask for "letter or mark" at once. */
#define BIT(c) (1u << (c))
enum {
    LETTERS = BIT(UNICODE_LETTER),
    MARKS = BIT(UNICODE_MARK),
    NUMBERS = BIT(UNICODE_NUMBER),
    SPACES = BIT(UNICODE_SPACE),
    ALL = BIT(UNICODE_N) - 1,
};

/* The class of the code point at i and its length; UNICODE_N and 0 at the end. */
static inline enum unicode_class class_at(const char *s, size_t end, size_t i, size_t *ret_len)
{
    if (i >= end) {
        *ret_len = 0;
        return UNICODE_N;
    }
    if ((unsigned char)s[i] < 0x80) {
        *ret_len = 1;
        return (enum unicode_class)unicode_ascii_class[(unsigned char)s[i]];
    }
    return unicode_class_of(utf8_decode(s + i, end - i, ret_len));
}

static inline bool is_in(enum unicode_class c, unsigned int set)
{
    return (BIT(c) & set) != 0;
}

/* The end of the run of code points of `set` that begins at i. */
static size_t run_end(const char *s, size_t end, size_t i, unsigned int set)
{
    size_t len;

    while (is_in(class_at(s, end, i, &len), set))
        i += len;
    return i;
}

static inline bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* 's 't 'm 'd 're 've 'll at i: its length, or 0. */
static size_t contraction(const char *s, size_t end, size_t i, bool any_case)
{
    char fold = any_case ? 0x20 : 0, a, b;

    if (s[i] != '\'' || end - i < 2)
        return 0;
    a = (char)(s[i + 1] | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - i < 3)
        return 0;
    b = (char)(s[i + 2] | fold);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/*
 * White space from i on (`\s+(?!\S)|\s+`): the last character of a run stays with what follows,
 * unless nothing does or it is the only one.  With `newlines` a run first ends behind its last line
 * break.
 */
static size_t space_piece(const char *s, size_t end, size_t i, bool newlines)
{
    size_t j = i, last = i, after_newline = 0, len;

    while (class_at(s, end, j, &len) == UNICODE_SPACE) {
        last = j;
        if (newlines && is_newline(s[j]))
            after_newline = j + 1;
        j += len;
    }
    if (after_newline)
        return after_newline;
    return j < end && last > i ? last : j;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_piece(const char *s, size_t end, size_t i)
{
    size_t n = contraction(s, end, i, false), j = i, len;
    enum unicode_class c;

    if (n)
        return i + n;
    if (s[i] == ' ')
        j++;
    c = class_at(s, end, j, &len);
    if (c == UNICODE_LETTER)
        return run_end(s, end, j, LETTERS);
    if (c == UNICODE_NUMBER)
        return run_end(s, end, j, NUMBERS);
    if (is_in(c, ALL & ~SPACES))
        return run_end(s, end, j, ALL & ~(LETTERS | NUMBERS | SPACES));
    return space_piece(s, end, i, false);
}

/*
 * (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,DIGITS}| ?[^\s L \p{N}]+[\r\n]*
 *     |\s*[\r\n]+|\s+(?!\S)|\s+          where L is the set `letters`
 */
static size_t llama3_piece(const char *s, size_t end, size_t i, unsigned int letters,
                           unsigned int n_digits)
{
    const unsigned int others = ALL & ~(letters | NUMBERS | SPACES);
    size_t n = contraction(s, end, i, true), len, next_len, j;
    enum unicode_class c, next;

    if (n)
        return i + n;
    c = class_at(s, end, i, &len);
    if (is_in(c, letters))
        return run_end(s, end, i + len, letters);
    if (c == UNICODE_NUMBER) {
        for (j = i + len; --n_digits && class_at(s, end, j, &len) == UNICODE_NUMBER;)
            j += len;
        return j;
    }
    next = class_at(s, end, i + len, &next_len);
    if (!is_newline(s[i]) && is_in(next, letters))
        return run_end(s, end, i + len + next_len, letters);

    j = i;
    if (s[i] == ' ') {
        j++;
        c = next;
    }
    if (is_in(c, others)) {
        j = run_end(s, end, j, others);
        while (j < end && is_newline(s[j]))
            j++;
        return j;
    }
    return space_piece(s, end, i, true);
}

/* \p{N} apart, then gpt-2 on what lies between. */
static size_t smollm_piece(struct pretok_scan *p)
{
    size_t len;

    if (class_at(p->s, p->n, p->pos, &len) == UNICODE_NUMBER)
        return p->pos + len;
    if (p->pos >= p->segment_end)
        p->segment_end = run_end(p->s, p->n, p->pos, ALL & ~NUMBERS);
    return gpt2_piece(p->s, p->segment_end, p->pos);
}

/* [\p{P}\$\+<=>\^~\|] */
static bool is_default_punctuation(const char *s, enum unicode_class c)
{
    return c == UNICODE_PUNCTUATION || (c == UNICODE_SYMBOL && strchr("$+<=>^~|", *s));
}

static bool three_digits(const char *s, size_t end, size_t i)
{
    for (size_t k = 0; k < 3; k++)
        if (i + k >= end || s[i + k] < '0' || s[i + k] > '9')
            return false;
    return true;
}

/* Within a run of numbers: [0-9][0-9][0-9], and what lies between such. */
static size_t digits_piece(const char *s, size_t end, size_t i)
{
    if (three_digits(s, end, i))
        return i + 3;
    while (i < end && !three_digits(s, end, i))
        i++;
    return i;
}

/* Runs of punctuation apart; gpt-2 on the rest; runs of numbers apart; three digits apart. */
static size_t default_piece(struct pretok_scan *p)
{
    const char *s = p->s;
    size_t len, end;

    if (p->pos < p->number_end)
        return digits_piece(s, p->number_end, p->pos);

    if (p->pos >= p->segment_end) {
        size_t i = p->pos;
        enum unicode_class c = class_at(s, p->n, i, &len);

        p->punctuation = is_default_punctuation(s + i, c);
        do {
            i += len;
            c = class_at(s, p->n, i, &len);
        } while (c != UNICODE_N && is_default_punctuation(s + i, c) == p->punctuation);
        p->segment_end = i;
    }
    /* gpt-2 takes a segment of nothing but punctuation as one piece. */
    if (p->punctuation)
        return p->segment_end;

    end = gpt2_piece(s, p->segment_end, p->pos);
    if (class_at(s, end, p->pos, &len) == UNICODE_NUMBER) {
        p->number_end = end;
        return digits_piece(s, end, p->pos);
    }
    if (s[p->pos] == ' ' && class_at(s, end, p->pos + 1, &len) == UNICODE_NUMBER) {
        p->number_end = end;
        return p->pos + 1;
    }
    return end;
}

void pretok_init(struct pretok_scan *p, enum pretok_kind kind, const char *s, size_t n)
{
    *p = (struct pretok_scan){.kind = kind, .s = s, .n = n};
}

size_t pretok_next(struct pretok_scan *p)
{
    switch (p->kind) {
    case PRETOK_GPT2:
        return p->pos = gpt2_piece(p->s, p->n, p->pos);
    case PRETOK_DEFAULT:
        return p->pos = default_piece(p);
    case PRETOK_SMOLLM:
        return p->pos = smollm_piece(p);
    case PRETOK_LLAMA3:
        return p->pos = llama3_piece(p->s, p->n, p->pos, LETTERS, 3);
    case PRETOK_QWEN2:
        return p->pos = llama3_piece(p->s, p->n, p->pos, LETTERS, 1);
    case PRETOK_QWEN35:
        return p->pos = llama3_piece(p->s, p->n, p->pos, LETTERS | MARKS, 1);
    case PRETOK_N:
        break;
    }
    return p->pos = p->n;
}
