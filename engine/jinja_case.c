/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper, lower, title and capital case: ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic and
 * Armenian.  Other scripts with case stay as they are, as do special cases that Unicode has for
 * words (a final sigma) or languages.
 */
#include "engine/jinja_private.h"

#include "engine/tok_unicode.h"
#include "util/utf8.h"

/* Upper and lower letters take turns: the even one is upper (or the odd one). */
static bool alternates(uint32_t cp, bool *ret_even_is_upper)
{
    *ret_even_is_upper = true;
    if ((cp >= 0x100 && cp <= 0x12f) || (cp >= 0x132 && cp <= 0x137) ||
        (cp >= 0x14a && cp <= 0x177) || (cp >= 0x370 && cp <= 0x373) ||
        (cp >= 0x3d8 && cp <= 0x3ef) || (cp >= 0x460 && cp <= 0x481) ||
        (cp >= 0x48a && cp <= 0x4bf) || (cp >= 0x4d0 && cp <= 0x52f) ||
        (cp >= 0x1e00 && cp <= 0x1e95) || (cp >= 0x1ea0 && cp <= 0x1eff))
        return true;
    *ret_even_is_upper = false;
    return (cp >= 0x139 && cp <= 0x148) || (cp >= 0x179 && cp <= 0x17e) ||
           (cp >= 0x4c1 && cp <= 0x4ce);
}

static uint32_t lower(uint32_t cp)
{
    bool even;

    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    if (cp >= 0xc0 && cp <= 0xde && cp != 0xd7)
        return cp + 32;
    if (cp == 0x178)
        return 0xff;
    if (alternates(cp, &even))
        return (cp % 2 == 0) == even ? cp + 1 : cp;
    if (cp == 0x386)
        return 0x3ac;
    if (cp >= 0x388 && cp <= 0x38a)
        return cp + 37;
    if (cp == 0x38c)
        return 0x3cc;
    if (cp == 0x38e || cp == 0x38f)
        return cp + 63;
    if ((cp >= 0x391 && cp <= 0x3ab && cp != 0x3a2) || (cp >= 0x410 && cp <= 0x42f))
        return cp + 32;
    if (cp >= 0x400 && cp <= 0x40f)
        return cp + 80;
    if (cp >= 0x531 && cp <= 0x556)
        return cp + 48;
    return cp;
}

static uint32_t upper(uint32_t cp)
{
    bool even;

    if (cp < 0x80)
        return cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
    if (cp >= 0xe0 && cp <= 0xfe && cp != 0xf7)
        return cp - 32;
    if (cp == 0xff)
        return 0x178;
    if (cp == 0xb5)
        return 0x39c;
    if (cp == 0x131)
        return 'I';
    if (cp == 0x17f)
        return 'S';
    if (alternates(cp, &even))
        return (cp % 2 == 0) == even ? cp : cp - 1;
    if (cp == 0x3ac)
        return 0x386;
    if (cp >= 0x3ad && cp <= 0x3af)
        return cp - 37;
    if (cp == 0x3c2)
        return 0x3a3;
    if (cp == 0x3cc)
        return 0x38c;
    if (cp == 0x3cd || cp == 0x3ce)
        return cp - 63;
    if ((cp >= 0x3b1 && cp <= 0x3cb) || (cp >= 0x430 && cp <= 0x44f))
        return cp - 32;
    if (cp >= 0x450 && cp <= 0x45f)
        return cp - 80;
    if (cp >= 0x561 && cp <= 0x586)
        return cp - 48;
    return cp;
}

/* The sharp s has no upper letter of its own in Python: SS, or Ss at the head of a word. */
static size_t convert(uint32_t cp, enum jcase how, bool starts, char out[4])
{
    bool is_upper = how == JC_UPPER || (how != JC_LOWER && starts);

    if (cp == 0xdf && is_upper) {
        out[0] = 'S';
        out[1] = how == JC_UPPER || how == JC_WORDS ? 'S' : 's';
        return 2;
    }
    if (cp == 0x130 && !is_upper) { /* the dotted I: i and a combining dot */
        memcpy(out, "i\xcc\x87", 3);
        return 3;
    }
    return utf8_encode(is_upper ? upper(cp) : lower(cp), out);
}

/* Whether what follows `cp` begins a word. */
static bool ends_word(uint32_t cp, enum jcase how)
{
    if (how == JC_TITLE)
        return !unicode_is(cp, UNICODE_LETTERS);
    return how == JC_WORDS && (jstr_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp)));
}

int jcase_convert(struct jrun *r, struct jinja_value *str, enum jcase how, struct jinja_value **ret)
{
    const struct jstr *s = &str->u.str;
    struct jout out = {.heap = &r->heap};
    bool starts = true; /* a word (title), the text (capitalize) */
    int rc = jstep(r, s->n / 8);
    char utf8[4], piece[256];
    size_t end, len;

    for (size_t i = 0; i < s->n && rc == 0;) {
        bool is_data = jstr_run(str, i, s->n, &end);
        size_t n = 0;

        for (; i < end && n + 4 <= sizeof(piece); i += len) {
            uint32_t cp = utf8_decode(s->s + i, s->n - i, &len);
            size_t n_utf8 = convert(cp, how, starts, utf8);

            memcpy(piece + n, utf8, n_utf8);
            n += n_utf8;
            starts = ends_word(cp, how);
        }
        if (jout_add(&out, piece, n, is_data) < 0)
            rc = jfail_nomem(r);
    }
    if (rc == 0 && jout_take(&out, ret) < 0)
        rc = jfail_nomem(r);
    jout_done(&out);
    return rc;
}
