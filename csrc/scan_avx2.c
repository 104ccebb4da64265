/* The scan for x86 with AVX2 and FMA. */
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma")
#define WIDE 8
#define NAME surnn_scan_avx2
#include "scan_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
