/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From sampled tokens to text that may be shown.
 *
 * A token's bytes pass three gates: utf8_stream keeps a character together that several tokens
 * spell, the stop matchers see every byte of the repaired text exactly once, and `held` keeps the
 * longest end of it that may still become a stop string.  Matching is Knuth, Morris and Pratt, one
 * automaton per stop string, because its state is a length: how much of the stop string the text
 * ends with, which is what has to be held back.  A stop string is valid UTF-8, so what is held
 * begins on a character and what is released ends on one.
 */
#include "daemon/request.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stop_match {
    size_t len;
    size_t matched;   /* bytes of the stop string that the text ends with, < len */
    uint32_t *border; /* owned, [len]: longest proper border of the first i + 1 bytes */
};

void request_text_done(struct request *r)
{
    if (r->matches)
        for (size_t i = 0; i < r->n_stop; i++)
            free(r->matches[i].border);
    free(r->matches);
    r->matches = NULL;
    buf_done(&r->held);
}

/* 0 or -ENOMEM; what was made so far is found and freed by request_text_done. */
static int matches_new(struct request *r)
{
    if (r->matches || r->n_stop == 0)
        return 0;
    r->matches = calloc(r->n_stop, sizeof *r->matches);
    if (!r->matches)
        return -ENOMEM;

    for (size_t i = 0; i < r->n_stop; i++) {
        struct stop_match *m = &r->matches[i];
        const char *stop = r->stop[i];
        uint32_t k = 0;

        m->len = strlen(stop);
        assert(m->len > 0 && m->len < UINT32_MAX);
        m->border = calloc(m->len, sizeof *m->border);
        if (!m->border) {
            request_text_done(r);
            return -ENOMEM;
        }
        for (size_t j = 1; j < m->len; j++) {
            while (k > 0 && stop[j] != stop[k])
                k = m->border[k - 1];
            if (stop[j] == stop[k])
                k++;
            m->border[j] = k;
        }
    }
    return 0;
}

/* One more byte of text.  True when the stop string is complete; `matched` is then its whole
 * length. */
static bool match_byte(struct stop_match *m, const char *stop, char c)
{
    while (m->matched > 0 && stop[m->matched] != c)
        m->matched = m->border[m->matched - 1];
    if (stop[m->matched] == c)
        m->matched++;
    return m->matched == m->len;
}

/* How many of the tokens have all their text in `text`: see n_tokens_released. */
static void count_released(struct request *r)
{
    while (r->n_tokens_released < r->n_tokens) {
        size_t i = r->n_tokens_released;
        size_t end = i + 1 < r->n_tokens ? r->tokens[i + 1].text_begin : r->text.len + r->held.len;

        if (end > r->text.len || (r->utf8.n_held > 0 && i >= r->i_utf8))
            return;
        r->n_tokens_released++;
    }
}

/* The text ends here: nothing is held any more, and no token begins behind it. */
static void close_text(struct request *r)
{
    buf_clear(&r->held);
    r->utf8.n_held = 0;
    for (size_t i = 0; r->matches && i < r->n_stop; i++)
        r->matches[i].matched = 0;
    for (size_t i = r->n_tokens; i-- > 0 && r->tokens[i].text_begin > r->text.len;)
        r->tokens[i].text_begin = r->text.len;
    r->n_tokens_released = r->n_tokens;
}

/*
 * held[from..] is new: looks for stop strings in it and moves what cannot be part of one to `text`.
 * 1: one is complete, and the text was closed before it; 0; -ENOMEM.
 */
static int scan(struct request *r, size_t from)
{
    size_t hold = 0;
    int rc;

    rc = matches_new(r);
    if (rc < 0)
        return rc;
    /* So that no byte is seen twice when there is no room to move them to. */
    rc = buf_reserve(&r->text, r->held.len);
    if (rc < 0)
        return rc;

    for (size_t p = from; r->n_stop > 0 && p < r->held.len; p++) {
        const struct stop_match *done = NULL;

        for (size_t i = 0; i < r->n_stop; i++) {
            struct stop_match *m = &r->matches[i];

            if (match_byte(m, r->stop[i], r->held.data[p]) && (!done || m->len > done->len)) {
                done = m;
                r->stop_word = r->stop[i];
            }
        }
        if (done) {
            /* All of it lies in `held`: what was released was no part of any stop string. */
            rc = buf_add(&r->text, r->held.data, p + 1 - done->len);
            assert(rc == 0);
            close_text(r);
            return 1;
        }
    }

    for (size_t i = 0; i < r->n_stop; i++)
        if (r->matches[i].matched > hold)
            hold = r->matches[i].matched;
    rc = buf_add(&r->text, r->held.data, r->held.len - hold);
    assert(rc == 0);
    buf_consume(&r->held, r->held.len - hold);
    return 0;
}

/* Room for one more token, and its list of likely tokens. */
static int add_token(struct request *r, const struct sample *s)
{
    struct token_logprob *top = NULL;

    if (r->n_tokens == r->cap_tokens) {
        size_t cap = r->cap_tokens ? r->cap_tokens + r->cap_tokens / 2 : 64;
        struct out_token *p = reallocarray(r->tokens, cap, sizeof *p);

        if (!p)
            return -ENOMEM;
        r->tokens = p;
        r->cap_tokens = cap;
    }
    if (s->n_top > 0) {
        top = reallocarray(NULL, s->n_top, sizeof *top);
        if (!top)
            return -ENOMEM;
        memcpy(top, s->top, s->n_top * sizeof *top);
    }
    r->tokens[r->n_tokens++] = (struct out_token){
        .id = s->id,
        .text_begin = r->text.len + r->held.len,
        .logprob = s->logprob,
        .n_top = s->n_top,
        .top = top,
    };
    r->n_generated++;
    return 0;
}

int request_put_token(struct request *r, const struct tokenizer *t, const struct sample *s)
{
    const size_t from = r->held.len;
    const uint8_t n_utf8 = r->utf8.n_held;
    const char *piece;
    int32_t before;
    size_t n;
    int rc;

    before = r->n_tokens   ? r->tokens[r->n_tokens - 1].id
             : r->prompt.n ? r->prompt.ids[r->prompt.n - 1]
                           : -1;
    rc = add_token(r, s);
    if (rc < 0 || s->end)
        return rc;

    piece = tokenizer_piece_after(t, before, s->id, false, &n);
    if (n > 0) {
        rc = utf8_stream_put(&r->utf8, piece, n, &r->held);
        if (rc < 0)
            return rc;
        /* Whenever the stream lets bytes out, those that it keeps came last. */
        if (n_utf8 == 0 || r->held.len > from)
            r->i_utf8 = r->n_tokens - 1;
    }
    rc = scan(r, from);
    if (rc == 0)
        count_released(r);
    return rc;
}

int request_end_text(struct request *r)
{
    const size_t from = r->held.len;
    int rc;

    rc = utf8_stream_end(&r->utf8, &r->held);
    if (rc < 0)
        return rc;
    rc = scan(r, from);
    if (rc != 0)
        return rc;
    rc = buf_add(&r->text, r->held.data, r->held.len);
    if (rc == 0)
        close_text(r);
    return rc;
}
