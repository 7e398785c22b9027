/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/wrap_alloc.h"

#include <errno.h>
#include <stdbool.h>

/* The linker's --wrap=NAME sends NAME here and __real_NAME to the library. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

static size_t total;
static long left = -1;

size_t wrap_alloc_total(void)
{
    return total;
}

void wrap_alloc_fail_after(long n)
{
    left = n;
}

static bool may_have(size_t n)
{
    if (left == 0) {
        errno = ENOMEM;
        return false;
    }
    if (left > 0)
        left--;
    total += n;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return may_have(n) ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_have(n * size) ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_have(n) ? __real_realloc(p, n) : NULL;
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return may_have(n * size) ? __real_reallocarray(p, n, size) : NULL;
}
