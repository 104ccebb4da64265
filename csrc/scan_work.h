/* One pass of a scan: sizes, packed weights, and the buffers of the chunk at hand. */
#ifndef SURNN_SCAN_WORK_H
#define SURNN_SCAN_WORK_H

#include "kernels.h"
#include "scan_plan.h"

enum { MAX_SLOTS = 8, SLACK = 16, LINE = 64, MARGIN = SLACK + LINE / sizeof(float) };

/* Sizes of a cell. The backward pass stores SLOTS numbers for each update of a chunk: first the
 * gradients by the cell's inputs and parameters; then, where the gate or the decay has a gradient, the
 * change of the output, the gate's gradient, and components 1 and 2 after the update. */
typedef struct scan_cell {
    int drives, components, parameters; /* S, C, P */
    int saved;                          /* numbers saved for each update; the last: its new output */
    int saved_state;                    /* the first of them that is component 1 before it */
    int gradients;                      /* slots of gradients */
    int by_drive[MAX_PRODUCTS], by_rec[MAX_PRODUCTS], by_unit[MAX_PARAMETERS]; /* slots */
} scan_cell;

/* The pairs of one unit in one list, as the weights' gradient reads them. */
typedef struct scan_entry {
    size_t t, count;
    const float *slots; /* slot k of pair j is slots[k * stride + j] */
    size_t stride;
    const int32_t *sequence;
} scan_entry;

/* A unit of one sequence that updated at a time step, and the change of its output. */
typedef struct scan_change {
    int32_t unit;
    float change;
} scan_change;

typedef struct scan_work {
    const surnn_scan *s;
    scan_plan plan;
    scan_cell cell;
    size_t steps, batch, heads, width, features;
    size_t wide;              /* floats of a vector */
    size_t padded, padded_in; /* D and I, rounded up to whole vectors */
    size_t lanes;             /* sequences from 0 on that are lanes of vectors in products */
    float *rec_rows;          /* [N, D, S, padded] */
    float *in_rows;           /* [N, D, S, padded_in] */
    float *recurrent_bias;    /* [N, S, D], or NULL: adds to the recurrent product (GRU: bias_hn) */
    int failed;               /* some task had no memory */
    void *memory[16];         /* what the pointers to floats point into */
    int memories;

    /* ---- the backward pass */
    int slots, extras; /* extras: the gate or the decay has a gradient */
    size_t from, to;   /* the chunk's time steps */
    float *adjoint;    /* [C, padded] of each sequence, by block and head: after step to - 1 */
    float *slot_values;
    size_t *slot_first;   /* [blocks * N]: the chunk's pairs before the first list of a block and head */
    float *adjoints;      /* [chunk, C, B, N, padded], with extras */
    float *outputs;       /* [chunk, B, N, padded]: outputs before each step */
    float *inputs;        /* [chunk, B, padded_in]: x, if I is padded */
    float *by_rec_rows;   /* gradients by rec_rows and in_rows */
    float *by_in_rows;
    float *by_sums;       /* [N, D, S + P]: gradients by bias and unit */
    scan_entry *entries;  /* of the chunk, by head and unit */
    size_t *entry_first;  /* [N * D + 1] */

    /* ---- proposals at closed steps */
    size_t block_units, unit_blocks; /* units computed together, and how many such blocks a head has */
    float *rec_tiles, *in_tiles;     /* [N, unit_blocks, D or I, S, block_units] */
    uint8_t *dense;                  /* [chunk, b, N]: whether proposals of all units are needed */
    scan_change *turned;             /* the chunk's pairs, those of a list by sequence; if not shared */
    int32_t *turned_first;           /* [chunk, N, B + blocks]: first pair of a sequence, in its list */
    float *changes;                  /* [chunk, b, N, padded]: the gate's gradient by unit */
    float *by_decay_rows;            /* [N, C, padded] */
} scan_work;

/* The inner loops, in one version for each kind of processor: scan_vector.inc. */
typedef struct scan_kernels {
    size_t wide;
    void (*forward)(scan_work *w, size_t task);    /* task: a block and a head, over all steps */
    void (*backward)(scan_work *w, size_t task);   /* the same, over the chunk's steps */
    void (*by_weights)(scan_work *w, size_t task); /* task: a unit, over the chunk's entries */
    void (*by_x)(scan_work *w, size_t task);       /* task: a step of the chunk */
    void (*closed)(scan_work *w, size_t task);     /* task: a head and a block of its units */
    int (*step)(const surnn_frame *p, const scan_cell *cell);
    void (*sample)(const surnn_surrogate *g, size_t from, size_t to);
    void (*gradient)(const surnn_surrogate *g, size_t from, size_t to);
} scan_kernels;

/* The first float of a cache line: vectors that cross lines are slow, and so are threads that share one.
 * Memory for it has MARGIN floats more than are used. */
static inline float *align(float *memory) {
    return (float *)(((uintptr_t)memory + LINE - 1) / LINE * LINE);
}
/* Some task had no memory. Several threads may say so at once. */
static inline void report_failure(scan_work *w) {
#if defined(__GNUC__)
    __atomic_store_n(&w->failed, 1, __ATOMIC_RELAXED);
#else
    w->failed = 1;
#endif
}
/* x's rows [B, padded_in] at step t of the chunk. */
static inline const float *input_rows(const scan_work *w, size_t t) {
    if (w->inputs) return w->inputs + (t - w->from) * w->batch * w->padded_in;
    return w->s->x + t * w->batch * w->features;
}
/* The outputs' rows [B, N, padded] before step t of the chunk. */
static inline const float *output_rows(const scan_work *w, size_t t) {
    return w->outputs + (t - w->from) * w->batch * w->heads * w->padded;
}
/* The chunk's pairs before a list. */
static inline size_t pairs_before(const scan_work *w, size_t block, size_t head, const scan_list *list) {
    size_t first = list_at(&w->plan, block, head, w->from).base;
    return w->slot_first[block * w->heads + head] + list->base - first;
}
static inline float *slots_of(const scan_work *w, size_t block, size_t head, const scan_list *list) {
    return w->slot_values + pairs_before(w, block, head, list) * (size_t)w->slots;
}
/* Where the pairs of the block's sequences begin in the turned list of step t: count + 1 numbers. */
static inline int32_t *turned_bounds(const scan_work *w, size_t block, size_t head, size_t t) {
    size_t row = (t - w->from) * w->heads + head, blocks = (size_t)w->plan.blocks;
    return w->turned_first + row * (w->batch + blocks) + (size_t)w->plan.bound[block] + block;
}
static inline int is_alive(const surnn_scan *s, size_t b, size_t t) {
    return !s->lengths || (int64_t)t < s->lengths[b];
}
static inline int is_reset(const surnn_scan *s, size_t b, size_t t) {
    return s->reset && s->reset[t * (size_t)s->batch + b];
}
/* The gate of one unit, and its decay. */
static inline float gate_of(const surnn_scan *s, size_t t, size_t b, size_t head, size_t u) {
    size_t place = (t * (size_t)s->gate_batch + (s->gate_batch == 1 ? 0 : b)) * (size_t)s->heads + head;
    return s->gate[place * (size_t)s->gate_width + (s->gate_width == 1 ? 0 : u)];
}

#endif
