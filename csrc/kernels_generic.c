/* Any processor: vectors of four floats, which are NEON on ARM and SSE2 on x86. */
#include "config.h"

#if defined(__GNUC__) && !SURNN_SCALAR_ONLY
#define WIDE 4
#define NAME surnn_kernels_generic
#if defined(__aarch64__)
#define LABEL "neon"
#include <arm_neon.h>
#define MULTIPLY_ADD(a, b, c) ((dvec)vfmaq_f64(c, a, b))
#else
#define LABEL "generic"
#endif
#include "kernels_vector.inc"
#else
typedef int nothing_here;
#endif
