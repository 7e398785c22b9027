/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/line_edit.h"

#include "ctl/line_history.h"
#include "ctl/terminal.h"
#include "util/buf.h"
#include "util/cleanup.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

/* Pasted text comes between two sequences when the terminal is asked for it. */
#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\\e[200~"
#define PASTE_END   L"\033[201~"

enum {
    TEXT_LIMIT = 8 << 20,
    PASTE_LIMIT = 1 << 20,
};

struct line_edit {
    struct terminal *terminal; /* borrowed */
    FILE *out;
    EditLine *el; /* owned */
    struct line_history history;
    enum line_result stopped; /* why read_char() gave up */
    bool is_going_on;         /* the prompt is that of another line of the same text */
    char in[4096];            /* read and not taken yet */
    size_t at, n;
};

static struct line_edit *of(EditLine *el)
{
    void *l = NULL;

    (void)el_get(el, EL_CLIENTDATA, &l);
    return l;
}

static char *prompt(EditLine *el)
{
    static char first[] = "> ", more[] = "… ";

    return of(el)->is_going_on ? more : first;
}

/* Fills `in` behind what it has.  1, 0 at the end, or -1 with `stopped` set. */
static int fill(struct line_edit *l)
{
    ssize_t n;

    (void)memmove(l->in, l->in + l->at, l->n - l->at);
    l->n -= l->at;
    l->at = 0;
    for (;;) {
        switch (terminal_wait(l->terminal, STDIN_FILENO, POLLIN)) {
        case TERMINAL_INTERRUPT:
            l->stopped = LINE_INTERRUPTED;
            return -1;
        case TERMINAL_END:
            l->stopped = LINE_END;
            return -1;
        case TERMINAL_SUSPEND:
            (void)el_set(l->el, EL_PREP_TERM, 0);
            terminal_suspend(l->terminal);
            (void)el_set(l->el, EL_PREP_TERM, 1);
            (void)el_set(l->el, EL_REFRESH);
            break;
        case TERMINAL_RESIZE:
            el_resize(l->el);
            (void)el_set(l->el, EL_REFRESH);
            break;
        case TERMINAL_READY:
            n = read(STDIN_FILENO, l->in + l->n, sizeof l->in - l->n);
            if (n < 0 && (errno == EINTR || errno == EAGAIN))
                break;
            if (n <= 0) {
                l->stopped = LINE_END;
                return 0;
            }
            l->n += (size_t)n;
            return 1;
        }
    }
}

