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
#define DOT(a, bytes, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(a) : "v"(bytes), "v"(w))
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

/* The constants that a version of add_rows is compiled for. */
typedef struct row_shape {
    int products, wide; /* as above */
    int count;          /* of units */
    int same_w, same_x; /* whether the units share them: they are loaded once */
} row_shape;

/* The units' sums as vectors, [count][MAX_PRODUCTS], without -128 or -32768 * (sum of w). */
ALWAYS void multiply_rows(__m512i *sum, const int8_weights *w, const quantised_vector *const *x, size_t n,
                          const row_shape shape) {
    enum { MOST = 16 };
    __m512i high[MOST], low[MOST];
    UNROLLED for (int i = 0; i < shape.count; i++)
        UNROLLED for (int d = 0; d < shape.products; d++)
            high[4 * i + d] = low[4 * i + d] = _mm512_setzero_si512();
    for (size_t j = 0, at = 0; j < n; j += 64, at += 64 * (size_t)shape.products) {
        __m512i h[4], l[4];
        UNROLLED for (int i = 0; i < shape.count; i++) {
            if (i && shape.same_x) {
                h[i] = h[0], l[i] = l[0];
                continue;
            }
            h[i] = l[i] = _mm512_loadu_si512(x[i]->high + j);
            if (shape.wide) l[i] = _mm512_loadu_si512(x[i]->low + j);
            HOLD(h[i]);
            HOLD(l[i]);
        }
        UNROLLED for (int d = 0; d < shape.products; d++) {
            __m512i weights = _mm512_setzero_si512();
            UNROLLED for (int i = 0; i < shape.count; i++) {
                if (!i || !shape.same_w) weights = _mm512_loadu_si512(w[i].w + at + 64 * d);
                if (shape.same_w) HOLD(weights);
                if (shape.wide) DOT(high[4 * i + d], h[i], weights);
                DOT(low[4 * i + d], l[i], weights);
            }
        }
    }
    UNROLLED for (int i = 0; i < shape.count; i++)
        UNROLLED for (int d = 0; d < shape.products; d++) {
            __m512i all = low[4 * i + d];
            if (shape.wide) all = _mm512_add_epi32(_mm512_slli_epi32(high[4 * i + d], 8), all);
            sum[MAX_PRODUCTS * i + d] = all;
        }
}

#define HAS_INT8_ROWS
#define ROWS_START(row_sums, wide) (0 - ((row_sums) << ((wide) ? 15 : 7)))
ALWAYS void rows8_of_four(void *sums, const int8_weights *w, const quantised_vector *const *x, size_t n,
                          const int products, int count, const int wide) {
    const int step = wide ? 2 : 4; /* units at once, whose sums fit into registers */
    __m512i *sum = sums;
    const row_shape one = {products, wide, 1, 0, 0};
    const row_shape by_w = {products, wide, step, 1, 0}, by_x = {products, wide, step, 0, 1};
    for (int i = 0; i < 4; i += step, w += step, x += step, sum += MAX_PRODUCTS * step, count -= step) {
        int same_w = count >= step, same_x = count >= step;
        for (int k = 1; k < step && count >= step; k++)
            same_w &= w[k].w == w[0].w, same_x &= x[k] == x[0];
        if (same_w) multiply_rows(sum, w, x, n, by_w);
        else if (same_x) multiply_rows(sum, w, x, n, by_x);
        else
            UNROLLED for (int k = 0; k < step; k++)
                if (k < count) multiply_rows(sum + MAX_PRODUCTS * k, w + k, x + k, n, one);
                else UNROLLED for (int d = 0; d < products; d++)
                    sum[MAX_PRODUCTS * k + d] = _mm512_setzero_si512();
    }
}

/* The sums of a unit in 16 streams. */
ALWAYS void multiply_lanes(float *sum, const int8_weights *w, const interleaved_vectors *x, size_t n,
                           const int products, const int wide) {
    __m512i high[4], low[4];
    UNROLLED for (int d = 0; d < products; d++) high[d] = low[d] = _mm512_setzero_si512();
    const uint8_t *row = (const uint8_t *)w->w;
    const uint8_t *h_bytes = x->high, *l_bytes = x->low;
    for (size_t j = 0; j < n; row += j % 64 ? 4 : 64 * (products - 1) + 4) {
        __m512i h = _mm512_loadu_si512(h_bytes + 16 * j), l = h;
        if (wide) l = _mm512_loadu_si512(l_bytes + 16 * j);
        HOLD(h);
        HOLD(l);
        UNROLLED for (int d = 0; d < products; d++) {
            __m512i weights = four_bytes(row + 64 * d);
            if (wide) DOT(high[d], h, weights);
            DOT(low[d], l, weights);
        }
        j += 4;
    }
    UNROLLED for (int d = 0; d < products; d++) {
        __m512i whole = _mm512_set1_epi32((int)(0u - ((uint32_t)w->row_sums[d] << (wide ? 15 : 7))));
        if (wide) whole = _mm512_add_epi32(whole, _mm512_slli_epi32(high[d], 8));
        whole = _mm512_add_epi32(whole, low[d]);
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(w->scales[d]), _mm512_loadu_ps(x->scales));
        _mm512_storeu_ps(sum + 16 * d, _mm512_mul_ps(_mm512_cvtepi32_ps(whole), scale));
    }
}

