/* Decoding of recurrent layers, and the layout of their memory. */
#include "read.h"

static const struct cell_shape {
    uint32_t products, parameters, components;
} cell_shapes[CELL_COUNT] = {
    {1, 0, 1}, /* tanh RNN */
    {1, 0, 1}, /* relu RNN */
    {3, 1, 1}, /* GRU */
    {4, 0, 2}, /* LSTM */
    {1, 1, 2}, /* LIF */
    {1, 2, 3}, /* ALIF */
};

/* Tiles cover all units in order; each has one gate and one head. */
static int check_tiles(const struct recurrent *layer, uint32_t gates) {
    const tile_place *places = layer->places;
    const uint32_t *first = layer->first_tile;
    uint32_t units = (uint32_t)layer->units, tiles = (uint32_t)layer->tiles;
    uint32_t head_size = (uint32_t)layer->head_size, covered = 0;
    for (uint32_t i = 0; i < tiles; i++) {
        const tile_place place = places[i];
        if (place.first != covered || !place.count || place.count > layer->lanes) return 0;
        if (place.count > units - covered || place.gate >= gates) return 0;
        covered += place.count;
        if (place.head != place.first / head_size || place.head != (covered - 1) / head_size)
            return 0;
    }
    if (covered != units || first[0] != 0 || first[gates] != tiles) return 0;
    for (uint32_t g = 0; g < gates; g++) {
        if (first[g] > first[g + 1] || first[g + 1] > tiles) return 0;
        for (uint32_t i = first[g]; i < first[g + 1]; i++)
            if (places[i].gate != g) return 0;
    }
    return 1;
}

static void lay_out_state(operation *op) {
    struct recurrent *layer = &op->as.recurrent;
    uint64_t others = (uint64_t)(layer->components - 1) * layer->units * 4, end = 0;
    layer->state.other_components = end;
    end += round_up(others, ALIGNMENT);
    op->state_size = end;
    if (!SURNN_KEEP_SUMS) return;
    layer->state.input_sums = end;
    end += round_up((uint64_t)layer->tiles * layer->width * 4, ALIGNMENT);
    layer->state.current = end;
    op->state_size = end + round_up(8 + ((uint64_t)layer->tiles + 63) / 64 * 8, ALIGNMENT);
}

static void lay_out_scratch(operation *op) {
    struct recurrent *layer = &op->as.recurrent;
    recurrent_scratch *scratch = &layer->scratch;
    uint64_t heads = layer->heads, tiles = layer->tiles, end = 0;
    uint64_t sums = round_up((layer->in_place ? tiles : PACKET / layer->lanes) * layer->width * 4, ALIGNMENT);
    end += sums;
    scratch->input_sums = end;
    if (!SURNN_KEEP_SUMS) end += sums;
    scratch->next = end;
    if (!layer->in_place) end += round_up(tiles * layer->lanes, PACKET) * layer->components * 4;
    scratch->open = end;
    end = round_up(end + (tiles + PACKET) * 4, ALIGNMENT);
    if (is_int8(layer->weight_type)) {
        scratch->quantised = end;
        end = round_up(end + (1 + quantised_heads(layer)) * sizeof(quantised_vector), ALIGNMENT);
        scratch->numbers = end;
        scratch->numbers_size = quantised_size(op->n) + quantised_heads(layer) * quantised_size(layer->head_size);
        end += scratch->numbers_size;
    }
    end = round_up(end, ALIGNMENT);
    op->shared_scratch_size = times(TOGETHER, end);
    if (is_int8(layer->weight_type) && layer->lanes == 1) {
        scratch->interleaved = TOGETHER * end;
        scratch->interleaved_size = 2 * PACKET * (round_up(op->n, 16) + heads * round_up(layer->head_size, 16));
        op->shared_scratch_size += GROUPS * ((1 + heads) * sizeof(interleaved_vectors) + scratch->interleaved_size);
    }
    if (layer->projects_chunks) {
        scratch->open_frames = end;
        end = round_up(end + (uint64_t)op->gates * 4, ALIGNMENT);
        scratch->projections = end;
        end += CHUNK * tiles * layer->width * 4;
    }
    op->scratch_size = end;
}