/* Whether the bytes that are there are the beginning of a character and no more. */
static bool is_cut(const char *s, size_t n)
{
    unsigned char c = n > 0 ? (unsigned char)s[0] : 0;
    size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

    for (size_t i = 1; i < n; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return false;
    return n < want;
}

/* libedit's way to one character: 1, or 0 and -1 to give up. */
static int read_char(EditLine *el, wchar_t *ret)
{
    struct line_edit *l = of(el);
    size_t len;
    int r;

    while (is_cut(l->in + l->at, l->n - l->at)) {
        r = fill(l);
        if (r <= 0)
            return r;
    }
    *ret = (wchar_t)utf8_decode(l->in + l->at, l->n - l->at, &len);
    l->at += len;
    return 1;
}

/* A pasted character: what could steer the terminal is left out, and Return is a newline. */
static int add_pasted(struct buf *text, wchar_t c, wchar_t before)
{
    char raw[4];

    if (c == L'\r')
        c = L'\n';
    else if (c == L'\n' && before == L'\r')
        return 0;
    if (c != L'\n' && c != L'\t' && utf8_is_control((uint32_t)c))
        return 0;
    return buf_add(text, raw, utf8_encode((uint32_t)c, raw));
}

/* Takes everything up to the end of the paste, also what is too long: none of it was typed. */
static unsigned char paste(EditLine *el, int ch)
{
    static const wchar_t end[] = PASTE_END;
    CLEANUP(buf_done) struct buf text = {.limit = PASTE_LIMIT};
    wchar_t before = 0, c;
    size_t n_end = 0; /* characters of `end` seen */
    int r = 0;

    (void)ch;
    while (end[n_end]) {
        if (read_char(el, &c) <= 0)
            return CC_EOF;
        if (c == end[n_end]) {
            n_end++;
            continue;
        }
        for (size_t i = 0; i < n_end && r == 0; i++)
            r = add_pasted(&text, end[i], 0);
        n_end = c == end[0] ? 1 : 0;
        if (n_end == 0 && r == 0)
            r = add_pasted(&text, c, before);
        before = c;
    }
    if (r == 0 && text.len > 0)
        r = el_insertstr(el, text.data);
    return r == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
}

static unsigned char new_line(EditLine *el, int ch)
{
    (void)ch;
    return el_winsertstr(el, L"\n") == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
}

static void set_up(struct line_edit *l)
{
    static const char *const keys[][2] = {
        {PASTE_BEGIN, "strata-paste"}, {"\\e\\r", "strata-new-line"},
        {"\\e\\n", "strata-new-line"}, {"^R", "em-inc-search-prev"},
        {"^W", "ed-delete-prev-word"}, {"\\e[3~", "ed-delete-next-char"},
        {"\\e[1~", "ed-move-to-beg"},  {"\\e[4~", "ed-move-to-end"},
        {"\\e[1;5C", "em-next-word"},  {"\\e[1;5D", "ed-prev-word"},
    };

    (void)el_set(l->el, EL_CLIENTDATA, l);
    (void)el_set(l->el, EL_PROMPT, prompt);
    (void)el_set(l->el, EL_SIGNAL, 0);
    (void)el_set(l->el, EL_GETCFN, read_char);
    (void)el_set(l->el, EL_EDITOR, "emacs");
    /* Pasted lines end as they did, so that CR LF can be told from two ends. */
    (void)el_set(l->el, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL);
    (void)el_set(l->el, EL_HIST, history, l->history.history);
    /* The wide call takes the names as they are; the other one's copies are never freed. */
    (void)el_wset(l->el, EL_ADDFN, L"strata-paste", L"Take pasted text as one", paste);
    (void)el_wset(l->el, EL_ADDFN, L"strata-new-line", L"Begin another line", new_line);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        (void)el_set(l->el, EL_BIND, keys[i][0], keys[i][1], NULL);
    (void)el_source(l->el, NULL);
}

int line_edit_new(struct terminal *t, FILE *out, const char *history_dir, struct err_text *e,
                  struct line_edit **ret)
{
    struct line_edit *l = calloc(1, sizeof *l);

    if (!l)
        return -ENOMEM;
    /* libedit measures and prints what is typed in the locale's encoding; ours is always UTF-8. */
    (void)setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    l->terminal = t;
    l->out = out;
    l->el = el_init("stratactl", stdin, out, stderr);
    if (!l->el || line_history_init(&l->history, history_dir, e) < 0) {
        line_edit_free(l);
        return -ENOMEM;
    }
    set_up(l);
    if (terminal_knows_escapes(out))
        (void)fputs(PASTE_ON, out);
    (void)fflush(out);
    *ret = l;
    return 0;
}

void line_edit_free(struct line_edit *l)
{
    if (!l)
        return;
    if (l->el) {
        if (terminal_knows_escapes(l->out))
            (void)fputs(PASTE_OFF, l->out);
        (void)fflush(l->out);
        el_end(l->el);
    }
    line_history_done(&l->history);
    free(l);
}

enum line_result line_edit_read(struct line_edit *l, struct buf *ret)
{
    ret->limit = TEXT_LIMIT;
    buf_clear(ret);
    for (l->is_going_on = false;; l->is_going_on = true) {
        const char *line;
        int n = 0;

        l->stopped = LINE_TEXT;
        /* Left to itself, libedit shows the prompt first: a key that comes at once may be lost. */
        (void)el_set(l->el, EL_PREP_TERM, 1);
        line = el_gets(l->el, &n);
        if (l->stopped == LINE_INTERRUPTED)
            (void)fputs("^C\n", l->out);
        if (l->stopped != LINE_TEXT)
            return l->stopped;
        if (!line || n <= 0)
            return LINE_END;
        if (line[n - 1] == '\n')
            n--;
        if (buf_add(ret, line, (size_t)n) < 0) {
            (void)fputs("[too long]\n", l->out);
            return LINE_INTERRUPTED;
        }
        if (n == 0 || line[n - 1] != '\\')
            break;
        ret->data[ret->len - 1] = '\n';
    }
    if (ret->len > 0 && strspn(ret->data, " \t\n") < ret->len)
        line_history_add(&l->history, ret->data);
    return LINE_TEXT;
}
