/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 version of the kernels (F, BW, DQ, VL, VNNI): the *_simd.h bodies over vectors of 16
 * floats. */
#include "engine/cpu/kernels.h"

#include "engine/cpu/simd_avx512.h"

#include "engine/cpu/quant_avx512.h"

#define SIMD_NAME  "avx512"
#define SIMD_TABLE kernels_avx512
#include "engine/cpu/table_simd.h"
