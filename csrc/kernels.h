/* The inner loops, in one version for each kind of processor. kernels_scalar.c is the reference: plain
 * loops over single numbers. The others are kernels_vector.inc, compiled for vectors of 4 to 16. */
#ifndef SURNN_KERNELS_H
#define SURNN_KERNELS_H

#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PACKET = 16 };        /* units that a cell updates together */
enum { MAX_PRODUCTS = 4 };   /* largest S, the products per unit (GRU: r, z, n) */
enum { MAX_PARAMETERS = 2 }; /* largest P, the other parameters per unit */
enum { MAX_COMPONENTS = 3 }; /* state components per unit */
enum { BLOCK = 16, HALF_BLOCK = 8 }; /* time steps whose clocks are computed together */
enum { SLICE = 16 };         /* gates whose clocks are computed together */

enum { CELL_RNN_TANH, CELL_RNN_RELU, CELL_GRU, CELL_LSTM, CELL_LIF, CELL_ALIF, CELL_COUNT };
enum { GLU_SIGMOID, GLU_GELU, GLU_SILU, GLU_COUNT };
enum {
    ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_TANH, ACTIVATION_SILU, /* by kernels; others: activations.c */
    ACTIVATION_GELU_TANH, ACTIVATION_ELU, ACTIVATION_LEAKY_RELU, ACTIVATION_SOFTPLUS, ACTIVATION_CLAMP,
    ACTIVATION_HARD_SIGMOID, ACTIVATION_HARD_SWISH, ACTIVATION_MISH, ACTIVATION_SOFTSIGN,
    ACTIVATION_LOG_SIGMOID, ACTIVATION_SOFTMAX, ACTIVATION_LOG_SOFTMAX, ACTIVATION_COUNT
};

/* The numbers of PACKET units that a cell reads and writes; each pointer leads to [PACKET]. */
typedef struct packet {
    const float *x[MAX_PRODUCTS];      /* bias and input product */
    const float *h[MAX_PRODUCTS];      /* recurrent product */
    const float *unit[MAX_PARAMETERS]; /* the cell's parameters */
    float *state[MAX_COMPONENTS];      /* replaced by the state after the update */
} packet;

/* A vector for 8-bit weights: value = scale * q. Its numbers have 16 bits, |q| <= 32767; or 8 bits, and
 * low is NULL: |q| <= 127. Kernels of some processors read q. Others read the bytes of q + 32768; or, with
 * 8 bits, high = q + 128. Each is padded with q = 0 to a multiple of 64. */
typedef struct quantised_vector {
    int16_t *q;
    uint8_t *high, *low;
    float scale;
} quantised_vector;

/* Quantised vectors of PACKET streams, interleaved: [ceil(n / 16)][4][PACKET][4]. */
typedef struct interleaved_vectors {
    uint8_t *high, *low; /* as above */
    float scales[PACKET];
} interleaved_vectors;

/* The 8-bit weights of a tile or unit, with the sum and the scale of each row. */
typedef struct int8_weights {
    const int8_t *w;
    const int32_t *row_sums;
    const float *scales;
} int8_weights;

/* A slice of a rhythm's gates, in float. `rounding` + t * `phase` is the largest error of a sum. */
struct slice {
    float bias[SLICE], rounding[SLICE], phase[SLICE];
    float weights[][2][SLICE]; /* [K]: of the sines, then of the cosines */
};

