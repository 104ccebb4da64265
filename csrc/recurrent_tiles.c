/* Recurrent layers whose tiles are 8 or 16 units side by side. */
#include "recurrent.h"

void surnn_multiply_tile(layer_step *const *st, float *const *sum, size_t tile, int part, int count) {
    const struct recurrent *layer = st[0]->layer;
    const kernels *k = st[0]->m->k;
    size_t n = input_count(st[0], part);
    uint32_t head = layer->places[tile].head;
    int products = (int)layer->products, lanes = (int)layer->lanes;
    const float *biases = part == INPUT_PART ? tile_biases(st[0], tile) : NULL;
    for (int i = 0; i < count; i++) count_macs(st[i], layer->places[tile].count, n);
    if (is_int8(layer->weight_type)) {
        const int8_weights w = int8_tile(st[0], tile, part);
        const quantised_vector *x[TOGETHER];
        for (int i = 0; i < count; i++) x[i] = quantised_input(st[i], part, head);
        k->tiles8(sum, &w, x, biases, round_up(n, 4), products, lanes, count);
        return;
    }
    const float *w = (const float *)(const void *)tile_weights(st[0], tile, part), *x[TOGETHER];
    for (int i = 0; i < count; i++) x[i] = input_of(st[i], part, head);
    k->tiles(sum, w, x, n, products, lanes, count);
    for (int i = 0; biases && i < count; i++) k->add(sum[i], sum[i], biases, layer->width);
}

/* Brings a tile's part of input_sums up to date. */
static void update_input_sums(layer_step *st, size_t tile) {
    const struct recurrent *layer = st->layer;
    float *sum = st->input_sums + tile * layer->width;
    if (make_current(st, tile)) return;
    if (st->projections) {
        const float *products = st->projections + (st->s->frame * layer->tiles + tile) * layer->width;
        st->m->k->add(sum, products, tile_biases(st, tile), layer->width);
    } else {
        surnn_multiply_tile(&st, &sum, tile, INPUT_PART, 1);
    }
}

/* Odd frames of a chunk go backwards: the weights that were read last are still in the cache. */
void surnn_multiply_tiles(layer_step *st, size_t open) {
    for (size_t k = 0; k < open; k++) {
        size_t i = st->s->frame % 2 ? open - 1 - k : k;
        float *sum = st->recurrent_sums + i * st->layer->width;
        update_input_sums(st, st->open[i]);
        surnn_multiply_tile(&st, &sum, st->open[i], RECURRENT_PART, 1);
    }
}

/* A tile with as many units as a packet: in place. */
static void update_full_tile(layer_step *st, size_t tile, const float *recurrent_sums) {
    const struct recurrent *layer = st->layer;
    const float *input_sums = st->input_sums + tile * layer->width;
    const float *unit = tile_biases(st, tile) + layer->width;
    size_t first = layer->places[tile].first;
    packet p; /* the cell does not read the rest of it */
    for (size_t i = 0; i < layer->products; i++)
        p.x[i] = input_sums + i * PACKET, p.h[i] = recurrent_sums + i * PACKET;
    for (size_t i = 0; i < layer->parameters; i++) p.unit[i] = unit + i * PACKET;
    for (size_t i = 0; i < layer->components; i++) p.state[i] = state_component(st, i) + first;
    update_packet(st, &p);
}

/* Tiles with fewer units than a packet, as many as fit into one: copied there and back. */
static void update_small_tiles(layer_step *st, const uint32_t *tiles, size_t count,
                               const float *recurrent_sums) {
    const struct recurrent *layer = st->layer;
    size_t lanes = layer->lanes, lane_bytes = lanes * 4;
    packet_memory memory;
    packet p = packet_of(&memory);
    size_t units = 0;
    for (size_t k = 0; k < count; k++) units += layer->places[tiles[k]].count;
    if (units < PACKET) memset(&memory, 0, sizeof memory); /* lanes without a unit */
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes, recurrent_sums += layer->width) {
        const float *input_sums = st->input_sums + tiles[k] * layer->width;
        const float *unit = tile_biases(st, tiles[k]) + layer->width;
        const tile_place place = layer->places[tiles[k]];
        for (size_t i = 0; i < layer->products; i++) {
            memcpy(memory.x[i] + lane, input_sums + i * lanes, lane_bytes);
            memcpy(memory.h[i] + lane, recurrent_sums + i * lanes, lane_bytes);
        }
        for (size_t i = 0; i < layer->parameters; i++)
            memcpy(memory.unit[i] + lane, unit + i * lanes, lane_bytes);
        for (size_t i = 0; i < layer->components; i++)
            memcpy(memory.state[i] + lane, state_component(st, i) + place.first, place.count * 4);
    }
    update_packet(st, &p);
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes)
        for (size_t i = 0; i < layer->components; i++)
            memcpy(state_component(st, i) + layer->places[tiles[k]].first, memory.state[i] + lane,
                   layer->places[tiles[k]].count * 4);
}

void surnn_update_tiles(layer_step *st, size_t open) {
    size_t at_once = PACKET / st->layer->lanes, width = st->layer->width;
    for (size_t i = 0; i < open; i += at_once) {
        const float *recurrent_sums = st->recurrent_sums + i * width;
        size_t count = open - i < at_once ? open - i : at_once;
        if (st->layer->places[st->open[i]].count == PACKET)
            update_full_tile(st, st->open[i], recurrent_sums);
        else update_small_tiles(st, st->open + i, count, recurrent_sums);
    }
}
