/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From text to tokens, with the settings that model files are written for: trim_blocks (one newline
 * after a block tag or comment goes) and lstrip_blocks (blanks before one go, when it is the first
 * thing on its line); `-` takes all white space, `+` none.
 */
#include "engine/jinja_private.h"

#include "engine/tok_unicode.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_BRACKETS = 128 };

struct lexer {
    const char *s;
    size_t n, pos;
    size_t counted; /* lines up to here are in `line` */
    uint32_t line;
    bool line_starts; /* the last tag took a newline with it */
    struct jtokens *out;
    struct err_text *e;
};

void jtokens_done(struct jtokens *t)
{
    free(t->t);
    *t = (struct jtokens){0};
}

/* The line of byte `at`, which never goes back. */
static uint32_t line_of(struct lexer *x, size_t at)
{
    for (; x->counted < at; x->counted++)
        x->line += x->s[x->counted] == '\n';
    return x->line;
}

static int add(struct lexer *x, enum jtoken_kind kind, size_t begin, size_t end)
{
    struct jtokens *o = x->out;

    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 256;
        void *p = reallocarray(o->t, cap, sizeof(*o->t));

        if (!p)
            return err_set(x->e, -ENOMEM, "no memory for the template");
        o->t = p;
        o->cap = cap;
    }
    o->t[o->n++] = (struct jtoken){.kind = (uint8_t)kind,
                                   .line = line_of(x, begin),
                                   .s = x->s + begin,
                                   .n = (uint32_t)(end - begin)};
    return 0;
}

static bool at(const struct lexer *x, size_t pos, const char *what)
{
    size_t n = strlen(what);

    return pos <= x->n && x->n - pos >= n && memcmp(x->s + pos, what, n) == 0;
}

static size_t skip_space(const struct lexer *x, size_t pos)
{
    size_t end = x->n;

    jstr_strip(x->s, &pos, &end, NULL, 0, true, false);
    return pos;
}

/* The text before a tag; `sign` is what follows the tag's opening. */
static int add_text(struct lexer *x, size_t begin, size_t end, char sign, bool is_block)
{
    if (sign == '-') {
        jstr_strip(x->s, &begin, &end, NULL, 0, false, true);
    } else if (sign != '+' && is_block) {
        size_t line = end, stop = end;

        while (line > begin && x->s[line - 1] != '\n')
            line--;
        if (line > begin || x->line_starts) {
            size_t from = line;

            jstr_strip(x->s, &from, &stop, NULL, 0, true, false);
            if (from == stop)
                end = line;
        }
    }
    return end > begin ? add(x, JK_TEXT, begin, end) : 0;
}

/* Behind the end of a tag: what its sign (the byte before) and trim_blocks take along. */
static void end_tag(struct lexer *x, size_t end, char sign, bool trims)
{
    size_t pos = end;

    if (sign == '-')
        pos = skip_space(x, end);
    else if (sign != '+' && trims && at(x, end, "\n"))
        pos++;
    x->line_starts = x->s[pos - 1] == '\n';
    x->pos = pos;
}

/* {#...#}: x->pos is behind "{#" and its sign. */
static int comment(struct lexer *x)
{
    size_t end = jstr_find(x->s, x->n, x->pos, "#}", 2);
    char sign;

    if (end == SIZE_MAX)
        return err_set(x->e, ERR_DAMAGED, "line %u: a comment is not closed", line_of(x, x->pos));
    sign = end > x->pos ? x->s[end - 1] : ' ';
    end_tag(x, end + 2, sign, true);
    return 0;
}

/* Behind `{%` and a sign: whether this is `raw %}`, and where its text begins. */
static bool raw_begins(const struct lexer *x, size_t pos, size_t *ret)
{
    pos = skip_space(x, pos);
    if (!at(x, pos, "raw"))
        return false;
    pos = skip_space(x, pos + 3);
    if (at(x, pos, "-%}")) {
        *ret = skip_space(x, pos + 3);
        return true;
    }
    *ret = pos + 2;
    return at(x, pos, "%}");
}

