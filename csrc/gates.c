/* Gates: which units update at this step, as bits. Clocks are computed in double from integers, so
 * that they are right at any t; schedules that repeat, or are known ahead, are read from the file. */
#include "internal.h"

#include <math.h>
#include <string.h>

static void set_bit(uint64_t *mask, uint32_t gate) { mask[gate / 64] |= (uint64_t)1 << (gate % 64); }

/* The first gates are always open; there are none beyond the last. */
static void finish(uint64_t *mask, const operation *op) {
    uint32_t gates = op->p[0];
    for (uint32_t g = 0; g < op->p[1]; g++) set_bit(mask, g);
    if (gates % 64) mask[gates / 64] &= ((uint64_t)1 << (gates % 64)) - 1;
}

/* ---------------------------------------------------------------- sums of sinusoids */

/* The learned clock of a warped rhythm: monotone, piecewise linear over a horizon, repeated. */
static double warped(const operation *op, const double *edges, int64_t t) {
    int64_t horizon = op->p[5], bins = op->p[4], turn = t / horizon;
    double inside = (double)(t - turn * horizon) * ((double)bins / (double)horizon);
    int64_t bin = (int64_t)inside < bins - 1 ? (int64_t)inside : bins - 1;
    double within = edges[bin] + (edges[bin + 1] - edges[bin]) * (inside - (double)bin);
    return ((double)turn + within) * (double)horizon;
}

static void warped_waves(double *waves, const operation *op, int64_t t) {
    const double *omega = op->data[0], *edges = op->data[5];
    size_t count = op->p[2];
    for (int64_t j = 0; j < BLOCK; j++, waves += 2 * count) {
        double tau = warped(op, edges, t + j);
        for (size_t k = 0; k < count; k++)
            waves[k] = sin(tau * omega[k]), waves[count + k] = cos(tau * omega[k]);
    }
}

/* A clock for each gate: nothing is shared, so everything is computed. */
static void warped_each(double *a, const operation *op, size_t wide, int64_t t) {
    const double *omega = op->data[0], *amplitude = op->data[1], *bias = op->data[2];
    const double *edges = op->data[5], *phase = op->data[6];
    size_t count = op->p[2], stride = (size_t)op->p[4] + 1;
    for (int64_t j = 0; j < BLOCK; j++, a += wide)
        for (size_t g = 0; g < op->p[0]; g++) {
            double tau = warped(op, edges + g * stride, t + j), sum = 0.0;
            for (size_t k = 0; k < count; k++)
                sum += amplitude[g * count + k] * sin(tau * omega[k] + phase[g * count + k]);
            a[g] = sum + bias[g];
        }
}

static void make_block(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *bits,
                       int64_t t) {
    size_t gates = op->p[0], wide = round_up(gates, 8), count = op->p[2], words = words_of(op->p[0]);
    double *waves = (double *)(void *)at(s, m->scratch);
    double *a = waves + round_up(2 * BLOCK * count, 8);
    if (op->p[6]) {
        warped_each(a, op, wide, t);
    } else {
        if (op->p[4]) warped_waves(waves, op, t);
        else m->k->waves(waves, op->data[0], op->data[4], count, t);
        m->k->mix(a, waves, op->data[1], op->data[2], count, wide);
    }
    memset(bits, 0, BLOCK * words * 8);
    for (size_t j = 0; j < BLOCK; j++)
        for (size_t g = 0; g < gates; g++)
            bits[j * words + g / 64] |= (uint64_t)(a[j * wide + g] > 0.0) << (g % 64);
}

static void rhythm(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *mask,
                   int64_t t) {
    size_t words = words_of(op->p[0]);
    if ((uint64_t)t <= op->p[3]) { /* known ahead */
        memcpy(mask, (const uint64_t *)op->data[3] + (size_t)(t - 1) * words, words * 8);
        return;
    }
    uint64_t *own = (uint64_t *)(void *)at(s, op->state), *bits = own + 2;
    uint64_t ahead = (uint64_t)t - own[1]; /* own: whether there is a block, its first step */
    if (!own[0] || ahead >= BLOCK) {
        make_block(m, s, op, bits, t);
        own[0] = 1, own[1] = (uint64_t)t, ahead = 0;
    }
    memcpy(mask, bits + ahead * words, words * 8);
}

/* ---------------------------------------------------------------- others */

/* A coin for every (t, gate): splitmix64. */
static void hash(uint64_t *mask, const operation *op, int64_t t) {
    double rate;
    uint64_t seed;
    memcpy(&rate, op->data[0], 8);
    memcpy(&seed, (const uint8_t *)op->data[0] + 8, 8);
    memset(mask, 0, words_of(op->p[0]) * 8);
    for (uint32_t g = 0; g < op->p[0]; g++) {
        uint64_t z = ((uint64_t)t * 0x1F123BB5u + g) * 0x9E3779B97F4A7C15u + seed;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        if (rate - (double)(z >> 11) * 0x1p-53 > 0.0) set_bit(mask, g);
    }
}

/* Some steps of a cycle that is each gate's own. */
static void cycles(uint64_t *mask, const operation *op, int64_t t) {
    size_t gates = op->p[0];
    const uint32_t *period = op->data[0], *open_steps = period + gates, *shift = open_steps + gates;
    memset(mask, 0, words_of(op->p[0]) * 8);
    for (size_t g = 0; g < gates; g++) {
        uint64_t since = ((uint64_t)t - 1 + (period[g] - shift[g])) % period[g];
        mask[g / 64] |= (uint64_t)(since < open_steps[g]) << (g % 64);
    }
}

static int any_nan(const float *x, size_t n) {
    int found = 0;
    for (size_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

/* Open where a > 0; a gate that sees NaN stays closed. */
static void above(uint64_t *mask, const operation *op, const float *a, const float *seen) {
    memset(mask, 0, words_of(op->p[0]) * 8);
    if (any_nan(seen, op->n2)) return;
    for (uint32_t g = 0; g < op->p[0]; g++) mask[g / 64] |= (uint64_t)(a[g] > 0.0f) << (g % 64);
}

/* All gates open where the input exceeds a level anywhere. */
static void level(uint64_t *mask, const operation *op, const float *x) {
    float limit, most = -INFINITY;
    memcpy(&limit, &op->p[2], 4);
    for (uint32_t i = 0; i < op->n; i++)
        if (x[i] > most) most = x[i];
    int open = most - limit > 0.0f && !any_nan(x, op->n);
    memset(mask, open ? 0xff : 0, words_of(op->p[0]) * 8);
}

void surnn_run_gate(const surnn_model *m, surnn_stream *s, const operation *op) {
    uint64_t *mask = mask_of(m, s, op->out);
    size_t words = words_of(op->p[0]);
    int64_t t = s->t + 1; /* steps are counted from 1 */
    switch (op->kind) {
    case GATE_PERIODIC:
        memcpy(mask, (const uint64_t *)op->data[0] + (size_t)((t - 1) % op->p[2]) * words, words * 8);
        break;
    case GATE_RHYTHM: rhythm(m, s, op, mask, t); break;
    case GATE_HASH: hash(mask, op, t); break;
    case GATE_CYCLES: cycles(mask, op, t); break;
    case GATE_ABOVE: above(mask, op, numbers(m, s, op->in), numbers(m, s, op->in2)); break;
    case GATE_LEVEL: level(mask, op, numbers(m, s, op->in)); break;
    default: break;
    }
    finish(mask, op);
}
