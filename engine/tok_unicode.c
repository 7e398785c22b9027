/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tok_unicode.h"

#include <stddef.h>

static const struct run {
    uint32_t first : 24;
    uint32_t cls : 8;
} runs[] = {
#include "engine/tok_unicode.inc"
};

const uint8_t unicode_ascii_class[128] = {
    ['\t' ... '\r'] = UNICODE_SPACE,
    [' '] = UNICODE_SPACE,
    ['!' ... '#'] = UNICODE_PUNCTUATION,
    ['$'] = UNICODE_SYMBOL,
    ['%' ... '*'] = UNICODE_PUNCTUATION,
    ['+'] = UNICODE_SYMBOL,
    [',' ... '/'] = UNICODE_PUNCTUATION,
    ['0' ... '9'] = UNICODE_NUMBER,
    [':' ... ';'] = UNICODE_PUNCTUATION,
    ['<' ... '>'] = UNICODE_SYMBOL,
    ['?' ... '@'] = UNICODE_PUNCTUATION,
    ['A' ... 'Z'] = UNICODE_LETTER,
    ['[' ... ']'] = UNICODE_PUNCTUATION,
    ['^'] = UNICODE_SYMBOL,
    ['_'] = UNICODE_PUNCTUATION,
    ['`'] = UNICODE_SYMBOL,
    ['a' ... 'z'] = UNICODE_LETTER,
    ['{'] = UNICODE_PUNCTUATION,
    ['|'] = UNICODE_SYMBOL,
    ['}'] = UNICODE_PUNCTUATION,
    ['~'] = UNICODE_SYMBOL,
};

enum unicode_class unicode_class_of(uint32_t cp)
{
    size_t lo = 0, hi = sizeof(runs) / sizeof(runs[0]);

    if (cp < 128)
        return unicode_ascii_class[cp];
    /* The last run that begins at or before cp; the first run begins at 0. */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (runs[mid].first <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return (enum unicode_class)runs[lo].cls;
}
