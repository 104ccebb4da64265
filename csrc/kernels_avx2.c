/* x86 with AVX2 and FMA. */
#include "config.h"

#if defined(__GNUC__) && defined(__x86_64__) && !SURNN_SCALAR_ONLY
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma")
#include "kernels.h"

/* 16 weights, widened to 16 bits, times 16 numbers of q; neighbours are added. */
#define PAIRS(w, q) _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w))), q)

static inline __attribute__((always_inline)) void tiles8(int32_t *sum, const int8_t *w,
                                                         quantised_vector x, size_t n,
                                                         const int pieces) {
    __m256i a[16];
    for (int i = 0; i < pieces; i++) a[i] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 4) {
        long long four;
        __builtin_memcpy(&four, x.q + j, 8);
        __m256i q = _mm256_set1_epi64x(four);
#pragma GCC unroll 16
        for (int i = 0; i < pieces; i++, w += 16) a[i] = _mm256_add_epi32(a[i], PAIRS(w, q));
    }
    for (int i = 0; i < pieces; i++) {
        int32_t two[8];
        _mm256_storeu_si256((__m256i *)two, a[i]);
        for (int u = 0; u < 4; u++) sum[4 * i + u] = two[2 * u] + two[2 * u + 1];
    }
}

static void tile8(int32_t *sum, const int8_t *w, quantised_vector x, const int32_t *row_sums,
                  size_t n, int products, int lanes) {
    (void)row_sums;
    switch (products * lanes / 8) {
    case 1: tiles8(sum, w, x, n, 2); break;
    case 2: tiles8(sum, w, x, n, 4); break;
    case 3: tiles8(sum, w, x, n, 6); break;
    case 4: tiles8(sum, w, x, n, 8); break;
    case 6: tiles8(sum, w, x, n, 12); break;
    default: tiles8(sum, w, x, n, 16); break;
    }
}

/* A unit's sums as vectors, sum[S]. */
static inline __attribute__((always_inline)) void row8(void *sum, const int8_t *w, quantised_vector x,
                                                       const int32_t *row_sums, size_t n,
                                                       const int products) {
    __m256i a[4];
    (void)row_sums;
#pragma GCC unroll 4
    for (int d = 0; d < products; d++) a[d] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 64)
#pragma GCC unroll 4
        for (int d = 0; d < products; d++, w += 64)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m256i q = _mm256_loadu_si256((const __m256i *)(x.q + j + 16 * i));
                a[d] = _mm256_add_epi32(a[d], PAIRS(w + 16 * i, q));
            }
#pragma GCC unroll 4
    for (int d = 0; d < products; d++) _mm256_storeu_si256((__m256i *)sum + d, a[d]);
}

#define HAS_INT8_KERNELS
#define MULTIPLY_ADD _mm256_fmadd_pd
#define SIGN_BITS(v) (uint32_t)_mm256_movemask_ps((__m256)(v))
#define WIDE 8
#define NAME surnn_kernels_avx2
#define LABEL "avx2"
#include "kernels_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
