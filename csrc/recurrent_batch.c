/* Recurrent layers of several streams together: the weights of a tile are read once for all streams in
 * which it is open. The products and their order are those of a single stream. */
#include "recurrent.h"

typedef struct batch {
    layer_step st[TOGETHER];
    size_t open[TOGETHER];      /* open tiles of each stream so far */
    size_t projected[TOGETHER]; /* units whose input products were computed */
    uint32_t *open_streams;     /* [gates]: bit i: open in stream i */
    int count;
} batch;

/* Units of the streams whose products are computed together, and where their sums go. */
typedef struct unit_list {
    layer_step *st[PACKET];
    uint32_t unit[PACKET];
    const float *w[PACKET], *x[PACKET]; /* unused for 8-bit weights */
    float *to[PACKET];                  /* product p goes to to[i][p * stride] */
    size_t stride;
    int part, count;
} unit_list;

static void find_open_streams(batch *b, const operation *op) {
    memset(b->open_streams, 0, op->gates * sizeof *b->open_streams);
    for (int i = 0; i < b->count; i++) {
        const uint64_t *mask = mask_of(b->st[i].m, b->st[i].s, op->in2);
        for (uint32_t word = 0; word < words_of(op->gates); word++)
            for (uint64_t bits = mask[word]; bits; bits &= bits - 1)
                b->open_streams[word * 64 + lowest_bit(bits)] |= (uint32_t)1 << i;
    }
}

/* ---------------------------------------------------------------- tiles of 8 or 16 units */

static void project_tile(batch *b, size_t tile, uint32_t streams) {
    float *sum[TOGETHER];
    layer_step *stale[TOGETHER];
    int count = 0;
    for (; streams; streams &= streams - 1) {
        layer_step *st = &b->st[lowest_bit(streams)];
        if (make_current(st, tile)) continue;
        stale[count] = st, sum[count] = st->input_sums + tile * st->layer->width;
        count++;
    }
    if (count) surnn_multiply_tile(stale, sum, tile, INPUT_PART, count);
}

static void multiply_tile(batch *b, size_t tile, uint32_t streams) {
    float *sum[TOGETHER];
    layer_step *st[TOGETHER];
    int count = 0;
    for (; streams; streams &= streams - 1, count++) {
        unsigned i = lowest_bit(streams);
        st[count] = &b->st[i];
        sum[count] = st[count]->recurrent_sums + b->open[i] * st[count]->layer->width;
        st[count]->open[b->open[i]++] = (uint32_t)tile;
    }
    surnn_multiply_tile(st, sum, tile, RECURRENT_PART, count);
}

static void multiply_tiles(batch *b, const operation *op) {
    const struct recurrent *layer = &op->as.recurrent;
    for (uint32_t gate = 0; gate < op->gates; gate++) {
        uint32_t streams = b->open_streams[gate];
        if (!streams) continue;
        for (uint32_t tile = layer->first_tile[gate]; tile < layer->first_tile[gate + 1]; tile++) {
            project_tile(b, tile, streams);
            multiply_tile(b, tile, streams);
        }
    }
}

/* ---------------------------------------------------------------- single units */

static void flush(unit_list *list) {
    float sum[MAX_PRODUCTS * PACKET];
    if (!list->count) return;
    const layer_step *first = list->st[0];
    size_t products = first->layer->products, n = input_count(first, list->part);
    if (is_int8(first->layer->weight_type))
        surnn_multiply_int8(list->st, sum, list->unit, list->count, list->part);
    else first->m->k->rows(sum, list->w, list->x, n, (int)products, list->count);
    for (int i = 0; i < list->count; i++) {
        const float *bias = tile_biases(first, list->unit[i]);
        float *to = list->to[i];
        for (size_t p = 0; p < products; p++, to += list->stride)
            *to = list->part == INPUT_PART ? sum[p * PACKET + i] + bias[p] : sum[p * PACKET + i];
    }
    list->count = 0;
}

