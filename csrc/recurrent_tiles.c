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
                              int count) {
    const struct recurrent *layer = st->layer;
    layer_stream *stale[TOGETHER];
    float *sum[TOGETHER];
    int stale_count = 0;
    for (int i = 0; i < count; i++) {
        stale[stale_count] = streams[i];
        sum[stale_count] = streams[i]->input_sums + tile * layer->width;
        stale_count += !make_current(streams[i], tile);
    }
    if (!stale_count) return;
    if (st->projections) { /* a chunk of one stream */
        size_t row = stale[0]->s->frame * layer->tiles + tile;
        const float *products = st->projections + row * layer->width;
        st->m->k->add(sum[0], products, tile_biases(st, tile), layer->width);
    } else {
        multiply_tile(st, stale, sum, tile, INPUT_PART, stale_count);
    }
}

/* Odd frames of a chunk go backwards: the weights that were read last are still in the cache. */
void surnn_multiply_tiles(layer_step *st) {
    int backwards = st->count == 1 && st->stream[0].s->frame % 2, count;
    for (size_t k = 0; k < st->open_count; k += (size_t)count) {
        size_t first = backwards ? st->open_count - 1 - k : k;
        uint32_t tile = tile_of(st->open[first]);
        layer_stream *streams[TOGETHER];
        float *sum[TOGETHER];
        for (count = 0; count < st->count && first + (size_t)count < st->open_count; count++) {
            size_t i = first + (size_t)count;
            if (tile_of(st->open[i]) != tile) break;
            streams[count] = stream_of(st, st->open[i]);
            sum[count] = st->recurrent_sums + i * st->layer->width;
        }
        update_input_sums(st, streams, tile, count);
        multiply_tile(st, streams, sum, tile, RECURRENT_PART, count);
    }
}

/* A tile with as many units as a packet: in place. */
static void update_full_tile(const layer_step *st, const layer_stream *stream, size_t tile,
                             const float *recurrent_sums) {
    const struct recurrent *layer = st->layer;
    const float *input_sums = stream->input_sums + tile * layer->width;
    const float *unit = tile_biases(st, tile) + layer->width;
    size_t first = layer->places[tile].first;
    packet p; /* the cell does not read the rest of it */
    for (size_t i = 0; i < layer->products; i++)
        p.x[i] = input_sums + i * PACKET, p.h[i] = recurrent_sums + i * PACKET;
    for (size_t i = 0; i < layer->parameters; i++) p.unit[i] = unit + i * PACKET;
    for (size_t i = 0; i < layer->components; i++)
        p.state[i] = state_component(st, stream, i) + first;
    update_packet(st, &p);
}

/* Tiles with fewer units than a packet, as many as fit into one: copied there and back. */
static void update_small_tiles(layer_step *st, const uint32_t *open, size_t count,
                               const float *recurrent_sums) {
    const struct recurrent *layer = st->layer;
    size_t lanes = layer->lanes, lane_bytes = lanes * 4;
    packet_memory memory;
    packet p = packet_of(&memory);
    size_t units = 0;
    for (size_t k = 0; k < count; k++) units += layer->places[tile_of(open[k])].count;
    if (units < PACKET) memset(&memory, 0, sizeof memory); /* lanes without a unit */
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes, recurrent_sums += layer->width) {
        const layer_stream *stream = stream_of(st, open[k]);
        size_t tile = tile_of(open[k]);
        const float *input_sums = stream->input_sums + tile * layer->width;
        const float *unit = tile_biases(st, tile) + layer->width;
        const tile_place place = layer->places[tile];
        for (size_t i = 0; i < layer->products; i++) {
            memcpy(memory.x[i] + lane, input_sums + i * lanes, lane_bytes);
            memcpy(memory.h[i] + lane, recurrent_sums + i * lanes, lane_bytes);
        }
        for (size_t i = 0; i < layer->parameters; i++)
            memcpy(memory.unit[i] + lane, unit + i * lanes, lane_bytes);
        for (size_t i = 0; i < layer->components; i++)
            memcpy(memory.state[i] + lane, state_component(st, stream, i) + place.first,
                   place.count * 4);
    }
    update_packet(st, &p);
    for (size_t k = 0, lane = 0; k < count; k++, lane += lanes) {
        const tile_place place = layer->places[tile_of(open[k])];
        for (size_t i = 0; i < layer->components; i++)
            memcpy(state_component(st, stream_of(st, open[k]), i) + place.first,
                   memory.state[i] + lane, place.count * 4);
    }
}

void surnn_update_tiles(layer_step *st) {
    size_t at_once = PACKET / st->layer->lanes, open = st->open_count;
    for (size_t i = 0; i < open; i += at_once) {
        const float *recurrent_sums = st->recurrent_sums + i * st->layer->width;
        size_t count = open - i < at_once ? open - i : at_once, tile = tile_of(st->open[i]);
        if (st->layer->places[tile].count == PACKET)
            update_full_tile(st, stream_of(st, st->open[i]), tile, recurrent_sums);
        else update_small_tiles(st, st->open + i, count, recurrent_sums);
    }
}
