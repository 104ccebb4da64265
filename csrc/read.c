/* Operations out of a file, trusting nothing in it. */
#include "read.h"

const cell_shape surnn_cell_shapes[CELLS] = {
    {1, 0, 1}, {1, 0, 1}, {3, 1, 1}, {4, 0, 2}, {1, 1, 2}, {1, 2, 3},
};

const void *surnn_array(const surnn_model *m, uint64_t offset, uint64_t count, uint64_t each) {
    uint64_t size = times(count, each);
    if (offset < HEADER_SIZE || offset % ALIGNMENT || offset > m->size) return NULL;
    if (size > m->size - offset) return NULL;
    return m->bytes + offset;
}

void surnn_tile_sizes(uint32_t lanes, uint32_t drives, uint32_t weights, uint32_t inputs,
                      uint32_t recurrent, uint64_t *input_bytes, uint64_t *recurrent_bytes) {
    uint64_t width = (uint64_t)lanes * drives;
    uint64_t pad = weights == WEIGHTS_FLOAT32 ? 1 : lanes == 1 ? 64 : 4;
    uint64_t each = weights == WEIGHTS_FLOAT32 ? 4 : 1;
    *input_bytes = round_up(inputs, pad) * width * each;
    *recurrent_bytes = round_up(recurrent, pad) * width * each;
}

static int check_tiles(const operation *op, uint32_t heads, uint32_t gates, uint32_t lanes) {
    const tile_place *tile = op->data[2];
    const uint32_t *first = op->data[3];
    uint32_t units = op->p[1], tiles = op->p[5], in_head = units / heads, reached = 0;
    for (uint32_t i = 0; i < tiles; i++) {
        if (tile[i].first != reached || !tile[i].count || tile[i].count > lanes) return 0;
        if (tile[i].count > units - reached || tile[i].gate >= gates) return 0;
        reached += tile[i].count;
        if (tile[i].head != tile[i].first / in_head || tile[i].head != (reached - 1) / in_head)
            return 0;
    }
    if (reached != units || first[0] != 0 || first[gates] != tiles) return 0;
    for (uint32_t g = 0; g < gates; g++) {
        if (first[g] > first[g + 1] || first[g + 1] > tiles) return 0;
        for (uint32_t i = first[g]; i < first[g + 1]; i++)
            if (tile[i].gate != g) return 0;
    }
    return 1;
}

uint64_t surnn_recurrent_state_size(const operation *op) {
    cell_shape shape = surnn_cell_shapes[op->p[0]];
    uint64_t rest = round_up((uint64_t)(shape.components - 1) * op->p[1] * 4, ALIGNMENT);
    uint64_t input = round_up((uint64_t)op->p[5] * shape.drives * op->p[3] * 4, ALIGNMENT);
    return rest + input + round_up((uint64_t)op->p[5] * 8, ALIGNMENT);
}

recurrent_state surnn_recurrent_state(const operation *op, surnn_stream *stream) {
    cell_shape shape = surnn_cell_shapes[op->p[0]];
    uint8_t *own = at(stream, op->state);
    recurrent_state s;
    s.rest = (float *)(void *)own;
    own += round_up((uint64_t)(shape.components - 1) * op->p[1] * 4, ALIGNMENT);
    s.input = (float *)(void *)own;
    own += round_up((uint64_t)op->p[5] * shape.drives * op->p[3] * 4, ALIGNMENT);
    s.input_at = (uint64_t *)(void *)own;
    return s;
}

static int read_recurrent(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own,
                          uint64_t *scratch) {
    uint32_t cell = op->p[0], units = op->p[1], heads = op->p[2], lanes = op->p[3];
    uint32_t weights = op->p[4], tiles = op->p[5], gates;
    uint64_t inputs, recurrent, width;
    if (cell >= CELLS || !units || units != op->m || !heads || units % heads) return 0;
    if (op->in2 >= m->gates || weights > WEIGHTS_INT8 || (op->p[6] && cell != CELL_ALIF)) return 0;
    if ((lanes != 1 && lanes != 8 && lanes != 16) || !tiles || tiles > units) return 0;
    if (weights == WEIGHTS_INT8 && (op->n > MOST_QUANTISED || units > MOST_QUANTISED)) return 0;
    gates = m->gate[op->in2].size;
    if (!gates) return 0; /* no operation before this one makes them */
    cell_shape shape = surnn_cell_shapes[cell];
    surnn_tile_sizes(lanes, shape.drives, weights, op->n, units / heads, &inputs, &recurrent);
    width = (uint64_t)lanes * shape.drives;
    op->data[0] = surnn_array(m, offset[0], times(tiles, inputs + recurrent), 1);
    op->data[1] = surnn_array(m, offset[1], times(tiles, (shape.drives + shape.parameters) * lanes), 4);
    op->data[2] = surnn_array(m, offset[2], tiles, sizeof(tile_place));
    op->data[3] = surnn_array(m, offset[3], (uint64_t)gates + 1, 4);
    if (!op->data[0] || !op->data[1] || !op->data[2] || !op->data[3]) return 0;
    if (weights == WEIGHTS_INT8) {
        op->data[4] = surnn_array(m, offset[4], times(tiles, 2 * width), 4);
        op->data[5] = surnn_array(m, offset[5], times(tiles, 2 * width), 4);
        if (!op->data[4] || !op->data[5]) return 0;
    }
    if (!check_tiles(op, heads, gates, lanes)) return 0;
    op->macs = (uint64_t)units * shape.drives * ((uint64_t)op->n + units / heads);
    *own = surnn_recurrent_state_size(op);
    *scratch = surnn_recurrent_scratch(m, op).size;
    return 1;
}