static int read_shape(const surnn_model *m, operation *op, const record *r) {
    struct recurrent *layer = &op->as.recurrent;
    uint32_t cell = r->number[0], units = r->number[1], heads = r->number[2], lanes = r->number[3];
    uint32_t weight_type = r->number[4], tiles = r->number[5], adapts = r->number[6];
    if (cell >= CELL_COUNT || !units || units != op->m || !heads || units % heads) return 0;
    if (op->in2 >= m->gate_set_count || !surnn_knows_weights(m, weight_type)) return 0;
    if (adapts && cell != CELL_ALIF) return 0;
    if ((lanes != 1 && lanes != 8 && lanes != 16) || !tiles || tiles > units) return 0;
    if (is_int8(weight_type) && (op->n > MAX_INT8_INPUTS || units > MAX_INT8_INPUTS)) return 0;
    op->gates = m->gate_sets[op->in2].size;
    if (!op->gates) return 0; /* no operation before this one writes them */
    const struct cell_shape shape = cell_shapes[cell];
    layer->cell = cell, layer->products = shape.products, layer->parameters = shape.parameters;
    layer->components = shape.components;
    layer->units = units, layer->heads = heads, layer->head_size = units / heads;
    layer->tiles = tiles, layer->lanes = lanes, layer->width = (size_t)lanes * shape.products;
    layer->weight_type = weight_type, layer->adapts_while_closed = adapts;
    /* 8-bit weights, and those of single units, are so few that they are still in the cache for the
     * next frame of a chunk. */
    layer->in_place = SURNN_KEEP_SUMS && lanes > 1;
    layer->projects_chunks =
        SURNN_KEEP_SUMS && CHUNK > 1 && weight_type == WEIGHTS_FLOAT32 && lanes > 1;
    layer->threshold = float_of(r->number[7]), layer->beta = float_of(r->number[8]);
    layer->input_bytes = surnn_tile_bytes(lanes, shape.products, weight_type, op->n);
    layer->recurrent_bytes = surnn_tile_bytes(lanes, shape.products, weight_type, units / heads);
    return 1;
}

static int read_arrays(const surnn_model *m, operation *op, const record *r) {
    struct recurrent *layer = &op->as.recurrent;
    uint64_t tiles = layer->tiles, tile_bytes = layer->input_bytes + layer->recurrent_bytes;
    uint64_t unit_numbers = layer->products + layer->parameters;
    layer->weights = surnn_array(m, r->array[0], times(tiles, tile_bytes), 1);
    layer->biases = surnn_array(m, r->array[1], times(tiles, unit_numbers * layer->lanes), 4);
    layer->places = surnn_array(m, r->array[2], tiles, sizeof(tile_place));
    layer->first_tile = surnn_array(m, r->array[3], (uint64_t)op->gates + 1, 4);
    if (!layer->weights || !layer->biases || !layer->places || !layer->first_tile) return 0;
    if (is_int8(layer->weight_type)) {
        layer->scales = surnn_array(m, r->array[4], times(tiles, 2 * layer->width), 4);
        layer->row_sums = surnn_array(m, r->array[5], times(tiles, 2 * layer->width), 4);
        if (!layer->scales || !layer->row_sums) return 0;
    }
    return 1;
}

int surnn_read_recurrent(const surnn_model *m, operation *op, const record *r) {
    const struct recurrent *layer = &op->as.recurrent;
    if (!read_shape(m, op, r) || !read_arrays(m, op, r) || !check_tiles(layer, op->gates)) return 0;
    op->macs = (uint64_t)layer->units * layer->products * ((uint64_t)op->n + layer->head_size);
    lay_out_state(op);
    lay_out_scratch(op);
    return 1;
}
