/* Gates: which units update at a time step, as bits. Clocks are computed from the integer t, so that
 * they are exact at any t. Schedules that repeat are read from the file. Rhythms are in rhythm.c. */
#include "model.h"

#include <math.h>
#include <string.h>

static void set_bit(uint64_t *mask, size_t gate, int open) {
    mask[gate / 64] |= (uint64_t)open << (gate % 64);
}

static void close_all(uint64_t *mask, const operation *op) { memset(mask, 0, words_of(op->gates) * 8); }

/* Opens the gates that never close, and clears the unused bits of the last word. */
static void finish(uint64_t *mask, const operation *op) {
    for (uint32_t g = 0; g < op->always_open; g++) set_bit(mask, g, 1);
    if (op->gates % 64) mask[op->gates / 64] &= ((uint64_t)1 << (op->gates % 64)) - 1;
}

static void periodic(uint64_t *mask, const operation *op, int64_t t) {
    const struct periodic *periodic = &op->as.periodic;
    size_t words = words_of(op->gates), row = (size_t)((t - 1) % periodic->period);
    memcpy(mask, periodic->rows + row * words, words * 8);
}

/* Opens each gate with probability `rate`: a hash of (t, gate), splitmix64. */
static void hash(uint64_t *mask, const operation *op, int64_t t) {
    const uint64_t open_below = op->as.hash.open_below;
    close_all(mask, op);
    for (uint32_t g = 0; g < op->gates; g++) {
        uint64_t z = ((uint64_t)t * 0x1F123BB5u + g) * 0x9E3779B97F4A7C15u + op->as.hash.seed;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        set_bit(mask, g, z >> 11 < open_below);
    }
}

/* Each gate has a period of its own, and is open at the first time steps of it. */
static void cycles(uint64_t *mask, const operation *op, int64_t t) {
    const struct cycles *cycles = &op->as.cycles;
    close_all(mask, op);
    for (size_t g = 0; g < op->gates; g++) {
        uint32_t period = cycles->periods[g];
        uint64_t phase = ((uint64_t)t - 1 + (period - cycles->shifts[g])) % period;
        set_bit(mask, g, phase < cycles->open_steps[g]);
    }
}

static int any_nan(const float *x, size_t n) {
    int any = 0;
    for (size_t i = 0; i < n; i++) any |= x[i] != x[i];
    return any;
}

/* Opens gates with a > 0, unless the input that they were computed from has a NaN. */
static void above(uint64_t *mask, const operation *op, const float *a, const float *input) {
    close_all(mask, op);
    if (any_nan(input, op->n2)) return;
    for (uint32_t g = 0; g < op->gates; g++) set_bit(mask, g, a[g] > 0.0f);
}

/* Opens all gates if any number of the input exceeds the threshold. */
static void level(uint64_t *mask, const operation *op, const float *x) {
    float largest = -INFINITY;
    for (uint32_t i = 0; i < op->n; i++)
        if (x[i] > largest) largest = x[i];
    int open = largest - op->as.level.threshold > 0.0f && !any_nan(x, op->n);
    memset(mask, open ? 0xff : 0, words_of(op->gates) * 8);
}

void surnn_run_gate(const surnn_model *m, surnn_stream *s, const operation *op) {
    uint64_t *mask = mask_of(m, s, op->out);
    int64_t t = s->t + 1; /* time steps are counted from 1 */
    switch (op->kind) {
    case GATE_PERIODIC: periodic(mask, op, t); break;
    case GATE_RHYTHM: surnn_run_rhythm(m, s, op, mask, t); break;
    case GATE_HASH: hash(mask, op, t); break;
    case GATE_CYCLES: cycles(mask, op, t); break;
    case GATE_ABOVE: above(mask, op, vector_of(m, s, op->in), vector_of(m, s, op->in2)); break;
    case GATE_LEVEL: level(mask, op, vector_of(m, s, op->in)); break;
    default: break;
    }
    finish(mask, op);
}
