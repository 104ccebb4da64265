/* x86 with AVX-512 and its 8-bit products (VNNI). */
#include "config.h"

#if defined(__GNUC__) && defined(__x86_64__) && !SURNN_SCALAR_ONLY
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")
#include "kernels.h"

/* The instruction multiplies unsigned by signed bytes, so q + 32768 is split into two bytes:
 * sum of w q = 256 * (sum of w high) + (sum of w low) - 32768 * (sum of w), modulo 2^32; the result
 * fits. Each weight is loaded once for both. HOLD keeps a vector in a register. */
#define DOT(a, bytes, w) a = _mm512_dpbusd_epi32(a, bytes, w)
#define HOLD(v) __asm__("" : "+v"(v))

static inline __attribute__((always_inline)) __m512i four_bytes(const uint8_t *p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

static inline __attribute__((always_inline)) void tiles8(int32_t *sum, const int8_t *w,
                                                         quantised_vector x,
                                                         const int32_t *row_sums, size_t n,
                                                         const int pieces) {
    __m512i high[4], low[4];
    for (int i = 0; i < pieces; i++) high[i] = low[i] = _mm512_setzero_si512();
    for (size_t j = 0; j < n; j += 4) {
        __m512i h = four_bytes(x.high + j), l = four_bytes(x.low + j);
#pragma GCC unroll 4
        for (int i = 0; i < pieces; i++, w += 64) {
            __m512i weights = _mm512_loadu_si512(w);
            DOT(high[i], h, weights);
            DOT(low[i], l, weights);
        }
    }
    for (int i = 0; i < pieces; i++) {
        __m512i all = _mm512_add_epi32(_mm512_slli_epi32(high[i], 8), low[i]);
        all = _mm512_sub_epi32(all, _mm512_slli_epi32(_mm512_loadu_si512(row_sums + 16 * i), 15));
        _mm512_storeu_si512(sum + 16 * i, all);
    }
}

/* Half vectors, for 8 lanes of one or three products. */
static inline __attribute__((always_inline)) void halves8(int32_t *sum, const int8_t *w,
                                                          quantised_vector x, const int32_t *row_sums,
                                                          size_t n, const int pieces) {
    __m256i high[3], low[3];
    for (int i = 0; i < pieces; i++) high[i] = low[i] = _mm256_setzero_si256();
    for (size_t j = 0; j < n; j += 4) {
        __m256i h = _mm512_castsi512_si256(four_bytes(x.high + j));
        __m256i l = _mm512_castsi512_si256(four_bytes(x.low + j));
#pragma GCC unroll 3
        for (int i = 0; i < pieces; i++, w += 32) {
            __m256i weights = _mm256_loadu_si256((const __m256i *)w);
            high[i] = _mm256_dpbusd_epi32(high[i], h, weights);
            low[i] = _mm256_dpbusd_epi32(low[i], l, weights);
        }
    }
    for (int i = 0; i < pieces; i++) {
        __m256i all = _mm256_add_epi32(_mm256_slli_epi32(high[i], 8), low[i]);
        __m256i offset = _mm256_loadu_si256((const __m256i *)(row_sums + 8 * i));
        all = _mm256_sub_epi32(all, _mm256_slli_epi32(offset, 15));
        _mm256_storeu_si256((__m256i *)(sum + 8 * i), all);
    }
}

static void tile8(int32_t *sum, const int8_t *w, quantised_vector x, const int32_t *row_sums,
                  size_t n, int products, int lanes) {
    switch (products * lanes / 8) {
    case 1: halves8(sum, w, x, row_sums, n, 1); break;
    case 2: tiles8(sum, w, x, row_sums, n, 1); break;
    case 3: halves8(sum, w, x, row_sums, n, 3); break;
    case 4: tiles8(sum, w, x, row_sums, n, 2); break;
    case 6: tiles8(sum, w, x, row_sums, n, 3); break;
    default: tiles8(sum, w, x, row_sums, n, 4); break;
    }
}

/* A unit's sums as vectors, sum[S]. Their first numbers start at -32768 * (sum of w). */
static inline __attribute__((always_inline)) void row8(void *sum, const int8_t *w, quantised_vector x,
                                                       const int32_t *row_sums, size_t n,
                                                       const int products) {
    __m512i high[4], low[4];
#pragma GCC unroll 4
    for (int d = 0; d < products; d++) {
        high[d] = _mm512_setzero_si512();
        low[d] = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)(0u - ((uint32_t)row_sums[d] << 15))));
    }
    for (size_t j = 0; j < n; j += 64) {
        __m512i h = _mm512_loadu_si512(x.high + j), l = _mm512_loadu_si512(x.low + j);
        HOLD(h);
        HOLD(l);
#pragma GCC unroll 4
        for (int d = 0; d < products; d++, w += 64) {
            __m512i weights = _mm512_loadu_si512(w);
            DOT(high[d], h, weights);
            DOT(low[d], l, weights);
        }
    }
#pragma GCC unroll 4
    for (int d = 0; d < products; d++)
        _mm512_storeu_si512((__m512i *)sum + d, _mm512_add_epi32(_mm512_slli_epi32(high[d], 8), low[d]));
}

#define HAS_INT8_KERNELS
#define MULTIPLY_ADD _mm512_fmadd_pd
#define SIGN_BITS(v) (uint32_t)_mm512_cmplt_epi32_mask((__m512i)(v), _mm512_setzero_si512())
#define WIDE 16
#define NAME surnn_kernels_avx512
#define LABEL "avx512"
#include "kernels_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