static int raw(struct lexer *x, size_t begin)
{
    for (size_t p = begin; (p = jstr_find(x->s, x->n, p, "{%", 2)) != SIZE_MAX; p += 2) {
        size_t q = p + 2;
        char sign = ' ', end_sign = ' ';
        int r;

        if (at(x, q, "-") || at(x, q, "+"))
            sign = x->s[q++];
        q = skip_space(x, q);
        if (!at(x, q, "endraw"))
            continue;
        q = skip_space(x, q + 6);
        if (at(x, q, "-") || at(x, q, "+"))
            end_sign = x->s[q++];
        if (!at(x, q, "%}"))
            continue;
        x->line_starts = x->s[begin - 1] == '\n';
        r = add_text(x, begin, p, sign, true);
        end_tag(x, q + 2, end_sign, true);
        return r;
    }
    return err_set(x->e, ERR_DAMAGED, "line %u: raw is not closed", line_of(x, begin));
}

/* --- inside a tag ------------------------------------------------------------------------------
 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const struct lexer *x, size_t p)
{
    while (p < x->n &&
           (is_digit(x->s[p]) || (x->s[p] == '_' && p + 1 < x->n && is_digit(x->s[p + 1]))))
        p++;
    return p;
}

static int number(struct lexer *x)
{
    size_t begin = x->pos, p, q;
    enum jtoken_kind kind = JK_INT;
    bool is_based = x->s[begin] == '0' && begin + 1 < x->n &&
                    memchr("xXoObB", x->s[begin + 1], 6) && begin + 2 < x->n;

    if (is_based) {
        p = begin + 2;
        while (p < x->n && (is_digit(x->s[p]) ||
                            (x->s[p] != '_' && (x->s[p] | 0x20) >= 'a' && (x->s[p] | 0x20) <= 'f')))
            p++;
        if (p == begin + 2)
            return err_set(x->e, ERR_DAMAGED, "line %u: a number without digits",
                           line_of(x, begin));
    } else {
        p = digits(x, begin);
        /* a.0.1 are two subscripts */
        if (begin > 0 && x->s[begin - 1] == '.')
            goto out;
        if (p + 1 < x->n && x->s[p] == '.' && is_digit(x->s[p + 1])) {
            p = digits(x, p + 1);
            kind = JK_FLOAT;
        }
        if (p < x->n && (x->s[p] | 0x20) == 'e') {
            q = p + 1;
            if (at(x, q, "+") || at(x, q, "-"))
                q++;
            if (q < x->n && is_digit(x->s[q])) {
                p = digits(x, q);
                kind = JK_FLOAT;
            }
        }
    }
out:
    x->pos = p;
    return add(x, kind, begin, p);
}

static int string(struct lexer *x)
{
    char quote = x->s[x->pos];

    for (size_t p = x->pos + 1; p < x->n; p++) {
        if (x->s[p] == '\\') {
            p++;
        } else if (x->s[p] == quote) {
            size_t begin = x->pos;

            x->pos = p + 1;
            return add(x, JK_STRING, begin, p + 1);
        }
    }
    return err_set(x->e, ERR_DAMAGED, "line %u: a string is not closed", line_of(x, x->pos));
}

/* The length of the name at `p`, 0 when there is none. */
static size_t name_length(const struct lexer *x, size_t p)
{
    size_t begin = p, len;

    while (p < x->n) {
        unsigned char c = (unsigned char)x->s[p];

        len = 1;
        if (c < 0x80) {
            bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';

            if (!is_letter && c != '_' && !(p > begin && is_digit((char)c)))
                break;
        } else {
            uint32_t cp = utf8_decode(x->s + p, x->n - p, &len);

            if (!unicode_is(cp, UNICODE_LETTERS | (p > begin ? UNICODE_MARKS : 0)))
                break;
        }
        p += len;
    }
    return p - begin;
}

