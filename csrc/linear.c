/* Linear maps. */
#include "model.h"

#include <math.h>
#include <string.h>

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

/* A group of a map, for the inputs of one or several streams. */
typedef struct group {
    const surnn_model *m;
    const struct linear *linear;
    const float *x[TOGETHER];
    const quantised_vector *q[TOGETHER]; /* 8-bit weights only */
    float *y[TOGETHER];
    const float *bias; /* or NULL */
    size_t first_tile;
    int count;
} group;

/* sums[count][LINEAR_LANES] of one tile. */
static void multiply_tile(const group *g, size_t tile, float (*sums)[LINEAR_LANES]) {
    const struct linear *linear = g->linear;
    const kernels *k = g->m->k;
    const uint8_t *w = linear->weights + tile * linear->tile_bytes;
    float *sum[TOGETHER];
    for (int i = 0; i < g->count; i++) sum[i] = sums[i];
    if (!is_int8(linear->weight_type)) {
        const float *weights = (const float *)(const void *)w;
        k->tiles(sum, weights, g->x, linear->inputs, 1, LINEAR_LANES, g->count);
        return;
    }
    const int8_weights weights = {(const int8_t *)w, linear->row_sums + tile * LINEAR_LANES,
                                  linear->scales + tile * LINEAR_LANES};
    k->tiles8(sum, &weights, g->q, NULL, round_up(linear->inputs, 4), 1, LINEAR_LANES, g->count);
}

static void multiply_group(const group *g) {
    const struct linear *linear = g->linear;
    float sums[TOGETHER][LINEAR_LANES];
    for (size_t tile = 0; tile < linear->tiles; tile++) {
        size_t first = tile * LINEAR_LANES, left = linear->outputs - first;
        size_t lanes = left < LINEAR_LANES ? left : LINEAR_LANES;
        multiply_tile(g, g->first_tile + tile, sums);
        for (int i = 0; i < g->count; i++)
            for (size_t u = 0; u < lanes; u++)
                g->y[i][first + u] = sums[i][u] + (g->bias ? g->bias[first + u] : 0.0f);
    }
}

static void multiply_all(const surnn_model *m, surnn_stream *const *streams, int count, const operation *op) {
    const struct linear *linear = &op->as.linear;
    size_t inputs = linear->inputs, size = (size_t)quantised_size(inputs);
    quantised_vector quantised[TOGETHER];
    group g;
    g.m = m, g.linear = linear, g.count = count;
    for (size_t index = 0; index < linear->groups; index++) {
        for (int i = 0; i < count; i++) {
            g.x[i] = vector_of(m, streams[i], op->in) + index * inputs;
            g.y[i] = vector_of(m, streams[i], op->out) + index * linear->outputs;
            g.q[i] = &quantised[i];
            if (is_int8(linear->weight_type))
                quantise(m, &quantised[i], linear->weight_type, g.x[i], inputs,
                         scratch_of(m, streams[0]) + (size_t)i * size);
        }
        g.bias = linear->bias ? linear->bias + index * linear->outputs : NULL;
        g.first_tile = index * linear->tiles;
        multiply_group(&g);
    }
}

uint64_t surnn_run_linear(const surnn_model *m, surnn_stream *s, const operation *op) {
    uint64_t macs = 0;
    if (op->as.linear.incremental && add_changes(m, s, op, &macs)) return macs;
    multiply_all(m, &s, 1, op);
    return op->macs;
}

void surnn_run_linear_together(const surnn_model *m, surnn_stream *const *streams, int count,
                               const operation *op) {
    int alone = op->as.linear.incremental;
    for (int i = 0; i < count; i++)
        streams[i]->macs_done += alone ? surnn_run_linear(m, streams[i], op) : op->macs;
    if (!alone) multiply_all(m, streams, count, op);
}
