/* ARM with the 8-bit products of ARMv8.2 (sdot). */
#include "config.h"

#if defined(__GNUC__) && defined(__aarch64__) && !SURNN_SCALAR_ONLY
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include <arm_neon.h>

#include "kernels.h"

/* The instruction multiplies signed bytes. With |q| <= 127, high - 128 is q; else q is 256 high + low + 128,
 * with both bytes less 128: sum of w q = 256 * (sum of w high) + (sum of w low) + 128 * (sum of w). Each
 * weight is loaded once. */
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS int8x16_t four_bytes(const uint8_t *p) {
    uint32_t four;
    __builtin_memcpy(&four, p, 4);
    return vreinterpretq_s8_u32(veorq_u32(vdupq_n_u32(four), vdupq_n_u32(0x80808080)));
}

ALWAYS int8x16_t bytes(const uint8_t *p) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80))); }

/* The sums of 8 of `width` rows. */
ALWAYS void part8(int32_t *sum, const int8_t *w, const quantised_vector *x, const int32_t *row_sums, size_t n,
                  size_t width, const int wide) {
    int32x4_t high[2] = {vdupq_n_s32(0), vdupq_n_s32(0)}, low[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (size_t j = 0; j < n; j += 4, w += 4 * width) {
        int8x16_t h = four_bytes(x->high + j), l = wide ? four_bytes(x->low + j) : h;
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            int8x16_t weights = vld1q_s8(w + 16 * i);
            high[i] = vdotq_s32(high[i], weights, h);
            if (wide) low[i] = vdotq_s32(low[i], weights, l);
        }
    }
    for (int i = 0; i < 2; i++) {
        int32x4_t all = high[i];
        if (wide) {
            all = vaddq_s32(vshlq_n_s32(high[i], 8), low[i]);
            all = vaddq_s32(all, vshlq_n_s32(vld1q_s32(row_sums + 4 * i), 7));
        }
        vst1q_s32(sum + 4 * i, all);
    }
}

static void whole_tile(int32_t *sum, const int8_weights *w, const quantised_vector *x, size_t n, int width) {
    const size_t all = (size_t)width;
    for (size_t u = 0; u < all; u += 8)
        if (x->low) part8(sum + u, w->w + 4 * u, x, w->row_sums + u, n, all, 1);
        else part8(sum + u, w->w + 4 * u, x, w->row_sums + u, n, all, 0);
}

/* A unit's sums as vectors, sum[S]. If wide, their first numbers start at 128 * (sum of w). */
ALWAYS void row8(void *sum, const int8_weights *weights, const quantised_vector *x, size_t n,
                 const int products, const int wide) {
    int32x4_t high[MAX_PRODUCTS], low[MAX_PRODUCTS];
    const int8_t *w = weights->w;
#pragma GCC unroll 4
    for (int d = 0; d < products; d++) {
        high[d] = vdupq_n_s32(0);
        low[d] = vsetq_lane_s32((int32_t)((uint32_t)weights->row_sums[d] << 7), vdupq_n_s32(0), 0);
    }
    for (size_t j = 0; j < n; j += 64, w += 64 * (products - 1))
        for (size_t i = 0; i < 64; i += 16, w += 16) {
            int8x16_t h = bytes(x->high + j + i), l = wide ? bytes(x->low + j + i) : h;
#pragma GCC unroll 4
            for (int d = 0; d < products; d++) {
                int8x16_t row = vld1q_s8(w + 64 * d);
                high[d] = vdotq_s32(high[d], row, h);
                if (wide) low[d] = vdotq_s32(low[d], row, l);
            }
        }
#pragma GCC unroll 4
    for (int d = 0; d < products; d++)
        vst1q_s32((int32_t *)sum + 4 * d, wide ? vaddq_s32(vshlq_n_s32(high[d], 8), low[d]) : high[d]);
}

#define HAS_INT8_KERNELS
#define READS_BYTES(wide) 1
#define MULTIPLY_ADD(a, b, c) ((dvec)vfmaq_f64(c, a, b))
#define WIDE 4
#define NAME surnn_kernels_dotprod
#define LABEL "dotprod"
#include "kernels_vector.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int nothing_here;
#endif
