/* Recurrent layers whose tiles are 8 or 16 units side by side. */
#include "recurrent.h"

/* sum[i][S][lanes]: one part's products of a tile, for each of `count` streams; the input part with
 * biases. */
static void multiply_tile(const layer_step *st, layer_stream *const *streams, float *const *sum,
                          size_t tile, int part, int count) {
    const struct recurrent *layer = st->layer;
    const kernels *k = st->m->k;
    size_t n = input_count(st, part);
    const tile_place *place = &layer->places[tile];
    int products = (int)layer->products, lanes = (int)layer->lanes;
    const float *biases = part == INPUT_PART ? tile_biases(st, tile) : NULL;
    for (int i = 0; i < count; i++) streams[i]->multiplied[part] += place->count;
    if (is_int8(layer->weight_type)) {
        const int8_weights w = int8_tile(st, tile, part);
        const quantised_vector *x[TOGETHER];
        for (int i = 0; i < count; i++) x[i] = quantised_input(st, streams[i], part, place->head);
        k->tiles8(sum, &w, x, biases, round_up(n, 4), products, lanes, count);
        return;
    }
    const float *w = (const float *)(const void *)tile_weights(st, tile, part), *x[TOGETHER];
    for (int i = 0; i < count; i++) x[i] = input_of(st, streams[i], part, place->head);
    k->tiles(sum, w, x, n, products, lanes, count);
    for (int i = 0; biases && i < count; i++) k->add(sum[i], sum[i], biases, layer->width);
}

/* Brings the streams' input_sums of a tile up to date. */
static void update_input_sums(const layer_step *st, layer_stream *const *streams, size_t tile,
                              size_t place, int count) {
    layer_stream *stale[TOGETHER];
    float *sum[TOGETHER];
    int stale_count = 0;
    for (int i = 0; i < count; i++) {
        stale[stale_count] = streams[i];
        sum[stale_count] = input_sums_of(st, streams[i], tile, place + (size_t)i);
        stale_count += !make_current(streams[i], tile);
    }
    if (!stale_count) return;
    if (st->projections) { /* a chunk of one stream */
        size_t row = stale[0]->s->frame * st->layer->tiles + tile;
        const float *products = st->projections + row * st->layer->width;
        st->m->k->add(sum[0], products, tile_biases(st, tile), st->layer->width);
    } else {
        multiply_tile(st, stale, sum, tile, INPUT_PART, stale_count);
    }
}

/* All products of the open tiles first .. first + count - 1. `stream_count` is a constant for one stream, so
 * that compilers leave the loops over streams out. */
static inline void multiply_in_streams(layer_step *st, size_t first, size_t count, int backwards,
                                       const int stream_count) {
    int same;
    for (size_t k = 0; k < count; k += (size_t)same) {
        size_t place = backwards ? count - 1 - k : k;
        const uint32_t *open = st->open + first + place;
        uint32_t tile = tile_of(open[0]);
        layer_stream *streams[TOGETHER];
        float *sum[TOGETHER];
        for (same = 0; same < stream_count && k + (size_t)same < count; same++) {
            if (tile_of(open[same]) != tile) break;
            streams[same] = stream_of(st, open[same]);
            sum[same] = st->recurrent_sums + (place + (size_t)same) * st->layer->width;
        }
        update_input_sums(st, streams, tile, place, same);
        multiply_tile(st, streams, sum, tile, RECURRENT_PART, same);
    }
}

static void multiply_tiles(layer_step *st, size_t first, size_t count, int backwards) {
    if (st->count == 1) multiply_in_streams(st, first, count, backwards, 1);
    else multiply_in_streams(st, first, count, 0, st->count);
}

/* Compilers make a few instructions of a copy whose size they know. */
static void copy_units(float *to, const float *from, size_t count) {
    if (count == PACKET) memcpy(to, from, PACKET * 4);
    else memcpy(to, from, count * 4);
}

/* Where the next state of an open tile goes. */
static float *next_of(layer_step *st, size_t open, size_t component) {
    const struct recurrent *layer = st->layer;
    const tile_place *place = &layer->places[tile_of(st->open[open])];
    if (layer->in_place)
        return state_component(st, stream_of(st, st->open[open]), component) + place->first;
    return st->next + (open * layer->components + component) * layer->lanes;
}

