/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that lists of patterns are made of: runs of one kind of character, and cuts. */
#include "engine/tok_scan.h"

#include "engine/tok_scan_text.h"

typedef bool in_fn(uint32_t cp);

/* IN+ */
static inline size_t runs(const struct scan_text *t, size_t end, size_t i, in_fn *in)
{
    size_t len;
    bool inside = in(code_at(t->s + i, &len));

    do
        i += len;
    while (i < end && in(code_at(t->s + i, &len)) == inside);
    return i;
}

/* IN */
static inline size_t each(const struct scan_text *t, size_t end, size_t i, in_fn *in)
{
    size_t len;

    return in(code_at(t->s + i, &len)) ? i + len : runs(t, end, i, in);
}

/* SPACE?IN+ */
static inline size_t spaced_runs(const struct scan_text *t, size_t end, size_t i, in_fn *space,
                                 in_fn *in)
{
    for (size_t j = i, len, next_len; j < end; j += len) {
        uint32_t cp = code_at(t->s + j, &len);
        size_t word = in(cp) ? j
                      : space(cp) && j + len < end && in(code_at(t->s + j + len, &next_len))
                          ? j + len
                          : end;

        if (word < end)
            return j > i ? j : runs(t, end, word, in);
    }
    return end;
}

static bool is_number(uint32_t cp)
{
    return unicode_is(cp, UNICODE_NUMBERS);
}

static bool is_letter(uint32_t cp)
{
    return unicode_is(cp, UNICODE_LETTERS);
}

static bool is_punctuation(uint32_t cp)
{
    return unicode_is(cp, UNICODE_PUNCTUATIONS);
}

static bool is_space(uint32_t cp)
{
    return unicode_class_of(cp) == UNICODE_SPACE;
}

static bool is_blank(uint32_t cp)
{
    return cp == ' ';
}

static bool is_line_end(uint32_t cp)
{
    return cp == '\r' || cp == '\n';
}

/* All symbols of ASCII but the backquote are listed: $+<=>^~| */
static bool is_default_mark(uint32_t cp)
{
    return is_punctuation(cp) || (cp < 0x80 && cp != '`' && unicode_is(cp, UNICODE_SYMBOLS));
}

static bool is_falcon_mark(uint32_t cp)
{
    return is_punctuation(cp) || (cp < 0x80 && unicode_is(cp, UNICODE_SYMBOLS));
}

static bool is_wide_ascii(uint32_t cp)
{
    return (cp >= 0x21 && cp <= 0x2F) || (cp >= 0x3A && cp <= 0x7E) ||
           (cp >= 0xFF01 && cp <= 0xFF0F) || (cp >= 0xFF1A && cp <= 0xFF5E) ||
           (cp >= 0x2018 && cp <= 0x201F) || (cp >= 0x3000 && cp <= 0x3002);
}

static bool is_asian(uint32_t cp)
{
    return (cp >= 0x800 && cp <= 0x9FA5) || (cp >= 0xAC00 && cp <= 0xD7FF);
}

