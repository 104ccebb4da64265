/* Rhythms: gates that are sums of sinusoids of the clock.
 *
 * Python decides by sums in double, and so does compute_row, at any clock. Most sums are far from 0,
 * so their sign is already certain in float: prepare_block computes BLOCK time steps together in
 * float, and again in double only the sums that are close to 0. Its work is spread over the time steps
 * of the block before, so that no time step is slow. */
#include "model.h"

#include <math.h>
#include <string.h>

/* From here on rounded products of frequency and time make most sums in float uncertain. */
#define FAR_CLOCK ((int64_t)1 << 40)

enum { AT_ONCE = 2 }; /* slices that share the waves of the block's middle */

/* Scratch memory: one row of sums, and its terms. */
typedef struct rhythm_scratch {
    double *angles; /* [K] */
    double *waves;  /* [2][K] */
    double *a;      /* [width] */
    float *float_waves; /* [2][K] */
} rhythm_scratch;

static rhythm_scratch lay_out(const surnn_model *m, surnn_stream *s, const struct rhythm *rhythm) {
    size_t count = rhythm->frequencies;
    rhythm_scratch scratch;
    scratch.angles = (double *)(void *)scratch_of(m, s);
    scratch.waves = scratch.angles + count;
    scratch.a = scratch.waves + 2 * count;
    scratch.float_waves = (float *)(void *)(scratch.a + rhythm->width);
    return scratch;
}

static void set_bit(uint64_t *mask, size_t gate, int open) {
    mask[gate / 64] |= (uint64_t)open << (gate % 64);
}

/* ---------------------------------------------------------------- one time step, in double */

/* Keeps a compiler from joining a product and a sum to one rounding, which Python has not. */
static double rounded(double x) {
    volatile double y = x;
    return y;
}

/* The learned clock of a warped rhythm: monotone, piecewise linear over a horizon, repeated. */
static double warp(const struct rhythm *rhythm, const double *edges, int64_t t) {
    int64_t horizon = rhythm->horizon, bins = rhythm->bins, turn = t / horizon;
    double position = (double)(t - turn * horizon) * ((double)bins / (double)horizon);
    int64_t bin = (int64_t)position < bins - 1 ? (int64_t)position : bins - 1;
    double inside = rounded((edges[bin + 1] - edges[bin]) * (position - (double)bin));
    return ((double)turn + (edges[bin] + inside)) * (double)horizon;
}

/* waves[2][K]: sin and cos of the rounded products of omega and tau, as in Python. */
static void compute_waves(const surnn_model *m, const struct rhythm *rhythm,
                          const rhythm_scratch *scratch, double tau) {
    size_t count = rhythm->frequencies;
    for (size_t k = 0; k < count; k++) scratch->angles[k] = rhythm->omega[k] * tau;
    m->k->turns(scratch->waves, scratch->waves + count, scratch->angles, count);
}

/* The sum of a gate with a clock of its own. */
static double sum_of_own_clock(const surnn_model *m, const struct rhythm *rhythm,
                               const rhythm_scratch *scratch, size_t gate, int64_t t) {
    size_t count = rhythm->frequencies;
    const double *amplitude = rhythm->amplitudes + gate * count;
    const double *phase = rhythm->phases + gate * count;
    double tau = warp(rhythm, rhythm->edges + gate * ((size_t)rhythm->bins + 1), t), sum = 0.0;
    for (size_t k = 0; k < count; k++)
        scratch->angles[k] = rounded(rhythm->omega[k] * tau) + phase[k];
    m->k->turns(scratch->waves, scratch->waves + count, scratch->angles, count);
    for (size_t k = 0; k < count; k++) sum += amplitude[k] * scratch->waves[k];
    return sum + rhythm->bias[gate];
}

static void compute_row(const surnn_model *m, const operation *op, const rhythm_scratch *scratch,
                        uint64_t *row, int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t gates = op->gates;
    if (rhythm->clock_per_gate) {
        for (size_t g = 0; g < gates; g++)
            scratch->a[g] = sum_of_own_clock(m, rhythm, scratch, g, t);
    } else {
        double tau = rhythm->bins ? warp(rhythm, rhythm->edges, t) : (double)t;
        compute_waves(m, rhythm, scratch, tau);
        m->k->mix(scratch->a, scratch->waves, rhythm->weights, rhythm->bias, rhythm->frequencies,
                  rhythm->width);
    }
    memset(row, 0, words_of(op->gates) * 8);
    for (size_t g = 0; g < gates; g++) set_bit(row, g, scratch->a[g] > 0.0);
}

void surnn_run_sinusoids(const surnn_model *m, surnn_stream *s, const operation *op, float *y,
                         int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    const rhythm_scratch scratch = lay_out(m, s, rhythm);
    compute_waves(m, rhythm, &scratch, (double)t);
    m->k->mix(scratch.a, scratch.waves, rhythm->weights, rhythm->bias, rhythm->frequencies,
              rhythm->width);
    for (uint32_t g = 0; g < op->m; g++) y[g] = (float)scratch.a[g];
}

