/* Decoding of the operations that open and close gates. */
#include "phase.h"
#include "read.h"

static int read_periodic(const surnn_model *m, operation *op, const record *r) {
    struct periodic *periodic = &op->as.periodic;
    periodic->period = r->number[2];
    periodic->rows = surnn_array(m, r->array[0], times(periodic->period, words_of(op->gates)), 8);
    return periodic->period && periodic->rows;
}

/* omega, weights and bias of plain sinusoids, and the scratch memory of a row of sums. */
static int read_sums(const surnn_model *m, operation *op, const record *r, uint32_t gates) {
    struct rhythm *rhythm = &op->as.rhythm;
    uint32_t frequencies = r->number[2];
    uint64_t width = round_up(gates, 8);
    if (!frequencies || frequencies > MAX_LENGTH) return 0;
    rhythm->frequencies = frequencies, rhythm->width = (size_t)width;
    rhythm->omega = surnn_array(m, r->array[0], frequencies, 8);
    rhythm->bias = surnn_array(m, r->array[2], width, 8);
    op->scratch_size = (uint64_t)frequencies * 2 * 4; /* waves */
    return rhythm->omega && rhythm->bias;
}

static int read_plain_weights(const surnn_model *m, struct rhythm *rhythm, const record *r) {
    uint64_t count = times(times(2, rhythm->frequencies), rhythm->width);
    rhythm->weights = surnn_array(m, r->array[1], count, 8);
    return rhythm->weights != NULL;
}

/* The sums in float, if the file has them. */
static int read_slices(const surnn_model *m, struct rhythm *rhythm, const record *r, uint32_t gates) {
    uint64_t slices = ((uint64_t)gates + SLICE - 1) / SLICE, frequencies = rhythm->frequencies;
    uint64_t slice_size = plus(sizeof(struct slice), times(frequencies, 2 * SLICE * 4));
    uint64_t rotation_size = times(frequencies, 2 * HALF_BLOCK * 4);
    uint64_t size = plus(rotation_size, times(slices, slice_size));
    if (!r->array[7]) return 1;
    rhythm->rotations = surnn_array(m, r->array[7], size, 1);
    if (!rhythm->rotations) return 0;
    rhythm->slices = rhythm->rotations + (size_t)frequencies * 2 * HALF_BLOCK;
    return 1;
}

int surnn_read_sinusoids(const surnn_model *m, operation *op, const record *r) {
    struct rhythm *rhythm = &op->as.rhythm;
    op->macs = times(times(2, r->number[2]), op->m);
    return read_sums(m, op, r, op->m) && read_plain_weights(m, rhythm, r) &&
           read_slices(m, rhythm, r, op->m);
}

static int read_rhythm(const surnn_model *m, operation *op, const record *r) {
    struct rhythm *rhythm = &op->as.rhythm;
    uint32_t gates = op->gates, frequencies = r->number[2], bins = r->number[4];
    uint64_t per_gate = times(gates, frequencies);
    if (!read_sums(m, op, r, gates)) return 0;
    rhythm->stored_steps = r->number[3], rhythm->bins = bins, rhythm->horizon = r->number[5];
    rhythm->clock_per_gate = r->number[6] != 0;
    if (bins > MAX_LENGTH) return 0;
    if ((bins && !rhythm->horizon) || (rhythm->clock_per_gate && !bins)) return 0;
    if (rhythm->clock_per_gate) {
        rhythm->amplitudes = surnn_array(m, r->array[1], per_gate, 8);
        rhythm->phases = surnn_array(m, r->array[6], per_gate, 8);
        if (!rhythm->amplitudes || !rhythm->phases) return 0;
    } else if (!read_plain_weights(m, rhythm, r)) {
        return 0;
    }
    if (rhythm->stored_steps) {
        uint64_t words = times(rhythm->stored_steps, words_of(gates));
        rhythm->rows = surnn_array(m, r->array[3], words, 8);
        if (!rhythm->rows) return 0;
    }
    if (bins) {
        uint64_t clocks = rhythm->clock_per_gate ? gates : 1;
        rhythm->edges = surnn_array(m, r->array[5], times(clocks, (uint64_t)bins + 1), 8);
        if (!rhythm->edges) return 0;
        op->scratch_size = (uint64_t)frequencies * 3 * 8; /* see warped.c */
        return SURNN_WARPED;
    }
    op->state_size = surnn_rhythm_state_size(op);
    return read_slices(m, rhythm, r, gates);
}

static int read_hash(const surnn_model *m, operation *op, const record *r) {
    const uint8_t *rate_and_seed = surnn_array(m, r->array[0], 2, 8);
    if (!rate_and_seed) return 0;
    const surnn_scaled rate = scaled_of(u64_at(rate_and_seed));
    int shift = -rate.exponent - 53; /* 0 for a rate of 1/2 to 1 */
    if (rate.whole <= 0) op->as.hash.open_below = 0;
    else if (shift < 0) op->as.hash.open_below = (uint64_t)1 << 53;
    else if (shift > 53) op->as.hash.open_below = 1;
    else op->as.hash.open_below = ((uint64_t)rate.whole + ((uint64_t)1 << shift) - 1) >> shift;
    op->as.hash.seed = u64_at(rate_and_seed + 8);
    return 1;
}

static int read_cycles(const surnn_model *m, operation *op, const record *r) {
    struct cycles *cycles = &op->as.cycles;
    size_t gates = op->gates;
    cycles->periods = surnn_array(m, r->array[0], times(3, gates), 4);
    if (!cycles->periods) return 0;
    cycles->open_steps = cycles->periods + gates;
    cycles->shifts = cycles->open_steps + gates;
    for (size_t g = 0; g < gates; g++) { /* the first check also refuses a period of 0 */
        if (cycles->shifts[g] >= cycles->periods[g]) return 0;
        if (cycles->open_steps[g] > cycles->periods[g]) return 0;
    }
    return 1;
}

int surnn_read_gate(const surnn_model *m, operation *op, const record *r) {
    switch (op->kind) {
    case GATE_PERIODIC: return read_periodic(m, op, r);
    case GATE_RHYTHM: return read_rhythm(m, op, r);
    case GATE_HASH: return read_hash(m, op, r);
    case GATE_ABOVE: return op->n == op->gates;
    case GATE_LEVEL: op->as.level.threshold = float_of(r->number[2]); return 1;
    case GATE_CYCLES: return read_cycles(m, op, r);
    default: return 0;
    }
}
