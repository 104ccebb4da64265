/* See bench.h. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PRODUCTS = 3 }; /* reset, update, candidate */

/* A GRU layer with its weights separated by product. */
typedef struct separated_layer {
    float *weights;                     /* [PRODUCTS][tiles][n + head_size][lanes] */
    float *input_sums, *recurrent_sums; /* [PRODUCTS][tiles][lanes] each */
} separated_layer;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_supported(const struct recurrent *layer) {
    return layer->cell == CELL_GRU && !is_int8(layer->weight_type) && layer->lanes > 1;
}

/* Returns 0 if memory ran out. */
static int separate(const operation *op, separated_layer *separated) {
    const struct recurrent *layer = &op->as.recurrent;
    size_t rows = op->n + layer->head_size, lanes = layer->lanes, tiles = layer->tiles;
    const float *w = (const float *)(const void *)layer->weights;
    separated->weights = malloc(PRODUCTS * tiles * rows * lanes * sizeof(float));
    separated->input_sums = calloc(PRODUCTS * tiles * lanes, sizeof(float));
    separated->recurrent_sums = calloc(PRODUCTS * tiles * lanes, sizeof(float));
    if (!separated->weights || !separated->input_sums || !separated->recurrent_sums) return 0;
    for (size_t i = 0; i < tiles; i++)
        for (size_t j = 0; j < rows; j++)
            for (size_t p = 0; p < PRODUCTS; p++, w += lanes)
                memcpy(separated->weights + ((p * tiles + i) * rows + j) * lanes, w,
                       lanes * sizeof(float));
    return 1;
}

static int any_open(const uint64_t *mask, uint32_t gates) {
    uint64_t bits = 0;
    for (uint32_t word = 0; word < words_of(gates); word++) bits |= mask[word];
    return bits != 0;
}

/* Product p of the open units; with all_units, of all units if any is open. */
static void multiply(const surnn_model *m, surnn_stream *s, const operation *op,
                     const separated_layer *separated, size_t p, int all_units) {
    const struct recurrent *layer = &op->as.recurrent;
    const uint64_t *mask = mask_of(m, s, op->in2);
    const float *x = vector_of(m, s, op->in), *h = vector_of(m, s, op->out);
    size_t lanes = layer->lanes, rows = op->n + layer->head_size;
    all_units = all_units && any_open(mask, op->gates);
    for (size_t i = 0; i < layer->tiles; i++) {
        const tile_place place = layer->places[i];
        if (!all_units && !is_open(mask, place.gate)) continue;
        size_t index = p * layer->tiles + i;
        const float *w = separated->weights + index * rows * lanes;
        const float *bias = layer->biases + (i * (PRODUCTS + 1) + p) * lanes;
        float *input_sums = separated->input_sums + index * lanes;
        m->k->tile(input_sums, w, x, op->n, 1, (int)lanes);
        for (size_t u = 0; u < lanes; u++) input_sums[u] += bias[u];
        m->k->tile(separated->recurrent_sums + index * lanes, w + op->n * lanes,
                   h + place.head * layer->head_size, layer->head_size, 1, (int)lanes);
    }
}

/* Updates the open units. Returns whether there are any. */
static int update_state(const surnn_model *m, surnn_stream *s, const operation *op,
                        const separated_layer *separated) {
    const struct recurrent *layer = &op->as.recurrent;
    const uint64_t *mask = mask_of(m, s, op->in2);
    float *h = vector_of(m, s, op->out);
    size_t lanes = layer->lanes, bytes = lanes * sizeof(float);
    int any = 0;
    float x[PRODUCTS][PACKET], r[PRODUCTS][PACKET], unit[PACKET], state[PACKET];
    packet p = {{x[0], x[1], x[2], NULL}, {r[0], r[1], r[2], NULL}, {unit, NULL}, {state, NULL, NULL}};
    memset(x, 0, sizeof x), memset(r, 0, sizeof r);
    memset(unit, 0, sizeof unit), memset(state, 0, sizeof state);
    for (size_t i = 0; i < layer->tiles; i++) {
        const tile_place place = layer->places[i];
        if (!is_open(mask, place.gate)) continue;
        for (size_t k = 0; k < PRODUCTS; k++) {
            size_t index = (k * layer->tiles + i) * lanes;
            memcpy(x[k], separated->input_sums + index, bytes);
            memcpy(r[k], separated->recurrent_sums + index, bytes);
        }
        memcpy(unit, layer->biases + (i * (PRODUCTS + 1) + PRODUCTS) * lanes, bytes);
        memcpy(state, h + place.first, place.count * sizeof(float));
        m->k->cell(&p, CELL_GRU, 0.0f, 0.0f);
        memcpy(h + place.first, state, place.count * sizeof(float));
        any = 1;
    }
    return any;
}

