/* Where the time of a GRU goes. Not needed to run models. */
#ifndef SURNN_BENCH_H
#define SURNN_BENCH_H

#include "surnn.h"

/* Seconds, summed over steps and layers. Each product is the input's and the recurrent one. */
typedef struct surnn_parts {
    double reset, update, candidate; /* products of the three gates, of open units */
    double state;                    /* sigmoid, tanh, and writing the new state */
    double rest;                     /* which gates are open; all other operations */
    double clock;                    /* what reading the clock took, within all of the above */
} surnn_parts;

/* Runs a new stream over frames[steps][input_size] with the three products one after another, each
 * from weights of its own and timed by itself, with the kernels that surnn_step uses; that itself
 * computes the three at once, which is faster. Outputs are the same to rounding. Allocates. For
 * models whose recurrent layers are GRUs with f32 weights in tiles of 8 or 16 lanes (gates shared by
 * at least four units); SURNN_ARGUMENT for others.
 *
 * reset_before = 1 tells what the other form of the GRU would cost, in which the reset gates of all
 * units act on the state before the candidate's product, and so are all needed when any unit of the
 * layer is open: these products are computed then too (and not used). */
SURNN_API surnn_status surnn_time_parts(const surnn_model *model, const float *frames, size_t steps,
                                        float *out, int reset_before, surnn_parts *parts);

/* Runs a new stream over frames[steps][input_size] by surnn_step, and writes the seconds of each step;
 * if `seconds` is NULL, nothing is timed. */
SURNN_API surnn_status surnn_time_steps(const surnn_model *model, const float *frames, size_t steps,
                                        float *out, double *seconds);

#endif
