/* Recurrent layers whose tiles are 8 or 16 units side by side. */
#include "recurrent.h"

void surnn_multiply_tile(layer_step *st, float *sum, size_t tile, int part) {
    const struct recurrent *layer = st->layer;
    size_t n = input_count(st, part);
    uint32_t head = layer->places[tile].head;
    const uint8_t *w = tile_weights(st, tile, part);
    int products = (int)layer->products, lanes = (int)layer->lanes;
    count_macs(st, layer->places[tile].count, n);
    if (!is_int8(layer->weight_type)) {
        const float *x = input_of(st, part, head);
        st->m->k->tile(sum, (const float *)(const void *)w, x, n, products, lanes);
        return;
    }
    int32_t whole[MAX_PRODUCTS * PACKET];
    size_t rows = tile_rows(st, tile, part);
    const float *scales = layer->scales + rows;
    float scale;
    quantised_vector v = quantised_input(st, part, head, &scale);
    st->m->k->tile8(whole, (const int8_t *)w, v, layer->row_sums + rows, round_up(n, 4), products,
                    lanes);
    st->m->k->dequantise(sum, whole, scales, scale, layer->width);
}

void surnn_add_biases(layer_step *st, const float *products, size_t tile) {
    size_t width = st->layer->width;
    st->m->k->add(st->input_sums + tile * width, products, tile_biases(st, tile), width);
}

/* Brings a tile's part of input_sums up to date. */
static void update_input_sums(layer_step *st, size_t tile) {
    const struct recurrent *layer = st->layer;
    float *sum = st->input_sums + tile * layer->width;
    if (make_current(st, tile)) return;
    if (st->projections) {
        size_t index = (st->s->frame * layer->tiles + tile) * layer->width;
        surnn_add_biases(st, st->projections + index, tile);
    } else {
        surnn_multiply_tile(st, sum, tile, INPUT_PART);
        surnn_add_biases(st, sum, tile);
    }
}

/* Odd frames of a chunk go backwards: the weights that were read last are still in the cache. */
void surnn_multiply_tiles(layer_step *st, size_t open) {
    for (size_t k = 0; k < open; k++) {
        size_t i = st->s->frame % 2 ? open - 1 - k : k;
        update_input_sums(st, st->open[i]);
        surnn_multiply_tile(st, st->recurrent_sums + i * st->layer->width, st->open[i], RECURRENT_PART);
    }
}

/* A tile with as many units as a packet: in place. */
static void update_full_tile(layer_step *st, size_t tile, const float *recurrent_sums) {
    const struct recurrent *layer = st->layer;
    const float *input_sums = st->input_sums + tile * layer->width;
    const float *unit = tile_biases(st, tile) + layer->width;
    size_t first = layer->places[tile].first;
    packet p;
    memset(&p, 0, sizeof p);
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
