/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes arrays of vectors registers: everything inlined into one function, and loops unrolled
 * early.  Not under a sanitizer, where it would only make compiling last minutes.
 */
#ifndef ENGINE_CPU_UNROLL_H
#define ENGINE_CPU_UNROLL_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(SANITIZED)
#define ALWAYS_INLINE inline
#define UNROLL
#elif defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL        _Pragma("unroll")
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 16")
#endif

#define UNROLLED(i, n)                 UNROLL for (uint32_t i = 0; i < (n); i++)
#define UNROLLED_BY(i, begin, n, step) UNROLL for (uint32_t i = begin; i < (n); i += (step))

#endif