static int run_layer(const surnn_model *m, surnn_stream *s, const operation *op,
                     const separated_layer *separated, int reset_before, surnn_parts *parts) {
    double t0 = now();
    multiply(m, s, op, separated, 0, reset_before);
    double t1 = now();
    multiply(m, s, op, separated, 1, 0);
    double t2 = now();
    multiply(m, s, op, separated, 2, 0);
    double t3 = now();
    int changed = update_state(m, s, op, separated);
    double t4 = now();
    parts->reset += t1 - t0, parts->update += t2 - t1, parts->candidate += t3 - t2;
    parts->state += t4 - t3;
    return changed;
}

static double layer_seconds(const surnn_parts *parts) {
    return parts->reset + parts->update + parts->candidate + parts->state;
}

/* separated: one for each operation; those of other operations are unused. */
static void run_step(const surnn_model *m, surnn_stream *s, const separated_layer *separated,
                     int reset_before, surnn_parts *parts) {
    uint64_t *version = versions_at(m, s, 0);
    double begin = now(), before = layer_seconds(parts);
    for (uint32_t i = 0; i < m->operation_count; i++) {
        const operation *op = &m->operations[i];
        if (op->kind != OP_RECURRENT) surnn_run_operation(m, s, i);
        else if (run_layer(m, s, op, &separated[i], reset_before, parts) || !version[op->out])
            version[op->out]++;
    }
    s->t++;
    double after = layer_seconds(parts);
    parts->rest += now() - begin - (after - before);
}

static double seconds_per_clock_read(void) {
    double begin = now();
    for (int i = 0; i < 1000; i++) (void)now();
    return (now() - begin) / 1000;
}

static int fits_clock(int64_t clock, size_t steps) {
    return clock >= 0 && clock <= SURNN_MAX_CLOCK && steps <= (uint64_t)(SURNN_MAX_CLOCK - clock);
}

surnn_status surnn_time_parts(const surnn_model *m, const float *frames, size_t steps, float *out,
                              int64_t clock, int reset_before, surnn_parts *parts) {
    surnn_stream *s = NULL;
    if (!m || !frames || !out || !parts || m->takes_tokens) return SURNN_ARGUMENT;
    if (!fits_clock(clock, steps)) return SURNN_CLOCK;
    for (uint32_t i = 0; i < m->operation_count; i++) {
        const operation *op = &m->operations[i];
        if (op->kind == OP_RECURRENT && !is_supported(&op->as.recurrent)) return SURNN_ARGUMENT;
    }
    memset(parts, 0, sizeof *parts);
    surnn_status status = surnn_stream_new(m, &s);
    if (status == SURNN_OK) status = surnn_set_clock(m, s, clock);
    if (status == SURNN_OK) status = surnn_enter(m, s, NULL); /* operations need its workspace */
    separated_layer *separated = calloc(m->operation_count, sizeof *separated);
    if (!separated) status = SURNN_MEMORY;
    for (uint32_t i = 0; i < m->operation_count && status == SURNN_OK; i++) {
        const operation *op = &m->operations[i];
        if (op->kind == OP_RECURRENT && !separate(op, &separated[i])) status = SURNN_MEMORY;
    }
    for (size_t i = 0; i < steps && status == SURNN_OK; i++) {
        surnn_set_input(m, s, frames + i * m->input_size);
        run_step(m, s, separated, reset_before, parts);
        size_t size = m->vectors[m->output].size;
        memcpy(out + i * size, vector_of(m, s, m->output), size * sizeof(float));
    }
    for (uint32_t i = 0; separated && i < m->operation_count; i++) {
        free(separated[i].weights);
        free(separated[i].input_sums);
        free(separated[i].recurrent_sums);
    }
    free(separated);
    surnn_stream_free(s);
    parts->clock = (double)steps * (5.0 * m->layers + 2.0) * seconds_per_clock_read();
    return status;
}

