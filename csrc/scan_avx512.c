/* The scan for x86 with AVX-512. */
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl")
#endif
#define WIDE 16
#define NAME surnn_scan_avx512
#include "scan_vector.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int nothing_here;
#endif