static int operator(struct lexer *x, char *open, uint32_t *n_open)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = x->s[x->pos], shown[8];
    size_t n = 1;

    for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++)
        if (at(x, x->pos, two[i]))
            n = 2;
    if (n == 1 && (c == '\0' || !strchr("+-/*%~[](){}=.:|,;<>", c)))
        return err_set(x->e, ERR_DAMAGED, "line %u: unexpected character '%s'", line_of(x, x->pos),
                       err_escape(shown, sizeof(shown), &c, 1));
    if (c == '(' || c == '[' || c == '{') {
        if (*n_open == MAX_BRACKETS)
            return err_set(x->e, ERR_UNSUPPORTED, "line %u: brackets are nested too deeply",
                           line_of(x, x->pos));
        open[(*n_open)++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (*n_open == 0 || open[*n_open - 1] != c)
            return err_set(x->e, ERR_DAMAGED, "line %u: unexpected '%c'", line_of(x, x->pos), c);
        (*n_open)--;
    }
    x->pos += n;
    return add(x, JK_OP, x->pos - n, x->pos);
}

/* Up to and with the tag's end, `%}` or `}}`. */
static int inside(struct lexer *x, const char *end, enum jtoken_kind end_kind, size_t begin)
{
    char open[MAX_BRACKETS];
    uint32_t n_open = 0;
    bool is_block = end_kind == JK_BLOCK_END;
    uint32_t line = line_of(x, begin);
    int r = 0;

    for (;;) {
        size_t p = x->pos = skip_space(x, x->pos), n;
        char sign = ' ', c;

        if (p >= x->n)
            return err_set(x->e, ERR_DAMAGED, "line %u: a tag is not closed with %s", line, end);
        c = x->s[p];
        if (n_open == 0 && (c == '-' || (c == '+' && is_block)) && at(x, p + 1, end)) {
            sign = c;
            p++;
        }
        if (n_open == 0 && at(x, p, end)) {
            r = add(x, end_kind, p, p + 2);
            end_tag(x, p + 2, sign, is_block);
            return r;
        }
        n = name_length(x, p);
        if (n > 0) {
            x->pos += n;
            r = add(x, JK_NAME, p, p + n);
        } else if (is_digit(c)) {
            r = number(x);
        } else if (c == '\'' || c == '"') {
            r = string(x);
        } else {
            r = operator(x, open, &n_open);
        }
        if (r < 0)
            return r;
    }
}

static int next_tag(struct lexer *x, size_t begin, size_t tag)
{
    char kind = x->s[tag + 1], sign = ' ';
    size_t p = tag + 2, raw_text;
    int r;

    if (at(x, p, "-") || at(x, p, "+"))
        sign = x->s[p++];
    r = add_text(x, begin, tag, sign, kind != '{');
    if (r < 0)
        return r;
    x->pos = p;
    if (kind == '#')
        return comment(x);
    if (kind == '{') {
        r = add(x, JK_PRINT_BEGIN, tag, tag + 2);
        return r < 0 ? r : inside(x, "}}", JK_PRINT_END, tag);
    }
    if (raw_begins(x, p, &raw_text))
        return raw(x, raw_text);
    r = add(x, JK_BLOCK_BEGIN, tag, tag + 2);
    return r < 0 ? r : inside(x, "%}", JK_BLOCK_END, tag);
}

int jlex(const char *source, size_t n, struct jtokens *ret, struct err_text *e)
{
    struct lexer x = {.s = source, .n = n, .line = 1, .line_starts = true, .out = ret, .e = e};
    int r = 0;

    while (r == 0 && x.pos < n) {
        size_t begin = x.pos, p = begin;

        for (;; p++) {
            const char *brace = memchr(source + p, '{', n - p);

            p = brace ? (size_t)(brace - source) : n;
            if (p + 1 >= n) {
                p = n;
                break;
            }
            if (memchr("{%#", source[p + 1], 3))
                break;
        }
        if (p == n) {
            r = add(&x, JK_TEXT, begin, n);
            x.pos = n;
            break;
        }
        r = next_tag(&x, begin, p);
    }
    return r < 0 ? r : add(&x, JK_END, n, n);
}
