/* What the engine's own files share. */
#ifndef SURNN_INTERNAL_H
#define SURNN_INTERNAL_H

#include "kernels.h"
#include "surnn.h"

enum { FORMAT_VERSION = 1, HEADER_SIZE = 64, RECORD_SIZE = 128, ALIGNMENT = 64 };
enum { CHUNK = 16 }; /* frames that go through the model together, operation by operation */
enum { MOST_OPERATIONS = 1 << 14, MOST_NUMBERS = 1 << 24, MOST_QUANTISED = 1 << 16 };
#define MOST_STREAM ((uint64_t)1 << 30)
#define FURTHEST_CLOCK ((int64_t)1 << 53)

enum {
    OP_EMBED = 1, OP_LINEAR, OP_NORM, OP_AFFINE, OP_GELU, OP_GLU, OP_ADD, OP_MEAN, OP_LEAK, OP_CLEAN,
    GATE_PERIODIC, GATE_RHYTHM, GATE_HASH, GATE_ABOVE, GATE_LEVEL, OP_RECURRENT,
    OP_CONVOLVE, GATE_CYCLES
};
static inline int is_gate(uint32_t kind) {
    return (kind >= GATE_PERIODIC && kind <= GATE_LEVEL) || kind == GATE_CYCLES;
}
enum { WEIGHTS_FLOAT32, WEIGHTS_INT8 };

typedef struct tile_place {
    uint32_t first, count, gate, head; /* units first .. first + count - 1 */
} tile_place;

typedef struct operation {
    uint32_t kind, in, in2, out, p[12];
    const void *data[8];
    uint64_t state;  /* its own part of a stream, as an offset; 0 if it has none */
    uint64_t macs;   /* all of its multiply-accumulates */
    uint32_t n, n2, m; /* sizes of in, in2, out */
} operation;

typedef struct vector_place {
    uint32_t size;   /* numbers */
    uint64_t offset; /* in a stream, at frame 0 */
} vector_place;

struct surnn_model {
    const uint8_t *bytes;
    size_t size;
    const kernels *k;
    uint32_t checksum, operations, buffers, gates, takes_tokens, input_size, output, layers;
    uint64_t units; /* of all recurrent layers */
    uint64_t stream_size, saved_size, versions, seen, scratch, scratch_size, macs;
    uint64_t frame_size, more_frames; /* what each frame has for itself, and where frames 1.. lie */
    operation *op;
    vector_place *buffer;
    vector_place *gate; /* size: how many gates */
    void *mapped;       /* what surnn_free has to give back */
    int owned;
};

/* The head of a stream. Then comes what operations keep: the versions that they saw, their own state;
 * then what a frame has for itself: versions of vectors, the vectors, gates. So much is saved. The
 * rest is of use during a call only: scratch memory, and the other frames of a chunk. */
struct surnn_stream {
    uint64_t magic;
    uint32_t checksum, zero;
    uint32_t frame, frames; /* of the chunk: the one at hand, and how many; 0 between calls */
    uint64_t size;
    int64_t t;
    uint64_t steps, done, all, updates; /* see surnn_work */
};
#define STREAM_MAGIC 0x4d41455254535253u

/* What a cell needs: products, unit parameters, state components. */
typedef struct cell_shape {
    uint32_t drives, parameters, components;
} cell_shape;
extern const cell_shape surnn_cell_shapes[CELLS];

static inline uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
static inline uint32_t words_of(uint32_t gates) { return (gates + 63) / 64; }

static inline uint8_t *at(surnn_stream *stream, uint64_t offset) {
    return (uint8_t *)stream + offset;
}
/* How much further than at frame 0 the same thing lies at another. */
static inline uint64_t further(const surnn_model *m, uint32_t frame) {
    return frame ? m->more_frames - m->versions + (frame - 1) * m->frame_size : 0;
}
static inline float *numbers_at(const surnn_model *m, surnn_stream *s, uint32_t buffer,
                                uint32_t frame) {
    return (float *)(void *)at(s, m->buffer[buffer].offset + further(m, frame));
}
static inline uint64_t *versions_at(const surnn_model *m, surnn_stream *s, uint32_t frame) {
    return (uint64_t *)(void *)at(s, m->versions + further(m, frame));
}
static inline uint64_t *mask_at(const surnn_model *m, surnn_stream *s, uint32_t gate,
                                uint32_t frame) {
    return (uint64_t *)(void *)at(s, m->gate[gate].offset + further(m, frame));
}
/* Of the frame at hand. */
static inline float *numbers(const surnn_model *m, surnn_stream *s, uint32_t buffer) {
    return numbers_at(m, s, buffer, s->frame);
}
static inline uint64_t *mask_of(const surnn_model *m, surnn_stream *s, uint32_t gate) {
    return mask_at(m, s, gate, s->frame);
}

/* Parts of a recurrent operation's own state, in order. */
typedef struct recurrent_state {
    float *rest;        /* [components - 1][units] */
    float *input;       /* [tiles][S][lanes]: bias and input product, while the input is the same */
    uint64_t *input_at; /* [tiles]: version of the input that these are of */
} recurrent_state;
uint64_t surnn_recurrent_state_size(const operation *op);
recurrent_state surnn_recurrent_state(const operation *op, surnn_stream *stream);

/* Parts of scratch memory that a recurrent operation uses, as offsets in it. */
typedef struct recurrent_scratch {
    uint64_t products, open, scales, made, q, high, low, frames_of, projected, size;
} recurrent_scratch;
recurrent_scratch surnn_recurrent_scratch(const surnn_model *m, const operation *op);

/* Bytes of a tile's weights: of the input's part and of the recurrent part. */
void surnn_tile_sizes(uint32_t lanes, uint32_t drives, uint32_t weights, uint32_t inputs,
                      uint32_t recurrent, uint64_t *input_bytes, uint64_t *recurrent_bytes);

/* Put a frame in its place, and run an operation for it; those before it have run. */
void surnn_take_frame(const surnn_model *m, surnn_stream *s, const float *frame);
void surnn_run_operation(const surnn_model *m, surnn_stream *s, uint32_t index);
/* Kinds of operations. The recurrent one returns whether its output changed. */
void surnn_run_gate(const surnn_model *m, surnn_stream *s, const operation *op);
int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op);
/* The input products that a recurrent operation will need for `frames` frames, weights read once for
 * several of them. */
void surnn_project(const surnn_model *m, surnn_stream *s, const operation *op, uint32_t frames);
/* Returns the multiply-accumulates that it took. */
uint64_t surnn_run_linear(const surnn_model *m, surnn_stream *s, const operation *op);

#endif
