/* A time step of one recurrent layer, shared by the files recurrent*.c.
 *
 * recurrent.c        the step: which tiles are open, input products of a chunk
 * recurrent_tiles.c  layers whose tiles are 8 or 16 units side by side
 * recurrent_units.c  layers whose tiles are single units
 * recurrent_batch.c  several streams together */
#ifndef SURNN_RECURRENT_H
#define SURNN_RECURRENT_H

#include "model.h"

#include <string.h>

enum { INPUT_PART, RECURRENT_PART }; /* the two parts of a tile's weights */

/* S is layer->products. */
typedef struct layer_step {
    const surnn_model *m;
    surnn_stream *s;
    const operation *op;
    const struct recurrent *layer;
    const float *x; /* [n] */
    float *h;       /* [units]: component 0 of the state, and the output */
    float *other_components;  /* [components - 1][units] */
    /* Bias and input product of each unit, reused while the input is the same.
     * Tiles: [tiles][S][lanes]; single units: [S][units]. */
    float *input_sums;
    uint64_t *current;        /* bit i: tile i's part of input_sums belongs to the present input */
    uint64_t input_version;   /* of x */
    /* Recurrent products. Tiles: [open][S][lanes]; single units: [packets][S][PACKET]. */
    float *recurrent_sums;
    uint32_t *open;           /* [open]: indices of the open tiles */
    uint32_t *open_frames;    /* [gates]: bit j: open at frame j of the chunk */
    float *projections;       /* [CHUNK][tiles][S][lanes]: input products; NULL outside of chunks */
    /* Only for 8-bit weights: the input and each head's state, quantised when first needed; until then q
     * is NULL. */
    quantised_vector *quantised; /* [1 + heads] */
    uint8_t *numbers;            /* memory of their numbers */
} layer_step;

/* `scratch` is the stream's own part of the scratch memory. */
void surnn_begin_layer(layer_step *st, const surnn_model *m, surnn_stream *s, const operation *op,
                       uint8_t *scratch);
/* Spiking units whose gate is closed emit nothing, and their adaptation may decay. Returns whether an
 * output changed; 0 for other cells. */
int surnn_carry_spikes(layer_step *st);

/* sum[i][S][lanes]: one part's products of a tile, for each of `count` streams; the input part with
 * biases. */
void surnn_multiply_tile(layer_step *const *st, float *const *sum, size_t tile, int part, int count);
/* One part's products of units with 8-bit weights: sum[S][PACKET]. Unit i belongs to st[i]. */
void surnn_multiply_int8(layer_step *const *st, float *sum, const uint32_t *units, int count, int part);

/* Compute input_sums and recurrent_sums of the open tiles, st->open[open]. */
void surnn_multiply_tiles(layer_step *st, size_t open);
void surnn_multiply_units(layer_step *st, size_t open);
/* Update the state of the open tiles. */
void surnn_update_tiles(layer_step *st, size_t open);
void surnn_update_units(layer_step *st, size_t open);

/* ---------------------------------------------------------------- small helpers */

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

/* Index of a tile's first row in layer->scales and layer->row_sums. */
static inline size_t tile_rows(const layer_step *st, size_t tile, int part) {
    return (tile * 2 + (size_t)part) * st->layer->width;
}

/* Number of inputs that a part's weights multiply. */
static inline size_t input_count(const layer_step *st, int part) {
    return part == RECURRENT_PART ? st->layer->head_size : st->op->n;
}

static inline const float *input_of(const layer_step *st, int part, uint32_t head) {
    return part == RECURRENT_PART ? st->h + head * st->layer->head_size : st->x;
}

/* input_of for 8-bit weights. */
static inline const quantised_vector *quantised_input(layer_step *st, int part, uint32_t head) {
    size_t n = input_count(st, part);
    quantised_vector *v = st->quantised + (part == INPUT_PART ? 0 : 1 + head);
    uint8_t *numbers = st->numbers;
    if (v->q) return v;
    if (part == RECURRENT_PART) numbers += quantised_size(st->op->n) + head * quantised_size(n);
    quantise(st->m, v, st->layer->weight_type, input_of(st, part, head), n, numbers);
    return v;
}

static inline int8_weights int8_tile(const layer_step *st, size_t tile, int part) {
    const struct recurrent *layer = st->layer;
    size_t rows = tile_rows(st, tile, part);
    int8_weights w = {(const int8_t *)tile_weights(st, tile, part), layer->row_sums + rows,
                      layer->scales + rows};
    return w;
}

/* A component of the state, [units]. */
static inline float *state_component(const layer_step *st, size_t component) {
    return component ? st->other_components + (component - 1) * st->layer->units : st->h;
}

/* Whether a tile's part of input_sums belongs to the present input; from now on it does. */
static inline int make_current(layer_step *st, size_t tile) {
    uint64_t bit = (uint64_t)1 << (tile % 64), before = st->current[tile / 64];
    st->current[tile / 64] = before | bit;
    return (before & bit) != 0;
}

/* Apply the cell to the units of a packet. */
static inline void update_packet(const layer_step *st, const packet *p) {
    st->m->k->cell(p, (int)st->layer->cell, st->layer->threshold, st->layer->beta);
}

static inline void count_macs(layer_step *st, size_t units, size_t inputs) {
    st->s->macs_done += (uint64_t)units * st->layer->products * inputs;
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