/* A tile of as many units as a packet. */
static void update_full_tile(layer_step *st, size_t open, size_t place) {
    const struct recurrent *layer = st->layer;
    const layer_stream *stream = stream_of(st, st->open[open]);
    size_t tile = tile_of(st->open[open]);
    const float *input_sums = input_sums_of(st, stream, tile, place);
    const float *recurrent_sums = st->recurrent_sums + place * layer->width;
    const float *unit = tile_biases(st, tile) + layer->width;
    packet p; /* the cell does not read the rest of it */
    for (size_t i = 0; i < layer->products; i++)
        p.x[i] = input_sums + i * PACKET, p.h[i] = recurrent_sums + i * PACKET;
    for (size_t i = 0; i < layer->parameters; i++) p.unit[i] = unit + i * PACKET;
    for (size_t i = 0; i < layer->components; i++) {
        p.state[i] = state_component(st, stream, i) + layer->places[tile].first;
        if (layer->in_place) continue;
        copy_units(next_of(st, open, i), p.state[i], PACKET);
        p.state[i] = next_of(st, open, i);
    }
    update_packet(st, &p);
}

/* Tiles with fewer units than a packet, as many as fit into one: copied there and back. */
static void update_small_tiles(layer_step *st, size_t open, size_t place, size_t count) {
    const struct recurrent *layer = st->layer;
    size_t lanes = layer->lanes, lane_bytes = lanes * 4;
    packet_memory memory;
    packet p = packet_of(&memory);
    size_t units = 0;
    for (size_t k = 0; k < count; k++) units += layer->places[tile_of(st->open[open + k])].count;
    if (units < PACKET) memset(&memory, 0, sizeof memory); /* lanes without a unit */
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes) {
        const layer_stream *stream = stream_of(st, st->open[open + k]);
        size_t tile = tile_of(st->open[open + k]);
        const float *input_sums = input_sums_of(st, stream, tile, place + k);
        const float *recurrent_sums = st->recurrent_sums + (place + k) * layer->width;
        const float *unit = tile_biases(st, tile) + layer->width;
        for (size_t i = 0; i < layer->products; i++) {
            memcpy(memory.x[i] + lane, input_sums + i * lanes, lane_bytes);
            memcpy(memory.h[i] + lane, recurrent_sums + i * lanes, lane_bytes);
        }
        for (size_t i = 0; i < layer->parameters; i++)
            memcpy(memory.unit[i] + lane, unit + i * lanes, lane_bytes);
        for (size_t i = 0; i < layer->components; i++)
            copy_units(memory.state[i] + lane, state_component(st, stream, i) + layer->places[tile].first,
                       layer->places[tile].count);
    }
    update_packet(st, &p);
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes)
        for (size_t i = 0; i < layer->components; i++)
            copy_units(next_of(st, open + k, i), memory.state[i] + lane,
                       layer->places[tile_of(st->open[open + k])].count);
}

static void store_next(layer_step *st) {
    for (size_t k = 0; k < st->open_count; k++) {
        const tile_place *place = &st->layer->places[tile_of(st->open[k])];
        for (size_t i = 0; i < st->layer->components; i++)
            copy_units(state_component(st, stream_of(st, st->open[k]), i) + place->first,
                       next_of(st, k, i), place->count);
    }
}

/* Odd frames of a chunk go backwards: the weights that were read last are still in the cache. */
void surnn_update_tiles(layer_step *st) {
    const struct recurrent *layer = st->layer;
    int backwards = layer->in_place && st->count == 1 && st->stream[0].s->frame % 2;
    size_t in_packet = PACKET / layer->lanes, open = st->open_count;
    for (size_t first = 0, count; first < open; first += count) {
        count = layer->in_place || open - first < in_packet ? open - first : in_packet;
        multiply_tiles(st, first, count, backwards);
        for (size_t i = 0; i < count; i += in_packet)
            if (layer->places[tile_of(st->open[first + i])].count == PACKET)
                update_full_tile(st, first + i, i);
            else update_small_tiles(st, first + i, i, count - i < in_packet ? count - i : in_packet);
    }
    if (!layer->in_place) store_next(st);
}
