/* The operations of a model, decoded from the file once, when the model is loaded.
 *
 * Comments give shapes in brackets, slowest index first; n and m are the lengths of an operation's
 * input and output. Arrays are not copied: pointers lead into the bytes of the file. FORMAT.md has
 * the formulas. */
#ifndef SURNN_OPERATIONS_H
#define SURNN_OPERATIONS_H

#include "kernels.h"

enum {
    OP_EMBED = 1, OP_LINEAR, OP_NORM, OP_AFFINE, OP_GELU, OP_GLU, OP_ADD, OP_MEAN, OP_LEAK, OP_CLEAN,
    GATE_PERIODIC, GATE_RHYTHM, GATE_HASH, GATE_ABOVE, GATE_LEVEL, OP_RECURRENT,
    OP_CONVOLVE, GATE_CYCLES, OP_ACTIVATE, OP_MULTIPLY, OP_PART, OP_WINDOW, OP_SINUSOIDS
};
/* 8-bit weights multiply numbers of 16 bits, or of 8 bits. */
enum { WEIGHTS_FLOAT32, WEIGHTS_INT8, WEIGHTS_INT8_BY_INT8 };
static inline int is_int8(uint32_t weight_type) { return SURNN_INT8 && weight_type != WEIGHTS_FLOAT32; }
enum { LINEAR_LANES = 16 }; /* outputs in a tile of a linear map */

static inline int is_gate(uint32_t kind) {
    return (kind >= GATE_PERIODIC && kind <= GATE_LEVEL) || kind == GATE_CYCLES;
}

static inline int reads_two_vectors(uint32_t kind) { return kind == OP_ADD || kind == OP_MULTIPLY; }

/* Index of the lowest bit that is set. */
static inline unsigned lowest_bit(uint64_t bits) {
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned n = 0;
    for (; !(bits & 1); bits >>= 1) n++;
    return n;
#endif
}

/* A set of gates is a row of bits: gate g is bit g % 64 of word g / 64. */
static inline uint32_t words_of(uint32_t gates) { return (gates + 63) / 64; }
static inline int is_open(const uint64_t *mask, uint32_t gate) {
    return mask[gate / 64] >> (gate % 64) & 1;
}

/* ---------------------------------------------------------------- vectors */

struct embed {
    const float *table; /* [vocabulary][m] */
};

/* A block-diagonal matrix: each group maps its own inputs to its own outputs. */
struct linear {
    size_t groups;
    size_t inputs, outputs, tiles; /* of one group; tiles = ceil(outputs / LINEAR_LANES) */
    uint32_t weight_type;          /* WEIGHTS_* */
    uint32_t incremental;          /* 1: only changes of the input are multiplied */
    uint64_t tile_bytes;
    const uint8_t *weights;        /* [groups][tiles][tile_bytes] */
    const float *bias;             /* [m], or NULL */
    const float *scales;           /* int8: [groups][tiles][LINEAR_LANES] */
    const int32_t *row_sums;       /* int8: the same shape, the sum of each row's weights */
};

struct norm {
    int rms; /* 1: RMSNorm; 0: LayerNorm */
    float epsilon;
    const float *weight; /* [m] */
    const float *bias;   /* [m], or NULL */
};

struct affine {
    const float *scale, *shift; /* [m] each */
};

struct glu {
    uint32_t activation; /* GLU_* */
};

struct leak {
    const float *decay; /* [m] */
};

struct convolve {
    size_t taps;
    const float *weights; /* [taps][m]; the last tap belongs to the newest input */
};

struct activate {
    uint32_t function; /* ACTIVATION_* */
    float a, b;        /* its parameters, see FORMAT.md */
};

struct part {
    uint32_t first;
};

/* The inputs of several time steps, oldest first. Each group of features has its own window. */
struct window {
    size_t taps, dilation, groups;
};

/* ---------------------------------------------------------------- gates */

struct periodic {
    uint32_t period;
    const uint64_t *rows; /* [period][words] */
};

/* Each gate is a sum of K sinusoids, open where it is positive. OP_SINUSOIDS writes such sums to a
 * vector instead; it has omega, weights and bias alone. */
struct rhythm {
    size_t frequencies;      /* K */
    size_t width;            /* number of gates, rounded up to 8 */
    uint32_t stored_steps;   /* time steps whose gates the file contains */
    uint32_t bins, horizon;  /* of the warped clock; bins = 0: not warped */
    int clock_per_gate;      /* 1: every gate has its own warped clock */
    const double *omega;     /* [K] */
    const double *weights;   /* [2K][width]: sines, then cosines; with a clock per gate NULL */
    const double *bias;      /* [width] */
    const uint64_t *rows;    /* [stored_steps][words] */
    const float *rotations;  /* [K][2][HALF_BLOCK]: cos and sin of omega * j; or NULL */
    const float *slices;     /* struct slice [ceil(gates / SLICE)]; or NULL: only in integers */
    const double *edges;     /* warped: [1 or gates][bins + 1] */
    const double *amplitudes, *phases; /* with a clock per gate: [gates][K] each */
};

