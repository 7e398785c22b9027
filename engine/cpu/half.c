/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half precision by the rules of IEEE 754, one value at a time and without instructions for it.
 * The vector versions convert in hardware; tests/check_kernels.c holds the two against each other.
 */
#include "engine/cpu/kernels.h"

#include "engine/cpu/vmath.h"

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;

    if (exp == 31) /* infinity; or NaN, made quiet as the hardware does */
        return vm_float(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
    if (exp == 0) /* zero or subnormal: man * 2^-24, exact */
        return vm_float(sign | vm_bits((float)man * 0x1p-24f));
    return vm_float(sign | (exp + 112) << 23 | man << 13);
}

uint16_t float_to_half(float f)
{
    uint32_t u = vm_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;

    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x3ff));
    if (a >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) {
        /* Below 2^-14: adding 0.5 rounds to a multiple of 2^-24, left in the low bits. */
        return (uint16_t)(sign | (vm_bits(vm_float(a) + 0.5f) - vm_bits(0.5f)));
    }
    a += 0xfff + ((a >> 13) & 1);
    return (uint16_t)(sign | ((a >> 13) - (112 << 10)));
}

float bf16_to_float(uint16_t h)
{
    return vm_float((uint32_t)h << 16);
}

uint16_t float_to_bf16(float f)
{
    uint32_t u = vm_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