/* ---------------------------------------------------------------- a block, in float */

/* A rhythm's part of a stream. Block b has the time steps from b * BLOCK + 1 on. */
typedef struct rhythm_state {
    uint64_t block;  /* the block in rows[0], plus 1; 0: none */
    uint64_t next;   /* the block in rows[1], plus 1 */
    uint64_t slices; /* slices of it that are prepared */
    uint64_t rows[]; /* [2][BLOCK][words] */
} rhythm_state;

static const struct slice *slice_at(const struct rhythm *rhythm, size_t index) {
    size_t floats = sizeof(struct slice) / sizeof(float) + rhythm->frequencies * 2 * SLICE;
    return (const struct slice *)(const void *)(rhythm->slices + index * floats);
}

/* The bits of `unsure` in double; waves are those of the time step. */
static uint32_t decide_in_double(const struct rhythm *rhythm, const rhythm_scratch *scratch,
                                 size_t first, uint32_t unsure) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < SLICE; i++) {
        if (!(unsure >> i & 1)) continue;
        const double *weights = rhythm->weights + first + i;
        double sum = 0.0;
        for (size_t k = 0; k < 2 * rhythm->frequencies; k++)
            sum += weights[k * rhythm->width] * scratch->waves[k];
        open |= (uint32_t)(sum + rhythm->bias[first + i] > 0.0) << i;
    }
    return open;
}

/* Prepares one slice of the gates of BLOCK time steps, from `first` on. float_waves are those of the
 * block's middle. */
static void prepare_slice(const surnn_model *m, const operation *op, const rhythm_scratch *scratch,
                          uint64_t *rows, size_t index, int64_t first) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t words = words_of(op->gates), gate = index * SLICE, shift = gate % 64;
    uint32_t valid = op->gates - gate < SLICE ? (1u << (op->gates - gate)) - 1 : (1u << SLICE) - 1;
    uint16_t open[BLOCK], unsure[BLOCK];
    m->k->look_ahead(open, unsure, slice_at(rhythm, index), rhythm->rotations, scratch->float_waves,
                     rhythm->frequencies, (float)(first + BLOCK));
    for (size_t j = 0; j < BLOCK; j++) {
        uint64_t *word = rows + j * words + gate / 64, bits = open[j];
        if (unsure[j] & valid) {
            compute_waves(m, rhythm, scratch, (double)(first + (int64_t)j));
            bits &= ~(uint64_t)unsure[j];
            bits |= decide_in_double(rhythm, scratch, gate, unsure[j] & valid);
        }
        *word = (*word & ~((uint64_t)0xffff << shift)) | bits << shift;
    }
}

/* At each time step of a block, the same share of the next one. A block is prepared from the first
 * time step of the one before, or not at all. */
static void prepare_next_block(const surnn_model *m, const operation *op, rhythm_state *state,
                               const rhythm_scratch *scratch, int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t all = (op->gates + SLICE - 1) / SLICE, words = words_of(op->gates);
    uint64_t next = (uint64_t)(t - 1) / BLOCK + 1, position = (uint64_t)(t - 1) % BLOCK;
    int64_t first = (int64_t)(next * BLOCK) + 1;
    if ((uint64_t)first + BLOCK <= rhythm->stored_steps) return;
    if (position == 0) state->next = next + 1, state->slices = 0;
    if (state->next != next + 1) return;
    size_t target = (size_t)round_up(((position + 1) * all + BLOCK - 1) / BLOCK, AT_ONCE);
    if (target > all) target = all;
    if (state->slices >= target) return;
    compute_waves(m, rhythm, scratch, (double)(first + HALF_BLOCK));
    for (size_t k = 0; k < 2 * rhythm->frequencies; k++)
        scratch->float_waves[k] = (float)scratch->waves[k];
    for (; state->slices < target; state->slices++)
        prepare_slice(m, op, scratch, state->rows + BLOCK * words, (size_t)state->slices, first);
}

void surnn_run_rhythm(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *mask,
                      int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    const rhythm_scratch scratch = lay_out(m, s, rhythm);
    rhythm_state *state = (rhythm_state *)(void *)stream_at(s, op->state_offset);
    size_t words = words_of(op->gates), block_bytes = BLOCK * words * 8;
    uint64_t number = (uint64_t)(t - 1) / BLOCK + 1, row = (uint64_t)(t - 1) % BLOCK;
    int ahead = rhythm->slices && t < FAR_CLOCK;
    if (ahead && row == 0 && state->next == number && state->slices * SLICE >= op->gates) {
        memcpy(state->rows, state->rows + BLOCK * words, block_bytes);
        state->block = number;
    }
    if ((uint64_t)t <= rhythm->stored_steps)
        memcpy(mask, rhythm->rows + (size_t)(t - 1) * words, words * 8);
    else if (ahead && state->block == number) memcpy(mask, state->rows + row * words, words * 8);
    else compute_row(m, op, &scratch, mask, t);
    if (ahead) prepare_next_block(m, op, state, &scratch, t);
}
