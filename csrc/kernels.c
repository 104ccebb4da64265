/* Chooses the kernels for this machine. */
#define _POSIX_C_SOURCE 200809L
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !SURNN_SCALAR_ONLY
extern const kernels surnn_kernels_generic;
#define HAS_GENERIC 1
#if defined(__x86_64__)
#include <cpuid.h>
extern const kernels surnn_kernels_avx2, surnn_kernels_avx512;
#define HAS_X86 1
#elif defined(__aarch64__)
extern const kernels surnn_kernels_dotprod;
#define HAS_ARM 1
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif
#endif

#ifdef HAS_ARM
static int has_dot_products(void) {
#if defined(__ARM_FEATURE_DOTPROD) || defined(__APPLE__)
    return 1; /* all of Apple's 64-bit computers have them */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) != 0; /* HWCAP_ASIMDDP */
#else
    return 0;
#endif
}
#endif

#ifdef HAS_X86
/* Checks the processor's instructions, and that the operating system saves their registers.
 * (__builtin_cpu_supports needs a library that some compilers do not bring.) */
static const kernels *best_x86(void) {
    unsigned a, b, c, d, state, high;
    const unsigned fma_and_xsave = 1u << 12 | 1u << 27, avx2 = 1u << 5;
    const unsigned f_bw_vl = 1u << 16 | 1u << 30 | 1u << 31, vnni = 1u << 11;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & fma_and_xsave) != fma_and_xsave) return NULL;
    __asm__("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    if ((state & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & avx2)) return NULL;
    if ((state & 0xe6) == 0xe6 && (b & f_bw_vl) == f_bw_vl && (c & vnni)) return &surnn_kernels_avx512;
    return &surnn_kernels_avx2;
}
#endif

static const kernels *best(void) {
#if defined(HAS_X86)
    /* Asked once: in a virtual machine, each question takes tens of microseconds. */
    static const kernels *found;
    const kernels *chosen = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (chosen) return chosen;
    chosen = best_x86();
    if (!chosen) chosen = &surnn_kernels_generic;
    __atomic_store_n(&found, chosen, __ATOMIC_RELAXED);
    return chosen;
#elif defined(HAS_ARM)
    return has_dot_products() ? &surnn_kernels_dotprod : &surnn_kernels_generic;
#elif defined(HAS_GENERIC)
    return &surnn_kernels_generic;
#else
    return &surnn_kernels_scalar;
#endif
}

#if SURNN_NO_ENVIRONMENT
const kernels *surnn_choose_kernels(void) { return best(); }
#else
const kernels *surnn_choose_kernels(void) {
    const kernels *fastest = best();
    const char *name = getenv("SURNN_SIMD");
    if (!name) return fastest;
    if (!strcmp(name, "scalar")) return &surnn_kernels_scalar;
#ifdef HAS_GENERIC
    if (!strcmp(name, "generic")) return &surnn_kernels_generic;
#endif
#ifdef HAS_X86
    /* SURNN_SIMD can ask for less than the machine has, never for more. */
    if (!strcmp(name, "avx2") && fastest != &surnn_kernels_generic) return &surnn_kernels_avx2;
#endif
    return fastest;
}
#endif
