/* Decoding of operations: the parts that all share, and operations that compute vectors. */
#include "read.h"

const void *surnn_array(const surnn_model *m, uint64_t offset, uint64_t count, uint64_t element_size) {
    uint64_t size = times(count, element_size);
    if (offset < HEADER_SIZE || offset % ALIGNMENT || offset > m->size) return NULL;
    if (size > m->size - offset) return NULL;
    return m->bytes + offset;
}

int surnn_knows_weights(const surnn_model *m, uint32_t weight_type) {
    return !weight_type || (SURNN_INT8 && weight_type <= (m->version < 2 ? WEIGHTS_INT8 : WEIGHTS_INT8_BY_INT8));
}

uint64_t surnn_tile_bytes(uint32_t lanes, uint32_t products, uint32_t weight_type, uint32_t inputs) {
    uint64_t width = (uint64_t)lanes * products;
    if (!is_int8(weight_type)) return inputs * width * 4;
    return round_up(inputs, lanes == 1 ? 64 : 4) * width;
}

static int read_embed(const surnn_model *m, operation *op, const record *r) {
    op->as.embed.table = surnn_array(m, r->array[0], times(m->input_size, op->m), 4);
    return m->takes_tokens && op->in == 0 && op->as.embed.table;
}

static int read_linear(const surnn_model *m, operation *op, const record *r) {
    struct linear *linear = &op->as.linear;
    uint32_t groups = r->number[0], weight_type = r->number[1], incremental = r->number[2];
    if (!groups || op->n % groups || op->m % groups || !surnn_knows_weights(m, weight_type)) return 0;
    if (incremental && (incremental > 1 || groups != 1 || weight_type != WEIGHTS_FLOAT32)) return 0;
    uint32_t inputs = op->n / groups, outputs = op->m / groups;
    uint32_t tiles = (outputs + LINEAR_LANES - 1) / LINEAR_LANES;
    uint64_t all_tiles = (uint64_t)groups * tiles;
    linear->groups = groups, linear->inputs = inputs, linear->outputs = outputs;
    linear->tiles = tiles, linear->weight_type = weight_type, linear->incremental = incremental;
    linear->tile_bytes = surnn_tile_bytes(LINEAR_LANES, 1, weight_type, inputs);
    linear->weights = surnn_array(m, r->array[0], times(all_tiles, linear->tile_bytes), 1);
    if (!linear->weights) return 0;
    if (r->array[1] && !(linear->bias = surnn_array(m, r->array[1], op->m, 4))) return 0;
    if (is_int8(weight_type)) {
        if (inputs > MAX_INT8_INPUTS) return 0;
        linear->scales = surnn_array(m, r->array[2], times(all_tiles, LINEAR_LANES), 4);
        linear->row_sums = surnn_array(m, r->array[3], times(all_tiles, LINEAR_LANES), 4);
        if (!linear->scales || !linear->row_sums) return 0;
        op->scratch_size = quantised_size(inputs);
        op->shared_scratch_size = TOGETHER * op->scratch_size;
    }
    if (incremental) {
        op->state_size = round_up(8 + (uint64_t)op->n * 4, ALIGNMENT);
        op->scratch_size = (uint64_t)op->n * 8;
    }
    op->macs = (uint64_t)op->m * inputs;
    return 1;
}

static int read_norm(const surnn_model *m, operation *op, const record *r) {
    struct norm *norm = &op->as.norm;
    norm->rms = r->number[0] != 0;
    norm->epsilon = float_of(r->number[1]);
    norm->weight = surnn_array(m, r->array[0], op->m, 4);
    if (r->array[1] && !(norm->bias = surnn_array(m, r->array[1], op->m, 4))) return 0;
    return op->n == op->m && norm->weight;
}

static int read_affine(const surnn_model *m, operation *op, const record *r) {
    op->as.affine.scale = surnn_array(m, r->array[0], op->m, 4);
    op->as.affine.shift = surnn_array(m, r->array[1], op->m, 4);
    return op->n == op->m && op->as.affine.scale && op->as.affine.shift;
}

static int read_glu(operation *op, const record *r) {
    op->as.glu.activation = r->number[0];
    return op->n == 2 * (uint64_t)op->m && op->as.glu.activation < GLU_COUNT;
}

static int read_mean(operation *op) {
    op->state_size = round_up((uint64_t)op->n * 8 + 8, ALIGNMENT);
    return SURNN_MEAN && op->n == op->m;
}

static int read_leak(const surnn_model *m, operation *op, const record *r) {
    op->as.leak.decay = surnn_array(m, r->array[0], op->m, 4);
    op->state_size = round_up((uint64_t)op->n * 4, ALIGNMENT);
    return op->n == op->m && op->as.leak.decay;
}

