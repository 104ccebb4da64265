/* Benchmarks of the engine: seconds of each step, and of each part of a GRU. Models run without it. */
#ifndef SURNN_BENCH_H
#define SURNN_BENCH_H

#include "surnn.h"

/* Seconds, summed over time steps and layers. A product is the input's plus the recurrent one. */
typedef struct surnn_parts {
    double reset, update, candidate; /* products of the open units, for the three gates of a GRU */
    double state;                    /* sigmoid, tanh, and writing the new state */
    double rest;                     /* opening and closing gates; all other operations */
    double clock;                    /* time spent reading the clock, included in the above */
} surnn_parts;

/* Runs a new stream, from time step `clock` on, over frames[steps][input_size], and times the parts of its GRUs. The three products
 * are computed one after another, each from its own copy of the weights, with the kernels of
 * surnn_step. (surnn_step computes all three at once, which is faster.) Outputs are the same up to
 * rounding. Allocates memory. Recurrent layers must be GRUs with f32 weights in tiles of 8 or 16 lanes
 * (at least six units share a gate); otherwise the status is SURNN_ARGUMENT.
 *
 * reset_before = 1 measures the other form of the GRU, in which the reset gates act on the state before
 * the candidate's product. The reset gates of all units are then needed whenever any unit of the layer
 * is open: these products are computed too, and not used. */
SURNN_API surnn_status surnn_time_parts(const surnn_model *model, const float *frames, size_t steps,
                                        float *out, int64_t clock, int reset_before,
                                        surnn_parts *parts);

/* Runs a new stream over frames[steps][input_size] with surnn_step, and writes the seconds of each step
 * to seconds[steps]. If `seconds` is NULL, it only runs. `clock` as above; up to 32 time
 * steps before it are taken too, if there are as many, and not timed. */
SURNN_API surnn_status surnn_time_steps(const surnn_model *model, const float *frames, size_t steps,
                                        float *out, int64_t clock, double *seconds);

/* Runs `streams` new streams, from time step `clock` on, over frames[steps][streams][input_size]: with
 * surnn_step_many if `together`, else one after another. Writes the seconds that all streams take for
 * each time step to seconds[steps]. Allocates memory. */
SURNN_API surnn_status surnn_time_streams(const surnn_model *model, const float *frames,
                                          size_t streams, size_t steps, int64_t clock, int together,
                                          double *seconds);

#endif