static void append(unit_list *list, layer_step *st, uint32_t unit, const float *w, const float *x,
                   float *to) {
    int i = list->count++;
    list->st[i] = st, list->unit[i] = unit, list->w[i] = w, list->x[i] = x, list->to[i] = to;
    if (list->count == PACKET) flush(list);
}

/* Where the recurrent sums of an open unit go, by its position among them: [packets][S][PACKET]. */
static float *recurrent_sum(const layer_step *st, size_t position) {
    return st->recurrent_sums + position / PACKET * st->layer->products * PACKET + position % PACKET;
}

/* The last packet is filled up as by surnn_multiply_units. */
static void fill_last_packet(layer_step *st, size_t open) {
    for (size_t i = open; i % PACKET; i++) {
        st->open[i] = st->open[open - 1];
        for (size_t p = 0; p < st->layer->products; p++) recurrent_sum(st, i)[p * PACKET] = 0.0f;
    }
}

/* One unit in all `streams` in which it is open. */
static void multiply_unit(batch *b, uint32_t unit, uint32_t streams, unit_list *inputs,
                          unit_list *states) {
    const struct recurrent *layer = b->st[0].layer;
    const float *w = (const float *)(const void *)tile_weights(&b->st[0], unit, INPUT_PART);
    const float *u = (const float *)(const void *)tile_weights(&b->st[0], unit, RECURRENT_PART);
    size_t state = layer->places[unit].head * layer->head_size;
    for (; streams; streams &= streams - 1) {
        unsigned i = lowest_bit(streams);
        layer_step *st = &b->st[i];
        append(states, st, unit, u, st->h + state, recurrent_sum(st, b->open[i]));
        st->open[b->open[i]++] = unit;
        if (make_current(st, unit)) continue;
        append(inputs, st, unit, w, st->x, st->input_sums + unit);
        b->projected[i]++;
    }
}

static void multiply_units(batch *b, const operation *op) {
    const struct recurrent *layer = &op->as.recurrent;
    unit_list inputs, states;
    inputs.part = INPUT_PART, inputs.stride = layer->units, inputs.count = 0;
    states.part = RECURRENT_PART, states.stride = PACKET, states.count = 0;
    for (uint32_t gate = 0; gate < op->gates; gate++) {
        uint32_t streams = b->open_streams[gate];
        if (!streams) continue;
        for (uint32_t unit = layer->first_tile[gate]; unit < layer->first_tile[gate + 1]; unit++)
            multiply_unit(b, unit, streams, &inputs, &states);
    }
    flush(&inputs);
    flush(&states);
    for (int i = 0; i < b->count; i++) {
        fill_last_packet(&b->st[i], b->open[i]);
        count_macs(&b->st[i], b->projected[i], op->n);
        count_macs(&b->st[i], b->open[i], layer->head_size);
    }
}

/* ---------------------------------------------------------------- a time step */

void surnn_run_recurrent_together(const surnn_model *m, surnn_stream *const *streams, int count,
                                  const operation *op, int *changed) {
    const struct recurrent *layer = &op->as.recurrent;
    uint8_t *scratch = scratch_of(m, streams[0]);
    int single_units = layer->lanes == 1;
    batch b;
    b.count = count;
    b.open_streams = (uint32_t *)(void *)(scratch + TOGETHER * layer->scratch.per_stream);
    for (int i = 0; i < count; i++) {
        b.open[i] = b.projected[i] = 0;
        surnn_begin_layer(&b.st[i], m, streams[i], op, scratch + (size_t)i * layer->scratch.per_stream);
    }
    find_open_streams(&b, op);
    if (single_units) multiply_units(&b, op);
    else multiply_tiles(&b, op);
    for (int i = 0; i < count; i++) {
        layer_step *st = &b.st[i];
        changed[i] = surnn_carry_spikes(st) || b.open[i];
        for (size_t k = 0; k < b.open[i]; k++) streams[i]->updates += layer->places[st->open[k]].count;
        if (single_units) surnn_update_units(st, b.open[i]);
        else surnn_update_tiles(st, b.open[i]);
    }
}
