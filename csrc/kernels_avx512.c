/* x86 with AVX-512 and its 8-bit products (VNNI). */
#include "config.h"

#if defined(__GNUC__) && defined(__x86_64__) && !SURNN_SCALAR_ONLY
#include <immintrin.h>
#include "target.h"
BEGIN_TARGET("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")
#include "kernels.h"

/* The instruction multiplies unsigned by signed bytes. With |q| <= 127,
 *   sum of w q = (sum of w (q + 128)) - 128 * (sum of w);
 * else q + 32768 is split into two bytes:
 *   sum of w q = 256 * (sum of w high) + (sum of w low) - 32768 * (sum of w),
 * modulo 2^32; the result fits. Each weight is loaded once for both bytes, and for several vectors x.
 * HOLD keeps a vector in a register. */
#define DOT(a, bytes, w) a = _mm512_dpbusd_epi32(a, bytes, w)
#define HOLD(v) __asm__("" : "+v"(v))
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 32")

/* The constants that a version of multiply_tile is compiled for. */
typedef struct tile_shape {
    int vectors; /* of 16 rows in a tile */
    int half;    /* 1: the last has 8 rows */
    int count;   /* of vectors x */
    int wide;    /* 1: x has two bytes */
    int ahead;   /* inputs that are added to separate sums, so that no addition waits for the one before */
} tile_shape;

ALWAYS __m512i four_bytes(const uint8_t *p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

ALWAYS __mmask16 lanes_of(const tile_shape shape, int vector) {
    return shape.half && vector == shape.vectors - 1 ? 0xff : 0xffff;
}

/* high[], low[]: sums of inputs j, for each x and each vector of rows. */
ALWAYS void add_input(__m512i *high, __m512i *low, const int8_t *w, const quantised_vector *const *x,
                      size_t j, const tile_shape shape) {
    __m512i weights[4];
    UNROLLED for (int i = 0; i < shape.vectors; i++)
        weights[i] = _mm512_maskz_loadu_epi32(lanes_of(shape, i), w + 64 * i);
    UNROLLED for (int k = 0; k < shape.count; k++) {
        __m512i h = four_bytes(x[k]->high + j);
        UNROLLED for (int i = 0; i < shape.vectors; i++) DOT(high[k * shape.vectors + i], h, weights[i]);
        if (!shape.wide) continue;
        __m512i l = four_bytes(x[k]->low + j);
        UNROLLED for (int i = 0; i < shape.vectors; i++) DOT(low[k * shape.vectors + i], l, weights[i]);
    }
}

ALWAYS void multiply_tile(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                          const float *biases, size_t n, const tile_shape shape) {
    enum { MOST = 16, AHEAD = 4 };
    const int sums = shape.count * shape.vectors, width = 16 * shape.vectors - 8 * shape.half;
    const size_t ahead = (size_t)shape.ahead;
    __m512i high[AHEAD][MOST], low[AHEAD][MOST];
    const int8_t *row = w->w;
    size_t j = 0;
    UNROLLED for (int u = 0; u < shape.ahead; u++)
        UNROLLED for (int i = 0; i < sums; i++) high[u][i] = low[u][i] = _mm512_setzero_si512();
    for (; j + 4 * ahead <= n; j += 4 * ahead)
        UNROLLED for (int u = 0; u < shape.ahead; u++, row += 4 * width)
            add_input(high[u], low[u], row, x, j + 4 * (size_t)u, shape);
    for (; j < n; j += 4, row += 4 * width) add_input(high[0], low[0], row, x, j, shape);
    UNROLLED for (int k = 0; k < shape.count; k++)
        UNROLLED for (int i = 0; i < shape.vectors; i++) {
            const __mmask16 lanes = lanes_of(shape, i);
            const int at = k * shape.vectors + i;
            __m512i whole = _mm512_maskz_loadu_epi32(lanes, w->row_sums + 16 * i);
            whole = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(whole, shape.wide ? 15 : 7));
            UNROLLED for (int u = 0; u < shape.ahead; u++) {
                __m512i h = high[u][at];
                if (shape.wide) h = _mm512_add_epi32(_mm512_slli_epi32(h, 8), low[u][at]);
                whole = _mm512_add_epi32(whole, h);
            }
            __m512 scale = _mm512_maskz_loadu_ps(lanes, w->scales + 16 * i);
            __m512 bias = biases ? _mm512_maskz_loadu_ps(lanes, biases + 16 * i) : _mm512_setzero_ps();
            scale = _mm512_mul_ps(scale, _mm512_set1_ps(x[k]->scale));
            _mm512_mask_storeu_ps(sum[k] + 16 * i, lanes,
                                  _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, bias));
        }
}

