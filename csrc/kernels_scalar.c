/* The reference: every kernel as plain loops. The other versions are tested against these. */
#include "kernels.h"

#include <math.h>

#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 16")
#if SURNN_MICRO
#pragma GCC optimize("O2") /* most instructions of a time step are here; -Os is good for the rest */
#endif
#else
#define UNROLL
#endif

/* Sums that stay in registers: a0, a1, ... Compilers store those of an array at every step. */
#define FOUR(f) f(0) f(1) f(2) f(3)
#define EIGHT(f) FOUR(f) f(4) f(5) f(6) f(7)
#define STORE(i) sum[i] = a##i;

static void tile(float *sum, const float *w, const float *x, size_t n, int products, int lanes) {
    size_t width = (size_t)products * (size_t)lanes;
    for (size_t u = 0; u < width; u += 8, w += 8, sum += 8) {
#define START(i) float a##i = 0.0f;
#define ADD(i) a##i += row[i] * input;
        const float *row = w;
        EIGHT(START)
        for (size_t j = 0; j < n; j++, row += width) {
            const float input = x[j];
            EIGHT(ADD)
        }
        EIGHT(STORE)
#undef START
#undef ADD
    }
}

static void tiles(float *const *sum, const float *w, const float *const *x, size_t n, int products,
                  int lanes, int count) {
    for (int i = 0; i < count; i++) tile(sum[i], w, x[i], n, products, lanes);
}

static void rows(float *sum, const float *const *units, const float *const *x, size_t n, int products,
                 int count) {
    memset(sum, 0, (size_t)products * PACKET * sizeof *sum);
    for (int i = 0; i < count; i++) {
        const float *w = units[i];
        for (size_t done = 0; done < n; done += 16) {
            const float *input = x[i] + done;
            size_t chunk = n - done < 16 ? n - done : 16;
            for (int s = 0; s < products; s++, w += chunk) {
                float total = sum[s * PACKET + i];
                if (chunk == 16) UNROLL for (int j = 0; j < 16; j++) total += w[j] * input[j];
                else for (size_t j = 0; j < chunk; j++) total += w[j] * input[j];
                sum[s * PACKET + i] = total;
            }
        }
    }
}

static void columns(float *sum, const float *w, const uint32_t *j, const float *x, size_t n) {
    memset(sum, 0, 16 * sizeof *sum);
    for (size_t i = 0; i < n; i++)
        for (size_t u = 0; u < 16; u++) sum[u] += w[(size_t)j[i] * 16 + u] * x[i];
}

#if SURNN_INT8
/* Products of four weights and four numbers of q are added to a sum. With the DSP instructions of ARM,
 * four_of takes q as 0, 2 and 1, 3. */
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && !defined(__aarch64__)
typedef struct four {
    int16x2_t even, odd;
} four;

static inline four four_of(const int16_t *q) {
    uint32_t first, second;
    four pairs;
    memcpy(&first, q, 4);
    memcpy(&second, q + 2, 4);
    pairs.even = (int16x2_t)((first & 0xffff) | second << 16);
    pairs.odd = (int16x2_t)(first >> 16 | (second & 0xffff0000));
    return pairs;
}

static inline int32_t add_four(int32_t sum, const int8_t *w, four q) {
    uint32_t bytes;
    memcpy(&bytes, w, 4);
    sum = __smlad(__sxtb16((int8x4_t)bytes), q.even, sum);
    return __smlad(__sxtb16((int8x4_t)(bytes >> 8 | bytes << 24)), q.odd, sum);
}
#else
typedef const int16_t *four;

static inline four four_of(const int16_t *q) { return q; }

static inline int32_t add_four(int32_t sum, const int8_t *w, four q) {
    return sum + w[0] * q[0] + w[1] * q[1] + w[2] * q[2] + w[3] * q[3];
}
#endif

static void whole_tile(int32_t *sum, const int8_t *w, const int16_t *numbers, size_t n, size_t width) {
    for (size_t u = 0; u < width; u += 4, w += 16, sum += 4) {
#define START(i) int32_t a##i = 0;
#define ADD(i) a##i = add_four(a##i, row + 4 * i, q);
        const int8_t *row = w;
        FOUR(START)
        for (size_t j = 0; j < n; j += 4, row += 4 * width) {
            four q = four_of(numbers + j);
            FOUR(ADD)
        }
        FOUR(STORE)
#undef START
#undef ADD
    }
}

static void tiles8(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                   const float *biases, size_t n, int products, int lanes, int count) {
    size_t width = (size_t)products * (size_t)lanes;
    int32_t whole[MAX_PRODUCTS * PACKET];
    for (int i = 0; i < count; i++) {
        whole_tile(whole, w->w, x[i]->q, n, width);
        for (size_t u = 0; u < width; u++) {
            float value = (float)whole[u] * (w->scales[u] * x[i]->scale);
            sum[i][u] = biases ? value + biases[u] : value;
        }
    }
}