struct hash {
    uint64_t open_below; /* rate * 2^53, rounded up */
    uint64_t seed;
};

struct level {
    float threshold;
};

struct cycles {
    const uint32_t *periods, *open_steps, *shifts; /* [gates] each */
};

/* ---------------------------------------------------------------- recurrent layers */

/* Units first .. first + count - 1, which share a gate and a head. Same layout as in the file. */
typedef struct tile_place {
    uint32_t first, count, gate, head;
} tile_place;

/* A layer's part of a stream, as offsets from operation.state_offset. */
typedef struct recurrent_state {
    uint64_t other_components; /* float [components - 1][units]; component 0 is the output vector */
    uint64_t input_sums;       /* float [tiles][S][lanes]: bias and input product of each unit */
    uint64_t current;          /* uint64 version of the input; uint64 [tiles / 64]: see layer_step */
} recurrent_state;

/* A layer's scratch memory, as offsets from surnn_model.scratch. With several streams together, sizes
 * and so offsets are multiplied by their number, but for those after `interleaved`. */
typedef struct recurrent_scratch {
    uint64_t recurrent_sums, input_sums, next; /* float: see layer_step */
    uint64_t open;                   /* uint32 [tiles + PACKET]: the open tiles */
    uint64_t quantised;              /* int8: quantised_vector [1 + quantised_heads] */
    uint64_t numbers, numbers_size;  /* int8: their numbers */
    uint64_t interleaved;            /* of several streams: see layer_step */
    uint64_t interleaved_size;       /* their numbers, of PACKET streams */
    uint64_t open_frames;            /* uint32 [gates]: bit j: open at frame j of the chunk */
    uint64_t projections;            /* float [CHUNK][tiles][S][lanes]: input products */
} recurrent_scratch;

struct recurrent {
    uint32_t cell;                        /* CELL_* */
    size_t products;                      /* S: products per unit; a GRU has r, z, n */
    size_t parameters;                    /* P: other parameters per unit */
    size_t components;                    /* vectors of the state; an LSTM has h, c */
    size_t units, heads, head_size;       /* head_size = units / heads */
    size_t tiles, lanes, width;           /* lanes: 1, 8 or 16 units per tile; width = S * lanes */
    uint32_t weight_type;                 /* WEIGHTS_* */
    uint32_t in_place;                    /* 1: cells change the state itself, after all products */
    uint32_t projects_chunks;             /* 1: input products of a chunk are computed together */
    uint32_t adapts_while_closed;         /* ALIF: the adaptation decays while its gate is closed */
    float threshold, beta;                /* LIF, ALIF */
    uint64_t input_bytes, recurrent_bytes; /* of a tile's weights: the two parts */
    const uint8_t *weights;               /* [tiles]: input part (n inputs), then recurrent part */
    const float *biases;                  /* [tiles][S + P][lanes]: biases, then parameters */
    const tile_place *places;             /* [tiles] */
    const uint32_t *first_tile;           /* [gates + 1]: tiles of gate g begin at first_tile[g] */
    const float *scales;                  /* int8: [tiles][2][S][lanes], input and recurrent rows */
    const int32_t *row_sums;              /* int8: the same shape, the sum of each row's weights */
    recurrent_state state;
    recurrent_scratch scratch;
};

/* Heads whose state is quantised at a time. */
static inline size_t quantised_heads(const struct recurrent *layer) {
    return layer->lanes == 1 ? layer->heads : 1;
}

/* ---------------------------------------------------------------- any operation */

typedef struct operation {
    uint32_t kind;         /* OP_* or GATE_*: selects the member of `as` */
    uint32_t in, in2, out; /* indices of vectors; a set of gates is OP_RECURRENT's in2, GATE_*'s out */
    uint32_t n, n2, m;     /* lengths of in, in2, out where they are vectors */
    uint32_t gates;        /* GATE_*: gates it writes; OP_RECURRENT: gates it reads */
    uint32_t always_open;  /* GATE_*: this many first gates are open at every time step */
    uint64_t macs;         /* multiply-accumulates of a time step with all gates open */
    uint64_t state_offset, state_size; /* the operation's own part of a stream */
    uint64_t scratch_size, shared_scratch_size; /* for one stream, for TOGETHER streams */
    union {
        struct embed embed;
        struct linear linear;
        struct norm norm;
        struct affine affine;
        struct glu glu;
        struct leak leak;
        struct convolve convolve;
        struct activate activate;
        struct part part;
        struct window window;
        struct periodic periodic;
        struct rhythm rhythm;
        struct hash hash;
        struct level level;
        struct cycles cycles;
        struct recurrent recurrent;
    } as; /* OP_GELU, OP_ADD, OP_MULTIPLY, OP_MEAN, OP_CLEAN and GATE_ABOVE need no more */
} operation;

#endif
