/* Linear maps. */
#include "model.h"

#include <math.h>
#include <string.h>

/* The vector that a linear map multiplies: the inputs of one group. */
typedef struct group_input {
    const float *x;
    quantised_vector q; /* int8 weights only */
    float scale;
} group_input;

/* sum[LINEAR_LANES]: products of one tile. */
static void multiply_tile(const surnn_model *m, const struct linear *linear, size_t tile,
                          const group_input *input, float *sum) {
    const uint8_t *w = linear->weights + tile * linear->tile_bytes;
    if (!is_int8(linear->weight_type)) {
        m->k->tile(sum, (const float *)(const void *)w, input->x, linear->inputs, 1, LINEAR_LANES);
        return;
    }
    int32_t whole[LINEAR_LANES];
    const float *scales = linear->scales + tile * LINEAR_LANES;
    m->k->tile8(whole, (const int8_t *)w, input->q, linear->row_sums + tile * LINEAR_LANES,
                round_up(linear->inputs, 4), 1, LINEAR_LANES);
    m->k->dequantise(sum, whole, scales, input->scale, LINEAR_LANES);
}

/* ---------------------------------------------------------------- incremental maps */

/* The output of a selective layer stays mostly unchanged. An incremental map multiplies only the
 * changes of its input and adds them to its output. Rounding errors do not accumulate: at each time
 * step one tile, in turn, is computed from scratch. */
typedef struct incremental_state {
    uint32_t started;   /* 1 once previous_input and the output are valid */
    uint32_t next_tile; /* the tile to compute from scratch */
    float previous_input[]; /* [n] */
} incremental_state;

/* Lists the changed inputs: indices[count], changes[count]. Returns count, or n + 1 if all products
 * should be computed from scratch. */
static size_t find_changes(const float *x, float *previous, size_t n, uint32_t *indices,
                           float *changes) {
    size_t count = 0;
    int overflow = 0;
    for (size_t j = 0; j < n; j++) {
        changes[count] = x[j] - previous[j];
        indices[count] = (uint32_t)j;
        count += x[j] != previous[j]; /* true for NaN */
        overflow |= !(fabsf(x[j] - previous[j]) <= 3.40282347e38f);
    }
    memcpy(previous, x, n * sizeof *x);
    return overflow || count > n / 2 ? n + 1 : count;
}

/* Returns 0 if the whole map has to be computed from scratch. */
static int add_changes(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *macs) {
    const struct linear *linear = &op->as.linear;
    incremental_state *state = (incremental_state *)(void *)stream_at(s, op->state_offset);
    uint32_t *indices = (uint32_t *)(void *)scratch_of(m, s);
    float *changes = (float *)(void *)(indices + op->n), *y = vector_of(m, s, op->out);
    const float *x = vector_of(m, s, op->in), *bias = linear->bias;
    size_t n = op->n, refresh = state->next_tile % linear->tiles;
    size_t count = find_changes(x, state->previous_input, n, indices, changes);
    uint32_t started = state->started;
    state->started = 1;
    if (started != 1 || count > n) return 0;
    state->next_tile = (uint32_t)(refresh + 1);
    for (size_t tile = 0; tile < linear->tiles; tile++) {
        const float *w = (const float *)(const void *)(linear->weights + tile * linear->tile_bytes);
        size_t first = tile * LINEAR_LANES;
        size_t lanes = op->m - first < LINEAR_LANES ? op->m - first : LINEAR_LANES;
        float sum[LINEAR_LANES];
        if (tile == refresh) {
            m->k->tile(sum, w, x, n, 1, LINEAR_LANES);
            for (size_t u = 0; u < lanes; u++) y[first + u] = sum[u] + (bias ? bias[first + u] : 0.0f);
        } else {
            m->k->columns(sum, w, indices, changes, count);
            for (size_t u = 0; u < lanes; u++) y[first + u] += sum[u];
        }
        *macs += lanes * (tile == refresh ? n : count);
    }
    return 1;
}

/* ---------------------------------------------------------------- whole maps */

uint64_t surnn_run_linear(const surnn_model *m, surnn_stream *s, const operation *op) {
    const struct linear *linear = &op->as.linear;
    uint64_t macs = 0;
    if (linear->incremental && add_changes(m, s, op, &macs)) return macs;
    size_t padded = round_up(linear->inputs, 64), outputs = linear->outputs;
    const float *bias = linear->bias;
    float *y = vector_of(m, s, op->out);
    int16_t *q = (int16_t *)(void *)scratch_of(m, s);
    uint8_t *high = (uint8_t *)(q + padded), *low = high + padded;
    group_input input = {vector_of(m, s, op->in), {q, high, low}, 0.0f};
    for (size_t g = 0; g < linear->groups; g++, input.x += linear->inputs, y += outputs) {
        if (is_int8(linear->weight_type))
            input.scale = m->k->quantise(input.x, linear->inputs, padded, q, high, low);
        for (size_t tile = 0; tile < linear->tiles; tile++) {
            size_t first = tile * LINEAR_LANES;
            size_t lanes = outputs - first < LINEAR_LANES ? outputs - first : LINEAR_LANES;
            float sum[LINEAR_LANES];
            multiply_tile(m, linear, g * linear->tiles + tile, &input, sum);
            for (size_t u = 0; u < lanes; u++)
                y[first + u] = sum[u] + (bias ? bias[g * outputs + first + u] : 0.0f);
        }
    }
    return op->macs;
}

/* ---------------------------------------------------------------- several streams */

/* Float weights: a tile is multiplied with the inputs of all streams. */
static void multiply_group(const surnn_model *m, surnn_stream *const *streams, int count,
                           const operation *op, size_t group) {
    const struct linear *linear = &op->as.linear;
    const float *x[TOGETHER], *bias = linear->bias ? linear->bias + group * linear->outputs : NULL;
    float sums[TOGETHER][LINEAR_LANES], *sum[TOGETHER];
    for (int i = 0; i < count; i++) {
        x[i] = vector_of(m, streams[i], op->in) + group * linear->inputs;
        sum[i] = sums[i];
    }
    for (size_t tile = 0; tile < linear->tiles; tile++) {
        size_t first = tile * LINEAR_LANES, left = linear->outputs - first;
        size_t lanes = left < LINEAR_LANES ? left : LINEAR_LANES;
        const uint8_t *w = linear->weights + (group * linear->tiles + tile) * linear->tile_bytes;
        m->k->tiles(sum, (const float *)(const void *)w, x, linear->inputs, 1, LINEAR_LANES, count);
        for (int i = 0; i < count; i++) {
            float *y = vector_of(m, streams[i], op->out) + group * linear->outputs + first;
            for (size_t u = 0; u < lanes; u++) y[u] = sums[i][u] + (bias ? bias[first + u] : 0.0f);
        }
    }
}

void surnn_run_linear_together(const surnn_model *m, surnn_stream *const *streams, int count,
                               const operation *op) {
    const struct linear *linear = &op->as.linear;
    int alone = linear->incremental || is_int8(linear->weight_type);
    for (int i = 0; i < count; i++)
        streams[i]->macs_done += alone ? surnn_run_linear(m, streams[i], op) : op->macs;
    for (size_t group = 0; !alone && group < linear->groups; group++)
        multiply_group(m, streams, count, op, group);
}
