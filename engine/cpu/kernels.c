/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses a version of the kernels at run time.  __builtin_cpu_supports also asks whether the
 * operating system saves the registers (XCR0), so a version that is returned can run.
 */
#include "engine/cpu/kernels.h"

#include <string.h>

#include "engine/cpu/kernels_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* clang 14 has no name for it; its registers are those of AVX, which the caller asks about. */
static bool has_f16c(void)
{
    unsigned int a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

const struct kernels *kernels_get(const char *name)
{
#if defined(__x86_64__)
    if ((!name || strcmp(name, "avx512") == 0) && has_avx512())
        return &kernels_avx512;
    if ((!name || strcmp(name, "avx2") == 0) && has_avx2())
        return &kernels_avx2;
#endif
    if (!name || strcmp(name, "c") == 0)
        return &kernels_c;
    return NULL;
}