static inline void row8(int32_t *sum, const int8_t *w, const int16_t *q, size_t n, const int products) {
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    for (size_t j = 0; j < n; j += 64, w += 64 * (products - 1))
        for (size_t k = 0; k < 64; k += 4, w += 4) {
            four numbers = four_of(q + j + k);
            a0 = add_four(a0, w, numbers);
            if (products > 1) a1 = add_four(a1, w + 64, numbers);
            if (products > 2) a2 = add_four(a2, w + 128, numbers);
            if (products > 3) a3 = add_four(a3, w + 192, numbers);
        }
    sum[0] = a0;
    if (products > 1) sum[PACKET] = a1;
    if (products > 2) sum[2 * PACKET] = a2;
    if (products > 3) sum[3 * PACKET] = a3;
}

static void rows8(float *sum, const int8_weights *w, const quantised_vector *const *x, size_t n,
                  int products, int count) {
    int32_t whole[MAX_PRODUCTS * PACKET];
    for (int i = 0; i < count; i++) {
        if (products == 3) row8(whole + i, w[i].w, x[i]->q, n, 3);
        else if (products == 4) row8(whole + i, w[i].w, x[i]->q, n, 4);
        else row8(whole + i, w[i].w, x[i]->q, n, 1);
        for (int s = 0; s < products; s++)
            sum[s * PACKET + i] = (float)whole[s * PACKET + i] * (w[i].scales[s] * x[i]->scale);
    }
}

static void quantise(quantised_vector *v, const float *x, size_t n) {
    int32_t largest = 0;
    size_t padded = (n + 63) / 64 * 64;
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], 4);
        bits &= 0x7fffffff; /* absolute values are ordered as their bits */
        if (bits > largest) largest = bits;
    }
    float inverse = quantisation_factor(v, largest, n);
    for (size_t i = 0; i < padded; i++) {
        /* Adding 1.5 * 2^23 rounds to the nearest integer. */
        float shifted = 12582912.0f + (i < n && inverse > 0.0f ? x[i] * inverse : 0.0f);
        int32_t whole;
        memcpy(&whole, &shifted, 4);
        v->q[i] = (int16_t)(whole - 0x4b400000);
    }
}

#endif

static void add(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

/* exp, tanh and gelu are those of the vector kernels: the libraries of microcontrollers compute in double. */
static float exp_of(float x) {
    float shifted, k, r, y, power;
    uint32_t bits;
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    shifted = x * 1.44269504f + 12582912.0f;
    k = shifted - 12582912.0f;
    r = x - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    memcpy(&bits, &shifted, 4);
    bits = (bits - 0x4b400000u + 127u) << 23;
    memcpy(&power, &bits, 4);
    return y * power;
}

static float tanh_of(float x) {
    float size = fabsf(x), s = x * x, y = -5.70498872745e-3f;
    if (!(size < 0.625f)) return copysignf(1.0f - 2.0f / (exp_of(size + size) + 1.0f), x);
    y = y * s + 2.06390887954e-2f;
    y = y * s + -5.37397155531e-2f;
    y = y * s + 1.33314422036e-1f;
    y = y * s + -3.33332819422e-1f;
    return y * s * x + x;
}

static float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }

static float gelu_of(float x) {
    float u = fabsf(x * 0.70710678f), t = 1.0f / (1.0f + 0.3275911f * u), y = 1.061405429f;
    y = y * t + -1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t + -0.284496736f;
    y = y * t + 0.254829592f;
    return 0.5f * x * (1.0f + copysignf(1.0f - y * t * exp_of(-u * u), x));
}

/* See kernels_vector.inc. */
static float cell_tanh(float x) {
    float s, p = TANH_P4, q = TANH_Q4;
    x = x < -SATURATED ? -SATURATED : x > SATURATED ? SATURATED : x;
    s = x * x;
    p = p * s + TANH_P3, q = q * s + TANH_Q3;
    p = p * s + TANH_P2, q = q * s + TANH_Q2;
    p = p * s + TANH_P1, q = q * s + TANH_Q1;
    p = p * s + TANH_P0, q = q * s + 1.0f;
    p = x * p / q;
    return p < -1.0f ? -1.0f : p > 1.0f ? 1.0f : p;
}

static float cell_sigmoid(float x) { return 0.5f + 0.5f * cell_tanh(0.5f * x); }