static int read_linear(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own,
                       uint64_t *scratch) {
    uint32_t groups = op->p[0], weights = op->p[1];
    if (op->p[2]) { /* changes are added */
        if (op->p[2] > 1 || groups != 1 || weights != WEIGHTS_FLOAT32) return 0;
        *own = round_up(8 + (uint64_t)op->n * 4, ALIGNMENT);
        *scratch = (uint64_t)op->n * 8;
    }
    if (!groups || op->n % groups || op->m % groups || weights > WEIGHTS_INT8) return 0;
    uint32_t inputs = op->n / groups, outputs = op->m / groups;
    uint64_t tiles = (uint64_t)groups * ((outputs + 15) / 16), bytes, none;
    surnn_tile_sizes(16, 1, weights, inputs, 0, &bytes, &none);
    op->data[0] = surnn_array(m, offset[0], times(tiles, bytes), 1);
    if (!op->data[0]) return 0;
    if (offset[1] && !(op->data[1] = surnn_array(m, offset[1], op->m, 4))) return 0;
    if (weights == WEIGHTS_INT8) {
        if (inputs > MOST_QUANTISED) return 0;
        op->data[2] = surnn_array(m, offset[2], times(tiles, 16), 4);
        op->data[3] = surnn_array(m, offset[3], times(tiles, 16), 4);
        if (!op->data[2] || !op->data[3]) return 0;
        *scratch = 4 * round_up(inputs, 64);
    }
    op->macs = (uint64_t)op->m * inputs;
    return 1;
}

static int read_convolve(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own) {
    uint64_t taps = op->p[0];
    if (!taps || op->n != op->m) return 0;
    op->data[0] = surnn_array(m, offset[0], times(taps, op->m), 4);
    op->macs = times(taps, op->m);
    *own = plus(8, times(times(taps - 1, op->n), 4));
    return op->data[0] != NULL;
}

static int read_rhythm(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own,
                       uint64_t *scratch) {
    uint32_t gates = op->p[0], count = op->p[2], known = op->p[3], bins = op->p[4];
    uint64_t wide = round_up(gates, 8);
    int each = op->p[6] != 0;
    if (!count || count > MOST_NUMBERS || bins > MOST_NUMBERS) return 0;
    if ((bins && !op->p[5]) || (each && !bins)) return 0;
    op->data[0] = surnn_array(m, offset[0], count, 8);
    op->data[1] = each ? surnn_array(m, offset[1], times(gates, count), 8)
                       : surnn_array(m, offset[1], times(times(2, count), wide), 8);
    op->data[2] = surnn_array(m, offset[2], wide, 8);
    if (!op->data[0] || !op->data[1] || !op->data[2]) return 0;
    if (known && !(op->data[3] = surnn_array(m, offset[3], times(known, words_of(gates)), 8))) return 0;
    if (!bins) {
        op->data[4] = surnn_array(m, offset[4], times(2 * BLOCK, count), 8);
        if (!op->data[4]) return 0;
    } else {
        op->data[5] = surnn_array(m, offset[5], times(each ? gates : 1, (uint64_t)bins + 1), 8);
        if (!op->data[5]) return 0;
    }
    if (each && !(op->data[6] = surnn_array(m, offset[6], times(gates, count), 8))) return 0;
    *own = round_up(16 + (uint64_t)BLOCK * words_of(gates) * 8, ALIGNMENT);
    *scratch = plus(times(times(2 * BLOCK, count), 8), times(times(BLOCK, wide), 8)) + ALIGNMENT;
    return 1;
}