/* Time steps before the timed ones, over the first frame: a stream that comes from there has prepared
 * its clocks, and its memory is in the cache. */
static surnn_status warm_up(const surnn_model *m, surnn_stream *s, const float *frame, float *out,
                            int64_t clock) {
    int64_t steps = clock < 2 * BLOCK ? clock : 2 * BLOCK;
    surnn_status status = surnn_set_clock(m, s, clock - steps);
    for (; steps && status == SURNN_OK; steps--) status = surnn_step(m, s, frame, out);
    return status;
}

surnn_status surnn_time_steps(const surnn_model *m, const float *frames, size_t steps, float *out,
                              int64_t clock, double *seconds) {
    surnn_stream *s = NULL;
    if (!m || !frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    if (!fits_clock(clock, steps)) return SURNN_CLOCK;
    surnn_status status = surnn_stream_new(m, &s);
    if (status == SURNN_OK && seconds && steps) status = warm_up(m, s, frames, out, clock);
    else if (status == SURNN_OK) status = surnn_set_clock(m, s, clock);
    size_t size = m->vectors[m->output].size;
    for (size_t i = 0; i < steps && status == SURNN_OK; i++) {
        double begin = seconds ? now() : 0.0;
        status = surnn_step(m, s, frames + i * m->input_size, out + i * size);
        if (seconds) seconds[i] = now() - begin;
    }
    surnn_stream_free(s);
    return status;
}

static surnn_status step_streams(const surnn_model *m, surnn_workspace *workspace,
                                 surnn_stream *const *s, size_t streams, const float *frames,
                                 float *out, int together) {
    surnn_status status = SURNN_OK;
    size_t size = m->vectors[m->output].size;
    if (together) return surnn_step_many(m, workspace, s, streams, frames, out);
    for (size_t i = 0; i < streams && status == SURNN_OK; i++)
        status = surnn_run_in(m, workspace, s[i], frames + i * m->input_size, 1, out + i * size);
    return status;
}

surnn_status surnn_time_streams(const surnn_model *m, const float *frames, size_t streams,
                                size_t steps, int64_t clock, int together, double *seconds) {
    surnn_workspace *workspace = NULL;
    if (!m || !frames || !seconds || m->takes_tokens) return SURNN_ARGUMENT;
    surnn_status status = surnn_workspace_new(m, &workspace);
    surnn_stream **s = calloc(streams ? streams : 1, sizeof(surnn_stream *));
    float *out = calloc(streams ? streams : 1, m->vectors[m->output].size * sizeof(float));
    if (!s || !out) status = SURNN_MEMORY;
    for (size_t i = 0; i < streams && status == SURNN_OK; i++) {
        status = surnn_state_new(m, &s[i]);
        if (status == SURNN_OK) status = surnn_set_clock(m, s[i], clock);
    }
    for (size_t t = 0; t < steps && status == SURNN_OK; t++) {
        double begin = now();
        status = step_streams(m, workspace, s, streams, frames + t * streams * m->input_size, out,
                              together);
        seconds[t] = now() - begin;
    }
    for (size_t i = 0; s && i < streams; i++) surnn_stream_free(s[i]);
    surnn_workspace_free(workspace);
    free(s);
    free(out);
    return status;
}
