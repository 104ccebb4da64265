/* Recurrent layers whose tiles are single units: a tile's index is its unit's. The open units of all
 * streams fill packets, in the order of units. */
#include "recurrent.h"

/* The vectors of the PACKET streams of which `open` names the first. */
static const interleaved_vectors *interleaved_input(layer_step *st, uint32_t open, int part, uint32_t head) {
    const struct recurrent *layer = st->layer;
    const quantised_vector *x[PACKET];
    size_t group = open % TOGETHER / PACKET, n = round_up(input_count(st, part), 16), before = 0;
    interleaved_vectors *v = st->interleaved + group * (1 + layer->heads);
    if (part == RECURRENT_PART) v += 1 + head, before = round_up(st->op->n, 16) + head * n;
    if (v->high) return v;
    for (uint32_t i = 0; i < PACKET; i++) x[i] = quantised_input(st, stream_of(st, open + i), part, head);
    v->high = st->interleaved_numbers + group * layer->scratch.interleaved_size + before * 2 * PACKET;
    v->low = x[0]->low ? v->high + n * PACKET : NULL;
    st->m->k->interleave(v, x, n);
    return v;
}

/* Whether they are one unit, in PACKET streams from a multiple of PACKET on. */
static int fills_group(const uint32_t *open, int count) {
    uint32_t stream = open[0] % TOGETHER;
    if (count < PACKET || stream % PACKET || stream + PACKET > TOGETHER) return 0;
    return open[PACKET - 1] == open[0] + PACKET - 1;
}

/* sum[S][PACKET]: one part's products of a unit that fills_group. */
static void multiply_group(layer_step *st, float *sum, uint32_t open, int part) {
    const struct recurrent *layer = st->layer;
    const int8_weights w = int8_tile(st, tile_of(open), part);
    const interleaved_vectors *x = interleaved_input(st, open, part, layer->places[tile_of(open)].head);
    st->m->k->lanes8(sum, &w, x, input_count(st, part), (int)layer->products);
}

/* sum[S][PACKET]: one part's products of `count` open units with 8-bit weights. */
static void multiply_int8(layer_step *st, float *sum, const uint32_t *open, int count, int part) {
    const struct recurrent *layer = st->layer;
    const quantised_vector *x[PACKET];
    int8_weights w[PACKET], same = {NULL, NULL, NULL};
    size_t n = input_count(st, part);
    for (int i = 0; i < count; i++) {
        uint32_t unit = tile_of(open[i]), head = layer->heads == 1 ? 0 : layer->places[unit].head;
        if (!i || unit != tile_of(open[i - 1])) same = int8_tile(st, unit, part);
        w[i] = same;
        x[i] = quantised_input(st, stream_of(st, open[i]), part, head);
    }
    st->m->k->rows8(sum, w, x, round_up(n, 64), (int)layer->products, count);
}

/* The same for any weights. */
static void multiply(layer_step *st, float *sum, const uint32_t *open, int count, int part) {
    const struct recurrent *layer = st->layer;
    const float *w[PACKET], *x[PACKET];
    size_t n = input_count(st, part);
    if (st->count == 1) st->stream[0].multiplied[part] += (uint64_t)count;
    else for (int i = 0; i < count; i++) stream_of(st, open[i])->multiplied[part]++;
    if (is_int8(layer->weight_type)) {
        if (st->m->k->lanes8 && fills_group(open, count)) multiply_group(st, sum, open[0], part);
        else multiply_int8(st, sum, open, count, part);
        return;
    }
    const uint8_t *first = tile_weights(st, 0, part);
    size_t stride = (size_t)(tile_weights(st, 1, part) - first);
    for (int i = 0; i < count; i++) {
        uint32_t unit = tile_of(open[i]), head = layer->heads == 1 ? 0 : layer->places[unit].head;
        w[i] = (const float *)(const void *)(first + unit * stride);
        x[i] = input_of(st, stream_of(st, open[i]), part, head);
    }
    st->m->k->rows(sum, w, x, n, (int)layer->products, count);
}

/* Brings these units' part of input_sums up to date. */
static void update_input_sums(layer_step *st, const uint32_t *open, int count) {
    const struct recurrent *layer = st->layer;
    uint32_t stale[PACKET];
    float sum[MAX_PRODUCTS * PACKET];
    size_t stride = layer->products + layer->parameters;
    int stale_count = 0;
    for (int i = 0; i < count; i++) {
        stale[stale_count] = open[i];
        stale_count += !make_current(stream_of(st, open[i]), tile_of(open[i]));
    }
    if (!stale_count) return;
    multiply(st, sum, stale, stale_count, INPUT_PART);
    for (int i = 0; i < stale_count; i++) {
        uint32_t unit = tile_of(stale[i]);
        float *to = input_sums_of(st, stream_of(st, stale[i]), unit, (size_t)i);
        const float *bias = layer->biases + unit * stride;
        for (size_t p = 0; p < layer->products; p++) to[p] = sum[p * PACKET + (size_t)i] + bias[p];
    }
}

static void gather(float *to, const float *const *from, size_t offset) {
    for (int i = 0; i < PACKET; i++) to[i] = from[i][offset];
}

/* Applies the cell to a packet; next[components][PACKET]. */
static void update(layer_step *st, const uint32_t *open, float *next) {
    const struct recurrent *layer = st->layer;
    const float *x[PACKET], *parameters[PACKET], *state[MAX_COMPONENTS][PACKET];
    packet_memory memory;
    packet p = packet_of(&memory);
    for (int i = 0; i < PACKET; i++) {
        const layer_stream *stream = stream_of(st, open[i]);
        uint32_t unit = tile_of(open[i]);
        x[i] = input_sums_of(st, stream, unit, (size_t)i);
        parameters[i] = tile_biases(st, unit) + layer->products;
        for (size_t c = 0; c < layer->components; c++)
            state[c][i] = state_component(st, stream, c) + unit;
    }
    for (size_t k = 0; k < layer->products; k++) {
        gather(memory.x[k], x, k);
        p.h[k] = st->recurrent_sums + k * PACKET;
    }
    for (size_t k = 0; k < layer->parameters; k++) gather(memory.unit[k], parameters, k);
    for (size_t c = 0; c < layer->components; c++) {
        p.state[c] = next + c * PACKET;
        gather(p.state[c], state[c], 0);
    }
    update_packet(st, &p);
}

/* Units in the packet that begins at open unit `first`. */
static int packet_size(const layer_step *st, size_t first) {
    return st->open_count - first < PACKET ? (int)(st->open_count - first) : PACKET;
}

static void store_next(layer_step *st) {
    for (size_t first = 0; first < st->open_count; first += PACKET) {
        const float *next = st->next + first * st->layer->components;
        for (size_t c = 0; c < st->layer->components; c++, next += PACKET)
            for (int i = 0; i < packet_size(st, first); i++) {
                uint32_t open = st->open[first + (size_t)i];
                state_component(st, stream_of(st, open), c)[tile_of(open)] = next[i];
            }
    }
}

/* The last packet is filled up with copies of its last unit, so that all lanes hold numbers. */
void surnn_update_units(layer_step *st) {
    size_t open = st->open_count;
    for (size_t i = open; i % PACKET; i++) st->open[i] = st->open[open - 1];
    for (size_t i = 0; i < open; i += PACKET) {
        update_input_sums(st, st->open + i, packet_size(st, i));
        multiply(st, st->recurrent_sums, st->open + i, packet_size(st, i), RECURRENT_PART);
        update(st, st->open + i, st->next + i * st->layer->components);
    }
    store_next(st);
}