static void update_unit(const packet *p, int cell, float threshold, float beta, int i) {
    static const int products[CELL_COUNT] = {1, 1, 3, 4, 1, 1};
    float pre[MAX_PRODUCTS], *h = p->state[0] + i;
    for (int s = 0; s < products[cell]; s++) pre[s] = p->x[s][i] + p->h[s][i];
    if (cell == CELL_RNN_TANH) {
        *h = cell_tanh(pre[0]);
    } else if (cell == CELL_RNN_RELU) {
        *h = pre[0] <= 0.0f ? 0.0f : pre[0]; /* NaN passes */
    } else if (cell == CELL_GRU) {
        float r = cell_sigmoid(pre[0]), z = cell_sigmoid(pre[1]);
        float n = cell_tanh(p->x[2][i] + r * (p->h[2][i] + p->unit[0][i]));
        *h = (1.0f - z) * n + z * *h;
    } else if (cell == CELL_LSTM) {
        float c = cell_sigmoid(pre[1]) * p->state[1][i] + cell_sigmoid(pre[0]) * cell_tanh(pre[2]);
        p->state[1][i] = c;
        *h = cell_sigmoid(pre[3]) * cell_tanh(c);
    } else {
        int adapts = cell == CELL_ALIF;
        float alpha = p->unit[0][i], rho = adapts ? p->unit[1][i] : 0.0f;
        float b = adapts ? p->state[2][i] : 0.0f;
        float v = p->state[1][i] + (1.0f - alpha) * pre[0];
        float theta = adapts ? threshold + beta * b : threshold;
        float s = v - theta > 0.0f ? 1.0f : 0.0f;
        if (adapts) {
            b = rho * b + (1.0f - rho) * s;
            theta = threshold + beta * b;
            p->state[2][i] = b;
        }
        p->state[1][i] = alpha * v - theta * s;
        *h = s;
    }
}

static void cell(const packet *p, int kind, float threshold, float beta) {
    for (int i = 0; i < PACKET; i++) update_unit(p, kind, threshold, beta, i);
}

static void gelu(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = gelu_of(x[i]);
}

static void glu(float *y, const float *value, const float *gate, size_t n, int kind) {
    for (size_t i = 0; i < n; i++) {
        float g = gate[i];
        y[i] = value[i] * (kind == GLU_GELU ? gelu_of(g) : kind == GLU_SILU ? g * sigmoid(g)
                                                                            : sigmoid(g));
    }
}

static float activated(float x, int kind) {
    if (kind == ACTIVATION_RELU) return x <= 0.0f ? 0.0f : x; /* NaN passes */
    if (kind == ACTIVATION_TANH) return tanh_of(x);
    return kind == ACTIVATION_SILU ? x * sigmoid(x) : sigmoid(x);
}

static void activate(float *y, const float *x, size_t n, int kind) {
    for (size_t i = 0; i < n; i++) y[i] = activated(x[i], kind);
}

static void norm(float *y, const float *x, const float *w, const float *b, size_t n, float eps,
                 int rms) {
    float mean = 0.0f, square = 0.0f;
    for (size_t i = 0; i < n && !rms; i++) mean += x[i];
    mean /= (float)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    float scale = 1.0f / sqrtf(square / (float)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0.0f);
}

static void sums(float *sum, const struct slice *slice, const float *waves, size_t count) {
    for (int first = 0; first < SLICE; first += 8, sum += 8) {
#define START(i) float a##i = slice->bias[first + i];
#define ADD(i) a##i += by_sine[i] * sine + by_cosine[i] * cosine;
        const float *by_sine = slice->weights[0][0] + first, *by_cosine = by_sine + SLICE;
        EIGHT(START)
        for (size_t k = 0; k < count; k++, by_sine += 2 * SLICE, by_cosine += 2 * SLICE) {
            const float sine = waves[k], cosine = waves[count + k];
            EIGHT(ADD)
        }
        EIGHT(STORE)
#undef START
#undef ADD
    }
}

#if SURNN_WARPED
static void turns(double *sines, double *cosines, const double *angles, size_t n) {
    for (size_t i = 0; i < n; i++) sines[i] = sin(angles[i]), cosines[i] = cos(angles[i]);
}
#endif

#if SURNN_CHUNK > 1
static void look_ahead(uint16_t *open, uint16_t *unsure, const struct slice *slice,
                       const float *rotations, const float *waves, size_t count, float t) {
    memset(open, 0, BLOCK * sizeof *open);
    memset(unsure, 0, BLOCK * sizeof *unsure);
    for (int i = 0; i < SLICE; i++) {
        float error = slice->rounding[i] + slice->phase[i] * t;
        for (int step = 0; step < BLOCK; step++) {
            int distance = step < HALF_BLOCK ? HALF_BLOCK - step : step - HALF_BLOCK;
            float even = 0.0f, odd = 0.0f;
            for (size_t k = 0; k < count; k++) {
                const float w = slice->weights[k][0][i], v = slice->weights[k][1][i];
                const float *turn = rotations + k * 2 * HALF_BLOCK + distance - 1;
                float p = w * waves[k] + v * waves[count + k];
                float q = w * waves[count + k] - v * waves[k];
                even += distance ? p * turn[0] : p;
                odd += distance ? q * turn[HALF_BLOCK] : 0.0f;
            }
            float a = slice->bias[i] + even + (step < HALF_BLOCK ? -odd : odd);
            open[step] |= (uint16_t)((a > 0.0f) << i);
            unsure[step] |= (uint16_t)(!(fabsf(a) > error) << i);
        }
    }
}

#endif

const kernels surnn_kernels_scalar = {
    "scalar", tile, tiles, rows, columns,
#if SURNN_INT8
    tiles8, rows8, NULL, NULL, quantise,
#else
    NULL, NULL, NULL, NULL, NULL,
#endif
    add, cell, gelu, glu, activate, norm, sums,
#if SURNN_WARPED
    turns,
#endif
#if SURNN_CHUNK > 1
    look_ahead,
#endif
};
