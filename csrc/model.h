/* Models and streams in memory, shared by the engine's own files. */
#ifndef SURNN_MODEL_H
#define SURNN_MODEL_H

#include "config.h"
#include "operations.h"
#include "surnn.h"

enum { NEWEST_VERSION = 2, HEADER_SIZE = 64, RECORD_SIZE = 128, ALIGNMENT = 64 };
enum { CHUNK = SURNN_CHUNK }; /* frames that pass through the model together, operation by operation */
enum { MAX_OPERATIONS = 1 << 14, MAX_LENGTH = 1 << 24, MAX_INT8_INPUTS = 1 << 16 };
enum { TOGETHER = SURNN_TOGETHER }; /* streams that pass through the model together */
enum { GROUPS = TOGETHER / PACKET };
/* Memory of a stream and its workspace, unless the caller sets another limit. */
#define MAX_MEMORY ((uint64_t)1 << 30)
#define MEMORY_OF_ANY_FILE ((uint64_t)1 << 24)
enum { MEMORY_PER_FILE_BYTE = 64 };

/* A vector or a set of gates. */
typedef struct vector_place {
    uint32_t size;   /* floats, or gates */
    uint64_t offset; /* in a stream, at frame 0 of a chunk */
} vector_place;

struct surnn_model {
    const uint8_t *bytes; /* the file */
    size_t size;
    uint32_t checksum, version;
    const kernels *k;
    uint32_t operation_count, vector_count, gate_set_count;
    operation *operations;
    vector_place *vectors; /* vector 0 is the input */
    vector_place *gate_sets;
    uint32_t takes_tokens, input_size;
    uint32_t output; /* index of the output vector */
    uint32_t layers; /* number of recurrent layers */
    uint64_t units;  /* of all recurrent layers */
    uint64_t macs;   /* multiply-accumulates of a time step with all gates open */
    /* Layout of a stream, see struct surnn_stream: offsets and sizes in bytes. */
    uint64_t inputs_seen, versions, frame_size, state_size;
    /* Layout of a workspace, see below. */
    uint64_t scratch, scratch_size, shared_scratch_size;
    uint64_t own_workspace, shared_workspace; /* whole sizes */
    void *mapped, *copied; /* the file's memory, if surnn_free has to release it */
    int owned;             /* surnn_free has to release the model's memory */
};

/* The beginning of a stream. It continues with
 *   inputs_seen   uint64 [operations][2]: versions of in and in2 at each operation's last run
 *   the operations' own state
 *   versions      uint64 [vectors]: counts how often each vector has changed
 *   the vectors, then the sets of gates
 * state_size bytes in all; they are saved. A stream of its own continues with its workspace. */
struct surnn_stream {
    uint64_t magic;
    uint32_t checksum;
    uint32_t busy;          /* 1 during a call, see surnn_enter */
    uint32_t frame, frames; /* position in the chunk, and its length; 0 between calls */
    uint64_t size;          /* state_size, or more if it has its own workspace */
    int64_t t;              /* the clock: time steps taken */
    uint64_t steps, macs_done, macs_all, updates; /* see surnn_work */
    uint8_t *workspace;     /* in use during a call; NULL between calls */
};

/* A workspace is memory that is used only during a call:
 *   later_frames  frames 1 .. CHUNK - 1 of a chunk; each repeats a stream's part from `versions` on
 *   scratch       memory that one operation uses at a time
 * That of one stream is smaller than one for TOGETHER streams at once. This is the beginning of one
 * that surnn_workspace_new makes. */
struct surnn_workspace {
    uint64_t magic;
    uint32_t checksum, busy;
    uint64_t size;
};
enum { WORKSPACE_HEAD = 64 };
#define WORKSPACE_MAGIC 0x4543415053524e53u
#define STREAM_MAGIC 0x4d41455254535253u

