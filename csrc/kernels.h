/* The inner loops, in one version for each kind of processor. kernels_scalar.c is the law: plain
 * loops over single numbers. The others are kernels_vector.inc with vectors of their width. */
#ifndef SURNN_KERNELS_H
#define SURNN_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PACKET = 16 };      /* units that a cell is computed for at once */
enum { MOST_DRIVES = 4 };  /* S: products that reach a unit (GRU: r, z, n) */
enum { MOST_PARTS = 3 };   /* state components of a unit */
enum { BLOCK = 16 };       /* steps whose gates are made at once */

enum { CELL_RNN_TANH, CELL_RNN_RELU, CELL_GRU, CELL_LSTM, CELL_LIF, CELL_ALIF, CELLS };
enum { GLU_SIGMOID, GLU_GELU, GLU_SILU, GLUS };

/* Where the numbers of PACKET units are, for a cell. */
typedef struct packet {
    const float *x[MOST_DRIVES]; /* bias and input product */
    const float *h[MOST_DRIVES]; /* recurrent product */
    const float *unit[2];        /* the cell's parameters of each unit */
    float *state[MOST_PARTS];    /* before and, afterwards, after the update */
} packet;

/* A vector for 8-bit weights: value = scale * q, |q| <= 32767, and (q + 32768) as two bytes. */
typedef struct quantised {
    const int16_t *q;
    const uint8_t *high, *low;
} quantised;

typedef struct kernels {
    const char *name;
    /* sum[s * lanes + u] = sum over j < n of w[(j * S + s) * lanes + u] * x[j]; lanes 8 or 16. */
    void (*tile)(float *sum, const float *w, const float *x, size_t n, int drives, int lanes);
    /* The same for several x; each sum is, bit for bit, what tile would give. */
    void (*tiles)(float *const *sum, const float *w, const float *const *x, size_t n, int drives,
                  int lanes, int count);
    /* Up to PACKET units: sum[s * PACKET + i] = sum over j < n of row s of w[i], times x[i]. A unit's
     * rows are interleaved by 16, what is left over by its size. Units of one x follow one another. */
    void (*rows)(float *sum, const float *const *w, const float *const *x, size_t n, int drives,
                 int count);
    /* sum[u] = sum over i < n of w[j[i] * 16 + u] * x[i]: some columns of a tile of one product. */
    void (*columns)(float *sum, const float *w, const uint32_t *j, const float *x, size_t n);
    /* tile and rows with 8-bit weights. tile8: n is a multiple of 4, w is [n / 4][S][lanes][4];
     * rows8: n is a multiple of 64, w[i] is [n / 64][S][64]. `sums` are those of each row's weights. */
    void (*tile8)(int32_t *sum, const int8_t *w, quantised x, const int32_t *sums, size_t n,
                  int drives, int lanes);
    void (*rows8)(int32_t *sum, const int8_t *const *w, const quantised *x,
                  const int32_t *const *sums, size_t n, int drives, int count);
    /* x[n] for 8-bit weights: q, high and low of `padded` numbers (a multiple of 64), and the scale,
     * which is NaN if x has NaN or infinity: so is then all that reads it. */
    float (*quantise)(const float *x, size_t n, size_t padded, int16_t *q, uint8_t *high,
                      uint8_t *low);
    /* The cell's update of all units of a packet. */
    void (*cell)(const packet *p, int cell, float threshold, float beta);
    void (*gelu)(float *y, const float *x, size_t n);
    void (*glu)(float *y, const float *value, const float *gate, size_t n, int kind);
    /* y = (x - mean) / sqrt(var + eps) * w + b, or with rms x / sqrt(mean of squares + eps) * w. */
    void (*norm)(float *y, const float *x, const float *w, const float *b, size_t n, float eps,
                 int rms);
    /* waves[BLOCK][2][count]: sin and cos of the double product omega * t at BLOCK steps from t on.
     * turns[BLOCK][2][count] are sin and cos of the exact omega * j. */
    void (*waves)(double *waves, const double *omega, const double *turns, size_t count, int64_t t);
    /* a[width] = bias + weights[2 * count][width] summed with wave[2 * count]; width a multiple of 8,
     * for BLOCK steps: a[BLOCK][width]. */
    void (*mix)(double *a, const double *waves, const double *weights, const double *bias,
                size_t count, size_t width);
} kernels;

extern const kernels surnn_kernels_scalar;
/* The best for this machine, or the one that the environment variable SURNN_SIMD names. */
const kernels *surnn_choose_kernels(void);

/* How vectors of n numbers, the largest of which has these bits, become whole numbers: what they are
 * multiplied by, and back. |q| is small enough for no sum to overflow. */
static inline float quantiser(int32_t largest_bits, size_t n, float *scale) {
    size_t most = (size_t)INT32_MAX / (127 * (n ? n : 1));
    float largest, inverse;
    memcpy(&largest, &largest_bits, 4);
    if (largest_bits >= 0x7f800000) {
        *scale = NAN;
        return 0.0f;
    }
    inverse = largest > 1e-30f ? (float)(most < 32767 ? most : 32767) / largest : 0.0f;
    *scale = inverse > 0.0f ? 1.0f / inverse : 0.0f;
    return inverse;
}

#endif
