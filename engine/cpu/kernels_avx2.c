/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 version of the kernels: the *_simd.h bodies over vectors of 8 floats. */
#include "engine/cpu/kernels.h"

#include "engine/cpu/simd_avx2.h"

#include "engine/cpu/quant_avx2.h"

#define SIMD_NAME  "avx2"
#define SIMD_TABLE kernels_avx2
#include "engine/cpu/table_simd.h"
