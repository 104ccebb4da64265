/* Which kernels this machine runs. */
#define _POSIX_C_SOURCE 200809L
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
extern const kernels surnn_kernels_generic;
#define HAS_GENERIC 1
#if defined(__x86_64__)
extern const kernels surnn_kernels_avx2, surnn_kernels_avx512;
#define HAS_X86 1
#endif
#endif

static const kernels *best(void) {
#ifdef HAS_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        return &surnn_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &surnn_kernels_avx2;
#endif
#ifdef HAS_GENERIC
    return &surnn_kernels_generic;
#else
    return &surnn_kernels_scalar;
#endif
}

const kernels *surnn_choose_kernels(void) {
    const kernels *found = best();
    const char *wanted = getenv("SURNN_SIMD");
    if (!wanted) return found;
    if (!strcmp(wanted, "scalar")) return &surnn_kernels_scalar;
#ifdef HAS_GENERIC
    if (!strcmp(wanted, "generic")) return &surnn_kernels_generic;
#endif
#ifdef HAS_X86
    /* Less than the machine has may be asked for, never more. */
    if (!strcmp(wanted, "avx2") && found != &surnn_kernels_generic) return &surnn_kernels_avx2;
#endif
    return found;
}