/* `products` is S. Sums are written, not added to. */
typedef struct kernels {
    const char *name;
    /* sum[S][lanes] = w[n][S][lanes] times x[n]; lanes is 8 or 16. */
    void (*tile)(float *sum, const float *w, const float *x, size_t n, int products, int lanes);
    /* The same for `count` vectors x. Each sum equals that of `tile` bit for bit. */
    void (*tiles)(float *const *sum, const float *w, const float *const *x, size_t n, int products,
                  int lanes, int count);
    /* Up to PACKET units with weights and input of their own: sum[S][PACKET], where sum[s][i] is row s
     * of w[i] times x[i][n]. The rows of a unit are interleaved: w[i] is [n / 16][S][16], then
     * [S][n % 16]. Units with the same x, or the same w, are neighbours. */
    void (*rows)(float *sum, const float *const *w, const float *const *x, size_t n, int products,
                 int count);
    /* Some inputs of a tile of 16 lanes, S = 1: sum[16] = sum over i < n of w[j[i]][16] * x[i]. */
    void (*columns)(float *sum, const float *w, const uint32_t *j, const float *x, size_t n);
    /* `tiles` with 8-bit weights, plus biases[S][lanes] or NULL: n is a multiple of 4, w is
     * [n / 4][S][lanes][4]. All x have 8 bits, or all have 16. */
    void (*tiles8)(float *const *sum, const int8_weights *w, const quantised_vector *const *x,
                   const float *biases, size_t n, int products, int lanes, int count);
    /* `rows` with 8-bit weights: n is a multiple of 64, w[i] is [n / 64][S][64]. */
    void (*rows8)(float *sum, const int8_weights *w, const quantised_vector *const *x, size_t n,
                  int products, int count);
    /* A unit in PACKET streams: sum[S][PACKET]. Each sum equals that of `rows8`. Kernels without it have
     * NULL here. `interleave` writes bytes that it reads; n numbers of each x. */
    void (*lanes8)(float *sum, const int8_weights *w, const interleaved_vectors *x, size_t n,
                   int products);
    void (*interleave)(interleaved_vectors *v, const quantised_vector *const *x, size_t n);
    /* Quantises x[n] into v, in which pointers are set and scale is not. The scale becomes NaN if x has
     * NaN or infinity, and so do then all products with x. */
    void (*quantise)(quantised_vector *v, const float *x, size_t n);
    /* y[n] = a[n] + b[n]; y may be a or b. */
    void (*add)(float *y, const float *a, const float *b, size_t n);
    /* Updates all units of a packet. */
    void (*cell)(const packet *p, int cell, float threshold, float beta);
    void (*gelu)(float *y, const float *x, size_t n);
    void (*glu)(float *y, const float *value, const float *gate, size_t n, int activation);
    /* y[n] = f(x[n]); f is ACTIVATION_RELU, _SIGMOID, _TANH or _SILU. */
    void (*activate)(float *y, const float *x, size_t n, int activation);
    /* y = (x - mean) / sqrt(var + eps) * w + b; with rms: x / sqrt(mean of squares + eps) * w + b.
     * b may be NULL. */
    void (*norm)(float *y, const float *x, const float *w, const float *b, size_t n, float eps,
                 int rms);
    /* The sums of a slice, sums[SLICE]. waves[2][count]: sines, then cosines. */
    void (*sums)(float *sums, const struct slice *slice, const float *waves, size_t count);
#if SURNN_WARPED
    /* sines[n] and cosines[n] of angles[n], each within two roundings. */
    void (*turns)(double *sines, double *cosines, const double *angles, size_t n);
#endif
#if SURNN_CHUNK > 1
    /* The gates of a slice at BLOCK time steps, in float. Bit i of open[j]: gate i is open at time
     * step m + j - HALF_BLOCK. Bit i of unsure[j]: the sum is so close to 0 that its sign is not
     * certain. waves[2][count]: sin and cos of omega * m. rotations[count][2][HALF_BLOCK]: cos and sin
     * of omega * j, j = 1 .. HALF_BLOCK. t: the last of the time steps.
     *
     * With p = w sin(omega m) + v cos(omega m) and q = w cos(omega m) - v sin(omega m), the sums of
     * p cos(omega j) and of q sin(omega j) give the gates at m + j by their sum, and those at m - j by
     * their difference: half of the work. */
    void (*look_ahead)(uint16_t *open, uint16_t *unsure, const struct slice *slice,
                       const float *rotations, const float *waves, size_t count, float t);
#endif
} kernels;

/* tanh of cells, see kernels_vector.inc: coefficients of x (P0 + P1 x^2 ...) / (1 + Q1 x^2 ...). */
#define SATURATED 8.8f
#define TANH_P0 9.999999404e-01f
#define TANH_P1 1.338649541e-01f
#define TANH_P2 3.502348671e-03f
#define TANH_P3 2.073082214e-05f
#define TANH_P4 1.354371904e-08f
#define TANH_Q1 4.671979845e-01f
#define TANH_Q2 2.590202540e-02f
#define TANH_Q3 3.297141811e-04f
#define TANH_Q4 7.849577628e-07f

extern const kernels surnn_kernels_scalar;
/* The fastest for this machine, or those that the environment variable SURNN_SIMD names. */
const kernels *surnn_choose_kernels(void);

/* The factor that quantises v's n numbers; sets v's scale, which reverses it. `largest_bits` are the bits
 * of the largest absolute value. |q| is small enough that no sum overflows. */
static inline float quantisation_factor(quantised_vector *v, int32_t largest_bits, size_t n) {
    float largest, range = 127.0f;
    memcpy(&largest, &largest_bits, 4);
    v->scale = 0.0f;
    if (largest_bits >= 0x7f800000) v->scale = NAN;
    if (largest_bits >= 0x7f800000 || !(largest > 1e-30f)) return 0.0f;
    if (v->low) range = n * 127 * 32767 <= INT32_MAX ? 32767.0f : (float)((size_t)INT32_MAX / (127 * n));
    v->scale = largest / range;
    return range / largest;
}

#endif
