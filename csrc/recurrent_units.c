/* Recurrent layers whose tiles are single units: a tile's index is its unit's. */
#include "recurrent.h"

void surnn_multiply_int8(layer_step *const *st, float *sum, const uint32_t *units, int count,
                         int part) {
    const struct recurrent *layer = st[0]->layer;
    const quantised_vector *x[PACKET];
    int8_weights w[PACKET];
    size_t n = input_count(st[0], part);
    if (count < 1) return;
    for (int i = 0; i < count; i++) {
        w[i] = int8_tile(st[i], units[i], part);
        x[i] = quantised_input(st[i], part, layer->heads == 1 ? 0 : layer->places[units[i]].head);
    }
    st[0]->m->k->rows8(sum, w, x, round_up(n, 64), (int)layer->products, count);
}

/* sum[S][PACKET]: one part's products of `count` units. */
static void multiply(layer_step *st, float *sum, const uint32_t *units, int count, int part) {
    const struct recurrent *layer = st->layer;
    const float *w[PACKET], *x[PACKET];
    size_t n = input_count(st, part);
    int one_head = layer->heads == 1;
    count_macs(st, (size_t)count, n);
    if (is_int8(layer->weight_type)) {
        layer_step *steps[PACKET];
        for (int i = 0; i < count; i++) steps[i] = st;
        surnn_multiply_int8(steps, sum, units, count, part);
        return;
    }
    const uint8_t *first = tile_weights(st, 0, part), *second = tile_weights(st, 1, part);
    size_t stride = (size_t)(second - first);
    for (int i = 0; i < count; i++) {
        w[i] = (const float *)(const void *)(first + units[i] * stride);
        x[i] = input_of(st, part, one_head ? 0 : layer->places[units[i]].head);
    }
    st->m->k->rows(sum, w, x, n, (int)layer->products, count);
}

/* Brings these units' part of input_sums, [S][units], up to date. */
static void update_input_sums(layer_step *st, const uint32_t *units, int count) {
    const struct recurrent *layer = st->layer;
    uint32_t stale[PACKET];
    float sum[MAX_PRODUCTS * PACKET], *input_sums = st->input_sums;
    size_t stride = layer->products + layer->parameters;
    int stale_count = 0;
    for (int i = 0; i < count; i++) {
        stale[stale_count] = units[i];
        stale_count += !make_current(st, units[i]);
    }
    if (!stale_count) return;
    multiply(st, sum, stale, stale_count, INPUT_PART);
    for (size_t p = 0; p < layer->products; p++, input_sums += layer->units) {
        const float *bias = layer->biases + p;
        for (int i = 0; i < stale_count; i++)
            input_sums[stale[i]] = sum[p * PACKET + i] + bias[stale[i] * stride];
    }
}

/* Units in the packet that begins at open unit `first`. */
static int packet_size(size_t first, size_t open) {
    return open - first < PACKET ? (int)(open - first) : PACKET;
}

/* The last packet is filled up with copies of its last unit, so that all lanes hold numbers. */
void surnn_multiply_units(layer_step *st, size_t open) {
    float *recurrent_sums = st->recurrent_sums;
    for (size_t i = open; i % PACKET; i++) st->open[i] = st->open[open - 1];
    for (size_t i = 0; i < open; i += PACKET, recurrent_sums += st->layer->products * PACKET) {
        update_input_sums(st, st->open + i, packet_size(i, open));
        multiply(st, recurrent_sums, st->open + i, packet_size(i, open), RECURRENT_PART);
    }
}

static void gather(float *to, const float *from, const uint32_t *units, size_t stride) {
    for (int i = 0; i < PACKET; i++) to[i] = from[units[i] * stride];
}

void surnn_update_units(layer_step *st, size_t open) {
    const struct recurrent *layer = st->layer;
    size_t products = layer->products, stride = products + layer->parameters;
    const float *parameters = layer->biases + products, *recurrent_sums = st->recurrent_sums;
    packet_memory memory;
    packet p = packet_of(&memory);
    for (size_t first = 0; first < open; first += PACKET, recurrent_sums += products * PACKET) {
        const uint32_t *units = st->open + first;
        int count = packet_size(first, open);
        for (size_t i = 0; i < products; i++) {
            gather(memory.x[i], st->input_sums + i * layer->units, units, 1);
            p.h[i] = recurrent_sums + i * PACKET;
        }
        for (size_t i = 0; i < layer->parameters; i++)
            gather(memory.unit[i], parameters + i, units, stride);
        for (size_t i = 0; i < layer->components; i++)
            gather(memory.state[i], state_component(st, i), units, 1);
        update_packet(st, &p);
        for (size_t i = 0; i < layer->components; i++)
            for (int u = 0; u < count; u++) state_component(st, i)[units[u]] = memory.state[i][u];
    }
}
