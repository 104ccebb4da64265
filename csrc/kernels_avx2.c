/* x86 with AVX2 and FMA. */
#include "config.h"

#if defined(__GNUC__) && defined(__x86_64__) && !SURNN_SCALAR_ONLY
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma")
#include "kernels.h"

#define ALWAYS static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

/* 16 weights, widened to 16 bits, times 16 numbers of q; neighbours are added. */
#define PAIRS(w, q) _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w))), q)

/* 32 weights times 32 numbers of 8 bits; each four products are added. The instruction multiplies unsigned
 * by signed bytes, so the sign goes from q to the weights. No sum of two products exceeds 2 * 127 * 127. */
ALWAYS __m256i fours(const int8_t *w, __m256i q, __m256i size) {
    __m256i weights = _mm256_sign_epi8(_mm256_loadu_si256((const void *)w), q);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(size, weights), _mm256_set1_epi16(1));
}

/* q of q + 128. */
ALWAYS __m256i signed_bytes(__m256i bytes) { return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)); }

ALWAYS void store_rows(float *sum, __m256i whole, const float *scales, float scale, const float *biases) {
    __m256 by = _mm256_mul_ps(_mm256_loadu_ps(scales), _mm256_set1_ps(scale));
    __m256 start = biases ? _mm256_loadu_ps(biases) : _mm256_setzero_ps();
    _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), by, start));
}

/* `vectors` times 8 rows, x of 16 bits. */
ALWAYS void multiply_words(float *sum, const int8_weights *w, const quantised_vector *x, const float *biases,
                           size_t n, const int vectors) {
    __m256i a[16];
    const int8_t *row = w->w;
    UNROLLED for (int i = 0; i < 2 * vectors; i++) a[i] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 4) {
        long long four;
        __builtin_memcpy(&four, x->q + j, 8);
        __m256i q = _mm256_set1_epi64x(four);
        UNROLLED for (int i = 0; i < 2 * vectors; i++, row += 16) a[i] = _mm256_add_epi32(a[i], PAIRS(row, q));
    }
    UNROLLED for (int i = 0; i < vectors; i++) {
        __m256i whole = _mm256_permute4x64_epi64(_mm256_hadd_epi32(a[2 * i], a[2 * i + 1]), 0xd8);
        store_rows(sum + 8 * i, whole, w->scales + 8 * i, x->scale, biases ? biases + 8 * i : NULL);
    }
}

/* x of 8 bits. */
ALWAYS void multiply_bytes(float *sum, const int8_weights *w, const quantised_vector *x, const float *biases,
                           size_t n, const int vectors) {
    __m256i a[8];
    const int8_t *row = w->w;
    UNROLLED for (int i = 0; i < vectors; i++) a[i] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 4) {
        int four;
        __builtin_memcpy(&four, x->high + j, 4);
        __m256i q = signed_bytes(_mm256_set1_epi32(four)), size = _mm256_abs_epi8(q);
        UNROLLED for (int i = 0; i < vectors; i++, row += 32) a[i] = _mm256_add_epi32(a[i], fours(row, q, size));
    }
    UNROLLED for (int i = 0; i < vectors; i++)
        store_rows(sum + 8 * i, a[i], w->scales + 8 * i, x->scale, biases ? biases + 8 * i : NULL);
}

ALWAYS void multiply_tiles(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                           const float *biases, size_t n, int count, const int vectors) {
    for (int i = 0; i < count; i++)
        if (x[i]->low) multiply_words(sum[i], w, x[i], biases, n, vectors);
        else multiply_bytes(sum[i], w, x[i], biases, n, vectors);
}

static void tiles8(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                   const float *biases, size_t n, int products, int lanes, int count) {
    switch (products * lanes / 8) {
    case 1: multiply_tiles(sum, w, x, biases, n, count, 1); break;
    case 2: multiply_tiles(sum, w, x, biases, n, count, 2); break;
    case 3: multiply_tiles(sum, w, x, biases, n, count, 3); break;
    case 4: multiply_tiles(sum, w, x, biases, n, count, 4); break;
    case 6: multiply_tiles(sum, w, x, biases, n, count, 6); break;
    default: multiply_tiles(sum, w, x, biases, n, count, 8); break;
    }
}

/* A unit's sums as vectors, sum[S]. */
ALWAYS void row8(void *sum, const int8_weights *w, const quantised_vector *x, size_t n, const int products,
                 const int wide) {
    __m256i a[4];
    const int8_t *row = w->w;
    UNROLLED for (int d = 0; d < products; d++) a[d] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 64, row += 64 * (products - 1))
        for (int i = 0; i < 64; i += wide ? 16 : 32, row += wide ? 16 : 32) {
            __m256i q = wide ? _mm256_loadu_si256((const void *)(x->q + j + (size_t)i))
                             : signed_bytes(_mm256_loadu_si256((const void *)(x->high + j + (size_t)i)));
            __m256i size = _mm256_abs_epi8(q); /* unused if wide */
            UNROLLED for (int d = 0; d < products; d++)
                a[d] = _mm256_add_epi32(a[d], wide ? PAIRS(row + 64 * d, q) : fours(row + 64 * d, q, size));
        }
    UNROLLED for (int d = 0; d < products; d++) _mm256_storeu_si256((__m256i *)sum + d, a[d]);
}

#define HAS_INT8_KERNELS
#define HAS_INT8_TILES
#define READS_BYTES(wide) !(wide)
#define MULTIPLY_ADD _mm256_fmadd_pd
#define SIGN_BITS(v) (uint32_t)_mm256_movemask_ps((__m256)(v))
#define AT_LEAST(x, low) ((vec)_mm256_max_ps((__m256)(low), (__m256)(x)))
#define AT_MOST(x, high) ((vec)_mm256_min_ps((__m256)(high), (__m256)(x)))
#define WIDE 8
#define NAME surnn_kernels_avx2
#define LABEL "avx2"
#include "kernels_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