static int read_convolve(const surnn_model *m, operation *op, const record *r) {
    uint64_t taps = r->number[0];
    if (!taps || op->n != op->m) return 0;
    op->as.convolve.taps = (size_t)taps;
    op->as.convolve.weights = surnn_array(m, r->array[0], times(taps, op->m), 4);
    op->macs = times(taps, op->m);
    op->state_size = plus(8, times(times(taps - 1, op->n), 4));
    return op->as.convolve.weights != NULL;
}

static int read_activate(operation *op, const record *r) {
    struct activate *activate = &op->as.activate;
    activate->function = r->number[0];
    activate->a = float_of(r->number[1]), activate->b = float_of(r->number[2]);
    return op->n == op->m && activate->function < (SURNN_ACTIVATIONS ? ACTIVATION_COUNT : ACTIVATION_SILU + 1);
}

static int read_part(operation *op, const record *r) {
    op->as.part.first = r->number[0];
    return op->m <= op->n && r->number[0] <= op->n - op->m;
}

static int read_window(operation *op, const record *r) {
    struct window *window = &op->as.window;
    uint64_t taps = r->number[0], dilation = r->number[1];
    uint32_t groups = r->number[2];
    if (!taps || !dilation || !groups || op->n % groups || op->m != times(taps, op->n)) return 0;
    window->taps = (size_t)taps, window->dilation = (size_t)dilation, window->groups = groups;
    op->state_size = plus(16, times(times(times(taps - 1, dilation), op->n), 4));
    return 1;
}

/* A vector or set of gates is written by one operation, before others read it. Vectors have no
 * offset yet: until they get one, the field marks those that are written. */
enum { WRITTEN = 1 };

int surnn_is_written(const surnn_model *m, uint32_t vector) {
    return vector < m->vector_count && (vector == 0 || m->vectors[vector].offset == WRITTEN);
}

static int read_inputs(const surnn_model *m, operation *op) {
    if (!surnn_is_written(m, op->in)) return 0;
    op->n = m->vectors[op->in].size;
    if (reads_two_vectors(op->kind) || op->kind == GATE_ABOVE) {
        if (!surnn_is_written(m, op->in2)) return 0;
        op->n2 = m->vectors[op->in2].size;
    }
    return 1;
}

static int read_output_vector(surnn_model *m, operation *op) {
    if (op->out >= m->vector_count || surnn_is_written(m, op->out)) return 0;
    op->m = m->vectors[op->out].size;
    m->vectors[op->out].offset = WRITTEN;
    return 1;
}

/* A set of gates has size 0 until an operation writes it. */
static int read_output_gates(surnn_model *m, operation *op, const record *r) {
    op->gates = r->number[0], op->always_open = r->number[1];
    if (!op->gates || op->gates > MAX_LENGTH || op->always_open > op->gates) return 0;
    if (op->out >= m->gate_set_count || m->gate_sets[op->out].size) return 0;
    m->gate_sets[op->out].size = op->gates;
    return 1;
}

static record read_record(const uint8_t *bytes) {
    record r;
    r.kind = u32_at(bytes), r.in = u32_at(bytes + 4);
    r.in2 = u32_at(bytes + 8), r.out = u32_at(bytes + 12);
    for (int i = 0; i < 12; i++) r.number[i] = u32_at(bytes + 16 + 4 * i);
    for (int i = 0; i < 8; i++) r.array[i] = u64_at(bytes + 64 + 8 * i);
    return r;
}

int surnn_read_operation(surnn_model *m, operation *op, const uint8_t *bytes) {
    const record r = read_record(bytes);
    memset(op, 0, sizeof *op);
    op->kind = r.kind, op->in = r.in, op->in2 = r.in2, op->out = r.out;
    if (!read_inputs(m, op)) return 0;
    if (is_gate(op->kind)) return read_output_gates(m, op, &r) && surnn_read_gate(m, op, &r);
    if (!read_output_vector(m, op)) return 0;
    switch (op->kind) {
    case OP_EMBED: return read_embed(m, op, &r);
    case OP_LINEAR: return read_linear(m, op, &r);
    case OP_NORM: return read_norm(m, op, &r);
    case OP_AFFINE: return read_affine(m, op, &r);
    case OP_GELU:
    case OP_CLEAN: return op->n == op->m;
    case OP_GLU: return read_glu(op, &r);
    case OP_ADD:
    case OP_MULTIPLY: return op->n == op->m && op->n2 == op->m;
    case OP_MEAN: return read_mean(op);
    case OP_LEAK: return read_leak(m, op, &r);
    case OP_CONVOLVE: return read_convolve(m, op, &r);
    case OP_ACTIVATE: return read_activate(op, &r);
    case OP_PART: return read_part(op, &r);
    case OP_WINDOW: return read_window(op, &r);
    case OP_SINUSOIDS: return surnn_read_sinusoids(m, op, &r);
    case OP_RECURRENT: m->layers++, m->units += op->m; return surnn_read_recurrent(m, op, &r);
    default: return 0;
    }
}
