/* The reference: every kernel as plain loops. The other versions are tested against these. */
#include "kernels.h"

#include <math.h>

static void tile(float *sum, const float *w, const float *x, size_t n, int products, int lanes) {
    size_t width = (size_t)products * (size_t)lanes;
    memset(sum, 0, width * sizeof *sum);
    for (size_t j = 0; j < n; j++)
        for (size_t u = 0; u < width; u++) sum[u] += w[j * width + u] * x[j];
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
            size_t chunk = n - done < 16 ? n - done : 16;
            for (int s = 0; s < products; s++, w += chunk)
                for (size_t j = 0; j < chunk; j++) sum[s * PACKET + i] += w[j] * x[i][done + j];
        }
    }
}

static void columns(float *sum, const float *w, const uint32_t *j, const float *x, size_t n) {
    memset(sum, 0, 16 * sizeof *sum);
    for (size_t i = 0; i < n; i++)
        for (size_t u = 0; u < 16; u++) sum[u] += w[(size_t)j[i] * 16 + u] * x[i];
}

static void tile8(int32_t *sum, const int8_t *w, quantised_vector x, const int32_t *row_sums,
                  size_t n, int products, int lanes) {
    size_t width = (size_t)products * (size_t)lanes;
    (void)row_sums;
    memset(sum, 0, width * sizeof *sum);
    for (size_t j = 0; j < n; j += 4)
        for (size_t u = 0; u < width; u++, w += 4)
            for (size_t i = 0; i < 4; i++) sum[u] += (int32_t)w[i] * x.q[j + i];
}

static void rows8(int32_t *sum, const int8_t *const *units, const quantised_vector *x,
                  const int32_t *const *row_sums, size_t n, int products, int count) {
    (void)row_sums;
    memset(sum, 0, (size_t)products * PACKET * sizeof *sum);
    for (int i = 0; i < count; i++) {
        const int8_t *w = units[i];
        for (size_t j = 0; j < n; j += 64)
            for (int s = 0; s < products; s++, w += 64)
                for (size_t k = 0; k < 64; k++) sum[s * PACKET + i] += (int32_t)w[k] * x[i].q[j + k];
    }
}

static float quantise(const float *x, size_t n, size_t padded, int16_t *q, uint8_t *high,
                      uint8_t *low) {
    int32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], 4);
        bits &= 0x7fffffff; /* absolute values are ordered as their bits */
        if (bits > largest) largest = bits;
    }
    float scale, inverse = quantisation_factor(largest, n, &scale);
    for (size_t i = 0; i < padded; i++) {
        /* Adding 1.5 * 2^23 rounds to the nearest integer. */
        float shifted = 12582912.0f + (i < n && inverse > 0.0f ? x[i] * inverse : 0.0f);
        int32_t whole;
        memcpy(&whole, &shifted, 4);
        whole -= 0x4b400000;
        q[i] = (int16_t)whole;
        high[i] = (uint8_t)((whole + 32768) >> 8), low[i] = (uint8_t)(whole & 255);
    }
    return scale;
}

static void dequantise(float *y, const int32_t *whole, const float *scales, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (float)whole[i] * (scales[i] * scale);
}

static void add(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static float gelu_of(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

static void update_unit(const packet *p, int cell, float threshold, float beta, int i) {
    static const int products[CELL_COUNT] = {1, 1, 3, 4, 1, 1};
    float pre[MAX_PRODUCTS], *h = p->state[0] + i;
    for (int s = 0; s < products[cell]; s++) pre[s] = p->x[s][i] + p->h[s][i];
    if (cell == CELL_RNN_TANH) {
        *h = tanhf(pre[0]);
    } else if (cell == CELL_RNN_RELU) {
        *h = pre[0] <= 0.0f ? 0.0f : pre[0]; /* NaN passes */
    } else if (cell == CELL_GRU) {
        float r = sigmoid(pre[0]), z = sigmoid(pre[1]);
        float n = tanhf(p->x[2][i] + r * (p->h[2][i] + p->unit[0][i]));
        *h = (1.0f - z) * n + z * *h;
    } else if (cell == CELL_LSTM) {
        float c = sigmoid(pre[1]) * p->state[1][i] + sigmoid(pre[0]) * tanhf(pre[2]);
        p->state[1][i] = c;
        *h = sigmoid(pre[3]) * tanhf(c);
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
    if (kind == ACTIVATION_TANH) return tanhf(x);
    return kind == ACTIVATION_SILU ? x * sigmoid(x) : sigmoid(x);
}

static void activate(float *y, const float *x, size_t n, int kind) {
    for (size_t i = 0; i < n; i++) y[i] = activated(x[i], kind);
}

static void norm(float *y, const float *x, const float *w, const float *b, size_t n, float eps,
                 int rms) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < n && !rms; i++) mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    double scale = 1.0 / sqrt(square / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * scale) * w[i] + (b ? b[i] : 0.0f);
}

static void turns(double *sines, double *cosines, const double *angles, size_t n) {
    for (size_t i = 0; i < n; i++) sines[i] = sin(angles[i]), cosines[i] = cos(angles[i]);
}

static void mix(double *a, const double *waves, const double *weights, const double *bias,
                size_t count, size_t width) {
    for (size_t i = 0; i < width; i++) a[i] = 0.0;
    for (size_t k = 0; k < 2 * count; k++)
        for (size_t i = 0; i < width; i++) a[i] += weights[k * width + i] * waves[k];
    for (size_t i = 0; i < width; i++) a[i] += bias[i];
}

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

const kernels surnn_kernels_scalar = {"scalar", tile, tiles, rows, columns, tile8, rows8, quantise,
                                      dequantise, add, cell, gelu, glu, activate, norm, turns, mix,
                                      look_ahead};