ALWAYS void multiply_any_lanes(float *sum, const int8_weights *w, const interleaved_vectors *x, size_t n,
                               const int products) {
    if (x->low) multiply_lanes(sum, w, x, n, products, 1);
    else multiply_lanes(sum, w, x, n, products, 0);
}

static void lanes8(float *sum, const int8_weights *w, const interleaved_vectors *x, size_t n, int products) {
    if (products == 3) multiply_any_lanes(sum, w, x, n, 3);
    else if (products == 4) multiply_any_lanes(sum, w, x, n, 4);
    else multiply_any_lanes(sum, w, x, n, 1);
}

/* 16 inputs of four streams at a time. */
ALWAYS void interleave_bytes(uint8_t *to, const uint8_t *const *from, size_t n) {
    for (int i = 0; i < 16; i += 4)
        for (size_t j = 0; j < n; j += 16) {
            __m128i x[4], pairs[4];
            __m128i *sixteen = (__m128i *)(void *)(to + 16 * j + 4 * i);
            UNROLLED for (int k = 0; k < 4; k++) x[k] = _mm_loadu_si128((const void *)(from[i + k] + j));
            pairs[0] = _mm_unpacklo_epi32(x[0], x[1]), pairs[1] = _mm_unpacklo_epi32(x[2], x[3]);
            pairs[2] = _mm_unpackhi_epi32(x[0], x[1]), pairs[3] = _mm_unpackhi_epi32(x[2], x[3]);
            _mm_storeu_si128(sixteen, _mm_unpacklo_epi64(pairs[0], pairs[1]));
            _mm_storeu_si128(sixteen + 4, _mm_unpackhi_epi64(pairs[0], pairs[1]));
            _mm_storeu_si128(sixteen + 8, _mm_unpacklo_epi64(pairs[2], pairs[3]));
            _mm_storeu_si128(sixteen + 12, _mm_unpackhi_epi64(pairs[2], pairs[3]));
        }
}

static void interleave(interleaved_vectors *v, const quantised_vector *const *x, size_t n) {
    const uint8_t *high[16], *low[16];
    for (int i = 0; i < 16; i++) v->scales[i] = x[i]->scale, high[i] = x[i]->high, low[i] = x[i]->low;
    interleave_bytes(v->high, high, n);
    if (v->low) interleave_bytes(v->low, low, n);
}

/* The first n of 16 lanes. */
ALWAYS __mmask16 first_lanes(size_t n) { return n < 16 ? (__mmask16)((1u << n) - 1) : 0xffff; }

/* Numbers from `at` on; zeros from n on. */
ALWAYS __m512 sixteen_of(const float *x, size_t at, size_t n) {
    return _mm512_maskz_loadu_ps(first_lanes(at < n ? n - at : 0), x + at);
}

/* 64 numbers of q + 128 or q + 32768, as bytes. Packing leaves groups of four in the order 0, 4, 8, 12, 1 ... */
ALWAYS void store_bytes(const quantised_vector *v, size_t at, const __m512i *q, const int wide) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i byte = _mm512_set1_epi16(255);
    __m512i first = _mm512_packus_epi32(q[0], q[1]), second = _mm512_packus_epi32(q[2], q[3]), bytes;
    if (wide) {
        bytes = _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(second, byte));
        _mm512_storeu_si512(v->low + at, _mm512_permutexvar_epi32(order, bytes));
        first = _mm512_srli_epi16(first, 8), second = _mm512_srli_epi16(second, 8);
    }
    bytes = _mm512_packus_epi16(first, second);
    _mm512_storeu_si512(v->high + at, _mm512_permutexvar_epi32(order, bytes));
}

ALWAYS void round_all(quantised_vector *v, const float *x, size_t n, size_t length, float factor,
                      const int wide) {
    const __m512i zero = _mm512_set1_epi32(0x4b400000 - (wide ? 32768 : 128));
    for (size_t at = 0; at < length; at += 64) {
        __m512i q[4];
        UNROLLED for (int i = 0; i < 4; i++) {
            __m512 numbers = sixteen_of(x, at + 16 * (size_t)i, n);
            numbers = _mm512_fmadd_ps(numbers, _mm512_set1_ps(factor), _mm512_set1_ps(12582912.0f));
            q[i] = _mm512_sub_epi32(_mm512_castps_si512(numbers), zero);
        }
        store_bytes(v, at, q, wide);
    }
}

/* See kernels.h and kernels_vector.inc. */
static void quantise(quantised_vector *v, const float *x, size_t n) {
    __m512i top = _mm512_setzero_si512();
    size_t length = (n + 63) / 64 * 64;
    for (size_t i = 0; i < n; i += 16) {
        __m512i bits = _mm512_castps_si512(sixteen_of(x, i, n));
        top = _mm512_max_epi32(top, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    float factor = quantisation_factor(v, _mm512_reduce_max_epi32(top), n);
    if (!(factor > 0.0f)) n = 0;
    if (v->low) round_all(v, x, n, length, factor, 1);
    else round_all(v, x, n, length, factor, 0);
}

#define HAS_QUANTISE
#define HAS_INT8_LANES
#define HAS_INT8_KERNELS
#define HAS_INT8_TILES
#define MULTIPLY_ADD _mm512_fmadd_pd
#define SIGN_BITS(v) (uint32_t)_mm512_cmplt_epi32_mask((__m512i)(v), _mm512_setzero_si512())
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
