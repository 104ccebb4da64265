/* A time step of one recurrent layer, in one or several streams; shared by the files recurrent*.c.
 *
 * recurrent.c        the step: which tiles are open, input products of a chunk
 * recurrent_tiles.c  layers whose tiles are 8 or 16 units side by side
 * recurrent_units.c  layers whose tiles are single units
 *
 * The weights of a tile are read once for all streams in which it is open. The products and their order
 * do not depend on the other streams. */
#ifndef SURNN_RECURRENT_H
#define SURNN_RECURRENT_H

#include "model.h"

#include <string.h>

enum { INPUT_PART, RECURRENT_PART }; /* the two parts of a tile's weights */

/* A stream's part of the layer. S is layer->products. */
typedef struct layer_stream {
    surnn_stream *s;
    const float *x; /* [n] */
    float *h;       /* [units]: component 0 of the state, and the output */
    float *other_components;  /* [components - 1][units] */
    /* With SURNN_KEEP_SUMS: [tiles][S][lanes]: bias and input product of each unit, reused while the input
     * is the same. */
    float *input_sums;
    uint64_t *current;        /* bit i: tile i's part of input_sums belongs to the present input */
    uint64_t input_version;   /* of x */
    uint64_t multiplied[2];   /* units whose products were computed, by part */
    /* Only for 8-bit weights: the input and each head's state, quantised when first needed; until then q
     * is NULL. Tiles come head by head and need one of them at a time. */
    quantised_vector *quantised; /* [1 + quantised_heads] */
    uint8_t *numbers;            /* memory of their numbers */
    uint32_t quantised_head;     /* tiles: the one in quantised[1] */
} layer_stream;

typedef struct layer_step {
    const surnn_model *m;
    const operation *op;
    const struct recurrent *layer;
    int count; /* of streams */
    size_t open_count;
    uint32_t *open; /* [open_count]: tile * TOGETHER + stream, in this order */
    /* Recurrent products. Tiles: [S][lanes] for each open one, or for those of a packet if the layer is not
     * updated in place; single units: [S][PACKET]. */
    float *recurrent_sums;
    float *input_sums; /* without SURNN_KEEP_SUMS: [S][lanes] for each tile of a packet */
    /* If the layer is not updated in place: the state of open tiles after the time step. Tiles:
     * [open_count][components][lanes]; single units: [packets][components][PACKET]. */
    float *next;
    uint32_t *open_frames; /* [gates]: bit j: open at frame j of the chunk */
    float *projections;    /* [CHUNK][tiles][S][lanes]: input products; NULL outside of chunks */
    /* Only for single units with 8-bit weights in PACKET streams or more: those of PACKET streams together,
     * made when first needed; until then high is NULL. */
    interleaved_vectors *interleaved; /* [groups of streams][1 + heads] */
    uint8_t *interleaved_numbers;     /* [groups of streams][interleaved_size] */
    layer_stream *stream; /* [count] */
} layer_step;

/* Compute the next state of the open tiles. No state changes before all products are computed. */
void surnn_update_tiles(layer_step *st);
void surnn_update_units(layer_step *st);
/* Fills v, of the input part or of a head's state, with quantised numbers. */
void surnn_quantise_input(const layer_step *st, layer_stream *stream, int part, uint32_t head,
                          quantised_vector *v);

/* ---------------------------------------------------------------- small helpers */

static inline uint32_t tile_of(uint32_t open) { return open / TOGETHER; }
static inline layer_stream *stream_of(layer_step *st, uint32_t open) {
    return &st->stream[open % TOGETHER];
}

static inline const uint8_t *tile_weights(const layer_step *st, size_t tile, int part) {
    const struct recurrent *layer = st->layer;
    return layer->weights + tile * (layer->input_bytes + layer->recurrent_bytes) +
           (part == RECURRENT_PART ? layer->input_bytes : 0);
}

/* [S][lanes] biases of a tile, followed by [P][lanes] parameters of its units. */
static inline const float *tile_biases(const layer_step *st, size_t tile) {
    const struct recurrent *layer = st->layer;
    return layer->biases + tile * (layer->products + layer->parameters) * layer->lanes;
}

/* Number of inputs that a part's weights multiply. */
static inline size_t input_count(const layer_step *st, int part) {
    return part == RECURRENT_PART ? st->layer->head_size : st->op->n;
}

static inline const float *input_of(const layer_step *st, const layer_stream *stream, int part,
                                    uint32_t head) {
    return part == RECURRENT_PART ? stream->h + head * st->layer->head_size : stream->x;
}

/* input_of for 8-bit weights. */
static inline const quantised_vector *quantised_input(const layer_step *st, layer_stream *stream,
                                                      int part, uint32_t head) {
    quantised_vector *v = stream->quantised;
    if (part == RECURRENT_PART && st->layer->lanes == 1) v += 1 + head;
    else if (part == RECURRENT_PART) {
        v++;
        if (stream->quantised_head != head) v->q = NULL;
        stream->quantised_head = head;
    }
    if (!v->q) surnn_quantise_input(st, stream, part, head, v);
    return v;
}

static inline int8_weights int8_tile(const layer_step *st, size_t tile, int part) {
    const struct recurrent *layer = st->layer;
    size_t rows = (tile * 2 + (size_t)part) * layer->width; /* the tile's first one */
    int8_weights w = {(const int8_t *)tile_weights(st, tile, part), layer->row_sums + rows,
                      layer->scales + rows};
    return w;
}

/* A component of the state, [units]. */
static inline float *state_component(const layer_step *st, const layer_stream *stream,
                                     size_t component) {
    if (!component) return stream->h;
    return stream->other_components + (component - 1) * st->layer->units;
}

/* A tile's input_sums; `place` is its place among those of a packet. */
static inline float *input_sums_of(const layer_step *st, const layer_stream *stream, size_t tile,
                                   size_t place) {
    if (!SURNN_KEEP_SUMS) return st->input_sums + place * st->layer->width;
    return stream->input_sums + tile * st->layer->width;
}

/* Whether a tile's part of input_sums belongs to the present input; from now on it does. */
static inline int make_current(layer_stream *stream, size_t tile) {
    if (!SURNN_KEEP_SUMS) return 0;
    uint64_t bit = (uint64_t)1 << (tile % 64), before = stream->current[tile / 64];
    stream->current[tile / 64] = before | bit;
    return (before & bit) != 0;
}

/* Apply the cell to the units of a packet. */
static inline void update_packet(const layer_step *st, const packet *p) {
    st->m->k->cell(p, (int)st->layer->cell, st->layer->threshold, st->layer->beta);
}

/* A packet with memory of its own, for units that are not side by side. */
typedef struct packet_memory {
    float x[MAX_PRODUCTS][PACKET], h[MAX_PRODUCTS][PACKET];
    float unit[MAX_PARAMETERS][PACKET], state[MAX_COMPONENTS][PACKET];
} packet_memory;

static inline packet packet_of(packet_memory *memory) {
    packet p;
    for (int i = 0; i < MAX_PRODUCTS; i++) p.x[i] = memory->x[i], p.h[i] = memory->h[i];
    for (int i = 0; i < MAX_PARAMETERS; i++) p.unit[i] = memory->unit[i];
    for (int i = 0; i < MAX_COMPONENTS; i++) p.state[i] = memory->state[i];
    return p;
}

#endif
