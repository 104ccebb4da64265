/* The scan: a recurrent layer over whole sequences, forwards and backwards, for the Python backend
 * `native`. Only the rows of open units are computed. The recurrence and the letters T, B, N, D, I, S,
 * C, P, b and m are those of src/surnn/scan/contract.py. */
#ifndef SURNN_SCAN_H
#define SURNN_SCAN_H

#include "surnn.h"

#include <stddef.h>
#include <stdint.h>

/* All tensors are contiguous. NULL where an optional one is absent or a gradient is not needed. */
typedef struct surnn_scan {
    int64_t steps, batch, heads, width, features; /* T, B, N, D, I */
    int64_t cell;                                 /* one of CELL_... in kernels.h */
    int64_t gate_batch, gate_width;               /* b, m */
    int64_t binary;                               /* all gates are 0 or 1 */
    int64_t blocks;                               /* parts of the batch; the same in both passes */
    int64_t threads;
    int64_t chunk;     /* time steps that the backward pass processes together */
    int64_t updates;   /* what surnn_scan_updates returns */
    int64_t surrogate; /* of a spike: one of SURROGATE_... */
    double threshold, beta, slope;
    const float *x;         /* [T, B, I] */
    const float *weight;    /* [N, S, D, I] */
    const float *bias;      /* [N, S, D] */
    const float *recurrent; /* [N, S, D, D] */
    const float *unit;      /* [P, N, D] */
    const float *gate;      /* [T, b, N, m] */
    const float *decay;     /* [N, C, D] */
    const int64_t *lengths; /* [B], only with decay */
    const uint8_t *relevant; /* [T, b, N] */
    const uint8_t *reset;    /* [T, B]: 1 where the state is zero before the step */
    const float *state;      /* [B, N, C, D] */
    float *y;                /* [T, B, N, D] */
    float *last;             /* [B, N, C, D] */
    float *saved;            /* activations of all updates: SAVED[cell] for each, and SLACK floats */
    float *marks;            /* [chunks, C, B, N, D]: the state before each chunk */
    const float *grad_y, *grad_last;
    float *by_x, *by_weight, *by_bias, *by_recurrent, *by_unit, *by_gate, *by_decay, *by_state;
} surnn_scan;

/* One time step of one layer without gradients; tensors are contiguous and as torch stores them. The
 * cell is not a spiking one. */
typedef struct surnn_frame {
    int64_t batch, heads, width, features;    /* B, N, D, I */
    int64_t cell, gate_batch, gate_width, binary;
    const float *x;                 /* [B, I] */
    const float *weight_ih;         /* [S, N, D, I] */
    const float *weight_hh;         /* [S, N, D, D] */
    const float *bias_ih, *bias_hh; /* [S, N, D], or NULL */
    const float *gate;              /* [b, N, m] */
    const float *state;             /* [C, B, N, D] */
    float *next;                    /* [C, B, N, D]: the state after the step */
} surnn_frame;

/* Gates from their pre-activations, and the surrogate's gradient. Arrays have `size` numbers. */
typedef struct surnn_surrogate {
    int64_t size, surrogate, threads;
    double slope, noise;
    const float *preactivation;
    const float *random;  /* uniform numbers in [0, 1) */
    const float *by_gate; /* the gradient by the gate */
    float *to;
} surnn_surrogate;

enum { SURROGATE_SIGMOID, SURROGATE_TRIANGLE, SURROGATE_RECTANGLE, SURROGATE_ARCTAN };

/* A pool of threads that the program has, with GNU OpenMP's functions. run(task, context, 0, 0) runs
 * task(context) on each of its threads, the caller included, and returns when all have (GOMP_parallel);
 * there size() is their number (omp_get_num_threads). */
typedef struct surnn_pool {
    void (*run)(void (*task)(void *context), void *context, unsigned threads, unsigned flags);
    int (*size)(void);
} surnn_pool;

/* Whether this library was built with the scan, and the name of the instructions that it uses. */
SURNN_API const char *surnn_scan_simd(void);
/* From now on scans run on the threads of this pool, NULL: on threads of their own. Where a pool's
 * threads spin after each use, others find no free processor. Children of a fork have their own. */
SURNN_API void surnn_scan_use_pool(const surnn_pool *pool);
/* Updates of a scan: reads T, B, N, D, b, m and gate. */
SURNN_API int64_t surnn_scan_updates(const surnn_scan *scan);
/* Writes y and last; saved and marks if they are not NULL. Returns 0, or 1 if memory is short. */
SURNN_API int surnn_scan_forward(const surnn_scan *scan);
/* Writes the gradients that are not NULL. Reads saved and marks, not y. */
SURNN_API int surnn_scan_backward(const surnn_scan *scan);
/* Writes next. Returns 0, or 1 if memory is short. */
SURNN_API int surnn_scan_step(const surnn_frame *frame);
/* to = 1 where the sigmoid of slope * preactivation exceeds 1/2 + noise * (random - 1/2), 0 elsewhere;
 * and to = by_gate times the surrogate's derivative, 0 at NaN. */
SURNN_API void surnn_surrogate_sample(const surnn_surrogate *gates);
SURNN_API void surnn_surrogate_gradient(const surnn_surrogate *gates);
/* Whether two tensors of `size` bytes hold the same. */
SURNN_API int surnn_scan_equal(const void *a, const void *b, int64_t size);

#endif