static inline uint64_t round_up(uint64_t n, uint64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

static inline uint8_t *stream_at(surnn_stream *stream, uint64_t offset) {
    return (uint8_t *)stream + offset;
}

static inline uint8_t *scratch_of(const surnn_model *m, surnn_stream *stream) {
    return stream->workspace + m->scratch;
}

/* Memory of a quantised_vector's n numbers. */
static inline uint64_t quantised_size(uint64_t n) { return (SURNN_SCALAR_ONLY ? 2 : 4) * round_up(n, 64); }

/* Quantises x[n] for weights of this type. `numbers` is memory for quantised_size(n). */
static inline void quantise(const surnn_model *m, quantised_vector *v, uint32_t weight_type, const float *x,
                            size_t n, uint8_t *numbers) {
    size_t length = (size_t)round_up(n, 64);
    uint8_t *bytes = SURNN_SCALAR_ONLY ? numbers : numbers + 2 * length; /* plain loops do not use them */
    v->q = (int16_t *)(void *)numbers, v->high = bytes;
    v->low = weight_type == WEIGHTS_INT8_BY_INT8 ? NULL : bytes + length;
    m->k->quantise(v, x, n);
}

/* The frame of a chunk that something at `offset` of the stream belongs to. */
static inline uint8_t *frame_at(const surnn_model *m, surnn_stream *s, uint64_t offset,
                                uint32_t frame) {
    if (!frame) return stream_at(s, offset);
    return s->workspace + (frame - 1) * m->frame_size + (offset - m->versions);
}
static inline float *vector_at(const surnn_model *m, surnn_stream *s, uint32_t vector,
                               uint32_t frame) {
    return (float *)(void *)frame_at(m, s, m->vectors[vector].offset, frame);
}
static inline uint64_t *versions_at(const surnn_model *m, surnn_stream *s, uint32_t frame) {
    return (uint64_t *)(void *)frame_at(m, s, m->versions, frame);
}
static inline uint64_t *mask_at(const surnn_model *m, surnn_stream *s, uint32_t gate_set,
                                uint32_t frame) {
    return (uint64_t *)(void *)frame_at(m, s, m->gate_sets[gate_set].offset, frame);
}
/* The same at the current frame. */
static inline float *vector_of(const surnn_model *m, surnn_stream *s, uint32_t vector) {
    return vector_at(m, s, vector, s->frame);
}
static inline uint64_t *mask_of(const surnn_model *m, surnn_stream *s, uint32_t gate_set) {
    return mask_at(m, s, gate_set, s->frame);
}

/* Memory that begins at a multiple of 64 bytes; NULL if there is none. */
void *surnn_allocate(size_t size);
void surnn_release(void *memory);

/* Begin and end a call that uses a stream. surnn_enter refuses streams of other models, and streams
 * that another thread is using. Its workspace is `workspace`; or, if that is NULL and it has one, its
 * own. */
surnn_status surnn_enter(const surnn_model *m, surnn_stream *s, surnn_workspace *workspace);
void surnn_leave(surnn_stream *s);
/* The same for a workspace. */
surnn_status surnn_enter_workspace(const surnn_model *m, surnn_workspace *workspace);
void surnn_leave_workspace(surnn_workspace *workspace);

/* Store a frame or a token as the input of the current frame. */
void surnn_set_input(const surnn_model *m, surnn_stream *s, const void *input);
/* Run one operation at the current frame. The operations before it have run. */
void surnn_run_operation(const surnn_model *m, surnn_stream *s, uint32_t index);

/* mask: the gates of time step t. */
void surnn_run_rhythm(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *mask,
                      int64_t t);
void surnn_compute_warped_row(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *row,
                              int64_t t);
uint64_t surnn_rhythm_state_size(const operation *op);
/* y[m]: the sums of time step t. */
void surnn_run_sinusoids(const surnn_model *m, surnn_stream *s, const operation *op, float *y,
                         int64_t t);
void surnn_run_gate(const surnn_model *m, surnn_stream *s, const operation *op);
/* Returns the multiply-accumulates done. */
uint64_t surnn_run_linear(const surnn_model *m, surnn_stream *s, const operation *op);
/* Compute a layer's input products for all frames of a chunk, so that weights are read once for
 * several frames. Runs before surnn_run_recurrent. */
void surnn_project_inputs(const surnn_model *m, surnn_stream *s, const operation *op,
                          uint32_t frames);

/* Returns whether the layer's output changed. */
int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op);
/* The same for several streams: each weight is read once for all of them. Each result equals that of the
 * function for one stream, bit for bit. */
void surnn_run_recurrent_together(const surnn_model *m, surnn_stream *const *streams, int count,
                                  const operation *op, int *changed);
void surnn_run_linear_together(const surnn_model *m, surnn_stream *const *streams, int count,
                               const operation *op);
void surnn_activate(const kernels *k, const struct activate *f, float *y, const float *x, size_t n);
/* Whether surnn_run_operation would compute the operation's output, and the end of it if so. */
int surnn_needs_run(const surnn_model *m, surnn_stream *s, uint32_t index);
void surnn_note_change(const surnn_model *m, surnn_stream *s, uint32_t index, int changed);

#endif
