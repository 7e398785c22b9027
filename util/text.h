/* SPDX-License-Identifier: Apache-2.0 */
/* Small questions about words that people type: strict numbers, and the nearest known word. */
#ifndef UTIL_TEXT_H
#define UTIL_TEXT_H

#include <stdint.h>

/*
 * The whole of `s` as a decimal number: digits only, no sign, no space.  0; -EINVAL when it is not
 * one; -ERANGE when it does not fit.
 */
int text_u64(const char *s, uint64_t *ret);

/* The whole of `s` as a finite decimal fraction ("-0.5", "1e3"), whatever the locale says.  0,
 * -EINVAL or -ERANGE. */
int text_f64(const char *s, double *ret);

/*
 * How many letters have to be changed, added, dropped or swapped with their neighbour to make `b`
 * of `a`.  Words of more than 63 bytes are infinitely far from everything (UINT32_MAX).
 */
uint32_t text_distance(const char *a, const char *b);

/* Whether a word at this distance from what was typed is worth suggesting. */
int text_is_near(const char *typed, uint32_t distance);

#endif