static bool is_han_kana(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

static bool is_poro(uint32_t cp)
{
    static const uint32_t others[] = {'(',    '|',    '.',    ',',    '!',   '?',   ')',
                                      0x2026, 0x3002, 0xFF0C, 0x3001, 0x964, 0x6D4, 0x60C};

    if (unicode_is(cp, UNICODE_LETTERS | UNICODE_NUMBERS))
        return true;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (cp == others[i])
            return false;
    return !is_space(cp);
}

/* Letters with upper and lower case as deepseek-llm lists them (an older Unicode). */
static const uint32_t cased[][2] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

static bool is_cased(uint32_t cp)
{
    size_t lo = 0, hi = sizeof(cased) / sizeof(cased[0]);

    if (cp < 0x80)
        return is_letter(cp);
    /* The last range that begins at or before cp, if any. */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (cased[mid][0] <= cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && cp <= cased[lo - 1][1];
}

size_t scan_numbers(struct scan_text *t, size_t end, size_t i)
{
    return runs(t, end, i, is_number);
}

size_t scan_each_number(struct scan_text *t, size_t end, size_t i)
{
    return each(t, end, i, is_number);
}

size_t scan_each_newline(struct scan_text *t, size_t end, size_t i)
{
    return each(t, end, i, is_line_end);
}

size_t scan_default_marks(struct scan_text *t, size_t end, size_t i)
{
    return runs(t, end, i, is_default_mark);
}

size_t scan_falcon_marks(struct scan_text *t, size_t end, size_t i)
{
    return runs(t, end, i, is_falcon_mark);
}

size_t scan_spaced_letters(struct scan_text *t, size_t end, size_t i)
{
    return spaced_runs(t, end, i, is_space, is_letter);
}

size_t scan_spaced_marks(struct scan_text *t, size_t end, size_t i)
{
    return spaced_runs(t, end, i, is_space, is_punctuation);
}

size_t scan_spaced_cased(struct scan_text *t, size_t end, size_t i)
{
    return spaced_runs(t, end, i, is_space, is_cased);
}

size_t scan_spaced_ascii(struct scan_text *t, size_t end, size_t i)
{
    return spaced_runs(t, end, i, is_space, is_wide_ascii);
}

size_t scan_poro(struct scan_text *t, size_t end, size_t i)
{
    return spaced_runs(t, end, i, is_blank, is_poro);
}

size_t scan_asian(struct scan_text *t, size_t end, size_t i)
{
    return runs(t, end, i, is_asian);
}

size_t scan_han_kana(struct scan_text *t, size_t end, size_t i)
{
    return runs(t, end, i, is_han_kana);
}

size_t scan_last_spaces(struct scan_text *t, size_t end, size_t i)
{
    size_t begin = i, len;

    for (size_t j = i; j < end; j += len)
        if (!is_space(code_at(t->s + j, &len)))
            begin = j + len;
    return begin > i && begin < end ? begin : end;
}

size_t scan_numbers_by_three(struct scan_text *t, size_t end, size_t i)
{
    size_t len, n = 0, j = i;

    while (n < 3 && j < end && is_number(code_at(t->s + j, &len))) {
        j += len;
        n++;
    }
    return n ? j : runs(t, end, i, is_number);
}

static bool three_digits(const char *s, size_t end, size_t i)
{
    for (size_t k = 0; k < 3; k++)
        if (i + k >= end || s[i + k] < '0' || s[i + k] > '9')
            return false;
    return true;
}

size_t scan_three_digits(struct scan_text *t, size_t end, size_t i)
{
    if (three_digits(t->s, end, i))
        return i + 3;
    while (i < end && !three_digits(t->s, end, i))
        i++;
    return i;
}

/* n code points further than i. */
static size_t forward(const char *s, size_t i, size_t n)
{
    for (size_t len; n > 0; n--, i += len)
        (void)code_at(s + i, &len);
    return i;
}

/* The end of the run of \d that begins at i, which holds *ret_n of them. */
static size_t digits_end(const char *s, size_t end, size_t i, size_t *ret_n)
{
    size_t len;

    for (*ret_n = 0; class_at(s, end, i, &len) == UNICODE_DIGIT; i += len)
        ++*ret_n;
    return i;
}

/* A cut wherever a multiple of three digits is left up to the end of their run. */
size_t scan_superbpe(struct scan_text *t, size_t end, size_t i)
{
    size_t j = i, len, n;

    if (i < t->digits_end) {
        j = forward(t->s, i, 3);
        if (j < t->digits_end)
            return j;
    }
    while (j < end) {
        size_t run = digits_end(t->s, end, j, &n), first = n % 3;

        if (j == i && first == 0)
            first = 3;
        if (n > first) {
            t->digits_end = run;
            return forward(t->s, j, first);
        }
        j = run;
        if (j < end && n == 0) {
            (void)code_at(t->s + j, &len);
            j += len;
        }
    }
    return end;
}

/* \w, as the Python module regex has it. */
static bool is_word(uint32_t cp)
{
    static const unsigned int set = UNICODE_LETTERS | UNICODE_MARKS | UNICODE_BIT(UNICODE_DIGIT) |
                                    UNICODE_BIT(UNICODE_LETTER_NUMBER) |
                                    UNICODE_BIT(UNICODE_CONNECTOR);

    return unicode_is(cp, set) || cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
           (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
           (cp >= 0x1F170 && cp <= 0x1F189);
}

/* Digits in threes from the right, in runs that end where a word does. */
size_t scan_tiny_aya(struct scan_text *t, size_t end, size_t i)
{
    size_t n, len;

    if (i < t->digits_end)
        return forward(t->s, i, 3);
    for (size_t j = i; j < end; j += len) {
        size_t run = digits_end(t->s, end, j, &n);

        if (n && (run == end || !is_word(code_at(t->s + run, &len)))) {
            if (j > i)
                return j;
            t->digits_end = run;
            return forward(t->s, i, n % 3 ? n % 3 : 3);
        }
        len = run - j;
        if (n == 0)
            (void)code_at(t->s + j, &len);
    }
    return end;
}
