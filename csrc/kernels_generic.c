/* Any processor: vectors of four, which is NEON on ARM and SSE2 on x86. */
#if defined(__GNUC__)
#define WIDE 4
#define NAME surnn_kernels_generic
#if defined(__aarch64__)
#define LABEL "neon"
#else
#define LABEL "generic"
#endif
#include "kernels_vector.inc"
#else
typedef int nothing_here;
#endif