static int read_cycles(surnn_model *m, operation *op, const uint64_t *offset) {
    size_t gates = op->p[0];
    const uint32_t *period = op->data[0] = surnn_array(m, offset[0], times(3, gates), 4);
    if (!period) return 0;
    const uint32_t *open_steps = period + gates, *shift = open_steps + gates;
    for (size_t g = 0; g < gates; g++)
        if (shift[g] >= period[g] || open_steps[g] > period[g]) return 0; /* so no period is 0 */
    return 1;
}

/* Gates that an operation makes: their number is known from here on. */
static int makes_gates(surnn_model *m, operation *op) {
    uint32_t gates = op->p[0];
    if (op->out >= m->gates || !gates || gates > MOST_NUMBERS || op->p[1] > gates) return 0;
    if (m->gate[op->out].size) return 0; /* made twice */
    m->gate[op->out].size = gates;
    return 1;
}

/* Vectors are written by one operation, before others read them; the input is there from the start.
 * Offsets are not given out yet: until then they tell which vectors have been written. */
enum { WRITTEN = 1 };

int surnn_is_written(const surnn_model *m, uint32_t buffer) {
    return buffer < m->buffers && (buffer == 0 || m->buffer[buffer].offset == WRITTEN);
}

int surnn_read_operation(surnn_model *m, operation *op, const uint8_t *record, uint64_t *own,
                         uint64_t *scratch) {
    uint64_t offset[8];
    memset(op, 0, sizeof *op);
    op->kind = u32_at(record), op->in = u32_at(record + 4);
    op->in2 = u32_at(record + 8), op->out = u32_at(record + 12);
    for (int i = 0; i < 12; i++) op->p[i] = u32_at(record + 16 + 4 * i);
    for (int i = 0; i < 8; i++) offset[i] = u64_at(record + 64 + 8 * i);
    if (!surnn_is_written(m, op->in)) return 0;
    op->n = m->buffer[op->in].size;
    if (op->kind == OP_ADD || op->kind == GATE_ABOVE) {
        if (!surnn_is_written(m, op->in2)) return 0;
        op->n2 = m->buffer[op->in2].size;
    }
    if (is_gate(op->kind)) {
        if (!makes_gates(m, op)) return 0;
    } else {
        if (op->out >= m->buffers || surnn_is_written(m, op->out)) return 0;
        op->m = m->buffer[op->out].size;
        m->buffer[op->out].offset = WRITTEN;
    }
    switch (op->kind) {
    case OP_EMBED:
        op->data[0] = surnn_array(m, offset[0], times(m->input_size, op->m), 4);
        return m->takes_tokens && op->in == 0 && op->data[0] != NULL;
    case OP_LINEAR: return read_linear(m, op, offset, own, scratch);
    case OP_NORM:
        op->data[0] = surnn_array(m, offset[0], op->m, 4);
        if (offset[1] && !(op->data[1] = surnn_array(m, offset[1], op->m, 4))) return 0;
        return op->n == op->m && op->data[0] != NULL;
    case OP_AFFINE:
        op->data[0] = surnn_array(m, offset[0], op->m, 4);
        op->data[1] = surnn_array(m, offset[1], op->m, 4);
        return op->n == op->m && op->data[0] && op->data[1];
    case OP_GELU:
    case OP_CLEAN: return op->n == op->m;
    case OP_GLU: return op->n == 2 * (uint64_t)op->m && op->p[0] < GLUS;
    case OP_ADD: return op->n == op->m && op->n2 == op->m;
    case OP_MEAN: *own = round_up((uint64_t)op->n * 8 + 8, ALIGNMENT); return op->n == op->m;
    case OP_LEAK:
        op->data[0] = surnn_array(m, offset[0], op->m, 4);
        *own = round_up((uint64_t)op->n * 4, ALIGNMENT);
        return op->n == op->m && op->data[0] != NULL;
    case GATE_PERIODIC:
        op->data[0] = surnn_array(m, offset[0], times(op->p[2], words_of(op->p[0])), 8);
        return op->p[2] && op->data[0] != NULL;
    case GATE_RHYTHM: return read_rhythm(m, op, offset, own, scratch);
    case GATE_HASH: op->data[0] = surnn_array(m, offset[0], 2, 8); return op->data[0] != NULL;
    case GATE_ABOVE: return op->n == op->p[0];
    case GATE_LEVEL: return 1;
    case GATE_CYCLES: return read_cycles(m, op, offset);
    case OP_RECURRENT:
        m->layers++, m->units += op->m;
        return read_recurrent(m, op, offset, own, scratch);
    case OP_CONVOLVE: return read_convolve(m, op, offset, own);
    default: return 0;
    }
}
