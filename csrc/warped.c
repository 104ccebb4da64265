/* Rhythms with a learned clock. The clock is a piecewise linear function in double, as in Python, and so
 * are the sums. The gates of its first horizon are stored in the file, as those of all rhythms. */
#include "model.h"

#include <math.h>
#include <string.h>

#if SURNN_WARPED
/* Scratch memory: one row of sums, and what it is made of. */
typedef struct warped_scratch {
    double *angles; /* [K] */
    double *waves;  /* [2][K] */
} warped_scratch;

static warped_scratch lay_out(const surnn_model *m, surnn_stream *s, const struct rhythm *rhythm) {
    warped_scratch scratch;
    scratch.angles = (double *)(void *)scratch_of(m, s);
    scratch.waves = scratch.angles + rhythm->frequencies;
    return scratch;
}

/* Keeps a compiler from joining a product and a sum to one rounding, which Python has not. */
static double rounded(double x) {
    volatile double y = x;
    return y;
}

/* Monotone, piecewise linear over a horizon, repeated. */
static double warp(const struct rhythm *rhythm, const double *edges, int64_t t) {
    int64_t horizon = rhythm->horizon, bins = rhythm->bins, turn = t / horizon;
    double position = (double)(t - turn * horizon) * ((double)bins / (double)horizon);
    int64_t bin = (int64_t)position < bins - 1 ? (int64_t)position : bins - 1;
    double inside = rounded((edges[bin + 1] - edges[bin]) * (position - (double)bin));
    return ((double)turn + (edges[bin] + inside)) * (double)horizon;
}

/* waves[2][K]: sin and cos of the rounded products of omega and tau, plus the phases if there are any. */
static void compute_waves(const surnn_model *m, const struct rhythm *rhythm, warped_scratch scratch,
                          double tau, const double *phases) {
    size_t count = rhythm->frequencies;
    for (size_t k = 0; k < count; k++)
        scratch.angles[k] = rounded(rhythm->omega[k] * tau) + (phases ? phases[k] : 0.0);
    m->k->turns(scratch.waves, scratch.waves + count, scratch.angles, count);
}

/* weights[count * stride] */
static double sum_of(const double *waves, const double *weights, size_t count, size_t stride) {
    double even = 0.0, odd = 0.0;
    size_t k = 0;
    for (; k + 2 <= count; k += 2) {
        even += weights[k * stride] * waves[k];
        odd += weights[(k + 1) * stride] * waves[k + 1];
    }
    if (k < count) even += weights[k * stride] * waves[k];
    return even + odd;
}

void surnn_compute_warped_row(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *row,
                              int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    const warped_scratch scratch = lay_out(m, s, rhythm);
    size_t count = rhythm->frequencies;
    memset(row, 0, words_of(op->gates) * 8);
    if (!rhythm->clock_per_gate)
        compute_waves(m, rhythm, scratch, warp(rhythm, rhythm->edges, t), NULL);
    for (size_t g = 0; g < op->gates; g++) {
        double sum;
        if (rhythm->clock_per_gate) {
            const double *edges = rhythm->edges + g * ((size_t)rhythm->bins + 1);
            compute_waves(m, rhythm, scratch, warp(rhythm, edges, t), rhythm->phases + g * count);
            sum = sum_of(scratch.waves, rhythm->amplitudes + g * count, count, 1);
        } else {
            sum = sum_of(scratch.waves, rhythm->weights + g, 2 * count, rhythm->width);
        }
        row[g / 64] |= (uint64_t)(sum + rhythm->bias[g] > 0.0) << (g % 64);
    }
}
#else
typedef int nothing_here;
#endif
