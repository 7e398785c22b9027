/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions of the kernels, for kernels.c alone: callers go through kernels_get, which knows
 * what the processor can run.
 */
#ifndef ENGINE_CPU_KERNELS_ISA_H
#define ENGINE_CPU_KERNELS_ISA_H

#include "engine/cpu/kernels.h"

extern const struct kernels kernels_c;

/* Processors differ: only x86-64 builds have the vector versions. */
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif

#endif
