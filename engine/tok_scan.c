/* SPDX-License-Identifier: Apache-2.0 */
/* The scanners that cut everything: words, numbers, signs and white space of the large families. */
#include "engine/tok_scan.h"

#include "engine/tok_scan_text.h"

/* 's 't 'm 'd 're 've 'll at i: its length, or 0. */
static size_t contraction(const char *s, size_t end, size_t i, bool any_case)
{
    char fold = any_case ? 0x20 : 0, a, b;

    if (end - i < 2 || s[i] != '\'')
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
 * break (`\s*[\r\n]+`).
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
size_t scan_gpt2(struct scan_text *t, size_t end, size_t i)
{
    const char *s = t->s;
    size_t n = contraction(s, end, i, false), j = i, len;
    enum unicode_class c;

    if (n)
        return i + n;
    if (s[i] == ' ')
        j++;
    c = class_at(s, end, j, &len);
    if (is_in(c, UNICODE_LETTERS))
        return run_end(s, end, j + len, UNICODE_LETTERS);
    if (is_in(c, UNICODE_NUMBERS))
        return run_end(s, end, j + len, UNICODE_NUMBERS);
    if (is_in(c, UNICODE_ALL & ~UNICODE_SPACES))
        return run_end(s, end, j + len,
                       UNICODE_ALL & ~(UNICODE_LETTERS | UNICODE_NUMBERS | UNICODE_SPACES));
    return space_piece(s, end, i, false);
}

/* \p{N}{1,DIGITS}, i being behind the first. */
static size_t numbers_end(const char *s, size_t end, size_t i, unsigned int n_digits)
{
    size_t len;

    while (--n_digits && is_in(class_at(s, end, i, &len), UNICODE_NUMBERS))
        i += len;
    return i;
}

/* What makes a family out of the pattern that llama3 began. */
struct family {
    unsigned int letters; /* the set L */
    unsigned int n_digits;
    const char *tail; /* what may follow signs */
};

/*
 * (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,DIGITS}| ?[^\s L \p{N}]+[TAIL]*
 *     |\s*[\r\n]+|\s+(?!\S)|\s+
 */
static inline size_t llama3_piece(const char *s, size_t end, size_t i, struct family f)
{
    const unsigned int others = UNICODE_ALL & ~(f.letters | UNICODE_NUMBERS | UNICODE_SPACES);
    size_t n = contraction(s, end, i, true), len, next_len;
    enum unicode_class c, next;

    if (n)
        return i + n;
    c = class_at(s, end, i, &len);
    if (is_in(c, f.letters))
        return run_end(s, end, i + len, f.letters);
    if (is_in(c, UNICODE_NUMBERS))
        return numbers_end(s, end, i + len, f.n_digits);
    next = class_at(s, end, i + len, &next_len);
    if (!is_newline(s[i]) && is_in(next, f.letters))
        return run_end(s, end, i + len + next_len, f.letters);

    if (is_in(c, others))
        return tail_end(s, end, run_end(s, end, i + len, others), f.tail);
    if (s[i] == ' ' && is_in(next, others))
        return tail_end(s, end, run_end(s, end, i + len + next_len, others), f.tail);
    return space_piece(s, end, i, true);
}

size_t scan_llama3(struct scan_text *t, size_t end, size_t i)
{
    return llama3_piece(t->s, end, i, (struct family){UNICODE_LETTERS, 3, "\r\n"});
}

size_t scan_qwen2(struct scan_text *t, size_t end, size_t i)
{
    return llama3_piece(t->s, end, i, (struct family){UNICODE_LETTERS, 1, "\r\n"});
}

size_t scan_qwen35(struct scan_text *t, size_t end, size_t i)
{
    return llama3_piece(t->s, end, i, (struct family){UNICODE_LETTERS | UNICODE_MARKS, 1, "\r\n"});
}

size_t scan_seed_coder(struct scan_text *t, size_t end, size_t i)
{
    return llama3_piece(t->s, end, i, (struct family){UNICODE_LETTERS, 1, ""});
}

enum {
    BEGIN_WORD = /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    UNICODE_BIT(UNICODE_UPPER) | UNICODE_BIT(UNICODE_UNCASED) | UNICODE_MARKS,
    IN_WORD = /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    UNICODE_BIT(UNICODE_LOWER) | UNICODE_BIT(UNICODE_UNCASED) | UNICODE_MARKS,
};

/*
 * BEGIN*IN+ at i: its end, or i.  BEGIN takes all it can, and gives back what is behind the last
 * character that is in both sets when no lower case follows.
 */
static size_t cased_end(const char *s, size_t end, size_t i)
{
    size_t both = i, len;
    enum unicode_class c;

    while (is_in(c = class_at(s, end, i, &len), BEGIN_WORD)) {
        i += len;
        if (is_in(c, IN_WORD))
            both = i;
    }
    return c == UNICODE_LOWER ? run_end(s, end, i + len, IN_WORD) : both;
}

/*
 * PRE?BEGIN*IN+|PRE?BEGIN+IN* at i, PRE being [^\r\n\p{L}\p{N}]: its end, or i.  A mark can be PRE
 * as well as BEGIN and IN.
 */
static size_t word_end(const char *s, size_t end, size_t i)
{
    size_t len, begin = i, word;
    enum unicode_class c = class_at(s, end, i, &len);

    if (is_in(c, UNICODE_NUMBERS) || is_newline(s[i]))
        return i;
    if (!is_in(c, UNICODE_LETTERS)) {
        begin += len;
        word = cased_end(s, end, begin);
        if (word > begin)
            return word;
        if (c == UNICODE_MARK)
            return begin;
    } else {
        word = cased_end(s, end, i);
        if (word > i)
            return word;
    }
    word = run_end(s, end, begin, BEGIN_WORD);
    return word > begin ? word : i;
}

/* The two forms of a word, \p{N}{1,DIGITS}, and signs and white space as in llama3. */
static inline size_t tekken_piece(const char *s, size_t end, size_t i, unsigned int n_digits,
                                  bool contractions)
{
    const unsigned int others = UNICODE_ALL & ~(UNICODE_LETTERS | UNICODE_NUMBERS | UNICODE_SPACES);
    size_t word = word_end(s, end, i), len;
    enum unicode_class c;

    if (word > i)
        return word + (contractions ? contraction(s, end, word, true) : 0);
    c = class_at(s, end, i, &len);
    if (is_in(c, UNICODE_NUMBERS))
        return numbers_end(s, end, i + len, n_digits);
    if (s[i] == ' ' && is_in(class_at(s, end, i + 1, &len), others))
        return tail_end(s, end, run_end(s, end, i + 1 + len, others), "\r\n/");
    if (is_in(c, others))
        return tail_end(s, end, run_end(s, end, i, others), "\r\n/");
    return space_piece(s, end, i, true);
}

size_t scan_tekken(struct scan_text *t, size_t end, size_t i)
{
    return tekken_piece(t->s, end, i, 1, false);
}

size_t scan_gpt4o(struct scan_text *t, size_t end, size_t i)
{
    return tekken_piece(t->s, end, i, 3, true);
}

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
 *     |\s*[\r\n]+|\s+(?!\S)|\s+ at i: its end, or i.
 */
static size_t deepseek_v3_match(const char *s, size_t end, size_t i)
{
    const unsigned int letters = UNICODE_LETTERS | UNICODE_MARKS;
    const unsigned int signs = UNICODE_PUNCTUATIONS | UNICODE_SYMBOLS;
    size_t len, next_len, j;
    enum unicode_class c = class_at(s, end, i, &len), next;

    if (is_in(c, letters))
        return run_end(s, end, i + len, letters);
    next = class_at(s, end, i + len, &next_len);
    if (is_in(c, signs)) {
        /* A class of one byte is ASCII, and so are all its signs. */
        j = i + 1;
        if (len == 1 && j < end && is_ascii_letter(s[j])) {
            while (j < end && is_ascii_letter(s[j]))
                j++;
            return j;
        }
        return tail_end(s, end, run_end(s, end, i + len, signs), "\r\n");
    }
    if (!is_newline(s[i]) && is_in(next, letters))
        return run_end(s, end, i + len + next_len, letters);
    if (s[i] == ' ' && is_in(next, signs))
        return tail_end(s, end, run_end(s, end, i + len + next_len, signs), "\r\n");
    return c == UNICODE_SPACE ? space_piece(s, end, i, true) : i;
}

size_t scan_deepseek_v3(struct scan_text *t, size_t end, size_t i)
{
    size_t match = deepseek_v3_match(t->s, end, i), len;

    if (match > i)
        return match;
    /* A gap: what no alternative takes, up to where one does. */
    do {
        (void)class_at(t->s, end, i, &len);
        i += len;
    } while (i < end && deepseek_v3_match(t->s, end, i) == i);
    return i;
}
