/* Any processor: vectors of four floats, which are NEON on ARM, SSE2 on x86 and SIMD in WebAssembly. */
#include "config.h"

#if defined(__GNUC__) && !SURNN_SCALAR_ONLY
#include "kernels.h"

/* PAIRS: 8 weights, widened to 16 bits, times 8 numbers of q; neighbours are added. */
#if defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i four_sums;
#define LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define FOUR_NUMBERS(p) _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)(p)), _mm_loadl_epi64((const void *)(p)))
static inline __attribute__((always_inline)) four_sums pairs(const int8_t *w, four_sums q) {
    __m128i bytes = _mm_loadl_epi64((const void *)w);
    return _mm_madd_epi16(_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8), q);
}
#define HAS_INT8_KERNELS
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
typedef v128_t four_sums;
#define LOAD(p) wasm_v128_load(p)
#define FOUR_NUMBERS(p) wasm_v128_load64_splat(p)
static inline __attribute__((always_inline)) four_sums pairs(const int8_t *w, four_sums q) {
    return wasm_i32x4_dot_i16x8(wasm_i16x8_load8x8(w), q);
}
#define HAS_INT8_KERNELS
#endif

#ifdef HAS_INT8_KERNELS
typedef int32_t four_whole __attribute__((vector_size(16)));

/* The sums of 8 or 16 of `width` rows: `pieces` pairs of rows. */
static inline __attribute__((always_inline)) void part8(int32_t *sum, const int8_t *w, const int16_t *q,
                                                        size_t n, size_t width, const int pieces) {
    four_whole a[8] = {{0}};
    for (size_t j = 0; j < n; j += 4, w += 4 * width) {
        four_sums numbers = FOUR_NUMBERS(q + j);
#pragma GCC unroll 8
        for (int i = 0; i < pieces; i++) a[i] += (four_whole)pairs(w + 8 * i, numbers);
    }
    for (int i = 0; i < pieces; i++) sum[2 * i] = a[i][0] + a[i][1], sum[2 * i + 1] = a[i][2] + a[i][3];
}

static void whole_tile(int32_t *sum, const int8_weights *w, const quantised_vector *x, size_t n, int width) {
    const size_t all = (size_t)width;
    for (size_t u = 0; u + 16 <= all; u += 16) part8(sum + u, w->w + 4 * u, x->q, n, all, 8);
    if (all % 16) part8(sum + all - 8, w->w + 4 * (all - 8), x->q, n, all, 4);
}

/* A unit's sums as vectors, sum[S]. */
static inline __attribute__((always_inline)) void row8(void *sum, const int8_weights *weights,
                                                       const quantised_vector *x, size_t n,
                                                       const int products, const int wide) {
    four_whole a[MAX_PRODUCTS] = {{0}};
    const int8_t *w = weights->w;
    (void)wide;
    for (size_t j = 0; j < n; j += 64, w += 64 * (products - 1))
        for (int i = 0; i < 64; i += 8, w += 8) {
            four_sums numbers = LOAD(x->q + j + i);
#pragma GCC unroll 4
            for (int d = 0; d < products; d++) a[d] += (four_whole)pairs(w + 64 * d, numbers);
        }
    memcpy(sum, a, (size_t)products * sizeof *a);
}
#endif

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
