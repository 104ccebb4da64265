/* The scan for x86 with AVX-512. */
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma,avx512f,avx512bw,avx512vl")
#define WIDE 16
#define NAME surnn_scan_avx512
#include "scan_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