/* Several x at a time, then one after another. */
ALWAYS void multiply_tiles(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                           const float *biases, size_t n, int count, const int vectors, const int half) {
    enum { BYTES = 4, WORDS = 2 }; /* more sums than these do not fit into registers */
    const tile_shape bytes = {vectors, half, BYTES, 0, 1}, one_byte = {vectors, half, 1, 0, 4};
    const tile_shape words = {vectors, half, WORDS, 1, 1}, one_word = {vectors, half, 1, 1, 1};
    if (x[0]->low) {
        for (; count >= WORDS; count -= WORDS, sum += WORDS, x += WORDS)
            multiply_tile(sum, w, x, biases, n, words);
        for (; count; count--, sum++, x++) multiply_tile(sum, w, x, biases, n, one_word);
    } else {
        for (; count >= BYTES; count -= BYTES, sum += BYTES, x += BYTES)
            multiply_tile(sum, w, x, biases, n, bytes);
        for (; count; count--, sum++, x++) multiply_tile(sum, w, x, biases, n, one_byte);
    }
}

static void tiles8(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                   const float *biases, size_t n, int products, int lanes, int count) {
    switch (products * lanes / 8) {
    case 1: multiply_tiles(sum, w, x, biases, n, count, 1, 1); break;
    case 2: multiply_tiles(sum, w, x, biases, n, count, 1, 0); break;
    case 3: multiply_tiles(sum, w, x, biases, n, count, 2, 1); break;
    case 4: multiply_tiles(sum, w, x, biases, n, count, 2, 0); break;
    case 6: multiply_tiles(sum, w, x, biases, n, count, 3, 0); break;
    default: multiply_tiles(sum, w, x, biases, n, count, 4, 0); break;
    }
}

/* A unit's sums as vectors, sum[S]. Their first numbers start at -128 or -32768 * (sum of w). */
ALWAYS void row8(void *sum, const int8_weights *w, const quantised_vector *x, size_t n,
                 const int products, const int wide) {
    __m512i high[4], low[4];
    const int8_t *row = w->w;
    UNROLLED for (int d = 0; d < products; d++) {
        uint32_t start = 0u - ((uint32_t)w->row_sums[d] << (wide ? 15 : 7));
        low[d] = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)start));
        high[d] = _mm512_setzero_si512();
    }
    for (size_t j = 0; j < n; j += 64) {
        __m512i h = _mm512_loadu_si512(x->high + j), l = h;
        if (wide) l = _mm512_loadu_si512(x->low + j);
        HOLD(h);
        HOLD(l);
        UNROLLED for (int d = 0; d < products; d++, row += 64) {
            __m512i weights = _mm512_loadu_si512(row);
            if (wide) DOT(high[d], h, weights);
            DOT(low[d], l, weights);
        }
    }
    UNROLLED for (int d = 0; d < products; d++) {
        if (wide) low[d] = _mm512_add_epi32(_mm512_slli_epi32(high[d], 8), low[d]);
        _mm512_storeu_si512((__m512i *)sum + d, low[d]);
    }
}

#define HAS_INT8_KERNELS
#define HAS_INT8_TILES
#define READS_BYTES(wide) 1
#define MULTIPLY_ADD _mm512_fmadd_pd
#define SIGN_BITS(v) (uint32_t)_mm512_cmplt_epi32_mask((__m512i)(v), _mm512_setzero_si512())
#define LARGEST(v) _mm512_reduce_max_epi32((__m512i)(v))
#define AT_LEAST(x, low) ((vec)_mm512_max_ps((__m512)(low), (__m512)(x)))
#define AT_MOST(x, high) ((vec)_mm512_min_ps((__m512)(high), (__m512)(x)))
#define WIDE 16
#define NAME surnn_kernels_avx512
#define LABEL "avx512"
#include "kernels_vector.inc"
END_TARGET
#else
typedef int nothing_here;
#endif
